"""Counts of float32 values by their upper 16 bits, from which quantiles follow."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

BUCKETS = 1 << 16
# Below it is the bucket of zero.
_LEAST_BUCKET = 2.0**-133


class Histogram:
    """Counts of float32 by the upper 16 bits: sign, exponent, 7 bits of mantissa."""

    def __init__(self) -> None:
        self._counts = np.zeros(BUCKETS, np.int64)

    def add(self, values: Array) -> None:
        """Counts values; what is beyond float32 is in its last buckets."""
        if values.dtype != np.float32:
            largest = np.finfo(np.float32).max
            values = np.clip(values, -largest, largest).astype(np.float32)
        upper = 1 if np.little_endian else 0
        buckets = np.ascontiguousarray(values).reshape(-1).view(np.uint16)[upper::2]
        # As fast as bincount, which makes all the buckets anew; indices of another type
        # are slower.
        np.add.at(self._counts, buckets.astype(np.intp), 1)

    def counts(self) -> npt.NDArray[np.int64]:
        """The count of each bucket."""
        return self._counts

    def merge(self, counts: npt.NDArray[np.int64]) -> None:
        """Adds the counts of another histogram."""
        self._counts += counts

    def quantile(self, q: float) -> float:
        """The middle of the bucket that holds the value of rank ``ceil(q * count)``."""
        negative = np.arange(BUCKETS - 1, BUCKETS // 2 - 1, -1)
        ascending = np.concatenate([negative, np.arange(BUCKETS // 2)])
        ranks = self.counts()[ascending].cumsum()
        rank = max(1, math.ceil(q * int(ranks[-1])))
        bucket = int(ascending[np.searchsorted(ranks, rank)])
        middle = float(np.array(bucket << 16 | 0x8000, np.uint32).view(np.float32))
        return 0.0 if abs(middle) < _LEAST_BUCKET else middle
