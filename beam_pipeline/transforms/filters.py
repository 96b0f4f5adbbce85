"""Butterworth filters: of windows without a delay, of streams as they come."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import Array, FloatArray, as_float32, real, whole
from beam_pipeline.transforms.quiet import quiet

# scipy.signal takes half a second to import, so only those who filter wait for it.

Sections = npt.NDArray[np.float64]
Edges = tuple[tuple[str, float], ...]

MAX_ORDER = 16

# Nearer to 0, to half the rate or to each other than this part of the rate, edges
# would take more digits than the coefficients have.
LEAST_PART = 1e-5

# Samples of all channels that are filtered at a time, in float64.
PIECE_SAMPLES = 2**17

# What a stream's context may leave out, as a part of the largest sample.
LEFT_OUT = 1e-9
MAX_CONTEXT = 2**22


@functools.lru_cache(maxsize=32)
def butterworth(kind: str, edges: Edges, order: int, sample_rate_hz: int) -> Sections:
    """Second-order sections of a digital Butterworth filter.

    The analogue filter by the bilinear transform, its edges pre-warped to be where
    they should be.

    Parameters
    ----------
    kind : str
        ``lowpass``, ``highpass`` or ``bandpass``.
    edges : tuple of (str, float)
        Names and values of the edges, where the gain is -3.01 dB, in Hz.
    order : int
        Of the low-pass that it comes from; a band-pass has twice as many poles.
    sample_rate_hz : int

    Returns
    -------
    numpy.ndarray, shape (sections, 6), float64
        Rows ``b0, b1, b2, a0, a1, a2``. Shared: leave them as they are.

    Raises
    ------
    RecipeError
        If an edge is not well between 0 and half the rate, or they are too close.

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
                f"must lie between {least:g} Hz and {sample_rate_hz / 2 - least:g} Hz "
                f"at {sample_rate_hz} Hz",
                hz,
            )
    if edges[-1][1] - edges[0][1] < least and len(edges) == 2:
        raise RecipeError(
            edges[1][0],
            f"must be at least {least:g} Hz above {edges[0][0]} at {sample_rate_hz} Hz",
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
    """The state that a step of height 1, begun ever so long ago, leaves."""
    import scipy.signal

    state: Array = scipy.signal.sosfilt_zi(
        butterworth(kind, edges, order, sample_rate_hz)
    )
    return state


def run(
    sections: Sections, samples: Array, state: Array
) -> tuple[npt.NDArray[np.float64], Array]:
    """Filters samples (..., frames) in float64; gives the state that they leave.

    The state has the shape (sections, ..., 2); zeros are rest.
    """
    import scipy.signal

    if samples.shape[-1] == 0:  # scipy cannot
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

    Both ends are padded by their own points reflected through the end one,
    ``x[-j] = 2 x[0] - x[j]``, three frames for each pole and three more, or what the
    window has. Each direction begins as if the first value of the padding had always
    been there.

    The forward result is kept in float32, in pieces: a window can be long.
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
    # A window of one frame has no padding, and begins with itself.
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
    """Slices over the last axis, ``PIECE_SAMPLES`` of all channels at a time."""
    length = max(1, PIECE_SAMPLES // max(1, math.prod(samples.shape[:-1])))
    return [slice(i, i + length) for i in range(0, samples.shape[-1], length)]


@functools.lru_cache(maxsize=32)
def butterworth_context(
    kind: str, edges: Edges, order: int, sample_rate_hz: int
) -> int:
    """How many frames back a filter hears.

    The least n with ``sum(|h[k]| for k >= n) <= 1e-9``, where ``h`` is the impulse
    response: what came before changes nothing by more than 1e-9 of its largest sample.

    Raises
    ------
    RecipeError
        As :func:`butterworth`; if there are more than 2**22.
    """
    sections = butterworth(kind, edges, order, sample_rate_hz)
    radius = max(abs(np.roots(section[3:])).max() for section in sections)
    # The slowest pole decides when to stop looking, far below what is looked for; the
    # response itself, to which poles near each other add up, decides the rest.
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
            f"makes a filter of a stream that hears more than {MAX_CONTEXT} frames "
            f"back at {sample_rate_hz} Hz; use edges further from 0, from half the "
            "rate and from each other, or a lower order",
            hz,
        )
    return frames


class _Butterworth:
    """What the filters have in common; each is a frozen dataclass."""

    KIND: ClassVar[str]
    EDGES: ClassVar[tuple[str, ...]]

    order: int

    def __post_init__(self) -> None:
        for field in self.EDGES:
            hz = real(field, getattr(self, field))
            if hz <= 0:
                raise RecipeError(field, "must be positive", hz)
            object.__setattr__(self, field, hz)
        object.__setattr__(self, "order", whole("order", self.order))
        if self.order > MAX_ORDER:
            raise RecipeError("order", f"must be at most {MAX_ORDER}", self.order)

    @quiet
    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> FloatArray:
        sections = butterworth(*self._design(), sample_rate_hz)
        steady = steady_state(*self._design(), sample_rate_hz)
        return zero_phase(sections, steady, as_float32(windows))

    def context(self, sample_rate_hz: int) -> int:
        """How many frames before a stretch :meth:`on_stream` must be given."""
        return butterworth_context(*self._design(), sample_rate_hz)

    @quiet
    def on_stream(self, frames: FloatArray, sample_rate_hz: int) -> FloatArray:
        """The filter forward only, from rest, over frames (rows, m)."""
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

    A window is filtered forward and backward, so that its spectrum is multiplied by
    ``|H|**2``: -6.02 dB at the cut-off, no phase. Its ends are padded by themselves,
    reflected through the end point, 3 frames for each pole and 3 more, or as many as
    there are. Shape and channels stay as they are, in float32. Silence stays silence.

    A stream is filtered forward only, from rest, by ``H``: -3.01 dB at the cut-off, and
    a delay.

    As ``scipy.signal.butter`` and ``sosfiltfilt`` (largest difference found: 6e-8 of
    the largest sample), for a stream ``sosfilt``.

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
        rate; on a stream, if it hears more than 2**22 frames back.

    References
    ----------
    S. Butterworth, On the theory of filter amplifiers, Experimental Wireless and the
    Wireless Engineer 7, 1930. F. Gustafsson, Determining the initial states in
    forward-backward filtering, IEEE Transactions on Signal Processing 44, 1996.

    Examples
    --------
    >>> tones = np.sin(np.pi * np.outer([0.1, 0.9], np.arange(4000)))
    >>> kept = LowPass(cutoff_hz=4000)(tones.astype(np.float32), 16000)
    >>> abs(kept[:, 1000:3000]).max(axis=-1).round(3)
    array([1., 0.], dtype=float32)
    """

    KIND = "lowpass"
    EDGES = ("cutoff_hz",)

    cutoff_hz: float
    order: int = 4


@dataclass(frozen=True, kw_only=True)
class HighPass(_Butterworth):
    """Butterworth high-pass: without a delay on windows, causal on streams.

    ``|H(f)|**2 = 1 / (1 + (w(cutoff_hz) / w(f))**(2 * order))``; all else is as in
    :class:`LowPass`.

    Attributes
    ----------
    cutoff_hz : float
        At least 1e-5 of the rate from 0 and from half the rate.
    order : int
        Number of poles, 1 to 16.

    Raises
    ------
    RecipeError
        As :class:`LowPass`.

    Examples
    --------
    >>> steady = np.ones((1, 4000), np.float32)
    >>> HighPass(cutoff_hz=50)(steady, 16000).max().round(6)
    np.float32(0.0)
    """

    KIND = "highpass"
    EDGES = ("cutoff_hz",)

    cutoff_hz: float
    order: int = 4


@dataclass(frozen=True, kw_only=True)
class BandPass(_Butterworth):
    """Butterworth band-pass: without a delay on windows, causal on streams.

    ::

        |H(f)|**2 = 1 / (1 + ((w(f)**2 - l * h) / (w(f) * (h - l)))**(2 * order))
        l = w(low_hz), h = w(high_hz)

    All else is as in :class:`LowPass`.

    Attributes
    ----------
    low_hz, high_hz : float
        Edges, at least 1e-5 of the rate from 0, from half the rate and apart.
    order : int
        Half the number of poles, 1 to 16: each edge is as steep as a low-pass and a
        high-pass of that order. So ``scipy.signal.butter`` counts as well.

    Raises
    ------
    RecipeError
        As :class:`LowPass`.

    Examples
    --------
    >>> BandPass(low_hz=300, high_hz=3400)(np.zeros((2, 5), np.float32), 16000).shape
    (2, 5)
    """

    KIND = "bandpass"
    EDGES = ("low_hz", "high_hz")

    low_hz: float
    high_hz: float
    order: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.high_hz <= self.low_hz:
            raise RecipeError(
                "high_hz", f"must be above low_hz, {self.low_hz:g} Hz", self.high_hz
            )
