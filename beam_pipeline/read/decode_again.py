"""Makes windows and examples of a data set again, from its sources.

This runs the recipe: its transforms, and the modules of a person's own that it names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import MANIFEST, METADATA
from beam_pipeline.dataset.planned_windows import PlannedWindows, planned_examples
from beam_pipeline.examples.encoding import ExampleEncoder, example_bytes
from beam_pipeline.examples.format import Corpus, ExampleFormat
from beam_pipeline.inputs.listing import list_sources
from beam_pipeline.inputs.own_manifest import FILE_SHA256
from beam_pipeline.inputs.rows import SourceRow
from beam_pipeline.inputs.sources import Input
from beam_pipeline.plan.clips import Clip, Reject
from beam_pipeline.plan.corpus import longest_walk
from beam_pipeline.plan.measures import (
    GroupKey,
    group_steps,
    of_groups,
    with_group,
)
from beam_pipeline.plan.prober import Prober
from beam_pipeline.plan.segments import (
    Segment,
    ShardTask,
    ShardWork,
    narrow_events,
)
from beam_pipeline.plan.shards import Shard, ShardLayout
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage.pages import Batch
from beam_pipeline.write.blocks import (
    Block,
    WindowBlock,
    apply_transforms,
    cut_windows,
    decode_audio,
    encode_examples,
    select_and_augment,
)

_Block = TypeVar("_Block", bound=Block)

# What the inputs say of a clip -> its name in the manifest.
_OF_CLIPS = {
    name: name
    for name in ("frames", "sample_rate_hz", "start", "native_frames", "channels",
                 "format", "subtype", "file")
} | {"label": "class", "native_rate_hz": "native_sample_rate_hz"}  # fmt: skip


class DecodeAgain:
    """Makes windows and examples of a data set again, from its sources.

    Parameters
    ----------
    recipe : Recipe
        That of the data set, without ``fingerprint``.
    planned : PlannedWindows
        Its tables.
    inputs : sequence of Input
        Those that it was recorded from, in their order.
    """

    def __init__(
        self,
        recipe: Recipe,
        metadata: Metadata,
        planned: PlannedWindows,
        inputs: Sequence[Input],
    ):
        self._recipe, self._metadata = recipe, metadata
        self.planned, self._inputs = planned, inputs
        self._prober = Prober(inputs, recipe)
        recorded = planned.recorded_clips(recipe)
        rates, channels = (
            Counter(map(int, planned.manifest[name][recorded].tolist()))
            for name in ("sample_rate_hz", "channels")
        )
        corpus = Corpus(metadata.classes, rates, channels)
        self._format = ExampleFormat.of(corpus, recipe, inputs[0].columns)
        specs = self._format.features.specs
        self._encoder = ExampleEncoder(specs.values())
        self._targets = {label: k for k, label in enumerate(self._format.classes)}
        self._last: tuple[int, Clip] | None = None
        self._groups: dict[tuple[str, str], dict[GroupKey, bytes]] = {}

    @cached_property
    def _layouts(self) -> dict[str, ShardLayout]:
        planned, recipe, walk = self.planned, self._recipe, 0
        if recipe.shards.are_mixed:
            rows = range(len(planned.manifest["path"]))
            walk = longest_walk((self._whole_clip(row) for row in rows), recipe)
        size = example_bytes(self._format.features)
        return {
            split: ShardLayout.of(
                split,
                int(planned.is_in(split).sum()),
                size,
                recipe,
                longest_walk=walk,
            )
            for split in self._metadata.splits
        }

    def _whole_clip(self, row: int) -> Clip:
        """Returns the clip of a row, with all examples that it would have."""
        clip = self.planned.clip_at(row, self._recipe.windows.at)
        return clip._replace(examples=planned_examples(clip, self._recipe))

    def listed(
        self, rows: Iterable[int], *, whole_groups: bool = False
    ) -> dict[int, SourceRow]:
        """Returns what the inputs list for the clips of some windows, by number.

        With ``whole_groups``, all clips that :meth:`measured` needs are among them.
        """
        manifest, clips = self.planned.manifest, self.planned.clip
        numbers = {int(manifest["index"][clips[row]]) for row in rows}
        found = {row.row: row for row in self._sources() if row.row in numbers}
        if not (whole_groups and group_steps(self._recipe)):
            return found
        groups = {row.group for row in found.values()}
        return {row.row: row for row in self._sources() if row.group in groups}

    def _sources(self) -> Iterator[SourceRow]:
        listed = list_sources(self._inputs, self._recipe)
        return (row for row in listed if row is not None)

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

    def clip(self, row: int, listed: Mapping[int, SourceRow]) -> Clip:
        """Returns the clip of a row of the manifest.

        Raises
        ------
        ValueError
            If the inputs do not have it, or have another one.
        """
        if self._last is not None and self._last[0] == row:
            return self._last[1]  # to probe it may mean to decode it
        recorded = self.planned.clip_at(row, self._recipe.windows.at)
        found = listed.get(recorded.row)
        if found is None:
            raise ValueError(f"the inputs have no clip number {recorded.row}")
        if (found.filepath, found.source) != (recorded.filepath, recorded.source):
            raise ValueError(
                f"clip number {recorded.row} of the inputs is {found.filepath!r}"
            )
        probed = self._prober.probe(found)
        if isinstance(probed, Reject):
            raise ValueError(f"cannot be read again: {probed.reason}")
        if self._recipe.audio.hash_files:
            sha256 = self.planned.manifest[FILE_SHA256][row]
            if probed.sha256 != sha256:
                raise ValueError(
                    f"its file has the SHA-256 {probed.sha256} in the inputs, {sha256} "
                    f"in {MANIFEST}"
                )
        for name, column in _OF_CLIPS.items():
            old, new = getattr(recorded, name), getattr(probed, name)
            if old != new:
                raise ValueError(
                    f"{column} is {new} in the inputs, {old} in {MANIFEST}"
                )
        if recorded.placed is not None and probed.placed is not None:
            old = recorded.placed.starts
            if old != probed.placed.starts[: len(old)]:
                what = "sounds" if self._recipe.windows.placement else "events"
                raise ValueError(f"the {what} in the inputs give other windows")
        clip = probed._replace(split=recorded.split, examples=recorded.examples)
        self._last = row, clip
        return clip

    def measured(self, clip: Clip, listed: Mapping[int, SourceRow]) -> Clip:
        """Returns a clip with the measures of its group, which :meth:`record` needs.

        If the recipe measures groups, all clips of the group are decoded. They must be
        in ``listed``.

        Raises
        ------
        ValueError
            If one of them cannot be decoded.
        """
        steps = group_steps(self._recipe)
        if not steps:
            return clip
        group = clip.split, clip.group
        if group not in self._groups:
            manifest = self.planned.manifest
            some = (manifest["windows"] > 0) & (manifest["split"] == clip.split)
            numbers = set(manifest["index"][some].tolist())
            mates = (row for row in listed.values() if row.group == clip.group)
            self._groups[group] = self._measure(
                [row for row in mates if row.row in numbers], clip.split
            )
        return with_group(clip, self._groups[group], steps)

    def _measure(self, rows: Iterable[SourceRow], split: str) -> dict[GroupKey, bytes]:
        """Returns the measures of a group of this split, from all its clips."""
        steps = group_steps(self._recipe)
        parts: dict[GroupKey, list[bytes]] = {}
        for row in rows:
            probed = self._prober.probe(row)
            if isinstance(probed, Reject):
                raise ValueError(
                    f"{row.filepath} of its group cannot be read again: {probed.reason}"
                )
            clip = probed._replace(split=split)
            for key, measured in of_groups(clip, steps):
                parts.setdefault(key, []).append(measured)
        return {key: steps[key[1]].measure_group(some) for key, some in parts.items()}

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
        planned = self.planned
        place = int(planned.places[row])
        of_clip = int(planned.first_windows[planned.clip[row]])
        first = number = place - of_clip
        if clip.native_rate_hz != clip.sample_rate_hz:
            # Resampling began with the segment's first window, and the last bits
            # depend on where it begins.
            in_split = planned.is_in(clip.split)[planned.clip_by_clip]
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
