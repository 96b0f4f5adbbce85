"""Which source each example of a mix is drawn from, by hashes of its number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt

from beam_pipeline.hashing import hash64, text_key

Ends = Literal["repeat", "stop", "leave"]

Integers = npt.NDArray[np.int64]

_BLOCK = 8192


class Draws:
    """The draws of a mix, for one of several trainers.

    Draw ``i`` is source ``s`` if the hash of ``(seed, epoch, i)``, as a number from 0
    to 1, is in its part of the sum of weights. Trainer ``k`` of ``count`` has the draws
    ``k``, ``k + count``, ...

    Parameters
    ----------
    weights : sequence of float
        Positive; only their ratios count.
    lengths : sequence of int
        How many examples each source has for this trainer.
    ends : "repeat", "stop" or "leave"
        What happens when a source has given its last example. ``"repeat"``: it begins
        its next epoch, and the draws never end. ``"stop"``: the draws end. ``"leave"``:
        the others share its weight, and the draws end with the last of them.
    seed : int
    shard : (int, int), optional
    """

    def __init__(
        self,
        weights: Sequence[float],
        lengths: Sequence[int],
        ends: Ends,
        seed: int,
        shard: tuple[int, int] | None = None,
    ):
        self.weights = np.array(weights, np.float64)
        self.lengths = np.array(lengths, np.int64)
        self.ends, self._seed = ends, seed
        self._index, self._count = shard or (0, 1)

    def take(self, epoch: int, drawn: int, taken: Integers, count: int) -> Integers:
        """Returns the sources of the next draws.

        Parameters
        ----------
        epoch : int
        drawn : int
            The number of draws before.
        taken : numpy.ndarray of int64, shape (sources,)
            How often each source was among them.
        count : int

        Returns
        -------
        numpy.ndarray of int64
            Of ``count`` sources, or fewer if the draws end.
        """
        key = text_key(str(self._seed), f"draws of epoch {epoch}")
        numbers = (np.arange(drawn, drawn + count)) * self._count + self._index
        # The upper 53 bits, as a float without rounding.
        values = (hash64(key, numbers) >> np.uint64(11)).astype(np.float64) * 2.0**-53
        if self.ends == "repeat":
            return self._sources(values, self.weights)
        found, left = [], self.lengths - taken
        while len(values) and self._goes_on(left):
            sources = self._sources(values, np.where(left > 0, self.weights, 0.0))
            stop = len(sources)
            for source in range(len(left)):
                places = np.flatnonzero(sources[:stop] == source)
                # The draw after a source's last example may have other weights.
                if left[source] and len(places) >= left[source]:
                    stop = int(places[left[source] - 1]) + 1
            found.append(sources[:stop])
            left = left - np.bincount(sources[:stop], minlength=len(left))
            values = values[stop:]
        return np.concatenate(found) if found else np.zeros(0, np.int64)

    def _goes_on(self, left: Integers) -> bool:
        return bool(left.all() if self.ends == "stop" else left.any())

    def _sources(
        self, values: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]
    ) -> Integers:
        ends = np.cumsum(weights)
        found = np.searchsorted(ends, values * ends[-1], "right")
        # A product may be rounded up to the sum of all weights.
        last = np.flatnonzero(weights)[-1]
        return np.asarray(np.minimum(found, last), np.int64)

    def all(self, epoch: int) -> Integers:
        """Returns the sources of all draws of an epoch, which must have an end."""
        found = [np.zeros(0, np.int64), *self._blocks(epoch)]
        return np.concatenate(found)

    def _blocks(self, epoch: int) -> Iterator[Integers]:
        drawn, taken = 0, np.zeros(len(self.lengths), np.int64)
        while len(sources := self.take(epoch, drawn, taken, _BLOCK)):
            yield sources
            drawn += len(sources)
            taken = taken + np.bincount(sources, minlength=len(taken))
