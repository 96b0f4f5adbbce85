"""What of a data set is read: a split, or several of them; and which features.

Also how much readers hold in memory.

::

    "train"                     a split
    "fold0+fold2"               several, one after the other; also ["fold0", "fold2"]
    "!fold1"                    all others, in the order of the metadata

Every reader gives the examples in this order: split after split as chosen, and in a
split the order on disk, shard after shard.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from beam_pipeline.arrays import numpy_dtype
from beam_pipeline.codecs import BYTES_LIST
from beam_pipeline.dataset.metadata import Metadata, ShardEntry
from beam_pipeline.errors import InputError, OptionError, listed
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.parameters import check_whole

# Memory for what is read ahead, and for what is shuffled.
READ_AHEAD_BYTES = 256 << 20
SHUFFLE_BYTES = 128 << 20
# Stand for texts, and for sizes that differ between examples.
_TEXT_BYTES = 64
_GUESSED_SIZE = 256
# How many times the bytes in a shard an example takes, about, after GZIP.
_INFLATED = 2


def memory_bytes(metadata: Metadata, specs: Iterable[FeatureSpec]) -> int:
    """Returns about how many bytes these features of an example take in memory.

    If sizes differ between examples, the shards tell more about them than the specs.
    """
    size, is_known = 0, True
    for spec in specs:
        count = math.prod(n or _GUESSED_SIZE for n in spec.shape or (None,))
        size += (
            _TEXT_BYTES
            if spec.encoding == BYTES_LIST
            else count * numpy_dtype(spec.dtype).itemsize
        )
        is_known = is_known and spec.has_fixed_shape
    if is_known:
        return size
    splits = metadata.splits.values()
    stored = sum(shard.bytes for split in splits for shard in split.shards)
    examples = sum(split.examples for split in splits)
    return max(size, _INFLATED * stored // max(examples, 1))


def check_share(name: str, shard: Any) -> tuple[int, int]:
    """Returns ``(index, count)`` of a share; refuses anything else."""
    try:
        index, count = (check_whole(name, number, 0) for number in shard)
        if index < count:
            return index, count
    except (TypeError, ValueError):
        pass
    raise OptionError(name, "must be (index, count) with 0 <= index < count", shard)


def choose_features(metadata: Metadata, features: Sequence[str] | None) -> list[str]:
    """Returns the features with these names; without names, all components.

    Features that only belong to others, like the shape of an array, are no components.
    """
    names = metadata.components
    chosen = names if features is None else features
    chosen = [chosen] if isinstance(chosen, str) else list(chosen)
    for name in chosen:
        check_name("feature", name, names)
    if not chosen:
        raise OptionError("features", "must name at least one", features)
    return chosen


def check_name(kind: str, name: str, known: Iterable[str]) -> None:
    """Raises InputError if a name is not known; suggests the closest."""
    names = list(known)
    if name not in names:
        raise InputError(f"There is no {kind} {name!r}, only {listed(names, name)}.")


# A split, or several; see above.
Split = str | Sequence[str]

_BETWEEN = "+"
_WITHOUT = "!"


class ShardRange(NamedTuple):
    """Consecutive examples of one shard."""

    shard: ShardEntry
    skip: int
    take: int


def cut_shards(
    shards: Sequence[ShardEntry], index: int, count: int
) -> list[ShardRange]:
    """Returns the pieces of shards that the trainer ``index`` of ``count`` reads.

    >>> cut = cut_shards([ShardEntry("a", 4, 0, ""), ShardEntry("b", 2, 0, "")], 1, 2)
    >>> [(p.shard.file, p.skip, p.take) for p in cut]
    [('a', 3, 1), ('b', 0, 2)]
    """
    total = sum(shard.examples for shard in shards)
    start, stop = index * total // count, (index + 1) * total // count
    cut, first = [], 0
    for shard in shards:
        skip = max(start - first, 0)
        take = min(stop - first, shard.examples) - skip
        if take > 0:
            cut.append(ShardRange(shard, skip, take))
        first += shard.examples
    return cut


def shards_of(metadata: Metadata, splits: Iterable[str]) -> list[ShardEntry]:
    """Returns all shards of some splits, in order."""
    return [shard for name in splits for shard in metadata.splits[name].shards]


def choose_splits(
    metadata: Metadata, split: Split | None, option: str = "split"
) -> tuple[str, ...]:
    """Returns the splits that ``split`` names; without it, the only one.

    Raises
    ------
    InputError
        If there is no such split, or if the data set has several and none is named.
    OptionError
        If the text has another form, or a split is named twice.
    """
    known = metadata.splits
    if split is None and len(known) != 1:
        raise InputError(
            f"The data set has the splits {', '.join(known)}. Choose one with `split`, "
            f"or several: {_BETWEEN.join(list(known)[:2])}."
        )
    names = list(known) if split is None else _entries(split, known, option)
    without = [name for name in names if name.startswith(_WITHOUT)]
    if without and len(without) < len(names):
        raise OptionError(
            option, "must name what is read, or with ! what is not, but not both", split
        )
    if without:
        left_out = [name[len(_WITHOUT) :] for name in without]
        for name in left_out:
            check_name(option, name, known)
        names = [name for name in known if name not in left_out]
        if not names:
            raise OptionError(option, "leaves no split to read", split)
    for name in names:
        check_name(option, name, known)
    if len(set(names)) < len(names):
        raise OptionError(option, "names a split twice", split)
    return tuple(names)


def _entries(split: Any, known: Iterable[str], option: str) -> list[str]:
    several = split if isinstance(split, list | tuple) else [split]
    entries: list[str] = []
    for each in several:
        entries += [each] if each in known else each.split(_BETWEEN)
    if not entries:
        raise OptionError(option, "must name at least one", split)
    return entries
