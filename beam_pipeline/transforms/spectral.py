"""Spectra of windows, frame by frame."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import (
    FloatArray,
    as_float32,
    check_choice,
    real,
    whole,
)
from beam_pipeline.transforms.mel import (
    cache_blocks,
    hann_window,
    mel_edges,
    mel_power,
    sparse_filter_bank,
)


@dataclass(frozen=True, kw_only=True)
class LogMel:
    """Logarithm of the power in mel bands, frame by frame.

    ::

        S[t, k] = |sum_j hann[j] * x[t * hop + j] * exp(-2i pi j k / n_fft)|**2
        M[t, m] = sum_k bank[m, k] * S[t, k]
        y[t, m] = ln(max(M[t, m], floor))    or    10 log10(max(M[t, m], floor))

    with the periodic Hann window and the bank of ``mel.mel_filter_bank``. Frames lie
    whole within the window (they are not centred, nothing is padded), so that
    ``t = 0 .. (frames - n_fft) // hop``. Windows (n, frames) give
    (n, time_frames, n_mels), windows (n, channels, frames) give
    (n, channels, time_frames, n_mels), in float32.

    Attributes
    ----------
    n_fft, hop : int
        Length of a frame, and from one to the next, in frames of the signal.
    n_mels : int
        Number of bands.
    f_min, f_max : float
        Edges of the lowest and of the highest band, in Hz; None: half the rate.
    floor : float
        The least power; silence gives exactly the logarithm of it.
    log : str
        ``ln`` (nepers of power) or ``db``.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if a frame is longer than the
        window, ``f_max`` exceeds half the rate, or a band is empty.

    Examples
    --------
    >>> LogMel(n_mels=40)(np.zeros((2, 16000), np.float32), 16000).shape
    (2, 59, 40)
    """

    n_fft: int = 1024
    hop: int = 256
    n_mels: int = 64
    f_min: float = 0.0
    f_max: float | None = None
    floor: float = 1e-10
    log: str = "ln"

    def __post_init__(self) -> None:
        for name in ("n_fft", "hop", "n_mels"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        for name in ("f_min", "f_max", "floor"):
            if name != "f_max" or self.f_max is not None:
                object.__setattr__(self, name, real(name, getattr(self, name)))
        if self.f_min < 0:
            raise RecipeError("f_min", "must not be negative", self.f_min)
        if self.f_max is not None and self.f_max <= self.f_min:
            raise RecipeError(
                "f_max", f"must be above f_min, {self.f_min:g} Hz", self.f_max
            )
        if self.floor <= 0:
            raise RecipeError("floor", "must be positive", self.floor)
        check_choice("log", self.log, ("ln", "db"))

    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> FloatArray:
        windows = as_float32(windows)
        frames = windows.shape[-1]
        count = self._time_frames(frames)
        bank = sparse_filter_bank(
            sample_rate_hz, *self._bank_parameters(sample_rate_hz)
        )
        out = np.empty((*windows.shape[:-1], count, self.n_mels), np.float32)
        framed = np.lib.stride_tricks.sliding_window_view(
            windows.reshape(-1, frames), self.n_fft, axis=-1
        )[:, :: self.hop]
        flat_out = out.reshape(-1, count, self.n_mels)

        hann = hann_window(self.n_fft)
        scale = 10 / math.log(10) if self.log == "db" else 1.0
        buffer = np.empty(0, np.float32)
        for block in cache_blocks(len(framed), count, self.n_fft):
            part = framed[block]
            if buffer.size < part.size:
                buffer = np.empty(part.size, np.float32)
            tapered = buffer[: part.size].reshape(part.shape)
            np.multiply(part, hann, out=tapered)
            power = mel_power(tapered.reshape(-1, self.n_fft), bank)
            # The floor after the logarithm: silence is exactly the floor's, however
            # this machine's float32 logarithm rounds.
            with np.errstate(divide="ignore"):
                np.log(power, out=power)
            power *= np.float32(scale)
            np.maximum(power, np.float32(scale * math.log(self.floor)), out=power)
            flat_out[block] = power.T.reshape(*part.shape[:2], self.n_mels)
        return out

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """What the last two axes mean, as JSON values.

        The time of a frame is that of its first sample, in seconds from the start of
        the window: ``start + step * t``; it spans ``length`` seconds from there. The
        frequency of a band is that of its peak.

        Parameters
        ----------
        sample_rate_hz : int
        frames : int
            Length of the window.

        Examples
        --------
        >>> LogMel().axes(16000, 16000)[0]["step"]
        0.016
        """
        _, n_mels, f_min, f_max = self._bank_parameters(sample_rate_hz)
        return [
            {
                "name": "time",
                "unit": "s",
                "size": self._time_frames(frames),
                "start": 0.0,
                "step": self.hop / sample_rate_hz,
                "length": self.n_fft / sample_rate_hz,
            },
            {
                "name": "mel_band",
                "unit": "Hz",
                "size": n_mels,
                "values": mel_edges(n_mels, f_min, f_max)[1:-1].tolist(),
            },
        ]

    def _time_frames(self, frames: int) -> int:
        if self.n_fft > frames:
            raise RecipeError(
                "n_fft", f"must not exceed the window's {frames} frames", self.n_fft
            )
        return 1 + (frames - self.n_fft) // self.hop

    def _bank_parameters(self, sample_rate_hz: int) -> tuple[int, int, float, float]:
        f_max = sample_rate_hz / 2 if self.f_max is None else self.f_max
        return self.n_fft, self.n_mels, self.f_min, f_max
