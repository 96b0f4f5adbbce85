"""Code shared by transforms that compute features frame by frame.

Each frame is entirely within the window: frames are not centred, nothing is padded.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import FloatArray, as_float32, real, whole
from beam_pipeline.transforms.fourier import time_axis
from beam_pipeline.transforms.mel import sparse_filter_bank
from beam_pipeline.transforms.spectral import LogMel

# Framed samples in a stretch: its samples and features take a few MB at most. Code that
# frames a stretch cuts it into blocks that fit the cache.
STRETCH_SAMPLES = 2**20


@dataclass(frozen=True, kw_only=True)
class SignalFrames:
    """Parameters of frames of the signal, and the time axis."""

    frame: int = 1024
    hop: int = 256

    def __post_init__(self) -> None:
        for name in ("frame", "hop"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """Describes the last axis, time; see ``LogMel.axes``."""
        count = time_frames(frames, "frame", self.frame, self.hop)
        return [time_axis(sample_rate_hz, count, self.frame, self.hop, first=0)]


@dataclass(frozen=True, kw_only=True)
class SpectrumFrames:
    """Parameters of frames for the FFT, and the time axis."""

    n_fft: int = 1024
    hop: int = 256

    def __post_init__(self) -> None:
        for name in ("n_fft", "hop"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """Describes the last axis, time; see ``LogMel.axes``."""
        count = time_frames(frames, "n_fft", self.n_fft, self.hop)
        return [time_axis(sample_rate_hz, count, self.n_fft, self.hop, first=0)]


@dataclass(frozen=True, kw_only=True)
class MelFrames:
    """Parameters of mel bands, with the checks and the axes of :class:`LogMel`."""

    n_fft: int = 1024
    hop: int = 256
    n_mels: int = 64
    f_min: float = 0.0
    f_max: float | None = None

    def __post_init__(self) -> None:
        log_mel = self.log_mel()
        for name in self._shared():
            object.__setattr__(self, name, getattr(log_mel, name))

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """Describes the last two axes; see ``LogMel.axes``."""
        return self.log_mel().axes(sample_rate_hz, frames)

    def log_mel(self) -> LogMel:
        """The transform that gives the levels of these bands, in dB."""
        return LogMel(
            **{name: getattr(self, name) for name in self._shared()}, log="db"
        )

    def bank(self, sample_rate_hz: int) -> Any:
        f_max = sample_rate_hz / 2 if self.f_max is None else self.f_max
        return sparse_filter_bank(
            sample_rate_hz, self.n_fft, self.n_mels, self.f_min, f_max
        )

    def _shared(self) -> list[str]:
        known = {field.name for field in dataclasses.fields(LogMel)}
        return [f.name for f in dataclasses.fields(self) if f.name in known]


def time_frames(frames: int, field: str, length: int, hop: int) -> int:
    """The number of time frames in a window; ``field`` names their length in errors."""
    if length > frames:
        raise RecipeError(
            field, f"must not exceed the window's {frames} frames", length
        )
    return 1 + (frames - length) // hop


def frames_of(flat: FloatArray, length: int, hop: int) -> FloatArray:
    """A view (n, time_frames, length) of signals (n, frames)."""
    return np.lib.stride_tricks.sliding_window_view(flat, length, axis=-1)[:, ::hop]


def signals_of(windows: FloatArray) -> FloatArray:
    """All channels of all windows, one after another: (signals, frames)."""
    windows = as_float32(windows)
    return windows.reshape(math.prod(windows.shape[:-1]), windows.shape[-1])


def stretches(
    signals: FloatArray, count: int, length: int, hop: int
) -> Iterator[tuple[tuple[slice, slice], FloatArray]]:
    """Cuts signals of ``count`` time frames into stretches of whole time frames.

    Parameters
    ----------
    signals : numpy.ndarray, shape (n, frames)
    count : int
        Number of time frames in a signal.
    length, hop : int
        Length of a time frame; step to the next one.

    Yields
    ------
    slices : (slice, slice)
        Over signals and over time frames. The stretches of a signal come in order, and
        their bounds depend only on its length.
    samples : numpy.ndarray, shape (some signals, some frames)
        A view of the samples of these time frames only.

    Examples
    --------
    >>> (slices, samples), = stretches(np.zeros((2, 10)), count=3, length=4, hop=2)
    >>> slices, samples.shape
    ((slice(0, 2, None), slice(0, 3, None)), (2, 8))
    """
    most = max(1, STRETCH_SAMPLES // length)
    several = max(1, most // count)
    for signal in range(0, len(signals), several):
        rows = slice(signal, min(signal + several, len(signals)))
        for first in range(0, count, most):
            last = min(first + most, count) - 1
            times = slice(first, last + 1)
            yield (rows, times), signals[rows, first * hop : last * hop + length]


def level_floor(value: Any) -> float:
    floor = real("floor", value)
    if not 1e-30 <= floor <= 1e30:
        raise RecipeError("floor", "must be between 1e-30 and 1e30", floor)
    return floor
