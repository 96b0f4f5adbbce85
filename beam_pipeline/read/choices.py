"""What of a data set is read: splits, several of them, or parts; and which features.

Also how much readers hold in memory.

::

    "train"                     a split
    "fold0+fold2"               several, one after the other; also ["fold0", "fold2"]
    "!fold1"                    all others, in the order of the metadata
    "train[:10%]"               a part, as in Python's slices, by percent or number

Every reader gives the examples in this order: split after split as chosen, and in a
split the order on disk, shard after shard.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

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
    if not isinstance(name, str):
        raise OptionError(kind, f"must be the name of a {kind}", name)
    if name not in names:
        raise InputError(f"There is no {kind} {name!r}, only {listed(names, name)}.")


# A split, or several, and parts of them; see above.
Split = str | Sequence[str]

_BETWEEN = "+"
_WITHOUT = "!"
_PART = re.compile(r"([^\[\]]+)\[([^\[\]:]*):([^\[\]:]*)\]")
_BOUND = re.compile(r"(-?)(?:(\d+)|(\d+(?:\.\d+)?)%)")


class ShardRange(NamedTuple):
    """Consecutive examples of one shard."""

    shard: ShardEntry
    skip: int
    take: int


class SplitChoice(NamedTuple):
    """The chosen examples.

    Attributes
    ----------
    splits : tuple of str
        The splits that they are of, each once.
    shards : sequence of ShardEntry
        All shards of these splits, in order.
    spans : sequence of range
        Their numbers among the examples of these shards; no number is in two of them.
    """

    splits: tuple[str, ...]
    shards: Sequence[ShardEntry]
    spans: Sequence[range]

    @property
    def is_whole(self) -> bool:
        """Whether these are all examples of the splits."""
        return sum(map(len, self.spans)) == sum(s.examples for s in self.shards)

    @property
    def text(self) -> str:
        """The splits, in the form that :func:`choose_splits` takes."""
        return _BETWEEN.join(self.splits)

    def numbers(self) -> range | npt.NDArray[np.int64]:
        """Returns the numbers of the examples among all of the splits."""
        spans = self.spans
        if all(a.stop == b.start for a, b in pairwise(spans)):
            return range(spans[0].start, spans[-1].stop)
        return np.concatenate([np.arange(s.start, s.stop) for s in spans])

    def pieces(self) -> list[ShardRange]:
        """Returns the pieces of shards that hold the examples, in order."""
        whole = [ShardRange(shard, 0, shard.examples) for shard in self.shards]
        pieces = [_pieces_between(whole, s.start, s.stop) for s in self.spans]
        return [piece for some in pieces for piece in some]


def _pieces_between(
    pieces: Iterable[ShardRange], start: int, stop: int
) -> list[ShardRange]:
    """Returns the pieces of the examples ``start .. stop - 1`` of some pieces."""
    cut, first = [], 0
    for shard, begin, examples in pieces:
        skip = max(start - first, 0)
        take = min(stop - first, examples) - skip
        if take > 0:
            cut.append(ShardRange(shard, begin + skip, take))
        first += examples
    return cut


def cut_pieces(
    pieces: Sequence[ShardRange], index: int, count: int
) -> list[ShardRange]:
    """Returns the pieces that the trainer ``index`` of ``count`` reads.

    >>> a, b = ShardEntry("a", 4, 0, ""), ShardEntry("b", 2, 0, "")
    >>> cut = cut_pieces([ShardRange(a, 0, 4), ShardRange(b, 0, 2)], 1, 2)
    >>> [(p.shard.file, p.skip, p.take) for p in cut]
    [('a', 3, 1), ('b', 0, 2)]
    """
    total = sum(piece.take for piece in pieces)
    start, stop = index * total // count, (index + 1) * total // count
    return _pieces_between(pieces, start, stop)


def choose_splits(
    metadata: Metadata, split: Split | None, option: str = "split"
) -> SplitChoice:
    """Returns the examples that ``split`` names; without it, those of the only split.

    Raises
    ------
    InputError
        If there is no such split, or if the data set has several and none is named.
    OptionError
        If the text has another form, or examples are named twice.
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
    parts = [_part_of_split(name, metadata, option) for name in names]
    splits = tuple(dict.fromkeys(name for name, _ in parts))
    shards, firsts = list[ShardEntry](), dict[str, int]()
    for name in splits:
        firsts[name] = sum(shard.examples for shard in shards)
        shards += known[name].shards
    spans = [
        range(firsts[name] + part.start, firsts[name] + part.stop)
        for name, part in parts
    ]
    for one, other in combinations(spans, 2):
        if max(one.start, other.start) < min(one.stop, other.stop):
            raise OptionError(option, "names examples twice", split)
    return SplitChoice(splits, shards, spans)


def _entries(split: Any, known: Iterable[str], option: str) -> list[str]:
    several = split if isinstance(split, list | tuple) else [split]
    entries: list[str] = []
    for each in several:
        if not isinstance(each, str):
            raise OptionError(option, "must be the name of a split, or a list", split)
        entries += [each] if each in known else each.split(_BETWEEN)
    if not entries:
        raise OptionError(option, "must name at least one", split)
    return entries


def _part_of_split(text: str, metadata: Metadata, option: str) -> tuple[str, range]:
    """Returns a split, and the numbers of its examples that are named."""
    match = _PART.fullmatch(text)
    name = text if text in metadata.splits or match is None else match[1]
    check_name(option, name, metadata.splits)
    total = sum(shard.examples for shard in metadata.splits[name].shards)
    if match is None or name == text:
        return name, range(total)
    start = _bound(match[2], total, 0, text, option)
    stop = _bound(match[3], total, total, text, option)
    return name, range(start, max(start, stop))


def _bound(text: str, total: int, default: int, whole: str, option: str) -> int:
    """Returns the number of an example: 100, -100, 10%, -10%, or the default.

    ``p%`` is ``floor(total * p / 100)``, so ``[:p%]`` and ``[p%:]`` have every example
    once. Numbers beyond the split are its end, as in Python's slices.
    """
    if not text:
        return default
    match = _BOUND.fullmatch(text)
    if match is None:
        raise OptionError(
            option,
            "must be like train[:10%], train[10%:90%], train[:100] or train[-100:]",
            whole,
        )
    number = int(match[2] or total * Fraction(match[3]) / 100)
    number = min(number, total)
    return total - number if match[1] else number
