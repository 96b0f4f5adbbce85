"""The windows of new recordings, with the features that a data set has.

::

    files, samples --list, probe--> clips --decode, cut, transform, encode--> examples
                                                     as in write.shard         in memory

The functions are those that wrote the data set, under its recipe. Features are encoded
and decoded, too, because an encoding may round: a model gets what it would have got
from a data set. One block of windows is in memory, however long a recording is.
"""

from __future__ import annotations

import operator
import os
import warnings
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain, islice
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.folders import MANIFEST
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.side_by_side import DataSets, Folders, open_data_sets
from beam_pipeline.dataset.tables import read_table
from beam_pipeline.errors import DataSetWarning, InputError, OptionError
from beam_pipeline.examples.encoding import BatchMaker, ExampleMaker
from beam_pipeline.examples.features import Corpus, ExampleFormat
from beam_pipeline.examples.window_steps import changes_copies
from beam_pipeline.inputs.listing import (
    GivenInput,
    Listing,
    no_audio_file,
    resolved,
)
from beam_pipeline.parameters import Names, check_whole
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
    Augmentation,
    Columns,
    Events,
    Labels,
    Recipe,
    Shards,
    Splits,
    options_of,
    recipe_options,
    transform_of,
)
from beam_pipeline.storage.files import temporary_folder
from beam_pipeline.transforms.base import steps_of
from beam_pipeline.transforms.steps import parse_transform
from beam_pipeline.write.shard import encode_shard

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
        raise OptionError(
            "source",
            "must have the shape (frames,) or (channels, frames), and be float32, "
            "float64, int16 or int32" + ("; give samples.T" if is_turned else ""),
            f"{samples.dtype} {samples.shape}",
        )
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
        if not self._clips and not self.rejects:
            raise no_audio_file(self._inputs)

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
            rows, kept = block.rows, np.flatnonzero(block.rows.kept).tolist()
            for record, k in zip(block.records, kept, strict=True):
                start = clip.start + int(rows.starts[k])
                seconds = start / rate, (start + int(rows.frames[k])) / rate
                position = block.slot.position + k
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
