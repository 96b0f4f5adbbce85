"""Frames of the signal: where they are, and their Fourier and constant-Q transforms.

A constant-Q transform has bins at even steps of pitch; pitch classes are made from it.
At half the sample rate, the filters of an octave are half as long. So the signal's rate
is halved from octave to octave downwards. Each octave is a small matrix product at the
lowest rate that contains it, and the lowest octave costs no more than the others.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import scipy  # loads its packages when they are used

from beam_pipeline.arrays import Array, DoubleArray, FloatArray
from beam_pipeline.errors import RecipeError
from beam_pipeline.parameters import Choice, Flag, Number, WholeNumber, parameter
from beam_pipeline.transforms.base import (
    COUNT,
    LEAST_LEVEL,
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
        if self.center:  # middles are ``hop`` apart, from the window's first frame on
            half = self.n_fft // 2
            count = 1 + (frames - self.n_fft % 2) // self.hop
            return Frames(self.n_fft, self.hop, count, -half, self.pad_mode)
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
    at = np.arange(start, stop)
    if pad_mode == "edge":
        return signals[..., np.clip(at, 0, frames - 1)]
    # Both reflections are periodic; ``symmetric`` has each end twice.
    twice = pad_mode == "symmetric"
    at %= max(1, 2 * (frames - 1 + twice))
    return signals[..., np.minimum(at, 2 * (frames - 1) + twice - at)]


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


ComplexArray = npt.NDArray[np.complex64]

# Samples whose octaves are computed together. Intermediate arrays take 1 MiB at most
# and stay in the cache; more samples are slower, see ``BLOCK_SAMPLES``.
SEGMENT_SAMPLES = 2**18

# The most multiplications and time frames of a matrix product. OpenBLAS does not share
# products of this size among threads, and larger ones would not be faster.
MOST_PRODUCTS = 2**18
MOST_FRAMES = 32

# A filter may run at a lower rate if its frequency is below the end of the pass band by
# this many times 1 / (its length in seconds). The spectrum of the Hann window falls
# with the third power and is 1 / (pi 20**3) = 4e-5 of its peak there. The part that is
# lost beyond alternates in sign, and its sum is a tenth of that.
SIDE_LOBES = 20.0
# The end of the pass band, as a share of the lower rate. The filter rejects everything
# from three quarters on, which would alias to a quarter and below.
PASS_BAND = 0.25
# Nonzero taps on each side of the middle one, and the attenuation in dB that they give:
# 10**(-138 / 20) = 1.3e-7 is the rounding of float32.
HALF_TAPS = 9
ATTENUATION_DB = 138.0


class Cqt(Step):
    """Constant-Q transform: a bank of filters whose lengths are a number of cycles.

    ::

        f[k] = f_min * 2**(k / bins_per_octave)
        Q    = filter_scale / (2**(1 / bins_per_octave) - 1)
        L[k] = Q * sample_rate_hz / f[k]
        w[k, j] = cos(pi j / L[k])**2    for |j| < L[k] / 2, else 0    (Hann)
        C[t, k] = 2 sum_j w[k, j] x[t * hop + j] exp(-2i pi f[k] j / sample_rate_hz)
                  / sum_j w[k, j]

    A tone ``a cos(2 pi f[k] n / sample_rate_hz + p)`` gives ``C = a exp(i p[t])``,
    where ``p[t]`` is the tone's phase at the middle of frame t. A full-scale tone in
    the middle of a bin has the magnitude 1, which is 0 dB. Time frames are centred on
    the first sample and on every ``hop``-th sample after it,
    ``t = 0 .. frames // hop``. Zeros surround the window, so filters may be longer than
    the window; values are smaller where a filter reaches over an end. Windows
    (n, frames) give (n, time_frames, n_bins), windows (n, channels, frames) give
    (n, channels, time_frames, n_bins). Silence gives zeros, or the floor in dB. Where
    the longest filter of an octave reaches NaN or infinity, the values of the octave
    are NaN or infinite.

    Values differ from the formula by at most 1e-5 of the window's peak. A hop that is
    a multiple of a high power of 2 is fastest: the rate is halved for low octaves as
    long as frames stay on whole samples.

    Attributes
    ----------
    f_min : float
        Frequency of the lowest bin, in Hz. Default: C1 of equal temperament.
    bins_per_octave, n_bins : int
        Bins in an octave; number of all bins, at most 4096.
    hop : int
        Step from a time frame to the next, in frames of the signal.
    filter_scale : float
        Factor of the filters' lengths, 0.01 to 100: below 1 for finer times, above 1
        for finer pitch.
    kind : str
        ``magnitude``: ``|C|``; ``power``: ``|C|**2``; ``db``:
        ``10 log10(max(|C|**2, floor))``, all in float32; ``complex``: ``C`` in
        complex64.
    floor : float
        The least power for ``db``.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if the highest band exceeds half the
        rate.

    Notes
    -----
    ``librosa.cqt`` rounds lengths to whole samples and drops 1 % of its filters'
    spectra. It has ``Q = filter_scale / tanh(log(2) / bins_per_octave)``, 3 % longer
    for 12 bins per octave, and its values are greater by ``sqrt(L[k]) / 2``. Apart from
    this factor, magnitudes of noise have a correlation of 0.9995 with librosa's and
    differ by at most 4 % of the largest. With a ``filter_scale`` for the same lengths,
    the correlation is 0.9998 and the difference 2.4 %.

    References
    ----------
    J. C. Brown, Calculation of a constant Q spectral transform, Journal of the
    Acoustical Society of America 89, 1991.

    C. Schoerkhuber and A. Klapuri, Constant-Q transform toolbox for music processing,
    7th Sound and Music Computing Conference, 2010: octave by octave.

    Examples
    --------
    >>> Cqt()(np.zeros((2, 16000), np.float32), 16000).shape
    (2, 32, 84)
    """

    f_min: float = parameter(32.703, POSITIVE)
    bins_per_octave: int = parameter(12, COUNT)
    n_bins: int = parameter(84, WholeNumber(1, 4096))
    hop: int = parameter(512, COUNT)
    filter_scale: float = parameter(1.0, Number(0.01, 100.0))
    kind: str = parameter("magnitude", Choice(("magnitude", "power", "db", "complex")))
    floor: float = parameter(1e-10, LEAST_LEVEL)

    @on_signals
    def __call__(self, signals: FloatArray, sample_rate_hz: int) -> Array:
        count = _time_frames(signals.shape[-1], self.hop)
        dtype = np.complex64 if self.kind == "complex" else np.float32
        out = np.empty((len(signals), count, self.n_bins), dtype)
        bank = filter_bank(self, sample_rate_hz)
        for place, octave, response in responses(signals, self.hop, bank, out):
            self._measure(response, place[..., octave.bins])
        return out

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """Describes the last two axes, as JSON values.

        The time of a frame is that of its middle, in seconds from the start of the
        window. The frequency of a bin is that of its middle.

        Parameters
        ----------
        sample_rate_hz : int
        frames : int
            Length of the window.

        Examples
        --------
        >>> Cqt(f_min=440, n_bins=24).axes(48000, 48000)[1]["values"][12]
        880.0
        """
        filter_bank(self, sample_rate_hz)
        bins = bin_frequencies(self.f_min, self.bins_per_octave, self.n_bins)
        count, step = _time_frames(frames, self.hop), self.hop / sample_rate_hz
        time = axis("time", "s", count, 0.0, step)
        return [time, axis_at("frequency", "Hz", bins.tolist())]

    def _measure(self, response: ComplexArray, out: Array) -> None:
        if self.kind == "complex":
            out[...] = response
            return
        # Unlike the root of a sum of squares, np.abs does not overflow on the way.
        np.abs(response, out=out)
        if self.kind == "power":
            np.square(out, out=out)
        elif self.kind == "db":
            with np.errstate(divide="ignore"):
                np.log10(out, out=out)
            out *= np.float32(20)
            np.maximum(out, np.float32(10 * math.log10(self.floor)), out=out)


class Chroma(Step):
    """Magnitudes of the constant-Q transform, summed by pitch class.

    ::

        class[k] = round(12 log2(f_min / 440) + 9) + floor(12 k / b + 1 / 2)   modulo 12
        S[t, c]  = sum of |C[t, k]| over the bins k with class[k] = c
        y[t, c]  = S[t, c] / max_c S[t, c]    or    S[t, c]

    with the C of :class:`Cqt` and b bins per octave. Class 0 is the note C; class 9 is
    A, which is 440 Hz in the fourth octave. A bin between two semitones belongs to the
    nearer one, and a bin in the middle to the higher one. Windows (n, frames) give
    (n, time_frames, 12), windows (n, channels, frames) give
    (n, channels, time_frames, 12), in float32. Silence gives zeros.

    ``librosa.feature.chroma_cqt`` sums bins in the same way (to 1e-6). But its
    magnitudes grow by sqrt(2) with each octave down, so low notes dominate. And it
    estimates the tuning from the signal unless a parameter sets it; here, the tuning is
    a factor of ``f_min``.

    Attributes
    ----------
    f_min : float
        Frequency of the lowest bin in Hz, the middle of a semitone. Default: C1 of
        equal temperament.
    bins_per_octave : int
        A multiple of 12.
    n_octaves : int
        At most 20.
    hop : int
        Step from a time frame to the next, in frames of the signal.
    norm : str
        ``max``: the largest value of each time frame is 1; ``none``: no scaling.

    Raises
    ------
    RecipeError
        As for :class:`Cqt`.

    References
    ----------
    T. Fujishima, Realtime chord recognition of musical sound: a system using Common
    Lisp Music, International Computer Music Conference, 1999.

    Examples
    --------
    >>> tone = np.sin(2 * np.pi * 440 / 16000 * np.arange(16000, dtype=np.float32))
    >>> Chroma()(tone[np.newaxis], 16000)[0, 16].argmax()
    np.int64(9)
    """

    f_min: float = parameter(32.703, POSITIVE)
    bins_per_octave: int = parameter(36, COUNT)
    n_octaves: int = parameter(7, WholeNumber(1, 20))
    hop: int = parameter(512, COUNT)
    norm: str = parameter("max", Choice(("max", "none")))

    def check(self) -> None:
        super().check()
        if self.bins_per_octave % 12:
            raise self.refused("bins_per_octave", "must be a multiple of 12")
        self.cqt()  # checks the number of bins

    @on_signals
    def __call__(self, signals: FloatArray, sample_rate_hz: int) -> FloatArray:
        count = _time_frames(signals.shape[-1], self.hop)
        out = np.zeros((len(signals), count, 12), np.float32)
        bank = filter_bank(self.cqt(), sample_rate_hz)
        for place, _, response in responses(signals, self.hop, bank, out):
            place += self._fold(np.abs(response))
        if self.norm == "max":
            for signal in out:
                greatest = signal.max(axis=-1, keepdims=True)
                # NaN stays NaN; shares of infinity are NaN, too.
                greatest[np.isinf(greatest)] = np.nan
                signal /= np.where(greatest == 0, 1, greatest)
        return out

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """Describes the last two axes: time, as in ``Cqt.axes``, and pitch class.

        Examples
        --------
        >>> Chroma().axes(16000, 16000)[1]["size"]
        12
        """
        time, _ = self.cqt().axes(sample_rate_hz, frames)
        return [time, axis("pitch_class", "semitone", 12, 0, 1)]

    def cqt(self) -> Cqt:
        return Cqt(
            f_min=self.f_min,
            bins_per_octave=self.bins_per_octave,
            n_bins=self.n_octaves * self.bins_per_octave,
            hop=self.hop,
        )

    def _fold(self, octave: FloatArray) -> FloatArray:
        """Sums the bins of an octave by class, on the last axis."""
        each = self.bins_per_octave // 12
        # The last bins of an octave are closest to the first note of the next octave.
        by_note = np.roll(octave, each // 2, axis=-1).reshape(
            *octave.shape[:-1], 12, each
        )
        first = round(12 * math.log2(self.f_min / 440) + 9)
        return np.asarray(np.roll(by_note.sum(axis=-1), first, axis=-1))


class Octave(NamedTuple):
    """Filters of some neighbouring bins.

    ``halvings`` is how often the rate is halved before filtering. ``weights`` has the
    shape (length, 2 * bins), real and imaginary parts side by side.
    """

    bins: slice
    halvings: int
    weights: FloatArray


def bin_frequencies(f_min: float, bins_per_octave: int, n_bins: int) -> DoubleArray:
    """The middle of each bin, in Hz; infinite if it overflows."""
    with np.errstate(over="ignore"):
        ratios: DoubleArray = np.exp2(np.arange(n_bins) / bins_per_octave)
        return f_min * ratios


@functools.lru_cache(maxsize=4)
def filter_bank(cqt: Cqt, sample_rate_hz: int) -> tuple[Octave, ...]:
    """The filters of a transform, octave by octave from the highest.

    Raises
    ------
    RecipeError
        If the highest band exceeds half the rate.
    """
    f_min, bins_per_octave, n_bins = cqt.f_min, cqt.bins_per_octave, cqt.n_bins
    cycles = cqt.filter_scale / (2 ** (1 / bins_per_octave) - 1)
    hertz = bin_frequencies(f_min, bins_per_octave, n_bins)
    # The end of the band is where the Hann window's response is half its peak.
    if hertz[-1] * (1 + 1 / cycles) > sample_rate_hz / 2:
        raise cqt.refused(
            "f_min",
            f"puts the highest of {n_bins} bins at {hertz[-1]:.6g} Hz; the band of "
            f"this bin ends above half the sample rate of {sample_rate_hz} Hz; use "
            "fewer bins, or a lower f_min",
        )
    bank = []
    for last in range(n_bins, 0, -bins_per_octave):
        bins = slice(max(0, last - bins_per_octave), last)
        halvings = _halvings(float(hertz[last - 1]), cycles, sample_rate_hz, cqt.hop)
        rate = sample_rate_hz / 2**halvings
        bank.append(Octave(bins, halvings, _weights(hertz[bins] / rate, cycles)))
    return tuple(bank)


def _halvings(highest: float, cycles: float, sample_rate_hz: int, hop: int) -> int:
    """How often the rate may be halved for filters up to a frequency."""
    rates = PASS_BAND * sample_rate_hz / (highest * (1 + SIDE_LOBES / cycles))
    halvings = 0
    while hop % 2 ** (halvings + 1) == 0 and rates >= 2 ** (halvings + 1):
        halvings += 1
    return halvings


def _weights(frequencies: DoubleArray, cycles: float) -> FloatArray:
    """The weights of an octave's filters, at frequencies in cycles per sample."""
    half = math.ceil(cycles / frequencies[0] / 2) - 1
    turns = np.arange(-half, half + 1)[:, np.newaxis] * frequencies
    hann = np.where(np.abs(turns) < cycles / 2, np.cos(np.pi / cycles * turns) ** 2, 0)
    weights = 2 / hann.sum(axis=0) * hann * np.exp(-2j * np.pi * turns)
    return np.asarray(weights.astype(np.complex64).view(np.float32))


def responses(
    signals: FloatArray, hop: int, bank: tuple[Octave, ...], out: Array
) -> Iterator[tuple[Array, Octave, ComplexArray]]:
    """Yields the filters' responses to signals (n, frames), piece by piece.

    Yields
    ------
    place : numpy.ndarray, shape (some signals, some time frames, ...)
        A view of the same signals and time frames in ``out``.
    octave : Octave
    response : numpy.ndarray, shape (some signals, some time frames, bins), complex64
    """
    # The reach on either side of a filter and of the halvings before it.
    reach = max(
        (len(octave.weights) // 2 + 2 * HALF_TAPS) * 2**octave.halvings
        for octave in bank
    )
    longest = max(SEGMENT_SAMPLES, 4 * reach)
    several = SEGMENT_SAMPLES // (min(signals.shape[-1], longest) + 2 * reach)
    for some in slices(len(signals), several):
        for times in slices(out.shape[1], longest // hop):
            begin = max(0, times.start * hop - reach)
            part = signals[some, begin : times.stop * hop + reach]
            middle, halvings = times.start * hop - begin, 0  # of the first time frame
            for octave in bank:
                for _ in range(octave.halvings - halvings):
                    part, middle = halve(part, middle)
                halvings = octave.halvings
                length, step = len(octave.weights), hop >> halvings
                place, start = out[some, times], middle - length // 2
                stop = start + (place.shape[1] - 1) * step + length
                framed = frames_of(stretch(part, start, stop), length, step)
                for block in cache_blocks(*framed.shape):
                    frames = np.ascontiguousarray(framed[block])
                    response = _product(frames, octave.weights).view(np.complex64)
                    yield place[block], octave, response


def _product(frames: FloatArray, weights: FloatArray) -> FloatArray:
    """The matrix product of each signal's frames (n, count, length) and the weights.

    BLAS is called with the same small shapes for each signal, because its rounding
    depends on the shape, and for large shapes on the number of threads.
    """
    _, count, length = frames.shape
    columns = weights.shape[1]
    terms = max(16, MOST_PRODUCTS // (min(count, MOST_FRAMES) * columns))
    out = np.empty((*frames.shape[:2], columns), np.float32)
    for times in slices(count, MOST_FRAMES):
        some, sums = frames[:, times], out[:, times]
        np.matmul(some[..., :terms], weights[:terms], out=sums)
        for term in range(terms, length, terms):
            sums += some[..., term : term + terms] @ weights[term : term + terms]
    return out


def halve(signals: FloatArray, middle: int) -> tuple[FloatArray, int]:
    """Signals at half the rate, surrounded by zeros; and the new index of ``middle``.

    ::

        y[m] = x[2 m] / 2 + sum_i h[i] (x[2 m + 2 i + 1] + x[2 m - 2 i - 1])

    The half-band filter passes frequencies below an eighth of the rate to within 3e-7,
    and attenuates those above three eighths to 3e-7. The result is longer by the reach
    of the filter.
    """
    samples = signals.shape[-1]
    # Outputs wherever the taps reach a sample, on a grid that includes ``middle``.
    left = 4 * HALF_TAPS - 2 + middle % 2
    size = (left + samples) // 2
    padded = np.zeros((len(signals), 2 * (size + 2 * HALF_TAPS)), np.float32)
    padded[:, left : left + samples] = signals
    odd = np.ascontiguousarray(padded[:, 1::2])
    out = padded[:, 2 * HALF_TAPS : 2 * (HALF_TAPS + size) : 2] * np.float32(0.5)
    pair = np.empty_like(out)
    for i, tap in enumerate(half_band_taps()):
        after = odd[:, HALF_TAPS + i : HALF_TAPS + i + size]
        before = odd[:, HALF_TAPS - 1 - i : HALF_TAPS - 1 - i + size]
        np.add(after, before, out=pair)
        pair *= tap
        out += pair
    return out, (left + middle) // 2 - HALF_TAPS


@functools.cache
def half_band_taps() -> FloatArray:
    """The taps h[i] of :func:`halve`: a sinc tapered by Kaiser's window."""
    odd = 2 * np.arange(HALF_TAPS) + 1
    beta = 0.1102 * (ATTENUATION_DB - 8.7)
    kaiser = np.i0(beta * np.sqrt(1 - (odd / (2 * HALF_TAPS)) ** 2))
    taps = np.sin(np.pi / 2 * odd) / odd * kaiser
    # The taps' sum is such that a constant signal stays the same.
    return np.asarray((taps / (4 * taps.sum())).astype(np.float32))


def _time_frames(frames: int, hop: int) -> int:
    return 1 + frames // hop
