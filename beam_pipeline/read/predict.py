"""New recordings: their windows, as those of a data set, and what a model scores them.

::

    files, samples --list, probe--> clips --decode, cut, transform, encode--> examples
                                                     as in write.shard         in memory

    examples -> scores (windows, classes)                model_of
             -> windows of a class with enough score     windows_above
             -> detections: such windows, joined         join_windows
             -> rows of a table                          CSV, Parquet, Raven

The functions are those that wrote the data set, under its recipe. Features are encoded
and decoded, too, because an encoding may round: a model gets what it would have got
from a data set. One block of windows is in memory, however long a recording is.
"""

from __future__ import annotations

import operator
import os
import sys
import warnings
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain, groupby, islice
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.folders import MANIFEST
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.side_by_side import DataSets, Folders, open_data_sets
from beam_pipeline.dataset.tables import count_clips, read_table
from beam_pipeline.errors import (
    DataSetWarning,
    InputError,
    OptionError,
    TooManyRejected,
    needing,
)
from beam_pipeline.examples.features import Corpus, ExampleFormat
from beam_pipeline.examples.serialisation import BatchMaker, ExampleMaker
from beam_pipeline.examples.window_steps import changes_copies
from beam_pipeline.inputs.listing import GivenInput, Listing, resolved
from beam_pipeline.parameters import Names, Number, check_flag, check_whole
from beam_pipeline.planning.clips import Clip, Reject, window_frames, with_split
from beam_pipeline.planning.prober import Prober
from beam_pipeline.planning.shards import Segment, Shard, ShardWork, locate_examples
from beam_pipeline.process import OneThread
from beam_pipeline.read.choices import Statistics, check_name, choose_scales, normalise
from beam_pipeline.read.example_view import Sound
from beam_pipeline.read.records import Example, parser_of
from beam_pipeline.read.show import save_wav
from beam_pipeline.recipe.recipe import (
    AT_GRID,
    DEFAULT_FEATURE,
    Augmentation,
    Columns,
    Events,
    Labels,
    Recipe,
    Shards,
    Splits,
    allowed_rejects,
    options_of,
    recipe_options,
    transform_of,
)
from beam_pipeline.storage import files
from beam_pipeline.storage.files import PathLike, temporary_folder
from beam_pipeline.text import counted
from beam_pipeline.transforms.base import steps_of
from beam_pipeline.transforms.own_code import import_own
from beam_pipeline.transforms.steps import parse_transform
from beam_pipeline.write.shard import encode_shard

if TYPE_CHECKING:
    import pyarrow

# What a batch holds beside its features.
OF_WINDOWS = {"path": object, "input": int, "start_s": float, "end_s": float}

# Iterating makes so many windows at once.
AHEAD = 16

# Sections of a recipe that say nothing of the features of a window.
_OF_TRAINING = (Labels, Events, Columns, Splits, Augmentation, Shards)
# Options of the other ones that choose windows for training.
_CHOOSING = (
    "keep", "max_windows", "random_starts", "min_seconds", "max_seconds",
    "hash_files", "whole_clips",
)  # fmt: skip
# A split whose windows have no copies.
_SPLIT = "new"
# Options that may differ from those of the data set.
CHANGEABLE = (
    "hop", "hop_seconds", "tail", "short_clips", "keep", "windows_at", "decoder",
    "allow_truncated", "allow_nonfinite", "path_column", "column_names", "delimiter",
)  # fmt: skip


def open_audio(
    source: GivenInput | npt.NDArray[Any],
    like: Folders,
    features: Sequence[str] | None = None,
    *,
    sample_rate: int | None = None,
    **options: Any,
) -> AudioWindows:
    """Opens recordings as if they were a data set, without writing any.

    ::

        night = open_audio("night.wav", like="records/")
        for batch in night.batches(64, normalize=True):
            scores = model.predict(batch["log_mel"])

    Every window of the recordings has the features that :func:`.record` would have
    stored with the recipe of a data set, bit for bit. Labels, events, splits and copies
    are left out. So is what chooses windows for training: ``keep``, ``max_windows``,
    ``random_starts``, limits of the length, and windows at events, which become those
    of the grid. Recordings of other sample rates are resampled to that of the data set.

    Parameters
    ----------
    source : path, table, sequence of them, or numpy.ndarray
        Recordings, as the ``input`` of :func:`.record`. Or samples, of shape
        ``(frames,)`` or ``(channels, frames)``: floats with a full scale of 1, int16 or
        int32. They are copied to a temporary file.
    like : path or sequence of paths
        The data set, or several that belong together.
    features : sequence of str, optional
        Only these are computed. Default: all.
    sample_rate : int, optional
        That of samples in an array, in hertz.
    **options
        Options of :func:`.record` that differ from those of the data set:
        ``hop_seconds=0.1`` gives windows that overlap more, ``tail="pad"`` one more
        window at the end, and ``keep`` leaves out windows. Others are ``hop``,
        ``short_clips``, ``windows_at``, ``decoder``, ``allow_truncated``,
        ``allow_nonfinite``, and those that read a table.

    Returns
    -------
    AudioWindows

    Raises
    ------
    InputError
        If there is no such recording or data set, or the data set was not recorded from
        audio files.
    OptionError
        If an option cannot be changed, or has a wrong value.
    """
    data = open_data_sets(like)
    if data.metadata.recorded_with is None:
        raise InputError(
            f"{data.name} was not recorded from audio files, so it has no recipe for "
            "recordings. Give as `like` a data set that `record` wrote."
        )
    for name in options:
        if name not in CHANGEABLE:
            need = f"cannot be changed here; {', '.join(CHANGEABLE)} can"
            raise OptionError(name, need, options[name])
    closing = ExitStack()  # deletes temporary files
    if isinstance(source, np.ndarray):
        source = _written(source, sample_rate, closing)
    elif sample_rate is not None:
        need = "is for samples in an array; recordings have their own"
        raise OptionError("sample_rate", need, sample_rate)
    return AudioWindows(data, source, features, options, closing)


def _written(samples: npt.NDArray[Any], rate: int | None, closing: ExitStack) -> str:
    """Writes samples to a file, which is deleted when the stack is closed."""
    rate = check_whole("sample_rate", rate)
    is_sound = samples.dtype.name in ("float32", "float64", "int16", "int32")
    # More channels than frames: soundfile and SciPy read (frames, channels).
    is_turned = samples.ndim == 2 and samples.shape[0] > samples.shape[1] > 0
    if samples.ndim not in (1, 2) or not is_sound or is_turned:
        need = (
            "must be float32, float64, int16 or int32, of the shape (frames,) or "
            "(channels, frames); of (frames, channels), give samples.T"
        )
        raise OptionError("source", need, f"{samples.dtype} {samples.shape}")
    path = os.path.join(closing.enter_context(temporary_folder()), "samples.wav")
    save_wav(Sound(samples, rate), path)
    return path


def recipe_like(metadata: Metadata, options: Mapping[str, Any]) -> Recipe:
    """Returns the recipe for new recordings: that of a data set, without its labels."""
    recipe = metadata.recorded_with
    assert recipe is not None
    of_training = [each for section in _OF_TRAINING for each in options_of(section)]
    named = [each for each in of_training if each.name != "seed"]
    changes = {each.name: each.default for each in named}
    known = recipe_options()
    changes |= {name: known[name].default for name in _CHOOSING}
    changes |= {"label_from": "none", "columns": []}
    # A step of a feature that changes copies alone is refused without copies.
    texts = map(parse_transform, recipe.features.values())
    changes["copies"] = int(any(map(changes_copies, chain(*map(steps_of, texts)))))
    if recipe.windows_are_at_events:
        changes["windows_at"] = AT_GRID
    for one, other in (("hop", "hop_seconds"), ("hop_seconds", "hop")):
        if one in options:
            changes[other] = None
    return recipe.replace(**{**changes, **options}).rejecting_short_clips()


class _Window(NamedTuple):
    """An example, serialised, its position among those asked for, and its place."""

    record: bytes
    position: int
    path: str
    input: int
    start_s: float
    end_s: float


class AudioWindows(Sequence[Example]):
    """A sequence of the windows of recordings, which are decoded when asked for.

    ``audio[i]`` is a dict, as that of :class:`.Records`. Each call decodes again, and
    where a recording is resampled, from its beginning; so read many windows by
    :meth:`batches`, or by iterating.

    Attributes
    ----------
    features : mapping
        Name to :class:`.FeatureSpec`, for each feature of a window.
    metadata : Metadata
        That of the data set.
    classes : tuple of str
    rejects : list of Reject
        The recordings that cannot be used, and, once they have been read, the parts
        that cannot be decoded. A DataSetWarning names each of them, and the windows of
        the others are there.
    inputs : int
        The number of inputs.
    """

    def __init__(
        self,
        data: DataSets,
        source: GivenInput,
        features: Sequence[str] | None,
        options: Mapping[str, Any],
        closing: ExitStack,
    ):
        weakref.finalize(self, closing.close)
        self._data, self.metadata = data, data.metadata
        self.classes = data.metadata.classes
        if features is not None:
            features = Names().value("features", features)
        recipe = recipe_like(data.metadata, options)
        rates, channels = self._corpus(recipe)
        if recipe.sample_rate is None and len(rates) == 1:
            recipe = recipe.replace(sample_rate=next(iter(rates)))
        self._recipe = self._with_features(recipe, features)
        self._format = ExampleFormat.of(Corpus((), rates, channels), self._recipe)
        specs = self._format.features.specs
        names = list(specs) if features is None else list(features)
        for name in names:
            check_name("feature", name, specs)
            if name in OF_WINDOWS:
                raise InputError(
                    f"Feature {name} of {data.name} has the name of a column of "
                    "open_audio. Choose other `features`."
                )
        self.features, self._parser = parser_of(specs, names)
        self._maker = ExampleMaker(self._parser, self.features)
        self._clips: list[Clip] = []
        self.rejects: list[Reject] = []
        self._inputs = closing.enter_context(resolved(source, self._recipe))
        self.inputs = len(self._inputs)
        self._read_headers()

    def _corpus(self, recipe: Recipe) -> tuple[Counter[int], Counter[int]]:
        """Returns how many clips of the data set have each rate, and each channels."""
        if recipe.sample_rate is not None and recipe.channels != "keep":
            return Counter({recipe.sample_rate: 1}), Counter({1: 1})
        columns = ["sample_rate_hz", "channels", "windows"]
        table = read_table(self._data.folders[0], MANIFEST, columns)
        recorded = table["windows"].to_numpy() > 0
        rates, channels = (
            Counter(table[name].to_numpy()[recorded].tolist()) for name in columns[:2]
        )
        return rates, channels

    def _with_features(self, recipe: Recipe, names: Sequence[str] | None) -> Recipe:
        """Returns the recipe with the transforms of some features alone."""
        if names is None:
            return recipe
        asked = set(map(transform_of, names))
        kept = {n: text for n, text in recipe.features.items() if n in asked}
        encodings = {
            n: text for n, text in recipe.encodings.items() if transform_of(n) in kept
        }
        return recipe.replace(features=kept, encodings=encodings) if kept else recipe

    def _read_headers(self) -> None:
        """Lists the recordings, and reads their headers."""
        prober = Prober(self._inputs, self._recipe)
        for row in Listing(self._inputs, self._recipe).rows():
            probed = prober.probe(row)
            if isinstance(probed, Reject):
                self._reject(probed)
                continue
            if self._format.channels not in (None, probed.channels):
                raise InputError(
                    f"{probed.filepath} has {probed.channels} channels, but the "
                    f"recordings of {self._data.name} have {self._format.channels}."
                )
            self._clips.append(with_split(probed, _SPLIT, self._recipe.copies))

    def _reject(self, reject: Reject) -> None:
        """Notes and warns that a recording, or a part of it, is left out."""
        if reject in self.rejects:  # the recording was read before
            return
        self.rejects.append(reject)
        what = "is left out" if reject.shard is None else "is read in part"
        warnings.warn(
            f"{reject.filepath} {what}: {reject.reason}", DataSetWarning, stacklevel=4
        )

    @property
    def paths(self) -> list[str]:
        """The paths of the recordings that can be used, relative to their inputs."""
        return [clip.filepath for clip in self._clips]

    def __len__(self) -> int:
        return sum(clip.examples for clip in self._clips)

    def __getitem__(self, number: Any) -> Any:
        try:
            position = range(len(self))[operator.index(number)]
        except IndexError:
            raise IndexError(
                f"there is no window {number}, only {len(self)} windows of "
                f"{len(self._clips)} recordings"
            ) from None
        for clip in self._clips:
            if position < clip.examples:
                break
            position -= clip.examples
        # The last bits depend on where resampling begins.
        begin = position if clip.native_rate_hz == clip.sample_rate_hz else 0
        segment = Segment(clip, begin, position + 1 - begin, 0)
        for window in self._each([segment]):
            if window.position == position - begin:
                return self._made(window)
        raise InputError(
            f"Window {number}, of {clip.filepath}, cannot be decoded, or `keep` leaves "
            "it out."
        )

    def __iter__(self) -> Iterator[Example]:
        for some in self._windows(AHEAD):
            yield from map(self._made, some)

    def _made(self, window: _Window) -> Example:
        stored = self._parser.stored(window.record, 0, len(window.record))
        made: Example = self._maker.make(stored, partial(Example.of, self.metadata))
        return made

    def _segments(self) -> Iterator[Segment]:
        """Yields the segments that hold the windows of each recording."""
        position = 0
        for clip in self._clips:
            if clip.examples:
                yield Segment(clip, 0, clip.examples, position)
            position += clip.examples

    def _windows(self, count: int) -> Iterator[list[_Window]]:
        """Yields windows in order, so many at once.

        Each time, libraries are held to one thread, and get all of them back after.
        """
        windows = self._each(self._segments())
        while True:
            with OneThread.held():
                some = list(islice(windows, count))
            if not some:
                return
            yield some

    def _each(self, segments: Iterable[Segment]) -> Iterator[_Window]:
        """Yields windows in order; what cannot be decoded becomes a reject."""
        shard = Shard("this reading", _SPLIT, 0, len(self))
        work = ShardWork(shard, cast(Any, segments), self._format)
        for block in encode_shard(
            work, self._inputs, self._recipe, with_sketches=False
        ):
            if block.reject is not None:
                self._reject(block.reject)
                continue
            clip, rate = block.slot.clip, block.slot.clip.sample_rate_hz
            rows, kept = block.rows, np.flatnonzero(block.rows.kept)
            starts = clip.start + rows.starts[kept]
            start_s, end_s = starts / rate, (starts + rows.frames[kept]) / rate
            places = block.slot.position + kept, start_s, end_s
            found = zip(block.records, *(p.tolist() for p in places), strict=True)
            for record, position, *seconds in found:
                yield _Window(record, position, clip.filepath, clip.source, *seconds)

    def table(self) -> Any:
        """Returns where each window is, without decoding.

        Returns
        -------
        pyarrow.Table
            With the columns ``path``, relative to the input, ``input``, the number of
            the input from 0, ``start_s`` and ``end_s``;
            zeros after the end of a recording do not count. With ``keep``, it also has
            the windows that are left out.
        """
        import pyarrow as pa

        paths, inputs = list[str](), list[int]()
        starts, ends = [np.zeros(0)], [np.zeros(0)]
        for segment in self._segments():
            clip, rate = segment.clip, segment.clip.sample_rate_hz
            start = locate_examples(segment, self._recipe)[0]
            frames = window_frames(clip, self._recipe)
            paths += [clip.filepath] * len(start)
            inputs += [clip.source] * len(start)
            starts.append((clip.start + start) / rate)
            ends.append((clip.start + np.minimum(start + frames, clip.frames)) / rate)
        where = pa.array(paths, pa.string()), pa.array(inputs, pa.int32())
        columns = (*where, *map(np.concatenate, (starts, ends)))
        return pa.table(dict(zip(OF_WINDOWS, columns, strict=True)))

    def batches(
        self, batch_size: int = 256, *, normalize: bool | Sequence[str] = False
    ) -> Iterator[dict[str, Any]]:
        """Yields the windows in order, as batches.

        Parameters
        ----------
        batch_size : int
            The last batch may be smaller.
        normalize : bool or sequence of str
            Whether to subtract the mean of floating-point features, and divide them by
            their deviation, or of which: those of the training split of the data set.

        Yields
        ------
        dict
            For each feature, an array of shape ``(n, *shape)``, see
            :meth:`.Records.read`; and ``path``, an object array of texts, ``input``, an
            int64 array with the number of the input from 0, ``start_s`` and ``end_s``,
            float64 arrays of seconds in the recording.
        """
        check_whole("batch_size", batch_size)
        statistics = Statistics.of_other(self.metadata)
        scales = choose_scales(self.features, normalize, statistics)
        for some in self._windows(batch_size):
            made = BatchMaker(self._parser, self.features, len(some))
            for place, window in enumerate(some):
                record = window.record
                made.put(place, self._parser.stored(record, 0, len(record)))
            batch = normalise(made.finish(), scales)
            for name, kind in OF_WINDOWS.items():
                batch[name] = np.array([getattr(each, name) for each in some], kind)
            yield batch


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
        if scores.shape != wanted or scores.dtype.kind not in "biuf":
            raise InputError(
                f"The model gives {scores.dtype} of shape {scores.shape} for {first}, "
                f"but scores must be real numbers of shape {wanted}: for each window, "
                f"one for each of the classes of `like`: {', '.join(self.classes)}."
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

    writers = {".csv": pyarrow.csv.CSVWriter, ".parquet": pyarrow.parquet.ParquetWriter}
    suffix = os.path.splitext(output)[1].lower()
    files.check_file("output", output, *writers)
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
