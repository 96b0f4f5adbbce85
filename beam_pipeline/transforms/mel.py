"""Power in mel bands, frame by frame: banks, their products with spectra, and Kaldi's.

The bank of Kaldi differs from the others: its triangles are linear in mel, not in Hz.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # loads its packages when they are used

from beam_pipeline.errors import RecipeError
from beam_pipeline.parameters import (
    Choice,
    Flag,
    Number,
    WholeNumber,
    parameter,
)
from beam_pipeline.transforms.base import (
    POSITIVE,
    SHARE,
    DoubleArray,
    FloatArray,
    Step,
)
from beam_pipeline.transforms.frames import (
    PAD_MODE,
    Frames,
    SpectrumFrames,
    axis_at,
    gathered,
    hann_window,
    on_signals,
    to_levels,
)

# A typo must not request gigabytes of features.
BANDS = WholeNumber(1, 4096)
HERTZ = Number(0.0)
# The most weights of a bank before it becomes sparse. Each step of building it needs
# 80 MB for this number.
MAX_WEIGHTS = 10**7


def mel_filter_bank(
    sample_rate_hz: int,
    n_fft: int,
    n_mels: int,
    f_min: float,
    f_max: float,
    scale: str = "slaney",
    norm: str = "slaney",
) -> FloatArray:
    """Triangular mel filters over the bins of a real FFT.

    ::

        slaney    mel(f) = 3 f / 200                          below 1000 Hz
                  mel(f) = 15 + 27 log(f / 1000) / log(6.4)   from 1000 Hz
        htk       mel(f) = 2595 log10(1 + f / 700)

    Edges ``e[0 .. n_mels + 1]`` are evenly spaced in mel from ``f_min`` to ``f_max``.
    Filter ``m`` rises linearly in Hz from ``e[m]`` to ``e[m + 1]`` and falls to
    ``e[m + 2]``. Its peak is ``2 / (e[m + 2] - e[m])``, so that all filters have the
    same area; with ``norm="none"`` it is 1.

    Parameters
    ----------
    sample_rate_hz : int
    n_fft, n_mels : int
        Length of the FFT; number of filters.
    f_min, f_max : float
        First and last edge in Hz.
    scale, norm : str
        ``slaney`` or ``htk``; ``slaney`` or ``none``.

    Returns
    -------
    numpy.ndarray, shape (n_mels, n_fft // 2 + 1), float32
        Weights, with Slaney's norm in 1/Hz.

    Raises
    ------
    RecipeError
        If the edges are not in order between 0 and half the rate, the bank has too many
        weights, or a filter is between two bins: its feature would be constant.

    References
    ----------
    M. Slaney, Auditory Toolbox, version 2, Interval Research Corporation, Technical
    Report 1998-010, 1998. S. Young et al., The HTK Book, 2006.

    Examples
    --------
    >>> mel_filter_bank(8000, 8, 2, 0.0, 4000.0).shape
    (2, 5)
    """
    nyquist = sample_rate_hz / 2
    if f_max > nyquist:
        raise RecipeError(
            "f_max",
            f"must not exceed {nyquist:g} Hz, half the sample rate of "
            f"{sample_rate_hz} Hz",
            f_max,
        )
    if not 0 <= f_min < f_max:
        raise RecipeError("f_min", f"must be at least 0 and below {f_max:g} Hz", f_min)
    check_bank_size(n_mels, n_fft)
    bins = np.arange(n_fft // 2 + 1, dtype=np.float64) * (sample_rate_hz / n_fft)
    edges = mel_edges(n_mels, f_min, f_max, scale)
    weights = triangles(bins, edges)
    check_no_band_is_empty(weights, edges, sample_rate_hz, n_fft, "a larger n_fft")
    if norm == "slaney":
        weights *= 2 / (edges[2:] - edges[:-2])[:, np.newaxis]
    return weights.astype(np.float32)


def triangles(bins: DoubleArray, edges: DoubleArray) -> DoubleArray:
    """Filters (n_mels, bins) with a peak of 1, linear in the unit of bins and edges."""
    column = edges[:, np.newaxis]
    low, centre, high = column[:-2], column[1:-1], column[2:]
    rise = (bins - low) / (centre - low)
    fall = (high - bins) / (high - centre)
    weights: DoubleArray = np.maximum(0, np.minimum(rise, fall))
    return weights


def check_bank_size(n_mels: int, n_fft: int) -> None:
    """Limits the weights of a bank: a typo must not request gigabytes."""
    if n_mels * (n_fft // 2 + 1) > MAX_WEIGHTS:
        raise RecipeError(
            "n_mels",
            f"needs more than {MAX_WEIGHTS} weights in its filter bank with an FFT of "
            f"length {n_fft}; use fewer bands or a shorter FFT",
            n_mels,
        )


def check_no_band_is_empty(
    weights: DoubleArray,
    edges: DoubleArray,
    sample_rate_hz: int,
    n_fft: int,
    remedy: str,
) -> None:
    """Checks that each filter has a bin; the message names ``edges``, in Hz."""
    # The weight of a bin on an edge is 0, apart from rounding.
    empty = np.flatnonzero(weights.max(axis=1) < 1e-9)
    if empty.size:
        band = int(empty[0])
        raise RecipeError(
            "n_mels",
            f"leaves {empty.size} bands without an FFT bin; the first such band is "
            f"from {edges[band]:.1f} to {edges[band + 2]:.1f} Hz; n_fft={n_fft} at "
            f"{sample_rate_hz} Hz gives a bin every {sample_rate_hz / n_fft:.1f} Hz; "
            f"use fewer bands or {remedy}",
            len(weights),
        )


def mel_edges(
    n_mels: int, f_min: float, f_max: float, scale: str = "slaney"
) -> DoubleArray:
    """The edges of the bands in Hz; band m has edges m to m + 2."""
    if scale == "htk":
        low, high = (math.log1p(hz / 700) for hz in (f_min, f_max))
        edges: DoubleArray = 700 * np.expm1(np.linspace(low, high, n_mels + 2))
        return edges
    mels = np.linspace(_mel(f_min), _mel(f_max), n_mels + 2)
    logarithmic = 1000 * np.exp(np.maximum(mels - 15, 0) * (math.log(6.4) / 27))
    return np.where(mels < 15, mels * (200 / 3), logarithmic)


def _mel(hz: float) -> float:
    return 3 * hz / 200 if hz < 1000 else 15 + 27 * math.log(hz / 1000, 6.4)


@functools.lru_cache(maxsize=32)
def sparse_filter_bank(*bank: Any) -> Any:
    """The sparse matrix of :func:`mel_filter_bank` with the same arguments."""
    return scipy.sparse.csr_array(mel_filter_bank(*bank))


def mel_power(tapered: FloatArray, bank: Any) -> FloatArray:
    """Mel power of frames (n, time_frames, n_fft), as (n, time_frames, n_mels).

    The bank is banded: a bin belongs to two bands at most. So a sparse product needs a
    few per cent of the multiplications of a dense one. It is fast if each row contains
    one bin of all frames, and the FFT can write its result in this order at no cost.
    Unlike BLAS, whose kernels depend on the shape, it sums the bins of a frame in the
    same order for any number of frames. The squares of real and imaginary parts are
    added after the product, when there are fewer of them.
    """
    *shape, n_fft = tapered.shape
    spectrum = scipy.fft.rfft(tapered.reshape(-1, n_fft).T, axis=0)
    squares = spectrum.view(np.float32)
    np.square(squares, out=squares)
    parts = bank @ squares
    power: FloatArray = parts[:, 0::2] + parts[:, 1::2]
    return power.T.reshape(*shape, len(power))


@dataclass(frozen=True, kw_only=True)
class MelFrames(SpectrumFrames):
    """Parameters of mel bands, the bands and their axes; see :class:`LogMel`."""

    mel_scale = "slaney"
    norm = "slaney"
    floor = 1e-10

    n_mels: int = parameter(64, BANDS)
    f_min: float = parameter(0.0, HERTZ)
    f_max: float | None = parameter(None, HERTZ, above="f_min")

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
        bands = axis_at("mel_band", "Hz", edges[1:-1].tolist())
        return [*super().axes(sample_rate_hz, frames), bands]

    def _f_max(self, sample_rate_hz: int) -> float:
        return sample_rate_hz / 2 if self.f_max is None else self.f_max

    def bands(
        self, signals: FloatArray, sample_rate_hz: int, log: str = "db"
    ) -> FloatArray:
        """The levels ``y`` of :class:`LogMel` of signals; the power for ``none``."""
        # What a neper is in the unit of the level.
        unit = {"db": 10 / math.log(10), "ln": 1.0, "none": None}[log]
        frames = self.frames(signals.shape[-1])
        bank = sparse_filter_bank(
            sample_rate_hz,
            self.n_fft,
            self.n_mels,
            self.f_min,
            self._f_max(sample_rate_hz),
            self.mel_scale,
            self.norm,
        )

        def levels(tapered: FloatArray) -> FloatArray:
            power = mel_power(tapered, bank)
            if unit is not None:
                to_levels(power, unit, self.floor)
            return power

        return gathered(
            frames.tapered(signals, hann_window(self.n_fft)),
            levels,
            (len(signals), frames.count, self.n_mels),
        )


@dataclass(frozen=True, kw_only=True)
class _MelBands(MelFrames):
    """Parameters of mel bands that may extend beyond the window, by any bank."""

    center: bool = parameter(False, Flag())
    pad_mode: str = parameter("constant", PAD_MODE)
    mel_scale: str = parameter("slaney", Choice(("slaney", "htk")))
    norm: str = parameter("slaney", Choice(("slaney", "none")))


@dataclass(frozen=True, kw_only=True)
class Mel(_MelBands):
    """Power in mel bands, frame by frame: ``M`` of :class:`LogMel`.

    Silence gives zeros.

    Examples
    --------
    >>> Mel(n_mels=40)(np.zeros((2, 16000), np.float32), 16000).shape
    (2, 59, 40)
    """

    @on_signals
    def __call__(self, signals: FloatArray, sample_rate_hz: int) -> FloatArray:
        return self.bands(signals, sample_rate_hz, "none")


@dataclass(frozen=True, kw_only=True)
class LogMel(_MelBands):
    """Logarithm of the power in mel bands, frame by frame.

    ::

        S[t, k] = |sum_j hann[j] * x[t * hop + j] * exp(-2i pi j k / n_fft)|**2
        M[t, m] = sum_k bank[m, k] * S[t, k]
        y[t, m] = ln(max(M[t, m], floor))    or    10 log10(max(M[t, m], floor))

    with the periodic Hann window and the bank of :func:`mel_filter_bank`. Frames are
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

    floor: float = parameter(1e-10, POSITIVE)
    log: str = parameter("ln", Choice(("ln", "db")))

    @on_signals
    def __call__(self, signals: FloatArray, sample_rate_hz: int) -> FloatArray:
        return self.bands(signals, sample_rate_hz, self.log)


FRAME_S = Number(most=3600.0, is_positive=True, unit="seconds")
# Kaldi's lower limit of energy before the logarithm.
_EPSILON = float(np.finfo(np.float32).eps)
_KALDI_TAPERS = ("povey", "hanning", "hamming", "rectangular")


@dataclass(frozen=True, kw_only=True)
class KaldiFbank(Step):
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

    n_mels: int = parameter(80, BANDS)
    frame_length_s: float = parameter(0.025, FRAME_S)
    frame_shift_s: float = parameter(0.010, FRAME_S)
    f_min: float = parameter(20.0, HERTZ)
    f_max: float | None = parameter(None, HERTZ, above="f_min")
    pre_emphasis: float = parameter(0.97, SHARE)
    window: str = parameter("povey", Choice(_KALDI_TAPERS))
    snip_edges: bool = parameter(True, Flag())
    remove_dc: bool = parameter(True, Flag())
    use_power: bool = parameter(True, Flag())
    use_energy: bool = parameter(False, Flag())
    log: bool = parameter(True, Flag())
    scale: float = parameter(32768.0, POSITIVE)

    @on_signals
    def __call__(self, signals: FloatArray, sample_rate_hz: int) -> FloatArray:
        layout = self.frames(signals.shape[-1], sample_rate_hz)
        n_fft = 1 << (layout.length - 1).bit_length()
        bank = _kaldi_bank(
            sample_rate_hz, n_fft, self.n_mels, *self._edges(sample_rate_hz)
        )
        return gathered(
            layout.blocks(signals),
            lambda part: self._energies(part, n_fft, bank),
            (len(signals), layout.count, self.use_energy + self.n_mels),
        )

    def _energies(self, part: FloatArray, n_fft: int, bank: Any) -> FloatArray:
        """The features of frames (n, time_frames, length)."""
        # In C order, so that the rounding of sums does not depend on strides.
        frames = np.multiply(part, np.float32(self.scale), order="C")
        if self.remove_dc:
            mean = frames.mean(axis=-1, keepdims=True, dtype=np.float64)
            frames -= mean.astype(np.float32)
        tapered = self._tapered(frames, n_fft)
        if self.use_power:
            bands = mel_power(tapered, bank)
        else:
            magnitudes = np.abs(scipy.fft.rfft(tapered.reshape(-1, n_fft).T, axis=0))
            bands = (bank @ magnitudes).T.reshape(*part.shape[:2], -1)
        if self.log:
            bands = _log_energy(bands)
        if not self.use_energy:
            return bands
        energy = np.square(frames, out=frames).sum(axis=-1, keepdims=True)
        return np.concatenate([_log_energy(energy), bands], axis=-1)

    def _tapered(self, frames: FloatArray, n_fft: int) -> FloatArray:
        """Frames with pre-emphasis and window, filled up with zeros."""
        c, length = np.float32(self.pre_emphasis), frames.shape[-1]
        tapered = np.zeros((*frames.shape[:2], n_fft), np.float32)
        out = tapered[..., :length]
        np.multiply(frames[..., :-1], -c, out=out[..., 1:])
        out[..., 1:] += frames[..., 1:]
        np.multiply(frames[..., 0], 1 - c, out=out[..., 0])
        out *= _kaldi_taper(self.window, length)
        return tapered

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """Describes the last two axes; see ``LogMel.axes``."""
        edges = _kaldi_edges(self.n_mels, *self._edges(sample_rate_hz))
        hertz = [0.0] * self.use_energy + _kaldi_hz(edges[1:-1]).tolist()
        time = self.frames(frames, sample_rate_hz).axis(sample_rate_hz)
        return [time, axis_at("mel_band", "Hz", hertz)]

    def frames(self, frames: int, sample_rate_hz: int) -> Frames:
        """Where the time frames of a window are."""
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
            raise self.refused(
                "frame_length_s",
                f"is {length} samples, but the window has only {frames}",
            )
        if self.snip_edges:
            return Frames(length, shift, 1 + (frames - length) // shift)
        count = (frames + shift // 2) // shift
        if not count:
            raise self.refused(
                "frame_shift_s",
                f"is {shift} samples, more than twice the window's {frames}, so no "
                "frame has its centre in the window; use a shorter frame_shift_s",
            )
        first = shift // 2 - length // 2
        return Frames(length, shift, count, first, "symmetric")

    def _edges(self, sample_rate_hz: int) -> tuple[float, float]:
        nyquist = sample_rate_hz / 2
        f_max = nyquist if self.f_max is None else self.f_max
        if not self.f_min < f_max <= nyquist:
            raise self.refused(
                "f_max",
                f"must be above f_min ({self.f_min:g} Hz) and at most half the sample "
                f"rate ({nyquist:g} Hz)",
            )
        return self.f_min, f_max


def _log_energy(energy: FloatArray) -> FloatArray:
    """The natural logarithm of at least Kaldi's least energy; overwrites its input."""
    np.maximum(energy, np.float32(_EPSILON), out=energy)
    return np.log(energy, out=energy)


@functools.lru_cache(maxsize=32)
def _kaldi_taper(name: str, length: int) -> FloatArray:
    cosine = np.cos(2 * np.pi * np.arange(length) / (length - 1))
    tapers = {
        "povey": (0.5 - 0.5 * cosine) ** 0.85,
        "hanning": 0.5 - 0.5 * cosine,
        "hamming": 0.54 - 0.46 * cosine,
        "rectangular": np.ones(length),
    }
    return tapers[name].astype(np.float32)


def _kaldi_mel(hz: Any) -> Any:
    return 1127 * np.log1p(np.asarray(hz, np.float64) / 700)


def _kaldi_hz(mels: DoubleArray) -> DoubleArray:
    hz: DoubleArray = 700 * np.expm1(mels / 1127)
    return hz


def _kaldi_edges(n_mels: int, f_min: float, f_max: float) -> DoubleArray:
    """The edges of the bands in mel; band m has edges m to m + 2."""
    return np.linspace(_kaldi_mel(f_min), _kaldi_mel(f_max), n_mels + 2)


@functools.lru_cache(maxsize=32)
def _kaldi_bank(
    sample_rate_hz: int, n_fft: int, n_mels: int, f_min: float, f_max: float
) -> Any:
    check_bank_size(n_mels, n_fft)
    edges = _kaldi_edges(n_mels, f_min, f_max)
    mels = _kaldi_mel(np.arange(n_fft // 2 + 1) * (sample_rate_hz / n_fft))
    weights = triangles(mels, edges)
    check_no_band_is_empty(
        weights, _kaldi_hz(edges), sample_rate_hz, n_fft, "longer frames"
    )
    return scipy.sparse.csr_array(weights.astype(np.float32))
