"""Transforms of mel spectra over time: cepstra, PCEN, slopes, means and variances."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from beam_pipeline.parameters import Choice, Flag, Number, WholeNumber, parameter
from beam_pipeline.transforms.base import (
    COUNT,
    LEAST_LEVEL,
    POSITIVE,
    SHARE,
    DoubleArray,
    FloatArray,
    Method,
    Step,
    quiet,
    spectra_of,
)
from beam_pipeline.transforms.frames import axis, cache_blocks, gathered, on_signals
from beam_pipeline.transforms.mel import MelFrames


@dataclass(frozen=True, kw_only=True)
class Mfcc(MelFrames):
    """Mel-frequency cepstral coefficients, frame by frame.

    ::

        L[t, m] = 10 log10(max(M[t, m], floor))
        y[t, q] = lift[q] * s[q] * sum_m L[t, m] cos(pi q (2 m + 1) / (2 n_mels))
        s[0] = sqrt(1 / n_mels),  s[q] = sqrt(2 / n_mels)
        lift[q] = 1 + lifter / 2 * sin(pi (q + 1) / lifter),  or 1 if lifter is 0

    with the mel power ``M`` of :class:`LogMel`: the orthonormal DCT-II of its levels.
    Windows (n, frames) give (n, time_frames, n_mfcc), windows (n, channels, frames)
    give (n, channels, time_frames, n_mfcc), in float32. Silence gives
    ``10 log10(floor) * sqrt(n_mels)`` in coefficient 0, and 0 in the others, except for
    rounding.

    The result agrees with librosa's ``mfcc(S=10 * log10(maximum(M, floor)))``. The
    largest difference found is 1e-6 of the largest coefficient; 5e-5 for recordings
    with almost empty bands, and 3e-4 for a pure tone. Given a signal instead, librosa
    raises all levels to at least 80 dB below the loudest of the whole array. Kaldi and
    HTK use the natural logarithm, other bands, and another lifter.

    Attributes
    ----------
    n_mfcc : int
        Number of coefficients, from 0 on; at most ``n_mels``.
    n_fft, hop : int
        Length of a frame and step to the next one, in frames of the signal.
    n_mels : int
        Number of bands.
    f_min, f_max : float
        Edges of the lowest and of the highest band, in Hz; None: half the rate.
    floor : float
        The least power.
    lifter : float
        Length of the sine that weights the coefficients, as in HTK; 0: none.

    Raises
    ------
    RecipeError
        If a value is out of its range; also as for :class:`LogMel`.

    References
    ----------
    S. B. Davis and P. Mermelstein, Comparison of parametric representations for
    monosyllabic word recognition in continuously spoken sentences, IEEE Transactions on
    Acoustics, Speech, and Signal Processing 28, 1980.

    Examples
    --------
    >>> Mfcc(n_mfcc=13)(np.zeros((2, 16000), np.float32), 16000).shape
    (2, 59, 13)
    """

    n_mfcc: int = parameter(20, COUNT, at_most="n_mels")
    floor: float = parameter(1e-10, POSITIVE)
    lifter: float = parameter(0.0, Number(0.0))

    @on_signals
    def __call__(self, signals: FloatArray, sample_rate_hz: int) -> FloatArray:
        frames = self.frames(signals.shape[-1])
        cosines = dct_matrix(self.n_mfcc, self.n_mels, self.lifter)
        return gathered(
            frames.stretches(signals),
            # One product for each window: its rounding depends on the shape alone.
            lambda samples: self.bands(samples, sample_rate_hz) @ cosines,
            (len(signals), frames.count, self.n_mfcc),
        )

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """Describes the last two axes: time, as in ``LogMel.axes``, and coefficient."""
        time, _ = super().axes(sample_rate_hz, frames)
        return [time, axis("cepstral_coefficient", "1", self.n_mfcc, 0.0, 1.0)]


@dataclass(frozen=True, kw_only=True)
class Pcen(MelFrames):
    """Mel power with per-channel energy normalization.

    ::

        E[t, m] = scale * M[t, m]
        A[t, m] = (1 - b) A[t - 1, m] + b E[t, m],   A[-1, m] = 1
        y[t, m] = (E[t, m] / (eps + A[t, m])**gain + bias)**power - bias**power
        b = (sqrt(1 + 4 T**2) - 1) / (2 T**2),   T = time_constant_s * rate / hop

    with the mel power ``M`` of :class:`LogMel`. ``A`` starts again in each window.
    Windows (n, frames) give (n, time_frames, n_mels), windows (n, channels, frames)
    give (n, channels, time_frames, n_mels), in float32. Silence gives 0.

    The result agrees with librosa's ``pcen(scale * M)``, including ``b`` and the first
    ``A`` (largest difference found: 1e-7 relative). librosa's own ``M`` comes from a
    float64 FFT; with it, the largest difference is 3e-4 in bands of at least 1e-8 of
    the frame's loudest band. Fainter bands are mostly rounding error, which PCEN
    amplifies like any other level: beside a tone without noise, from 1e-14 of the
    largest power to 1e-2 of the largest value. The defaults are librosa's. They suit
    large powers: librosa's documentation uses this scale for samples within 1.

    Attributes
    ----------
    n_fft, hop : int
        Length of a frame and step to the next one, in frames of the signal.
    n_mels : int
        Number of bands.
    f_min, f_max : float
        Edges of the lowest and of the highest band, in Hz; None: half the rate.
    scale : float
        Factor of the power, 1e-30 to 1e30.
    gain : float
        Exponent of the smooth level that divides the power, 0 (no division) to 1.
    bias : float
        Number that is added before the root, 0 to 1e30.
    power : float
        Exponent of the root, 0.001 to 1.
    time_constant_s : float
        Time constant of the smooth level, in seconds; 1e-6 to 1e6.
    eps : float
        Number that is added to the smooth level, 1e-30 to 1e30.

    Raises
    ------
    RecipeError
        If a value is out of its range; also as for :class:`LogMel`.

    References
    ----------
    Y. Wang, P. Getreuer, T. Hughes, R. F. Lyon and R. A. Saurous, Trainable frontend
    for robust and far-field keyword spotting, ICASSP, 2017. V. Lostanlen et al.,
    Per-channel energy normalization: why and how, IEEE Signal Processing Letters 26,
    2019.

    Examples
    --------
    >>> Pcen(n_mels=40)(np.zeros((2, 16000), np.float32), 16000).shape
    (2, 59, 40)
    """

    scale: float = parameter(2.0**31, LEAST_LEVEL)
    gain: float = parameter(0.98, SHARE)
    bias: float = parameter(2.0, Number(0.0, 1e30))
    power: float = parameter(0.5, Number(1e-3, 1.0))
    time_constant_s: float = parameter(0.4, Number(1e-6, 1e6, unit="seconds"))
    eps: float = parameter(1e-6, LEAST_LEVEL)

    @on_signals
    def __call__(self, signals: FloatArray, sample_rate_hz: int) -> FloatArray:
        frames = self.frames(signals.shape[-1])
        share = smoothing_share(self.time_constant_s * sample_rate_hz / self.hop)
        out = np.empty((len(signals), frames.count, self.n_mels), np.float32)
        last = np.ones(self.n_mels)
        for (rows, times), samples in frames.stretches(signals):
            power = self.bands(samples, sample_rate_hz, "none")
            energy = np.multiply(power, self.scale, dtype=np.float64)
            level = smooth(energy, share, last if times.start else np.ones(self.n_mels))
            last = level[:, -1].copy()
            out[rows, times] = self._compress(energy, level)
        return out

    def _compress(self, energy: DoubleArray, level: DoubleArray) -> DoubleArray:
        """The gain and the root; overwrites both arguments."""
        level += self.eps
        np.log(level, out=level)
        level *= -self.gain
        energy *= np.exp(level, out=level)
        if self.bias == 0:
            return np.power(energy, self.power, out=energy)
        # This form is also exact if the energy is far below the bias.
        energy /= self.bias
        np.log1p(energy, out=energy)
        energy *= self.power
        np.expm1(energy, out=energy)
        energy *= self.bias**self.power
        return energy


def on_spectra(method: Method) -> Method:
    """Makes a transform's ``__call__`` from one on spectra (n, time_frames, bins).

    These are of all channels of all windows; the shape of the features stays.
    """

    @functools.wraps(method)
    def transform(step: Any, features: FloatArray) -> FloatArray:
        features = spectra_of(features, type(step).__name__.lower())
        flat = features.reshape(math.prod(features.shape[:-2]), *features.shape[-2:])
        with quiet():
            made: FloatArray = method(step, flat)
        return made.reshape(features.shape)

    return cast(Method, transform)


@dataclass(frozen=True, kw_only=True)
class Delta(Step):
    """Slopes of features in time, for features of shape (time_frames, bins).

    ::

        y[t] = sum_(k = 1 .. h) k (x[t + k] - x[t - k]) / (2 sum_(k = 1 .. h) k**2)

    for ``order=1``, with ``h = (width - 1) / 2``: the slope, per frame, of the line
    that fits ``width`` frames best in the sense of least squares. A higher order gives
    the derivative of that order of the polynomial of that degree. The first ``h`` and
    the last ``h`` frames have the value of the nearest frame with ``h`` frames on both
    sides. The shape (n, [channels,] time_frames, bins) does not change; the result is
    float32. Features that are constant in time, like those of silence, give 0.

    The result agrees with librosa's ``delta(mode="interp")`` for float64 (largest
    difference found: 2e-7 of the largest value; for float32, librosa's fit at the edges
    is 7e-6 off).

    Attributes
    ----------
    width : int
        Number of frames: odd, 3 to 999, at most the number of frames of the features.
    order : int
        1 for slopes, 2 for the slopes of slopes; at most 4, and below ``width``.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if the features have fewer frames
        than ``width``, or lack the axes (time_frames, bins).

    References
    ----------
    S. Furui, Speaker-independent isolated word recognition using dynamic features of
    speech spectrum, IEEE Transactions on Acoustics, Speech, and Signal Processing 34,
    1986. A. Savitzky and M. J. E. Golay, Smoothing and differentiation of data by
    simplified least squares procedures, Analytical Chemistry 36, 1964.

    Examples
    --------
    >>> Delta(width=3)(np.array([[[0], [2], [4], [4]]], np.float32))[0, :, 0]
    array([2., 2., 1., 1.], dtype=float32)
    """

    on_features = True

    width: int = parameter(9, WholeNumber(3, 999))
    order: int = parameter(1, WholeNumber(1, 4), below="width")

    def check(self) -> None:
        super().check()
        if self.width % 2 == 0:
            raise self.refused("width", "must be odd")

    @on_spectra
    def __call__(self, spectra: FloatArray) -> FloatArray:
        _, count, bins = spectra.shape
        if self.width > count:
            raise self.refused("width", f"must not exceed the features' {count} frames")
        weights = slope_weights(self.width, self.order)
        half = len(weights) - 1
        out = np.empty(spectra.shape, np.float32)
        inner = out[:, half : count - half]
        for rows, times in cache_blocks(len(out), inner.shape[1], max(1, bins)):
            around = spectra[rows, times.start : times.stop + 2 * half]
            inner[rows, times] = _slopes(
                around.astype(np.float64), weights, odd=self.order % 2 == 1
            )
        out[:, :half] = inner[:, :1]
        out[:, count - half :] = inner[:, -1:]
        return out


def smoothing_share(time_constant: float) -> float:
    """The share of a new frame in a smooth level, for a time constant in frames."""
    # Equal to (sqrt(1 + 4 T**2) - 1) / (2 T**2), which loses digits for small shares.
    return 2 / (1 + math.sqrt(1 + 4 * time_constant**2))


def smooth(energy: DoubleArray, share: float, before: DoubleArray) -> DoubleArray:
    """First-order recursive mean of energy (n, time_frames, bins) over time."""
    level = energy * share
    for frame in level.swapaxes(0, 1):
        frame += before * (1 - share)
        before = frame
    return level


@functools.lru_cache(maxsize=32)
def dct_matrix(n_mfcc: int, n_mels: int, lifter: float) -> FloatArray:
    """The matrix of the DCT, (n_mels, n_mfcc), with the lifter."""
    q = np.arange(n_mfcc)
    m = np.arange(n_mels)[:, np.newaxis]
    cosines = np.cos(np.pi * q * (2 * m + 1) / (2 * n_mels)) * math.sqrt(2 / n_mels)
    cosines[:, 0] = math.sqrt(1 / n_mels)
    if lifter:
        cosines *= 1 + lifter / 2 * np.sin(np.pi * (q + 1) / lifter)
    return cosines.astype(np.float32)


@functools.lru_cache(maxsize=32)
def slope_weights(width: int, order: int) -> tuple[float, ...]:
    """Weights of the middle frame and of the ``h`` frames after it.

    The frames before it have the same weights, with the opposite sign for odd orders.
    """
    half = width // 2
    # Powers of k / h, not of k: they stay within 1.
    powers = np.vander(np.arange(-half, half + 1) / half, order + 1, increasing=True)
    weights = np.linalg.pinv(powers)[order] * (math.factorial(order) / half**order)
    return tuple(weights[half:].tolist())


def _slopes(
    around: DoubleArray, weights: tuple[float, ...], *, odd: bool
) -> DoubleArray:
    """Slopes (n, t, bins) of (n, t + 2 h, bins): t frames have h on both sides."""
    half = len(weights) - 1
    count = around.shape[1] - 2 * half
    middle = around[:, half : half + count]
    total = np.zeros_like(middle)
    for k, weight in enumerate(weights[1:], 1):
        after = around[:, half + k : half + k + count]
        before = around[:, half - k : half - k + count]
        # Differences, not values, are weighted: constants give exactly 0.
        pair = after - before if odd else (after - middle) - (middle - before)
        pair *= weight
        total += pair
    return total


WINDOW, CLIP = "window", "clip"


@dataclass(frozen=True, kw_only=True)
class Cmvn(Step):
    """Subtracts the mean over time from each bin, and divides by the deviation.

    For features of shape (time_frames, bins)::

        y[t, b] = (x[t, b] - mean[b]) / sqrt(max(var[b], floor))

    with ``var[b] = mean((x[., b] - mean[b])**2)``; with ``norm_vars=False``,
    ``y = x - mean``. The shape (n, [channels,] time_frames, bins) does not change; the
    result is float32. Features that are constant in time, like those of silence, give
    0.

    The mean and the variance are those

    - of each window by itself: ``over="window"``;
    - of ``window`` spectrum frames around each frame, as in Kaldi's
      ``apply-cmvn-sliding``: ``window=300``. With ``center``, a frame has
      ``window // 2`` frames before it, and is followed by the others. Without, it has
      ``window`` frames before it, and the first ``min_window`` frames share their
      values. At the ends, frames are taken that exist;
    - of all spectrum frames of all windows of the clip: ``over="clip"``. Each window of
      the recipe counts once, also one that ``keep`` leaves out; so frames count twice
      where windows overlap, and padding counts. The probe decodes the clip once more
      to measure it, like ``clip_gain``.

    Where clips are not known, each window counts as one: in ``as_tf`` and
    ``dofns.Transform``.

    The largest difference found to Kaldi's loop in float64 is 6e-8 of the largest
    value, in windows of 10 frames and more. In shorter ones, frames may be almost
    equal; the difference of squares then has few digits, and with ``norm_vars`` it is
    2e-3.

    Attributes
    ----------
    norm_vars : bool
        Whether to divide by the deviation.
    over : str
        ``window`` or ``clip``.
    window : int or None
        Number of spectrum frames; None: all.
    min_window : int
        Least number of frames at the start, without ``center``.
    center : bool
        Whether the window is around its frame, and not before it.
    floor : float
        The least variance.

    Raises
    ------
    RecipeError
        If a value is out of its range, or ``window`` is given for clips; in a call, if
        the features lack the axes (time_frames, bins).

    References
    ----------
    D. Povey et al., The Kaldi Speech Recognition Toolkit, ASRU 2011. O. Viikki and
    K. Laurila, Cepstral domain segmental feature vector normalization for noise robust
    speech recognition, Speech Communication 25, 1998.

    Examples
    --------
    >>> features = np.array([[[1], [2], [6]]], np.float32)
    >>> Cmvn(norm_vars=False)(features)[0, :, 0]
    array([-2., -1.,  3.], dtype=float32)
    >>> Cmvn(norm_vars=False, window=2, center=True)(features)[0, :, 0]
    array([-0.5,  0.5,  2. ], dtype=float32)
    """

    on_features = True

    norm_vars: bool = parameter(True, Flag())
    over: str = parameter(WINDOW, Choice((WINDOW, CLIP)))
    window: int | None = parameter(None, COUNT)
    min_window: int = parameter(100, COUNT)
    center: bool = parameter(False, Flag())
    floor: float = parameter(1e-10, POSITIVE)

    def check(self) -> None:
        super().check()
        if self.window is not None and self.over != WINDOW:
            raise self.refused("window", f"must not be given with over={self.over!r}")

    @property
    def measures_clips(self) -> bool:
        """Whether a clip must be measured first; see :meth:`measure`."""
        return self.over != WINDOW

    @on_spectra
    def __call__(self, spectra: FloatArray) -> FloatArray:
        _, count, bins = spectra.shape
        out = np.empty(spectra.shape, np.float32)
        for rows, _ in cache_blocks(len(out), 1, max(1, count * bins)):
            x = spectra[rows].astype(np.float64, order="C")
            x -= _mean(x)
            if self.window is not None and count:
                mean, squares = self._sliding_means(x, self.window)
                variance = squares - np.square(mean)
                x -= mean
            elif self.norm_vars:
                variance = _mean(np.square(x))
            if self.norm_vars:
                x /= np.sqrt(np.maximum(variance, self.floor))
            out[rows] = x
        return out

    def _sliding_means(
        self, x: DoubleArray, window: int
    ) -> tuple[DoubleArray, DoubleArray]:
        """Means of features (n, time_frames, bins), and of their squares."""
        starts, stops = _bounds(x.shape[1], window, self.min_window, self.center)
        frames = (stops - starts)[:, np.newaxis]
        mean = _sums(x, starts, stops) / frames
        return mean, _sums(np.square(x), starts, stops) / frames

    @quiet()
    def measure(self, blocks: Iterable[FloatArray]) -> bytes:
        """Measures a clip, for :meth:`of_measured`.

        Parameters
        ----------
        blocks : iterable of numpy.ndarray
            The features of all windows of the clip, in blocks. The result does not
            depend on how the windows are divided into blocks.

        Returns
        -------
        bytes
            The mean, then the standard deviation of each bin (of each channel):
            float64, little-endian.
        """
        count = 0
        for block in blocks:
            features = spectra_of(block, "cmvn").astype(np.float64, order="C")
            if not count:
                # Differences from a value near the mean keep their digits.
                centre = _mean(features[:1])
                total = np.zeros_like(centre)
                squares = np.zeros_like(centre)
            features -= centre
            # One window after the other, whatever block it is in.
            for window in features:
                total += window.sum(axis=-2, keepdims=True)
                squares += np.square(window).sum(axis=-2, keepdims=True)
            count += len(features) * features.shape[-2]
        mean = total / count
        variance = squares / count - np.square(mean)
        std = np.sqrt(np.maximum(variance, self.floor))
        both = (mean + centre, std if self.norm_vars else np.ones_like(mean))
        return b"".join(values.astype("<f8").tobytes() for values in both)

    def of_measured(self, measured: bytes) -> MeasuredCmvn:
        """The step for a clip that was measured."""
        return MeasuredCmvn(measured)


@dataclass(frozen=True)
class MeasuredCmvn:
    """A normalisation whose mean and deviation are known."""

    measured: bytes

    @quiet()
    def __call__(self, features: FloatArray) -> FloatArray:
        features = spectra_of(features, "cmvn")
        shape = (2, *features.shape[1:-2], 1, features.shape[-1])
        mean, std = np.frombuffer(self.measured, "<f8").reshape(shape)
        made: FloatArray = ((features.astype(np.float64) - mean) / std).astype("f4")
        return made


def _mean(x: DoubleArray) -> DoubleArray:
    # Unlike ``x.mean``, this gives NaN without a warning if there are no frames.
    mean: DoubleArray = x.sum(axis=-2, keepdims=True) / x.shape[-2]
    return mean


def _sums(
    x: DoubleArray, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]
) -> DoubleArray:
    """Sums of the frames from each start to its stop, for features (n, t, bins)."""
    running = np.zeros((x.shape[0], x.shape[1] + 1, x.shape[2]))
    np.cumsum(x, axis=1, out=running[:, 1:])
    sums: DoubleArray = running[:, stops] - running[:, starts]
    return sums


@functools.lru_cache(maxsize=32)
def _bounds(
    count: int, window: int, min_window: int, center: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """First frame, and frame after the last one, of the window of each frame."""
    at = np.arange(count)
    if center:
        starts = at - window // 2
        stops = np.maximum(starts, 0) + window
    else:
        starts = at - window
        stops = np.maximum(at + 1, min_window)
    starts = np.maximum(starts, 0)
    beyond = np.maximum(stops - count, 0)
    return np.maximum(starts - beyond, 0), stops - beyond
