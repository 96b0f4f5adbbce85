"""From clips to tasks: the order of clips, and which examples go to which shard.

::

    order of the clips     key(clip), ascending; a clip's examples stay together
    buckets                equal key prefixes: bucket 0 | bucket 1 | bucket 2 | ...
    index of an example    examples in the buckets before
                           + examples of the clips before, in its bucket
                           + its number in its clip

    examples of a split    | clip 7   | clip 2        | clip 9  | ...   in order
    shards                 |  shard 0      |  shard 1     |  shard 2 ...
    segments               | 7, all   | 2, 0..k | 2, k.. | 9, all ...

Clips go to disk by bucket, so no more than one bucket is sorted in memory. If examples
are mixed, strips of them change places before (see :mod:`.shards`). The positions of
segments are then those before the examples of the shard change places.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from itertools import chain, groupby
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from beam_pipeline.examples.event_targets import near
from beam_pipeline.examples.format import ExampleFormat
from beam_pipeline.examples.windows import (
    WindowPlan,
    covered_frames,
    frames_in,
    window_starts,
)
from beam_pipeline.hashing import bytes_sha256, clip_key
from beam_pipeline.permutation import Integers
from beam_pipeline.plan.clips import Clip, copies_in, example_numbers, window_frames
from beam_pipeline.plan.shards import Shard, ShardLayout
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.recipe.sections import LISTED, Shards
from beam_pipeline.storage.pages import Batch, stable_bytes
from beam_pipeline.storage.spilled import SortedValues

# Ten million clips in 256 buckets give about 40 000 clips, or 20 MB, in each.
BUCKET_BITS = 8
ROWS_PER_LISTED_BUCKET = 4096
# Number of clips that wait for others of their buckets: some 30 MB.
CLIPS_HELD = 1 << 16

BucketKey = tuple[str, int]


class PlacedClips(NamedTuple):
    """The clips of one bucket, in order.

    ``first_example`` is the index of the first clip's first example in its split.
    """

    split: str
    bucket: int
    first_example: int
    clips: tuple[Clip, ...]


def order_key(clip: Clip, shards: Shards) -> int:
    """Returns the key by which clips are sorted; clips with equal keys go by row."""
    if shards.order == LISTED:
        return clip.row
    return clip_key(shards.seed, clip.filepath, clip.source)


def bucket_of(clip: Clip, shards: Shards) -> int:
    """Returns the clip's bucket: a prefix of its order key."""
    if shards.order == LISTED:
        return clip.row // ROWS_PER_LISTED_BUCKET
    return order_key(clip, shards) >> (64 - BUCKET_BITS)


class Buckets:
    """Clips on disk, which come back in their order, split by split.

    Parameters
    ----------
    shards : Shards
    blocks : iterable of iterables of Clip
        The first clips, in any order; :meth:`add` adds more.

    Attributes
    ----------
    examples : Counter
        The number of examples of each split that has clips.
    """

    def __init__(self, shards: Shards, blocks: Iterable[Iterable[Clip]] = ()):
        self.examples = Counter[str]()
        self._shards = shards
        self._waiting: dict[BucketKey, list[Clip]] = {}
        self._held = 0
        self._kept = SortedValues[tuple[BucketKey, Batch[Clip]]](itemgetter(0))
        for clips in blocks:
            self.add(clips)

    def add(self, clips: Iterable[Clip]) -> None:
        """Adds clips, in any order."""
        for clip in clips:
            key = clip.split, bucket_of(clip, self._shards)
            self._waiting.setdefault(key, []).append(clip)
            self.examples[clip.split] += clip.examples
            self._held += 1
        if self._held >= CLIPS_HELD:
            self._spill()

    def _spill(self) -> None:
        self._kept.extend((key, Batch(clips)) for key, clips in self._waiting.items())
        self._waiting, self._held = {}, 0

    def placed(self) -> Iterator[PlacedClips]:
        """Yields the clips of each bucket in order."""
        self._spill()
        before = Counter[str]()
        for (split, bucket), parts in groupby(self._kept, key=itemgetter(0)):
            clips = sorted(
                (clip for _, part in parts for clip in part),
                key=lambda clip: (order_key(clip, self._shards), clip.row),
            )
            yield PlacedClips(split, bucket, before[split], tuple(clips))
            before[split] += sum(clip.examples for clip in clips)

    def close(self) -> None:
        """Frees the disk."""
        self._kept.close()


class Segment(NamedTuple):
    """``examples`` of a clip, from number ``first`` on, at ``position`` of a shard."""

    clip: Clip
    first: int
    examples: int
    position: int


class ShardTask(NamedTuple):
    """A shard and the segments that fill it, in order."""

    shard: Shard
    segments: tuple[Segment, ...]

    @classmethod
    def of(cls, shard: Shard, segments: Iterable[Segment], salt: str) -> ShardTask:
        """Sorts the segments and digests them; ``salt`` is a hash of the recipe."""
        ordered = Batch(sorted(segments, key=lambda segment: segment.position))
        digest = bytes_sha256(stable_bytes((salt, shard, ordered)))
        return cls(shard._replace(digest=digest), ordered)


def cut_segments(
    placed: PlacedClips, layout: ShardLayout
) -> Iterator[tuple[Shard, Segment]]:
    """Cuts clips at the bounds of the shards, and drops examples beyond the total."""
    index = until = placed.first_example
    stop = index + sum(clip.examples for clip in placed.clips)
    runs = layout.runs(index, min(stop, layout.total))
    low = high = 0  # no shard yet
    for clip in placed.clips:
        end = min(index + clip.examples, layout.total)
        at = index
        while at < end:
            if at >= until:
                until, shift = next(runs)
            position = at + shift
            if not low <= position < high:
                k = layout.shard_at(position)
                shard, low, high = layout.shard(k), layout.bound(k), layout.bound(k + 1)
            count = min(end - at, until - at, high - position)
            yield shard, Segment(clip, at - index, count, position - low)
            at += count
        index += clip.examples


class ShardWork(NamedTuple):
    """A task with the format of its examples.

    The format is no side input of the steps: runners end a fused stage at a step with
    side inputs, and would move the audio between stages.
    """

    task: ShardTask
    example_format: ExampleFormat


def locate_examples(segment: Segment, recipe: Recipe) -> tuple[Integers, Integers]:
    """Returns the start of each example's window, and the number of its copy."""
    clip = segment.clip
    windows, copies = example_numbers(
        segment.first,
        segment.examples,
        copies_in(recipe.copies, clip.split),
    )
    first, count = int(windows[0]), int(windows[-1] - windows[0]) + 1
    if clip.placed is not None:
        return clip.placed.of(first, count)[windows - first], copies
    starts = window_starts(
        clip.frames,
        WindowPlan.of(recipe, clip.sample_rate_hz, clip.frames),
        first,
        count,
        clip_key(recipe.seed, clip.filepath, clip.source),
    )
    return starts[windows - first], copies


def narrow_events(segment: Segment, recipe: Recipe) -> Segment:
    """Returns the segment with only its windows, and the events that may overlap them.

    A recording of a day has thousands of them; each of its shards needs few.
    """
    clip, rate = segment.clip, segment.clip.sample_rate_hz
    if clip.placed is not None:
        copies = copies_in(recipe.copies, clip.split)
        numbers, _ = example_numbers(segment.first, segment.examples, copies)
        first, last = int(numbers[0]), int(numbers[-1])
        clip = clip._replace(placed=clip.placed.narrowed(first, last - first + 1))
        segment = segment._replace(clip=clip)
    if not clip.events:
        return segment
    starts, _ = locate_examples(segment, recipe)
    length_s = window_frames(clip, recipe) / rate
    events = near(clip.events, (clip.start + starts) / rate, length_s)
    return segment._replace(clip=clip._replace(events=events))


def count_audio(clip: Clip, examples: int, plan: WindowPlan, recipe: Recipe) -> int:
    """Returns how many frames of a clip are in the windows of its first examples.

    ``plan`` is that of the recipe in the clip.
    """
    if plan.random_starts or clip.placed is not None:
        starts, _ = locate_examples(Segment(clip, 0, examples, 0), recipe)
        return frames_in(starts, np.minimum(plan.length, clip.frames - starts))
    copies = copies_in(recipe.copies, clip.split)
    return covered_frames(clip.frames, plan, -(-examples // (1 + copies)))


def count_events(
    clip: Clip, examples: int, example_format: ExampleFormat, recipe: Recipe
) -> tuple[dict[str, int], int, int]:
    """Counts a clip's first examples by the classes of their events.

    Returns
    -------
    counts : dict
        The number of examples for each class.
    left_out : int
        The number of examples left out because they have no event.
    frames : int
        How many frames of the clip are in the windows of the others.
    """
    rule, rate = example_format.features.events, clip.sample_rate_hz
    assert rule is not None
    starts, _ = locate_examples(Segment(clip, 0, examples, 0), recipe)
    length = example_format.window_frames(clip.frames)
    windows = clip.events, (clip.start + starts) / rate, length / rate
    selected = rule.selected(*windows)
    some = starts[selected]
    frames = frames_in(some, np.minimum(length, clip.frames - some))
    return rule.counts(*windows), int((~selected).sum()), frames


def cut_tasks(
    clips: Iterable[PlacedClips], layouts: Mapping[str, ShardLayout], recipe: Recipe
) -> Iterator[ShardTask]:
    """Yields the task of each shard; the clips are in order, split by split.

    So the segments of a shard follow each other. If examples are mixed, the segments of
    all shards go to disk before.
    """
    salt = recipe.sha256()
    cut: Iterable[tuple[Shard, Batch[Segment]]] = chain.from_iterable(
        _cut_shards(placed, layouts[placed.split], recipe) for placed in clips
    )
    with ExitStack() as stack:
        if recipe.examples_are_mixed:
            cut = SortedValues(lambda part: (part[0].name,), cut)
            stack.enter_context(closing(cut))
        for shard, parts in groupby(cut, key=itemgetter(0)):
            segments = chain.from_iterable(part for _, part in parts)
            yield ShardTask.of(shard, segments, salt)


def _cut_shards(
    placed: PlacedClips, layout: ShardLayout, recipe: Recipe
) -> Iterator[tuple[Shard, Batch[Segment]]]:
    """Yields the segments of each shard that takes clips of a bucket."""
    segments: dict[Shard, list[Segment]] = {}
    for shard, segment in cut_segments(placed, layout):
        segments.setdefault(shard, []).append(narrow_events(segment, recipe))
    for shard, its_segments in segments.items():
        yield shard, Batch(its_segments)
