"""Statistics of features and windows, gathered while they are written.

Statistics of parts of a data set merge in any order and grouping with exactly the same
result: sums are exact, counts are integers. So the bytes of the metadata do not depend
on the number of workers, and the receipt of a shard can hold its part.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.write.exact_sums import Array
from beam_pipeline.write.feature_statistics import FeatureStatistics, State

# Half of the smallest step of 16-bit PCM, and its largest sample.
SILENT_BELOW = 2.0**-16
CLIPPED_FROM = 1 - 2.0**-15
# Samples that files of floats, MP3, Vorbis and Opus have, and PCM has not.
BEYOND = "beyond"


class SignalStatistics:
    """Counts silent windows, clipped windows, and samples at full scale and beyond."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(
            ("windows", "silent", "clipped", "samples", "clipped_samples", BEYOND), 0
        )

    def add(self, windows: npt.NDArray[np.float32]) -> None:
        """Adds windows, shape (n, ...)."""
        if windows.size == 0:
            return
        axes = tuple(range(1, windows.ndim))
        peaks = np.maximum(windows.max(axis=axes), -windows.min(axis=axes))
        counts = self._counts
        counts["windows"] += len(windows)
        counts["samples"] += windows.size
        # fmin and fmax ignore NaN.
        if np.fmin.reduce(peaks) < SILENT_BELOW:
            counts["silent"] += int((peaks < SILENT_BELOW).sum())
        if np.fmax.reduce(peaks) >= CLIPPED_FROM:
            clipped = peaks >= CLIPPED_FROM
            counts["clipped"] += int(clipped.sum())
            magnitudes = np.abs(windows[clipped])
            counts["clipped_samples"] += int((magnitudes >= CLIPPED_FROM).sum())
            counts[BEYOND] += int((magnitudes > 1).sum())

    def state(self) -> dict[str, Any]:
        """Returns the statistics as JSON values; ``beyond`` only if it counts any."""
        return {n: count for n, count in self._counts.items() if count or n != BEYOND}

    @classmethod
    def from_state(cls, state: State) -> SignalStatistics:
        """Returns the statistics that :meth:`state` described."""
        made = cls()
        made._counts.update(state)
        return made

    def merge(self, other: SignalStatistics) -> None:
        """Adds other statistics."""
        for name, count in other._counts.items():
            self._counts[name] += count

    def to_json(self) -> dict[str, Any]:
        """Returns the statistics for the metadata."""
        counts = self._counts
        return {
            "silent_windows": counts["silent"],
            "clipped_windows": counts["clipped"],
            "clipped_share": counts["clipped_samples"] / max(counts["samples"], 1),
            **({"samples_beyond": counts[BEYOND]} if counts[BEYOND] else {}),
        }


class DataStatistics:
    """Statistics of every numeric feature, and of the windows if there are any."""

    def __init__(
        self,
        windows: SignalStatistics | None,
        features: Mapping[str, FeatureStatistics],
    ):
        self._windows = windows
        self._features = features

    @classmethod
    def of(
        cls, specs: Iterable[FeatureSpec], has_windows: bool = True
    ) -> DataStatistics:
        """Returns empty statistics of features with these specs."""
        specs = list(specs)
        shapes = {spec.shape_in for spec in specs}
        numeric = [s for s in specs if not (s.is_text or s.name in shapes)]
        features = {spec.name: FeatureStatistics.of(spec) for spec in numeric}
        return cls(SignalStatistics() if has_windows else None, features)

    def add(
        self,
        values: Mapping[str, Array | Sequence[Array | None]],
        windows: npt.NDArray[np.float32] | None = None,
        clipped: Mapping[str, int] | None = None,
    ) -> None:
        """Adds the features of some examples, and their windows.

        ``clipped`` has the number of values of a feature that its transform clipped. An
        array has the values of all examples. Of a feature without bins, there may be
        several arrays, of different shapes; None stands for a missing value.
        """
        if self._windows is not None and windows is not None:
            self._windows.add(windows)
        for name, statistics in self._features.items():
            of_all = values.get(name, ())
            if isinstance(of_all, np.ndarray):
                statistics.add(of_all)
            else:
                some = [np.ravel(array) for array in of_all if array is not None]
                if some:
                    statistics.add(np.concatenate(some)[:, np.newaxis])
        for name, count in (clipped or {}).items():
            self._features[name].add_clipped(count)

    def merge(self, other: DataStatistics) -> None:
        """Adds other statistics of the same features."""
        if self._windows is not None and other._windows is not None:
            self._windows.merge(other._windows)
        for name, statistics in self._features.items():
            statistics.merge(other._features[name])

    def state(self) -> dict[str, Any]:
        """Returns the statistics as JSON values."""
        return {
            "windows": None if self._windows is None else self._windows.state(),
            "features": {name: s.state() for name, s in self._features.items()},
        }

    @classmethod
    def from_state(cls, state: State) -> DataStatistics:
        """Returns the statistics that :meth:`state` described."""
        features = {
            name: FeatureStatistics.from_state(values)
            for name, values in state["features"].items()
        }
        windows = state["windows"]
        return cls(windows and SignalStatistics.from_state(windows), features)

    def to_json(self) -> dict[str, Any]:
        """Returns the statistics for the metadata."""
        return {
            **({"windows": self._windows.to_json()} if self._windows else {}),
            "features": {name: s.to_json() for name, s in self._features.items()},
        }
