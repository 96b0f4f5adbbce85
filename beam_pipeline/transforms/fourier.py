"""Fourier transforms of whole windows, or frame by frame."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy  # loads its packages when they are used

from beam_pipeline.errors import RecipeError
from beam_pipeline.parameters import Choice, Flag, parameter
from beam_pipeline.transforms.base import (
    COUNT,
    POSITIVE,
    Array,
    DoubleArray,
    FloatArray,
    Step,
    quiet,
)
from beam_pipeline.transforms.frames import (
    FFT_SIZE,
    PAD_MODE,
    CentredFrames,
    axis,
    cache_blocks,
    joined,
    signals_of,
)

# Framed samples in a block. Larger than the cache: whole spectra leave it anyway.
SPECTRUM_SAMPLES = 1 << 20

# Coefficients of a sum of cosines, a[0] - a[1] cos(w) + a[2] cos(2 w).
_COSINES = {
    "hann": (0.5, 0.5),
    "hamming": (0.54, 0.46),
    "blackman": (0.42, 0.5, 0.08),
    "rectangular": (1.0,),
}


@functools.lru_cache(maxsize=64)
def taper_of(name: str, length: int, n_fft: int) -> FloatArray:
    """A periodic window (taper) of a length, in the middle of ``n_fft`` zeros.

    ::

        w[j] = a[0] - a[1] cos(2 pi j / length) + a[2] cos(4 pi j / length)
    """
    angle = 2 * np.pi * np.arange(length) / length
    taper = sum((-1) ** k * a * np.cos(k * angle) for k, a in enumerate(_COSINES[name]))
    before = (n_fft - length) // 2
    padded = np.zeros(n_fft, np.float32)
    padded[before : before + length] = taper
    padded.flags.writeable = False
    return padded


def frequency_axis(sample_rate_hz: int, n_fft: int) -> dict[str, Any]:
    """The axis of the bins of a one-sided FFT."""
    return axis("frequency", "Hz", n_fft // 2 + 1, 0.0, sample_rate_hz / n_fft)


def as_kind(spectrum: npt.NDArray[np.complex64], kind: str, floor: float) -> Array:
    """A spectrum, or its magnitude, power, or power in dB; may overwrite its input."""
    if kind == "complex":
        return spectrum
    if kind == "magnitude":
        magnitude: FloatArray = np.abs(spectrum)
        return magnitude
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


@dataclass(frozen=True, kw_only=True)
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

    @quiet
    def __call__(self, windows: FloatArray) -> Array:
        flat = signals_of(windows)
        n_fft = self.length_for(flat.shape[-1])
        shape = (len(flat), 1, n_fft // 2 + 1)
        blocks = cache_blocks(len(flat), 1, n_fft, SPECTRUM_SAMPLES)
        parts = ((block, flat[block[0], np.newaxis]) for block in blocks)
        return joined(windows, _spectra(parts, shape, n_fft, self.kind, 0.0)[:, 0])

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


@dataclass(frozen=True, kw_only=True)
class Stft(CentredFrames):
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

    win_length: int | None = parameter(None, COUNT)
    window: str = parameter("hann", Choice(tuple(_COSINES)))
    center: bool = parameter(False, Flag())
    pad_mode: str = parameter("constant", PAD_MODE)
    kind: str = parameter("complex", Choice(("complex", "magnitude", "power", "db")))
    floor: float = parameter(1e-10, POSITIVE)

    def check(self) -> None:
        if self.win_length is not None and self.win_length > self.n_fft:
            raise RecipeError(
                "win_length", f"must not exceed n_fft ({self.n_fft})", self.win_length
            )

    @quiet
    def __call__(self, windows: FloatArray) -> Array:
        flat = signals_of(windows)
        frames = self.frames(flat.shape[-1])
        taper = taper_of(self.window, self.win_length or self.n_fft, self.n_fft)
        shape = (len(flat), frames.count, self.n_fft // 2 + 1)
        blocks = frames.blocks(flat, samples=SPECTRUM_SAMPLES)
        parts = ((block, part * taper) for block, part in blocks)
        spectra = _spectra(parts, shape, self.n_fft, self.kind, self.floor)
        return joined(windows, spectra)

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """Describes the last two axes, as JSON values.

        A frame begins at ``start + step * t`` seconds from the start of the window and
        lasts ``length``; a bin's frequency is ``start + step * k``.
        """
        frequency = frequency_axis(sample_rate_hz, self.n_fft)
        return [*super().axes(sample_rate_hz, frames), frequency]


def _spectra(
    parts: Iterable[tuple[Any, FloatArray]],
    shape: tuple[int, ...],
    n_fft: int,
    kind: str,
    floor: float,
) -> Array:
    """The spectra of a shape, whose blocks come one after another; see as_kind."""
    dtype = np.complex64 if kind == "complex" else np.float32
    out: Array = np.empty(shape, dtype)
    for block, part in parts:
        made = as_kind(scipy.fft.rfft(part, n_fft), kind, floor)
        if made.shape == shape:
            return made  # a single block needs no copy
        out[block] = made
    return out


@functools.lru_cache(maxsize=32)
def exact_hann(n_fft: int) -> DoubleArray:
    hann: DoubleArray = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n_fft) / n_fft)
    return hann


@functools.lru_cache(maxsize=32)
def hann_window(n_fft: int) -> FloatArray:
    return exact_hann(n_fft).astype(np.float32)
