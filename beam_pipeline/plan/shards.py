"""Shards: how a split's examples are cut into files."""

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


class Shard(NamedTuple):
    """One file of the data set: its name without suffix, and what it will hold.

    ``digest`` stands for the exact content; finished work is known again by it.
    """

    name: str
    split: str
    number: int
    examples: int
    digest: str = ""


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
        cls, split: str, windows: int, example_bytes: int, asked: Shards
    ) -> ShardLayout:
        """The layout that a recipe wants for so many windows.

        Parameters
        ----------
        example_bytes : int
            Length of a typical serialised example; decides ``shard_bytes``.
        """
        total = min(windows, asked.num_elems or windows)
        if asked.num_shards is not None:
            return cls(split, total, min(asked.num_shards, total), None)
        per_shard = asked.elements_per_file or max(
            1, (asked.shard_bytes or DEFAULT_SHARD_BYTES) // example_bytes
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
        name = shard_name(self.split, k, self.shards)
        return Shard(name, self.split, k, self.bound(k + 1) - self.bound(k))


def lay_out(
    _: Any,
    counts: Mapping[BucketKey, int],
    example_format: ExampleFormat | None,
    asked: Shards,
    copies: int,
) -> dict[str, ShardLayout]:
    """How each split is cut into shards."""
    if example_format is None:
        return {}
    windows: Counter[str] = Counter()
    for (split, _bucket), count in counts.items():
        windows[split] += count
    check_copies(copies, windows)
    size = example_bytes(example_format.features)
    return {
        split: ShardLayout.of(split, total, size, asked)
        for split, total in sorted(windows.items())
    }
