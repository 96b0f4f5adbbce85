"""Statistics of features, gathered while they are written.

::

    a shard's blocks     b0   b1   b2 ..    each: count, mean, M2, min, max, histogram
    the shard's receipt  (b0 + b1) + b2 ..  exact floats
    the split            shard 0 + shard 1 + ..

M2 is the sum of the squared distances from the mean. Both folds go from left to right,
so the same layout of shards gives the same bytes, whoever wrote them and when.

Quantiles come from a histogram over the upper 16 bits of the values as float32: their
sign, exponent and 7 bits of mantissa. A quantile is within a relative ``2**-8`` of the
value with its rank; it is zero if that value is below ``2**-133``.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np

from beam_pipeline.arrays import Array, DoubleArray, FloatArray, Integers
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.storage.tfrecord import pack_columns, unpack_columns

State = Mapping[str, Any]

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)
MAX_BINS = 4096
BUCKETS = 1 << 16
# Smaller magnitudes are in the bucket of zero.
_LEAST_BUCKET = 2.0**-133
# Larger magnitudes count as infinite, so that no sum of squares overflows.
LARGEST = 2.0**480

# Half of the smallest step of 16-bit PCM, and its largest sample.
SILENT_BELOW = 2.0**-16
CLIPPED_FROM = 1 - 2.0**-15
# Samples that files of floats, MP3, Vorbis and Opus have, and PCM has not.
BEYOND = "beyond"

# Blocks with fewer than _SMALL values wait until there are _FULL values, because a pass
# over even the smallest array costs microseconds.
_SMALL, _FULL = 1 << 15, 1 << 16
# The columns of a reduction, because narrow arrays are much slower to reduce; and its
# values, whose float64 copy stays in the cache.
_WIDE = 1024
_CACHED = 1 << 16
# A smaller share of M2 in the sum of squares would lose more than 10 of 52 bits.
_LEAST_SPREAD = 2.0**-10


class Columns(NamedTuple):
    """Count, mean, M2, minimum and maximum of columns, each of shape (columns,).

    Without values, the minimum is infinite and the maximum -infinite.
    """

    counts: Integers
    means: DoubleArray
    m2: DoubleArray
    least: DoubleArray
    most: DoubleArray

    @classmethod
    def of_nothing(cls, columns: int) -> Columns:
        """Returns columns without values."""
        zeros, infinite = np.zeros(columns), np.full(columns, np.inf)
        return cls(np.zeros(columns, np.int64), zeros, zeros, infinite, -infinite)

    def merged(self, other: Columns) -> Columns:
        """Returns the columns of both values (Chan, Golub and LeVeque, 1983)."""
        counts = self.counts + other.counts
        share = other.counts / np.maximum(counts, 1)
        distance = other.means - self.means
        added = other.m2 + distance * distance * self.counts * share
        return Columns(
            counts,
            self.means + distance * share,
            self.m2 + added,
            np.minimum(self.least, other.least),
            np.maximum(self.most, other.most),
        )

    def of_all(self) -> Columns:
        """Returns all columns together, as one column."""
        count = int(self.counts.sum())
        mean = math.fsum(self.counts * self.means) / max(count, 1)
        distance = self.means - mean
        m2 = math.fsum(self.m2 + self.counts * distance * distance)
        found = count, mean, m2, self.least.min(), self.most.max()
        return Columns(*(np.array([value]) for value in found))

    @property
    def deviations(self) -> DoubleArray:
        """The standard deviations of the populations."""
        deviations: DoubleArray = np.sqrt(self.m2 / np.maximum(self.counts, 1))
        return deviations

    def to_json(self) -> dict[str, list[Any]]:
        """Returns the columns, and their standard deviations; null without values."""
        described = {
            "mean": self.means,
            "m2": self.m2,
            "std": self.deviations,
            "min": self.least,
            "max": self.most,
        }
        nothing: Any = None
        return {"count": self.counts.tolist()} | {
            name: np.where(self.counts > 0, column, nothing).tolist()
            for name, column in described.items()
        }


def _moments(rows: Array, finite: Array | None) -> tuple[Any, DoubleArray, DoubleArray]:
    """Returns count, mean and M2 of columns; ``finite`` says which values count."""
    if finite is None:
        sums, squares = _column_sums(rows)
        means = sums / len(rows)
        m2 = squares - sums * means
        if (m2 >= _LEAST_SPREAD * squares).all():
            return np.full(len(means), len(rows)), means, m2
        finite = np.ones((1, 1), bool)  # in two passes
    counts = np.broadcast_to(finite, rows.shape).sum(axis=0)
    divisors = np.maximum(counts, 1)
    distances = np.where(finite, rows, 0).astype(np.float64)
    means = distances.sum(axis=0) / divisors
    distances -= means
    distances *= finite
    rest = distances.sum(axis=0)
    m2 = np.square(distances, out=distances).sum(axis=0) - rest * rest / divisors
    return counts, means + rest / divisors, np.maximum(m2, 0)


def mean_and_deviation(
    several: Sequence[Mapping[str, Any]],
) -> tuple[DoubleArray, DoubleArray]:
    """Returns mean and standard deviation of a feature in several splits together.

    They are arrays, for its bins, if it has bins. ``several`` are its statistics in the
    metadata, in the order in which they are merged. What has no values has NaN.
    """
    filled = [each.get("bins", each) for each in several if each["count"]]
    if not filled:
        return np.array(np.nan), np.array(np.nan)
    columns = reduce(Columns.merged, map(_columns_of, filled))
    shape = np.shape(filled[0]["mean"])
    mean, deviation = (
        np.where(columns.counts, found, np.nan).reshape(shape)
        for found in (columns.means, columns.deviations)
    )
    return mean, deviation


def _columns_of(described: Mapping[str, Any]) -> Columns:
    """Returns columns from :meth:`Columns.to_json`, or one from a whole feature's."""
    counts = np.atleast_1d(np.array(described["count"], np.int64))
    named = (np.array(described[n], np.float64) for n in ("mean", "m2", "min", "max"))
    return Columns(counts, *(np.where(counts, column, 0.0) for column in named))


def _column_sums(rows: Array) -> tuple[DoubleArray, DoubleArray]:
    """Returns the sums of the columns, and the sums of their squares."""
    columns = rows.shape[1]
    wide, rest = _side_by_side(rows)
    step = -(-_CACHED // wide.shape[1])
    sums = np.zeros((2, wide.shape[1]))
    for at in range(0, len(wide), step):
        exact = wide[at : at + step].astype(np.float64)
        sums[0] += exact.sum(axis=0)
        sums[1] += np.square(exact, out=exact).sum(axis=0)
    total: DoubleArray = sums.reshape(2, -1, columns).sum(axis=1)
    if len(rest):
        exact = rest.astype(np.float64)
        total += exact.sum(axis=0), np.square(exact, out=exact).sum(axis=0)
    return total[0], total[1]


def _column_ranges(rows: Array) -> tuple[Array, Array]:
    """Returns the minima and the maxima of the columns; NaN if one is NaN."""
    columns = rows.shape[1]
    wide, rest = _side_by_side(rows)
    least, most = wide.min(axis=0), wide.max(axis=0)
    least, most = least.reshape(-1, columns), most.reshape(-1, columns)
    if len(rest):
        least, most = np.concatenate([least, rest]), np.concatenate([most, rest])
    return least.min(axis=0), most.max(axis=0)


def _side_by_side(rows: Array) -> tuple[Array, Array]:
    """Returns fewer, wider rows, each of several rows, and the rows that remain."""
    count, columns = rows.shape
    several = max(1, min(_WIDE // columns, math.isqrt(count)))
    whole = count // several * several
    return rows[:whole].reshape(-1, several * columns), rows[whole:]


def count_buckets(counts: Integers, values: Array) -> None:
    """Adds values to the counts of their upper 16 bits, shape (BUCKETS,).

    Those beyond the range of float32 go to the last buckets.
    """
    if values.dtype != np.float32:
        largest = np.finfo(np.float32).max
        values = np.clip(values, -largest, largest).astype(np.float32)
    upper = 1 if np.little_endian else 0
    buckets = np.ascontiguousarray(values).reshape(-1).view(np.uint16)[upper::2]
    # As fast as bincount, which allocates all buckets; slower with other indices.
    np.add.at(counts, buckets.astype(np.intp), 1)


def quantile(counts: Integers, q: float) -> float:
    """Returns the middle of the bucket of the value of rank ``ceil(q * count)``."""
    negative = np.arange(BUCKETS - 1, BUCKETS // 2 - 1, -1)
    ascending = np.concatenate([negative, np.arange(BUCKETS // 2)])
    ranks = counts[ascending].cumsum()
    rank = max(1, math.ceil(q * int(ranks[-1])))
    bucket = int(ascending[np.searchsorted(ranks, rank)])
    middle = float(np.array(bucket << 16 | 0x8000, np.uint32).view(np.float32))
    return 0.0 if abs(middle) < _LEAST_BUCKET else middle


class FeatureStatistics:
    """Statistics of one feature: of all its values, and of each bin if it has bins.

    Bins are the indices of the last axis, if the feature has axes and the last one is
    not time. Complex values enter with their magnitude. NaN and infinite values are
    counted, and left out of everything else.

    Attributes
    ----------
    clipped : int
        How many values the transform clipped.
    """

    def __init__(self, bins: int):
        self.clipped = 0
        self._bins = bins
        self._values = 0
        self._columns = Columns.of_nothing(max(bins, 1))
        self._buckets = np.zeros(BUCKETS, np.int64)
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
        rows = np.ascontiguousarray(values).reshape(-1, max(self._bins, 1))
        if rows.size >= _SMALL:
            self._add_block(rows)
            return
        # A view in the queue would keep the whole clip in memory.
        self._queue.append(rows.copy())
        self._queued += rows.size
        if self._queued >= _FULL:
            self._flush()

    def _flush(self) -> None:
        """Adds the waiting blocks as one."""
        if self._queue:
            rows = np.concatenate(self._queue)
            self._queue, self._queued = [], 0
            self._add_block(rows)

    def _add_block(self, rows: Array) -> None:
        least, most = _column_ranges(rows)
        limit, finite = min(LARGEST, float(np.finfo(rows.dtype).max)), None
        if not (least.min() >= -limit and most.max() <= limit):  # true for NaN
            finite = np.abs(rows) <= limit
            least = np.where(finite, rows, np.inf).min(axis=0)
            most = np.where(finite, rows, -np.inf).max(axis=0)
        self._values += rows.size
        block = Columns(*_moments(rows, finite), least, most)
        self._columns = self._columns.merged(block)
        count_buckets(self._buckets, rows if finite is None else rows[finite])

    def state(self) -> dict[str, Any]:
        """Returns the statistics as JSON values, exactly."""
        self._flush()
        used = np.flatnonzero(self._buckets)
        return {
            "bins": self._bins,
            "values": self._values,
            "clipped": self.clipped,
            "columns": [column.tolist() for column in self._columns],
            "histogram": pack_columns([used, self._buckets[used]]),
        }

    @classmethod
    def from_state(cls, state: State) -> FeatureStatistics:
        """Returns the statistics that :meth:`state` described."""
        made = cls(state["bins"])
        made._values, made.clipped = state["values"], state["clipped"]
        made._columns = Columns(*map(np.array, state["columns"]))
        used, counts = unpack_columns(state["histogram"], 2)
        made._buckets[used] = counts
        return made

    def merge(self, other: FeatureStatistics) -> None:
        """Adds statistics of other values; which were added before decides rounding."""
        self._flush()
        other._flush()
        self._values += other._values
        self.clipped += other.clipped
        self._columns = self._columns.merged(other._columns)
        self._buckets += other._buckets

    def to_json(self) -> dict[str, Any]:
        """Returns the statistics for the metadata; without values, only the counts."""
        self._flush()
        whole = {name: of[0] for name, of in self._columns.of_all().to_json().items()}
        count, least, most = (whole.pop(name) for name in ("count", "min", "max"))
        made: dict[str, Any] = {
            "count": count,
            "nonfinite_share": (self._values - count) / max(self._values, 1),
            **({"clipped": self.clipped} if self.clipped else {}),
            **whole,
        }
        if count == 0:
            return made
        made |= {"min": least, "max": most}
        made["quantiles"] = {
            str(q): min(max(quantile(self._buckets, q), least), most) for q in QUANTILES
        }
        if self._bins:
            made["bins"] = self._columns.to_json()
        return made


def count_levels(windows: FloatArray) -> Counter[str]:
    """Counts windows that are silent or clipped, and samples at full scale and beyond.

    Parameters
    ----------
    windows : numpy.ndarray, shape (n, ...), float32
    """
    if windows.size == 0:
        return Counter()
    axes = tuple(range(1, windows.ndim))
    peaks = np.maximum(windows.max(axis=axes), -windows.min(axis=axes))
    found = Counter(samples=windows.size)
    # fmin and fmax ignore NaN.
    if np.fmin.reduce(peaks) < SILENT_BELOW:
        found["silent"] = int((peaks < SILENT_BELOW).sum())
    if np.fmax.reduce(peaks) >= CLIPPED_FROM:
        clipped = peaks >= CLIPPED_FROM
        found["clipped"] = int(clipped.sum())
        magnitudes = np.abs(windows[clipped])
        found["clipped_samples"] = int((magnitudes >= CLIPPED_FROM).sum())
        found[BEYOND] = int((magnitudes > 1).sum())
    return found


def describe_levels(counts: Counter[str]) -> dict[str, Any]:
    """Returns the counts of :func:`count_levels` for the metadata."""
    return {
        "silent_windows": counts["silent"],
        "clipped_windows": counts["clipped"],
        "clipped_share": counts["clipped_samples"] / max(counts["samples"], 1),
        **({"samples_beyond": counts[BEYOND]} if counts[BEYOND] else {}),
    }


class DataStatistics:
    """Statistics of every numeric feature, by its name."""

    def __init__(self, features: Mapping[str, FeatureStatistics]):
        self._features = features

    @classmethod
    def of(cls, specs: Iterable[FeatureSpec]) -> DataStatistics:
        """Returns empty statistics of features with these specs."""
        specs = list(specs)
        shapes = {spec.shape_in for spec in specs}
        numeric = [s for s in specs if not (s.is_text or s.name in shapes)]
        return cls({spec.name: FeatureStatistics.of(spec) for spec in numeric})

    def add(self, values: Mapping[str, Array | Sequence[Array | None]]) -> None:
        """Adds the features of some examples.

        An array has the values of all examples. Of a feature without bins, there may be
        several arrays, of different shapes; None stands for a missing value.
        """
        for name, statistics in self._features.items():
            of_all = values.get(name, ())
            if isinstance(of_all, np.ndarray):
                statistics.add(of_all)
            else:
                some = [np.ravel(array) for array in of_all if array is not None]
                if some:
                    statistics.add(np.concatenate(some)[:, np.newaxis])

    def add_clipped(self, clipped: Mapping[str, int]) -> None:
        """Counts values, added before or after, that transforms clipped."""
        for name, count in clipped.items():
            self._features[name].clipped += count

    def merge(self, other: DataStatistics) -> None:
        """Adds other statistics of the same features."""
        for name, statistics in self._features.items():
            statistics.merge(other._features[name])

    def state(self) -> dict[str, Any]:
        """Returns the statistics as JSON values."""
        return {name: s.state() for name, s in self._features.items()}

    @classmethod
    def from_state(cls, state: State) -> DataStatistics:
        """Returns the statistics that :meth:`state` described."""
        return cls({n: FeatureStatistics.from_state(s) for n, s in state.items()})

    def to_json(self) -> dict[str, Any]:
        """Returns the statistics for the metadata."""
        return {"features": {name: s.to_json() for name, s in self._features.items()}}
