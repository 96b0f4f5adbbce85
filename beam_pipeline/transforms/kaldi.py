"""Filter banks as in Kaldi's speech recipes."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # loads its packages when they are used

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import (
    FloatArray,
    as_float32,
    check_choice,
    real,
    whole,
)
from beam_pipeline.transforms.fourier import framed_blocks, time_axis
from beam_pipeline.transforms.mel import (
    DoubleArray,
    check_bands,
    check_bank_size,
    check_no_band_is_empty,
    mel_power,
    triangles,
)
from beam_pipeline.transforms.quiet import quiet

MAX_FRAME_S = 3600.0
# Kaldi's lower limit of energy before the logarithm.
_EPSILON = float(np.finfo(np.float32).eps)
_WINDOWS = ("povey", "hanning", "hamming", "rectangular")


@dataclass(frozen=True, kw_only=True)
class KaldiFbank:
    """Log energies in mel bands, compatible with Kaldi's ``compute-fbank-feats``.

    Each frame of the signal is scaled to the range of 16-bit samples. Then its mean is
    removed, it is pre-emphasised (``y[j] = x[j] - c x[j-1]``, ``y[0] = (1 - c) x[0]``),
    windowed, and filled up with zeros to a power of two. The filters are triangles,
    linear in ``mel(f) = 1127 ln(1 + f / 700)``, with a peak of 1. There is no dither
    here; :class:`.Dither` adds it to the stream of a clip. Windows (n, frames) give (n,
    time_frames, n_mels), windows (n, channels, frames) give (n, channels, time_frames,
    n_mels), in float32.
    ``use_energy`` adds one value to the last axis. Silence gives ``ln(2**-23)``.

    Kaldi's programs compute in float32, as this class does, so the two differ where
    a band holds little but rounding errors. For noise, the largest difference found to
    kaldi-native-fbank is 4e-6 of the largest value; for a pure tone it is 5e-3, and for
    recordings 3e-2, in bands far below the loudest of their frame.

    Attributes
    ----------
    n_mels : int
        Number of bands.
    frame_length_s, frame_shift_s : float
        Length of a frame and step to the next one, in seconds.
    f_min, f_max : float
        Edges of the lowest and of the highest band, in Hz; None: half the rate.
    pre_emphasis : float
        ``c``, 0 to 1.
    window : str
        ``povey`` (Hann to the power of 0.85), ``hanning``, ``hamming`` or
        ``rectangular``; symmetric.
    snip_edges : bool
        Whether frames are entirely within the window. If not, there are
        ``frames / shift`` frames, rounded, and the signal is reflected at its ends.
    remove_dc : bool
        Whether to remove the mean of each frame.
    use_power : bool
        Whether bands sum power; if not, magnitude.
    use_energy : bool
        Whether to put the natural logarithm of the frame's energy before the bands, at
        0 Hz on their axis. The energy is the sum of squares after removing the mean and
        before the pre-emphasis (Kaldi's ``raw_energy``).
    log : bool
        Whether to return the natural logarithm of the bands' energy; if not, the
        energy.
    scale : float
        Factor of the samples.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if a frame is longer than the window
        or shorter than two samples, there is no frame, ``f_max`` exceeds half the
        rate, or a band is empty.

    References
    ----------
    D. Povey et al., The Kaldi Speech Recognition Toolkit, ASRU 2011.

    Examples
    --------
    >>> KaldiFbank()(np.zeros((2, 16000), np.float32), 16000).shape
    (2, 98, 80)
    """

    n_mels: int = 80
    frame_length_s: float = 0.025
    frame_shift_s: float = 0.010
    f_min: float = 20.0
    f_max: float | None = None
    pre_emphasis: float = 0.97
    window: str = "povey"
    snip_edges: bool = True
    remove_dc: bool = True
    use_power: bool = True
    use_energy: bool = False
    log: bool = True
    scale: float = 32768.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_mels", whole("n_mels", self.n_mels))
        check_bands(self.n_mels)
        for name in ("frame_length_s", "frame_shift_s", "f_min", "f_max",
                     "pre_emphasis", "scale"):  # fmt: skip
            if name != "f_max" or self.f_max is not None:
                object.__setattr__(self, name, real(name, getattr(self, name)))
        for name in ("frame_length_s", "frame_shift_s"):
            if not 0 < getattr(self, name) <= MAX_FRAME_S:
                raise RecipeError(
                    name,
                    f"must be positive and at most {MAX_FRAME_S:g} s",
                    getattr(self, name),
                )
        if self.scale <= 0:
            raise RecipeError("scale", "must be positive", self.scale)
        if self.f_min < 0:
            raise RecipeError("f_min", "must not be negative", self.f_min)
        if self.f_max is not None and self.f_max <= self.f_min:
            raise RecipeError(
                "f_max", f"must be above f_min ({self.f_min:g} Hz)", self.f_max
            )
        if not 0 <= self.pre_emphasis <= 1:
            raise RecipeError(
                "pre_emphasis", "must be between 0 and 1", self.pre_emphasis
            )
        check_choice("window", self.window, _WINDOWS)
        for name in ("snip_edges", "remove_dc", "use_power", "use_energy", "log"):
            if not isinstance(getattr(self, name), bool):
                raise RecipeError(name, "must be True or False", getattr(self, name))

    @quiet
    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> FloatArray:
        windows = as_float32(windows)
        frames = windows.shape[-1]
        length, shift, first, count = self._layout(sample_rate_hz, frames)
        n_fft = 1 << (length - 1).bit_length()
        bank = _bank(sample_rate_hz, n_fft, self.n_mels, *self._edges(sample_rate_hz))
        flat = windows.reshape(math.prod(windows.shape[:-1]), frames)
        out = np.empty((len(flat), count, self.use_energy + self.n_mels), np.float32)
        blocks = framed_blocks(flat, count, length, shift, first, "symmetric")
        for block, part in blocks:
            into = out[block]
            tapered = np.zeros((*part.shape[:2], n_fft), np.float32)
            energy = self._taper(part, tapered[..., :length])
            if self.use_energy:
                into[..., 0] = energy
            bands = self._bands(tapered.reshape(-1, n_fft), bank)
            into[..., self.use_energy :] = bands.T.reshape(*part.shape[:2], -1)
        return out.reshape(*windows.shape[:-1], *out.shape[1:])

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """Describes the last two axes; see ``LogMel.axes``."""
        length, shift, first, count = self._layout(sample_rate_hz, frames)
        edges = _band_edges(self.n_mels, *self._edges(sample_rate_hz))
        return [
            time_axis(sample_rate_hz, count, length, shift, first),
            {
                "name": "mel_band",
                "unit": "Hz",
                "size": self.use_energy + self.n_mels,
                "values": [0.0] * self.use_energy + _hz(edges[1:-1]).tolist(),
            },
        ]

    def _layout(self, sample_rate_hz: int, frames: int) -> tuple[int, int, int, int]:
        """(length of a frame, step to the next, start of the first, count)."""
        # Kaldi rounds down to whole samples, in float32.
        length, shift = (
            int(np.float32(sample_rate_hz) * np.float32(1e3 * s) * np.float32(0.001))
            for s in (self.frame_length_s, self.frame_shift_s)
        )
        if length < 2 or shift < 1:
            raise RecipeError(
                "frame_length_s and frame_shift_s",
                f"are {length} and {shift} samples at {sample_rate_hz} Hz, but must be "
                "at least 2 and 1",
                (self.frame_length_s, self.frame_shift_s),
            )
        if length > frames:
            raise RecipeError(
                "frame_length_s",
                f"is {length} samples, but the window has only {frames}",
                self.frame_length_s,
            )
        if self.snip_edges:
            return length, shift, 0, 1 + (frames - length) // shift
        count = (frames + shift // 2) // shift
        if not count:
            raise RecipeError(
                "frame_shift_s",
                f"is {shift} samples, more than twice the window's {frames}, so no "
                "frame has its centre in the window; use a shorter frame_shift_s",
                self.frame_shift_s,
            )
        return length, shift, shift // 2 - length // 2, count

    def _edges(self, sample_rate_hz: int) -> tuple[float, float]:
        nyquist = sample_rate_hz / 2
        f_max = nyquist if self.f_max is None else self.f_max
        if not self.f_min < f_max <= nyquist:
            raise RecipeError(
                "f_max",
                f"must be above f_min ({self.f_min:g} Hz) and at most half the sample "
                f"rate ({nyquist:g} Hz)",
                self.f_max,
            )
        return self.f_min, f_max

    def _taper(self, framed: FloatArray, out: FloatArray) -> FloatArray | None:
        """Scales, removes the mean, pre-emphasises and windows; returns the energy."""
        c = np.float32(self.pre_emphasis)
        # In C order, so that the rounding of sums does not depend on strides.
        frame = np.multiply(framed, np.float32(self.scale), order="C")
        if self.remove_dc:
            frame -= frame.mean(axis=-1, keepdims=True, dtype=np.float64).astype("f4")
        np.multiply(frame[..., :-1], -c, out=out[..., 1:])
        out[..., 1:] += frame[..., 1:]
        np.multiply(frame[..., 0], 1 - c, out=out[..., 0])
        out *= _taper(self.window, frame.shape[-1])
        if not self.use_energy:
            return None
        return _log(np.square(frame, out=frame).sum(axis=-1))

    def _bands(self, tapered: FloatArray, bank: Any) -> FloatArray:
        """Bands (n_mels, f) of frames (f, n_fft)."""
        if self.use_power:
            energy = mel_power(tapered, bank)
        else:
            energy = bank @ np.abs(scipy.fft.rfft(tapered.T, axis=0))
        return _log(energy) if self.log else energy


def _log(energy: FloatArray) -> FloatArray:
    """The natural logarithm of at least Kaldi's least energy; overwrites its input."""
    np.maximum(energy, np.float32(_EPSILON), out=energy)
    return np.log(energy, out=energy)


@functools.lru_cache(maxsize=32)
def _taper(name: str, length: int) -> FloatArray:
    cosine = np.cos(2 * np.pi * np.arange(length) / (length - 1))
    tapers = {
        "povey": (0.5 - 0.5 * cosine) ** 0.85,
        "hanning": 0.5 - 0.5 * cosine,
        "hamming": 0.54 - 0.46 * cosine,
        "rectangular": np.ones(length),
    }
    return tapers[name].astype(np.float32)


def _mel(hz: Any) -> Any:
    return 1127 * np.log1p(np.asarray(hz, np.float64) / 700)


def _hz(mels: DoubleArray) -> DoubleArray:
    hz: DoubleArray = 700 * np.expm1(mels / 1127)
    return hz


def _band_edges(n_mels: int, f_min: float, f_max: float) -> DoubleArray:
    """The edges of the bands in mel; band m has edges m to m + 2."""
    return np.linspace(_mel(f_min), _mel(f_max), n_mels + 2)


@functools.lru_cache(maxsize=32)
def _bank(
    sample_rate_hz: int, n_fft: int, n_mels: int, f_min: float, f_max: float
) -> Any:
    check_bank_size(n_mels, n_fft)
    edges = _band_edges(n_mels, f_min, f_max)
    mels = _mel(np.arange(n_fft // 2 + 1) * (sample_rate_hz / n_fft))
    weights = triangles(mels, edges)
    check_no_band_is_empty(weights, _hz(edges), sample_rate_hz, n_fft, "longer frames")
    return scipy.sparse.csr_array(weights.astype(np.float32))
