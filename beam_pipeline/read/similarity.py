"""Which of many sketches are near each other, without comparing all pairs.

Sketches are cut into bands of bits; only those that are equal in a band are compared.
Where fewer bits differ than there are bands, some band has none of them, so such pairs
are surely found; of those that differ in more, up to the limit, most are::

    sketches     bands     surely    32 bits differ    48     64 of 512
    thousand     12 bits   41 bits   1.00              1.00   1.00
    100 000      19 bits   25 bits   1.00              0.99   0.88
    a million    22 bits   22 bits   1.00              0.94   0.71

"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]

_WORD_BITS = 64
# Bands so wide that chance alone makes few sketches equal in one.
_NARROWEST, _WIDEST = 8, 30
# Of sketches that are equal in a band, each is compared with so many of the next: work
# and memory stay in proportion to the number of sketches, whatever they are.
NEIGHBOURS = 64
_PAIRS_AT_ONCE = 1 << 18
_ONES = np.array([n.bit_count() for n in range(1 << 16)], np.uint8)


def near_sketches(
    sketches: npt.NDArray[np.uint8], most_bits: int
) -> tuple[Integers, bool]:
    """Numbers that are equal for sketches which are near each other.

    Parameters
    ----------
    sketches : numpy.ndarray, shape (n, bytes), uint8
        All of them different; a multiple of eight bytes.
    most_bits : int
        How many bits may differ.

    Returns
    -------
    groups : numpy.ndarray, shape (n,), int64
        Sketches that are linked by others are of one group, too.
    complete : bool
        False if so many were equal in a band that not all of these were compared.
    """
    count, size = sketches.shape
    words = np.ascontiguousarray(sketches).view(">u8").astype(np.uint64)
    columns = np.ascontiguousarray(words.T)
    width = min(max(count.bit_length() + 2, _NARROWEST), _WIDEST)
    groups, complete = np.arange(count), True
    for first in range(0, 8 * size - width + 1, width):
        keys = _band(columns, first, width)
        # Equal keys side by side, in the order of the sketches.
        ordered = np.sort(keys << np.uint64(32) | np.arange(count, dtype=np.uint64))
        keys = ordered >> np.uint64(32)
        order = (ordered & np.uint64(0xFFFFFFFF)).astype(np.int64)
        at = np.arange(count)
        for step in range(1, NEIGHBOURS + 1):
            at = at[at + step < count]
            at = at[keys[at] == keys[at + step]]
            if not at.size:
                break
            one, other = order[at], order[at + step]
            apart = groups[one] != groups[other]
            near = _near_pairs(sketches, one[apart], other[apart], most_bits)
            if near[0].size:
                groups = _joined(groups, *near)
        else:
            complete = complete and not at.size
    return groups, complete


def _band(columns: Words, first: int, width: int) -> Words:
    """Bits ``first`` to ``first + width`` of each sketch, as a number."""
    word, shift = divmod(first, _WORD_BITS)
    keys: Words = columns[word] << np.uint64(shift) >> np.uint64(_WORD_BITS - width)
    missing = shift + width - _WORD_BITS
    if missing > 0:
        keys = keys | columns[word + 1] >> np.uint64(_WORD_BITS - missing)
    return keys


def _near_pairs(
    sketches: npt.NDArray[np.uint8], one: Integers, other: Integers, most_bits: int
) -> tuple[Integers, Integers]:
    """Those of the pairs that differ in no more bits."""
    short = sketches.view(np.uint16)
    kept = np.zeros(len(one), np.bool_)
    for first in range(0, len(one), _PAIRS_AT_ONCE):
        some = slice(first, first + _PAIRS_AT_ONCE)
        differ = _ONES[short[one[some]] ^ short[other[some]]]
        kept[some] = differ.sum(axis=1, dtype=np.int64) <= most_bits
    return one[kept], other[kept]


def _joined(groups: Integers, one: Integers, other: Integers) -> Integers:
    """The groups, those of each pair made one."""
    return joined(len(groups), groups[one], groups[other])[groups]


def joined(count: int, one: Integers, other: Integers) -> Integers:
    """Numbers that are equal for those of ``count`` things that pairs connect."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    links: Any = coo_array((np.ones(len(one), np.bool_), (one, other)), (count, count))
    numbers: Integers = connected_components(links, directed=False)[1].astype(np.int64)
    return numbers
