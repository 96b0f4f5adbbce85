"""Compares a data set with its sources: the same examples are made again.

::

    row of windows.parquet -> its clip, as the inputs list and probe it
                           -> the blocks that wrote the example -> window, example

This runs the recipe: its transforms, and the modules of a person's own that it names.
The functions are those that wrote the data set. ``verify --deep --input`` compares
examples; and a run that finds its data set finished compares a few, see
:mod:`beam_pipeline.dataset.job`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeVar

import numpy as np

from beam_pipeline.dataset.folders import MANIFEST
from beam_pipeline.errors import InputError, Unreadable
from beam_pipeline.examples.features import Corpus, ExampleFormat
from beam_pipeline.inputs.columns import FILE_SHA256, SourceRow
from beam_pipeline.inputs.listing import Listing
from beam_pipeline.inputs.sources import Input
from beam_pipeline.planning.clips import Clip, Reject
from beam_pipeline.planning.prober import Prober
from beam_pipeline.planning.shards import (
    Segment,
    Shard,
    ShardLayout,
    ShardWork,
    lay_out,
    narrow_events,
)
from beam_pipeline.planning.summary import longest_walk
from beam_pipeline.process import OneThread
from beam_pipeline.read.recorded_windows import CLIP_COLUMNS, RecordedWindows
from beam_pipeline.read.records import open_records
from beam_pipeline.storage.pages import Batch
from beam_pipeline.transforms.base import seconds_to_frames
from beam_pipeline.write.blocks import (
    Block,
    BlockEncoder,
    WindowBlock,
    apply_transforms,
    cut_windows,
    decode_audio,
    select_and_augment,
)

_Block = TypeVar("_Block", bound=Block)

# What a clip must have in the inputs as in the manifest.
_COMPARED = (
    "frames", "sample_rate_hz", "start", "native_frames", "channels", "format",
    "subtype", "label", "native_rate_hz",
)  # fmt: skip


class DecodeAgain:
    """Makes windows and examples of a data set again, from its sources.

    Parameters
    ----------
    recorded : RecordedWindows
        The tables of the data set.
    inputs : sequence of Input
        Those that it was recorded from, in their order.
    clips : iterable of int
        The rows of the manifest of all clips whose windows may be asked for. The inputs
        are listed once.

    Raises
    ------
    InputError
        If the inputs have none of these clips.
    """

    def __init__(
        self,
        recorded: RecordedWindows,
        inputs: Sequence[Input],
        clips: Iterable[int],
    ):
        assert recorded.metadata.recipe is not None
        self._recipe = recipe = recorded.metadata.recipe
        self.recorded, self._inputs = recorded, inputs
        self._compared = {name: CLIP_COLUMNS[name] for name in _COMPARED}
        if recipe.hash_files:
            self._compared["sha256"] = FILE_SHA256
        self._prober = Prober(inputs, recipe)
        have_windows = recorded.have_windows(recipe)
        rates, channels = (
            Counter(map(int, recorded.manifest[name][have_windows].tolist()))
            for name in ("sample_rate_hz", "channels")
        )
        corpus = Corpus(recorded.metadata.classes, rates, channels)
        self._format = ExampleFormat.of(corpus, recipe, inputs[0].columns)
        self._encoder = BlockEncoder()
        self._last: tuple[int, Clip] | None = None
        wanted = set(map(self._file_of, clips))
        self._listed: dict[tuple[int, str], list[SourceRow]] = {}
        for found in Listing(inputs, recipe).rows():
            if (found.source, found.filepath) in wanted:
                of_file = self._listed.setdefault((found.source, found.filepath), [])
                of_file.append(found)
        if wanted and not self._listed:
            raise InputError(
                f"{', '.join(entry.location for entry in inputs)} holds none of the "
                f"files of the windows, such as {min(wanted)[1]}. Give as `input` what "
                "the data set was recorded from, in the same order."
            )

    def _file_of(self, clip: int) -> tuple[int, str]:
        """Returns the input and the path of a row of the manifest."""
        manifest = self.recorded.manifest
        return int(manifest["input"][clip]), manifest["path"][clip]

    def example(self, row: int) -> bytes:
        """Returns the example of a planned window, serialised.

        Raises
        ------
        ValueError
            If it cannot be made, the recipe leaves it out, or the inputs have another
            clip than the manifest.
        """
        with OneThread.held():
            block = self._block(self._clip(row), row)
            featured = _checked(apply_transforms(block))
            encoded = self._encoder.encode(featured)
            return _checked(encoded).records[-1]

    def _clip(self, row: int) -> Clip:
        """Returns the clip of a window, which must be that of the manifest."""
        recorded, manifest = self.recorded, self.recorded.manifest
        place = int(recorded.clip[row])
        if self._last is not None and self._last[0] == place:
            return self._last[1]  # to probe it may mean to decode it
        probed = self._prober.probe(self._find(place))
        if isinstance(probed, Reject):
            raise ValueError(f"cannot be read again: {probed.reason}")
        for name, column in self._compared.items():
            old, new = manifest[column][place], getattr(probed, name)
            if old != new:
                raise ValueError(
                    f"{column} is {new} in the inputs, {old} in {MANIFEST}"
                )
        if probed.placed is not None:
            starts = np.unique(recorded.start[recorded.of_clip(place)]).tolist()
            if starts != list(probed.placed.starts[: len(starts)]):
                what = "sounds" if self._recipe.placement else "events"
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
        manifest = self.recorded.manifest
        rate, frames = (int(manifest[n][clip]) for n in ("sample_rate_hz", "frames"))
        parts = [
            found
            for found in self._listed.get(self._file_of(clip), ())
            if found.channel in (None, manifest["channel"][clip])
            and seconds_to_frames(found.offset_s, rate) == manifest["start"][clip]
        ]
        if not parts:
            raise ValueError("the inputs do not have it")
        lengths = [seconds_to_frames(found.duration_s or 0.0, rate) for found in parts]
        return parts[lengths.index(frames) if frames in lengths else 0]

    def _block(self, clip: Clip, row: int) -> WindowBlock:
        """Returns some windows, the last of them the one of a row."""
        place = int(self.recorded.clip[row])
        number = int(np.flatnonzero(self.recorded.of_clip(place) == row)[0])
        first = number
        if clip.native_rate_hz != clip.sample_rate_hz:
            # Resampling began with the segment's first window, and the last bits
            # depend on where it begins.
            before = int(self.recorded.manifest["first_index"][place])
            begin = self._layouts[clip.split].begin_of_segment(before + number)
            first = max(0, begin - before)
        count = number - first + 1
        segment = narrow_events(Segment(clip, first, count, 0), self._recipe)
        shard = Shard("", clip.split, 0, count)
        work = ShardWork(shard, Batch([segment]), self._format)
        for frames in decode_audio(
            work, self._inputs, self._recipe, with_sketches=False
        ):
            last = _checked(frames)
        block = _checked(select_and_augment(cut_windows(last)))
        if not block.rows.kept[-1]:
            raise ValueError("the recipe leaves it out now")
        return block

    @cached_property
    def _layouts(self) -> dict[str, ShardLayout]:
        """How the examples of each split lie in its shards."""
        recorded, recipe = self.recorded, self._recipe
        example_format = self._format
        if recipe.examples_are_mixed:
            rows = range(len(recorded.manifest["path"]))
            walk = longest_walk((recorded.clip_at(k, recipe) for k in rows), recipe)
            example_format = replace(example_format, longest_walk=walk)
        splits, windows = (recorded.manifest[name] for name in ("split", "windows"))
        totals = {n: int(windows[splits == n].sum()) for n in np.unique(splits)}
        return lay_out(totals, example_format, recipe)


def _checked(block: _Block) -> _Block:
    """Returns a block; raises ValueError if its examples are lost.

    Raises Unreadable if the machine failed.
    """
    if block.reject is not None:
        if block.reject.error == Unreadable.__name__:
            raise Unreadable(block.reject.filepath, block.reject.reason)
        raise ValueError(f"cannot be made again: {block.reject.reason}")
    return block


def sample_problems(
    recorded: RecordedWindows,
    inputs: Sequence[Input],
    count: int,
    clips: Iterable[int] | None = None,
) -> Iterator[str]:
    """Yields a line for each of some examples that the sources give no longer.

    Parameters
    ----------
    inputs : sequence of Input
        Those that the data set was recorded from, in their order.
    count : int
        How many examples, drawn at random; the same ones each time.
    clips : iterable of int, optional
        The numbers in the listing of clips whose examples are drawn, if they have any.
        Default: all clips.

    Raises
    ------
    RecipeError
        If a transform of the recipe cannot be had here.
    """
    wanted = np.flatnonzero(recorded.kept)
    if clips is not None:
        among = np.isin(recorded.manifest["index"], list(clips))[recorded.clip]
        wanted = wanted[among[wanted]] if among.any() else wanted
    rows = np.sort(np.random.default_rng(0).permutation(wanted)[:count]).tolist()
    if not rows:
        return
    again = DecodeAgain(recorded, inputs, recorded.clip[rows].tolist())
    manifest = recorded.manifest
    try:
        splits = dict.fromkeys(manifest["split"][recorded.clip[row]] for row in rows)
        records = {split: open_records(recorded.folder, split) for split in splits}
    except InputError as error:
        yield str(error)
        return
    for row in rows:
        path, split = (manifest[n][recorded.clip[row]] for n in ("path", "split"))
        number = int(np.searchsorted(recorded.of_split(split), row))
        where = (
            f"{path}: the window at frame {recorded.start[row]} (example {number} of "
            f"{split})"
        )
        try:
            (stored,) = records[split].serialised([number])
            if again.example(row) != stored:
                yield f"{where}: decoded again, it has other bytes"
        except (ValueError, InputError) as error:
            yield f"{where}: {error}"
