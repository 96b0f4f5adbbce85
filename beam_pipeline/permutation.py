"""Random numbers by key, and seeded orders of any number of examples.

:func:`hash64` is a random number for each key, the same on every machine.

An order says which example is at each position, without a list of them all. So where an
epoch continues is one number. :class:`Permutation` is the swap-or-not shuffle. In round
``r``, with the round's key ``K``, the number ``x`` has the partner ``(K - x) mod n``,
which has ``x`` as its own partner. One pseudo-random bit of the round and of the larger
number of the pair decides whether the two change places. So each number can be followed
through all rounds without the others.

References
----------
Hoang, Morris, Rogaway: An enciphering scheme based on a card shuffle, CRYPTO 2012.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.arrays import Integers, Keys
from beam_pipeline.text import text_key

# Numbers that go through all rounds together; their arrays stay in a core's cache.
_BLOCK = 16384

# The multipliers of SplitMix64.
_FIRST = np.uint64(0xBF58476D1CE4E5B9)
_SECOND = np.uint64(0x94D049BB133111EB)
_HALF = np.uint64(32)


def hash64(
    key: int | npt.NDArray[np.uint64], k: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    """Returns the outputs with the numbers ``k`` of SplitMix64 with the seed ``key``.

    There may be a seed for each of ``k``.

    References
    ----------
    Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014.
    """
    z: npt.NDArray[np.uint64] = np.uint64(key) + (
        k.astype(np.uint64) + np.uint64(1)
    ) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * _FIRST
    z = (z ^ (z >> np.uint64(27))) * _SECOND
    return z ^ (z >> np.uint64(31))


def unit_floats(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Returns 64-bit hashes as numbers in [0, 1).

    ``u = floor(word / 2**11) / 2**53``: a float64 holds the upper 53 bits exactly.
    """
    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53


class Permutation:
    """A pseudo-random permutation of ``range(n)``, the same on every machine.

    ::

        Permutation(10, seed=0, epoch=0).at(np.arange(3))  # the first three of an epoch

    There are ``R = 40 + 4 * bits`` rounds, with the ``bits`` of ``n - 1``. With
    truly random keys and bits, the numbers at any ``q`` positions have a distribution
    whose total variation distance from the uniform one is at most [1]_::

        2 * n**1.5 / (R + 2) * ((q + n) / (2 * n)) ** (R / 2 + 1)

    For a quarter of all positions, this is below 2e-5 for every ``n`` up to 1e9. For
    all positions, the formula bounds nothing; there the shuffle of up to 6 numbers is
    known exactly, because its transition matrix is small: the second largest eigenvalue
    is at most 0.625, and the distance from uniform after all rounds below 1e-8.

    Parameters
    ----------
    n : int
        Less than 2**62.
    seed, epoch : int
        Any integers; another pair gives another permutation.
    name : str
        What is in this order; another name gives another permutation.

    References
    ----------
    .. [1] Hoang, Morris, Rogaway: An enciphering scheme based on a card shuffle,
       CRYPTO 2012, for attacks that do not adapt.
    """

    def __init__(
        self, n: int, seed: int = 0, epoch: int = 0, name: str = "order of epoch"
    ):
        self.n = n
        rounds = _rounds(n)
        key = text_key(str(seed), f"{name} {epoch}")
        drawn = hash64(key, np.arange(2 * rounds)).reshape(rounds, 2)
        # Each round: K, and what makes its bits.
        self._rounds = [(np.uint64(k % max(n, 1)), bits) for k, bits in drawn]

    def at(self, positions: npt.ArrayLike) -> Integers:
        """Returns the numbers at some positions.

        Parameters
        ----------
        positions : array_like of int
            Each of them from 0 to ``n - 1``, in any order.

        Returns
        -------
        numpy.ndarray of int64, of the shape of ``positions``

        Raises
        ------
        IndexError
            If a position is out of range.
        """
        return self._follow(positions, self._rounds)

    def position_of(self, numbers: npt.ArrayLike) -> Integers:
        """Returns where some numbers are: the inverse of :meth:`at`."""
        return self._follow(numbers, self._rounds[::-1])

    def _follow(
        self, start: npt.ArrayLike, rounds: list[tuple[np.uint64, np.uint64]]
    ) -> Integers:
        found = np.array(start, np.int64)
        if found.size and not (found.min() >= 0 and found.max() < self.n):
            raise IndexError(f"a position is not in 0 .. {self.n - 1}")
        numbers = found.view(np.uint64).reshape(-1)
        for first in range(0, numbers.size, _BLOCK):
            _shuffle(numbers[first : first + _BLOCK], np.uint64(self.n), rounds)
        return found


def _rounds(n: int) -> int:
    return 40 + 4 * max(n - 1, 0).bit_length()


class BalancedDraws:
    """Draws of examples that take each class equally often, without an end.

    ::

        draws      0 1 2 | 3 4 5 | 6 7 8 | ...     with three classes
        class      b a c | a c b | a b c | ...     each of them once in a round
        example    class a gives all its examples, then all in another order, ...

    An epoch is as many draws as there are examples, and the next one goes on with the
    draw after. All is computed from the number of the draw. Memory is two numbers for
    each run of examples of one class.

    Parameters
    ----------
    classes : numpy.ndarray of int64, shape (n,)
        The class of each example.
    seed : int
    """

    def __init__(self, classes: Integers, seed: int):
        starts = np.flatnonzero(np.diff(classes, prepend=-1))
        lengths = np.diff(np.append(starts, len(classes)))
        # One class after the other: where its runs start, and how many end before.
        order = np.argsort(classes[starts], kind="stable")
        self._starts, self._ends = starts[order], np.cumsum(lengths[order])
        self._sizes = np.unique(classes, return_counts=True)[1]
        self._keys = [text_key(str(seed), name) for name in ("rounds", "passes")]

    def at(self, epoch: int, positions: Integers) -> Integers:
        """Returns the numbers of the examples at some positions of an epoch."""
        of_rounds, of_passes = self._keys
        drawn = epoch * int(self._sizes.sum()) + positions
        number = len(self._sizes)
        which = _in_passes(np.full_like(drawn, number), number, of_rounds, drawn)
        keys = hash64(of_passes, which)
        place = _in_passes(
            self._sizes[which], int(self._sizes.max()), keys, drawn // number
        )
        place += (np.cumsum(self._sizes) - self._sizes)[which]
        run = np.searchsorted(self._ends, place, "right")
        return np.asarray(self._starts[run] + place - np.append(0, self._ends)[run])


def _in_passes(n: Integers, most: int, keys: Any, drawn: Integers) -> Integers:
    """Returns draw ``i`` of sequences that give all of 0..n[i]-1, then all again.

    Each pass has its own order, a swap-or-not shuffle as that of :class:`Permutation`.
    ``keys`` tell sequences apart, and ``most`` is the largest ``n`` of all of them.
    """
    passes, numbers = np.divmod(drawn, n)
    keys, size = hash64(keys, passes), n.astype(np.uint64)
    for r in range(_rounds(most)):
        k, bits = (hash64(keys, np.array([2 * r + part])) for part in range(2))
        _shuffle(numbers.view(np.uint64), size, [(k % size, bits)])
    return numbers


def _shuffle(x: Keys, n: Any, rounds: Sequence[tuple[Any, Any]]) -> None:
    """Replaces each number by the one that it becomes in all rounds.

    ``n`` and the rounds' numbers are of ``uint64``: single ones, or one for each of x.
    """
    partner, larger, spare = np.empty_like(x), np.empty_like(x), np.empty_like(x)
    decision = larger.view(np.int64)
    for k, bits in rounds:
        # Where k - x is negative, it wraps to a huge number, and k - x + n is less.
        np.subtract(k, x, out=partner)
        np.add(partner, n, out=spare)
        np.minimum(partner, spare, out=partner)
        np.maximum(x, partner, out=larger)
        # Two multiplications of SplitMix64's last step: the top bit depends on all.
        np.bitwise_xor(larger, bits, out=larger)
        np.multiply(larger, _FIRST, out=larger)
        np.right_shift(larger, _HALF, out=spare)
        np.bitwise_xor(larger, spare, out=larger)
        np.multiply(larger, _SECOND, out=larger)
        # The top bit as a mask of 64 equal bits: x ^ ((x ^ partner) & mask).
        np.right_shift(decision, 63, out=decision)
        np.bitwise_xor(partner, x, out=partner)
        np.bitwise_and(partner, larger, out=partner)
        np.bitwise_xor(x, partner, out=x)
