"""Frames of the signal: where they are, their blocks, and the axis of time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import FloatArray, as_float32
from beam_pipeline.transforms.params import check_choice, whole

# Framed samples in a block. Its frames and their spectrum, 1 MiB each, stay in the
# cache. Blocks four times as large are much slower: arrays of that size go
# back to the operating system after each block, and each page must be mapped again.
BLOCK_SAMPLES = 2**18
# Framed samples in a stretch: its samples and features take a few MB at most. Code that
# frames a stretch cuts it into blocks that fit the cache.
STRETCH_SAMPLES = 2**20
PAD_MODES = ("constant", "reflect", "edge")


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


def check_centring(center: Any, pad_mode: Any) -> None:
    """Checks the two parameters of frames that extend beyond the window."""
    if not isinstance(center, bool):
        raise RecipeError("center", "must be True or False", center)
    check_choice("pad_mode", pad_mode, PAD_MODES)


def centred_frames(
    frames: int, n_fft: int, hop: int, center: bool, pad_mode: str = "constant"
) -> int:
    """The number of time frames in a window of ``frames`` frames of the signal.

    Raises
    ------
    RecipeError
        If frames are not centred and longer than the window, or the window is too short
        to be reflected.
    """
    if not center:
        if n_fft > frames:
            raise RecipeError(
                "n_fft", f"must not exceed the window's {frames} frames", n_fft
            )
        return 1 + (frames - n_fft) // hop
    half = n_fft // 2
    if pad_mode == "reflect" and half >= frames:
        raise RecipeError(
            "pad_mode",
            f"reflects {half} frames at each end, so the window needs at least "
            f"{half + 1} frames, but it has {frames}; use constant, edge or a smaller "
            "n_fft",
            pad_mode,
        )
    return 1 + (frames + 2 * half - n_fft) // hop


def framed_blocks(
    flat: FloatArray,
    count: int,
    length: int,
    hop: int,
    first: int = 0,
    pad_mode: str = "constant",
    samples: int | None = None,
) -> Iterator[tuple[tuple[slice, slice], FloatArray]]:
    """Yields signals (m, frames) as time frames, in the blocks of ``mel.cache_blocks``.

    Yields
    ------
    slices : (slice, slice)
        Over signals and over their ``count`` frames.
    frames : numpy.ndarray, shape (some signals, some frames, length)
        As returned by :func:`framed`.
    """
    blocks = cache_blocks(len(flat), count, length, samples)
    if first >= 0 and first + (count - 1) * hop + length <= flat.shape[1]:
        # One view for all blocks: creating a view takes longer than slicing it.
        views = framed(flat, range(count), length, hop, first)
        yield from ((block, views[block]) for block in blocks)
        return
    for rows, times in blocks:
        shown = range(count)[times]
        yield (rows, times), framed(flat[rows], shown, length, hop, first, pad_mode)


def framed(
    flat: FloatArray,
    times: range,
    length: int,
    hop: int,
    first: int = 0,
    pad_mode: str = "constant",
) -> FloatArray:
    """Some time frames of signals, which may extend beyond the ends.

    Only the samples of these frames are padded. Padding whole signals would copy them
    again for each block.

    Parameters
    ----------
    flat : numpy.ndarray, shape (m, frames)
    times : range
        Numbers of the frames, at least one.
    length, hop : int
        Length of a frame; step to the next one.
    first : int
        Start of frame 0; negative before the signal.
    pad_mode : str
        Values beyond the ends: ``constant`` (zeros), ``reflect`` (around the last
        sample), ``symmetric`` (repeats the last sample) or ``edge``.

    Returns
    -------
    numpy.ndarray, shape (m, len(times), length)
        A view; of the signals themselves if all frames are within them.

    Examples
    --------
    >>> framed(np.array([[1, 2, 3]]), range(2), 3, hop=1, first=-1, pad_mode="reflect")
    array([[[2, 1, 2],
            [1, 2, 3]]])
    """
    start = first + times[0] * hop
    stop = first + times[-1] * hop + length
    part = flat[:, max(start, 0) : max(stop, 0)]
    if part.shape[1] < stop - start:
        before = _padding(flat, range(start, min(stop, 0)), pad_mode)
        after = _padding(flat, range(max(start, flat.shape[1]), stop), pad_mode)
        part = np.concatenate([before, part, after], axis=1)
    return np.lib.stride_tricks.sliding_window_view(part, length, axis=-1)[:, ::hop]


def _padding(flat: FloatArray, where: range, pad_mode: str) -> FloatArray:
    """The samples at indices beyond the ends of signals."""
    if pad_mode == "constant":
        return np.zeros((len(flat), len(where)), flat.dtype)
    last = flat.shape[1] - 1
    at = np.array(where, np.int64)
    if pad_mode == "edge":
        at = np.clip(at, 0, last)
    else:
        # Both reflections are periodic; ``symmetric`` has each end twice in a period.
        twice = pad_mode == "symmetric"
        at %= max(1, 2 * (last + twice))
        at = np.minimum(at, 2 * last + twice - at)
    return flat[:, at]


def first_frame(n_fft: int, center: bool) -> int:
    """The start of the first time frame, in frames of the signal."""
    return -(n_fft // 2) if center else 0


def time_axis(
    sample_rate_hz: int, count: int, length: int, hop: int, first: int
) -> dict[str, Any]:
    """The time axis: frame t begins at ``start + step * t`` and lasts ``length``.

    The axis is in seconds; ``length``, ``hop`` and ``first`` are in frames of the
    signal, as in :func:`framed`.
    """
    return {
        "name": "time",
        "unit": "s",
        "size": count,
        "start": first / sample_rate_hz,
        "step": hop / sample_rate_hz,
        "length": length / sample_rate_hz,
    }


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


def cache_blocks(
    windows: int, count: int, n_fft: int, samples: int | None = None
) -> Iterator[tuple[slice, slice]]:
    """Slices over windows and their ``count`` frames, for blocks of ``samples``.

    The default is ``BLOCK_SAMPLES``.
    """
    frames = max(1, (samples or BLOCK_SAMPLES) // n_fft)
    several = max(1, frames // count)
    for window in range(0, windows, several):
        for frame in range(0, count, frames):
            yield slice(window, window + several), slice(frame, frame + frames)
