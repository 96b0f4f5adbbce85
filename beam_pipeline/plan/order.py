"""The order of clips: hashed or as listed, bucket by bucket.

::

    order of the clips     key(clip), ascending; a clip's examples stay together
    buckets                equal key prefixes: bucket 0 | bucket 1 | bucket 2 | ...
    index of an example    examples in the buckets before
                           + examples of the clips before, in its bucket
                           + its number in its clip

Clips go to disk by bucket, so no more than one bucket is sorted in memory.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from beam_pipeline.hashing import clip_key
from beam_pipeline.plan.batch import Batch
from beam_pipeline.plan.clips import Clip
from beam_pipeline.recipe.example_sections import LISTED, Shards
from beam_pipeline.storage.spilled import SortedValues

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


class Buckets:
    """Clips on disk, which come back in their order, split by split.

    Attributes
    ----------
    examples : Counter
        The number of examples of each split that has clips.
    """

    def __init__(self, shards: Shards):
        self.examples = Counter[str]()
        self._shards = shards
        self._waiting: dict[BucketKey, list[Clip]] = {}
        self._held = 0
        self._kept = SortedValues[tuple[BucketKey, Batch[Clip]]](itemgetter(0))

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
