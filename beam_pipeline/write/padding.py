"""Leaves padding out of values: the zeros after the end of a clip, and their spectra.

::

    window     [ samples of the clip | zeros      ]   valid_frames samples, then zeros
    signal     [ kept                | left out   ]
    log_mel    [ kept                  | left out ]   a spectrum frame with any sample
                                                      of the clip is kept
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.examples.spec import FeatureSpec

Integers = npt.NDArray[np.int64]

# Times in seconds are rounded: less than this part of a frame later is the same frame.
_ROUNDED = 1e-6


def without_padding(
    values: Mapping[str, Any],
    specs: Mapping[str, FeatureSpec],
    valid: Integers,
    win_len: int,
    sample_rate_hz: int,
) -> Iterator[tuple[slice, Mapping[str, Any]]]:
    """Yields the values of some examples: of whole windows together, of others alone.

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
