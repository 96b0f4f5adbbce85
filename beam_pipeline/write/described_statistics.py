"""Statistics from what the metadata say of them, for data sets without their state.

The metadata hold means, deviations and quantiles. Counts, sums and extremes follow from
them up to rounding. Between two quantiles, values are taken as evenly spread.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from beam_pipeline.exact_numbers import exact_units
from beam_pipeline.write.exact_sums import packed
from beam_pipeline.write.histogram import Histogram

# Where the values between two quantiles are taken to be.
_STEPS = 256


def described_state(
    statistics: Mapping[str, Any], windows: int, samples: int
) -> dict[str, Any]:
    """Returns the state of statistics that the metadata describe.

    Parameters
    ----------
    statistics : mapping
        As in the metadata of a split.
    windows, samples : int
        The windows of the split, and the samples in all of them.
    """
    signal = statistics["windows"]
    return {
        "windows": {
            "windows": windows,
            "silent": signal["silent_windows"],
            "clipped": signal["clipped_windows"],
            "samples": samples,
            "clipped_samples": round(signal["clipped_share"] * samples),
            "beyond": signal.get("samples_beyond", 0),
        },
        "features": {
            name: _feature_state(described)
            for name, described in statistics["features"].items()
        },
    }


def _feature_state(described: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the state of one feature; gaps count as spread evenly over its bins."""
    bins = described.get("bins", {})
    columns = max(len(bins.get("mean", ())), 1)
    count, share = described["count"], described["nonfinite_share"]
    left_out = round(count * share / (1 - share)) if share < 1 else 0
    each = (count + left_out) // columns
    means, deviations = (
        np.array(bins.get(key, [described[key]]), object) for key in ("mean", "std")
    )
    gaps = _spread(left_out, columns)
    finite = [each - gap for gap in gaps]
    sums = [_units(m or 0.0, n) for m, n in zip(means, finite, strict=True)]
    squares = [
        _units((m or 0.0) ** 2 + (s or 0.0) ** 2, n)
        for m, s, n in zip(means, deviations, finite, strict=True)
    ]
    histogram = _histogram(described)
    used = np.flatnonzero(histogram)
    return {
        "bins": columns if bins else 0,
        "count": each,
        "clipped": described.get("clipped", 0),
        "left_out": gaps,
        "sums": [[n, 0] for n in (*sums, *squares)],
        "min": bins.get("min", [described.get("min")]),
        "max": bins.get("max", [described.get("max")]),
        "buckets": packed(used.astype("<u2")),
        "counts": packed(histogram[used].astype("<i8")),
    }


def _spread(total: int, parts: int) -> list[int]:
    """Returns whole numbers, as equal as possible, with this sum."""
    return [(k + 1) * total // parts - k * total // parts for k in range(parts)]


def _units(value: float, count: int) -> int:
    return exact_units(np.array([value]))[0] * count


def _histogram(described: Mapping[str, Any]) -> Any:
    made = Histogram()
    if not described["count"]:
        return made.counts()
    ranks = [0.0, *map(float, described["quantiles"]), 1.0]
    knots = [described["min"], *described["quantiles"].values(), described["max"]]
    bounds = [round(rank * described["count"]) for rank in ranks]
    for k, (low, high) in enumerate(pairwise(knots)):
        values = np.linspace(low, high, _STEPS + 1)[1:].astype(np.float32)
        within = bounds[k + 1] - bounds[k]
        made.add(np.repeat(values, _spread(within, _STEPS)))
    return made.counts()
