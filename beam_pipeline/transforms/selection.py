"""Selections: which windows are kept.

A selection decides about each window by itself, so the other windows of a block do not
matter. It computes levels in float64 from fixed pieces, so rounding is the same in any
block.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import FloatArray, as_float32, real, whole
from beam_pipeline.transforms.quiet import quiet

BoolArray = npt.NDArray[np.bool_]

MAX_LEVEL_DB = 200.0

# Samples that are squared together; their float64 squares stay in the cache.
_PIECE = 2**16


class Selection(Protocol):
    """``selection.keep(windows, sample_rate_hz)`` returns which windows are kept.

    ``windows`` is read-only float32 of shape (n, frames) or (n, channels, frames); the
    result is boolean of shape (n,). Each result may depend only on its own window.
    Recipes can name frozen dataclasses at the top level of a module.
    """

    def keep(self, windows: FloatArray, sample_rate_hz: int) -> BoolArray: ...


@dataclass(frozen=True, kw_only=True)
class Energy:
    """Keeps a window whose root mean square is at a level, or above.

    ``10 log10(mean(x**2)) >= above_db``, with the mean over all frames and channels of
    the window. 0 dB is an RMS of 1, so a full-scale sine is at -3.01 dB. Silence and
    windows that contain NaN are left out at any level.

    Attributes
    ----------
    above_db : float
        dB relative to an RMS of 1, -200 to 200.

    Raises
    ------
    RecipeError
        If the level is out of its range.

    Examples
    --------
    >>> Energy().keep(np.array([[0.1, -0.1], [0, 0]], np.float32), 16000)
    array([ True, False])
    """

    above_db: float = -60.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "above_db", level(self.above_db))

    def keep(self, windows: FloatArray, sample_rate_hz: int) -> BoolArray:
        least = 10 ** (self.above_db / 10)
        return _each(windows, lambda window: mean_square(window) >= least)


@dataclass(frozen=True, kw_only=True)
class AcEnergy:
    """Keeps a window whose root mean square without its offset is at a level, or above.

    ``10 log10(mean((x - m)**2)) >= above_db``, where ``m`` is the mean of each channel
    in the window, its DC offset, and the outer mean is over all frames and channels.
    Recorders with an offset of 0.03 are never below -30.5 dB for ``energy``. Silence,
    constant windows and windows that contain NaN or infinity are left out at any level.

    Attributes
    ----------
    above_db : float
        dB relative to an RMS of 1, -200 to 200.

    Raises
    ------
    RecipeError
        If the level is out of its range.

    Examples
    --------
    >>> windows = np.array([[0.13, -0.07], [0.03, 0.03]], np.float32)
    >>> AcEnergy().keep(windows, 16000)
    array([ True, False])
    """

    above_db: float = -60.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "above_db", level(self.above_db))

    def keep(self, windows: FloatArray, sample_rate_hz: int) -> BoolArray:
        least = 10 ** (self.above_db / 10)
        return _each(windows, lambda window: variance(window) >= least)


@dataclass(frozen=True, kw_only=True)
class Peak:
    """Keeps a window whose peak is at a level, or above.

    ``20 log10(max|x|) >= above_db``, with the maximum over all frames and channels of
    the window. Silence and windows that contain NaN are left out at any level.

    Attributes
    ----------
    above_db : float
        dB relative to full scale, which is 1; -200 to 200.

    Raises
    ------
    RecipeError
        If the level is out of its range.

    Examples
    --------
    >>> Peak(above_db=-6).keep(np.array([[0.1, -0.6], [0.1, 0.2]], np.float32), 16000)
    array([ True, False])
    """

    above_db: float = -40.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "above_db", level(self.above_db))

    def keep(self, windows: FloatArray, sample_rate_hz: int) -> BoolArray:
        least = 10 ** (self.above_db / 20)
        return _each(
            windows,
            lambda window: max(float(window.max()), -float(window.min())) >= least,
        )


@dataclass(frozen=True, kw_only=True)
class Active:
    """Keeps a window that is above a level for a share of its time.

    The window is cut into adjacent frames. A frame is active if
    ``10 log10(mean(x**2)) >= above_db``, with the mean over its samples in all
    channels. The window is kept if ``active / frames >= share``. Samples after the last
    whole frame are ignored. Silence is left out at any level; a frame that contains NaN
    is not active.

    Attributes
    ----------
    above_db : float
        dB relative to an RMS of 1, -200 to 200.
    share : float
        Above 0, at most 1.
    frame : int
        Length of a frame, in frames of the signal.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if a frame is longer than the window.

    Examples
    --------
    >>> window = np.array([[0.1, 0.1, 0, 0, 0, 0, 0, 0]], np.float32)
    >>> Active(share=0.25, frame=2).keep(window, 16000)
    array([ True])
    >>> Active(share=0.26, frame=2).keep(window, 16000)
    array([False])
    """

    above_db: float = -50.0
    share: float = 0.1
    frame: int = 512

    def __post_init__(self) -> None:
        object.__setattr__(self, "above_db", level(self.above_db))
        object.__setattr__(self, "share", real("share", self.share))
        object.__setattr__(self, "frame", whole("frame", self.frame))
        if not 0 < self.share <= 1:
            raise RecipeError("share", "must be above 0 and at most 1", self.share)

    def keep(self, windows: FloatArray, sample_rate_hz: int) -> BoolArray:
        frames = windows.shape[-1]
        if self.frame > frames:
            raise RecipeError(
                "frame", f"must not exceed the window's {frames} frames", self.frame
            )
        return _each(windows, self._keep_one)

    def _keep_one(self, window: FloatArray) -> bool:
        powers = frame_powers(window, self.frame)
        active = powers >= 10 ** (self.above_db / 10)
        # Divide, do not multiply: 7 / 100 rounds to the same number as the text 0.07,
        # but 0.07 * 100 is more than 7.
        return int(np.count_nonzero(active)) / len(active) >= self.share


SELECTIONS: dict[str, type[Any]] = {
    "ac_energy": AcEnergy,
    "active": Active,
    "energy": Energy,
    "peak": Peak,
}


def frame_powers(window: FloatArray, frame: int) -> npt.NDArray[np.float64]:
    """Mean square of each whole frame, over its samples in all channels, in float64.

    Parameters
    ----------
    window : numpy.ndarray, shape (n,) or (channels, n), float32
    frame : int
        The length of a frame. Samples after the last whole frame are ignored.

    Returns
    -------
    numpy.ndarray, shape (n // frame,), float64
    """
    channels = np.atleast_2d(window)
    count = window.shape[-1] // frame
    several = max(1, _PIECE // frame)
    powers = np.zeros(count)
    for channel in channels:
        for first in range(0, count, several):
            last = min(first + several, count)
            framed = channel[first * frame : last * frame]
            squares = np.square(framed, dtype=np.float64)
            powers[first:last] += squares.reshape(-1, frame).sum(axis=1)
    powers /= frame * len(channels)
    return powers


def mean_square(window: FloatArray) -> float:
    """Mean of the squares of a window's samples, in float64.

    The sum goes channel by channel, in pieces of a fixed length: the order of a sum
    decides how it is rounded.
    """
    total = sum(
        float(np.square(piece, dtype=np.float64).sum())
        for channel in window.reshape(-1, window.shape[-1])
        for piece in _pieces(channel)
    )
    return total / window.size


@quiet
def variance(window: FloatArray) -> float:
    """Mean of the squared distances of samples from their channel's mean, in float64.

    The sums have the order of :func:`mean_square`.
    """
    total = 0.0
    for channel in window.reshape(-1, window.shape[-1]):
        sums = (float(piece.sum(dtype=np.float64)) for piece in _pieces(channel))
        mean = sum(sums) / len(channel)
        for piece in _pieces(channel):
            total += float(np.square(piece.astype(np.float64) - mean).sum())
    return total / window.size


def _pieces(channel: FloatArray) -> Iterator[FloatArray]:
    for start in range(0, len(channel), _PIECE):
        yield channel[start : start + _PIECE]


def _each(windows: FloatArray, decide: Callable[[FloatArray], bool]) -> BoolArray:
    windows = as_float32(windows)
    return np.fromiter((decide(window) for window in windows), bool, len(windows))


def level(value: Any) -> float:
    """Returns a level in dB as a number; raises RecipeError if it is out of range."""
    found = real("above_db", value)
    if math.fabs(found) > MAX_LEVEL_DB:
        raise RecipeError(
            "above_db",
            f"must be between -{MAX_LEVEL_DB:g} and {MAX_LEVEL_DB:g} dB",
            found,
        )
    return found
