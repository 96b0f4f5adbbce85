"""Filter banks as Kaldi's speech recipes have them."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.fft
import scipy.sparse

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import (
    FloatArray,
    as_float32,
    check_choice,
    real,
    whole,
)
from beam_pipeline.transforms.mel import cache_blocks, mel_power

MAX_MELS = 4096
# Kaldi's least energy, before the logarithm.
_EPSILON = float(np.finfo(np.float32).eps)
_WINDOWS = ("povey", "hanning", "hamming", "rectangular")


@dataclass(frozen=True, kw_only=True)
class KaldiFbank:
    """Log energies in mel bands, compatible with Kaldi's ``compute-fbank-feats``.

    Each frame of the signal, scaled to the range of 16-bit samples, loses its mean, is
    pre-emphasised (``y[j] = x[j] - c x[j-1]``, ``y[0] = (1 - c) x[0]``), windowed, and
    filled up with zeros to a power of two. Triangles are linear in
    ``mel(f) = 1127 ln(1 + f / 700)``, have a peak of 1, and leave the bin at half the
    rate out. There is no dither, so the features repeat. Windows (n, frames) give
    (n, time_frames, n_mels); silence gives ``ln(2**-23)``.

    Within 1e-5 of kaldi-native-fbank's, relative to the largest value of the window.

    Attributes
    ----------
    n_mels : int
        Number of bands.
    frame_length_s, frame_shift_s : float
        Length of a frame, and from one to the next.
    f_min, f_max : float
        Edges of the lowest and of the highest band, in Hz; None: half the rate.
    pre_emphasis : float
        ``c``, 0 to 1.
    window : str
        ``povey`` (Hann to the power of 0.85), ``hanning``, ``hamming`` or
        ``rectangular``; symmetric.
    snip_edges : bool
        Frames lie whole within the window; else they are centred on multiples of the
        shift, there are ``frames / shift`` of them, rounded, and the signal is
        reflected at its ends.
    remove_dc : bool
        Whether each frame loses its mean.
    use_power : bool
        Power, not magnitude.
    log : bool
        The natural logarithm; else the energy itself.
    scale : float
        What samples are multiplied by.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if a frame is longer than the window
        or shorter than two samples, ``f_max`` exceeds half the rate, or a band is
        empty.

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
    log: bool = True
    scale: float = 32768.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_mels", whole("n_mels", self.n_mels))
        if self.n_mels > MAX_MELS:
            raise RecipeError("n_mels", f"must be at most {MAX_MELS}", self.n_mels)
        for name in ("frame_length_s", "frame_shift_s", "f_min", "f_max",
                     "pre_emphasis", "scale"):  # fmt: skip
            if name != "f_max" or self.f_max is not None:
                object.__setattr__(self, name, real(name, getattr(self, name)))
        for name in ("frame_length_s", "frame_shift_s", "scale"):
            if getattr(self, name) <= 0:
                raise RecipeError(name, "must be positive", getattr(self, name))
        if self.f_min < 0:
            raise RecipeError("f_min", "must not be negative", self.f_min)
        if not 0 <= self.pre_emphasis <= 1:
            raise RecipeError("pre_emphasis", "must be 0 to 1", self.pre_emphasis)
        check_choice("window", self.window, _WINDOWS)
        for name in ("snip_edges", "remove_dc", "use_power", "log"):
            if not isinstance(getattr(self, name), bool):
                raise RecipeError(name, "must be True or False", getattr(self, name))

    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> FloatArray:
        windows = as_float32(windows)
        frames = windows.shape[-1]
        length, shift, count = self._layout(sample_rate_hz, frames)
        n_fft = 1 << (length - 1).bit_length()
        bank = _bank(sample_rate_hz, n_fft, self.n_mels, *self._edges(sample_rate_hz))
        flat = windows.reshape(math.prod(windows.shape[:-1]), frames)
        out = np.empty((len(flat), count, self.n_mels), np.float32)
        for rows, times in cache_blocks(len(flat), count, n_fft):
            framed = self._framed(flat[rows], length, shift, count)[:, times]
            tapered = np.zeros((*framed.shape[:2], n_fft), np.float32)
            self._taper(framed, tapered[..., :length])
            energy = self._energy(tapered.reshape(-1, n_fft), bank)
            out[rows, times] = energy.T.reshape(*framed.shape[:2], self.n_mels)
        return out.reshape(*windows.shape[:-1], count, self.n_mels)

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """What the last two axes mean, as ``LogMel.axes`` tells it."""
        length, shift, count = self._layout(sample_rate_hz, frames)
        edges = _band_edges(self.n_mels, *self._edges(sample_rate_hz))
        start = 0.0 if self.snip_edges else (shift - length) / 2 / sample_rate_hz
        return [
            {
                "name": "time",
                "unit": "s",
                "size": count,
                "start": start,
                "step": shift / sample_rate_hz,
                "length": length / sample_rate_hz,
            },
            {
                "name": "mel_band",
                "unit": "Hz",
                "size": self.n_mels,
                "values": (700 * np.expm1(edges[1:-1] / 1127)).tolist(),
            },
        ]

    def _layout(self, sample_rate_hz: int, frames: int) -> tuple[int, int, int]:
        """(length of a frame, from one to the next, number of them)."""
        # Kaldi cuts off what is no whole sample, in float32.
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
                f"is {length} frames, but the window has only {frames}",
                self.frame_length_s,
            )
        if self.snip_edges:
            return length, shift, 1 + (frames - length) // shift
        return length, shift, (frames + shift // 2) // shift

    def _edges(self, sample_rate_hz: int) -> tuple[float, float]:
        nyquist = sample_rate_hz / 2
        f_max = nyquist if self.f_max is None else self.f_max
        if not self.f_min < f_max <= nyquist:
            raise RecipeError(
                "f_max",
                f"must lie between f_min, {self.f_min:g} Hz, and {nyquist:g} Hz, half "
                f"the sample rate",
                self.f_max,
            )
        return self.f_min, f_max

    def _framed(
        self, flat: FloatArray, length: int, shift: int, count: int
    ) -> npt.NDArray[np.float32]:
        """A view (signals, time_frames, length)."""
        if not self.snip_edges:
            before = length // 2 - shift // 2
            after = (count - 1) * shift - before + length - flat.shape[1]
            # Kaldi's reflection repeats the sample at the end.
            pads = [(0, 0), (max(before, 0), max(after, 0))]
            flat = np.pad(flat, pads, mode="symmetric")[:, max(-before, 0) :]
        views = np.lib.stride_tricks.sliding_window_view(flat, length, axis=-1)
        return views[:, : (count - 1) * shift + 1 : shift]

    def _taper(self, framed: FloatArray, out: FloatArray) -> None:
        """Scales, removes the mean, pre-emphasises and windows."""
        taper = _taper(self.window, framed.shape[-1])
        c = np.float32(self.pre_emphasis)
        frame = framed * np.float32(self.scale)
        if self.remove_dc:
            frame -= frame.mean(axis=-1, keepdims=True, dtype=np.float64).astype("f4")
        np.multiply(frame[..., :-1], -c, out=out[..., 1:])
        out[..., 1:] += frame[..., 1:]
        np.multiply(frame[..., 0], 1 - c, out=out[..., 0])
        out *= taper

    def _energy(self, tapered: FloatArray, bank: Any) -> FloatArray:
        if self.use_power:
            energy = mel_power(tapered, bank)
        else:
            spectrum = np.abs(scipy.fft.rfft(tapered.T, axis=0))
            energy = bank @ spectrum
        if self.log:
            np.maximum(energy, np.float32(_EPSILON), out=energy)
            np.log(energy, out=energy)
        return energy


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


def _band_edges(n_mels: int, f_min: float, f_max: float) -> npt.NDArray[np.float64]:
    """The bands' edges in mel; band m spans three of them, m to m + 2."""
    return np.linspace(_mel(f_min), _mel(f_max), n_mels + 2)


@functools.lru_cache(maxsize=32)
def _bank(
    sample_rate_hz: int, n_fft: int, n_mels: int, f_min: float, f_max: float
) -> Any:
    edges = _band_edges(n_mels, f_min, f_max)
    mels = _mel(np.arange(n_fft // 2 + 1) * (sample_rate_hz / n_fft))
    low, centre, high = (edges[i : i + n_mels, np.newaxis] for i in range(3))
    rise, fall = (mels - low) / (centre - low), (high - mels) / (high - centre)
    triangles = np.maximum(0, np.minimum(rise, fall))
    triangles[:, -1] = 0
    empty = np.flatnonzero(triangles.max(axis=1) < 1e-9)
    if empty.size:
        raise RecipeError(
            "n_mels",
            f"leaves {empty.size} bands without a bin of the FFT of {n_fft}; use fewer "
            "bands or longer frames",
            n_mels,
        )
    return scipy.sparse.csr_array(triangles.astype(np.float32))
