"""Makes windows and examples of a data set again, from its sources, to compare them.

This runs the recipe: its transforms, and the modules of a person's own that it names.
The functions are those that wrote the data set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import MANIFEST, METADATA
from beam_pipeline.errors import DamagedRecord, InputError
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
from beam_pipeline.read.records import SplitSource
from beam_pipeline.recipe.recipe import Recipe
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

# What inputs list for files, by the number of the input and the path.
Listed = Mapping[tuple[int, str], Sequence[SourceRow]]

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
    recipe : Recipe
        That of the data set, without ``fingerprint``.
    recorded : RecordedWindows
        Its tables.
    inputs : sequence of Input
        Those that it was recorded from, in their order.
    """

    def __init__(
        self,
        recipe: Recipe,
        metadata: Metadata,
        recorded: RecordedWindows,
        inputs: Sequence[Input],
    ):
        self._recipe, self._metadata = recipe, metadata
        self.recorded, self._inputs = recorded, inputs
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
        self._last: tuple[int, Clip] | None = None

    @cached_property
    def _layouts(self) -> dict[str, ShardLayout]:
        recipe, walk = self._recipe, 0
        if recipe.shards.are_mixed:
            rows = range(len(self.recorded.manifest["path"]))
            clips = (self.recorded.clip_at(row, recipe) for row in rows)
            walk = longest_walk(clips, recipe)
        size = example_bytes(self._format.features)
        return {
            split: ShardLayout.of(
                split,
                int(self.recorded.is_in(split).sum()),
                size,
                recipe,
                longest_walk=walk,
            )
            for split in self._metadata.splits
        }

    def listed(self, rows: Iterable[int]) -> Listed:
        """Returns what the inputs list for the clips of some windows, file by file."""
        clips = {int(self.recorded.clip[row]) for row in rows}
        wanted = {self._file_of(clip) for clip in clips}
        found: dict[tuple[int, str], list[SourceRow]] = {}
        for row in list_sources(self._inputs, self._recipe):
            if row is not None and (row.source, row.filepath) in wanted:
                found.setdefault((row.source, row.filepath), []).append(row)
        return found

    def _file_of(self, clip: int) -> tuple[int, str]:
        """Returns the input and the path of a row of the manifest."""
        manifest = self.recorded.manifest
        return int(manifest["input"][clip]), manifest["path"][clip]

    def _find(self, row: int, listed: Listed) -> SourceRow:
        """Returns what the inputs list for a row of the manifest.

        Its number may be another one there: if other data sets hold some of the files,
        the data set has counted only what is new.
        """
        manifest = {
            name: column[row] for name, column in self.recorded.manifest.items()
        }
        rate, parts = int(manifest["sample_rate_hz"]), []
        for found in listed.get(self._file_of(row), ()):
            is_channel = found.channel in (None, manifest["channel"])
            start = seconds_to_frames(found.offset_s, rate)
            if is_channel and start == manifest["start"]:
                length = seconds_to_frames(found.duration_s or 0.0, rate)
                parts.append((length != manifest["frames"], found))
        if not parts:
            raise ValueError("the inputs do not have it")
        return min(parts, key=itemgetter(0))[1]

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

    def clip(self, row: int, listed: Listed) -> Clip:
        """Returns the clip of a row of the manifest.

        Raises
        ------
        ValueError
            If the inputs do not have it, or have another one.
        """
        if self._last is not None and self._last[0] == row:
            return self._last[1]  # to probe it may mean to decode it
        recorded, manifest = self.recorded, self.recorded.manifest
        probed = self._prober.probe(self._find(row, listed))
        if isinstance(probed, Reject):
            raise ValueError(f"cannot be read again: {probed.reason}")
        columns = _OF_CLIPS
        if self._recipe.audio.hash_files:
            columns = {**columns, "sha256": FILE_SHA256}
        for name, column in columns.items():
            old, new = manifest[column][row], getattr(probed, name)
            if old != new:
                raise ValueError(
                    f"{column} is {new} in the inputs, {old} in {MANIFEST}"
                )
        if probed.placed is not None:
            starts = np.unique(recorded.start[recorded.of_clip(row)]).tolist()
            if starts != list(probed.placed.starts[: len(starts)]):
                what = "sounds" if self._recipe.windows.placement else "events"
                raise ValueError(f"the {what} in the inputs give other windows")
        clip = probed._replace(
            row=int(manifest["index"][row]),
            split=manifest["split"][row],
            examples=int(manifest["windows"][row]),
        )
        self._last = row, clip
        return clip

    def record(self, clip: Clip, row: int) -> bytes:
        """Returns the example of a planned window, made from the sources.

        Raises
        ------
        ValueError
            If it cannot be made, or the recipe leaves it out.
        """
        featured = _checked(apply_transforms(self._block(clip, row)))
        return _checked(
            encode_examples(featured, self._encoder, self._targets)
        ).records[-1]

    def window(self, clip: Clip, row: int) -> npt.NDArray[np.float32]:
        """Returns the samples of a planned window, which transforms get.

        Returns
        -------
        numpy.ndarray, shape (frames,) or (channels, frames), float32

        Raises
        ------
        ValueError
            As :meth:`record`.
        """
        window: npt.NDArray[np.float32] = self._block(clip, row).windows[-1]
        return window

    def _block(self, clip: Clip, row: int) -> WindowBlock:
        """Returns some windows, the last of them the one of a row."""
        recorded = self.recorded
        place = int(recorded.places[row])
        of_clip = int(recorded.first_places[recorded.clip[row]])
        first = number = place - of_clip
        if clip.native_rate_hz != clip.sample_rate_hz:
            # Resampling began with the segment's first window, and the last bits
            # depend on where it begins.
            in_split = recorded.is_in(clip.split)[recorded.clip_by_clip]
            of_split = int(np.argmax(in_split))
            begin = self._layouts[clip.split].begin_of_segment(place - of_split)
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


def _checked(block: _Block) -> _Block:
    """Returns a block; raises ValueError if its examples are lost."""
    if block.reject is not None:
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
    rows = {split: recorded.of_split(split) for split in metadata.splits}
    numbers = {
        split: np.arange(len(some)) if among is None else np.flatnonzero(among[some])
        for split, some in rows.items()
    }
    ends = np.cumsum([len(some) for some in numbers.values()])
    total = int(ends[-1]) if len(ends) else 0
    some = np.random.default_rng(seed).permutation(total)[:count]
    chosen = []
    for place in np.sort(some).tolist():
        k = int(np.searchsorted(ends, place, "right"))
        split = list(rows)[k]
        first = int(ends[k]) - len(numbers[split])
        number = int(numbers[split][place - first])
        chosen.append(Sampled(split, number, int(rows[split][number])))
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
    assert metadata.recipe is not None
    recipe = metadata.recipe.replace(fingerprint=False)
    again = DecodeAgain(recipe, metadata, recorded, inputs)
    yield from again.feature_problems()
    needed = dict.fromkeys(each.split for each in chosen)
    try:
        sources = {split: SplitSource(folder, split, None) for split in needed}
    except InputError as error:
        yield str(error)
        return
    listed = again.listed(each.row for each in chosen)
    OneThread.begin()
    try:
        for each in chosen:
            yield from _compare(again, each, listed, sources[each.split])
    finally:
        OneThread.end()


def _compare(
    again: DecodeAgain,
    each: Sampled,
    listed: Listed,
    source: SplitSource,
) -> Iterator[str]:
    clip_row = int(again.recorded.clip[each.row])
    path = again.recorded.manifest["path"][clip_row]
    start = int(again.recorded.start[each.row])
    where = (
        f"{path}: the window at frame {start} (example {each.number} of {each.split})"
    )
    try:
        clip = again.clip(clip_row, listed)
        made = again.record(clip, each.row)
    except ValueError as error:
        yield f"{where}: {error}"
        return
    try:
        (stored,) = source.serialised(np.array([each.number]))
    except (DamagedRecord, InputError) as error:
        yield str(error)
        return
    if stored != made:
        names = _differing(stored, made, source.metadata)
        yield f"{where}: decoded again, it differs in {', '.join(names)}"


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
    names = sorted({*one, *other})
    same = [n for n in names if n in one and n in other]
    wrong = [n for n in same if not np.array_equal(one[n], other[n])]
    return [*wrong, *(n for n in names if n not in same)] or ["its bytes alone"]
