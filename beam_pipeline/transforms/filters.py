"""Butterworth filters: without delay on windows, causal on streams."""

from __future__ import annotations

import functools
import math
from dataclasses import MISSING, dataclass
from typing import ClassVar

import numpy as np

from beam_pipeline.errors import RecipeError
from beam_pipeline.parameters import WholeNumber, check_order, parameter
from beam_pipeline.transforms.base import (
    POSITIVE,
    Array,
    DoubleArray,
    FloatArray,
    Step,
    as_float32,
    quiet,
)

# Importing scipy.signal takes half a second, so functions import it when they need it.

Sections = DoubleArray
Edges = tuple[tuple[str, float], ...]

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
def butterworth(kind: str, edges: Edges, order: int, sample_rate_hz: int) -> Sections:
    """Second-order sections of a digital Butterworth filter.

    The bilinear transform of the analogue filter, with pre-warped edges.

    Parameters
    ----------
    kind : str
        ``lowpass``, ``highpass`` or ``bandpass``.
    edges : tuple of (str, float)
        Names and values of the edges, where the gain is -3.01 dB, in Hz.
    order : int
        Order of the low-pass prototype; a band-pass has twice as many poles.
    sample_rate_hz : int

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
    >>> butterworth("lowpass", (("cutoff_hz", 1000.0),), 4, 16000).shape
    (2, 6)
    """
    least = LEAST_PART * sample_rate_hz
    for field, hz in edges:
        if not least <= hz <= sample_rate_hz / 2 - least:
            raise RecipeError(
                field,
                f"must be between {least:g} and {sample_rate_hz / 2 - least:g} Hz at a "
                f"sample rate of {sample_rate_hz} Hz",
                hz,
            )
    if edges[-1][1] - edges[0][1] < least and len(edges) == 2:
        raise RecipeError(
            edges[1][0],
            f"must be at least {least:g} Hz above {edges[0][0]} at a sample rate of "
            f"{sample_rate_hz} Hz",
            edges[1][1],
        )
    import scipy.signal

    hertz = [hz for _, hz in edges]
    sections: Sections = scipy.signal.butter(
        order, hertz if len(hertz) == 2 else hertz[0], kind, fs=sample_rate_hz,
        output="sos",
    )  # fmt: skip
    return sections


@functools.lru_cache(maxsize=32)
def steady_state(kind: str, edges: Edges, order: int, sample_rate_hz: int) -> Array:
    """The state after an infinitely long input of ones."""
    import scipy.signal

    state: Array = scipy.signal.sosfilt_zi(
        butterworth(kind, edges, order, sample_rate_hz)
    )
    return state


def run(sections: Sections, samples: Array, state: Array) -> tuple[DoubleArray, Array]:
    """Filters samples (..., frames) in float64; also returns the state after them.

    The state has the shape (sections, ..., 2); at rest it is zeros.
    """
    import scipy.signal

    if samples.shape[-1] == 0:  # scipy fails on empty input
        return samples.astype(np.float64), state
    filtered, state = scipy.signal.sosfilt(sections, samples, zi=state)
    return filtered, state


def at_rest(sections: Sections, samples: Array) -> Array:
    return np.zeros((len(sections), *samples.shape[:-1], 2))


def causal(sections: Sections, frames: FloatArray) -> FloatArray:
    """Filters frames (rows, m) forward, from rest."""
    out = np.empty(frames.shape, np.float32)
    state = at_rest(sections, frames)
    for piece in pieces(frames):
        out[..., piece], state = run(sections, frames[..., piece], state)
    return out


def zero_phase(sections: Sections, steady: Array, windows: FloatArray) -> FloatArray:
    """Filters each window forward, and the result backward.

    Both ends are padded with the window's points, reflected through the end point:
    ``x[-j] = 2 x[0] - x[j]``. The padding has three frames for each pole and three
    more, but is shorter than the window. Each direction begins as if the first value of
    the padding had always been the input.

    Windows can be long, so the forward result is stored in float32, piece by piece.
    """
    out = np.empty(windows.shape, np.float32)
    if out.size == 0:
        return out
    poles = 2 * len(sections) - np.count_nonzero(sections[:, 5] == 0)
    pad = min(3 * (int(poles) + 1), windows.shape[-1] - 1)
    several = max(1, PIECE_SAMPLES // math.prod(windows.shape[1:]))
    for first in range(0, len(windows), several):
        some = slice(first, first + several)
        _there_and_back(sections, steady, windows[some], out[some], pad)
    return out


def _there_and_back(
    sections: Sections, steady: Array, windows: FloatArray, out: FloatArray, pad: int
) -> None:
    def began(value: Array) -> Array:
        ones = (1,) * value.ndim
        return steady.reshape(len(steady), *ones, 2) * value[..., np.newaxis]

    first, last = (windows[..., [at]].astype(np.float64) for at in (0, -1))
    before = 2 * first - windows[..., pad:0:-1]
    after = 2 * last - windows[..., -2 : -pad - 2 : -1]
    # A window of one frame has no padding.
    _, state = run(sections, before, began((before if pad else first)[..., 0]))
    for piece in pieces(windows):
        filtered, state = run(sections, windows[..., piece], state)
        out[..., piece] = filtered
    tail, _ = run(sections, after, state)
    end = (tail if pad else filtered)[..., -1]
    _, state = run(sections, tail[..., ::-1], began(end))
    for piece in reversed(pieces(windows)):
        filtered, state = run(sections, out[..., piece][..., ::-1], state)
        out[..., piece] = filtered[..., ::-1]


def pieces(samples: Array) -> list[slice]:
    """Slices over the last axis, each with ``PIECE_SAMPLES`` of all channels."""
    length = max(1, PIECE_SAMPLES // max(1, math.prod(samples.shape[:-1])))
    return [slice(i, i + length) for i in range(0, samples.shape[-1], length)]


@functools.lru_cache(maxsize=32)
def butterworth_context(
    kind: str, edges: Edges, order: int, sample_rate_hz: int
) -> int:
    """The number of earlier frames that a filter's output depends on.

    The least n with ``sum(|h[k]| for k >= n) <= 1e-9``, where ``h`` is the impulse
    response: earlier samples change the output by at most 1e-9 of the largest of them.

    Raises
    ------
    RecipeError
        As for :func:`butterworth`; also if n exceeds 2**22.
    """
    sections = butterworth(kind, edges, order, sample_rate_hz)
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
        field, hz = edges[0]
        raise RecipeError(
            field,
            f"needs more than {MAX_CONTEXT} earlier frames of the stream at a sample "
            f"rate of {sample_rate_hz} Hz; use a lower order, or edges that are "
            "further from 0, from half the sample rate and from each other",
            hz,
        )
    return frames


class _Butterworth(Step):
    """Code that the filters share; each filter is a frozen dataclass."""

    gives_samples = True

    KIND: ClassVar[str]
    EDGES: ClassVar[tuple[str, ...]]

    order: int

    @quiet
    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> FloatArray:
        sections = butterworth(*self._design(), sample_rate_hz)
        steady = steady_state(*self._design(), sample_rate_hz)
        return zero_phase(sections, steady, as_float32(windows))

    def context(self, sample_rate_hz: int) -> int:
        """The number of frames that :meth:`on_stream` needs before a stretch."""
        return butterworth_context(*self._design(), sample_rate_hz)

    @quiet
    def on_stream(self, frames: FloatArray, sample_rate_hz: int) -> FloatArray:
        """Filters frames (rows, m) forward only, from rest."""
        return causal(butterworth(*self._design(), sample_rate_hz), as_float32(frames))

    def _design(self) -> tuple[str, Edges, int]:
        edges = tuple((field, float(getattr(self, field))) for field in self.EDGES)
        return self.KIND, edges, self.order


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
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


@dataclass(frozen=True, kw_only=True)
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
    high_hz: float = parameter(MISSING, POSITIVE)
    order: int = parameter(4, ORDER)

    def check(self) -> None:
        check_order(self, "low_hz", "high_hz")
