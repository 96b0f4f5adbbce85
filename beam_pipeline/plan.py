"""The plan: which window of which clip goes to which place of which shard.

::

    order of the clips     key(clip), ascending; a clip's windows stay together
    buckets                equal key prefixes: bucket 0 | bucket 1 | bucket 2 | ...
    index of a window      windows in the buckets before
                           + windows of the clips before, in its bucket
                           + its number in its clip
    shards                 [0, b1) [b1, b2) ... of that index

So each bucket can be placed alone once the counts of all buckets are known.

What travels through the pipeline is a named tuple: it pickles ten times as fast as a
dataclass, and to half the size.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from beam_pipeline.recipe import Recipe, text_key

DEFAULT_SHARD_BYTES = 128 << 20
DEFAULT_SPLIT = "records"

# With 256 buckets ten million clips are some 40 000 in a bucket, about 20 MB.
BUCKET_BITS = 8
ROWS_PER_LISTED_BUCKET = 4096

_T = TypeVar("_T")


class Clip(NamedTuple):
    """A clip that can be decoded.

    Attributes
    ----------
    row, source, filepath, label
        As in the listing.
    split : str
        Where all its windows go; empty until that is decided.
    native_frames, native_rate_hz, channels, format, subtype
        What its file holds.
    sample_rate_hz, frames : int
        What is recorded of it: the output rate, and its length at that rate.
    windows : int
        How many examples it gives, at least one: its windows and their copies.
    modified_ns : int
        When its file was last changed, so that a run that continues does not take
        shards of what the file was before.
    factors : tuple of float
        What the recipe's clip gains scale it by.
    group : str
        Clips of one group are in one split.
    start : int
        Its first frame in its file, at the output rate.
    channel : int or None
        The only one to be taken.
    columns : tuple
        Values of the extra columns and of the targets.
    events : tuple of Event
        Labels with times, in seconds from the start of its file.
    file : int
        Stands for its file: the row of the first clip that was listed of it.
    content, sketch : bytes
        Its :class:`fingerprints.Fingerprint`, if the recipe asks for it.
    """

    row: int
    source: int
    filepath: str
    label: str | None
    split: str
    native_frames: int
    native_rate_hz: int
    channels: int
    format: str
    subtype: str
    sample_rate_hz: int
    frames: int
    windows: int
    modified_ns: int = 0
    factors: tuple[float, ...] = ()
    group: str = ""
    start: int = 0
    channel: int | None = None
    columns: tuple[Any, ...] = ()
    events: tuple[Any, ...] = ()
    file: int = 0
    content: bytes = b""
    sketch: bytes = b""


class Reject(NamedTuple):
    """A clip, or part of one, that did not become examples.

    ``windows`` of it that the plan had counted are missing in ``shard``.
    """

    row: int
    filepath: str
    stage: str
    error: str
    reason: str
    label: str | None = None
    shard: str | None = None
    split: str | None = None
    windows: int = 0
    sample_rate_hz: int = 0


class Shard(NamedTuple):
    """One file of the data set: its name without suffix, and what it will hold.

    ``digest`` stands for the exact content; finished work is known again by it.
    """

    name: str
    split: str
    number: int
    examples: int
    digest: str = ""


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


class ShardInfo(NamedTuple):
    """A shard as it was written.

    ``examples`` is short of the plan by what was lost and by what was left out;
    ``seen`` is what was observed of its windows, see :mod:`observations`.
    """

    shard: Shard
    file: str
    examples: int
    bytes: int
    sha256: str
    left_out: int = 0
    seen: Mapping[str, Any] | None = None

    def is_whole(self) -> bool:
        """Whether every place holds an example or was left out on purpose."""
        return self.examples + self.left_out == self.shard.examples


class PlacedClips(NamedTuple):
    """Clips of one bucket, in order, with the index of the first one's first window."""

    split: str
    bucket: int
    first_window: int
    clips: tuple[Clip, ...]


@dataclass(frozen=True, slots=True)
class Corpus:
    """What is common to all accepted clips; small, whatever their number."""

    labels: tuple[str, ...] = ()
    rates_hz: Mapping[int, int] = field(default_factory=dict)  # rate -> clips
    channels: Mapping[int, int] = field(default_factory=dict)  # channels -> clips
    # Of each, a clip that has it: (unit, value) -> the first by name.
    named: Mapping[tuple[str, int], str] = field(default_factory=dict)


class Listing(NamedTuple):
    """How many files the inputs have: clips, and others, which are ignored.

    ``alike`` are names in the table of events that several files are called by, each
    with one of these that is not the first.
    """

    clips: int
    ignored: int
    alike: Mapping[str, str] = {}


# What examples are counted by: split, class, and sample rate, so that seconds add up
# exactly.
TallyKey = tuple[str, str, int]
Tally = Mapping[TallyKey, tuple[int, int]]  # clips, windows


class Batch(tuple[_T, ...]):
    """Values that cross a shuffle together; Beam would pickle a list one by one.

    Named tuples of one kind travel as their columns, which halves the time.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        kinds = set(map(type, self))
        kind = kinds.pop() if len(kinds) == 1 else object
        if hasattr(kind, "_make"):
            return _of_columns, (kind, *map(Batch, zip(*self, strict=True)))
        return Batch, (tuple(self),)


def _of_columns(kind: Callable[..., _T], *columns: Iterable[Any]) -> Batch[_T]:
    return Batch(map(kind, *columns))


def clip_key(seed: int, filepath: str, source: int = 0) -> int:
    """64 bits that stand for a clip under a seed, the same in every process."""
    return text_key(str(seed), f"{source}\0{filepath}")


def order_key(clip: Clip, recipe: Recipe) -> int:
    """Clips are written in ascending order of this; equal keys by row."""
    if recipe.order == "listed":
        return clip.row
    return clip_key(recipe.seed, clip.filepath, clip.source)


def bucket_of(clip: Clip, recipe: Recipe) -> int:
    """The clip's bucket: a prefix of its order key."""
    if recipe.order == "listed":
        return clip.row // ROWS_PER_LISTED_BUCKET
    return order_key(clip, recipe) >> (64 - BUCKET_BITS)


def sort_bucket(clips: Iterable[Clip], recipe: Recipe) -> list[Clip]:
    """A bucket's clips in order."""
    return sorted(clips, key=lambda clip: (order_key(clip, recipe), clip.row))


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """How ``total`` examples of a split are cut into ``shards`` files.

    Shard ``k`` holds the examples ``bound(k) .. bound(k + 1) - 1``.
    """

    split: str
    total: int
    shards: int
    per_shard: int | None  # None: as even as possible

    @classmethod
    def of(
        cls, split: str, windows: int, example_bytes: int, recipe: Recipe
    ) -> ShardLayout:
        """The layout that a recipe wants for so many windows.

        Parameters
        ----------
        example_bytes : int
            Length of a typical serialised example; decides ``shard_bytes``.
        """
        total = min(windows, recipe.num_elems or windows)
        if recipe.num_shards is not None:
            return cls(split, total, min(recipe.num_shards, total), None)
        per_shard = recipe.elements_per_file or max(
            1, (recipe.shard_bytes or DEFAULT_SHARD_BYTES) // example_bytes
        )
        return cls(split, total, -(-total // per_shard), per_shard)

    def bound(self, k: int) -> int:
        """Index of shard k's first example."""
        if self.per_shard is None:
            return k * self.total // self.shards
        return min(k * self.per_shard, self.total)

    def shard_at(self, index: int) -> int:
        """Which shard holds the example with this index."""
        if self.per_shard is not None:
            return index // self.per_shard
        # The largest k with k * total // shards <= index.
        return ((index + 1) * self.shards - 1) // self.total

    def shard(self, k: int) -> Shard:
        """Shard k: ``train/train-00000-of-00012``; in the only split, no folder."""
        folder = "" if self.split == DEFAULT_SPLIT else f"{self.split}/"
        name = f"{folder}{self.split}-{k:05d}-of-{self.shards:05d}"
        return Shard(name, self.split, k, self.bound(k + 1) - self.bound(k))


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
