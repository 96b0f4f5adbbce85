"""From samples to samples: levels, pre-emphasis, the analytic signal, other rates."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import MISSING, dataclass

import numpy as np
import numpy.typing as npt
import scipy  # loads its packages when they are used

from beam_pipeline.errors import RecipeError
from beam_pipeline.parameters import Choice, parameter
from beam_pipeline.transforms.base import (
    COUNT,
    LEVEL_DB,
    SHARE,
    Array,
    DoubleArray,
    FloatArray,
    Step,
    as_float32,
    quiet,
)
from beam_pipeline.transforms.filters import pieces
from beam_pipeline.transforms.frames import BLOCK_SAMPLES, fill_padded
from beam_pipeline.transforms.loudness import integrated_lufs


@dataclass(frozen=True, kw_only=True)
class Gain(Step):
    """Scales by a given gain, ``y = x * 10**(gain_db / 20)``.

    The shape does not change; the result is float32. Silence stays silence; nothing is
    clipped. The effect on a stream is the same.

    Attributes
    ----------
    gain_db : float
        dB, -200 to 200.

    Raises
    ------
    RecipeError
        If the gain is out of its range.

    Examples
    --------
    >>> Gain(gain_db=20)(np.array([[0.25, -0.5]], np.float32))
    array([[ 2.5, -5. ]], dtype=float32)
    """

    on_features = True

    gain_db: float = parameter(MISSING, LEVEL_DB)

    @quiet
    def __call__(self, windows: FloatArray) -> FloatArray:
        return as_float32(windows) * np.float32(10 ** (self.gain_db / 20))

    def context(self, sample_rate_hz: int) -> int:
        """The number of frames that :meth:`on_stream` needs before a stretch: none."""
        return 0

    @quiet
    def on_stream(self, frames: FloatArray, sample_rate_hz: int) -> FloatArray:
        """Scales frames (rows, m)."""
        return self(frames)


@dataclass(frozen=True)
class PeakGain(Step):
    """Scales each window so that its peak is at a level.

    ``y = x * 10**(level_db / 20) / max|x|``, with the maximum over all frames and
    channels of the window. Silence stays silence. A window that contains NaN or
    infinity gives NaN.

    Attributes
    ----------
    level_db : float
        dB relative to full scale, -200 to 200.

    Examples
    --------
    >>> PeakGain()(np.array([[0.1, -0.2], [0.0, 0.0]], np.float32))
    array([[ 0.5, -1. ],
           [ 0. ,  0. ]], dtype=float32)
    """

    gives_samples = True

    level_db: float = parameter(0.0, LEVEL_DB)

    @quiet
    def __call__(self, windows: FloatArray) -> FloatArray:
        return _scale_windows(windows, _peak, self.level_db)


@dataclass(frozen=True)
class RmsGain(Step):
    """Scales each window so that its root mean square is at a level.

    ``y = x * 10**(level_db / 20) / sqrt(mean(x**2))``, with the mean over all frames
    and channels of the window. Silence stays silence; peaks may exceed full scale. A
    window that contains NaN or infinity gives NaN.

    Attributes
    ----------
    level_db : float
        dB relative to an RMS of 1, -200 to 200.

    Examples
    --------
    >>> RmsGain(level_db=0)(np.array([[0.25, -0.25]], np.float32))
    array([[ 1., -1.]], dtype=float32)
    """

    gives_samples = True

    level_db: float = parameter(-20.0, LEVEL_DB)

    @quiet
    def __call__(self, windows: FloatArray) -> FloatArray:
        return _scale_windows(windows, _rms, self.level_db)


@dataclass(frozen=True, kw_only=True)
class LufsGain(Step):
    """Scales each window so that its integrated loudness is at a level.

    ``y = x * 10**((level_lufs - lufs(x)) / 20)``, with the loudness of
    ``loudness.Lufs`` over all channels. Silence and windows below the gate at -70 LUFS
    do not change; peaks may exceed full scale.

    Attributes
    ----------
    level_lufs : float
        LUFS, -200 to 200.

    Raises
    ------
    RecipeError
        If the level is out of its range; in a call, if the windows are shorter than
        400 ms, or the rate is below 4000 Hz.

    Examples
    --------
    >>> tone = np.sin(2 * np.pi * 997 / 48000 * np.arange(48000)).astype(np.float32)
    >>> abs(LufsGain()(tone[np.newaxis], 48000)).max().round(2)
    np.float32(0.1)
    """

    gives_samples = True

    level_lufs: float = parameter(-23.0, LEVEL_DB)

    @quiet
    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> FloatArray:
        windows = as_float32(windows)
        lufs = integrated_lufs(windows, sample_rate_hz)
        out = np.empty(windows.shape, np.float32)
        for window, scaled, measured in zip(windows, out, lufs.tolist(), strict=True):
            gain_db = 0.0 if measured == -math.inf else self.level_lufs - measured
            np.multiply(window, np.float32(10 ** (gain_db / 20)), out=scaled)
        return out


@dataclass(frozen=True, kw_only=True)
class Normalize(Step):
    """Brings the samples of each window to a common range.

    ::

        mean      y = x - mean(x)
        median    y = x - median(x)
        minmax    y = (x - min(x)) / (max(x) - min(x))
        standard  y = (x - mean(x)) / sqrt(mean((x - mean(x))**2))
        log       y = sign(x) * log(1 + |x|)

    Each channel of a window is normalized by itself. The shape does not change; the
    result is float32. ``mean`` removes an offset. Silence gives 0; so does any constant
    for all kinds except ``log``. A channel that contains NaN gives NaN for all kinds
    except ``log``; a channel that contains infinity, for all except ``log`` and
    ``median``.

    ``standard`` divides by the standard deviation of the population, as scikit-learn
    and ``scipy.stats.zscore`` do (largest difference found: 6e-8 of the largest value).

    Attributes
    ----------
    kind : str
        ``log``, ``mean``, ``median``, ``minmax`` or ``standard``.

    Raises
    ------
    RecipeError
        If the kind is unknown.

    Examples
    --------
    >>> Normalize(kind="minmax")(np.array([[1, 2, 5]], np.float32))
    array([[0.  , 0.25, 1.  ]], dtype=float32)
    """

    gives_samples = True

    kind: str = parameter(
        "standard", Choice(("log", "mean", "median", "minmax", "standard"))
    )

    @quiet
    def __call__(self, windows: FloatArray) -> FloatArray:
        windows = as_float32(windows)
        out = np.empty(windows.shape, np.float32)
        for row, result in rows(windows, out):
            if self.kind == "log":
                np.log1p(np.abs(row, out=result), out=result)
                np.copysign(result, row, out=result)
            else:
                offset, scale = _SCALES[self.kind](row)
                for piece in pieces(row):
                    # In float64: the difference may be far smaller than the offset.
                    part = np.subtract(row[piece], offset, dtype=np.float64)
                    result[piece] = np.multiply(part, 1 / (scale or 1.0), out=part)
        return out


def _mean(row: FloatArray) -> float:
    # Relative to the first sample, so that the mean of a constant is exact.
    first = float(row[0])
    return first + _sum(row, first, lambda part: part) / len(row)


def _deviation(row: FloatArray, mean: float) -> float:
    return math.sqrt(_sum(row, mean, np.square) / len(row))


def _sum(
    row: FloatArray, offset: float, function: Callable[[DoubleArray], DoubleArray]
) -> float:
    """The sum of ``function(row - offset)``, in fixed pieces."""
    sums = [
        float(function(np.subtract(row[piece], offset, dtype=np.float64)).sum())
        for piece in pieces(row)
    ]
    # math.fsum raises if there are infinities of both signs.
    return math.fsum(sums) if math.isfinite(sum(sums)) else math.nan


def _median(row: FloatArray) -> float:
    middle = (len(row) - 1) // 2, len(row) // 2
    if np.isnan(row.max()):  # np.partition sorts NaN to the end
        return math.nan
    ordered = np.partition(row, middle)
    return (float(ordered[middle[0]]) + float(ordered[middle[1]])) / 2


def _standard(row: FloatArray) -> tuple[float, float]:
    mean = _mean(row)
    return mean, _deviation(row, mean)


def _minmax(row: FloatArray) -> tuple[float, float]:
    low = float(row.min())
    return low, _finite(float(row.max()) - low)


# Kind -> the offset to subtract, and the divisor (0: do not divide).
_SCALES: dict[str, Callable[[FloatArray], tuple[float, float]]] = {
    "mean": lambda row: (_mean(row), 1.0),
    "median": lambda row: (_median(row), 1.0),
    "minmax": _minmax,
    "standard": _standard,
}


def _scale_windows(
    windows: FloatArray, measure: Callable[[FloatArray], float], level_db: float
) -> FloatArray:
    windows = as_float32(windows)
    level = 10 ** (level_db / 20)
    out = np.empty(windows.shape, np.float32)
    # Window by window: each stays in the cache, and sums round the same in any block.
    for window, scaled in zip(windows, out, strict=True):
        size = _finite(measure(window))
        # In float64, in which the factor of the faintest window is finite.
        ratio = np.divide(window, size if size != 0 else 1.0, dtype=np.float64)
        np.multiply(ratio, level, out=scaled, casting="same_kind")
    return out


def _finite(size: float) -> float:
    """The size, or NaN if it is infinite: dividing by infinity would give silence."""
    return size if math.isfinite(size) else math.nan


def _peak(window: FloatArray) -> float:
    return float(np.abs(window).max(initial=0))


def _rms(window: FloatArray) -> float:
    # The order of the squares in memory decides how their sum rounds.
    return math.sqrt(np.square(window, dtype=np.float64, order="C").mean())


# The low-pass of a change of rate: a sinc with this number of zero crossings on each
# side, in samples of the lower rate, times a Kaiser window. It attenuates by 100 dB
# from half the lower rate on (Kaiser, 1974: 0.1102 (A - 8.7)). The unit of the cut-off
# is half the lower rate.
CROSSINGS = 64
STOP_DB = 100.0
KAISER_BETA = 0.1102 * (STOP_DB - 8.7)
CUTOFF = 1 - (STOP_DB - 7.95) / (14.36 * 2 * CROSSINGS)

# The least number of outputs of one row of the product. Fewer are slow; with many, the
# matrix is mostly zeros.
LEAST_OUTPUTS = 32
MAX_WEIGHTS = 2**21


def rows(windows: Array, out: Array) -> Iterator[tuple[Array, Array]]:
    """Yields each channel of each window with the array for its result.

    Each channel stays in the cache, and no sum can depend on its neighbours.
    """
    for index in np.ndindex(windows.shape[:-1]):
        yield windows[index], out[index]


@dataclass(frozen=True, kw_only=True)
class PreEmphasis(Step):
    """First differences: raises high frequencies against low ones.

    ::

        y[0] = (1 - coefficient) * x[0]
        y[j] = x[j] - coefficient * x[j - 1]

    A window is part of a longer sound, so its first frame also serves as the frame
    before it, as in Kaldi. On a stream, the frame before is known; before the first
    frame, it is 0. The shape does not change; the result is float32. Silence stays
    silence.

    Libraries differ only in ``y[0]``: scipy and torchaudio keep ``x[0]``, librosa
    extrapolates. All other values agree (largest difference found: 6e-8 of the largest
    sample).

    Attributes
    ----------
    coefficient : float
        Share of the frame before that is subtracted, 0 to 1.

    Raises
    ------
    RecipeError
        If the coefficient is out of its range.

    References
    ----------
    J. D. Markel, A. H. Gray, Linear prediction of speech, Springer, 1976.

    Examples
    --------
    >>> PreEmphasis(coefficient=0.5)(np.array([[4, 4, 2, 0]], np.float32))
    array([[ 2.,  2.,  0., -1.]], dtype=float32)
    """

    gives_samples = True

    coefficient: float = parameter(0.97, SHARE)

    @quiet
    def __call__(self, windows: FloatArray) -> FloatArray:
        windows = as_float32(windows)
        out = self._differences(windows)
        out[..., :1] = windows[..., :1] * np.float32(1 - self.coefficient)
        return out

    def context(self, sample_rate_hz: int) -> int:
        """The number of frames that :meth:`on_stream` needs before a stretch."""
        return 1

    @quiet
    def on_stream(self, frames: FloatArray, sample_rate_hz: int) -> FloatArray:
        """The differences of frames (rows, m), from rest."""
        frames = as_float32(frames)
        out = self._differences(frames)
        out[..., :1] = frames[..., :1]
        return out

    def _differences(self, windows: FloatArray) -> FloatArray:
        """The differences of all frames except the first, which is left empty."""
        out = np.empty(windows.shape, np.float32)
        before = np.float32(-self.coefficient)
        for row, result in rows(windows, out):
            np.multiply(row[:-1], before, out=result[1:])
            result[1:] += row[1:]
        return out


@dataclass(frozen=True, kw_only=True)
class Analytic(Step):
    """The analytic signal: the signal, and its Hilbert transform as imaginary part.

    ::

        X[k] = sum_j x[j] * exp(-2i pi j k / frames)
        y = x + i * irfft(-i * X[k], but 0 at k = 0 and at half the rate)

    Its magnitude is the envelope, its angle the phase. The window counts as one period,
    so its two ends meet. The shape does not change; the result is complex64, and its
    real part is the window, bit by bit. Silence gives 0. The FFT covers the whole
    window and needs memory of that size.

    The result agrees with ``scipy.signal.hilbert`` (largest difference found: 5e-7 of
    the largest magnitude).

    References
    ----------
    S. L. Marple, Computing the discrete-time "analytic" signal via FFT, IEEE
    Transactions on Signal Processing 47, 1999.

    Examples
    --------
    >>> tone = np.cos(2 * np.pi * np.arange(8) / 8).astype(np.float32)
    >>> abs(Analytic()(tone[np.newaxis])).round(3)
    array([[1., 1., 1., 1., 1., 1., 1., 1.]], dtype=float32)
    """

    @quiet
    def __call__(self, windows: FloatArray) -> npt.NDArray[np.complex64]:
        windows = as_float32(windows)
        frames = windows.shape[-1]
        out = np.empty(windows.shape, np.complex64)
        if out.size == 0:
            return out
        several = max(1, BLOCK_SAMPLES // math.prod(windows.shape[1:]))
        for first in range(0, len(windows), several):
            some = slice(first, first + several)
            spectrum = scipy.fft.rfft(windows[some])
            spectrum *= np.complex64(-1j)
            out[some].real = windows[some]
            # irfft uses the real parts of the bins at 0 and half the rate: 0 now.
            out[some].imag = scipy.fft.irfft(spectrum, frames, overwrite_x=True)
        return out


def low_pass_taps(up: int, down: int) -> DoubleArray:
    """The low-pass of a change of rate by ``up / down``, at ``up`` times the rate.

    ``h[k] = sinc(CUTOFF * t) * kaiser(t / CROSSINGS), t = k / max(up, down)``, for
    ``|t| <= CROSSINGS``, and scaled so that its sum is 1.

    Examples
    --------
    >>> low_pass_taps(1, 2).shape
    (257,)
    """
    wide = max(up, down)
    half = CROSSINGS * wide
    taps: DoubleArray = np.sinc(CUTOFF / wide * np.arange(-half, half + 1))
    taps *= np.kaiser(2 * half + 1, KAISER_BETA)
    taps /= taps.sum()
    return taps


@functools.lru_cache(maxsize=4)
def resampling_matrix(up: int, down: int) -> tuple[FloatArray, int, int]:
    """The matrix that turns a stretch of the input into several outputs.

    Output m is ``sum_k up * h[m * down - k * up] * x[k]``, with ``h`` of
    :func:`low_pass_taps`, centred on 0. The weights repeat every ``up`` outputs and
    ``down`` inputs.

    Returns
    -------
    weights : numpy.ndarray, shape (inputs, outputs), float32
    lead : int
        Frames of a stretch before the time of its first output.
    step : int
        Distance from one stretch to the next, in frames of the input.
    """
    periods = -(-LEAST_OUTPUTS // up)
    outputs, step = periods * up, periods * down
    half = CROSSINGS * max(up, down)
    lead = half // up
    inputs = lead + (half + (outputs - 1) * down) // up + 1
    if inputs * outputs > MAX_WEIGHTS:
        raise OverflowError(
            f"the ratio {up} / {down} needs {inputs} x {outputs} weights"
        )
    taps = up * low_pass_taps(up, down)
    weights = np.zeros((inputs, outputs), np.float32)
    for m in range(outputs):
        at = half + m * down - (np.arange(inputs) - lead) * up
        inside = (at >= 0) & (at < len(taps))
        weights[inside, m] = taps[at[inside]]
    weights.flags.writeable = False
    return weights, lead, step


def change_rate(windows: FloatArray, up: int, down: int) -> FloatArray:
    """Windows at ``up / down`` times the rate; see :class:`Resample`."""
    weights, lead, step = resampling_matrix(up, down)
    inputs, outputs = weights.shape
    frames = windows.shape[-1]
    count = -(-frames * up // down)
    out = np.empty((*windows.shape[:-1], count), np.float32)
    several = min(max(1, BLOCK_SAMPLES // inputs), max(1, -(-count // outputs)))
    stretches = np.empty((several, inputs), np.float32)
    padded = np.empty(inputs + (several - 1) * step, np.float32)
    overlapping = np.lib.stride_tricks.sliding_window_view(padded, inputs)[::step]
    for row, result in rows(windows, out):
        for first in range(0, count, several * outputs):
            fill_padded(row, first // outputs * step - lead, padded)
            stretches[...] = overlapping
            # The product always has this shape, because its rounding depends on it.
            computed = (stretches @ weights).reshape(-1)
            result[first : first + len(computed)] = computed[: count - first]
    return out


@dataclass(frozen=True, kw_only=True)
class Resample(Step):
    """Resamples each window to another sample rate.

    ::

        y[m] = sum_k up * h[m * down - k * up] * x[k]
        up / down = rate_hz / sample_rate_hz in lowest terms

    with ``h`` a sinc times a Kaiser window, 64 zero crossings on each side: flat within
    0.001 dB up to 0.9 of half the lower rate, attenuated by 100 dB from half the lower
    rate on. Frame 0 keeps its time. The window is surrounded by zeros, which affect up
    to 64 frames of the lower rate at each end. The recipe's ``sample_rate`` avoids
    this, because it resamples a clip before windows are cut.

    Windows (n, [channels,] frames) give (n, [channels,] ceil(frames * up / down)), in
    float32. Silence stays silence. Later steps receive the new rate.

    The result agrees with ``scipy.signal.resample_poly`` with these taps (largest
    difference found: 5e-7 of the largest sample); scipy's default filter is shorter and
    attenuates by only 60 dB.

    Attributes
    ----------
    rate_hz : int
        The new rate, at least 1.

    Raises
    ------
    RecipeError
        If the rate is out of its range; in a call, if ``up / down`` needs too large a
        filter.

    References
    ----------
    J. F. Kaiser, Nonrecursive digital filter design using the I0-sinh window function,
    IEEE International Symposium on Circuits and Systems, 1974. R. E. Crochiere, L. R.
    Rabiner, Multirate digital signal processing, Prentice-Hall, 1983.

    Examples
    --------
    >>> Resample(rate_hz=16000)(np.zeros((2, 44100), np.float32), 44100).shape
    (2, 16000)
    """

    gives_samples = True

    rate_hz: int = parameter(MISSING, COUNT)

    @quiet
    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> FloatArray:
        windows = as_float32(windows)
        common = math.gcd(self.rate_hz, sample_rate_hz)
        up, down = self.rate_hz // common, sample_rate_hz // common
        if up == down:
            return windows
        try:
            return change_rate(windows, up, down)
        except OverflowError as error:
            raise RecipeError(
                "rate_hz",
                f"is {up}/{down} of the sample rate of {sample_rate_hz} Hz, and the "
                "filter for this ratio is too large; use a rate that is closer to the "
                "sample rate, or that has a larger common divisor with it",
                self.rate_hz,
            ) from error

    def rate_after(self, sample_rate_hz: int) -> int:
        """The rate of the result."""
        return self.rate_hz


@dataclass(frozen=True, kw_only=True)
class Downsample(Step):
    """Divides the sample rate of each window by a whole number.

    ``Downsample(ratio=4)`` is :class:`Resample` to a quarter of any sample rate, with
    the same filter against aliases.

    Attributes
    ----------
    ratio : int
        The old rate divided by the new rate, at least 1.

    Raises
    ------
    RecipeError
        If the ratio is not a whole number of at least 1; in a call, if it does not
        divide the rate, or is too large.

    Examples
    --------
    >>> Downsample(ratio=4)(np.zeros((2, 1001), np.float32), 16000).shape
    (2, 251)
    """

    gives_samples = True

    ratio: int = parameter(2, COUNT)

    @quiet
    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> FloatArray:
        resample = Resample(rate_hz=self.rate_after(sample_rate_hz))
        return resample(windows, sample_rate_hz)

    def rate_after(self, sample_rate_hz: int) -> int:
        """The rate of the result."""
        if sample_rate_hz % self.ratio:
            raise RecipeError(
                "ratio",
                f"must divide the sample rate of {sample_rate_hz} Hz without a "
                "remainder; for other rates, use resample(rate_hz=...)",
                self.ratio,
            )
        return sample_rate_hz // self.ratio
