"""The order of the examples of one epoch, by arithmetic alone.

An order says which example is at each position, without a list of them all. So where an
epoch continues is one number.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import OptionError
from beam_pipeline.hashing import text_key
from beam_pipeline.permutation import Integers, Permutation
from beam_pipeline.read.sizes import SHUFFLE_BYTES

Shuffle = Literal["global", "shards", False]

STRETCH_BYTES = 4 << 20
POOLED = SHUFFLE_BYTES // STRETCH_BYTES


class OnDisk(NamedTuple):
    """The order on disk."""

    n: int

    def at(self, positions: npt.ArrayLike) -> Integers:
        return np.asarray(positions, np.int64)


class MixedStretches:
    """An order that reads long stretches, and shuffles within a pool of them.

    The examples are a circle, which each epoch cuts at another place into stretches of
    ``length`` neighbours; the last one may be shorter. The stretches are permuted, each
    ``pooled`` of them in this order are a pool, and the examples of a pool are
    permuted. So an example is mixed with those of ``pooled - 1`` other stretches from
    anywhere, and neighbours on disk are in the same pool.

    Parameters
    ----------
    n : int
    length : int
        Examples in a stretch.
    pooled : int
        Stretches in a pool.
    seed, epoch : int

    Attributes
    ----------
    pool_size : int
        Pool ``p`` has the positions from ``p * pool_size`` on.
    """

    def __init__(self, n: int, length: int, pooled: int, seed: int, epoch: int):
        self.n, self.length, self.pool_size = n, length, length * pooled
        self._seed, self._epoch = seed, epoch
        self._cut = text_key(str(seed), f"cut of epoch {epoch}") % max(n, 1)
        # A shorter stretch stays the last one.
        self._stretches = Permutation(n // length, seed, epoch)

    def at(self, positions: npt.ArrayLike) -> Integers:
        asked = np.asarray(positions, np.int64)
        found = np.empty_like(asked)
        pools = asked // self.pool_size
        for pool in np.unique(pools):
            here, first = pools == pool, int(pool) * self.pool_size
            size = min(self.pool_size, self.n - first)
            # Each pool has an order of its own.
            seed = text_key(str(self._seed), f"pool {pool}")
            order = Permutation(size, seed, self._epoch)
            found[here] = first + order.at(asked[here] - first)
        stretches = self._at_slots(found // self.length)
        example: Integers = stretches * self.length + found % self.length
        return (example + self._cut) % self.n

    def _at_slots(self, slots: Integers) -> Integers:
        stretches = slots.copy()
        is_whole = slots < len(self._stretches)
        stretches[is_whole] = self._stretches.at(slots[is_whole])
        return stretches

    def pool(self, number: int) -> list[int]:
        """Returns the numbers of the stretches of a pool."""
        first = number * self.pool_size
        stop = min(first + self.pool_size, self.n)
        slots = np.arange(first // self.length, -(-stop // self.length))
        stretches: list[int] = self._at_slots(slots).tolist()
        return stretches

    def members(self, stretch: int) -> Integers:
        """Returns the examples of a stretch."""
        first = stretch * self.length
        members: Integers = np.arange(first, min(first + self.length, self.n))
        return (members + self._cut) % self.n

    def places(self, examples: Integers) -> tuple[Integers, Integers]:
        """Returns the stretch of each example, and its place there."""
        stretches, places = divmod((examples - self._cut) % self.n, self.length)
        return stretches, places


Order = OnDisk | Permutation | MixedStretches


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
