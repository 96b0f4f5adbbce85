"""From samples to samples: levels, filters, the analytic signal, other rates.

Butterworth filters have no delay on windows, and are causal on streams.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator
from dataclasses import MISSING
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import numpy.typing as npt
import scipy  # loads its packages when they are used

from beam_pipeline.arrays import Array, DoubleArray, FloatArray
from beam_pipeline.errors import RecipeError
from beam_pipeline.parameters import Choice, WholeNumber, parameter
from beam_pipeline.transforms.base import (
    COUNT,
    LEVEL_DB,
    POSITIVE,
    SHARE,
    FrameByFrame,
    Step,
    on_windows,
    quiet,
    slices,
)
from beam_pipeline.transforms.frames import BLOCK_SAMPLES, frames_of, stretch

Sections = DoubleArray

ORDER = WholeNumber(1, 16)

# The least distance of edges from 0, from half the rate and from each other, as a share
# of the rate. For smaller distances, the coefficients have too few digits.
LEAST_PART = 1e-5

# Samples of all channels that are filtered together, in float64.
PIECE_SAMPLES = 2**17

# The largest error from a limited context on streams, relative to the largest sample.
LEFT_OUT = 1e-9
MAX_CONTEXT = 2**22


@functools.lru_cache(maxsize=32)
def butterworth(step: _Butterworth, sample_rate_hz: int) -> Sections:
    """Second-order sections of a digital Butterworth filter.

    The bilinear transform of the analogue filter, with pre-warped edges.

    Returns
    -------
    numpy.ndarray, shape (sections, 6), float64
        Rows ``b0, b1, b2, a0, a1, a2``. The array is cached: do not change it.

    Raises
    ------
    RecipeError
        If an edge is too close to 0, to half the rate or to the other edge.

    Examples
    --------
    >>> butterworth(LowPass(cutoff_hz=1000), 16000).shape
    (2, 6)
    """
    least = LEAST_PART * sample_rate_hz
    hertz = [getattr(step, field) for field in step.EDGES]
    for field, hz, lowest in zip(step.EDGES, hertz, (0, *hertz), strict=False):
        if not lowest + least <= hz <= sample_rate_hz / 2 - least:
            raise step.refused(
                field,
                f"must be between {lowest + least:g} and "
                f"{sample_rate_hz / 2 - least:g} Hz at a sample rate of "
                f"{sample_rate_hz} Hz",
            )
    edges = hertz if len(hertz) == 2 else hertz[0]
    sections: Sections = scipy.signal.butter(
        step.order, edges, step.KIND, fs=sample_rate_hz, output="sos"
    )
    return sections


@functools.lru_cache(maxsize=32)
def steady_state(step: _Butterworth, sample_rate_hz: int) -> Array:
    """The state of a filter after an endless input of ones."""
    return np.asarray(scipy.signal.sosfilt_zi(butterworth(step, sample_rate_hz)))


def run(sections: Sections, samples: Array, state: Array) -> tuple[DoubleArray, Array]:
    """Filters samples (..., frames) in float64; also returns the state after them.

    The state has the shape (sections, ..., 2); at rest it is zeros.
    """
    if samples.shape[-1] == 0:  # scipy fails on empty input
        return samples.astype(np.float64), state
    filtered, state = scipy.signal.sosfilt(sections, samples, zi=state)
    return filtered, state


def at_rest(sections: Sections, samples: Array) -> Array:
    return np.zeros((len(sections), *samples.shape[:-1], 2))


def zero_phase(sections: Sections, steady: Array, windows: FloatArray) -> FloatArray:
    """Filters each window forward, and the result backward.

    Both ends are padded with the window's points, reflected through the end point:
    ``x[-j] = 2 x[0] - x[j]``. The padding has three frames for each pole and three
    more, but is shorter than the window. Each direction begins as if the first value of
    the padding had always been the input.

    The forward result is rounded to float32.
    """
    out = np.empty(windows.shape, np.float32)
    if out.size == 0:
        return out
    poles = 2 * len(sections) - np.count_nonzero(sections[:, 5] == 0)
    pad = min(3 * (int(poles) + 1), windows.shape[-1] - 1)
    for some in slices(len(windows), PIECE_SAMPLES // math.prod(windows.shape[1:])):
        part = windows[some]
        states = np.expand_dims(steady, tuple(range(1, part.ndim)))
        first, last = (part[..., [at]].astype(np.float64) for at in (0, -1))
        before = 2 * first - part[..., pad:0:-1]
        after = 2 * last - part[..., -2 : -pad - 2 : -1]
        # A window of one frame has no padding.
        value = (before if pad else first)[..., :1]
        _, state = run(sections, before, states * value)
        forward, state = run(sections, part, state)
        tail, _ = run(sections, after, state)
        end = (tail if pad else forward)[..., -1:]
        _, state = run(sections, tail[..., ::-1], states * end)
        backward, _ = run(sections, forward.astype(np.float32)[..., ::-1], state)
        out[some] = backward[..., ::-1]
    return out


def pieces(samples: Array) -> list[slice]:
    """Slices over the last axis, each with ``PIECE_SAMPLES`` of all channels."""
    rows = max(1, math.prod(samples.shape[:-1]))
    return slices(samples.shape[-1], PIECE_SAMPLES // rows)


# Samples that are squared together; their float64 squares stay in the cache.
SQUARED_SAMPLES = 2**16


def frame_powers(window: FloatArray, frame: int) -> DoubleArray:
    """Mean square of each whole frame, over its samples in all channels, in float64.

    Parameters
    ----------
    window : numpy.ndarray, shape (n,) or (channels, n), float32
    frame : int
        The length of a frame. Samples after the last whole frame are ignored.

    Returns
    -------
    numpy.ndarray, shape (n // frame,), float64
    """
    channels = np.atleast_2d(window)
    count = window.shape[-1] // frame
    powers = np.zeros(count)
    for channel in channels:
        for some in slices(count, SQUARED_SAMPLES // frame):
            framed = channel[some.start * frame : some.stop * frame]
            squares = np.square(framed, dtype=np.float64)
            powers[some] += squares.reshape(-1, frame).sum(axis=1)
    powers /= frame * len(channels)
    return powers


def mean_square(window: FloatArray) -> float:
    """Mean of the squares of a window's samples, in float64.

    The sum goes channel by channel, in pieces of a fixed length: the order of a sum
    decides how it is rounded.
    """
    total = sum(
        float(np.square(piece, dtype=np.float64).sum())
        for channel in window.reshape(-1, window.shape[-1])
        for piece in _in_pieces(channel)
    )
    return total / window.size


@quiet()
def variance(window: FloatArray) -> float:
    """Mean of the squared distances of samples from their channel's mean, in float64.

    The sums have the order of :func:`mean_square`.
    """
    total = 0.0
    for channel in window.reshape(-1, window.shape[-1]):
        sums = (float(piece.sum(dtype=np.float64)) for piece in _in_pieces(channel))
        mean = sum(sums) / len(channel)
        for piece in _in_pieces(channel):
            total += float(np.square(piece.astype(np.float64) - mean).sum())
    return total / window.size


def _in_pieces(channel: FloatArray) -> list[FloatArray]:
    return [channel[piece] for piece in slices(len(channel), SQUARED_SAMPLES)]


@functools.lru_cache(maxsize=32)
def butterworth_context(step: _Butterworth, sample_rate_hz: int) -> int:
    """The number of earlier frames that a filter's output depends on.

    The least n with ``sum(|h[k]| for k >= n) <= 1e-9``, where ``h`` is the impulse
    response: earlier samples change the output by at most 1e-9 of the largest of them.

    Raises
    ------
    RecipeError
        As for :func:`butterworth`; also if n exceeds 2**22.
    """
    sections = butterworth(step, sample_rate_hz)
    radius = max(abs(np.roots(section[3:])).max() for section in sections)
    # The slowest pole gives an upper bound of n, with a margin for poles near each
    # other, whose responses add up. The impulse response gives n itself.
    longest = math.log(LEFT_OUT * 1e-4) / math.log(radius) if radius < 1 else math.inf
    if longest > 2 * MAX_CONTEXT:
        frames = MAX_CONTEXT + 1
    else:
        impulse = np.zeros(math.ceil(longest) + 64)
        impulse[0] = 1
        response, _ = run(sections, impulse, at_rest(sections, impulse))
        left = np.cumsum(abs(response[::-1]))[::-1]
        frames = int(np.count_nonzero(left > LEFT_OUT))
    if frames > MAX_CONTEXT:
        raise step.refused(
            step.EDGES[0],
            f"needs more than {MAX_CONTEXT} earlier frames of the stream at a sample "
            f"rate of {sample_rate_hz} Hz; use a lower order, or edges that are "
            "further from 0, from half the sample rate and from each other",
        )
    return frames


class _Butterworth(Step):
    """Code that the filters share; each filter is a frozen dataclass."""

    gives_samples = True

    KIND: ClassVar[str]
    EDGES: ClassVar[tuple[str, ...]]

    if TYPE_CHECKING:  # each filter has it, after its edges
        order: int

    @on_windows
    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> FloatArray:
        sections = butterworth(self, sample_rate_hz)
        return zero_phase(sections, steady_state(self, sample_rate_hz), windows)

    def context(self, sample_rate_hz: int) -> int:
        """The number of frames that :meth:`on_stream` needs before a stretch."""
        return butterworth_context(self, sample_rate_hz)

    @on_windows
    def on_stream(self, frames: FloatArray, sample_rate_hz: int) -> FloatArray:
        """Filters frames (rows, m) forward only, from rest."""
        sections = butterworth(self, sample_rate_hz)
        filtered, _ = run(sections, frames, at_rest(sections, frames))
        return filtered.astype(np.float32)


class LowPass(_Butterworth):
    """Butterworth low-pass: without a delay on windows, causal on streams.

    ::

        |H(f)|**2 = 1 / (1 + (w(f) / w(cutoff_hz))**(2 * order))
        w(f) = tan(pi * f / sample_rate_hz)

    A window is filtered forward and backward, which multiplies its spectrum by
    ``|H|**2``: -6.02 dB at the cut-off, and no phase. The window's frames, reflected
    through the end points, pad both ends: 3 frames for each pole and 3 more, if the
    window has as many. The shape does not change; the result is float32. Silence stays
    silence.

    A stream is filtered forward only, from rest, by ``H``: -3.01 dB at the cut-off, and
    a delay.

    The result agrees with ``scipy.signal.butter`` and ``sosfiltfilt``, for a stream
    ``sosfilt`` (largest difference found: 6e-8 of the largest sample).

    Attributes
    ----------
    cutoff_hz : float
        At least 1e-5 of the rate from 0 and from half the rate.
    order : int
        Number of poles, 1 to 16.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if the cut-off does not suit the
        rate; on a stream, if the filter needs more than 2**22 earlier frames.

    References
    ----------
    S. Butterworth, On the theory of filter amplifiers, Experimental Wireless and the
    Wireless Engineer 7, 1930. F. Gustafsson, Determining the initial states in
    forward-backward filtering, IEEE Transactions on Signal Processing 44, 1996.

    Examples
    --------
    >>> tones = np.sin(np.pi * np.outer([0.1, 0.9], np.arange(4000)))
    >>> filtered = LowPass(cutoff_hz=4000)(tones.astype(np.float32), 16000)
    >>> abs(filtered[:, 1000:3000]).max(axis=-1).round(3)
    array([1., 0.], dtype=float32)
    """

    KIND = "lowpass"
    EDGES = ("cutoff_hz",)

    cutoff_hz: float = parameter(MISSING, POSITIVE)
    order: int = parameter(4, ORDER)


class HighPass(_Butterworth):
    """Butterworth high-pass: without a delay on windows, causal on streams.

    ``|H(f)|**2 = 1 / (1 + (w(cutoff_hz) / w(f))**(2 * order))``. Otherwise, it works
    like :class:`LowPass`.

    Attributes
    ----------
    cutoff_hz : float
        At least 1e-5 of the rate from 0 and from half the rate.
    order : int
        Number of poles, 1 to 16.

    Raises
    ------
    RecipeError
        As for :class:`LowPass`.

    Examples
    --------
    >>> steady = np.ones((1, 4000), np.float32)
    >>> HighPass(cutoff_hz=50)(steady, 16000).max().round(6)
    np.float32(0.0)
    """

    KIND = "highpass"
    EDGES = ("cutoff_hz",)

    cutoff_hz: float = parameter(MISSING, POSITIVE)
    order: int = parameter(4, ORDER)


class BandPass(_Butterworth):
    """Butterworth band-pass: without a delay on windows, causal on streams.

    ::

        |H(f)|**2 = 1 / (1 + ((w(f)**2 - l * h) / (w(f) * (h - l)))**(2 * order))
        l = w(low_hz), h = w(high_hz)

    Otherwise, it works like :class:`LowPass`.

    Attributes
    ----------
    low_hz, high_hz : float
        Edges, at least 1e-5 of the rate from 0, from half the rate and from each other.
    order : int
        Half the number of poles, 1 to 16, as in ``scipy.signal.butter``: each edge is
        as steep as that of a low-pass or high-pass of this order.

    Raises
    ------
    RecipeError
        As for :class:`LowPass`.

    Examples
    --------
    >>> BandPass(low_hz=300, high_hz=3400)(np.zeros((2, 5), np.float32), 16000).shape
    (2, 5)
    """

    KIND = "bandpass"
    EDGES = ("low_hz", "high_hz")

    low_hz: float = parameter(MISSING, POSITIVE)
    high_hz: float = parameter(MISSING, POSITIVE, above="low_hz")
    order: int = parameter(4, ORDER)


class Gain(FrameByFrame, Step):
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

    @on_windows
    def __call__(self, windows: FloatArray) -> FloatArray:
        return windows * np.float32(10 ** (self.gain_db / 20))

    def on_stream(self, frames: FloatArray, sample_rate_hz: int) -> FloatArray:
        """Scales frames (rows, m)."""
        return self(frames)


class PeakGain(Step, kw_only=False):
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

    @on_windows
    def __call__(self, windows: FloatArray) -> FloatArray:
        return _scale_windows(windows, _peak, self.level_db)


class RmsGain(Step, kw_only=False):
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

    @on_windows
    def __call__(self, windows: FloatArray) -> FloatArray:
        return _scale_windows(windows, _rms, self.level_db)


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

    @on_windows
    def __call__(self, windows: FloatArray) -> FloatArray:
        out = np.empty(windows.shape, np.float32)
        for row, result in rows(windows, out):
            if self.kind == "log":
                np.log1p(np.abs(row, out=result), out=result)
                np.copysign(result, row, out=result)
            else:
                offset, scale = self._offset_and_scale(row)
                for piece in pieces(row):
                    # In float64: the difference may be far smaller than the offset.
                    part = np.subtract(row[piece], offset, dtype=np.float64)
                    result[piece] = np.multiply(part, 1 / (scale or 1.0), out=part)
        return out

    def _offset_and_scale(self, row: FloatArray) -> tuple[float, float]:
        """What to subtract, and by what to divide; 0: do not divide."""
        if self.kind == "median":
            return float(np.median(row.astype(np.float64))), 1.0
        if self.kind == "minmax":
            low = float(row.min())
            return low, _finite(float(row.max()) - low)
        # Relative to the first sample, so that the mean of a constant is exact.
        first = float(row[0])
        mean = first + _sum(row, first, lambda part: part) / len(row)
        if self.kind == "mean":
            return mean, 1.0
        return mean, math.sqrt(_sum(row, mean, np.square) / len(row))


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


def _scale_windows(
    windows: FloatArray, measure: Callable[[FloatArray], float], level_db: float
) -> FloatArray:
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

    @on_windows
    def __call__(self, windows: FloatArray) -> FloatArray:
        return self._differences(windows, 1 - self.coefficient)

    def context(self, sample_rate_hz: int) -> int:
        """The number of frames that :meth:`on_stream` needs before a stretch."""
        return 1

    @on_windows
    def on_stream(self, frames: FloatArray, sample_rate_hz: int) -> FloatArray:
        """The differences of frames (rows, m), from rest."""
        return self._differences(frames, 1.0)

    def _differences(self, windows: FloatArray, first: float) -> FloatArray:
        """The differences of all frames; ``first`` is the share of the first frame."""
        out = np.empty(windows.shape, np.float32)
        before = np.float32(-self.coefficient)
        for row, result in rows(windows, out):
            np.multiply(row[:-1], before, out=result[1:])
            result[1:] += row[1:]
        out[..., :1] = windows[..., :1] * np.float32(first)
        return out


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

    @on_windows
    def __call__(self, windows: FloatArray) -> npt.NDArray[np.complex64]:
        frames = windows.shape[-1]
        out = np.empty(windows.shape, np.complex64)
        if out.size == 0:
            return out
        for some in slices(len(windows), BLOCK_SAMPLES // math.prod(windows.shape[1:])):
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
def resampling_matrix(rate_hz: int, sample_rate_hz: int) -> tuple[FloatArray, int, int]:
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

    Raises
    ------
    RecipeError
        If the matrix would be too large.
    """
    common = math.gcd(rate_hz, sample_rate_hz)
    up, down = rate_hz // common, sample_rate_hz // common
    periods = -(-LEAST_OUTPUTS // up)
    outputs, step = periods * up, periods * down
    half = CROSSINGS * max(up, down)
    lead = half // up
    inputs = lead + (half + (outputs - 1) * down) // up + 1
    if inputs * outputs > MAX_WEIGHTS:
        raise RecipeError(
            "rate_hz",
            f"is {up}/{down} of the sample rate of {sample_rate_hz} Hz, which needs "
            "too large a filter; use a rate that is closer to the sample rate, or that "
            "has a larger common divisor with it",
            rate_hz,
        )
    taps = up * low_pass_taps(up, down)
    weights = np.zeros((inputs, outputs), np.float32)
    for m in range(outputs):
        at = half + m * down - (np.arange(inputs) - lead) * up
        inside = (at >= 0) & (at < len(taps))
        weights[inside, m] = taps[at[inside]]
    weights.flags.writeable = False
    return weights, lead, step


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

    @on_windows
    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> FloatArray:
        if self.rate_hz == sample_rate_hz:
            return windows
        weights, lead, step = resampling_matrix(self.rate_hz, sample_rate_hz)
        inputs, outputs = weights.shape
        frames = windows.shape[-1]
        count = -(-frames * self.rate_hz // sample_rate_hz)
        out = np.empty((*windows.shape[:-1], count), np.float32)
        several = min(max(1, BLOCK_SAMPLES // inputs), max(1, -(-count // outputs)))
        length = inputs + (several - 1) * step
        # Made once: one is large, and a view takes time.
        overlapping = np.empty((several, inputs), np.float32)
        samples = np.empty(length, np.float32)
        views = frames_of(samples, inputs, step)
        for row, result in rows(windows, out):
            for first in range(0, count, several * outputs):
                start = first // outputs * step - lead
                samples[...] = stretch(row, start, start + length)
                overlapping[...] = views
                # The product always has this shape, because its rounding depends on it.
                computed = (overlapping @ weights).reshape(-1)
                result[first : first + len(computed)] = computed[: count - first]
        return out

    def rate_after(self, sample_rate_hz: int) -> int:
        """The rate of the result."""
        return self.rate_hz


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

    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> FloatArray:
        resample = Resample(rate_hz=self.rate_after(sample_rate_hz))
        return resample(windows, sample_rate_hz)

    def rate_after(self, sample_rate_hz: int) -> int:
        """The rate of the result."""
        if sample_rate_hz % self.ratio:
            raise self.refused(
                "ratio",
                f"must divide the sample rate of {sample_rate_hz} Hz without a "
                "remainder; for other rates, use resample(rate_hz=...)",
            )
        return sample_rate_hz // self.ratio
