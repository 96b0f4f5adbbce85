"""Segments: which examples of which clip go to which positions of a shard.

::

    examples of a split    | clip 7   | clip 2        | clip 9  | ...   in order
    shards                 |  shard 0      |  shard 1     |  shard 2 ...
    segments               | 7, all   | 2, 0..k | 2, k.. | 9, all ...
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.examples.event_targets import near
from beam_pipeline.examples.format import ExampleFormat
from beam_pipeline.examples.windows import WindowPlan, window_starts
from beam_pipeline.hashing import clip_key
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.plan.batch import Batch
from beam_pipeline.plan.clips import Clip
from beam_pipeline.plan.copies import copies_in, example_numbers
from beam_pipeline.plan.order import PlacedClips
from beam_pipeline.plan.shards import Shard, ShardLayout
from beam_pipeline.recipe.recipe import Recipe

_SHARD_NAME = re.compile(
    r"([^/]+/)?(?P<split>[^/]+)-(?P<k>[0-9]{5,})-of-(?P<shards>[0-9]{5,})"
)

Integers = npt.NDArray[np.int64]


class Segment(NamedTuple):
    """``windows`` windows of a clip from ``first`` on, at ``position`` of a shard."""

    clip: Clip
    first: int
    windows: int
    position: int


class ShardTask(NamedTuple):
    """A shard with everything needed to write it, in order."""

    shard: Shard
    segments: tuple[Segment, ...]

    @classmethod
    def of(cls, shard: Shard, segments: Iterable[Segment], salt: str) -> ShardTask:
        """Sorts the segments and takes their digest; ``salt`` stands for the recipe."""
        ordered = Batch(sorted(segments, key=lambda segment: segment.position))
        text = "\n".join([salt, repr(shard), *map(repr, ordered)])
        digest = hashlib.sha256(text.encode()).hexdigest()
        return cls(shard._replace(digest=digest), ordered)


def shard_name(split: str, k: int, shards: int) -> str:
    """What shard ``k`` of so many is called, without a suffix."""
    folder = "" if split == DEFAULT_SPLIT else f"{split}/"
    return f"{folder}{split}-{k:05d}-of-{shards:05d}"


def is_shard_name(name: str) -> bool:
    """Whether :func:`shard_name` gives a name, of some shard of some plan."""
    found = _SHARD_NAME.fullmatch(name)
    if found is None:
        return False
    split, k, shards = found["split"], int(found["k"]), int(found["shards"])
    is_planned = split.isidentifier() and k < shards
    return is_planned and shard_name(split, k, shards) == name


def cut_segments(
    placed: PlacedClips, layout: ShardLayout
) -> Iterator[tuple[Shard, Segment]]:
    """Cuts clips at the bounds of the shards, dropping what is beyond the total."""
    index = placed.first_window
    high = 0  # of no shard yet
    for clip in placed.clips:
        end = min(index + clip.windows, layout.total)
        first, at = 0, index
        while at < end:
            if at >= high:
                k = layout.shard_at(at)
                shard, low, high = layout.shard(k), layout.bound(k), layout.bound(k + 1)
            count = min(end, high) - at
            yield shard, Segment(clip, first, count, at - low)
            first, at = first + count, at + count
        index += clip.windows


class ShardWork(NamedTuple):
    """All that it takes to write a shard.

    The format travels along, instead of being a side input of each step: runners end a
    fused stage where a step has side inputs, and would move the audio between stages.
    """

    task: ShardTask
    form: ExampleFormat


def locate_examples(segment: Segment, recipe: Recipe) -> tuple[Integers, Integers]:
    """Where the window of each example starts, and which copy of it each is."""
    clip = segment.clip
    windows, copies = example_numbers(
        segment.first, segment.windows, copies_in(recipe, clip.split)
    )
    first = int(windows[0])
    starts = window_starts(
        clip.frames,
        WindowPlan.of(recipe, clip.sample_rate_hz),
        first,
        int(windows[-1]) - first + 1,
        clip_key(recipe.seed, clip.filepath, clip.source),
    )
    return starts[windows - first], copies


def narrow_events(segment: Segment, recipe: Recipe) -> Segment:
    """The segment without events that none of its windows can hold.

    A day's recording has thousands, and each of its shards few of them.
    """
    clip, rate = segment.clip, segment.clip.sample_rate_hz
    if not clip.events:
        return segment
    starts, _ = locate_examples(segment, recipe)
    length_s = WindowPlan.of(recipe, rate).length / rate
    some = near(clip.events, (clip.start + starts) / rate, length_s)
    return segment._replace(clip=clip._replace(events=some))


def count_events(
    clip: Clip, examples: int, form: ExampleFormat, recipe: Recipe
) -> tuple[dict[str, int], int]:
    """What a clip's first examples come to by its events.

    How many count for each class, and how many are left out for want of an event.
    """
    rule, rate = form.features.events, clip.sample_rate_hz
    if rule is None:
        return {}, 0
    starts, _ = locate_examples(Segment(clip, 0, examples, 0), recipe)
    windows = clip.events, (clip.start + starts) / rate, form.win_len / rate
    return rule.counts(*windows), int((~rule.kept(*windows)).sum())


def cut_shards(
    placed: PlacedClips, layouts: Mapping[str, ShardLayout], recipe: Recipe
) -> Iterator[tuple[str, Any]]:
    """A bucket's clips -> by its name, each shard, with what it takes of them."""
    segments: dict[Shard, list[Segment]] = {}
    for shard, segment in cut_segments(placed, layouts[placed.split]):
        segments.setdefault(shard, []).append(narrow_events(segment, recipe))
    for shard, some in segments.items():
        yield shard.name, (shard, Batch(some))


def make_task(
    keyed: tuple[str, Iterable[tuple[Shard, Sequence[Segment]]]],
    form: ExampleFormat,
    salt: str,
) -> Any:
    """All of a shard's segments -> the work to be done."""
    pieces = list(keyed[1])
    segments = chain.from_iterable(some for _, some in pieces)
    return ShardWork(ShardTask.of(pieces[0][0], segments, salt), form)
