"""Shapes of spectra and of signals: a few numbers that describe each frame.

All go frame by frame: frames lie whole within the window (they are not centred, nothing
is padded), and a window of ``frames`` has ``1 + (frames - n_fft) // hop`` of them.
Those of spectra see magnitudes: ::

    S[t, k] = |sum_j hann[j] * x[t * hop + j] * exp(-2i pi j k / n_fft)|
    f[k] = k * sample_rate_hz / n_fft,    k = 0 .. n_fft // 2

with the periodic Hann window. A magnitude below about 1e-19 counts as 0. A frame that
holds NaN or infinity gives NaN, and so does one of samples from some 1e16 on, whose
power is infinite in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.fft

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import FloatArray, real, whole
from beam_pipeline.transforms.framewise import (
    MelFrames,
    SignalFrames,
    SpectrumFrames,
    frames_of,
    level_floor,
    signals_of,
    stretches,
    time_frames,
)
from beam_pipeline.transforms.mel import cache_blocks, exact_hann, hann_window
from beam_pipeline.transforms.quiet import quiet

# A sample that is nearer to zero has no sign of its own.
_LEAST_SAMPLE = np.float32(1e-10)

# Bins that are summed before the search for the roll-off looks at each.
_RUN = 32

_MAX_BANDS = 64


@dataclass(frozen=True, kw_only=True)
class _Frequency(SpectrumFrames):
    """A frequency of each frame's spectrum, in Hz."""

    @quiet
    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> FloatArray:
        out = measure_spectra(windows, self.n_fft, self.hop, self._bins)
        out *= np.float32(sample_rate_hz / self.n_fft)
        return out

    def _bins(self, power: FloatArray) -> FloatArray:
        """It as a number of bins, of power (f, bins) that may be overwritten."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class _Level(SignalFrames):
    """A number for each frame of the signal, worked out for a stretch of them."""

    @quiet
    def __call__(self, windows: FloatArray) -> FloatArray:
        flat = signals_of(windows)
        count = time_frames(flat.shape[-1], "frame", self.frame, self.hop)
        out = np.empty((len(flat), count), np.float32)
        for slices, samples in stretches(flat, count, self.frame, self.hop):
            self._measure(samples, out[slices])
        return out.reshape(*windows.shape[:-1], count)

    def _measure(self, samples: FloatArray, out: FloatArray) -> None:
        """Writes the numbers (n, time_frames) of samples (n, frames)."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class SpectralCentroid(_Frequency):
    """Mean frequency of each frame's spectrum, weighted by magnitude, in Hz.

    ``c[t] = sum_k f[k] S[t, k] / sum_k S[t, k]``, with ``S`` and ``f`` of this module.
    Windows (n, frames) give (n, time_frames), windows (n, channels, frames) give
    (n, channels, time_frames), in float32. Silence gives 0.

    Definitions differ in the weight: here it is the magnitude, as in librosa
    (largest difference found: 4e-7 relative of sounds with noise in all bins, 6e-4 of
    recordings whose bins are mostly float32's rounding); MPEG-7 takes the power.

    Attributes
    ----------
    n_fft, hop : int
        Length of a frame and step to the next one, in frames of the signal.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if a frame is longer than the window.

    References
    ----------
    G. Peeters, A large set of audio features for sound description (similarity and
    classification) in the CUIDADO project, IRCAM, 2004.

    Examples
    --------
    >>> tone = np.sin(2 * np.pi * 2000 / 16000 * np.arange(2048)).astype(np.float32)
    >>> SpectralCentroid()(tone[np.newaxis], 16000).round()
    array([[2000., 2000., 2000., 2000., 2000.]], dtype=float32)
    """

    def _bins(self, power: FloatArray) -> FloatArray:
        return centroid_bins(power)


@dataclass(frozen=True, kw_only=True)
class SpectralBandwidth(_Frequency):
    """Standard deviation of frequency in each frame's spectrum, in Hz.

    ``b[t] = sqrt(sum_k (f[k] - c[t])**2 S[t, k] / sum_k S[t, k])`` around the centroid
    ``c`` of :class:`SpectralCentroid`. Windows (n, frames) give (n, time_frames),
    windows (n, channels, frames) give (n, channels, time_frames), in float32. Silence
    gives 0.

    As librosa with ``p=2`` (largest difference found: 3e-7 relative; of 62 recordings
    1e-6 in the median, and 0.1 where a pure tone leaves nothing but float32's rounding
    in the other bins). Peeters (2004) calls it the spread.

    Attributes
    ----------
    n_fft, hop : int
        Length of a frame and step to the next one, in frames of the signal.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if a frame is longer than the window.

    References
    ----------
    G. Peeters, A large set of audio features for sound description (similarity and
    classification) in the CUIDADO project, IRCAM, 2004.

    Examples
    --------
    >>> SpectralBandwidth()(np.zeros((2, 4, 2048), np.float32), 16000).shape
    (2, 4, 5)
    """

    def _bins(self, power: FloatArray) -> FloatArray:
        return bandwidth_bins(power)


@dataclass(frozen=True, kw_only=True)
class SpectralFlatness(SpectrumFrames):
    """Geometric mean over arithmetic mean of the power in each frame's bins.

    ::

        P[t, k] = max(S[t, k]**2, floor)
        y[t] = exp(mean_k ln P[t, k]) / mean_k P[t, k]

    1 where all bins have the same power, towards 0 for tones; silence gives 1. Windows
    (n, frames) give (n, time_frames), windows (n, channels, frames) give
    (n, channels, time_frames), in float32.

    As librosa with ``power=2`` and ``amin=floor`` (largest difference found: 7e-6
    relative, and 1e-6 where librosa is given float64).

    Attributes
    ----------
    n_fft, hop : int
        Length of a frame and step to the next one, in frames of the signal.
    floor : float
        The least power of a bin, 1e-30 to 1e30.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if a frame is longer than the window.

    References
    ----------
    A. H. Gray and J. D. Markel, A spectral-flatness measure for studying the
    autocorrelation method of linear prediction of speech analysis, IEEE Transactions on
    Acoustics, Speech, and Signal Processing 22, 1974.

    Examples
    --------
    >>> SpectralFlatness()(np.zeros((1, 1100), np.float32))
    array([[1.]], dtype=float32)
    """

    floor: float = 1e-10

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "floor", level_floor(self.floor))

    @quiet
    def __call__(self, windows: FloatArray) -> FloatArray:
        return measure_spectra(
            windows,
            self.n_fft,
            self.hop,
            lambda power: flatness(power, self.floor),
            exact=True,
        )


@dataclass(frozen=True, kw_only=True)
class SpectralRolloff(_Frequency):
    """The frequency below which a share of each frame's magnitude lies, in Hz.

    ``y[t] = min f[k] with sum_(i <= k) S[t, i] >= share * sum_i S[t, i]``. Windows
    (n, frames) give (n, time_frames), windows (n, channels, frames) give
    (n, channels, time_frames), in float32. Silence gives 0.

    As librosa, of magnitudes. It rounds its sums as its input is, so that it finds the
    neighbouring bin in one frame out of some thousands if given float32; if given
    float64, no difference was found.

    Attributes
    ----------
    n_fft, hop : int
        Length of a frame and step to the next one, in frames of the signal.
    share : float
        Above 0 and below 1.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if a frame is longer than the window.

    References
    ----------
    E. Scheirer and M. Slaney, Construction and evaluation of a robust multifeature
    speech/music discriminator, ICASSP, 1997.

    Examples
    --------
    >>> click = np.eye(1, 1024, 512, dtype=np.float32)
    >>> SpectralRolloff(share=0.5)(click, 16000)
    array([[4000.]], dtype=float32)
    """

    share: float = 0.85

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "share", real("share", self.share))
        if not 0 < self.share < 1:
            raise RecipeError("share", "must lie between 0 and 1", self.share)

    def _bins(self, power: FloatArray) -> FloatArray:
        return rolloff_bins(power, self.share)


@dataclass(frozen=True, kw_only=True)
class SpectralContrast(SpectrumFrames):
    """Peaks over valleys of the spectrum in octave bands, in dB.

    ::

        edges = 0, f_min, 2 f_min, 4 f_min .. 2**bands f_min
        y[t, b] = 10 log10(max(peak, floor)) - 10 log10(max(valley, floor))

    ``peak`` and ``valley`` are the means of the largest and of the smallest magnitudes
    of a band, ``max(1, round(quantile * bins))`` of them (halves to even). The lowest
    band is that below ``f_min``, and the highest one goes on to half the rate. Windows
    (n, frames) give (n, time_frames, bands + 1), windows (n, channels, frames) give
    (n, channels, time_frames, bands + 1), in float32. Silence gives 0.

    As librosa (largest difference found: 7e-6 dB), also in these details: between two
    bands, the bin just below an edge belongs to the upper band only, and
    counts in its ``bins``; so does, in the lower one, the bin that it leaves out; and
    the logarithm is that of powers although these are magnitudes. But librosa raises
    all that is 80 dB below the loudest peak of the whole array to that, and nothing
    here depends on other frames.

    Attributes
    ----------
    n_fft, hop : int
        Length of a frame and step to the next one, in frames of the signal.
    bands : int
        Number of octaves from ``f_min``, at most 64. The last begins below half the
        rate.
    f_min : float
        Edge of the lowest octave, in Hz.
    quantile : float
        Share of a band's bins that make its peak, and its valley; above 0, below 1.
    floor : float
        The least magnitude, 1e-30 to 1e30.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if a frame is longer than the window,
        or a band is empty.

    References
    ----------
    D.-N. Jiang, L. Lu, H.-J. Zhang, J.-H. Tao and L.-H. Cai, Music type classification
    by spectral contrast feature, ICME, 2002.

    Examples
    --------
    >>> SpectralContrast()(np.zeros((2, 2048), np.float32), 16000).shape
    (2, 5, 7)
    """

    bands: int = 6
    f_min: float = 200.0
    quantile: float = 0.02
    floor: float = 1e-10

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "bands", whole("bands", self.bands))
        for name in ("f_min", "quantile"):
            object.__setattr__(self, name, real(name, getattr(self, name)))
        object.__setattr__(self, "floor", level_floor(self.floor))
        if self.bands > _MAX_BANDS:
            raise RecipeError("bands", f"must be at most {_MAX_BANDS}", self.bands)
        if self.f_min <= 0:
            raise RecipeError("f_min", "must be positive", self.f_min)
        if not 0 < self.quantile < 1:
            raise RecipeError("quantile", "must lie between 0 and 1", self.quantile)

    @quiet
    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> FloatArray:
        octaves = self._octaves(sample_rate_hz)
        return measure_spectra(
            windows,
            self.n_fft,
            self.hop,
            lambda power: contrast(power, octaves, self.quantile, self.floor),
            self.bands + 1,
            exact=True,
        )

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """What the last two axes mean; the frequency of a band is its lower edge."""
        self._octaves(sample_rate_hz)
        return [
            *super().axes(sample_rate_hz, frames),
            {
                "name": "octave_band",
                "unit": "Hz",
                "size": self.bands + 1,
                "values": self._lower_edges().tolist(),
            },
        ]

    def _lower_edges(self) -> npt.NDArray[np.float64]:
        return np.append(0.0, self.f_min * 2.0 ** np.arange(self.bands))

    def _octaves(self, sample_rate_hz: int) -> list[tuple[slice, int]]:
        """For each band its bins, and how many of these its quantile is of."""
        lower = self._lower_edges()
        if lower[-1] >= sample_rate_hz / 2:
            raise RecipeError(
                "bands",
                f"must leave the last octave, from {lower[-1]:g} Hz, below half the "
                f"sample rate {sample_rate_hz} Hz; use fewer, or a lower f_min",
                self.bands,
            )
        hz = np.arange(self.n_fft // 2 + 1) * (sample_rate_hz / self.n_fft)
        # A band has the bins from its edge to the next one, with both of them. From
        # the second band on it has one more below, and the one before leaves it out.
        first = np.searchsorted(hz, lower, "left")
        last = np.append(np.searchsorted(hz, lower[1:], "right") - 1, hz.size - 1)
        if (last < first).any():
            band = int(np.flatnonzero(last < first)[0])
            raise self._empty(lower, band, sample_rate_hz)
        first[1:] -= 1
        counts = last + 1 - first
        ends = np.append(last[:-1], hz.size)
        if ends[0] == 0:
            raise self._empty(lower, 0, sample_rate_hz)
        return [
            (slice(begin, end), count)
            for begin, end, count in zip(
                first.tolist(), ends.tolist(), counts.tolist(), strict=True
            )
        ]

    def _empty(
        self, lower: npt.NDArray[np.float64], band: int, sample_rate_hz: int
    ) -> RecipeError:
        return RecipeError(
            "n_fft",
            f"leaves the band from {lower[band]:g} Hz without a bin: at "
            f"{sample_rate_hz} Hz there is one every "
            f"{sample_rate_hz / self.n_fft:.1f} Hz; use a larger one, or a higher "
            "f_min",
            self.n_fft,
        )


@dataclass(frozen=True, kw_only=True)
class ZeroCrossingRate(_Level):
    """Share of a frame's samples that have another sign than the one before.

    ``y[t] = #{j in 1 .. frame - 1: neg(x[t * hop + j]) != neg(x[t * hop + j - 1])} /
    frame``, where ``neg(x)`` is ``x < -1e-10``: zero is positive. Frames lie whole
    within the window, so that ``t = 0 .. (frames - frame) // hop``. Windows (n, frames)
    give (n, time_frames), windows (n, channels, frames) give
    (n, channels, time_frames), in float32. Silence gives 0; a frame that holds NaN
    gives NaN; infinity has a sign. Exactly librosa's.

    Attributes
    ----------
    frame, hop : int
        Length of a frame and step to the next one, in frames of the signal.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if a frame is longer than the window.

    Examples
    --------
    >>> ZeroCrossingRate(frame=4)(np.array([[1, -1, -1, 1]], np.float32))
    array([[0.5]], dtype=float32)
    """

    def _measure(self, samples: FloatArray, out: FloatArray) -> None:
        negative = samples < -_LEAST_SAMPLE
        # Crossings before each sample: two of these differ by those between.
        before = np.empty(samples.shape, np.int32)
        before[:, 0] = 0
        np.cumsum(negative[:, 1:] != negative[:, :-1], axis=1, out=before[:, 1:])
        crossings = before[:, self.frame - 1 :: self.hop]
        crossings = crossings - before[:, :: self.hop][:, : crossings.shape[1]]
        np.divide(crossings, self.frame, out=out, casting="same_kind")
        if np.isnan(samples.max()):
            unknown = frames_of(np.isnan(samples), self.frame, self.hop)
            out[unknown.any(axis=-1)] = np.nan


@dataclass(frozen=True, kw_only=True)
class Rms(_Level):
    """Root mean square of each frame of the signal.

    ``y[t] = sqrt(mean_j x[t * hop + j]**2)``, with ``j = 0 .. frame - 1`` and no taper.
    Frames lie whole within the window, so that ``t = 0 .. (frames - frame) // hop``.
    Windows (n, frames) give (n, time_frames), windows (n, channels, frames) give
    (n, channels, time_frames), in float32. Silence gives 0, as samples below
    1e-23 do.

    As librosa; no difference was found.

    Attributes
    ----------
    frame, hop : int
        Length of a frame and step to the next one, in frames of the signal.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if a frame is longer than the window.

    Examples
    --------
    >>> Rms(frame=2, hop=1)(np.array([[1, -1, 0]], np.float32))
    array([[1.        , 0.70710677]], dtype=float32)
    """

    def _measure(self, samples: FloatArray, out: FloatArray) -> None:
        squares = np.square(samples, order="C")
        framed = frames_of(squares, self.frame, self.hop)
        np.add.reduce(framed, axis=-1, out=out)
        out *= np.float32(1 / self.frame)
        np.sqrt(out, out=out)


@dataclass(frozen=True, kw_only=True)
class OnsetStrength(MelFrames):
    """Mean rise of the mel bands' level from a frame to the next, in dB.

    ::

        L[t, m] = 10 log10(max(M[t, m], floor))
        y[0] = 0
        y[t] = mean_m max(0, L[t, m] - L[t - 1, m])

    with the mel power ``M`` of :class:`LogMel`. Windows (n, frames) give
    (n, time_frames), windows (n, channels, frames) give (n, channels, time_frames), in
    float32. Silence gives 0.

    As librosa's ``onset_strength(S=10 * log10(maximum(M, floor)), center=False)``
    (largest difference found: 3e-6 dB from the same mel bands, 4e-3 dB from librosa's
    own, which come from float64). Given a signal instead, librosa centres its
    frames, moves the result by half of one, and raises all that is 80 dB below the
    loudest band of the whole array to that.

    Attributes
    ----------
    n_fft, hop : int
        Length of a frame and step to the next one, in frames of the signal.
    n_mels : int
        Number of bands.
    f_min, f_max : float
        Edges of the lowest and of the highest band, in Hz; None: half the rate.
    floor : float
        The least power; a higher one lets less of what is hardly heard count.

    Raises
    ------
    RecipeError
        As :class:`LogMel` does.

    References
    ----------
    S. Böck and G. Widmer, Maximum filter vibrato suppression for onset detection,
    DAFx, 2013.

    Examples
    --------
    >>> OnsetStrength(n_mels=40)(np.zeros((1, 1400), np.float32), 16000)
    array([[0., 0.]], dtype=float32)
    """

    floor: float = 1e-10

    @quiet
    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> FloatArray:
        flat = signals_of(windows)
        count = time_frames(flat.shape[-1], "n_fft", self.n_fft, self.hop)
        log_mel = self.log_mel()
        out = np.zeros((len(flat), count), np.float32)
        last = np.empty(0, np.float32)
        for (rows, times), samples in stretches(flat, count, self.n_fft, self.hop):
            levels = log_mel(samples, sample_rate_hz)
            if times.start:
                out[rows, times.start] = _mean_rise(last, levels[:, 0])
            out[rows, times][:, 1:] = _mean_rise(levels[:, :-1], levels[:, 1:])
            last = levels[:, -1]
        return out.reshape(*windows.shape[:-1], count)

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """What the last axis means: time, as ``LogMel.axes`` tells it."""
        return super().axes(sample_rate_hz, frames)[:1]


def measure_spectra(
    windows: FloatArray,
    n_fft: int,
    hop: int,
    measure: Callable[[FloatArray], FloatArray],
    *size: int,
    exact: bool = False,
) -> FloatArray:
    """A measure of the power spectrum of each frame.

    Parameters
    ----------
    windows : numpy.ndarray, shape (n, [channels,] frames)
    n_fft, hop : int
    measure : callable
        Of power (f, n_fft // 2 + 1), which it may overwrite, to (f, *size); each frame
        by itself.
    *size : int
        Values of a frame.
    exact : bool
        Whether the faintest bins beside loud ones matter: then the FFT, which is
        rounded to the loudest, is in float64. It takes twice the time.

    Returns
    -------
    numpy.ndarray, shape (n, [channels,] time_frames, *size), float32
    """
    flat = signals_of(windows)
    count = time_frames(flat.shape[-1], "n_fft", n_fft, hop)
    framed = frames_of(flat, n_fft, hop)
    out = np.empty((len(flat), count, *size), np.float32)
    taper: npt.NDArray[Any] = exact_hann(n_fft) if exact else hann_window(n_fft)
    for block in cache_blocks(len(flat), count, n_fft * (1 + exact)):
        tapered: npt.NDArray[Any] = framed[block].astype(taper.dtype, order="C")
        np.multiply(tapered, taper, out=tapered)
        power = _power(tapered.reshape(-1, n_fft))
        out[block] = measure(power).reshape(*tapered.shape[:2], *size)
    return out.reshape(*windows.shape[:-1], count, *size)


# What follows is of spectra (f, bins), and may overwrite them. Each row is reduced as a
# contiguous run, whatever the number of rows: numpy then adds it up in pairs, in the
# same order whichever frames are in the block.


def centroid_bins(power: FloatArray) -> FloatArray:
    """Centroid of magnitudes, as a number of bins."""
    return _centroid(np.sqrt(power, out=power))


def _centroid(magnitudes: FloatArray) -> FloatArray:
    bins = np.arange(magnitudes.shape[1], dtype=np.float32)
    return _over(_total(magnitudes * bins), _total(magnitudes))


def bandwidth_bins(power: FloatArray) -> FloatArray:
    """Standard deviation of magnitudes around their centroid, as a number of bins."""
    magnitudes = np.sqrt(power, out=power)
    # In bins, which are exact in float32, as frequencies in Hz are not.
    bins = np.arange(magnitudes.shape[1], dtype=np.float32)
    away = bins - _centroid(magnitudes)[:, np.newaxis]
    np.square(away, out=away)
    away *= magnitudes
    return np.sqrt(_over(_total(away), _total(magnitudes)))


def flatness(power: FloatArray, floor: float) -> FloatArray:
    """Geometric over arithmetic mean of power."""
    np.maximum(power, np.float32(floor), out=power)
    arithmetic = _mean(power)
    # Relative to the mean: logarithms near 0 are exact, and those of silence are 0.
    power /= arithmetic[:, np.newaxis]
    np.maximum(power, np.finfo(np.float32).tiny, out=power)
    np.log(power, out=power)
    return np.exp(_mean(power))


def rolloff_bins(power: FloatArray, share: float) -> FloatArray:
    """The first bin up to which a share of the magnitudes' sum lies."""
    magnitudes = np.sqrt(power, out=power)
    bins = magnitudes.shape[1]
    # A running sum over all bins takes longer than the FFT. So first over runs of
    # bins, and then within the one where it crosses.
    runs = np.add.reduceat(
        magnitudes, np.arange(0, bins, _RUN), axis=1, dtype=np.float64
    )
    upto = np.cumsum(runs, axis=1)
    least = share * upto[:, -1:]
    run = (upto >= least).argmax(axis=1)[:, np.newaxis]
    within = run * _RUN + np.arange(_RUN)
    part = np.take_along_axis(magnitudes, np.minimum(within, bins - 1), axis=1)
    sums = np.cumsum(part, axis=1, dtype=np.float64)
    sums += np.take_along_axis(upto - runs, run, axis=1)
    below = np.count_nonzero(sums < least, axis=1)
    found: FloatArray = np.minimum(within[:, 0] + below, bins - 1).astype(np.float32)
    found[~np.isfinite(upto[:, -1])] = np.nan
    return found


def contrast(
    power: FloatArray,
    octaves: list[tuple[slice, int]],
    quantile: float,
    floor: float,
) -> FloatArray:
    """Peaks over valleys of magnitudes in dB, for bands of (bins, count)."""
    magnitudes = np.sqrt(power, out=power)
    out = np.empty((len(power), len(octaves)), np.float32)
    for band, (bins, count) in enumerate(octaves):
        ordered = np.sort(magnitudes[:, bins], axis=1)
        most = max(1, round(quantile * count))
        valley, peak = (
            np.maximum(_mean(ends), np.float32(floor))
            for ends in (ordered[:, :most], ordered[:, -most:])
        )
        out[:, band] = np.float32(10) * (np.log10(peak) - np.log10(valley))
    return out


def _power(tapered: npt.NDArray[Any]) -> FloatArray:
    spectra = scipy.fft.rfft(tapered, axis=-1).astype(np.complex64, copy=False)
    # The squared modulus; numpy's modulus guards against overflow, which takes long
    # wherever it has no kernel for the machine at hand.
    power: FloatArray = np.square(spectra.real)
    power += np.square(spectra.imag)
    return power


def _total(values: FloatArray) -> FloatArray:
    total: FloatArray = np.add.reduce(values, axis=-1)
    return total


def _mean(values: FloatArray) -> FloatArray:
    return _total(values) / np.float32(values.shape[-1])


def _over(weighted: FloatArray, total: FloatArray) -> FloatArray:
    """Weighted sums over the sum of the weights; 0 where there are none."""
    # What is not a number is not to become 0.
    return np.divide(weighted, total, out=np.zeros_like(total), where=~(total <= 0))


def _mean_rise(before: FloatArray, after: FloatArray) -> FloatArray:
    rise = after - before
    np.maximum(rise, 0, out=rise)
    return _mean(rise)
