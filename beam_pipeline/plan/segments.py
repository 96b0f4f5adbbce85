"""Segments: which examples of which clip go to which positions of a shard.

::

    examples of a split    | clip 7   | clip 2        | clip 9  | ...   in order
    shards                 |  shard 0      |  shard 1     |  shard 2 ...
    segments               | 7, all   | 2, 0..k | 2, k.. | 9, all ...
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.examples.event_targets import near
from beam_pipeline.examples.format import ExampleFormat
from beam_pipeline.examples.windows import WindowPlan, window_starts
from beam_pipeline.hashing import clip_key
from beam_pipeline.plan.batch import Batch
from beam_pipeline.plan.clips import Clip
from beam_pipeline.plan.copies import copies_in, example_numbers
from beam_pipeline.plan.order import PlacedClips
from beam_pipeline.plan.shards import Shard, ShardLayout
from beam_pipeline.recipe.recipe import Recipe

Integers = npt.NDArray[np.int64]


class Segment(NamedTuple):
    """``examples`` of a clip from number ``first`` on, at ``position`` of a shard."""

    clip: Clip
    first: int
    examples: int
    position: int


# The digest of a shard is of a text with these names, so that a run may continue what
# another version began.
_NAMES_IN_DIGEST = {"examples": "windows"}


def _digested(value: Any) -> str:
    """The text of a segment or a clip that goes into the digest of a shard."""
    if not isinstance(value, Segment | Clip):
        return repr(value)
    fields = (
        f"{_NAMES_IN_DIGEST.get(name, name)}={_digested(field)}"
        for name, field in value._asdict().items()
    )
    return f"{type(value).__name__}({', '.join(fields)})"


class ShardTask(NamedTuple):
    """A shard with everything needed to write it, in order."""

    shard: Shard
    segments: tuple[Segment, ...]

    @classmethod
    def of(cls, shard: Shard, segments: Iterable[Segment], salt: str) -> ShardTask:
        """Sorts the segments and takes their digest; ``salt`` stands for the recipe."""
        ordered = Batch(sorted(segments, key=lambda segment: segment.position))
        text = "\n".join([salt, repr(shard), *map(_digested, ordered)])
        digest = hashlib.sha256(text.encode()).hexdigest()
        return cls(shard._replace(digest=digest), ordered)


def cut_segments(
    placed: PlacedClips, layout: ShardLayout
) -> Iterator[tuple[Shard, Segment]]:
    """Cuts clips at the bounds of the shards, dropping what is beyond the total."""
    index = placed.first_window
    high = 0  # of no shard yet
    for clip in placed.clips:
        end = min(index + clip.examples, layout.total)
        first, at = 0, index
        while at < end:
            if at >= high:
                k = layout.shard_at(at)
                shard, low, high = layout.shard(k), layout.bound(k), layout.bound(k + 1)
            count = min(end, high) - at
            yield shard, Segment(clip, first, count, at - low)
            first, at = first + count, at + count
        index += clip.examples


class ShardWork(NamedTuple):
    """All that it takes to write a shard.

    The format travels along, instead of being a side input of each step: runners end a
    fused stage where a step has side inputs, and would move the audio between stages.
    """

    task: ShardTask
    example_format: ExampleFormat


def locate_examples(segment: Segment, recipe: Recipe) -> tuple[Integers, Integers]:
    """Where the window of each example starts, and which copy of it each is."""
    clip = segment.clip
    windows, copies = example_numbers(
        segment.first,
        segment.examples,
        copies_in(recipe.augmentation.copies, clip.split),
    )
    first = int(windows[0])
    starts = window_starts(
        clip.frames,
        WindowPlan.of(recipe.windows, clip.sample_rate_hz),
        first,
        int(windows[-1]) - first + 1,
        clip_key(recipe.shards.seed, clip.filepath, clip.source),
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
    length_s = WindowPlan.of(recipe.windows, rate).length / rate
    some = near(clip.events, (clip.start + starts) / rate, length_s)
    return segment._replace(clip=clip._replace(events=some))


def count_events(
    clip: Clip, examples: int, example_format: ExampleFormat, recipe: Recipe
) -> tuple[dict[str, int], int]:
    """What a clip's first examples come to by its events.

    How many count for each class, and how many are left out for want of an event.
    """
    rule, rate = example_format.features.events, clip.sample_rate_hz
    if rule is None:
        return {}, 0
    starts, _ = locate_examples(Segment(clip, 0, examples, 0), recipe)
    windows = clip.events, (clip.start + starts) / rate, example_format.win_len / rate
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
    example_format: ExampleFormat,
    salt: str,
) -> Any:
    """All of a shard's segments -> the work to be done."""
    pieces = list(keyed[1])
    segments = chain.from_iterable(some for _, some in pieces)
    return ShardWork(ShardTask.of(pieces[0][0], segments, salt), example_format)
