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

What is counted on the way::

    clips                -> CorpusCount -> Corpus -> the format of examples
    clips in their order -> PlanSummary              examples by split and class
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from beam_pipeline.arrays import Integers
from beam_pipeline.audio.decoder import finds_frames
from beam_pipeline.errors import UnusableEntry
from beam_pipeline.examples.event_targets import (
    TimedWindows,
    check_any_event,
    named_no_event,
)
from beam_pipeline.examples.features import Corpus, ExampleFormat
from beam_pipeline.examples.serialisation import example_bytes
from beam_pipeline.examples.windows import (
    WindowPlan,
    WindowPlans,
    covered_frames,
    frames_in,
    window_starts,
)
from beam_pipeline.inputs.listing import ListingSummary
from beam_pipeline.inputs.splits import shard_name
from beam_pipeline.inputs.table_files import Column
from beam_pipeline.permutation import Permutation
from beam_pipeline.planning.clips import (
    Clip,
    Reject,
    check_split_of_copies,
    copies_in,
    example_numbers,
    header_of,
    why_left_out,
    window_frames,
)
from beam_pipeline.recipe.recipe import LISTED, NO_COMPRESSION, Recipe, Shards, Windows
from beam_pipeline.storage.pages import Batch, SortedValues, stable_bytes
from beam_pipeline.text import bytes_sha256, clip_key

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
            See :func:`beam_pipeline.planning.shards.longest_walk`.
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
            name, self.split, k, examples, per_member=self.per_member, mix_seed=mix_seed
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
    totals: Mapping[str, int], example_format: ExampleFormat | None, recipe: Recipe
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
        segment.first, segment.examples, copies_in(recipe.copies, clip.split)
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
    clip = segment.clip
    if clip.placed is not None:
        copies = copies_in(recipe.copies, clip.split)
        numbers, _ = example_numbers(segment.first, segment.examples, copies)
        first, last = int(numbers[0]), int(numbers[-1])
        clip = clip._replace(placed=clip.placed.narrowed(first, last - first + 1))
        segment = segment._replace(clip=clip)
    if not clip.events:
        return segment
    starts, _ = locate_examples(segment, recipe)
    windows = timed_windows(clip, starts, window_frames(clip, recipe))
    return segment._replace(clip=clip._replace(events=windows.near().events))


def timed_windows(clip: Clip, starts: Integers, length: int) -> TimedWindows:
    """Returns some windows of a clip, with its events; a window has so many frames."""
    rate = clip.sample_rate_hz
    return TimedWindows(clip.events, (clip.start + starts) / rate, length / rate)


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


class CorpusCount:
    """Counts clips, and names one of each kind: the first in the order of names."""

    def __init__(self, recipe: Recipe):
        self._recipe = recipe
        self._rates = Counter[int]()
        self._channels = Counter[int]()
        self._named: dict[tuple[str, int | str], str] = {}
        self._frames = self._walk = 0

    def add(self, clips: Iterable[Clip]) -> None:
        """Counts clips.

        Clips that are left out do not count: a class that only they have is no class.
        """
        recipe = self._recipe
        counted = [clip for clip in clips if clip.examples]
        for clip in counted:
            name = clip.filepath
            self._rates[clip.sample_rate_hz] += 1
            self._channels[clip.channels] += 1
            self._frames += clip.frames
            self._name(("Hz", clip.sample_rate_hz), name)
            self._name(("channels", clip.channels), name)
            for label in _labels_of(clip, recipe):
                self._name(("class", label), name)
        if recipe.examples_are_mixed:
            self._walk = max(self._walk, longest_walk(counted, recipe))

    def _name(self, kind: tuple[str, int | str], name: str) -> None:
        self._named[kind] = min(name, self._named.get(kind, name))

    def corpus(self) -> Corpus:
        """Returns the counts; they do not depend on the order of clips."""
        return Corpus(
            tuple(sorted(str(n) for unit, n in self._named if unit == "class")),
            Counter(dict(sorted(self._rates.items()))),
            Counter(dict(sorted(self._channels.items()))),
            dict(sorted(self._named.items(), key=str)),
            self._frames,
            self._walk,
        )


def _labels_of(clip: Clip, recipe: Recipe) -> Iterable[str]:
    separator = recipe.label_separator
    if recipe.events is not None:
        return (*(event.label for event in clip.events), *named_no_event(recipe))
    if clip.label is None:
        return ()
    return (clip.label,) if separator is None else clip.label.split(separator)


def format_of(
    corpus: Corpus,
    recipe: Recipe,
    rejects: Iterable[Reject],
    columns: Sequence[Column] = (),
) -> ExampleFormat | None:
    """Returns the format of a corpus' examples; None if every clip was rejected."""
    if not corpus.rates_hz:
        return None
    clip = min(corpus.named.values())
    unusable = (
        (r.filepath, r.reason) for r in rejects if r.error == UnusableEntry.__name__
    )
    check_any_event(corpus.labels, clip, unusable, recipe)
    return ExampleFormat.of(corpus, recipe, columns)


def longest_walk(clips: Iterable[Clip], recipe: Recipe) -> int:
    """Returns the most windows of a clip that is decoded from its start.

    To read in the middle of such a clip, the decoder walks there: there is no other
    way to have the same samples. 0 if all clips are in files that can be sought.
    """
    copies = recipe.copies
    return max(
        (
            clip.examples // (1 + copies_in(copies, clip.split))
            for clip in clips
            if recipe.stream
            or recipe.loads(clip.filepath)
            or not finds_frames(header_of(clip))
        ),
        default=0,
    )


# Clips without a window that are named.
CLIPS_NAMED = 5


class TallyKey(NamedTuple):
    """What examples are counted by. With the rate, seconds add up exactly."""

    split: str
    label: str
    rate_hz: int


@dataclass(slots=True, repr=False)
class PlanSummary:
    """A plan in a few numbers; its size does not grow with the corpus.

    Attributes
    ----------
    example_format : ExampleFormat or None
        None if no clip was accepted.
    layouts : mapping
        The shards of each split.
    moves : mapping or None
        The groups that are not in the split of their hash, as the recipe holds them.
    clips, examples : Counter
        By the class of the clip.
    event_clips, event_examples : Counter
        By the classes of the events in windows.
    dropped : Counter
        How many examples are left out because they have no event. The counts of the
        other fields include them.
    frames : Counter
        The frames of all examples by the class of the clip, if each is a whole clip;
        otherwise empty, because all examples have the same number of frames.
    audio : Counter
        The frames of clips that are in the windows of examples that are not left out,
        by split and sample rate. Where windows overlap, a frame counts once; padding
        and copies do not count.
    left_out : Counter
        How many clips are left out, by
        :func:`beam_pipeline.planning.clips.why_left_out`.
    first_left_out : list of str
        The files of the first of them, at most ``CLIPS_NAMED``.
    """

    listing: ListingSummary
    example_format: ExampleFormat | None
    layouts: Mapping[str, ShardLayout]
    moves: Mapping[int, str] | None = None
    clips: Counter[TallyKey] = field(default_factory=Counter)
    examples: Counter[TallyKey] = field(default_factory=Counter)
    event_clips: Counter[TallyKey] = field(default_factory=Counter)
    event_examples: Counter[TallyKey] = field(default_factory=Counter)
    dropped: Counter[TallyKey] = field(default_factory=Counter)
    frames: Counter[TallyKey] = field(default_factory=Counter)
    audio: Counter[tuple[str, int]] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    first_left_out: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<PlanSummary: {self.described()}>"

    def described(self) -> str:
        """Returns the clips and the examples of each split, on one line."""
        splits = ", ".join(f"{n} {s.total:,}" for n, s in self.layouts.items())
        return f"examples of {self.listing.clips:,} clips: {splits or 'none'}"

    def add(self, placed: PlacedClips, plans: WindowPlans, recipe: Recipe) -> None:
        """Counts the clips of a bucket; ``plans`` are those of the recipe."""
        layout = self.layouts.get(placed.split)
        total = 0 if layout is None else layout.total
        index = placed.first_example
        for clip in placed.clips:
            plan = plans.of(clip.sample_rate_hz, clip.frames)
            if not clip.examples:
                self.left_out[why_left_out(clip.frames, plan, recipe)] += 1
                if len(self.first_left_out) < CLIPS_NAMED:
                    self.first_left_out.append(clip.filepath)
                continue
            count = min(clip.examples, max(0, total - index))
            index += clip.examples
            key = TallyKey(clip.split, clip.label or "", clip.sample_rate_hz)
            self.clips[key] += count > 0
            self.examples[key] += count
            if recipe.windows_are_clips:
                self.frames[key] += count * clip.frames
            if count:
                self._add_windows(clip, count, key, plan, recipe)

    def _add_windows(
        self, clip: Clip, count: int, key: TallyKey, plan: WindowPlan, recipe: Recipe
    ) -> None:
        """Counts the audio and the events of a clip's first examples."""
        assert self.example_format is not None  # no clip has examples without it
        rule = self.example_format.features.events
        if rule is None and not plan.random_starts and clip.placed is None:
            windows = -(-count // (1 + copies_in(recipe.copies, clip.split)))
            audio = covered_frames(clip.frames, plan, windows)
        else:
            starts, _ = locate_examples(Segment(clip, 0, count, 0), recipe)
            if rule is not None:
                timed = timed_windows(clip, starts, plan.length)
                selected = rule.selected(timed)
                self.dropped[key] += int((~selected).sum())
                for label, n in rule.counts(timed).items():
                    self.event_clips[key._replace(label=label)] += n > 0
                    self.event_examples[key._replace(label=label)] += n
                starts = starts[selected]
            audio = frames_in(starts, np.minimum(plan.length, clip.frames - starts))
        self.audio[key.split, key.rate_hz] += audio

    def by_class(self) -> tuple[Counter[TallyKey], Counter[TallyKey]]:
        """Returns the clips and the examples of each class: of events, if there are."""
        some = self.example_format
        if some is not None and some.features.events is not None:
            return self.event_clips, self.event_examples
        return self.clips, self.examples

    def seconds(self, split: str) -> float:
        """Returns the length of a split's examples together, in seconds."""
        return seconds_of(self.in_frames(self.examples), split)

    def in_frames(self, examples: Mapping[TallyKey, int]) -> Mapping[TallyKey, int]:
        """Returns the frames of examples that this plan counts."""
        return in_frames(examples, self.frames, self.example_format)

    def audio_seconds(self, split: str) -> float:
        """Returns the seconds of audio that a split's examples cover; see ``audio``."""
        frames = {TallyKey(name, "", hz): n for (name, hz), n in self.audio.items()}
        return seconds_of(frames, split)

    def kept(self, split: str) -> tuple[int, float]:
        """Returns a split's examples and their seconds, without the dropped ones."""
        total, seconds = self.layouts[split].total, self.seconds(split)
        lost = sum(n for key, n in self.dropped.items() if key.split == split)
        # Of whole clips, which have no events, none is dropped.
        if lost:
            seconds -= seconds_of(self.in_frames(self.dropped), split)
        return total - lost, seconds


def left_out_words(left_out: Mapping[str, int]) -> str:
    """Returns why clips are left out, in words: ``"3 too short, 1 without sound"``."""
    return ", ".join(
        f"{n:,} {why.replace('no_', 'without ').replace('_', ' ')}"
        for why, n in sorted(left_out.items(), reverse=True)
    )


def in_frames(
    examples: Mapping[TallyKey, int],
    of_clips: Mapping[TallyKey, int],
    example_format: ExampleFormat | None,
) -> Mapping[TallyKey, int]:
    """Returns the frames of counted examples: ``of_clips`` if each is a whole clip."""
    if example_format is None or example_format.win_len is None:
        return of_clips
    return {key: n * example_format.win_len for key, n in examples.items()}


def seconds_of(frames: Mapping[TallyKey, int], split: str) -> float:
    """Returns the length of the counted frames of a split together, in seconds."""
    by_rate: Counter[int] = Counter()
    for key, n in frames.items():
        if key.split == split:
            by_rate[key.rate_hz] += n
    return sum(n / rate for rate, n in sorted(by_rate.items()))


def split_by_class(
    example_format: ExampleFormat, counts: Mapping[TallyKey, int]
) -> dict[str, dict[TallyKey, int]]:
    """Returns the counts of each class; a clip with several classes counts for each."""
    classes = example_format.classes
    found: dict[str, dict[TallyKey, int]] = {name: {} for name in classes}
    separator = example_format.features.separator
    for key, n in counts.items():
        labels = [key.label] if separator is None else key.label.split(separator)
        for label in labels if classes else ():
            found[label][key] = n
    return found
