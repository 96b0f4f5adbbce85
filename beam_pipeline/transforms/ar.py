"""Autoregressive models: linear prediction, and the spectra that follow from it.

A model of order p predicts each sample from the p before it::

    e[t] = x[t] + a[1] x[t - 1] + ... + a[p] x[t - p]

so that the filter ``1 / A(z)``, ``A(z) = sum_i a[i] z**-i``, turns the error ``e`` back
into ``x``. All computations are in float64.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy  # loads its packages when they are used

from beam_pipeline.arrays import Booleans, DoubleArray, FloatArray
from beam_pipeline.parameters import Choice, WholeNumber, parameter
from beam_pipeline.transforms.base import COUNT, POSITIVE, slices
from beam_pipeline.transforms.frames import (
    Frames,
    OverTime,
    axis,
    frequency_axis,
    hann_window,
    on_signals,
)

Signals = npt.NDArray[np.floating[Any]]

# At this order, the largest coefficient of a stable filter, binomial(128, 64) = 2e37,
# still fits float32, and Burg's matrices of order**2 values stay small.
MAX_ORDER = 128

# Values that a model needs in memory beside its frame, however short the frame.
FRAME_VALUES = 1024

# Samples are laid out in rows of LANES, and products are summed over SEGMENT_ROWS rows:
# fast for small orders, within the cache, and small enough that BLAS uses one thread.
# The bytes are then the same for any number of threads.
LANES = 8
SEGMENT_ROWS = 2048

# Longer rows are summed in pieces. numpy itself cuts rows longer than its buffers of
# 8192 values, but not if there is a single row.
PIECE = 4096

# Reflection coefficients are clipped to this, so every filter is stable. A residual
# below 2**-48 of the signal's amplitude is rounding error and cannot be predicted.
REFLECTION_LIMIT = 1 - 2.0**-50
LEAST_RESIDUAL = 2.0**-96
# The same limit for sums of rounded products.
LEAST_ERROR = 2.0**-46
# White noise that is added to the autocorrelation. Without it, rounding decides where
# models of high order have their tones.
WHITE_NOISE = 2.0**-38
LEAST_RESPONSE = 2.0**-120
# The bins of a spectrum show at least SHOWN_POWER of the signal's power, but the
# variance of the error is raised to SHOWN_VARIANCE of that power at most.
SHOWN_POWER = 2.0**-4
SHOWN_VARIANCE = 2.0**-16
# Burg's recursion on autocorrelations loses digits if a prediction is very good. Its
# result is used up to this estimated error, which leaves most float32 values unchanged.
TOLERANCE = 2.0**-25


class Model(NamedTuple):
    """Models of signals (n, N), one for each signal.

    Attributes
    ----------
    coefficients : numpy.ndarray, shape (..., order + 1), float64
        ``a``, with ``a[0] = 1``.
    reflection : numpy.ndarray, shape (..., order)
        ``k[p]``, the last coefficient of the model of order p.
    variance : numpy.ndarray, shape (...)
        Mean square of the prediction error.
    power : numpy.ndarray, shape (...)
        Mean square of the signal, over the same samples as the variance.
    """

    coefficients: DoubleArray
    reflection: DoubleArray
    variance: DoubleArray
    power: DoubleArray


def burg(signals: Signals, order: int) -> Model:
    """Models that minimise the forward and backward prediction errors.

    ::

        k[p] = -2 sum_t f[t] b[t - 1] / sum_t (f[t]**2 + b[t - 1]**2),  t = p .. N - 1
        f[t], b[t] = f[t] + k[p] b[t - 1],  b[t - 1] + k[p] f[t]
        a[i] = a[i] + k[p] a[p - i]

    for p = 1 .. order, from ``f = b = x``. The variance is
    ``mean(x**2) prod_p (1 - k[p]**2)``. The sums over ``f`` and ``b`` are computed as
    quadratic forms in the coefficients and the covariances of ``x``, which are summed
    once. If an estimate says that this loses digits of float32, the recursion runs on
    the signal itself. That happens if the prediction error is about 50 dB or more below
    the signal, and takes about fifteen times as long.

    Parameters
    ----------
    signals : numpy.ndarray, shape (n, N)
    order : int
        Below N.

    Returns
    -------
    Model
        Stable: ``|k| < 1``. Silence has coefficients of zero.

    References
    ----------
    J. P. Burg, Maximum Entropy Spectral Analysis, PhD thesis, Stanford University,
    1975. K. Vos, A Fast Implementation of Burg's Method, 2013, is the source of the
    quadratic forms.

    Examples
    --------
    >>> model = burg(0.5 ** np.arange(20.0)[np.newaxis], order=1)
    >>> model.coefficients.round(3).tolist()
    [[1.0, -0.8]]
    """
    model, trusted = _burg_by_sums(signals, order)
    if not trusted.all():
        again = _burg_by_samples(signals[~trusted].astype(np.float64), order)
        for values, better in zip(model, again, strict=True):
            values[~trusted] = better
    return model


def yule_walker(signals: Signals, order: int) -> Model:
    """Models with the autocorrelation of the signals, which are zero outside.

    ::

        sum_i a[i] r[|j - i|] = 0,  j = 1 .. order
        r[l] = sum_t x[t] x[t + l] / N

    by Levinson's recursion. 2**-38 of r[0] is added to r[0]: white noise at -114 dB,
    without which rounding decides where pure tones are. This is the autocorrelation
    method of speech coding. It needs a taper, because otherwise the signal ends with
    steps down to zero. The variance is ``sum_i a[i] r[i]``.

    Parameters
    ----------
    signals : numpy.ndarray, shape (n, N)
    order : int
        Below N.

    Returns
    -------
    Model
        Stable: ``|k| < 1``. Silence has coefficients of zero.

    References
    ----------
    J. Makhoul, Linear Prediction: A Tutorial Review, Proceedings of the IEEE 63(4),
    1975.

    Examples
    --------
    >>> model = yule_walker(0.5 ** np.arange(20.0)[np.newaxis], order=1)
    >>> model.coefficients.round(3).tolist()
    [[1.0, -0.5]]
    """
    lags = _autocorrelation(signals, order)
    lags[:, 0] *= 1 + WHITE_NOISE
    coefficients = np.ones((len(signals), 1))
    reflection = np.empty((len(signals), order))
    error = lags[:, 0].copy()
    for p in range(1, order + 1):
        products = _dot(coefficients, lags[:, p:0:-1])
        reflection[:, p - 1] = k = _ratio(-products, error, LEAST_ERROR * lags[:, 0])
        coefficients = _step_up(coefficients, k)
        error *= 1 - k**2
    frames = signals.shape[-1]
    return Model(coefficients, reflection, error / frames, lags[:, 0] / frames)


METHODS: dict[str, Callable[[Signals, int], Model]] = {
    "burg": burg,
    "yule_walker": yule_walker,
}


class ArParameters(OverTime):
    """The model and the frames: parameters that both transforms share."""

    order: int = parameter(16, WholeNumber(1, MAX_ORDER))
    method: str = parameter("burg", Choice(tuple(METHODS)))
    frame: int | None = parameter(None, COUNT)
    hop: int | None = parameter(None, COUNT)
    taper: str = parameter("none", Choice(("none", "hann", "hamming")))

    def check(self) -> None:
        super().check()
        if (self.frame is None) != (self.hop is None):
            raise self.refused(
                "hop",
                "must be given together with frame; leave both out for whole windows",
            )

    def frames(self, frames: int) -> Frames:
        """Where the time frames of a window are: one, if there are none."""
        length, hop = self.frame or frames, self.hop or 1
        if length <= self.order:
            raise self.refused(
                "order", f"needs frames of at least {self.order + 1}, not {length}"
            )
        return Frames.within(frames, "frame", length, hop)

    def _each_frame(
        self, signals: FloatArray, size: int, features: Callable[[Model], DoubleArray]
    ) -> FloatArray:
        """``size`` features of every frame: (..., time_frames, size)."""
        frames = self.frames(signals.shape[-1])
        values = max(frames.length, size, FRAME_VALUES, (self.order + 1) ** 2)

        def measured(part: Signals) -> DoubleArray:
            found = features(self._model(part.reshape(-1, frames.length)))
            return found.reshape(*part.shape[:2], size)

        out = frames.features(signals, measured, size, values=values)
        return out[:, 0] if self.frame is None else out

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """Describes the last axes: time, if there are frames, and :meth:`last_axes`.

        Examples
        --------
        >>> LinearPrediction().axes(16000, 16000)
        [{'name': 'coefficient', 'unit': '1', 'size': 16, 'start': 1, 'step': 1}]
        >>> ArSpectrum().axes(16000, 16000)[0]["step"]
        31.25
        """
        axes = super().axes(sample_rate_hz, frames)
        return axes[1:] if self.frame is None else axes

    def _model(self, signals: Signals) -> Model:
        frames = signals.shape[-1]
        energy = 1.0
        if self.taper != "none":
            taper = _taper(self.taper, frames)
            signals = signals * taper
            energy = float(np.square(taper).sum() / frames)
        model = METHODS[self.method](signals, self.order)
        # Infinite sums exceed any limit, which would make the coefficients zeros.
        broken = ~np.isfinite(model.power)
        for values in model[:-1]:
            values[broken] = np.nan
        # A taper removes energy; variance and power are those without a taper.
        return model._replace(
            variance=model.variance / energy, power=model.power / energy
        )


class LinearPrediction(ArParameters):
    """The filter that predicts each sample from those before it.

    ::

        e[t] = x[t] + a[1] x[t - 1] + ... + a[order] x[t - order]

    where ``a`` makes the prediction error ``e`` small. Windows (n, frames) give
    (n, order), or (n, time_frames, order) if ``frame`` is given. Frames are entirely
    within the window, so ``time_frames = 1 + (frames - frame) // hop``. The gain has no
    last axis. Results are float32, computed in float64.

    The signs are those of ``librosa.lpc``, ``scipy.signal.lfilter`` and MATLAB: a
    predictor's weights are ``-a``. Reflection coefficients are ``k[p]``, the last
    coefficient of the model of order p; PARCOR elsewhere may be ``-k``. The 1 before
    ``a`` is left out, because it would be a constant feature.

    Silence gives zeros; a frame that contains NaN or infinity gives NaN. With ``burg``,
    a constant leaves an error of 2**-24 of its root mean square instead of none, so
    that the filter is stable.

    With ``burg``, the definition is that of ``librosa.lpc``. For float64 samples of
    noise and a vowel, librosa's coefficients of order 16 differ by at most 5e-8 of the
    largest, the last bit of float32. For float32 samples, librosa computes in float32,
    and none of its digits is right for the vowel. Many filters predict a pure tone
    equally well, and rounding chooses one: the two then agree only in their
    predictions.

    Attributes
    ----------
    order : int
        Number of coefficients, 1 to 128.
    method : str
        ``burg`` (smallest forward and backward errors), or ``yule_walker``
        (autocorrelation of the signal with zeros around it; needs a taper). Both give
        stable filters. See the functions of these names.
    output : str
        ``coefficients``, ``a[1] .. a[order]``; ``reflection``, ``k[1] .. k[order]``,
        between -1 and 1; or ``gain``, the root mean square of ``e`` for the untapered
        signal, in the unit of the samples.
    frame, hop : int
        Length of a frame and step to the next one, in frames of the signal. None: the
        whole window.
    taper : str
        ``none``, or a periodic window that multiplies each frame: ``hann``,
        ``hamming``.

    Raises
    ------
    RecipeError
        If a value is out of its range, or only one of ``frame`` and ``hop`` is given;
        in a call, if the frame is longer than the window, or too short for the order.

    References
    ----------
    J. Makhoul, Linear Prediction: A Tutorial Review, Proceedings of the IEEE 63(4),
    1975.

    Examples
    --------
    >>> alternating = np.array([[1, -1] * 50], np.float32)
    >>> LinearPrediction(order=2)(alternating)
    array([[1., 0.]], dtype=float32)
    >>> windows = np.zeros((3, 16000), np.float32)
    >>> LinearPrediction(frame=400, hop=160)(windows).shape
    (3, 98, 16)
    """

    output: str = parameter(
        "coefficients", Choice(("coefficients", "reflection", "gain"))
    )

    @on_signals
    def __call__(self, signals: FloatArray) -> FloatArray:
        if self.output == "gain":
            return self._each_frame(signals, 1, self._features)[..., 0]
        return self._each_frame(signals, self.order, self._features)

    def last_axes(self, sample_rate_hz: int) -> list[dict[str, Any]]:
        if self.output == "gain":
            return []
        return [axis("coefficient", "1", self.order, 1, 1)]

    def _features(self, model: Model) -> DoubleArray:
        if self.output == "gain":
            return np.sqrt(model.variance)[..., np.newaxis]
        if self.output == "coefficients":
            return model.coefficients[..., 1:]
        # The largest float32 below 1: lattices and log area ratios need less than 1.
        limit = 1 - 2.0**-24
        return np.clip(model.reflection, -limit, limit)


class ArSpectrum(ArParameters):
    """Logarithm of the power density of an autoregressive model: a smooth spectrum.

    ::

        A[k] = sum_i a[i] exp(-2i pi i k / n_fft)
        P[k] = 2 v / (sample_rate_hz |A[k]|**2)
        y[k] = 10 log10(max(P[k], floor))    or    ln(max(P[k], floor))

    P is halved at 0 Hz and at half the rate: the density is one-sided, like the
    periodogram of ``scipy.signal``. The sum of P over the bins, times
    ``sample_rate_hz / n_fft``, is the mean square of the signal, if the peaks are wide
    enough for ``n_fft``. Windows (n, frames) give (n, n_fft // 2 + 1), or
    (n, time_frames, n_fft // 2 + 1) if ``frame`` is given. Results are float32,
    computed in float64.

    ``v`` is the variance of the prediction error. It is raised only for pure tones,
    whose variance is close to 0 and whose peaks may be between the bins::

        v = max(variance, min(2**-16 m, m / (16 mean_k 1 / |A[k]|**2)))

    where ``m`` is the mean square of the signal, and the mean goes around the whole
    circle. This raises ``v`` until the bins have a sixteenth of the signal's power, but
    not above -48 dB of the signal. Otherwise, rounding would decide whether a tone is
    visible. The position of a pure tone's peak is meaningful; its height is not.

    Attributes
    ----------
    order, method, frame, hop, taper
        The model and the frames, as in :class:`LinearPrediction`.
    n_fft : int
        Number of frequencies around the circle, more than the order, at most 65536.
    floor : float
        The least power density, in 1/Hz for samples with full scale at 1. Silence gives
        exactly its logarithm.
    log : str
        ``db`` or ``ln`` (nepers of power).

    Raises
    ------
    RecipeError
        As for :class:`LinearPrediction`; also if ``n_fft`` does not exceed the order.

    References
    ----------
    S. M. Kay and S. L. Marple, Spectrum Analysis: A Modern Perspective, Proceedings of
    the IEEE 69(11), 1981.

    Examples
    --------
    >>> ArSpectrum(order=4, n_fft=8)(np.zeros((1, 100), np.float32), 16000)
    array([[-160., -160., -160., -160., -160.]], dtype=float32)
    """

    n_fft: int = parameter(512, WholeNumber(2, 2**16), above="order")
    floor: float = parameter(1e-16, POSITIVE)
    log: str = parameter("db", Choice(("db", "ln")))

    @on_signals
    def __call__(self, signals: FloatArray, sample_rate_hz: int) -> FloatArray:
        features = functools.partial(self._features, sample_rate_hz)
        return self._each_frame(signals, self.n_fft // 2 + 1, features)

    def last_axes(self, sample_rate_hz: int) -> list[dict[str, Any]]:
        return [frequency_axis(sample_rate_hz, self.n_fft)]

    def _features(self, sample_rate_hz: int, model: Model) -> DoubleArray:
        response = scipy.fft.rfft(model.coefficients, self.n_fft)
        power: DoubleArray = response.real**2 + response.imag**2
        # At a pole on the unit circle, the power is rounding error and may be zero.
        np.maximum(power, LEAST_RESPONSE, out=power)
        variance = self._shown_variance(model, power)
        density = variance[..., np.newaxis] * (2 / sample_rate_hz)
        np.divide(density, power, out=power)
        power[..., 0] /= 2
        if self.n_fft % 2 == 0:
            power[..., -1] /= 2
        scale = 10 / math.log(10) if self.log == "db" else 1.0
        np.maximum(power, self.floor, out=power)
        np.log(power, out=power)
        power *= scale
        return power

    def _shown_variance(self, model: Model, response: DoubleArray) -> DoubleArray:
        """``v`` of :class:`ArSpectrum`; ``response`` is ``|A|**2``."""
        variance = model.variance
        faint = variance < SHOWN_VARIANCE * model.power
        if faint.any():
            inverse = 1 / response[faint]
            # All bins except 0 Hz and half the rate occur twice around the circle.
            around = 2 * inverse.sum(axis=-1) - inverse[:, 0]
            if self.n_fft % 2 == 0:
                around -= inverse[:, -1]
            least = np.minimum(SHOWN_VARIANCE, SHOWN_POWER * self.n_fft / around)
            least *= model.power[faint]
            variance = variance.copy()
            variance[faint] = np.maximum(variance[faint], least)
        return variance


@functools.lru_cache(maxsize=32)
def _taper(name: str, length: int) -> DoubleArray:
    hann = hann_window(length).astype(np.float64)
    return hann if name == "hann" else 0.08 + 0.92 * hann


def _autocorrelation(rows: Signals, order: int) -> DoubleArray:
    """``r[l] = sum_t x[t] x[t + l]`` for l = 0 .. order: (n, order + 1).

    With LANES samples in a row, the transposed rows times the rows some rows later are
    the sums of each lane times each lane. Sums along the diagonals of these matrices,
    side by side, are the sums of each lag over all lanes.
    """
    n, frames = rows.shape
    depth = -(-frames // LANES)
    depth = -(-depth // -(-depth // SEGMENT_ROWS))
    later_rows = -(-order // LANES) + 1
    samples = np.zeros((n, (depth + later_rows - 1) * LANES))
    now = samples[:, np.newaxis, : depth * LANES].reshape(n, 1, depth, LANES)
    later = np.lib.stride_tricks.sliding_window_view(samples, depth * LANES, axis=-1)
    later = later[:, ::LANES].reshape(n, later_rows, depth, LANES)
    products = np.zeros((n, later_rows, LANES, LANES))
    for start in range(0, frames, depth * LANES):
        segment = rows[:, start : start + samples.shape[-1]]
        samples[:, : segment.shape[-1]] = segment
        samples[:, segment.shape[-1] :] = 0
        products += now.swapaxes(-1, -2) @ later

    lanes = products.swapaxes(1, 2).reshape(n, LANES, later_rows * LANES)
    lags = np.zeros((n, order + 1))
    for lane in range(LANES):
        lags += lanes[:, lane, lane : lane + order + 1]
    return lags


def _burg_by_sums(rows: Signals, order: int) -> tuple[Model, Booleans]:
    """Burg's models, and which of them are as exact as float32.

    ``C[i, j] = sum_t x[t - i] x[t - j]``, t = p .. N - 1, for order p. The filters of
    both errors are ``v = (a[0] .. a[p - 1], 0)`` and its reverse ``w``. Then k[p] needs
    the sums ``w C v`` and ``v C v + w C w``. The recursion stores only two parts of C:
    the ``forms`` (C v; C w reversed) and the ``edges`` (the first row; the last row
    reversed). In both pairs, the second is the first for the reversed signal, so one
    expression computes both.
    """
    n = len(rows)
    lags = _autocorrelation(rows, order)
    ends = np.stack([rows[:, :order], rows[:, ::-1][:, :order]], 1, dtype=np.float64)
    forms, edges = np.zeros((2, n, 2, order + 1))
    forms[..., 0] = edges[..., 0] = lags[:, :1]
    coefficients = np.ones((n, 1))
    reflection = np.empty((n, order))
    least = np.full(n, np.inf)
    for p in range(1, order + 1):
        edges[..., p] = lags[:, p, np.newaxis]
        # To C of order p: its sums begin one sample later, so products of the samples
        # that leave are subtracted. It has one more row, that of the last edge.
        leaving = ends[..., p - 1 :: -1]
        edges[..., :p] -= leaving[..., :1] * leaving
        forms[..., :p] -= leaving * _dots(leaving, coefficients)[..., np.newaxis]
        forms[..., p] = _dots(edges[:, ::-1, 1 : p + 1], coefficients[:, ::-1])
        both = _dots(forms[..., :p], coefficients)
        square = both[:, 0] + both[:, 1]
        cross = _dot(forms[:, 0, 1 : p + 1], coefficients[:, ::-1])
        reflection[:, p - 1] = k = _ratio(-2 * cross, square, 0.0)
        coefficients = _step_up(coefficients, k)
        grown = forms[..., : p + 1]
        grown += k[:, np.newaxis, np.newaxis] * grown[:, ::-1, ::-1]
        np.minimum(least, square, out=least)

    # The size of the terms in the sums, compared with the smallest sum.
    size = lags[:, 0] * np.square(np.abs(coefficients).sum(axis=-1))
    trusted = order * np.finfo(np.float64).eps * size <= TOLERANCE * least
    power = lags[:, 0] / rows.shape[-1]
    variance = power * np.prod(1 - reflection**2, axis=-1)
    return Model(coefficients, reflection, variance, power), trusted


def _burg_by_samples(rows: DoubleArray, order: int) -> Model:
    """Burg's models from the prediction errors themselves, which loses no digits."""
    energy = _dot(rows, rows)
    coefficients = np.ones((len(rows), 1))
    reflection = np.empty((len(rows), order))
    power = energy / rows.shape[-1]
    variance = power.copy()
    ahead, behind = rows[:, 1:].copy(), rows[:, :-1].copy()
    for p in range(order):
        both = _dot(ahead, ahead) + _dot(behind, behind)
        k = _ratio(-2 * _dot(ahead, behind), both, LEAST_RESIDUAL * energy)
        reflection[:, p] = k
        coefficients = _step_up(coefficients, k)
        variance *= 1 - k**2
        correction = k[:, np.newaxis] * behind
        behind += k[:, np.newaxis] * ahead
        ahead += correction
        ahead, behind = ahead[:, 1:], behind[:, :-1]
    return Model(coefficients, reflection, variance, power)


def _step_up(coefficients: DoubleArray, k: DoubleArray) -> DoubleArray:
    """``a[i] + k a[p - i]``: coefficients of the next order."""
    longer = np.zeros((len(coefficients), coefficients.shape[-1] + 1))
    longer[:, :-1] = coefficients
    return longer + k[:, np.newaxis] * longer[:, ::-1]


def _ratio(
    numerator: DoubleArray, denominator: DoubleArray, least: DoubleArray | float
) -> DoubleArray:
    """A reflection coefficient, within its limit; 0 if no error is left."""
    k = np.zeros_like(numerator)
    # NaN must not become 0.
    np.divide(numerator, denominator, out=k, where=~(denominator <= least))
    return np.clip(k, -REFLECTION_LIMIT, REFLECTION_LIMIT, out=k)


# einsum sums each row by itself. The order depends only on the row's length, if that
# fits numpy's buffers.


def _dot(left: DoubleArray, right: DoubleArray) -> DoubleArray:
    products: DoubleArray = np.zeros(len(left))
    for piece in slices(left.shape[-1], PIECE):
        products += np.einsum("ni,ni->n", left[:, piece], right[:, piece])
    return products


def _dots(pairs: DoubleArray, vectors: DoubleArray) -> DoubleArray:
    return np.asarray(np.einsum("nci,ni->nc", pairs, vectors))
