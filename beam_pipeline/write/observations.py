"""Observations of examples while they are written, for the metadata.

Each shard has its own; their state is JSON values in the receipt of the shard. At the
end of a run they merge in the order of shards, so the metadata do not depend on who
wrote which shard, and when.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.plan.summary import TallyKey
from beam_pipeline.write.blocks import FeatureBlock, timed
from beam_pipeline.write.statistics import DataStatistics

Seen = Mapping[str, Any]

# Times in seconds are rounded: less than this part of a frame later is the same frame.
_ROUNDED = 1e-6


class Observations:
    """Counts of left-out examples, and statistics of the others.

    Attributes
    ----------
    examples : int
        Number of the others.
    left_out : Counter
        Examples by split, class and sample rate.
    classes : Counter
        Examples by class of event and sample rate; empty if the recipe has no events.
    statistics : DataStatistics
    frames : Counter
        Frames of the examples that are not left out, by split, class and sample rate;
        empty unless each example is a whole clip.
    """

    def __init__(
        self,
        left_out: Mapping[TallyKey, int],
        classes: Mapping[tuple[str, int], int],
        statistics: DataStatistics,
        frames: Mapping[TallyKey, int] | None = None,
        examples: int = 0,
    ):
        self.examples = examples
        self.left_out = Counter(left_out)
        self.classes = Counter(classes)
        self.statistics = statistics
        self.frames = Counter(frames or {})

    @classmethod
    def of(cls, specs: Iterable[FeatureSpec]) -> Observations:
        """Returns empty observations of features with these specs."""
        return cls({}, {}, DataStatistics.of(specs))

    @classmethod
    def from_state(cls, state: Seen) -> Observations:
        """Returns the observations that :meth:`state` described."""
        left_out = {(s, label, r): n for s, label, r, n in state["left_out"]}
        classes = {(label, r): n for label, r, n in state["classes"]}
        frames = {(s, label, r): n for s, label, r, n in state.get("frames", ())}
        statistics = DataStatistics.from_state(state["statistics"])
        return cls(left_out, classes, statistics, frames, state["examples"])

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
        features = block.slot.example_format.features
        if len(block.starts):
            self._add_values(block, features.marks_padding)
        rule = features.events
        if rule is not None:
            for label, n in rule.counts(*timed(block)).items():
                self.classes[label, clip.sample_rate_hz] += n

    def _add_values(self, block: FeatureBlock, marks_padding: bool) -> None:
        example_format = block.slot.example_format
        win_len, valid = example_format.win_len, block.valid_frames
        if win_len is None or not marks_padding or valid.min() >= win_len:
            self.statistics.add(block.values, block.windows, block.clipped)
            return
        specs, rate = example_format.features.specs, block.slot.clip.sample_rate_hz
        parts = without_padding(block.values, specs, valid, win_len, rate)
        for rows, values in parts:
            until = int(valid[rows.start])
            self.statistics.add(values, block.windows[rows, ..., :until])
        self.statistics.add({}, clipped=block.clipped)

    def merge(self, other: Observations) -> None:
        """Adds the observations of other examples."""
        self.examples += other.examples
        self.left_out.update(other.left_out)
        self.classes.update(other.classes)
        self.frames.update(other.frames)
        self.statistics.merge(other.statistics)

    def state(self) -> dict[str, Any]:
        """Returns the observations as JSON values; ``frames`` only if there are any."""
        frames = [[*key, n] for key, n in sorted(self.frames.items())]
        return {
            "examples": self.examples,
            "left_out": [[*key, n] for key, n in sorted(self.left_out.items())],
            "classes": [[*key, n] for key, n in sorted(self.classes.items())],
            "statistics": self.statistics.state(),
            **({"frames": frames} if frames else {}),
        }


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
