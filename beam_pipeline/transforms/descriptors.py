"""Shapes of spectra and of signals: a few numbers that describe each frame.

Frames are entirely within the window (they are not centred, nothing is padded), so a
window has ``1 + (frames - n_fft) // hop`` time frames. The shapes of spectra use
magnitudes: ::

    S[t, k] = |sum_j hann[j] * x[t * hop + j] * exp(-2i pi j k / n_fft)|
    f[k] = k * sample_rate_hz / n_fft,    k = 0 .. n_fft // 2

with the periodic Hann window. A magnitude below about 1e-19 counts as 0. A frame that
contains NaN or infinity gives NaN; so does a frame with samples above about 1e16, whose
power is infinite in float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from beam_pipeline.arrays import Array, DoubleArray, FloatArray
from beam_pipeline.parameters import Number, WholeNumber, parameter
from beam_pipeline.transforms.base import LEAST_LEVEL, POSITIVE
from beam_pipeline.transforms.frames import (
    SignalFrames,
    SpectrumFrames,
    axis_at,
    exact_taper,
    frames_of,
    hann_window,
    on_signals,
    spectrum_of,
)
from beam_pipeline.transforms.mel import MelFrames

# A share that leaves something on both sides.
_PART = Number(below=1.0, is_positive=True)

# A sample closer to zero counts as positive.
_LEAST_SAMPLE = np.float32(1e-10)

# Bins in a run: the search for the roll-off first sums runs, then bins in one run.
_RUN = 32


class _Spectral(SpectrumFrames):
    """Measures the spectrum of each frame by itself.

    Attributes
    ----------
    is_exact : bool
        Whether the faintest bins beside loud ones matter. The rounding error of an FFT
        is relative to the loudest bin, so the FFT is then in float64, which takes twice
        the time.
    """

    is_exact: ClassVar[bool] = False

    def _measured(
        self,
        signals: FloatArray,
        measure: Callable[[FloatArray], FloatArray],
        *size: int,
    ) -> FloatArray:
        """The results of ``measure`` for all frames: (n, time_frames, *size).

        ``measure`` gets power of shape (f, bins), which it may overwrite, and returns
        (f, *size). It reduces each row as a contiguous run, for any number of
        rows. numpy then sums it pairwise, in the same order for any other frames in the
        block.
        """
        n_fft = self.n_fft
        taper: Array = hann_window(n_fft)
        if self.is_exact:
            taper = exact_taper("hann", n_fft, n_fft)

        def measured(tapered: Array) -> FloatArray:
            power = spectrum_of(tapered.reshape(-1, n_fft), n_fft, "power")
            return measure(power).reshape(*tapered.shape[:2], *size)

        frames, values = self.frames(signals.shape[-1]), n_fft * (1 + self.is_exact)
        return frames.features(signals, measured, *size, taper=taper, values=values)


class _Frequency(_Spectral):
    """Computes a frequency of each frame's spectrum, in Hz."""

    @on_signals
    def __call__(self, signals: FloatArray, sample_rate_hz: int) -> FloatArray:
        out = self._measured(
            signals, lambda power: self._bins(np.sqrt(power, out=power))
        )
        out *= np.float32(sample_rate_hz / self.n_fft)
        return out

    def _bins(self, magnitudes: FloatArray) -> FloatArray:
        """The frequency in bins, from magnitudes (f, bins)."""
        raise NotImplementedError


class _Level(SignalFrames):
    """A number for each frame of the signal, computed stretch by stretch."""

    @on_signals
    def __call__(self, signals: FloatArray) -> FloatArray:
        return self.frames(signals.shape[-1]).stretch_features(signals, self._levels)

    def _levels(self, samples: FloatArray) -> Array:
        """The numbers (n, time_frames) of samples (n, frames)."""
        raise NotImplementedError


class SpectralCentroid(_Frequency):
    """Mean frequency of each frame's spectrum, weighted by magnitude, in Hz.

    ``c[t] = sum_k f[k] S[t, k] / sum_k S[t, k]``, with ``S[t, k]`` the magnitude in
    bin k of frame t and ``f[k]`` its frequency. Windows (n, frames) give
    (n, time_frames), windows (n, channels, frames) give (n, channels, time_frames), in
    float32. Silence gives 0.

    Definitions differ in the weight. Here it is the magnitude, as in librosa; MPEG-7
    uses the power. The largest relative difference found to librosa is 4e-7 for sounds
    with noise in all bins, and 6e-4 for recordings whose bins contain mostly float32
    rounding errors.

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

    def _bins(self, magnitudes: FloatArray) -> FloatArray:
        return _centroid(magnitudes)


class SpectralBandwidth(_Frequency):
    """Standard deviation of frequency in each frame's spectrum, in Hz.

    ``b[t] = sqrt(sum_k (f[k] - c[t])**2 S[t, k] / sum_k S[t, k])`` around the centroid
    ``c`` of :class:`SpectralCentroid`. Windows (n, frames) give (n, time_frames),
    windows (n, channels, frames) give (n, channels, time_frames), in float32. Silence
    gives 0.

    The definition is that of librosa with ``p=2``. The largest relative difference
    found is 3e-7; for 62 recordings, the median is 1e-6, and the largest is 0.1, for a
    pure tone, beside which all other bins contain only float32 rounding errors. Peeters
    (2004) calls this number the spread.

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

    def _bins(self, magnitudes: FloatArray) -> FloatArray:
        # In bins, which are exact in float32; frequencies in Hz are not.
        bins = np.arange(magnitudes.shape[1], dtype=np.float32)
        away = bins - _centroid(magnitudes)[:, np.newaxis]
        np.square(away, out=away)
        away *= magnitudes
        return np.sqrt(_over(_total(away), _total(magnitudes)))


class SpectralFlatness(_Spectral):
    """Geometric mean over arithmetic mean of the power in each frame's bins.

    ::

        P[t, k] = max(S[t, k]**2, floor)
        y[t] = exp(mean_k ln P[t, k]) / mean_k P[t, k]

    The flatness is 1 if all bins have the same power, and close to 0 for tones; silence
    gives 1. Windows (n, frames) give (n, time_frames), windows (n, channels, frames)
    give (n, channels, time_frames), in float32.

    The result agrees with librosa with ``power=2`` and ``amin=floor`` (largest
    difference found: 7e-6 relative, and 1e-6 for float64 input to librosa).

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

    is_exact = True

    floor: float = parameter(1e-10, LEAST_LEVEL)

    @on_signals
    def __call__(self, signals: FloatArray) -> FloatArray:
        return self._measured(signals, self._flatness)

    def _flatness(self, power: FloatArray) -> FloatArray:
        np.maximum(power, np.float32(self.floor), out=power)
        arithmetic = _mean(power)
        # Relative to the mean: logarithms close to 0 are more exact, and 0 for silence.
        power /= arithmetic[:, np.newaxis]
        np.maximum(power, np.finfo(np.float32).tiny, out=power)
        np.log(power, out=power)
        return np.asarray(np.exp(_mean(power)))


class SpectralRolloff(_Frequency):
    """The frequency up to which a share of each frame's magnitude is found, in Hz.

    ``y[t] = min f[k] with sum_(i <= k) S[t, i] >= share * sum_i S[t, i]``. Windows
    (n, frames) give (n, time_frames), windows (n, channels, frames) give
    (n, channels, time_frames), in float32. Silence gives 0.

    The definition is that of librosa, for magnitudes. For float32 input, librosa's sums
    are float32, and it finds the neighbouring bin in one of several thousand frames.
    For float64 input, no difference was found.

    Attributes
    ----------
    n_fft, hop : int
        Length of a frame and step to the next one, in frames of the signal.
    share : float
        Share of the magnitude, above 0 and below 1.

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

    share: float = parameter(0.85, _PART)

    def _bins(self, magnitudes: FloatArray) -> FloatArray:
        bins = magnitudes.shape[1]
        # A running sum over all bins takes longer than the FFT. So sum over runs of
        # bins first, and then within the run that reaches the share.
        runs = np.add.reduceat(
            magnitudes, np.arange(0, bins, _RUN), axis=1, dtype=np.float64
        )
        upto = np.cumsum(runs, axis=1)
        least = self.share * upto[:, -1:]
        run = (upto >= least).argmax(axis=1)[:, np.newaxis]
        within = run * _RUN + np.arange(_RUN)
        part = np.take_along_axis(magnitudes, np.minimum(within, bins - 1), axis=1)
        sums = np.cumsum(part, axis=1, dtype=np.float64)
        sums += np.take_along_axis(upto - runs, run, axis=1)
        below = np.count_nonzero(sums < least, axis=1)
        last = bins - 1
        found: FloatArray = np.minimum(within[:, 0] + below, last).astype(np.float32)
        found[~np.isfinite(upto[:, -1])] = np.nan
        return found


class SpectralContrast(_Spectral):
    """Peaks over valleys of the spectrum in octave bands, in dB.

    ::

        edges = 0, f_min, 2 f_min, 4 f_min .. 2**bands f_min
        y[t, b] = 10 log10(max(peak, floor)) - 10 log10(max(valley, floor))

    ``peak`` and ``valley`` are the means of the ``max(1, round(quantile * bins))``
    largest and smallest magnitudes of a band (halves round to even). The lowest band is
    below ``f_min``; the highest band extends to half the rate. Windows (n, frames) give
    (n, time_frames, bands + 1), windows (n, channels, frames) give
    (n, channels, time_frames, bands + 1), in float32. Silence gives 0.

    The result agrees with librosa (largest difference found: 7e-6 dB), including these
    details. The bin just below an edge between two bands belongs only to the upper
    band, but counts in ``bins`` of both. And the logarithm is that of powers, although
    it is applied to magnitudes. But librosa raises all values to at least 80 dB below
    the loudest peak of the whole array; here, no value depends on other frames.

    Attributes
    ----------
    n_fft, hop : int
        Length of a frame and step to the next one, in frames of the signal.
    bands : int
        Number of octaves from ``f_min``, at most 64. The last octave must begin below
        half the rate.
    f_min : float
        Edge of the lowest octave, in Hz.
    quantile : float
        Share of a band's bins in its peak, and in its valley; above 0 and below 1.
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

    is_exact = True

    bands: int = parameter(6, WholeNumber(1, 64))
    f_min: float = parameter(200.0, POSITIVE)
    quantile: float = parameter(0.02, _PART)
    floor: float = parameter(1e-10, LEAST_LEVEL)

    @on_signals
    def __call__(self, signals: FloatArray, sample_rate_hz: int) -> FloatArray:
        contrast = functools.partial(self._contrast, self._octaves(sample_rate_hz))
        return self._measured(signals, contrast, self.bands + 1)

    def _contrast(
        self, octaves: list[tuple[slice, int]], power: FloatArray
    ) -> FloatArray:
        """The features of spectra (f, bins)."""
        magnitudes = np.sqrt(power, out=power)
        out = np.empty((len(power), len(octaves)), np.float32)
        for band, (bins, count) in enumerate(octaves):
            ordered = np.sort(magnitudes[:, bins], axis=1)
            most = max(1, round(self.quantile * count))
            valley, peak = (
                np.maximum(_mean(ends), np.float32(self.floor))
                for ends in (ordered[:, :most], ordered[:, -most:])
            )
            out[:, band] = np.float32(10) * (np.log10(peak) - np.log10(valley))
        return out

    def last_axes(self, sample_rate_hz: int) -> list[dict[str, Any]]:
        """Describes the axis of bands; the frequency of a band is its lower edge."""
        self._octaves(sample_rate_hz)
        return [axis_at("octave_band", "Hz", self._lower_edges().tolist())]

    def _lower_edges(self) -> DoubleArray:
        return np.append(0.0, self.f_min * 2.0 ** np.arange(self.bands))

    def _octaves(self, sample_rate_hz: int) -> list[tuple[slice, int]]:
        """For each band, its bins and the number of bins that its quantile counts."""
        lower = self._lower_edges()
        if lower[-1] >= sample_rate_hz / 2:
            raise self.refused(
                "bands",
                f"puts the start of the last octave at {lower[-1]:g} Hz, but it must "
                f"be below half the sample rate of {sample_rate_hz} Hz; use fewer "
                "bands, or a lower f_min",
            )
        hz = np.arange(self.n_fft // 2 + 1) * (sample_rate_hz / self.n_fft)
        # A band has the bins from its edge to the next one, including both. From the
        # second band on, it takes one more bin from the end of the band before.
        first = np.searchsorted(hz, lower, "left")
        last = np.append(np.searchsorted(hz, lower[1:], "right") - 1, hz.size - 1)
        # The lowest band leaves its last bin to the next one.
        empty = np.flatnonzero(last < first + (lower == 0))
        if empty.size:
            raise self.refused(
                "n_fft",
                f"leaves the band from {lower[empty[0]]:g} Hz without a bin; at "
                f"{sample_rate_hz} Hz, there is a bin every "
                f"{sample_rate_hz / self.n_fft:.1f} Hz; use a larger n_fft, or a "
                "higher f_min",
            )
        first[1:] -= 1
        counts = (last + 1 - first).tolist()
        ends = np.append(last[:-1], hz.size).tolist()
        bands = map(slice, first.tolist(), ends)
        return list(zip(bands, counts, strict=True))


class ZeroCrossingRate(_Level):
    """Share of a frame's samples that have another sign than the one before.

    ``y[t] = #{j in 1 .. frame - 1: neg(x[t * hop + j]) != neg(x[t * hop + j - 1])} /
    frame``, where ``neg(x)`` is ``x < -1e-10``: zero is positive. Frames are entirely
    within the window, so ``t = 0 .. (frames - frame) // hop``. Windows (n, frames) give
    (n, time_frames), windows (n, channels, frames) give (n, channels, time_frames), in
    float32. Silence gives 0; a frame that contains NaN gives NaN; infinity has a sign.
    The result is exactly that of librosa.

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

    def _levels(self, samples: FloatArray) -> Array:
        negative = samples < -_LEAST_SAMPLE
        # Crossings up to each sample; differences of these count those between.
        before = np.empty(samples.shape, np.int32)
        before[:, 0] = 0
        np.cumsum(negative[:, 1:] != negative[:, :-1], axis=1, out=before[:, 1:])
        crossings = before[:, self.frame - 1 :: self.hop]
        crossings = crossings - before[:, :: self.hop][:, : crossings.shape[1]]
        rates = crossings / self.frame
        if np.isnan(samples.max()):
            unknown = frames_of(np.isnan(samples), self.frame, self.hop)
            rates[unknown.any(axis=-1)] = np.nan
        return rates


class Rms(_Level):
    """Root mean square of each frame of the signal.

    ``y[t] = sqrt(mean_j x[t * hop + j]**2)``, with ``j = 0 .. frame - 1`` and no taper.
    Frames are entirely within the window, so ``t = 0 .. (frames - frame) // hop``.
    Windows (n, frames) give (n, time_frames), windows (n, channels, frames) give
    (n, channels, time_frames), in float32. Silence and samples below 1e-23 give 0.

    The definition is that of librosa; no difference was found.

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

    def _levels(self, samples: FloatArray) -> Array:
        squares = np.square(samples, order="C")
        framed = frames_of(squares, self.frame, self.hop)
        return np.asarray(np.sqrt(_total(framed) * np.float32(1 / self.frame)))


class OnsetStrength(MelFrames):
    """Mean rise of the mel bands' level from a frame to the next, in dB.

    ::

        L[t, m] = 10 log10(max(M[t, m], floor))
        y[0] = 0
        y[t] = mean_m max(0, L[t, m] - L[t - 1, m])

    with the mel power ``M`` of :class:`LogMel`. Windows (n, frames) give
    (n, time_frames), windows (n, channels, frames) give (n, channels, time_frames), in
    float32. Silence gives 0.

    The result agrees with librosa's
    ``onset_strength(S=10 * log10(maximum(M, floor)), center=False)``. The largest
    difference found is 3e-6 dB for the same mel bands, and 4e-3 dB for librosa's own,
    which it computes in float64. Given a signal instead, librosa centres its frames,
    moves the result by half a frame, and raises all levels to at least 80 dB below the
    loudest band of the whole array.

    Attributes
    ----------
    n_fft, hop : int
        Length of a frame and step to the next one, in frames of the signal.
    n_mels : int
        Number of bands.
    f_min, f_max : float
        Edges of the lowest and of the highest band, in Hz; None: half the rate.
    floor : float
        The least power; with a higher one, faint sounds count less.

    Raises
    ------
    RecipeError
        As for :class:`LogMel`.

    References
    ----------
    S. Böck and G. Widmer, Maximum filter vibrato suppression for onset detection,
    DAFx, 2013.

    Examples
    --------
    >>> OnsetStrength(n_mels=40)(np.zeros((1, 1400), np.float32), 16000)
    array([[0., 0.]], dtype=float32)
    """

    floor: float = parameter(1e-10, POSITIVE)

    @on_signals
    def __call__(self, signals: FloatArray, sample_rate_hz: int) -> FloatArray:
        frames = self.frames(signals.shape[-1])
        out = np.zeros((len(signals), frames.count), np.float32)
        last = np.empty(0, np.float32)
        for (rows, times), samples in frames.stretches(signals):
            levels = self.bands(samples, sample_rate_hz)
            if times.start:
                out[rows, times.start] = _mean_rise(last, levels[:, 0])
            out[rows, times][:, 1:] = _mean_rise(levels[:, :-1], levels[:, 1:])
            last = levels[:, -1]
        return out

    def last_axes(self, sample_rate_hz: int) -> list[dict[str, Any]]:
        """Describes the axes after that of time: none."""
        return []


def _centroid(magnitudes: FloatArray) -> FloatArray:
    """Mean bin, weighted by magnitude."""
    bins = np.arange(magnitudes.shape[1], dtype=np.float32)
    return _over(_total(magnitudes * bins), _total(magnitudes))


def _total(values: FloatArray) -> FloatArray:
    return np.asarray(np.add.reduce(values, axis=-1))


def _mean(values: FloatArray) -> FloatArray:
    return _total(values) / np.float32(values.shape[-1])


def _over(weighted: FloatArray, total: FloatArray) -> FloatArray:
    """Weighted sums over the sum of the weights; 0 if that sum is 0."""
    # NaN must not become 0.
    return np.divide(weighted, total, out=np.zeros_like(total), where=~(total <= 0))


def _mean_rise(before: FloatArray, after: FloatArray) -> FloatArray:
    rise = after - before
    np.maximum(rise, 0, out=rise)
    return _mean(rise)
