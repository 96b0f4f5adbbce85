"""Power in mel bands, frame by frame, and its logarithm."""

from __future__ import annotations

import math
from collections.abc import Iterator
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
from beam_pipeline.transforms.fourier import (
    centred_frames,
    check_centring,
    first_frame,
    framed_blocks,
    time_axis,
)
from beam_pipeline.transforms.mel import (
    check_bands,
    hann_window,
    mel_edges,
    mel_power,
    sparse_filter_bank,
)
from beam_pipeline.transforms.quiet import quiet


@dataclass(frozen=True, kw_only=True)
class _MelBands:
    """Parameters of mel bands; see :class:`LogMel`."""

    n_fft: int = 1024
    hop: int = 256
    n_mels: int = 64
    f_min: float = 0.0
    f_max: float | None = None
    center: bool = False
    pad_mode: str = "constant"
    mel_scale: str = "slaney"
    norm: str = "slaney"

    def __post_init__(self) -> None:
        for name in ("n_fft", "hop", "n_mels"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        check_bands(self.n_mels)
        for name in ("f_min", "f_max"):
            if name != "f_max" or self.f_max is not None:
                object.__setattr__(self, name, real(name, getattr(self, name)))
        if self.f_min < 0:
            raise RecipeError("f_min", "must not be negative", self.f_min)
        if self.f_max is not None and self.f_max <= self.f_min:
            raise RecipeError(
                "f_max", f"must be above f_min ({self.f_min:g} Hz)", self.f_max
            )
        check_centring(self.center, self.pad_mode)
        check_choice("mel_scale", self.mel_scale, ("slaney", "htk"))
        check_choice("norm", self.norm, ("slaney", "none"))

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """Describes the last two axes, as JSON values.

        Frame t begins at ``start + step * t`` seconds from the start of the window and
        lasts ``length`` seconds. The frequency of a band is that of its peak.

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
        f_max = self._f_max(sample_rate_hz)
        edges = mel_edges(self.n_mels, self.f_min, f_max, self.mel_scale)
        return [
            time_axis(
                sample_rate_hz, self._count(frames), self.n_fft, self.hop,
                first_frame(self.n_fft, self.center),
            ),
            {
                "name": "mel_band",
                "unit": "Hz",
                "size": self.n_mels,
                "values": edges[1:-1].tolist(),
            },
        ]  # fmt: skip

    def _count(self, frames: int) -> int:
        return centred_frames(frames, self.n_fft, self.hop, self.center, self.pad_mode)

    def _f_max(self, sample_rate_hz: int) -> float:
        return sample_rate_hz / 2 if self.f_max is None else self.f_max

    def _features(self, windows: FloatArray, sample_rate_hz: int) -> FloatArray:
        """The bands' power, scaled by :meth:`_scale`."""
        windows = as_float32(windows)
        frames = windows.shape[-1]
        count = self._count(frames)
        out = np.empty((*windows.shape[:-1], count, self.n_mels), np.float32)
        flat_out = out.reshape(-1, count, self.n_mels)
        flat = windows.reshape(math.prod(windows.shape[:-1]), frames)
        for block, power in self._powers(flat, count, sample_rate_hz):
            self._scale(power)
            into = flat_out[block]
            into[...] = power.T.reshape(into.shape)
        return out

    def _powers(
        self, flat: FloatArray, count: int, sample_rate_hz: int
    ) -> Iterator[tuple[tuple[slice, slice], FloatArray]]:
        """Yields blocks of windows and frames with their power (n_mels, frames)."""
        bank = sparse_filter_bank(
            sample_rate_hz,
            self.n_fft,
            self.n_mels,
            self.f_min,
            self._f_max(sample_rate_hz),
            self.mel_scale,
            self.norm,
        )
        hann = hann_window(self.n_fft)
        first = first_frame(self.n_fft, self.center)
        buffer = np.empty(0, np.float32)
        blocks = framed_blocks(flat, count, self.n_fft, self.hop, first, self.pad_mode)
        for block, part in blocks:
            if buffer.size < part.size:
                buffer = np.empty(part.size, np.float32)
            tapered = buffer[: part.size].reshape(part.shape)
            np.multiply(part, hann, out=tapered)
            yield block, mel_power(tapered.reshape(-1, self.n_fft), bank)

    def _scale(self, power: FloatArray) -> None:
        """Turns power into the feature, in place."""


@dataclass(frozen=True, kw_only=True)
class Mel(_MelBands):
    """Power in mel bands, frame by frame: ``M`` of :class:`LogMel`.

    Silence gives zeros.

    Examples
    --------
    >>> Mel(n_mels=40)(np.zeros((2, 16000), np.float32), 16000).shape
    (2, 59, 40)
    """

    @quiet
    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> FloatArray:
        return self._features(windows, sample_rate_hz)


@dataclass(frozen=True, kw_only=True)
class LogMel(_MelBands):
    """Logarithm of the power in mel bands, frame by frame.

    ::

        S[t, k] = |sum_j hann[j] * x[t * hop + j] * exp(-2i pi j k / n_fft)|**2
        M[t, m] = sum_k bank[m, k] * S[t, k]
        y[t, m] = ln(max(M[t, m], floor))    or    10 log10(max(M[t, m], floor))

    with the periodic Hann window and the bank of ``mel.mel_filter_bank``. Frames are
    entirely within the window, ``t = 0 .. (frames - n_fft) // hop``, or centred.
    Windows (n, frames) give (n, time_frames, n_mels), windows (n, channels, frames)
    give (n, channels, time_frames, n_mels), in float32.

    The definition is that of librosa's melspectrogram and power_to_db without top_db.
    librosa transforms in float64, this class in float32. The rounding of float32 is
    about 1e-7 of a frame's loudest amplitude in all bands. Bands within 40 dB of the
    loudest differ by at most 7e-6 of their power; bands 100 dB below a clean tone, by a
    few dB. The largest difference found in real recordings is 0.14 dB.

    Attributes
    ----------
    n_fft, hop : int
        Length of a frame and step to the next one, in frames of the signal.
    n_mels : int
        Number of bands.
    f_min, f_max : float
        Edges of the lowest and of the highest band, in Hz; None: half the rate.
    center : bool
        Whether ``t * hop`` is the middle of a frame; if not, its first sample.
    pad_mode : str
        Values beyond the ends then: ``constant`` (zeros), ``reflect`` or ``edge``.
    mel_scale, norm : str
        Parameters of the bank: ``slaney`` or ``htk``; ``slaney`` (equal areas) or
        ``none`` (peaks of 1).
    floor : float
        The least power; silence gives exactly its logarithm.
    log : str
        ``ln`` (nepers of power) or ``db``.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if frames are not centred and longer
        than the window, the window is too short to be reflected, ``f_max`` exceeds half
        the rate, or a band is empty.

    Examples
    --------
    >>> LogMel(n_mels=40)(np.zeros((2, 16000), np.float32), 16000).shape
    (2, 59, 40)
    """

    floor: float = 1e-10
    log: str = "ln"

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "floor", real("floor", self.floor))
        if self.floor <= 0:
            raise RecipeError("floor", "must be positive", self.floor)
        check_choice("log", self.log, ("ln", "db"))

    @quiet
    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> FloatArray:
        return self._features(windows, sample_rate_hz)

    def _scale(self, power: FloatArray) -> None:
        scale = 10 / math.log(10) if self.log == "db" else 1.0
        # The floor comes after the logarithm: silence gives exactly its logarithm,
        # however the float32 logarithm of this machine rounds.
        with np.errstate(divide="ignore"):
            np.log(power, out=power)
        power *= np.float32(scale)
        np.maximum(power, np.float32(scale * math.log(self.floor)), out=power)
