"""Statistics of one feature, gathered while it is written.

Quantiles come from a histogram over the upper 16 bits of the values as float32: their
sign, exponent and 7 bits of mantissa. A quantile is within a relative ``2**-8`` of the
value with its rank; it is zero if that value is below ``2**-133``. Everything else is
exact, except the squares and the sums within one block. These are float64, and are
taken of the distances from the block's mean if they would otherwise lose digits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.exact_numbers import moments, sums_of_distances
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.write.exact_sums import (
    Array,
    ExactSums,
    column_ranges,
    column_sums,
    lose_digits,
    packed,
    unpacked,
)
from beam_pipeline.write.histogram import BUCKETS, Histogram

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
MAX_BINS = 4096

State = Mapping[str, Any]

# Blocks with fewer than _SMALL values wait until there are _FULL values, because a pass
# over even the smallest array costs microseconds.
_SMALL, _FULL = 1 << 15, 1 << 16


class FeatureStatistics:
    """Statistics of one feature: of all its values, and of each bin if it has bins.

    Bins are the indices of the last axis, if the feature has axes and the last one is
    not time. Complex values enter with their magnitude. NaN and infinite values are
    counted, and left out of everything else.
    """

    def __init__(self, bins: int):
        self._bins = bins
        columns = max(bins, 1)
        self._count = 0
        self._clipped = 0
        self._left_out = np.zeros(columns, np.int64)
        self._sums = ExactSums(2 * columns)  # of the values, then of their squares
        self._min = np.full(columns, np.inf)
        self._max = np.full(columns, -np.inf)
        self._histogram = Histogram()
        self._queue: list[Array] = []
        self._queued = 0

    @classmethod
    def of(cls, spec: FeatureSpec) -> FeatureStatistics:
        """Returns empty statistics of a feature with this spec."""
        has_bins = bool(spec.axes) and spec.axes[-1].get("name") != "time"
        bins = spec.sizes[-1] if has_bins and spec.sizes else 0
        return cls(bins if bins <= MAX_BINS else 0)

    def add(self, values: Array) -> None:
        """Adds the feature's values for some windows, shape (n, ...)."""
        if values.dtype.kind == "c":
            values = np.abs(values)
        if values.size == 0:
            return
        fits = np.can_cast(values.dtype, np.float32)
        values = values.astype(np.float32 if fits else np.float64, copy=False)
        rows = np.ascontiguousarray(values).reshape(-1, len(self._min))
        if rows.size >= _SMALL:
            self._add_block(rows)
            return
        # A view in the queue would keep the whole clip in memory.
        self._queue.append(rows.copy())
        self._queued += rows.size
        if self._queued >= _FULL:
            self._flush()

    def add_clipped(self, count: int) -> None:
        """Counts values, added before or after, that the transform clipped."""
        self._clipped += count

    def _add_block(self, rows: Array) -> None:
        total = column_sums(rows)
        if np.isfinite(total).all():
            self._add_sums(rows, total)
            self._count += len(rows)
            self._widen(*column_ranges(rows))
            self._histogram.add(rows)
        else:
            self._add_with_gaps(rows)

    def _flush(self) -> None:
        """Adds the waiting blocks together; each has the same sums as by itself."""
        if not self._queue:
            return
        rows = np.concatenate(self._queue)
        ends = np.cumsum([len(block) for block in self._queue])
        exact = rows.astype(np.float64)
        starts = [0, *ends[:-1].tolist()]
        with np.errstate(over="ignore", invalid="ignore"):
            sums = [np.add.reduceat(exact, starts)]
            sums.append(np.add.reduceat(np.square(exact, out=exact), starts))
        both = np.concatenate(sums, axis=1)
        good = np.isfinite(both).all(axis=1)
        counts = np.array([len(block) for block in self._queue])
        lost = lose_digits(rows, sums[0], sums[1], counts[:, np.newaxis])
        near = good & lost.any(axis=1)
        for total in both[good & ~near]:
            self._sums.add(total)
        for block in np.flatnonzero(near).tolist():
            self._add_distances(self._queue[block])
        for block in np.flatnonzero(~good).tolist():
            self._add_with_gaps(self._queue[block])
        if not good.all():
            rows = rows[np.repeat(good, counts)]
        if len(rows):
            self._count += len(rows)
            self._widen(*column_ranges(rows))
            self._histogram.add(rows)
        self._queue.clear()
        self._queued = 0

    def _widen(self, least: Array, most: Array) -> None:
        np.minimum(self._min, least, out=self._min)
        np.maximum(self._max, most, out=self._max)

    def _add_with_gaps(self, rows: Array) -> None:
        finite = np.isfinite(rows)
        self._count += len(rows)
        self._left_out += (~finite).sum(axis=0)
        filled = np.where(finite, rows, 0)
        total = column_sums(filled)
        if np.isfinite(total).all():
            self._add_sums(filled, total, finite)
        else:
            self._add_one_by_one(filled)
        least, _ = column_ranges(np.where(finite, rows, np.inf))
        _, most = column_ranges(np.where(finite, rows, -np.inf))
        self._widen(least, most)
        self._histogram.add(rows[finite])

    def _add_sums(
        self, rows: Array, total: npt.NDArray[np.float64], finite: Array | None = None
    ) -> None:
        """Adds the sums of rows; values that are not ``finite`` must be zero."""
        sums, squares = total.reshape(2, -1)
        counts = np.array(len(rows)) if finite is None else finite.sum(axis=0)
        if lose_digits(rows, sums, squares, counts).any():
            self._add_distances(rows, finite)
        else:
            self._sums.add(total)

    def _add_distances(self, rows: Array, finite: Array | None = None) -> None:
        """Adds the sums of values that are near each other, and far from zero."""
        exact = rows.astype(np.float64)
        counts = np.full(rows.shape[1], len(rows))
        if finite is not None:
            counts = finite.sum(axis=0)
        middle = exact.sum(axis=0) / np.maximum(counts, 1)
        exact -= middle
        if finite is not None:
            exact[~finite] = 0
        first = exact.sum(axis=0)
        second = np.square(exact, out=exact).sum(axis=0)
        sums, squares = sums_of_distances(counts.tolist(), middle, first, second)
        self._sums.merge([*sums, *squares])

    def _add_one_by_one(self, rows: Array) -> None:
        """Adds row by row, because sums of a block overflow; squares are capped."""
        with np.errstate(over="ignore"):
            for row in rows.astype(np.float64):
                squares = np.minimum(row * row, np.finfo(np.float64).max)
                self._sums.add(np.concatenate([row, squares]))

    def state(self) -> dict[str, Any]:
        """Returns the statistics as JSON values; ``clipped`` only if it counts any."""
        self._flush()
        histogram = self._histogram.counts()
        used = np.flatnonzero(histogram)
        return {
            "bins": self._bins,
            "count": self._count,
            **({"clipped": self._clipped} if self._clipped else {}),
            "left_out": self._left_out.tolist(),
            "sums": [_without_zeros(n) for n in self._sums.totals()],
            "min": [None if math.isinf(x) else x for x in self._min.tolist()],
            "max": [None if math.isinf(x) else x for x in self._max.tolist()],
            "buckets": packed(used.astype("<u2")),
            "counts": packed(histogram[used].astype("<i8")),
        }

    @classmethod
    def from_state(cls, state: State) -> FeatureStatistics:
        """Returns the statistics that :meth:`state` described.

        Raises
        ------
        ValueError
            If the state is damaged.
        """
        made = cls(state["bins"])
        columns = len(made._min)
        for name in ("left_out", "min", "max"):
            if len(state[name]) != columns:
                raise ValueError(f"{name} has {len(state[name])} values, not {columns}")
        made._count = state["count"]
        made._clipped = state.get("clipped", 0)
        made._left_out = np.array(state["left_out"], np.int64)
        made._sums.merge(n << zeros for n, zeros in state["sums"])
        made._min = np.array([np.inf if x is None else x for x in state["min"]])
        made._max = np.array([-np.inf if x is None else x for x in state["max"]])
        histogram = np.zeros(BUCKETS, np.int64)
        used = unpacked(state["buckets"], "<u2", BUCKETS)
        histogram[used] = unpacked(state["counts"], "<i8", BUCKETS)
        made._histogram.merge(histogram)
        return made

    def merge(self, other: FeatureStatistics) -> None:
        """Adds other statistics."""
        other._flush()
        self._count += other._count
        self._clipped += other._clipped
        self._left_out += other._left_out
        self._sums.merge(other._sums.totals())
        self._widen(other._min, other._max)
        self._histogram.merge(other._histogram.counts())

    def to_json(self) -> dict[str, Any]:
        """Returns the statistics for the metadata; without values, only the counts."""
        self._flush()
        totals = self._sums.totals()
        sums, squares = totals[: len(self._min)], totals[len(self._min) :]
        left_out = self._left_out.tolist()
        counts = [self._count - n for n in left_out]
        all_values = max(self._count * len(counts), 1)
        described = moments(sum(counts), sum(sums), sum(squares))
        made: dict[str, Any] = {
            "count": sum(counts),
            "nonfinite_share": sum(left_out) / all_values,
            **({"clipped": self._clipped} if self._clipped else {}),
            **described,
        }
        if sum(counts) == 0:
            return made
        made["min"] = float(self._min.min())
        made["max"] = float(self._max.max())
        made["quantiles"] = {
            str(q): min(max(self._histogram.quantile(q), made["min"]), made["max"])
            for q in QUANTILES
        }
        if self._bins:
            columns = [
                moments(*column) for column in zip(counts, sums, squares, strict=True)
            ]
            made["bins"] = {
                "mean": [column["mean"] for column in columns],
                "std": [column["std"] for column in columns],
                "min": [None if math.isinf(x) else x for x in self._min.tolist()],
                "max": [None if math.isinf(x) else x for x in self._max.tolist()],
            }
        return made


def _without_zeros(number: int) -> list[int]:
    """Returns [n, zeros] with number = ``n << zeros``: about 20 digits, not 300."""
    zeros = (number & -number).bit_length() - 1 if number else 0
    return [number >> zeros, zeros]
