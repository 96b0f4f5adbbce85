"""Finds sketches that are near each other, without comparing all pairs.

Sketches are cut into bands of bits. Only sketches that are equal in some band are
compared. A pair that differs in fewer bits than there are bands is equal in at least
one band, so it is always found. Pairs that differ in more bits, up to the limit of 64,
are found with these probabilities::

    sketches     bands     always    32 bits differ    48     64 of 512
    thousand     12 bits   41 bits   1.00              1.00   1.00
    100 000      19 bits   25 bits   1.00              0.99   0.88
    a million    22 bits   22 bits   1.00              0.94   0.71

"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.permutation import Integers

Words = npt.NDArray[np.uint64]

_WORD_BITS = 64
# Limits of a band's width in bits. Bands are so wide that few sketches are equal in one
# by chance.
_NARROWEST, _WIDEST = 8, 30
# Each sketch is compared with at most this many others that are equal in a band. So
# work and memory are proportional to the number of sketches.
NEIGHBOURS = 64
_PAIRS_AT_ONCE = 1 << 18
_ONES = np.array([n.bit_count() for n in range(1 << 16)], np.uint8)


def near_sketches(
    sketches: npt.NDArray[np.uint8], most_bits: int
) -> tuple[Integers, bool]:
    """Returns equal numbers for sketches that are near each other.

    Parameters
    ----------
    sketches : numpy.ndarray, shape (n, bytes), uint8
        Distinct sketches; ``bytes`` is a multiple of eight.
    most_bits : int
        The largest number of differing bits.

    Returns
    -------
    groups : numpy.ndarray, shape (n,), int64
        Sketches that others link have the same number, too.
    complete : bool
        False if too many sketches were equal in a band to compare all of them.
    """
    count, size = sketches.shape
    words = np.ascontiguousarray(sketches).view(">u8").astype(np.uint64)
    columns = np.ascontiguousarray(words.T)
    width = min(max(count.bit_length() + 2, _NARROWEST), _WIDEST)
    groups, complete = np.arange(count), True
    for first in range(0, 8 * size - width + 1, width):
        keys = _band(columns, first, width)
        # Sorts by key, then by the sketch's number, which is in the lower 32 bits.
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
    """Returns the bits ``first`` to ``first + width`` of each sketch as a number."""
    word, shift = divmod(first, _WORD_BITS)
    keys: Words = columns[word] << np.uint64(shift) >> np.uint64(_WORD_BITS - width)
    missing = shift + width - _WORD_BITS
    if missing > 0:
        keys = keys | columns[word + 1] >> np.uint64(_WORD_BITS - missing)
    return keys


def _near_pairs(
    sketches: npt.NDArray[np.uint8], one: Integers, other: Integers, most_bits: int
) -> tuple[Integers, Integers]:
    """Returns the pairs that differ in at most ``most_bits`` bits."""
    short = sketches.view(np.uint16)
    near = np.zeros(len(one), np.bool_)
    for first in range(0, len(one), _PAIRS_AT_ONCE):
        some = slice(first, first + _PAIRS_AT_ONCE)
        differ = _ONES[short[one[some]] ^ short[other[some]]]
        near[some] = differ.sum(axis=1, dtype=np.int64) <= most_bits
    return one[near], other[near]


def _joined(groups: Integers, one: Integers, other: Integers) -> Integers:
    """Returns the groups, with the two groups of each pair merged."""
    return joined(len(groups), groups[one], groups[other])[groups]


def joined(count: int, one: Integers, other: Integers) -> Integers:
    """Returns numbers for ``count`` items, equal for items that pairs connect."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    links: Any = coo_array((np.ones(len(one), np.bool_), (one, other)), (count, count))
    numbers: Integers = connected_components(links, directed=False)[1].astype(np.int64)
    return numbers


NO_VALUE = -1  # the number of an item that has nothing to be compared


def components_of(numbers: Sequence[Integers]) -> Integers:
    """Gives items that share some number, directly or through others, the same one.

    Each array has a number for each item.
    """
    ones, others = [], []
    for each in numbers:
        items = np.flatnonzero(each != NO_VALUE)
        _, first, inverse = np.unique(
            each[items], return_index=True, return_inverse=True
        )
        ones.append(items[first[inverse]])
        others.append(items)
    return joined(len(numbers[0]), np.concatenate(ones), np.concatenate(others))
