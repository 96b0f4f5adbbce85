"""A histogram of float32 values by their upper 16 bits, for quantiles."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

BUCKETS = 1 << 16
# Smaller magnitudes are in the bucket of zero.
_LEAST_BUCKET = 2.0**-133


class Histogram:
    """Counts float32 by the upper 16 bits: sign, exponent, 7 bits of mantissa."""

    def __init__(self) -> None:
        self._counts = np.zeros(BUCKETS, np.int64)

    def add(self, values: Array) -> None:
        """Counts values; those beyond the range of float32 go to the last buckets."""
        if values.dtype != np.float32:
            largest = np.finfo(np.float32).max
            values = np.clip(values, -largest, largest).astype(np.float32)
        upper = 1 if np.little_endian else 0
        buckets = np.ascontiguousarray(values).reshape(-1).view(np.uint16)[upper::2]
        # As fast as bincount, which allocates all buckets; slower with other indices.
        np.add.at(self._counts, buckets.astype(np.intp), 1)

    def counts(self) -> npt.NDArray[np.int64]:
        """Returns the count of each bucket."""
        return self._counts

    def merge(self, counts: npt.NDArray[np.int64]) -> None:
        """Adds the counts of another histogram."""
        self._counts += counts

    def quantile(self, q: float) -> float:
        """Returns the middle of the bucket of the value of rank ``ceil(q * count)``."""
        negative = np.arange(BUCKETS - 1, BUCKETS // 2 - 1, -1)
        ascending = np.concatenate([negative, np.arange(BUCKETS // 2)])
        ranks = self.counts()[ascending].cumsum()
        rank = max(1, math.ceil(q * int(ranks[-1])))
        bucket = int(ascending[np.searchsorted(ranks, rank)])
        middle = float(np.array(bucket << 16 | 0x8000, np.uint32).view(np.float32))
        return 0.0 if abs(middle) < _LEAST_BUCKET else middle
