"""Scores new recordings with a model that was trained on a data set.

::

    recordings -> features, as `record` would store them   open_audio
               -> scores (windows, classes)                model_of
               -> windows of a class with enough score     windows_above
               -> detections: such windows, joined         join_windows
               -> rows of a table                          CSV, Parquet, Raven
"""

from __future__ import annotations

import inspect
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.side_by_side import Folders
from beam_pipeline.dataset.tables import count_clips
from beam_pipeline.errors import (
    DataSetWarning,
    InputError,
    OptionError,
    TooManyRejected,
    needing,
)
from beam_pipeline.inputs.listing import GivenInput
from beam_pipeline.parameters import Number, check_flag, check_known, check_whole
from beam_pipeline.read.open_audio import CHANGEABLE, open_audio
from beam_pipeline.recipe.recipe import DEFAULT_FEATURE, allowed_rejects
from beam_pipeline.storage import files
from beam_pipeline.storage.files import PathLike
from beam_pipeline.text import counted
from beam_pipeline.transforms.own_code import import_own

if TYPE_CHECKING:
    import pyarrow

# Takes the features of n windows; returns an array of scores, (n, classes).
Model = Callable[[Any], Any]


def model_of(given: PathLike | Model) -> Model:
    """Returns a model that takes and returns arrays.

    Parameters
    ----------
    given : path, callable or torch.nn.Module
        A local file: ``.keras`` of Keras, ``.pt2`` of ``torch.export.save``, ``.pt`` of
        TorchScript; or a function, or its name, ``module:function``.

    Raises
    ------
    OptionError
        If it is none of these, or there is no such function.
    InputError
        If the file does not exist or cannot be loaded, or its framework is not
        installed.
    """
    if isinstance(given, str | os.PathLike):
        given = _loaded(os.fspath(given))
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(given, torch.nn.Module):
        return _on_tensors(given.eval())
    if not callable(given):
        raise _no_model(given)
    return given


def _no_model(given: object) -> OptionError:
    kinds = ", ".join(_LOADERS)
    need = f"must be a file {kinds}, or a function as module:function"
    return OptionError("model", need, given)


def _loaded(model: str) -> Any:
    """Returns what is in a file, or what a name stands for."""
    suffix = os.path.splitext(model)[1].lower()
    if suffix in _LOADERS:
        if not os.path.isfile(model):
            raise InputError(f"{model}: there is no such file. Check `model`.")
        load, package = _LOADERS[suffix]
        try:
            with needing(package, model):
                return load(model)
        except (OSError, ValueError, TypeError, RuntimeError) as error:
            raise InputError(
                f"{model} cannot be loaded: {error}. A .keras file is one of "
                "`model.save`, a .pt2 file one of `torch.export.save`, and a .pt file "
                "one of `torch.jit.save`. For a model of any other kind, give a "
                "function that calls it, module:function."
            ) from error
    module, _, name = model.partition(":")
    if not (module and name):
        raise _no_model(model)
    try:
        return attrgetter(name)(import_own(module))
    except (ImportError, AttributeError) as error:
        raise OptionError("model", f"cannot be imported: {error}", model) from error


def _keras_model(path: str) -> Any:
    import keras

    return keras.saving.load_model(path, compile=False).predict_on_batch


def _exported_model(path: str) -> Model:
    import torch

    return _on_tensors(torch.export.load(path).module())


def _torch_script(path: str) -> Model:
    import torch

    return _on_tensors(torch.jit.load(path, map_location="cpu").eval())


def _on_tensors(module: Any) -> Model:
    """Returns a model that takes and returns arrays, of one that takes tensors."""
    import torch

    def predicted(values: Any) -> Any:
        with torch.inference_mode():
            return module(torch.from_numpy(values)).numpy()

    return predicted


# The suffix of a file -> what loads it, and the package that it needs.
_LOADERS: dict[str, tuple[Callable[[str], Any], str]] = {
    ".keras": (_keras_model, "keras"),
    ".pt2": (_exported_model, "torch"),
    ".pt": (_torch_script, "torch"),
}


# The feature with the sample rate of a window.
_RATE = "fs"

# Times are quotients of whole numbers of frames: so close to each other, they are one.
_ROUNDING_S = 1e-6


def predict(
    model: PathLike | Model, input: GivenInput, like: Folders, **options: Any
) -> pyarrow.Table:
    """Scores recordings with a model; returns a row for each detection.

    ::

        table = predict("classifier.keras", "night/", like="records/")

    Parameters
    ----------
    model, input, like, **options
        See :class:`Scoring`.

    Returns
    -------
    pyarrow.Table
        ============== ======= =====================================================
        input          int64   the number of its input; only if there are several
        path           text    of the recording, relative to its input
        start_s, end_s float64 seconds from the start of the recording
        class          text
        score          float32 the largest score of the windows in the detection
        ============== ======= =====================================================

    Warns
    -----
    DataSetWarning
        For each recording that cannot be scored, or not to its end, with the reason.

    Raises
    ------
    InputError, OptionError
        See :class:`Scoring`.
    """
    import pyarrow as pa

    check_known(options, [*inspect.signature(Scoring).parameters, *CHANGEABLE])
    scoring = Scoring(model, input, like, **options)
    tables = [recording.rows for recording in scoring]
    return pa.concat_tables([scoring.schema.empty_table(), *tables])


class ScoredRecording(NamedTuple):
    """A recording: its path, the sample rate of its windows in hertz, and its rows.

    The rows are those of :func:`predict`.
    """

    path: str
    sample_rate_hz: int
    rows: pyarrow.Table


class Scoring:
    """Scores recordings one after the other, each time it is iterated over.

    An iteration gives a :class:`ScoredRecording` for each recording that has a window.
    Memory holds some windows, and the rows of one recording.

    Parameters
    ----------
    model : path, callable or torch.nn.Module
        See :func:`.model_of`. It gets the features of n windows, an array of shape
        ``(n, *shape)``, and returns scores, of shape ``(n, classes)``.
    input : path or sequence of paths
        The recordings, as for ``record``.
    like : path or sequence of paths
        The data set that the model was trained on.
    feature : str, optional
        The feature that the model gets. Default: the only one.
    normalize : bool
        Whether to scale it by the statistics of the training split, as
        ``replay(normalize=True)``.
    threshold : float
        A window is of a class if the score is this, or above it. Scores are what the
        model gives: probabilities only if its last step is a sigmoid or a softmax.
    max_gap_seconds : float
        Windows of a class become one detection if they overlap, touch, or have a gap of
        at most so many seconds.
    each_window : bool
        Whether each window and class of enough score is a row of its own.
    batch_size : int
        So many windows go to the model at once.
    **options
        Of :func:`.open_audio`: ``hop_seconds=0.1``, ``tail="pad"``,
        ``allow_truncated=True``, and others.

    Attributes
    ----------
    classes : tuple of str
    schema : pyarrow.Schema
        The columns of the rows.
    paths : list of str
        Those of the recordings, relative to their inputs.
    recordings : int
        How many the latest iteration has scored.
    rejects : list of Reject
        Why recordings could not be scored, or not to their end.

    Raises
    ------
    InputError
        If the data set has no classes, or there is no recording. While it is iterated
        over: if the model fails, or gives scores of another shape than ``(n,
        classes)``, NaN or infinity.
    OptionError
        If an option has a wrong value.
    """

    def __init__(
        self,
        model: PathLike | Model,
        input: GivenInput,
        like: Folders,
        *,
        feature: str | None = None,
        normalize: bool = False,
        threshold: float = 0.5,
        max_gap_seconds: float = 0.0,
        each_window: bool = False,
        batch_size: int = 64,
        **options: Any,
    ):
        import pyarrow as pa

        self._threshold = Number().value("threshold", threshold)
        self._max_gap_s = Number(0).value("max_gap_seconds", max_gap_seconds)
        self._each_window = check_flag("each_window", each_window)
        self._batch_size = check_whole("batch_size", batch_size)
        self._normalize = check_flag("normalize", normalize)
        chosen = None if feature is None else [feature, _RATE]
        self._audio = audio = open_audio(input, like, chosen, **options)
        if feature is None:
            recipe = audio.metadata.recorded_with
            names = list(recipe.features if recipe else ()) or [DEFAULT_FEATURE]
            if len(names) > 1:
                problem = f"is needed: the data set has {', '.join(names)}"
                raise OptionError("feature", problem)
            (feature,) = names
        self._feature = feature
        self.classes = audio.classes
        if not self.classes:
            raise InputError(
                f"{like} has no classes, so it does not say what a model's scores are "
                "of. Give the data set that the model was trained on as `like`."
            )
        self._model, self._has_warned = model_of(model), False
        self.paths = audio.paths
        columns = {"input": pa.int64()} if audio.inputs > 1 else {}
        columns |= {"path": pa.string(), "start_s": pa.float64(), "end_s": pa.float64()}
        self.schema = pa.schema(
            {**columns, "class": pa.string(), "score": pa.float32()}
        )
        self.rejects, self.recordings = audio.rejects, 0

    def __iter__(self) -> Iterator[ScoredRecording]:
        self.recordings = 0
        for key, parts in groupby(self._scored(), key=itemgetter(0)):
            self.recordings += 1
            found = np.concatenate([windows for _, windows in parts])
            if not self._each_window:
                found = join_windows(found, self._max_gap_s)
            path, place, rate_hz = key
            yield ScoredRecording(path, rate_hz, self._rows(path, place, found))

    def _scored(self) -> Iterator[tuple[tuple[str, int, int], Detections]]:
        """Yields path, input and rate of a recording, and some windows above."""
        given = {"normalize": [self._feature] if self._normalize else False}
        for batch in self._audio.batches(self._batch_size, **given):
            scores, rates = self._scores(batch), batch[_RATE].tolist()
            keys = [*zip(batch["path"], batch["input"].tolist(), rates, strict=True)]
            for key, group in groupby(range(len(keys)), keys.__getitem__):
                some = [*group]
                times_s = batch["start_s"][some], batch["end_s"][some]
                yield key, windows_above(*times_s, scores[some], self._threshold)

    def _scores(self, batch: Mapping[str, Any]) -> npt.NDArray[Any]:
        """Returns the model's scores of some windows, checked."""
        values = batch[self._feature]
        first = f"{batch['path'][0]} at {batch['start_s'][0]:g} s"
        try:
            scores = np.asarray(self._model(values))
        except Exception as error:  # a model may raise anything
            raise InputError(
                f"The model fails on {first}, where it gets the feature "
                f"{self._feature}, {values.dtype} of shape {values.shape}: "
                f"{type(error).__name__}: {error}. If it was trained on another "
                "feature or data set, change `feature` or `like`. A .pt2 file needs a "
                "number of windows that is dynamic, torch.export.Dim."
            ) from error
        wanted = len(values), len(self.classes)
        if scores.shape != wanted:
            raise InputError(
                f"The model gives scores of shape {scores.shape} for {first}, but they "
                f"must be {wanted}: for each window, a score for each of the classes "
                f"of `like`: {', '.join(self.classes)}."
            )
        if scores.dtype.kind in "cOSUMm":  # complex, objects, texts, bytes, times
            raise InputError(
                f"The model gives scores of the type {scores.dtype} for {first}, but "
                "they must be real numbers."
            )
        is_bad = ~np.isfinite(scores).all(axis=1)
        if is_bad.any():
            at = int(np.argmax(is_bad))
            raise InputError(
                f"The model gives NaN or infinity for {batch['path'][at]} at "
                f"{batch['start_s'][at]:g} s. Check that it was trained with the same "
                "`normalize`, and what it gives for the training data."
            )
        self._compare(float(scores.min()), float(scores.max()))
        return scores

    def _compare(self, least: float, most: float) -> None:
        """Warns once where scores and threshold seem to have different scales."""
        are_shares, limit = least >= 0 and most <= 1, self._threshold
        if self._has_warned or not (limit > 1 if are_shares else 0 < limit < 1):
            return
        self._has_warned = True
        warnings.warn(
            f"The model gives scores from {least:.3g} to {most:.3g}, but `threshold` "
            f"is {limit:g}. Scores are compared as the model gives them: give a "
            "threshold on their scale. For probabilities, from 0 to 1, end the model "
            "with a sigmoid or a softmax.",
            DataSetWarning,
            stacklevel=2,
        )

    def describe_feature(self) -> str:
        """Returns what the model gets, and whether it is normalised."""
        if self._normalize:
            return f"{self._feature}, normalised by the training split"
        return f"{self._feature}, not normalised (without `normalize`)"

    def check_rejects(self, max_rejected: str = "0") -> None:
        """Raises TooManyRejected if more recordings were rejected than allowed.

        ``max_rejected`` is a number, or a percentage of all recordings.
        """
        rejected = count_clips(self.rejects)
        whole = count_clips(each for each in self.rejects if each.shard is None)
        total = self.recordings + whole
        if rejected > allowed_rejects(max_rejected, total):
            raise TooManyRejected(
                f"{rejected} of {counted(total, 'recording')} could not be scored, or "
                f"not to the end, but `max_rejected` is {max_rejected}. The warnings "
                "say why. All others are scored. To accept this, give the same command "
                f"again with `max_rejected` {rejected}."
            )

    def _rows(self, path: str, place: int, found: Detections) -> pyarrow.Table:
        import pyarrow as pa

        names = pa.array(self.classes, pa.string()).take(pa.array(found["target"]))
        columns = {name: found[name] for name in ("start_s", "end_s", "score")}
        columns |= {"class": names, "path": pa.repeat(path, len(names))}
        columns["input"] = pa.repeat(place, len(names))
        return pa.table([columns[n] for n in self.schema.names], schema=self.schema)


# Stretches of a recording in which a class has enough score: seconds from the start of
# the file, the number of the class, and the largest score of the windows in them.
DETECTION = np.dtype(
    [
        ("start_s", np.float64),
        ("end_s", np.float64),
        ("target", np.int64),
        ("score", np.float32),
    ]
)
Detections = npt.NDArray[np.void]


def windows_above(
    start_s: npt.NDArray[np.float64],
    end_s: npt.NDArray[np.float64],
    scores: npt.NDArray[Any],
    threshold: float,
) -> Detections:
    """Returns each window and class whose score is the threshold, or above it.

    Parameters
    ----------
    start_s, end_s : numpy.ndarray, shape (n,)
    scores : numpy.ndarray, shape (n, classes)
    threshold : float

    Returns
    -------
    numpy.ndarray of DETECTION
    """
    window, target = np.nonzero(scores >= threshold)
    found = np.empty(len(window), DETECTION)
    found["start_s"], found["end_s"] = start_s[window], end_s[window]
    found["target"], found["score"] = target, scores[window, target]
    return found


def join_windows(windows: Detections, max_gap_s: float) -> Detections:
    """Joins windows of a class that overlap, touch, or have a short gap between them.

    Parameters
    ----------
    windows : numpy.ndarray of DETECTION
        Of one recording, of one length; the last may be cut off by the file's end.
    max_gap_s : float
        The longest gap in seconds.

    Returns
    -------
    numpy.ndarray of DETECTION
        In the order of their starts; of equal ones, in that of the classes.
    """
    if not len(windows):
        return windows
    windows = np.sort(windows, order=["target", "start_s"], kind="stable")
    gaps_s = windows["start_s"][1:] - windows["end_s"][:-1]
    begins = (np.diff(windows["target"]) != 0) | (gaps_s > max_gap_s + _ROUNDING_S)
    first = np.flatnonzero(np.append(True, begins))
    joined = windows[first]
    joined["end_s"] = windows["end_s"][np.append(first[1:], len(windows)) - 1]
    joined["score"] = np.maximum.reduceat(windows["score"], first)
    return np.sort(joined, order=["start_s", "target"])


def write_tables(
    scoring: Scoring, output: str, raven: str | None = None
) -> Counter[str]:
    """Writes the rows of recordings as they come; returns how many each class has.

    Parameters
    ----------
    scoring : Scoring
    output : str
        A file, ``.csv`` or ``.parquet``, which is there when it is whole.
    raven : str, optional
        A folder for Raven's selection tables, see :func:`write_selections`.

    Raises
    ------
    OptionError
        If the output has another suffix, two recordings have one selection table, or
        one exists, which somebody may have corrected. Nothing is written then.
    OutputError
        If nothing can be written there.
    """
    import pyarrow.csv
    import pyarrow.parquet

    writers = {
        ".csv": pyarrow.csv.CSVWriter,
        ".parquet": pyarrow.parquet.ParquetWriter,
    }
    suffix = os.path.splitext(output)[1].lower()
    if suffix not in writers:
        raise OptionError("output", f"must end in {' or '.join(writers)}", output)
    files.check_writable(output)
    if raven is not None:
        files.check_writable(files.join(raven, "new"))
        _check_new(raven, Counter(map(selections_name, scoring.paths)))
    classes = Counter[str]()
    with files.replacing(output) as file, writers[suffix](file, scoring.schema) as out:
        for recording in scoring:
            out.write_table(recording.rows)
            classes.update(recording.rows.column("class").to_pylist())
            if raven is not None:
                name = selections_name(recording.path)
                write_selections(files.join(raven, name), recording)
    return classes


def selections_name(path: str) -> str:
    """Returns the name of the selection table of a recording."""
    return f"{os.path.splitext(path)[0]}.selections.txt"


def _check_new(folder: str, names: Counter[str]) -> None:
    """Checks that a folder has none of some selection tables, each of one recording."""
    for name, recordings in names.items():
        if recordings > 1:
            problem = f"needs recordings of different names, but two give {name}"
            raise OptionError("raven", problem)
        if files.exists(files.join(folder, name)):
            problem = f"has {name} already, which may be corrected; give a new folder"
            raise OptionError("raven", problem, folder)


# Columns of Raven's selection tables. The reader is `inputs.event_files`.
_RAVEN = (
    "Selection", "View", "Channel", "Begin Time (s)", "End Time (s)", "Low Freq (Hz)",
    "High Freq (Hz)", "Begin File", "Annotation", "Score",
)  # fmt: skip


def write_selections(target: str, recording: ScoredRecording) -> None:
    """Writes Raven's selection table of a recording; it is a header if it has no rows.

    Selections reach up to half the sample rate: the band that the model has heard.
    """
    lines = ["\t".join(_RAVEN)]
    high_hz = recording.sample_rate_hz / 2
    file = recording.path.rpartition("/")[2]
    for number, row in enumerate(recording.rows.to_pylist(), 1):
        lines.append(
            f"{number}\tSpectrogram 1\t1\t{row['start_s']:.6f}\t{row['end_s']:.6f}\t0\t"
            f"{high_hz:g}\t{file}\t{row['class']}\t{row['score']:.6g}"
        )
    files.write_bytes(target, ("\n".join(lines) + "\n").encode())
