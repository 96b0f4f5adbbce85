"""Finds clips whose sketches are alike, without comparing all pairs.

A sketch is a word of 16 bits every 24 ms; see :mod:`beam_pipeline.audio.sketch`. Two
sketches are laid on each other where some bits of two words of one, 48 ms apart, equal
those of the other::

    sketch      . . A . B . . . . .
    another         A . B . . . . . . .       its start was cut off
    compared        | | | | | | | |           the words that both have

They are alike if at most ``8 n - 16.8 sqrt(n)`` of the bits of the ``n`` words that
both have differ, and at most 30 %: 17 % of the bits of 10 words, 24 % of 16, and 30 %
of 28. Fewer words are more often alike by chance. ``n`` is at least five, and two
fifths of the words of the shorter sketch.

The more sketches there are, the more bits must be equal to begin with, so that few are
by chance. So a few more pairs are missed in a large data set.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.audio.sketch import LEAST_WORDS, WORD
from beam_pipeline.permutation import Integers

Words = npt.NDArray[np.uint16]

_BITS = 8 * WORD.itemsize
_APART = 2  # words
# Limits of the bits that are equal to begin with.
_FEWEST_BITS, _MOST_BITS = 8, 2 * _BITS
# Each place of a sketch is compared with at most this many others of equal bits. So
# work and memory are proportional to the number of sketches.
NEIGHBOURS = 64
_PLACES_AT_ONCE = 1 << 23
_PAIRS_AT_ONCE = 1 << 14
_ONES = np.array([n.bit_count() for n in range(1 << _BITS)], np.uint8)


def similar_sketches(sketches: Sequence[bytes]) -> tuple[Integers, bool]:
    """Returns equal numbers for sketches that are alike, directly or through others.

    Returns
    -------
    groups : numpy.ndarray, shape (n,), int64
    complete : bool
        False if too many places had equal bits to compare all of them.
    """
    count, longest = len(sketches), max(map(len, sketches), default=0) // WORD.itemsize
    words = np.zeros((count, longest + _APART), np.uint16)
    for row, sketch in zip(words, sketches, strict=True):
        row[: len(sketch) // WORD.itemsize] = np.frombuffer(sketch, WORD)
    first, second = words[:, :-_APART].ravel(), words[:, _APART:].ravel()
    places = np.flatnonzero((first != 0) & (second != 0))
    width = 3 * len(places).bit_length() // 2 - 12
    width = min(max(width, _FEWEST_BITS), _MOST_BITS)
    keys = (first >> (_BITS - (width + 1) // 2)).astype(np.uint32) << (width // 2)
    keys |= second >> (_BITS - width // 2)
    words = words[:, :longest]
    groups, crowded = np.arange(count), 0
    parts = 1 + len(places) // _PLACES_AT_ONCE
    for part in range(parts):
        some = places[keys[places] % parts == part]
        some = some[np.argsort(keys[some], kind="stable")]
        at = np.arange(len(some))
        for step in range(1, NEIGHBOURS + 1):
            at = at[at + step < len(some)]
            at = at[keys[some[at]] == keys[some[at + step]]]
            if not at.size:
                break
            one, other = some[at], some[at + step]
            apart = groups[one // longest] != groups[other // longest]
            pairs = _alike(words, one[apart], other[apart])
            if pairs[0].size:
                numbers = joined(count, *(groups[pair] for pair in pairs))
                groups = numbers[groups]
        else:
            crowded += at.size
    return groups, crowded <= len(places) // 2


def _alike(words: Words, one: Integers, other: Integers) -> tuple[Integers, Integers]:
    """Returns the sketches that are alike if a place of each lies on the other."""
    longest = words.shape[1]
    loud = np.count_nonzero(words, axis=1)
    hops = np.arange(longest)
    alike = np.zeros(len(one), np.bool_)
    for first in range(0, len(one), _PAIRS_AT_ONCE):
        some = slice(first, first + _PAIRS_AT_ONCE)
        (row, place), (others, at) = (divmod(k[some], longest) for k in (one, other))
        moved = hops + (at - place)[:, None]
        inside = (moved >= 0) & (moved < longest)
        ours = words[row]
        theirs = words[others[:, None], np.where(inside, moved, 0)]
        both = inside & (ours != 0) & (theirs != 0)
        n = both.sum(axis=1)
        differ = np.sum(_ONES[ours ^ theirs], axis=1, where=both, dtype=np.int64)
        most = np.minimum(8 * n - 16.8 * np.sqrt(n), 0.3 * _BITS * n)
        least = np.maximum(LEAST_WORDS, 0.4 * np.minimum(loud[row], loud[others]))
        alike[some] = (differ <= most) & (n >= least)
    return one[alike] // longest, other[alike] // longest


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
