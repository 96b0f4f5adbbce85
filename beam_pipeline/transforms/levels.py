"""Scaling of windows, by a given gain or to a given level of each."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import FloatArray, as_float32, check_choice, real
from beam_pipeline.transforms.filters import pieces
from beam_pipeline.transforms.loudness import integrated_lufs
from beam_pipeline.transforms.quiet import quiet
from beam_pipeline.transforms.signals import rows

MAX_LEVEL_DB = 200.0

DoubleArray = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Gain:
    """Scales by a given gain, ``y = x * 10**(gain_db / 20)``.

    The shape does not change; the result is float32. Silence stays silence; nothing is
    clipped. The effect on a stream is the same.

    Attributes
    ----------
    gain_db : float
        dB, -200 to 200.

    Raises
    ------
    RecipeError
        If the gain is out of its range.

    Examples
    --------
    >>> Gain(gain_db=20)(np.array([[0.25, -0.5]], np.float32))
    array([[ 2.5, -5. ]], dtype=float32)
    """

    gain_db: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "gain_db", _level("gain_db", self.gain_db))

    @quiet
    def __call__(self, windows: FloatArray) -> FloatArray:
        return as_float32(windows) * np.float32(10 ** (self.gain_db / 20))

    def context(self, sample_rate_hz: int) -> int:
        """The number of frames that :meth:`on_stream` needs before a stretch: none."""
        return 0

    @quiet
    def on_stream(self, frames: FloatArray, sample_rate_hz: int) -> FloatArray:
        """Scales frames (rows, m)."""
        return self(frames)


@dataclass(frozen=True)
class PeakGain:
    """Scales each window so that its peak is at a level.

    ``y = x * 10**(level_db / 20) / max|x|``, with the maximum over all frames and
    channels of the window. Silence stays silence. A window that contains NaN or
    infinity gives NaN.

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
        object.__setattr__(self, "level_db", _level("level_db", self.level_db))

    @quiet
    def __call__(self, windows: FloatArray) -> FloatArray:
        return _scale_windows(windows, _peak, self.level_db)


@dataclass(frozen=True)
class RmsGain:
    """Scales each window so that its root mean square is at a level.

    ``y = x * 10**(level_db / 20) / sqrt(mean(x**2))``, with the mean over all frames
    and channels of the window. Silence stays silence; peaks may exceed full scale. A
    window that contains NaN or infinity gives NaN.

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
        object.__setattr__(self, "level_db", _level("level_db", self.level_db))

    @quiet
    def __call__(self, windows: FloatArray) -> FloatArray:
        return _scale_windows(windows, _rms, self.level_db)


@dataclass(frozen=True, kw_only=True)
class LufsGain:
    """Scales each window so that its integrated loudness is at a level.

    ``y = x * 10**((level_lufs - lufs(x)) / 20)``, with the loudness of
    ``loudness.Lufs`` over all channels. Silence and windows below the gate at -70 LUFS
    do not change; peaks may exceed full scale.

    Attributes
    ----------
    level_lufs : float
        LUFS, -200 to 200.

    Raises
    ------
    RecipeError
        If the level is out of its range; in a call, if the windows are shorter than
        400 ms, or the rate is below 4000 Hz.

    Examples
    --------
    >>> tone = np.sin(2 * np.pi * 997 / 48000 * np.arange(48000)).astype(np.float32)
    >>> abs(LufsGain()(tone[np.newaxis], 48000)).max().round(2)
    np.float32(0.1)
    """

    level_lufs: float = -23.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "level_lufs", _level("level_lufs", self.level_lufs))

    @quiet
    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> FloatArray:
        windows = as_float32(windows)
        lufs = integrated_lufs(windows, sample_rate_hz)
        out = np.empty(windows.shape, np.float32)
        for window, scaled, measured in zip(windows, out, lufs.tolist(), strict=True):
            gain_db = 0.0 if measured == -math.inf else self.level_lufs - measured
            np.multiply(window, np.float32(10 ** (gain_db / 20)), out=scaled)
        return out


@dataclass(frozen=True, kw_only=True)
class Normalize:
    """Brings the samples of each window to a common range.

    ::

        mean      y = x - mean(x)
        median    y = x - median(x)
        minmax    y = (x - min(x)) / (max(x) - min(x))
        standard  y = (x - mean(x)) / sqrt(mean((x - mean(x))**2))
        log       y = sign(x) * log(1 + |x|)

    Each channel of a window is normalized by itself. The shape does not change; the
    result is float32. ``mean`` removes an offset. Silence gives 0; so does any constant
    for all kinds except ``log``. A channel that contains NaN gives NaN for all kinds
    except ``log``; a channel that contains infinity, for all except ``log`` and
    ``median``.

    ``standard`` divides by the standard deviation of the population, as scikit-learn
    and ``scipy.stats.zscore`` do (largest difference found: 6e-8 of the largest value).

    Attributes
    ----------
    kind : str
        ``log``, ``mean``, ``median``, ``minmax`` or ``standard``.

    Raises
    ------
    RecipeError
        If the kind is unknown.

    Examples
    --------
    >>> Normalize(kind="minmax")(np.array([[1, 2, 5]], np.float32))
    array([[0.  , 0.25, 1.  ]], dtype=float32)
    """

    kind: str = "standard"

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, ("log", "mean", "median", "minmax", "standard"))

    @quiet
    def __call__(self, windows: FloatArray) -> FloatArray:
        windows = as_float32(windows)
        out = np.empty(windows.shape, np.float32)
        for row, result in rows(windows, out):
            if self.kind == "log":
                np.log1p(np.abs(row, out=result), out=result)
                np.copysign(result, row, out=result)
            else:
                offset, scale = _SCALES[self.kind](row)
                for piece in pieces(row):
                    # In float64: the difference may be far smaller than the offset.
                    part = np.subtract(row[piece], offset, dtype=np.float64)
                    result[piece] = np.multiply(part, 1 / (scale or 1.0), out=part)
        return out


def _mean(row: FloatArray) -> float:
    # Relative to the first sample, so that the mean of a constant is exact.
    first = float(row[0])
    return first + _sum(row, first, lambda part: part) / len(row)


def _deviation(row: FloatArray, mean: float) -> float:
    return math.sqrt(_sum(row, mean, np.square) / len(row))


def _sum(
    row: FloatArray, offset: float, function: Callable[[DoubleArray], DoubleArray]
) -> float:
    """The sum of ``function(row - offset)``, in fixed pieces."""
    sums = [
        float(function(np.subtract(row[piece], offset, dtype=np.float64)).sum())
        for piece in pieces(row)
    ]
    # math.fsum raises if there are infinities of both signs.
    return math.fsum(sums) if math.isfinite(sum(sums)) else math.nan


def _median(row: FloatArray) -> float:
    middle = (len(row) - 1) // 2, len(row) // 2
    if np.isnan(row.max()):  # np.partition sorts NaN to the end
        return math.nan
    ordered = np.partition(row, middle)
    return (float(ordered[middle[0]]) + float(ordered[middle[1]])) / 2


def _standard(row: FloatArray) -> tuple[float, float]:
    mean = _mean(row)
    return mean, _deviation(row, mean)


def _minmax(row: FloatArray) -> tuple[float, float]:
    low = float(row.min())
    return low, _finite(float(row.max()) - low)


# Kind -> the offset to subtract, and the divisor (0: do not divide).
_SCALES: dict[str, Callable[[FloatArray], tuple[float, float]]] = {
    "mean": lambda row: (_mean(row), 1.0),
    "median": lambda row: (_median(row), 1.0),
    "minmax": _minmax,
    "standard": _standard,
}


def _scale_windows(
    windows: FloatArray, measure: Callable[[FloatArray], float], level_db: float
) -> FloatArray:
    windows = as_float32(windows)
    level = 10 ** (level_db / 20)
    out = np.empty(windows.shape, np.float32)
    # Window by window: each stays in the cache, and sums round the same in any block.
    for window, scaled in zip(windows, out, strict=True):
        size = _finite(measure(window))
        # In float64, in which the factor of the faintest window is finite.
        ratio = np.divide(window, size if size != 0 else 1.0, dtype=np.float64)
        np.multiply(ratio, level, out=scaled, casting="same_kind")
    return out


def _finite(size: float) -> float:
    """The size, or NaN if it is infinite: dividing by infinity would give silence."""
    return size if math.isfinite(size) else math.nan


def _peak(window: FloatArray) -> float:
    return float(np.abs(window).max(initial=0))


def _rms(window: FloatArray) -> float:
    # The order of the squares in memory decides how their sum rounds.
    return math.sqrt(np.square(window, dtype=np.float64, order="C").mean())


def _level(field: str, value: Any) -> float:
    level = real(field, value)
    if abs(level) > MAX_LEVEL_DB:
        raise RecipeError(
            field, f"must be between -{MAX_LEVEL_DB:g} and {MAX_LEVEL_DB:g}", level
        )
    return level
