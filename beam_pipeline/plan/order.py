"""The order of clips: hashed or as listed, bucket by bucket.

::

    order of the clips     key(clip), ascending; a clip's examples stay together
    buckets                equal key prefixes: bucket 0 | bucket 1 | bucket 2 | ...
    index of an example    examples in the buckets before
                           + examples of the clips before, in its bucket
                           + its number in its clip

So each bucket can be placed by itself once the counts of all buckets are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from beam_pipeline.hashing import clip_key
from beam_pipeline.plan.batch import Batch
from beam_pipeline.plan.clips import Clip
from beam_pipeline.recipe.example_sections import LISTED, Shards

# Ten million clips in 256 buckets give about 40 000 clips, or 20 MB, in each.
BUCKET_BITS = 8
ROWS_PER_LISTED_BUCKET = 4096
# Number of clips that wait for others of their buckets: some 30 MB.
CLIPS_HELD = 1 << 16

BucketKey = tuple[str, int]


class PlacedClips(NamedTuple):
    """The clips of one bucket, in order.

    ``first_window`` is the index of the first clip's first example in its split.
    """

    split: str
    bucket: int
    first_window: int
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


def sort_bucket(clips: Iterable[Clip], shards: Shards) -> list[Clip]:
    """Returns a bucket's clips in order."""
    return sorted(clips, key=lambda clip: (order_key(clip, shards), clip.row))


def count_bucket(key: BucketKey, clips: Sequence[Clip]) -> tuple[BucketKey, int]:
    """Returns how many examples some clips of a bucket have."""
    return key, sum(clip.examples for clip in clips)


def count_before(key: BucketKey, counts: Mapping[BucketKey, int]) -> int:
    """Returns how many examples the earlier buckets of a bucket's split have."""
    split, bucket = key
    return sum(n for (s, b), n in counts.items() if s == split and b < bucket)


def place_bucket(
    key: BucketKey, parts: Iterable[Sequence[Clip]], before: int, shards: Shards
) -> PlacedClips:
    """Returns a bucket's clips in order; ``before`` is that of :func:`count_before`."""
    clips = sort_bucket(chain.from_iterable(parts), shards)
    return PlacedClips(*key, before, tuple(clips))


class BucketBatches:
    """Gathers the clips of several blocks by bucket.

    A block holds one or two clips of each bucket. Elements that small are the largest
    cost of a shuffle, so the clips of many blocks cross it together.
    """

    def __init__(self, shards: Shards):
        self._shards = shards
        self._buckets: dict[BucketKey, list[Clip]] = {}
        self._held = 0

    def add(self, clips: Sequence[Clip]) -> Iterator[tuple[BucketKey, Batch[Clip]]]:
        """Adds a block; yields everything that waits if it is enough."""
        for clip in clips:
            key = clip.split, bucket_of(clip, self._shards)
            self._buckets.setdefault(key, []).append(clip)
        self._held += len(clips)
        if self._held >= CLIPS_HELD:
            yield from self.flush()

    def flush(self) -> Iterator[tuple[BucketKey, Batch[Clip]]]:
        """Yields everything that waits."""
        buckets, self._buckets, self._held = self._buckets, {}, 0
        return ((key, Batch(clips)) for key, clips in buckets.items())
