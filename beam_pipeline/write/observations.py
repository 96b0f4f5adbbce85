"""Observations of examples while they are written, for the metadata.

Each shard has its own; their state is JSON values in the receipt of the shard. At the
end of a run they merge in the order of shards, so the metadata do not depend on who
wrote which shard, and when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.examples.format import ExampleFormat
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.plan.summary import TallyKey
from beam_pipeline.write.blocks import FeatureBlock, timed
from beam_pipeline.write.statistics import (
    DataStatistics,
    count_levels,
    describe_levels,
)

Seen = Mapping[str, Any]

# Times in seconds are rounded: less than this part of a frame later is the same frame.
_ROUNDED = 1e-6


@dataclass
class Observations:
    """Counts of left-out examples, and statistics of the others.

    Attributes
    ----------
    statistics : DataStatistics
    examples : int
        Number of the others.
    left_out : Counter
        Examples by split, class and sample rate.
    classes : Counter
        Examples by class of event and sample rate; empty if the recipe has no events.
    frames : Counter
        Frames of the examples that are not left out, by split, class and sample rate;
        empty unless each example is a whole clip.
    levels : Counter
        See :func:`beam_pipeline.write.statistics.count_levels`.
    """

    statistics: DataStatistics
    examples: int = 0
    left_out: Counter[TallyKey] = field(default_factory=Counter)
    classes: Counter[tuple[str, int]] = field(default_factory=Counter)
    frames: Counter[TallyKey] = field(default_factory=Counter)
    levels: Counter[tuple[str]] = field(default_factory=Counter)

    @classmethod
    def of(cls, example_format: ExampleFormat) -> Observations:
        """Returns empty observations of the features of a format."""
        features = example_format.features
        specs = [features.specs[name] for name in features.transforms]
        return cls(DataStatistics.of(specs))

    def add(self, block: FeatureBlock) -> None:
        """Adds the examples of a block."""
        clip = block.slot.clip
        left_out = block.slot.examples - len(block.starts)
        key = (clip.split, clip.label or "", clip.sample_rate_hz)
        self.examples += len(block.starts)
        if left_out:
            self.left_out[key] += left_out
        if block.slot.example_format.win_len is None:
            self.frames[key] += int(block.valid_frames.sum())
        if len(block.starts):
            self._add_values(block)
        rule = block.slot.example_format.features.events
        if rule is not None:
            for label, n in rule.counts(*timed(block)).items():
                self.classes[label, clip.sample_rate_hz] += n

    def _add_values(self, block: FeatureBlock) -> None:
        example_format = block.slot.example_format
        win_len, valid = example_format.win_len, block.valid_frames
        features, rate = example_format.features, block.slot.clip.sample_rate_hz
        self.statistics.add_clipped(block.clipped)
        if win_len is None or not features.marks_padding or valid.min() >= win_len:
            self._add_whole(block.values, block.windows)
            return
        parts = without_padding(block.values, features.specs, valid, win_len, rate)
        for rows, values in parts:
            self._add_whole(values, block.windows[rows, ..., : int(valid[rows.start])])

    def _add_whole(
        self, values: Mapping[str, Any], windows: npt.NDArray[np.float32]
    ) -> None:
        self.statistics.add(values)
        for name, n in count_levels(windows).items():
            self.levels[(name,)] += n

    def merge(self, other: Observations) -> None:
        """Adds the observations of other examples."""
        self.examples += other.examples
        self.statistics.merge(other.statistics)
        for name in _COUNTERS:
            getattr(self, name).update(getattr(other, name))

    def state(self) -> dict[str, Any]:
        """Returns the observations as JSON values."""
        counters = {name: sorted(getattr(self, name).items()) for name in _COUNTERS}
        statistics = self.statistics.state()
        return {"examples": self.examples, "statistics": statistics, **counters}

    @classmethod
    def from_state(cls, state: Seen) -> Observations:
        """Returns the observations that :meth:`state` described."""
        counters = {
            name: Counter({tuple(key): n for key, n in state[name]})
            for name in _COUNTERS
        }
        statistics = DataStatistics.from_state(state["statistics"])
        return cls(statistics, state["examples"], **counters)

    def to_json(self) -> dict[str, Any]:
        """Returns the statistics of features and of windows for the metadata."""
        levels = Counter({name: n for (name,), n in self.levels.items()})
        return {"windows": describe_levels(levels), **self.statistics.to_json()}


_COUNTERS = ("left_out", "classes", "frames", "levels")


def without_padding(
    values: Mapping[str, Any],
    specs: Mapping[str, FeatureSpec],
    valid: npt.NDArray[np.int64],
    win_len: int,
    sample_rate_hz: int,
) -> Iterator[tuple[slice, Mapping[str, Any]]]:
    """Yields values without padding: of whole windows together, of others alone.

    ::

        window     [ samples of the clip | zeros      ]   valid frames, then zeros
        signal     [ kept                | left out   ]
        log_mel    [ kept                  | left out ]   a spectrum frame with any
                                                          sample of the clip is kept

    Parameters
    ----------
    values : mapping
        By name, for each example a value; arrays of shape (n, ...), or lists.
    specs : mapping
        Features that are not in it have no padding. Nor has a feature whose values are
        not in the order of time: one number for a window, for example.
    valid : numpy.ndarray, shape (n,), int64
        The frames of each window before the padding.
    win_len : int
        The frames of a window.

    Yields
    ------
    rows : slice
        The examples.
    values : mapping
        Their values. Arrays whose axes have a time, or whose last axis has a value for
        each frame, end where the padding begins.
    """
    bounds = np.flatnonzero(np.diff(valid < win_len)) + 1
    first = 0
    for end in [*bounds.tolist(), len(valid)]:
        if first < end and valid[first] >= win_len:
            rows = slice(first, end)
            yield rows, {name: some[rows] for name, some in values.items()}
            first = end
        for k in range(first, end):
            rows, frames = slice(k, k + 1), int(valid[k])
            yield (
                rows,
                {
                    name: _cut(some[rows], specs.get(name), frames, win_len,
                               sample_rate_hz)
                    for name, some in values.items()
                },
            )  # fmt: skip
        first = end


def _cut(
    value: Any, spec: FeatureSpec | None, frames: int, win_len: int, rate_hz: int
) -> Any:
    if spec is None or not isinstance(value, np.ndarray) or value.ndim < 2:
        return value
    for k, axis in enumerate(spec.axes):
        if axis.get("name") == "time" and "step" in axis:
            at = value.ndim - len(spec.axes) + k
            starts = (axis["start"] + axis["step"] * np.arange(axis["size"])) * rate_hz
            count = int(np.count_nonzero(starts < frames - _ROUNDED))
            return value[(slice(None),) * at + (slice(count),)]
    if not spec.axes and value.shape[-1] == win_len:
        return value[..., :frames]
    return value
