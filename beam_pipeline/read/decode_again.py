"""Makes windows and examples of a data set again, from its sources, to compare them.

This runs the recipe: its transforms, and the modules of a person's own that it names.
The functions are those that wrote the data set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from operator import itemgetter
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import MANIFEST, METADATA
from beam_pipeline.errors import DamagedRecord, InputError, Unreadable
from beam_pipeline.examples.encoding import ExampleEncoder, example_bytes
from beam_pipeline.examples.format import Corpus, ExampleFormat
from beam_pipeline.examples.record_parser import ExampleMaker, RecordParser
from beam_pipeline.inputs.listing import list_sources
from beam_pipeline.inputs.own_manifest import FILE_SHA256
from beam_pipeline.inputs.rows import SourceRow
from beam_pipeline.inputs.sources import Input
from beam_pipeline.plan.clips import Clip, Reject
from beam_pipeline.plan.corpus import longest_walk
from beam_pipeline.plan.prober import Prober
from beam_pipeline.plan.segments import (
    Segment,
    ShardTask,
    ShardWork,
    narrow_events,
)
from beam_pipeline.plan.shards import Shard, ShardLayout
from beam_pipeline.read.recorded_windows import RecordedWindows
from beam_pipeline.read.records import open_records
from beam_pipeline.storage.pages import Batch
from beam_pipeline.transforms.base import seconds_to_frames
from beam_pipeline.write.blocks import (
    Block,
    WindowBlock,
    apply_transforms,
    cut_windows,
    decode_audio,
    encode_examples,
    select_and_augment,
)
from beam_pipeline.write.process_settings import OneThread

_Block = TypeVar("_Block", bound=Block)

# A field of a clip -> its column in the manifest.
_OF_CLIPS = {
    name: name
    for name in ("frames", "sample_rate_hz", "start", "native_frames", "channels",
                 "format", "subtype")
} | {"label": "class", "native_rate_hz": "native_sample_rate_hz"}  # fmt: skip


class DecodeAgain:
    """Makes windows and examples of a data set again, from its sources.

    Parameters
    ----------
    metadata : Metadata
        Of a data set with a recipe.
    recorded : RecordedWindows
        Its tables.
    inputs : sequence of Input
        Those that it was recorded from, in their order.
    rows : iterable of int
        The rows of all windows that may be asked for. The inputs are listed once.
    only_windows : bool
        Whether no example is asked for. Then no file is hashed.
    """

    def __init__(
        self,
        metadata: Metadata,
        recorded: RecordedWindows,
        inputs: Sequence[Input],
        rows: Iterable[int],
        only_windows: bool = False,
    ):
        assert metadata.recipe is not None
        recipe = metadata.recipe.replace(fingerprint=False)
        self._columns = _OF_CLIPS
        if only_windows:
            recipe = recipe.replace(hash_files=False)
        elif recipe.audio.hash_files:
            self._columns = {**_OF_CLIPS, "sha256": FILE_SHA256}
        self._recipe, self._metadata = recipe, metadata
        self._recorded, self._inputs = recorded, inputs
        self._prober = Prober(inputs, recipe)
        have_windows = recorded.have_windows(recipe)
        rates, channels = (
            Counter(map(int, recorded.manifest[name][have_windows].tolist()))
            for name in ("sample_rate_hz", "channels")
        )
        corpus = Corpus(metadata.classes, rates, channels)
        self._format = ExampleFormat.of(corpus, recipe, inputs[0].columns)
        specs = self._format.features.specs
        self._encoder = ExampleEncoder(specs.values())
        self._targets = {label: k for k, label in enumerate(self._format.classes)}
        self._layouts: dict[str, ShardLayout] = {}
        self._last: tuple[int, Clip] | None = None
        files = {self._file_of(int(recorded.clip[row])) for row in rows}
        self._listed: dict[tuple[int, str], list[SourceRow]] = {}
        for found in list_sources(inputs, recipe):
            if found is not None and (found.source, found.filepath) in files:
                of_file = self._listed.setdefault((found.source, found.filepath), [])
                of_file.append(found)

    def _file_of(self, clip: int) -> tuple[int, str]:
        """Returns the input and the path of a row of the manifest."""
        manifest = self._recorded.manifest
        return int(manifest["input"][clip]), manifest["path"][clip]

    def feature_problems(self) -> Iterator[str]:
        """Yields a line for each feature whose spec is not the recorded one."""
        recorded, made = self._metadata.features, self._format.features.specs
        for name in sorted({*recorded, *made}):
            old, new = recorded.get(name), made.get(name)
            if old is None or new is None or old.to_json() != new.to_json():
                yield (
                    f"{METADATA}: feature {name} is {old and old.to_json()}; the "
                    f"recipe and these inputs give {new and new.to_json()}"
                )

    def example(self, row: int) -> bytes:
        """Returns the example of a planned window, serialised.

        Raises
        ------
        ValueError
            If it cannot be made, the recipe leaves it out, or the inputs have another
            clip than the manifest.
        """
        with _one_thread():
            block = self._block(self._clip(row), row)
            featured = _checked(apply_transforms(block))
            encoded = encode_examples(featured, self._encoder, self._targets)
            return _checked(encoded).records[-1]

    def window(self, row: int) -> tuple[npt.NDArray[np.float32], int]:
        """Returns the samples of a planned window, which transforms get.

        Returns
        -------
        samples : numpy.ndarray, shape (frames,) or (channels, frames), float32
        rate : int
            In hertz.

        Raises
        ------
        ValueError
            As :meth:`example`.
        """
        with _one_thread():
            clip = self._clip(row)
            return self._block(clip, row).windows[-1], clip.sample_rate_hz

    def _clip(self, row: int) -> Clip:
        """Returns the clip of a window, which must be that of the manifest."""
        recorded, manifest = self._recorded, self._recorded.manifest
        place = int(recorded.clip[row])
        if self._last is not None and self._last[0] == place:
            return self._last[1]  # to probe it may mean to decode it
        probed = self._prober.probe(self._find(place))
        if isinstance(probed, Reject):
            raise ValueError(f"cannot be read again: {probed.reason}")
        for name, column in self._columns.items():
            old, new = manifest[column][place], getattr(probed, name)
            if old != new:
                raise ValueError(
                    f"{column} is {new} in the inputs, {old} in {MANIFEST}"
                )
        if probed.placed is not None:
            starts = np.unique(recorded.start[recorded.of_clip(place)]).tolist()
            if starts != list(probed.placed.starts[: len(starts)]):
                what = "sounds" if self._recipe.windows.placement else "events"
                raise ValueError(f"the {what} in the inputs give other windows")
        clip = probed._replace(
            row=int(manifest["index"][place]),
            split=manifest["split"][place],
            examples=int(manifest["windows"][place]),
        )
        self._last = place, clip
        return clip

    def _find(self, clip: int) -> SourceRow:
        """Returns what the inputs list for a row of the manifest.

        Its number may be another one there: if other data sets hold some of the files,
        the data set has counted only what is new.
        """
        manifest = self._recorded.manifest
        rate, frames = (int(manifest[n][clip]) for n in ("sample_rate_hz", "frames"))
        parts = []
        for found in self._listed.get(self._file_of(clip), ()):
            is_channel = found.channel in (None, manifest["channel"][clip])
            start = seconds_to_frames(found.offset_s, rate)
            if is_channel and start == manifest["start"][clip]:
                length = seconds_to_frames(found.duration_s or 0.0, rate)
                parts.append((length != frames, found))
        if not parts:
            raise ValueError("the inputs do not have it")
        return min(parts, key=itemgetter(0))[1]

    def _block(self, clip: Clip, row: int) -> WindowBlock:
        """Returns some windows, the last of them the one of a row."""
        recorded = self._recorded
        place = int(recorded.places[row])
        of_clip = int(recorded.first_places[recorded.clip[row]])
        first = number = place - of_clip
        if clip.native_rate_hz != clip.sample_rate_hz:
            # Resampling began with the segment's first window, and the last bits
            # depend on where it begins.
            in_split = recorded.is_in(clip.split)[recorded.clip_by_clip]
            of_split = int(np.argmax(in_split))
            begin = self._layout(clip.split).begin_of_segment(place - of_split)
            first = max(0, of_split + begin - of_clip)
        count = number - first + 1
        segment = narrow_events(Segment(clip, first, count, 0), self._recipe)
        task = ShardTask(Shard("", clip.split, 0, count), Batch([segment]))
        work = ShardWork(task, self._format)
        for frames in decode_audio(work, self._inputs, self._recipe):
            last = _checked(frames)
        block = _checked(select_and_augment(cut_windows(last)))
        if not block.rows.kept[-1]:
            raise ValueError("the recipe leaves it out now")
        return block

    def _layout(self, split: str) -> ShardLayout:
        """Returns how the examples of a split lie in its shards."""
        if split not in self._layouts:
            recipe, walk = self._recipe, 0
            if recipe.shards.are_mixed:
                rows = range(len(self._recorded.manifest["path"]))
                clips = (self._recorded.clip_at(row, recipe) for row in rows)
                walk = longest_walk(clips, recipe)
            self._layouts[split] = ShardLayout.of(
                split,
                int(self._recorded.is_in(split).sum()),
                example_bytes(self._format.features),
                recipe,
                longest_walk=walk,
            )
        return self._layouts[split]


@contextmanager
def _one_thread() -> Iterator[None]:
    OneThread.begin()
    try:
        yield
    finally:
        OneThread.end()


def _checked(block: _Block) -> _Block:
    """Returns a block; raises ValueError if its examples are lost.

    Raises Unreadable if the machine failed.
    """
    if block.reject is not None:
        if block.reject.error == Unreadable.__name__:
            raise Unreadable(block.reject.filepath, block.reject.reason)
        raise ValueError(f"cannot be made again: {block.reject.reason}")
    return block


class Sampled(NamedTuple):
    """An example to compare: its number in the split, and its row of windows."""

    split: str
    number: int
    row: int


def choose_examples(
    recorded: RecordedWindows,
    metadata: Metadata,
    count: int,
    seed: int,
    among: npt.NDArray[np.bool_] | None = None,
) -> list[Sampled]:
    """Returns a random sample of the examples of all splits, in their order.

    Parameters
    ----------
    among : numpy.ndarray of bool, shape (windows,), optional
        Which windows to choose among. Default: all.
    """
    splits = list(metadata.splits)
    of_splits = [recorded.of_split(split) for split in splits]
    rows = np.concatenate([np.zeros(0, np.int64), *of_splits])
    ends = np.cumsum([len(each) for each in of_splits])
    wanted = np.arange(len(rows)) if among is None else np.flatnonzero(among[rows])
    some = np.random.default_rng(seed).permutation(len(wanted))[:count]
    chosen = []
    for place in wanted[np.sort(some)].tolist():
        k = int(np.searchsorted(ends, place, "right"))
        number = place - int(ends[k]) + len(of_splits[k])
        chosen.append(Sampled(splits[k], number, int(rows[place])))
    return chosen


def sample_problems(
    folder: str,
    metadata: Metadata,
    recorded: RecordedWindows,
    inputs: Sequence[Input],
    chosen: Sequence[Sampled],
) -> Iterator[str]:
    """Yields a line for each chosen example that the sources give no longer.

    Parameters
    ----------
    folder : str
        Absolute.
    inputs : sequence of Input
        Those that the data set was recorded from, in their order.

    Raises
    ------
    RecipeError
        If a transform of the recipe cannot be had here.
    """
    if not chosen:
        return
    rows = [each.row for each in chosen]
    again = DecodeAgain(metadata, recorded, inputs, rows)
    yield from again.feature_problems()
    try:
        needed = dict.fromkeys(each.split for each in chosen)
        records = {split: open_records(folder, split) for split in needed}
    except InputError as error:
        yield str(error)
        return
    for split, number, row in chosen:
        path = recorded.manifest["path"][recorded.clip[row]]
        where = (
            f"{path}: the window at frame {recorded.start[row]} (example {number} of "
            f"{split})"
        )
        try:
            made = again.example(row)
        except ValueError as error:
            yield f"{where}: {error}"
            continue
        try:
            (stored,) = records[split].serialised([number])
        except (DamagedRecord, InputError) as error:
            yield str(error)
            continue
        if stored != made:
            names = ", ".join(_differing(stored, made, metadata))
            yield f"{where}: decoded again, it differs in {names}"


def _differing(stored: bytes, made: bytes, metadata: Metadata) -> list[str]:
    """Returns the features that differ between two records."""
    parser = RecordParser(metadata.features, metadata.features)
    maker = ExampleMaker(parser, metadata.features)
    try:
        one, other = (
            maker.make(parser.stored(record, 0, len(record)), dict)
            for record in (stored, made)
        )
    except ValueError as error:
        return [f"its form ({error})"]
    return [
        name
        for name in sorted({*one, *other})
        if (name in one) != (name in other)
        or not np.array_equal(one[name], other[name])
    ] or ["its bytes alone"]
