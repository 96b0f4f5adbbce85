"""From clips to shards: the order of clips, and which examples go to which shard.

::

    order of the clips     key(clip), ascending; a clip's examples stay together
    buckets                equal key prefixes: bucket 0 | bucket 1 | bucket 2 | ...
    index of an example    examples in the buckets before
                           + examples of the clips before, in its bucket
                           + its number in its clip

    examples of a split    | clip 7   | clip 2        | clip 9  | ...   in order
    shards                 |  shard 0      |  shard 1     |  shard 2 ...
    segments               | 7, all   | 2, 0..k | 2, k.. | 9, all ...

Clips go to disk by bucket, so no more than one bucket is sorted in memory.

In the order ``mixed``, strips of examples change places before, so that neighbours in a
shard come from different clips::

    examples, clip by clip    | strip 0 | strip 1 | strip 2 | strip 3 | rest |
    in their mixed order      | strip 3 | strip 0 | strip 2 | strip 1 | rest |
    shards                    |     shard 0   |     shard 1   |   shard 2    |
    in each shard             its examples, in a random order

A strip is some consecutive examples of a split. A worker decodes the strips of its
shard, and no other audio: none moves between workers. The order of the strips, and that
of the examples in a shard, are permutations with a key. So an example's place follows
from its number. The positions of segments are those before the examples of the shard
change places.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from beam_pipeline.arrays import Integers
from beam_pipeline.examples.encoding import example_bytes
from beam_pipeline.examples.event_targets import TimedWindows
from beam_pipeline.examples.features import ExampleFormat
from beam_pipeline.examples.windows import (
    WindowPlan,
    covered_frames,
    frames_in,
    window_starts,
)
from beam_pipeline.hashing import bytes_sha256, clip_key
from beam_pipeline.inputs.splits import shard_name
from beam_pipeline.permutation import Permutation
from beam_pipeline.planning.clips import (
    Clip,
    check_split_of_copies,
    copies_in,
    example_numbers,
    window_frames,
)
from beam_pipeline.recipe.recipe import LISTED, NO_COMPRESSION, Recipe, Shards, Windows
from beam_pipeline.storage.pages import Batch, SortedValues, stable_bytes

# A strip is so many windows without overlap: seconds of audio for each seek. If a
# shard has less than so many of these strips, they are shorter.
WINDOWS_IN_STRIP = 8
STRIPS_IN_SHARD = 16
# A clip that is decoded from its start, wherever one begins to read, has at most one
# strip more than this.
STRIPS_OF_CLIP = 8


def strip_examples(
    recipe: Recipe, split: str, shard_examples: int, longest_walk: int
) -> int:
    """Returns how many examples of a split are in a strip.

    Windows that overlap by much share their audio, so a strip has more of them. If
    clips are decoded from their start, strips are as long as those clips need.

    Parameters
    ----------
    shard_examples : int
        About how many examples are in a shard.
    longest_walk : int
        See :func:`.longest_walk`.
    """
    of_window = 1 + copies_in(recipe.copies, split)
    windows = min(
        WINDOWS_IN_STRIP * _windows_on_each_other(recipe),
        shard_examples // (STRIPS_IN_SHARD * of_window),
    )
    return of_window * max(1, windows, -(-longest_walk // STRIPS_OF_CLIP))


def _windows_on_each_other(windows: Windows) -> int:
    """Returns how many windows a frame is in, about."""
    # Lengths in frames and in seconds are compared at this rate.
    rate_hz = 48_000
    hop = windows.hop or (windows.hop_seconds or 0.0) * rate_hz
    if not hop or windows.windows_are_clips:
        return 1
    length = windows.win_len or (windows.win_seconds or 0.0) * rate_hz
    return max(1, math.ceil(int(length) / hop))


DEFAULT_SHARD_BYTES = 128 << 20
# With it, shards are at most 1 % larger than shards of one GZIP member: in this format,
# an example of 16 KiB or more can be read on its own.
MEMBER_BYTES = 16 << 10


class Shard(NamedTuple):
    """One planned file of the data set, with its name without a suffix.

    Its member ``m`` holds the positions ``m * per_member .. (m + 1) * per_member - 1``.
    ``digest`` identifies its exact content, so that a run recognises finished shards.
    With ``mix_seed``, its examples are written in a random order; see
    :mod:`beam_pipeline.planning.shards`.
    """

    name: str
    split: str
    number: int
    examples: int
    digest: str = ""
    per_member: int = 1
    mix_seed: int | None = None


class ClipSketch(NamedTuple):
    """What an audit compares of a clip, as far as a shard has its windows.

    Attributes
    ----------
    key : str
        The place of the clip in its split: clips are sorted by it, and then by row.
    row : int
    content : int
        The sum of :func:`.hash_windows` of its windows, modulo 2 ** 64.
    sketch : str
        What :func:`.sketch_audio` makes of its start, in hexadecimal; empty in a shard
        that does not have its first example.
    """

    key: str
    row: int
    content: int
    sketch: str

    def with_more(self, other: ClipSketch | None) -> ClipSketch:
        """Returns what is known of the clip from both."""
        if other is None:
            return self
        content = (self.content + other.content) % 2**64
        return self._replace(content=content, sketch=self.sketch or other.sketch)


class ShardInfo(NamedTuple):
    """A written shard.

    ``examples`` is the planned number less the lost examples and the ``left_out`` ones.
    ``seen`` is the state of a :class:`beam_pipeline.write.shard.Observations`,
    ``members`` and ``windows`` are the texts of
    :class:`beam_pipeline.storage.tfrecord.Members` and
    :class:`beam_pipeline.write.window_rows.WindowRows`. ``clips`` is the
    row of the clip of each window, packed; it is empty where a clip's windows are
    together. ``sketches`` has the clips of the shard.
    """

    shard: Shard
    file: str
    examples: int
    bytes: int
    sha256: str
    left_out: int = 0
    seen: Mapping[str, Any] | None = None
    members: str = ""
    windows: str = ""
    clips: str = ""
    sketches: tuple[ClipSketch, ...] = ()

    def is_whole(self) -> bool:
        """Returns whether every planned example was written or left out on purpose."""
        return self.examples + self.left_out == self.shard.examples


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """How ``total`` examples of a split are cut into ``shards`` files.

    Shard ``k`` holds the examples ``bound(k) .. bound(k + 1) - 1``. A member of a shard
    holds ``per_member`` positions. ``strip`` is the number of examples in a strip if
    examples are mixed, and ``seed`` what their order depends on; see
    :mod:`beam_pipeline.planning.shards`.
    """

    split: str
    total: int
    shards: int
    per_shard: int | None  # None: as even as possible
    per_member: int = 1
    strip: int | None = None
    seed: int = 0

    @classmethod
    def of(
        cls,
        split: str,
        examples: int,
        example_bytes: int,
        recipe: Recipe,
        longest_walk: int = 0,
    ) -> ShardLayout:
        """Returns the layout of a split under a recipe.

        Parameters
        ----------
        examples : int
            The number of examples in the split.
        example_bytes : int
            The length of a typical serialised example. ``shard_bytes`` divided by it is
            the number of examples in a shard.
        longest_walk : int
            See :func:`beam_pipeline.planning.summary.longest_walk`.
        """
        total = min(examples, recipe.num_elems or examples)
        per_member = 1
        if recipe.compression != NO_COMPRESSION:
            per_member = max(1, (recipe.member_bytes or MEMBER_BYTES) // example_bytes)
        per_shard = None
        if recipe.num_shards is not None:
            shards = min(recipe.num_shards, total)
        else:
            per_shard = recipe.elements_per_file or max(
                1, (recipe.shard_bytes or DEFAULT_SHARD_BYTES) // example_bytes
            )
            shards = -(-total // per_shard)
        layout = cls(split, total, shards, per_shard, per_member)
        if not recipe.examples_are_mixed or not total:
            return layout
        size = strip_examples(recipe, split, layout.bound(1), longest_walk)
        return replace(layout, strip=size, seed=recipe.seed)

    def bound(self, k: int) -> int:
        """Returns the index of shard k's first example."""
        if self.per_shard is None:
            return k * self.total // self.shards
        return min(k * self.per_shard, self.total)

    def shard_at(self, index: int) -> int:
        """Returns the number of the shard that holds the example with this index."""
        if self.per_shard is not None:
            return index // self.per_shard
        # The largest k with k * total // shards <= index.
        return ((index + 1) * self.shards - 1) // self.total

    def shard(self, k: int) -> Shard:
        """Returns shard k, for example ``train/train-00000-of-00012``."""
        name = shard_name(self.split, k, self.shards)
        examples = self.bound(k + 1) - self.bound(k)
        mix_seed = self.seed if self.strip else None
        return Shard(
            name,
            self.split,
            k,
            examples,
            per_member=self.per_member,
            mix_seed=mix_seed,
        )

    def runs(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yields where the examples ``first .. stop - 1`` of the clips' order go.

        Yields
        ------
        end, shift : int
            The examples from the run before up to ``end - 1`` follow each other in the
            shards, too: their positions are their numbers plus the shift.
        """
        if self.strip:
            strips = self.total // self.strip
            low, high = first // self.strip, min(-(-stop // self.strip), strips)
            order = Permutation(strips, self.seed, name=f"strips of {self.split}")
            places = order.position_of(np.arange(low, max(low, high)))
            for strip, place in enumerate(places.tolist(), low):
                yield (strip + 1) * self.strip, (place - strip) * self.strip
        yield self.total, 0

    def begin_of_segment(self, index: int) -> int:
        """Returns the first of the examples that go together with one, to its shard."""
        _, shift = next(self.runs(index, index + 1))
        position = index + shift
        begin = index - index % self.strip if self.strip else 0
        return max(begin, self.bound(self.shard_at(position)) - shift)


def lay_out(
    totals: Mapping[str, int],
    example_format: ExampleFormat | None,
    recipe: Recipe,
) -> dict[str, ShardLayout]:
    """Returns how each split is cut into shards.

    A split of which all clips are left out has none.
    """
    size, walk = 1, 0  # without a clip that is not left out, all totals are 0
    if example_format is not None:
        size, walk = example_bytes(example_format.features), example_format.longest_walk
        check_split_of_copies(recipe.copies, totals)
    return {
        split: ShardLayout.of(split, total, size, recipe, walk)
        for split, total in sorted(totals.items())
    }


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
        The clips, in any order.

    Attributes
    ----------
    examples : Counter
        The number of examples of each split that has clips.
    """

    def __init__(self, shards: Shards, blocks: Iterable[Iterable[Clip]]):
        self.examples = Counter[str]()
        self._shards = shards
        self._kept = SortedValues(itemgetter(0), self._batches(blocks))

    def _batches(
        self, blocks: Iterable[Iterable[Clip]]
    ) -> Iterator[tuple[BucketKey, Batch[Clip]]]:
        """Yields clips by bucket, whenever many wait for others of their buckets."""
        waiting: dict[BucketKey, list[Clip]] = {}
        held = 0
        for clip in chain.from_iterable(blocks):
            key = clip.split, bucket_of(clip, self._shards)
            waiting.setdefault(key, []).append(clip)
            self.examples[clip.split] += clip.examples
            held += 1
            if held >= CLIPS_HELD:
                yield from ((key, Batch(clips)) for key, clips in waiting.items())
                waiting, held = {}, 0
        yield from ((key, Batch(clips)) for key, clips in waiting.items())

    def placed(self) -> Iterator[PlacedClips]:
        """Yields the clips of each bucket in order."""
        before = Counter[str]()
        for (split, _), parts in groupby(self._kept, key=itemgetter(0)):
            clips = sorted(
                (clip for _, part in parts for clip in part),
                key=lambda clip: (order_key(clip, self._shards), clip.row),
            )
            yield PlacedClips(split, before[split], tuple(clips))
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


class ShardWork(NamedTuple):
    """A shard, the segments that fill it, in order, and the format of its examples.

    The format is no side input of the steps: runners end a fused stage at a step with
    side inputs, and would move the audio between stages.
    """

    shard: Shard
    segments: tuple[Segment, ...]
    example_format: ExampleFormat


def make_task(
    shard: Shard, segments: Iterable[Segment], salt: str
) -> tuple[Shard, Batch[Segment]]:
    """Sorts the segments and digests them; ``salt`` is a hash of the recipe."""
    ordered = Batch(sorted(segments, key=lambda segment: segment.position))
    digest = bytes_sha256(stable_bytes((salt, shard, ordered)))
    return shard._replace(digest=digest), ordered


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
    windows = TimedWindows(clip.events, (clip.start + starts) / rate, length_s)
    return segment._replace(clip=clip._replace(events=windows.near().events))


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
    length = window_frames(clip, recipe)
    windows = TimedWindows(clip.events, (clip.start + starts) / rate, length / rate)
    selected = rule.selected(windows)
    some = starts[selected]
    frames = frames_in(some, np.minimum(length, clip.frames - some))
    return rule.counts(windows), int((~selected).sum()), frames


def cut_tasks(
    clips: Iterable[PlacedClips], layouts: Mapping[str, ShardLayout], recipe: Recipe
) -> Iterator[tuple[Shard, Batch[Segment]]]:
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
            yield make_task(shard, segments, salt)


def _cut_shards(
    placed: PlacedClips, layout: ShardLayout, recipe: Recipe
) -> Iterator[tuple[Shard, Batch[Segment]]]:
    """Yields the segments of each shard that takes clips of a bucket."""
    segments: dict[Shard, list[Segment]] = {}
    for shard, segment in cut_segments(placed, layout):
        segments.setdefault(shard, []).append(narrow_events(segment, recipe))
    for shard, its_segments in segments.items():
        yield shard, Batch(its_segments)
