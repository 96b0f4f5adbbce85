"""Frames of the signal: where they are, their blocks, and their Fourier transforms."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import scipy  # loads its packages when they are used

from beam_pipeline.arrays import Array, DoubleArray, FloatArray
from beam_pipeline.errors import RecipeError
from beam_pipeline.parameters import Choice, Flag, WholeNumber, parameter
from beam_pipeline.transforms.base import (
    COUNT,
    POSITIVE,
    Method,
    Step,
    on_windows,
    slices,
)

# Framed samples in a block. Its frames and their spectrum, 1 MiB each, stay in the
# cache. Blocks four times as large are much slower: arrays of that size go
# back to the operating system after each block, and each page must be mapped again.
BLOCK_SAMPLES = 2**18
# Framed samples in a stretch: its samples and features take a few MB at most. Code that
# frames a stretch cuts it into blocks that fit the cache.
STRETCH_SAMPLES = 2**20

FFT_SIZE = WholeNumber(2, 1 << 24)
PAD_MODE = Choice(("constant", "reflect", "edge"))

Where = tuple[slice, slice]
"""A block of features: slices over signals and over their time frames."""


def axis(name: str, unit: str, size: int, start: float, step: float) -> dict[str, Any]:
    """An axis of a feature, as JSON values: place k is at ``start + step * k``."""
    return {"name": name, "unit": unit, "size": size, "start": start, "step": step}


def axis_at(name: str, unit: str, values: Sequence[float]) -> dict[str, Any]:
    """An axis of a feature, as JSON values, whose places are listed."""
    return {"name": name, "unit": unit, "size": len(values), "values": list(values)}


@dataclass(frozen=True)
class Frames:
    """Where the time frames of a signal are.

    Attributes
    ----------
    length, hop : int
        Length of a frame and step to the next one, in frames of the signal.
    count : int
        Number of time frames.
    first : int
        Start of frame 0; negative before the signal.
    pad_mode : str
        Values beyond the ends, as in :func:`stretch`.
    """

    length: int
    hop: int
    count: int
    first: int = 0
    pad_mode: str = "constant"

    @classmethod
    def within(cls, frames: int, field: str, length: int, hop: int) -> Frames:
        """Frames entirely within a window; ``field`` names their length in errors."""
        if length > frames:
            raise RecipeError(
                field, f"must not exceed the window's {frames} frames", length
            )
        return cls(length, hop, 1 + (frames - length) // hop)

    @classmethod
    def centred(cls, frames: int, n_fft: int, hop: int, pad_mode: str) -> Frames:
        """Frames whose middles are ``hop`` apart, from a window's first frame on."""
        half = n_fft // 2
        return cls(n_fft, hop, 1 + (frames + 2 * half - n_fft) // hop, -half, pad_mode)

    def axis(self, sample_rate_hz: int) -> dict[str, Any]:
        """The axis of time, in seconds.

        Frame t begins at ``start + step * t`` and lasts ``length``.
        """
        start, step = self.first / sample_rate_hz, self.hop / sample_rate_hz
        time = axis("time", "s", self.count, start, step)
        return {**time, "length": self.length / sample_rate_hz}

    def span(self, times: slice) -> tuple[int, int]:
        """The first sample of some time frames, and the one after their last."""
        first, last = times.start * self.hop, (times.stop - 1) * self.hop
        return self.first + first, self.first + last + self.length

    def features(
        self,
        signals: FloatArray,
        measure: Callable[[Array], Array],
        *size: int,
        taper: Array | None = None,
        values: int | None = None,
        dtype: npt.DTypeLike = np.float32,
    ) -> Array:
        """The features of all frames, (signals, time frames, *size).

        Frames are measured in blocks that fit the cache. Only the samples of a block
        are padded.

        Parameters
        ----------
        signals : numpy.ndarray, shape (m, frames)
        measure : callable
            The features of time frames, (some signals, some time frames, length).
        *size : int
            The shape of the features of one frame.
        taper : numpy.ndarray, shape (length,), optional
            Multiplies the frames, in its dtype.
        values : int, optional
            The values that a frame needs in memory. Default: its length.
        dtype : numpy dtype
        """
        out = np.empty((len(signals), self.count, *size), dtype)
        # It holds all tapered blocks: new arrays of this size are slow.
        buffer = np.empty(0, np.float32)
        # One view for all blocks, if it can be: a view takes longer than a slice of it.
        start, stop = self.span(slice(0, self.count))
        views = None
        if start >= 0 and stop <= signals.shape[1]:
            views = frames_of(signals[:, start:stop], self.length, self.hop)
        for rows, times in cache_blocks(len(out), self.count, values or self.length):
            if views is not None:
                part = views[rows, times]
            else:
                samples = stretch(signals[rows], *self.span(times), self.pad_mode)
                part = frames_of(samples, self.length, self.hop)
            if taper is not None:
                if buffer.size < part.size:
                    buffer = np.empty(part.size, taper.dtype)
                tapered = buffer[: part.size].reshape(part.shape)
                part = np.multiply(part, taper, out=tapered)
            out[rows, times] = measure(part)
        return out

    def stretches(self, signals: FloatArray) -> Iterator[tuple[Where, FloatArray]]:
        """Cuts signals into stretches of whole time frames.

        Yields
        ------
        slices : (slice, slice)
            Over signals and over time frames. The stretches of a signal come in order,
            and their bounds depend only on its length.
        samples : numpy.ndarray, shape (some signals, some frames)
            A view of the samples of these time frames only.

        Examples
        --------
        >>> frames = Frames(length=4, hop=2, count=3)
        >>> (slices, samples), = frames.stretches(np.zeros((2, 10)))
        >>> slices, samples.shape
        ((slice(0, 2, None), slice(0, 3, None)), (2, 8))
        """
        some = STRETCH_SAMPLES
        for rows, times in cache_blocks(len(signals), self.count, self.length, some):
            yield (rows, times), signals[rows, slice(*self.span(times))]

    def stretch_features(
        self, signals: FloatArray, measure: Callable[[Array], Array], *size: int
    ) -> FloatArray:
        """The features of all stretches; ``measure`` gives those of one."""
        out = np.empty((len(signals), self.count, *size), np.float32)
        for where, samples in self.stretches(signals):
            out[where] = measure(samples)
        return out


class OverTime(Step):
    """A step whose features have an axis of time: that of its ``frames``."""

    def frames(self, frames: int) -> Frames:
        """Where the time frames of a window are."""
        raise NotImplementedError

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """Describes the last axes, as JSON values: time, and :meth:`last_axes`.

        Time frame t begins at ``start + step * t`` seconds from the start of the window
        and lasts ``length`` seconds.

        Parameters
        ----------
        sample_rate_hz : int
        frames : int
            Length of the window.
        """
        time = self.frames(frames).axis(sample_rate_hz)
        return [time, *self.last_axes(sample_rate_hz)]

    def last_axes(self, sample_rate_hz: int) -> list[dict[str, Any]]:
        """Describes the axes after that of time: none."""
        return []


class SignalFrames(OverTime):
    """Parameters of frames of the signal, and the time axis."""

    frame: int = parameter(1024, COUNT)
    hop: int = parameter(256, COUNT)

    def frames(self, frames: int) -> Frames:
        return Frames.within(frames, "frame", self.frame, self.hop)


class SpectrumFrames(OverTime):
    """Parameters of frames for the FFT, and the time axis.

    Frames may extend beyond the window if a step declares ``center`` and ``pad_mode``.
    """

    center = False
    pad_mode = "constant"

    n_fft: int = parameter(1024, FFT_SIZE)
    hop: int = parameter(256, COUNT)

    def frames(self, frames: int) -> Frames:
        if self.center:
            return Frames.centred(frames, self.n_fft, self.hop, self.pad_mode)
        return Frames.within(frames, "n_fft", self.n_fft, self.hop)


def stretch(
    signals: FloatArray, start: int, stop: int, pad_mode: str = "constant"
) -> FloatArray:
    """The samples of signals from ``start`` to ``stop``, which may be beyond the ends.

    Parameters
    ----------
    signals : numpy.ndarray, shape (..., frames)
    start, stop : int
        ``start`` may be negative, and ``stop`` above the number of frames.
    pad_mode : str
        Values beyond the ends: ``constant`` (zeros), ``reflect`` (around the last
        sample), ``symmetric`` (repeats the last sample) or ``edge``.

    Returns
    -------
    numpy.ndarray, shape (..., stop - start)
        A view if all samples are within the signals.

    Examples
    --------
    >>> stretch(np.array([1, 2, 3]), -1, 4, pad_mode="reflect")
    array([2, 1, 2, 3, 2])
    """
    frames = signals.shape[-1]
    inside = signals[..., max(start, 0) : max(stop, 0)]
    if inside.shape[-1] == stop - start:
        return inside
    if pad_mode == "constant":
        padded = np.zeros((*signals.shape[:-1], stop - start), signals.dtype)
        before = min(max(-start, 0), stop - start)
        padded[..., before : before + inside.shape[-1]] = inside
        return padded
    ends = []
    for beyond in (range(start, min(stop, 0)), range(max(start, frames), stop)):
        at = np.array(beyond, np.int64)
        if pad_mode == "edge":
            at = np.clip(at, 0, frames - 1)
        else:
            # Both reflections are periodic; ``symmetric`` has each end twice.
            twice = pad_mode == "symmetric"
            at %= max(1, 2 * (frames - 1 + twice))
            at = np.minimum(at, 2 * (frames - 1) + twice - at)
        ends.append(signals[..., at])
    return np.concatenate([ends[0], inside, ends[1]], axis=-1)


def frames_of(signals: FloatArray, length: int, hop: int) -> FloatArray:
    """A view (..., time_frames, length) of signals (..., frames)."""
    views = np.lib.stride_tricks.sliding_window_view(signals, length, axis=-1)
    return views[..., ::hop, :]


def on_signals(method: Method) -> Method:
    """Makes a transform's ``__call__`` from a method on signals, (signals, frames).

    The signals are all channels of all windows, one after another. The first axis of
    the result becomes those of windows and channels again. The rest is as in
    :func:`.base.on_windows`.
    """

    @functools.wraps(method)
    def transform(step: Any, windows: FloatArray, *rate: Any, **named: Any) -> Array:
        flat = windows.reshape(math.prod(windows.shape[:-1]), windows.shape[-1])
        features = method(step, flat, *rate, **named)
        return np.asarray(features.reshape(*windows.shape[:-1], *features.shape[1:]))

    return cast(Method, on_windows(transform))


def cache_blocks(
    windows: int, count: int, n_fft: int, samples: int | None = None
) -> Iterator[Where]:
    """Slices over windows and their ``count`` frames, for blocks of some samples.

    By default, blocks fit the cache.
    """
    frames = (samples or BLOCK_SAMPLES) // n_fft
    yield from itertools.product(
        slices(windows, frames // count), slices(count, frames)
    )


# Coefficients of a sum of cosines, a[0] - a[1] cos(w) + a[2] cos(2 w).
_COSINES = {
    "hann": (0.5, 0.5),
    "hamming": (0.54, 0.46),
    "blackman": (0.42, 0.5, 0.08),
    "rectangular": (1.0,),
}


@functools.lru_cache(maxsize=64)
def exact_taper(name: str, length: int, period: int) -> DoubleArray:
    """A window (taper) of a length; symmetric if the period is less by 1.

    ::

        w[j] = a[0] - a[1] cos(2 pi j / period) + a[2] cos(4 pi j / period)
    """
    angle = 2 * np.pi * np.arange(length) / period
    terms = enumerate(_COSINES[name])
    return np.asarray(sum((-1) ** k * a * np.cos(k * angle) for k, a in terms))


@functools.lru_cache(maxsize=64)
def taper_of(name: str, length: int, n_fft: int) -> FloatArray:
    """A periodic window (taper) of a length, in the middle of ``n_fft`` zeros."""
    before = (n_fft - length) // 2
    padded = np.zeros(n_fft, np.float32)
    padded[before : before + length] = exact_taper(name, length, length)
    padded.flags.writeable = False
    return padded


def frequency_axis(sample_rate_hz: int, n_fft: int) -> dict[str, Any]:
    """The axis of the bins of a one-sided FFT."""
    return axis("frequency", "Hz", n_fft // 2 + 1, 0.0, sample_rate_hz / n_fft)


def spectrum_of(frames: Array, n_fft: int, kind: str, floor: float = 0.0) -> Array:
    """The spectrum of frames, or its magnitude, power, or power in dB, in 32 bits.

    The FFT is in float64 if the frames are.
    """
    spectrum: Array = scipy.fft.rfft(frames, n_fft).astype(np.complex64, copy=False)
    if kind == "complex":
        return spectrum
    if kind == "magnitude":
        return np.asarray(np.abs(spectrum))
    # The squared modulus. np.abs guards against overflow, which is slow on machines for
    # which numpy has no kernel.
    parts = spectrum.view(np.float32)
    np.square(parts, out=parts)
    power: FloatArray = parts[..., 0::2] + parts[..., 1::2]
    if kind == "db":
        to_levels(power, 10 / math.log(10), floor)
    return power


def to_levels(power: FloatArray, unit: float, floor: float) -> None:
    """Turns power into its level, at least that of a floor, in place.

    ``unit`` is what a neper of power is in the unit of the level. The floor comes after
    the logarithm: silence gives exactly its logarithm, however the float32 logarithm of
    this machine rounds.
    """
    with np.errstate(divide="ignore"):
        np.log(power, out=power)
    power *= np.float32(unit)
    np.maximum(power, np.float32(unit * math.log(floor)), out=power)


class Fft(Step):
    """Spectrum of the whole window, from 0 to half the rate.

    ::

        y[k] = sum_j x[j] exp(-2i pi j k / n_fft),    k = 0 .. n_fft // 2

    Windows (n, frames) give (n, bins). Silence gives zeros.

    Attributes
    ----------
    kind : str
        ``complex`` (complex64), ``magnitude`` or ``power`` (float32).
    n_fft : int, optional
        Length of the transform, 2 to 16777216; zeros fill up the window. Default: the
        length of the window.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if the window is longer than
        ``n_fft``.

    Examples
    --------
    >>> Fft(kind="magnitude")(np.ones((1, 4), np.float32))
    array([[4., 0., 0.]], dtype=float32)
    """

    kind: str = parameter("complex", Choice(("complex", "magnitude", "power")))
    n_fft: int | None = parameter(None, FFT_SIZE)

    @on_signals
    def __call__(self, signals: FloatArray) -> Array:
        n_fft = self.length_for(signals.shape[-1])
        spectra = Frames(signals.shape[-1], 1, 1).features(
            signals,
            lambda frames: spectrum_of(frames, n_fft, self.kind),
            n_fft // 2 + 1,
            values=n_fft,
            dtype=np.complex64 if self.kind == "complex" else np.float32,
        )
        return spectra[:, 0]

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """Describes the last axis: frequency, as in :meth:`Stft.axes`."""
        return [frequency_axis(sample_rate_hz, self.length_for(frames))]

    def length_for(self, frames: int) -> int:
        """The length of the transform for windows of a length."""
        n_fft = self.n_fft or frames
        if n_fft < frames:
            raise RecipeError(
                "n_fft", f"must be at least the window's {frames} frames", n_fft
            )
        return n_fft


class Stft(SpectrumFrames):
    """Spectra of short frames.

    ::

        y[t, k] = sum_j w[j] x[t * hop + j] exp(-2i pi j k / n_fft),
                  k = 0 .. n_fft // 2

    with a periodic window ``w``. Frames are either entirely within the window, or
    centred: then ``t * hop`` is the middle of a frame, and the ends are padded. Windows
    (n, frames) give (n, time_frames, bins), windows (n, channels, frames) give
    (n, channels, time_frames, bins). Values and phases agree with librosa's ``stft``,
    and without centring with ``tf.signal.stft``. The largest difference found to both
    is 3e-7 of the largest value. Silence gives zeros.

    Attributes
    ----------
    n_fft, hop : int
        Length of a frame and step to the next one, in frames of the signal.
    win_length : int, optional
        Length of ``w``, which is in the middle of the frame. Default: ``n_fft``.
    window : str
        ``hann``, ``hamming``, ``blackman`` or ``rectangular``.
    center : bool
        Whether frames are centred.
    pad_mode : str
        Values beyond the ends: ``constant`` (zeros), ``reflect`` or ``edge``.
    kind : str
        ``complex`` (complex64), ``magnitude``, ``power``, or ``db``: 10 log10 of the
        power (float32).
    floor : float
        The least power for ``db``; silence gives exactly its logarithm.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if frames are not centred and longer
        than the window, or the window is too short to be reflected.

    References
    ----------
    J. B. Allen, Short Term Spectral Analysis, Synthesis, and Modification by Discrete
    Fourier Transform, IEEE Transactions on Acoustics, Speech, and Signal Processing,
    1977. The windows: F. J. Harris, On the Use of Windows for Harmonic Analysis with
    the Discrete Fourier Transform, Proceedings of the IEEE, 1978.

    Examples
    --------
    >>> Stft()(np.zeros((2, 16000), np.float32)).shape
    (2, 59, 513)
    """

    win_length: int | None = parameter(None, COUNT, at_most="n_fft")
    window: str = parameter("hann", Choice(tuple(_COSINES)))
    center: bool = parameter(False, Flag())
    pad_mode: str = parameter("constant", PAD_MODE)
    kind: str = parameter("complex", Choice(("complex", "magnitude", "power", "db")))
    floor: float = parameter(1e-10, POSITIVE)

    @on_signals
    def __call__(self, signals: FloatArray) -> Array:
        return self.frames(signals.shape[-1]).features(
            signals,
            lambda tapered: spectrum_of(tapered, self.n_fft, self.kind, self.floor),
            self.n_fft // 2 + 1,
            taper=taper_of(self.window, self.win_length or self.n_fft, self.n_fft),
            dtype=np.complex64 if self.kind == "complex" else np.float32,
        )

    def last_axes(self, sample_rate_hz: int) -> list[dict[str, Any]]:
        """Describes the axis of frequency: bin k is at ``start + step * k``."""
        return [frequency_axis(sample_rate_hz, self.n_fft)]


def hann_window(n_fft: int) -> FloatArray:
    return taper_of("hann", n_fft, n_fft)
