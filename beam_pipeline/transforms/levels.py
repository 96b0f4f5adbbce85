"""Levels: scaling each window so that a measure of it has a given value."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import FloatArray, as_float32, real

MAX_LEVEL_DB = 200.0


@dataclass(frozen=True)
class PeakGain:
    """Scales each window so that its peak is at a level.

    ``y = x * 10**(level_db / 20) / max|x|``, the maximum over all the window's frames
    and channels. Silence stays silence.

    Attributes
    ----------
    level_db : float
        dB relative to full scale, -200 to 200.

    Examples
    --------
    >>> PeakGain()(np.array([[0.1, -0.2], [0.0, 0.0]], np.float32))
    array([[ 0.5, -1. ],
           [ 0. ,  0. ]], dtype=float32)
    """

    level_db: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "level_db", _level(self.level_db))

    def __call__(self, windows: FloatArray) -> FloatArray:
        return _scale_windows(windows, _peak, self.level_db)


@dataclass(frozen=True)
class RmsGain:
    """Scales each window so that its root mean square is at a level.

    ``y = x * 10**(level_db / 20) / sqrt(mean(x**2))``, the mean over all the window's
    frames and channels. Silence stays silence; peaks may exceed full scale.

    Attributes
    ----------
    level_db : float
        dB relative to an RMS of 1, -200 to 200.

    Examples
    --------
    >>> RmsGain(level_db=0)(np.array([[0.25, -0.25]], np.float32))
    array([[ 1., -1.]], dtype=float32)
    """

    level_db: float = -20.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "level_db", _level(self.level_db))

    def __call__(self, windows: FloatArray) -> FloatArray:
        return _scale_windows(windows, _rms, self.level_db)


def _scale_windows(
    windows: FloatArray, measure: Callable[[FloatArray], float], level_db: float
) -> FloatArray:
    windows = as_float32(windows)
    level = 10 ** (level_db / 20)
    out = np.empty(windows.shape, np.float32)
    # One by one: in the cache, and a sum's rounding cannot depend on the neighbours.
    for window, scaled in zip(windows, out, strict=True):
        size = measure(window)
        # In float64, where the factor of the faintest window is still finite.
        ratio = np.divide(window, size if size != 0 else 1.0, dtype=np.float64)
        np.multiply(ratio, level, out=scaled, casting="same_kind")
    return out


def _peak(window: FloatArray) -> float:
    return float(np.abs(window).max(initial=0))


def _rms(window: FloatArray) -> float:
    # The order of the squares in memory decides how their sum is rounded.
    return math.sqrt(np.square(window, dtype=np.float64, order="C").mean())


def _level(value: Any) -> float:
    level = real("level_db", value)
    if abs(level) > MAX_LEVEL_DB:
        raise RecipeError(
            "level_db", f"must lie within {MAX_LEVEL_DB:g} dB of full scale", level
        )
    return level
