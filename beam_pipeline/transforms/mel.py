"""Power in mel bands, frame by frame: banks, their products with spectra, and Kaldi's.

The bank of Kaldi differs from the others: its triangles are linear in mel, not in Hz.
From mel spectra follow cepstra, PCEN, slopes, and means and variances over time.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import scipy  # loads its packages when they are used

from beam_pipeline.arrays import DoubleArray, FloatArray, Integers
from beam_pipeline.errors import RecipeError
from beam_pipeline.parameters import Choice, Flag, Number, WholeNumber, parameter
from beam_pipeline.transforms.base import (
    COUNT,
    LEAST_LEVEL,
    POSITIVE,
    SHARE,
    Method,
    Step,
    quiet,
    spectra_of,
)
from beam_pipeline.transforms.frames import (
    PAD_MODE,
    Frames,
    SpectrumFrames,
    axis,
    axis_at,
    cache_blocks,
    exact_taper,
    hann_window,
    on_signals,
    to_levels,
)

# A typo must not request gigabytes of features.
BANDS = WholeNumber(1, 4096)
HERTZ = Number(0.0)


@functools.lru_cache(maxsize=32)
def mel_filter_bank(step: Any, sample_rate_hz: int, n_fft: int) -> Any:
    """Triangular mel filters of a step's bands over the bins of a real FFT.

    ::

        slaney    mel(f) = 3 f / 200                          below 1000 Hz
                  mel(f) = 15 + 27 log(f / 1000) / log(6.4)   from 1000 Hz
        htk       mel(f) = 2595 log10(1 + f / 700)

    Edges ``e[0 .. n_mels + 1]`` are evenly spaced in mel from ``f_min`` to ``f_max``.
    Filter ``m`` rises linearly in Hz from ``e[m]`` to ``e[m + 1]`` and falls to
    ``e[m + 2]``. Its peak is ``2 / (e[m + 2] - e[m])``, so that all filters have the
    same area; with ``norm="none"`` it is 1. The scale ``kaldi`` is that of ``htk``, but
    filters are linear in mel.

    Parameters
    ----------
    step : Step
        Has ``n_mels``, ``f_min`` and ``f_max`` in Hz, the ``mel_scale`` ``slaney``,
        ``htk`` or ``kaldi``, and the ``norm`` ``slaney`` or ``none``.
    sample_rate_hz : int
    n_fft : int
        Length of the FFT.

    Returns
    -------
    scipy.sparse.csr_array, shape (n_mels, n_fft // 2 + 1), float32
        Weights, with Slaney's norm in 1/Hz.

    Raises
    ------
    RecipeError
        If the edges are not in order between 0 and half the rate, or a filter is
        between two bins: its feature would be constant.

    References
    ----------
    M. Slaney, Auditory Toolbox, version 2, Interval Research Corporation, Technical
    Report 1998-010, 1998. S. Young et al., The HTK Book, 2006.

    Examples
    --------
    >>> mel_filter_bank(Mel(n_mels=2), 8000, 8).shape
    (2, 5)
    """
    nyquist = sample_rate_hz / 2
    if step.f_min >= nyquist or (step.f_max or 0) > nyquist:
        raise step.refused(
            "f_max" if step.f_max else "f_min",
            f"is too high: half the sample rate of {sample_rate_hz} Hz is {nyquist:g}",
        )
    bins = np.arange(n_fft // 2 + 1, dtype=np.float64) * (sample_rate_hz / n_fft)
    mels, edges = mel_edges(step, sample_rate_hz)
    is_kaldi = step.mel_scale == "kaldi"
    weights = triangles(_htk_mel(bins), mels) if is_kaldi else triangles(bins, edges)
    # The weight of a bin on an edge is 0, apart from rounding.
    empty = np.flatnonzero(weights.max(axis=1) < 1e-9)
    if empty.size:
        band = int(empty[0])
        raise step.refused(
            "n_mels",
            f"leaves {empty.size} bands without an FFT bin; the first such band is "
            f"from {edges[band]:.1f} to {edges[band + 2]:.1f} Hz; n_fft={n_fft} at "
            f"{sample_rate_hz} Hz gives a bin every {sample_rate_hz / n_fft:.1f} Hz; "
            "use fewer bands, or longer frames",
        )
    if step.norm == "slaney":
        weights *= 2 / (edges[2:] - edges[:-2])[:, np.newaxis]
    return scipy.sparse.csr_array(weights.astype(np.float32))


def triangles(bins: DoubleArray, edges: DoubleArray) -> DoubleArray:
    """Filters (n_mels, bins) with a peak of 1, linear in the unit of bins and edges."""
    column = edges[:, np.newaxis]
    low, centre, high = column[:-2], column[1:-1], column[2:]
    rise = (bins - low) / (centre - low)
    fall = (high - bins) / (high - centre)
    return np.asarray(np.maximum(0, np.minimum(rise, fall)))


def mel_edges(step: Any, sample_rate_hz: int) -> tuple[DoubleArray, DoubleArray]:
    """The edges of a step's bands in mel and in Hz; band m has edges m to m + 2."""
    is_slaney = step.mel_scale == "slaney"
    ends = (step.f_min, step.f_max or sample_rate_hz / 2)
    low, high = map(_mel if is_slaney else _htk_mel, ends)
    mels: DoubleArray = np.linspace(low, high, step.n_mels + 2)
    if not is_slaney:
        return mels, 700 * np.expm1(mels)
    logarithmic = 1000 * np.exp(np.maximum(mels - 15, 0) * (math.log(6.4) / 27))
    return mels, np.where(mels < 15, mels * (200 / 3), logarithmic)


def _mel(hz: float) -> float:
    return 3 * hz / 200 if hz < 1000 else 15 + 27 * math.log(hz / 1000, 6.4)


def _htk_mel(hz: Any) -> Any:
    """Frequencies in mel of HTK and Kaldi, but for a factor."""
    return np.log1p(np.asarray(hz, np.float64) / 700)


def _band_axis(step: Any, sample_rate_hz: int) -> dict[str, Any]:
    """The axis of a step's bands; the frequency of a band is that of its peak."""
    _, hertz = mel_edges(step, sample_rate_hz)
    return axis_at("mel_band", "Hz", [0.0] * step.use_energy + hertz[1:-1].tolist())


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


class MelFrames(SpectrumFrames):
    """Parameters of mel bands, the bands and their axes; see :class:`LogMel`."""

    mel_scale = "slaney"
    norm = "slaney"
    floor = 1e-10
    use_energy = False

    n_mels: int = parameter(64, BANDS)
    f_min: float = parameter(0.0, HERTZ)
    f_max: float | None = parameter(None, HERTZ, above="f_min")

    def last_axes(self, sample_rate_hz: int) -> list[dict[str, Any]]:
        """Describes the axis of bands; the frequency of a band is that of its peak.

        Examples
        --------
        >>> LogMel().axes(16000, 16000)[0]["step"]
        0.016
        """
        return [_band_axis(self, sample_rate_hz)]

    def bands(
        self, signals: FloatArray, sample_rate_hz: int, log: str = "db"
    ) -> FloatArray:
        """The levels ``y`` of :class:`LogMel` of signals; the power for ``none``."""
        # What a neper is in the unit of the level.
        unit = {"db": 10 / math.log(10), "ln": 1.0, "none": None}[log]
        bank = mel_filter_bank(self, sample_rate_hz, self.n_fft)

        def levels(tapered: FloatArray) -> FloatArray:
            power = mel_power(tapered, bank)
            if unit is not None:
                to_levels(power, unit, self.floor)
            return power

        frames, taper = self.frames(signals.shape[-1]), hann_window(self.n_fft)
        return frames.features(signals, levels, self.n_mels, taper=taper)


class _MelBands(MelFrames):
    """Parameters of mel bands that may extend beyond the window, by any bank."""

    center: bool = parameter(False, Flag())
    pad_mode: str = parameter("constant", PAD_MODE)
    mel_scale: str = parameter("slaney", Choice(("slaney", "htk")))
    norm: str = parameter("slaney", Choice(("slaney", "none")))


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

    mel_scale = "kaldi"
    norm = "none"

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
        bank = mel_filter_bank(self, sample_rate_hz, n_fft)
        return layout.features(
            signals,
            lambda part: self._energies(part, n_fft, bank),
            self.use_energy + self.n_mels,
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
        time = self.frames(frames, sample_rate_hz).axis(sample_rate_hz)
        return [time, _band_axis(self, sample_rate_hz)]

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
        within = Frames.within(frames, "frame_length_s", length, shift)
        if self.snip_edges:
            return within
        count = (frames + shift // 2) // shift
        first = shift // 2 - length // 2
        return Frames(length, shift, count, first, "symmetric")


def _log_energy(energy: FloatArray) -> FloatArray:
    """The natural logarithm of at least Kaldi's least energy; overwrites its input."""
    np.maximum(energy, np.float32(_EPSILON), out=energy)
    return np.log(energy, out=energy)


@functools.lru_cache(maxsize=32)
def _kaldi_taper(name: str, length: int) -> FloatArray:
    cosines = {"povey": "hann", "hanning": "hann"}.get(name, name)
    taper = exact_taper(cosines, length, length - 1)
    return (taper**0.85 if name == "povey" else taper).astype(np.float32)


# Mel spectra over time


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
        return frames.stretch_features(
            signals,
            # One product for each window: its rounding depends on the shape alone.
            lambda samples: self.bands(samples, sample_rate_hz) @ cosines,
            self.n_mfcc,
        )

    def last_axes(self, sample_rate_hz: int) -> list[dict[str, Any]]:
        """Describes the axis of coefficients."""
        return [axis("cepstral_coefficient", "1", self.n_mfcc, 0.0, 1.0)]


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
        time_constant = self.time_constant_s * sample_rate_hz / self.hop
        # Equal to b, but without the loss of digits for small shares.
        share = 2 / (1 + math.sqrt(1 + 4 * time_constant**2))
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
                starts, stops = _bounds(
                    count, self.window, self.min_window, self.center
                )
                lengths = (stops - starts)[:, np.newaxis]
                mean = _sums(x, starts, stops) / lengths
                variance = _sums(np.square(x), starts, stops) / lengths
                variance -= np.square(mean)
                x -= mean
            elif self.norm_vars:
                variance = _mean(np.square(x))
            if self.norm_vars:
                x /= np.sqrt(np.maximum(variance, self.floor))
            out[rows] = x
        return out

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
        return np.asarray(((features.astype(np.float64) - mean) / std).astype("f4"))


def _mean(x: DoubleArray) -> DoubleArray:
    # Unlike ``x.mean``, this gives NaN without a warning if there are no frames.
    return np.asarray(x.sum(axis=-2, keepdims=True) / x.shape[-2])


def _sums(x: DoubleArray, starts: Integers, stops: Integers) -> DoubleArray:
    """Sums of the frames from each start to its stop, for features (n, t, bins)."""
    running = np.zeros((x.shape[0], x.shape[1] + 1, x.shape[2]))
    np.cumsum(x, axis=1, out=running[:, 1:])
    return np.asarray(running[:, stops] - running[:, starts])


@functools.lru_cache(maxsize=32)
def _bounds(
    count: int, window: int, min_window: int, center: bool
) -> tuple[Integers, Integers]:
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
