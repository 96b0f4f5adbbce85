"""The order of the examples of one epoch, by arithmetic alone.

An order says which example is at each position, without a list of them all. So where an
epoch continues is one number.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import OptionError
from beam_pipeline.hashing import text_key
from beam_pipeline.permutation import Integers, Permutation
from beam_pipeline.read.sizes import SHUFFLE_BYTES

Shuffle = Literal["global", "shards", False]

STRETCH_BYTES = 4 << 20


class Order(Protocol):
    """An order of ``range(n)``."""

    @property
    def n(self) -> int: ...

    def at(self, positions: npt.ArrayLike) -> Integers:
        """Returns the examples at some positions."""
        ...


class OnDisk(NamedTuple):
    """The order on disk."""

    n: int

    def at(self, positions: npt.ArrayLike) -> Integers:
        return np.asarray(positions, np.int64)


class Pool(NamedTuple):
    """Stretches that are shuffled together.

    Attributes
    ----------
    first, size : int
        Its positions are ``first .. first + size - 1``.
    stretches : numpy.ndarray of int64
        The numbers of its stretches. One that is shorter than the others is the last.
    """

    first: int
    size: int
    stretches: Integers


class MixedStretches:
    """An order that reads long stretches, and shuffles within a pool of them.

    Stretch ``s`` holds the examples ``s * length .. (s + 1) * length - 1``; the last
    one may be shorter. The stretches are permuted, each ``pooled`` of them in this
    order are a pool, and the examples of a pool are permuted. So an example is mixed
    with those of ``pooled - 1`` other stretches from anywhere, and neighbours on disk
    are in the same pool.

    Parameters
    ----------
    n : int
    length : int
        Examples in a stretch.
    pooled : int
        Stretches in a pool.
    seed, epoch : int
    """

    def __init__(self, n: int, length: int, pooled: int, seed: int, epoch: int):
        self.n, self.length, self.pooled = n, length, pooled
        self._seed, self._epoch = seed, epoch
        count = -(-n // length)
        self._stretches = Permutation(count, seed, epoch)
        self._missing = count * length - n
        last = self._stretches.position_of([count - 1])[0] if count else 0
        self._pool_of_last = int(last) // pooled
        self._latest: tuple[int, Pool, Permutation] | None = None

    def pool_at(self, positions: Integers) -> Integers:
        """Returns the number of the pool that holds each position."""
        size = self.length * self.pooled
        is_after = positions >= (self._pool_of_last + 1) * size - self._missing
        return (positions + is_after * self._missing) // size

    def pool(self, number: int) -> Pool:
        """Returns where a pool is, and what it holds."""
        first = number * self.pooled
        stop = min(first + self.pooled, len(self._stretches))
        stretches = self._stretches.at(np.arange(first, stop))
        size = len(stretches) * self.length
        position = number * self.pooled * self.length
        if number == self._pool_of_last:
            size -= self._missing
            is_last = stretches == len(self._stretches) - 1
            stretches = np.concatenate((stretches[~is_last], stretches[is_last]))
        elif number > self._pool_of_last:
            position -= self._missing
        return Pool(position, size, stretches)

    def members(self, stretch: int) -> Integers:
        """Returns the examples of a stretch."""
        first = stretch * self.length
        return np.arange(first, min(first + self.length, self.n))

    def within(self, pool: int, positions: Integers) -> tuple[Integers, Integers]:
        """Returns, for positions of one pool, the stretch of each and the place in it.

        The stretch counts those of the pool.
        """
        at, order = self._pool_and_order(pool)
        places = order.at(positions - at.first)
        return places // self.length, places % self.length

    def _pool_and_order(self, number: int) -> tuple[Pool, Permutation]:
        if self._latest is None or self._latest[0] != number:
            pool = self.pool(number)
            # Each pool has an order of its own.
            seed = text_key(str(self._seed), f"pool {number}")
            order = Permutation(pool.size, seed, self._epoch)
            self._latest = number, pool, order
        return self._latest[1:]

    def at(self, positions: npt.ArrayLike) -> Integers:
        asked = np.asarray(positions, np.int64)
        if asked.size and not (asked.min() >= 0 and asked.max() < self.n):
            raise IndexError(f"a position is not in 0 .. {self.n - 1}")
        found = np.empty_like(asked)
        pools = self.pool_at(asked)
        for pool in np.unique(pools):
            here = pools == pool
            stretch, place = self.within(int(pool), asked[here])
            stretches = self._pool_and_order(int(pool))[0].stretches
            found[here] = stretches[stretch] * self.length + place
        return found


def make_order(n: int, shuffle: Shuffle, seed: int, epoch: int, size: int) -> Order:
    """Returns the order of an epoch.

    Parameters
    ----------
    n : int
        Number of examples.
    shuffle : "global", "shards" or False
    seed, epoch : int
    size : int
        Bytes of an example. Only ``"shards"`` needs it: a stretch is 4 MiB, a pool
        128 MiB.
    """
    if shuffle == "global":
        return Permutation(n, seed, epoch)
    if shuffle == "shards":
        return MixedStretches(n, stretch_length(size), POOLED, seed, epoch)
    return OnDisk(n)


POOLED = SHUFFLE_BYTES // STRETCH_BYTES


def stretch_length(size: int) -> int:
    """Returns the examples in a stretch, for examples of ``size`` bytes."""
    return max(STRETCH_BYTES // max(size, 1), 1)


def check_shuffle(shuffle: object) -> Shuffle:
    """Returns the value of ``shuffle``, or raises :class:`OptionError`."""
    if shuffle is False or shuffle is None:
        return False
    if shuffle == "global":
        return "global"
    if shuffle == "shards":
        return "shards"
    raise OptionError("shuffle", "must be 'global', 'shards' or False", shuffle)
