"""Shards: how the examples of a split are cut into files."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from beam_pipeline.examples.encoding import example_bytes
from beam_pipeline.examples.format import ExampleFormat
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.plan.copies import check_copies
from beam_pipeline.plan.order import BucketKey
from beam_pipeline.recipe.example_sections import Shards

DEFAULT_SHARD_BYTES = 128 << 20
_SHARD_NAME = re.compile(
    r"([^/]+/)?(?P<split>[^/]+)-(?P<k>[0-9]{5,})-of-(?P<shards>[0-9]{5,})"
)


def shard_name(split: str, k: int, shards: int) -> str:
    """Returns the name of shard ``k`` of ``shards``, without a suffix."""
    folder = "" if split == DEFAULT_SPLIT else f"{split}/"
    return f"{folder}{split}-{k:05d}-of-{shards:05d}"


def is_shard_name(name: str) -> bool:
    """Returns whether :func:`shard_name` can return this name."""
    found = _SHARD_NAME.fullmatch(name)
    if found is None:
        return False
    split, k, shards = found["split"], int(found["k"]), int(found["shards"])
    is_planned = split.isidentifier() and k < shards
    return is_planned and shard_name(split, k, shards) == name


class Shard(NamedTuple):
    """One planned file of the data set, with its name without a suffix.

    ``digest`` identifies its exact content, so that a run recognises finished shards.
    """

    name: str
    split: str
    number: int
    examples: int
    digest: str = ""


class ShardInfo(NamedTuple):
    """A written shard.

    ``examples`` is the planned number less the lost examples and the ``left_out`` ones.
    ``seen`` is the state of a :class:`beam_pipeline.write.observations.Observations`.
    """

    shard: Shard
    file: str
    examples: int
    bytes: int
    sha256: str
    left_out: int = 0
    seen: Mapping[str, Any] | None = None

    def is_whole(self) -> bool:
        """Returns whether every planned example was written or left out on purpose."""
        return self.examples + self.left_out == self.shard.examples


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
        cls, split: str, examples: int, example_bytes: int, asked: Shards
    ) -> ShardLayout:
        """Returns the layout of a split under a recipe.

        Parameters
        ----------
        examples : int
            The number of examples in the split.
        example_bytes : int
            The length of a typical serialised example. ``shard_bytes`` divided by it is
            the number of examples in a shard.
        """
        total = min(examples, asked.num_elems or examples)
        if asked.num_shards is not None:
            return cls(split, total, min(asked.num_shards, total), None)
        per_shard = asked.elements_per_file or max(
            1, (asked.shard_bytes or DEFAULT_SHARD_BYTES) // example_bytes
        )
        return cls(split, total, -(-total // per_shard), per_shard)

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
        return Shard(name, self.split, k, self.bound(k + 1) - self.bound(k))


def lay_out(
    _: Any,
    counts: Mapping[BucketKey, int],
    example_format: ExampleFormat | None,
    asked: Shards,
    copies: int,
) -> dict[str, ShardLayout]:
    """Returns how each split is cut into shards."""
    if example_format is None:
        return {}
    totals: Counter[str] = Counter()
    for (split, _bucket), count in counts.items():
        totals[split] += count
    check_copies(copies, totals)
    size = example_bytes(example_format.features)
    return {
        split: ShardLayout.of(split, total, size, asked)
        for split, total in sorted(totals.items())
    }
