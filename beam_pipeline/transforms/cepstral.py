"""Cepstra, and what else is made of mel spectra as they go on in time."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import FloatArray, as_float32, real, whole
from beam_pipeline.transforms.framewise import (
    MelFrames,
    frames_of,
    signals_of,
    stretches,
    time_frames,
)
from beam_pipeline.transforms.mel import cache_blocks, hann_window, mel_power
from beam_pipeline.transforms.quiet import quiet

_MAX_WIDTH = 999
_MAX_ORDER = 4


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
    ``10 log10(floor) * sqrt(n_mels)`` in coefficient 0, and 0 in the others but for
    rounding.

    As librosa's ``mfcc(S=10 * log10(maximum(M, floor)))`` (largest difference found:
    1e-6 of the largest coefficient; of recordings with bands that hold next to nothing
    5e-5, and 3e-4 of a pure tone). Given a signal instead, librosa raises levels
    80 dB below the loudest of the whole array to that. Kaldi and HTK take the natural
    logarithm, other bands, and another lifter.

    Attributes
    ----------
    n_mfcc : int
        Number of coefficients, from 0 on; at most ``n_mels``.
    n_fft, hop : int
        Length of a frame, and from one to the next, in frames of the signal.
    n_mels : int
        Number of bands.
    f_min, f_max : float
        Edges of the lowest and of the highest band, in Hz; None: half the rate.
    floor : float
        The least power.
    lifter : float
        Length of the sine that weights the coefficients, as HTK's; 0: none.

    Raises
    ------
    RecipeError
        If a value is out of its range, and as :class:`LogMel` does.

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

    n_mfcc: int = 20
    floor: float = 1e-10
    lifter: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "n_mfcc", whole("n_mfcc", self.n_mfcc))
        object.__setattr__(self, "lifter", real("lifter", self.lifter))
        if self.n_mfcc > self.n_mels:
            raise RecipeError(
                "n_mfcc", f"must not exceed n_mels, {self.n_mels}", self.n_mfcc
            )
        if self.lifter < 0:
            raise RecipeError("lifter", "must not be negative", self.lifter)

    @quiet
    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> FloatArray:
        flat = signals_of(windows)
        count = time_frames(flat.shape[-1], "n_fft", self.n_fft, self.hop)
        log_mel = self.log_mel()
        cosines = _cosines(self.n_mfcc, self.n_mels, self.lifter)
        out = np.empty((len(flat), count, self.n_mfcc), np.float32)
        for slices, samples in stretches(flat, count, self.n_fft, self.hop):
            # One product for each window: its shape is that of a window.
            np.matmul(log_mel(samples, sample_rate_hz), cosines, out=out[slices])
        return out.reshape(*windows.shape[:-1], count, self.n_mfcc)

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """What the last two axes mean; time as ``LogMel.axes`` tells it."""
        coefficients = {
            "name": "cepstral_coefficient",
            "unit": "1",
            "size": self.n_mfcc,
            "start": 0.0,
            "step": 1.0,
        }
        return [super().axes(sample_rate_hz, frames)[0], coefficients]


@dataclass(frozen=True, kw_only=True)
class Pcen(MelFrames):
    """Mel power with per-channel energy normalization.

    ::

        E[t, m] = scale * M[t, m]
        A[t, m] = (1 - b) A[t - 1, m] + b E[t, m],   A[-1, m] = 1
        y[t, m] = (E[t, m] / (eps + A[t, m])**gain + bias)**power - bias**power
        b = (sqrt(1 + 4 T**2) - 1) / (2 T**2),   T = time_constant_s * rate / hop

    with the mel power ``M`` of :class:`LogMel`. Each window begins anew. Windows
    (n, frames) give (n, time_frames, n_mels), windows (n, channels, frames) give
    (n, channels, time_frames, n_mels), in float32. Silence gives 0.

    As librosa's ``pcen(scale * M)``, in ``b`` and in the first ``A`` as well (largest
    difference found: 1e-7 relative). With librosa's own ``M``, whose FFT is in float64,
    the largest one is 3e-4 in bands of at least 1e-8 of the frame's loudest. Fainter
    ones have ever less to do with the sound: what rounding has left in them is brought
    up as any level is, to 1e-2 of the largest value beside a tone without any noise,
    where they are 1e-14 of it. The defaults are librosa's. They
    suit power of a large scale: its documentation takes this one for samples within 1.

    Attributes
    ----------
    n_fft, hop : int
        Length of a frame, and from one to the next, in frames of the signal.
    n_mels : int
        Number of bands.
    f_min, f_max : float
        Edges of the lowest and of the highest band, in Hz; None: half the rate.
    scale : float
        Factor of the power, above 0 and at most 1e30.
    gain : float
        Exponent of the smooth level that divides, 0 (none) to 1 (all of it).
    bias : float
        What is added before the root, 0 to 1e30.
    power : float
        Exponent of the root, above 0 and at most 1.
    time_constant_s : float
        Of the smooth level, above 0.
    eps : float
        The least level that divides, 1e-30 to 1e30.

    Raises
    ------
    RecipeError
        If a value is out of its range, and as :class:`LogMel` does.

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

    scale: float = 2.0**31
    gain: float = 0.98
    bias: float = 2.0
    power: float = 0.5
    time_constant_s: float = 0.4
    eps: float = 1e-6

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, least, most in (
            ("scale", 1e-30, 1e30),
            ("gain", 0.0, 1.0),
            ("bias", 0.0, 1e30),
            ("power", 1e-3, 1.0),
            ("time_constant_s", 1e-6, 1e6),
            ("eps", 1e-30, 1e30),
        ):
            value = real(name, getattr(self, name))
            if not least <= value <= most:
                raise RecipeError(
                    name, f"must lie between {least:g} and {most:g}", value
                )
            object.__setattr__(self, name, value)

    @quiet
    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> FloatArray:
        flat = signals_of(windows)
        count = time_frames(flat.shape[-1], "n_fft", self.n_fft, self.hop)
        bank = self.bank(sample_rate_hz)
        share = smoothing_share(self.time_constant_s * sample_rate_hz / self.hop)
        out = np.empty((len(flat), count, self.n_mels), np.float32)
        last = np.ones(self.n_mels)
        for (rows, times), samples in stretches(flat, count, self.n_fft, self.hop):
            power = self._mel_power(samples, bank)
            energy = np.multiply(power, self.scale, dtype=np.float64)
            level = smooth(energy, share, last if times.start else np.ones(self.n_mels))
            last = level[:, -1].copy()
            out[rows, times] = self._compress(energy, level)
        return out.reshape(*windows.shape[:-1], count, self.n_mels)

    def _mel_power(self, samples: FloatArray, bank: Any) -> FloatArray:
        """Mel power (n, time_frames, n_mels) of samples (n, frames)."""
        framed = frames_of(samples, self.n_fft, self.hop)
        hann = hann_window(self.n_fft)
        out = np.empty((*framed.shape[:2], self.n_mels), np.float32)
        for block in cache_blocks(*framed.shape):
            tapered = np.multiply(framed[block], hann, order="C")
            power = mel_power(tapered.reshape(-1, self.n_fft), bank)
            out[block] = power.T.reshape(*tapered.shape[:2], self.n_mels)
        return out

    def _compress(
        self, energy: npt.NDArray[np.float64], level: npt.NDArray[np.float64]
    ) -> npt.NDArray[np.float64]:
        """The gain and the root; overwrites both arguments."""
        level += self.eps
        np.log(level, out=level)
        level *= -self.gain
        energy *= np.exp(level, out=level)
        if self.bias == 0:
            return np.power(energy, self.power, out=energy)
        # Exact where the energy is far below the bias, too.
        energy /= self.bias
        np.log1p(energy, out=energy)
        energy *= self.power
        np.expm1(energy, out=energy)
        energy *= self.bias**self.power
        return energy


@dataclass(frozen=True, kw_only=True)
class Delta:
    """Slopes of features in time: a step after one that gives (time_frames, bins).

    ::

        y[t] = sum_(k = 1 .. h) k (x[t + k] - x[t - k]) / (2 sum_(k = 1 .. h) k**2)

    for ``order=1``, with ``h = (width - 1) / 2``: the slope, in units a frame, of the
    line that is nearest to ``width`` frames in the sense of least squares. For a higher
    order, it is that derivative of the polynomial of that degree. The first ``h``
    frames and the last ``h`` have the value of the nearest frame that has ``h`` on both
    sides. The shape (n, [channels,] time_frames, bins) stays as it is; float32. What is
    constant in time gives 0, silence too.

    As librosa's ``delta(mode="interp")`` of float64 (largest difference found: 2e-7 of
    the largest value; of float32, its own fit at the edges is 7e-6 off).

    Attributes
    ----------
    width : int
        Number of frames, odd, 3 to 999, and not more than the features have.
    order : int
        1 for slopes, 2 for how these change; up to 4, and below ``width``.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if the features have fewer frames, or
        no axis of time and another one after it.

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

    width: int = 9
    order: int = 1

    def __post_init__(self) -> None:
        for name in ("width", "order"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        if not 3 <= self.width <= _MAX_WIDTH or self.width % 2 == 0:
            raise RecipeError(
                "width", f"must be odd, from 3 to {_MAX_WIDTH}", self.width
            )
        if self.order > min(_MAX_ORDER, self.width - 1):
            raise RecipeError(
                "order", f"must be at most {_MAX_ORDER} and below width", self.order
            )

    @quiet
    def __call__(self, features: FloatArray) -> FloatArray:
        features = as_float32(features)
        if features.ndim < 3:
            raise RecipeError(
                "feature",
                "delta must follow a step that gives spectra, like mfcc|delta",
                features.shape,
            )
        count, bins = features.shape[-2:]
        if self.width > count:
            raise RecipeError(
                "width", f"must not exceed the features' {count} frames", self.width
            )
        weights = _slope_weights(self.width, self.order)
        half = len(weights) - 1
        flat = features.reshape(math.prod(features.shape[:-2]), count, bins)
        out = np.empty(flat.shape, np.float32)
        inner = out[:, half : count - half]
        for rows, times in cache_blocks(len(flat), inner.shape[1], max(1, bins)):
            stop = min(times.stop, inner.shape[1]) + 2 * half
            around = flat[rows, times.start : stop].astype(np.float64)
            inner[rows, times] = _slopes(around, weights, odd=self.order % 2 == 1)
        out[:, :half] = inner[:, :1]
        out[:, count - half :] = inner[:, -1:]
        return out.reshape(features.shape)


def smoothing_share(time_constant: float) -> float:
    """The share of a new frame in a smooth level, for a time constant in frames."""
    # For small shares the difference in the numerator would lose its digits.
    return 2 / (1 + math.sqrt(1 + 4 * time_constant**2))


def smooth(
    energy: npt.NDArray[np.float64], share: float, before: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """First-order recursive mean over time, of energy (n, time_frames, bins)."""
    level = energy * share
    for frame in level.swapaxes(0, 1):
        frame += before * (1 - share)
        before = frame
    return level


@functools.lru_cache(maxsize=32)
def _cosines(n_mfcc: int, n_mels: int, lifter: float) -> FloatArray:
    """The DCT's matrix (n_mels, n_mfcc), lifted."""
    q = np.arange(n_mfcc)
    m = np.arange(n_mels)[:, np.newaxis]
    cosines = np.cos(np.pi * q * (2 * m + 1) / (2 * n_mels)) * math.sqrt(2 / n_mels)
    cosines[:, 0] = math.sqrt(1 / n_mels)
    if lifter:
        cosines *= 1 + lifter / 2 * np.sin(np.pi * (q + 1) / lifter)
    return cosines.astype(np.float32)


@functools.lru_cache(maxsize=32)
def _slope_weights(width: int, order: int) -> tuple[float, ...]:
    """Weights of the frames 0 .. h after the one in the middle.

    Those of the frames before it are the same, with the other sign for odd orders.
    """
    half = width // 2
    # Of powers of k / h, whose size stays within 1.
    powers = np.vander(np.arange(-half, half + 1) / half, order + 1, increasing=True)
    weights = np.linalg.pinv(powers)[order] * (math.factorial(order) / half**order)
    return tuple(weights[half:].tolist())


def _slopes(
    around: npt.NDArray[np.float64], weights: tuple[float, ...], *, odd: bool
) -> npt.NDArray[np.float64]:
    """Of (n, t + 2 h, bins), where t frames have h on both sides, to (n, t, bins)."""
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
