"""Transforms: what turns a block of windows into a block of features.

A transform is any callable ``windows -> features`` that treats each window by itself.
A feature that depends on how windows are grouped into calls would change with the
shard boundaries, so everything here gives a window the same bytes in any block.
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import scipy.fft
import scipy.sparse

from beam_pipeline.errors import RecipeError

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float32]

INT16_SCALE = 32768
MAX_LEVEL_DB = 200.0

# Samples that LogMel frames at a time. Frames and their spectrum, 1 MiB each, then
# stay in the cache. Four times as many are slower by a factor: arrays of that size go
# back to the operating system after each block, and every page of them is new again.
BLOCK_SAMPLES = 2**18


class Transform(Protocol):
    """``transform(windows)`` or ``transform(windows, sample_rate_hz=rate)``.

    ``windows`` is float32 of shape (n, frames), or (n, channels, frames); the result
    has shape (n, ...) with any dtype and any shape per window, the same for all. The
    rate goes to those that have a parameter ``sample_rate_hz``. Functions and frozen
    dataclasses at the top level of a module can be named in a recipe. A method
    ``axes(sample_rate_hz, frames)`` may tell what the last axes mean, as
    :meth:`LogMel.axes` does.
    """

    def __call__(self, windows: Any, /, *args: Any, **kwargs: Any) -> Array: ...


def needs_sample_rate(transform: Transform) -> bool:
    """Whether the transform, or a step of the chain, takes ``sample_rate_hz``."""
    if isinstance(transform, Chain):
        return any(needs_sample_rate(step) for step in transform.steps)
    try:
        return "sample_rate_hz" in inspect.signature(transform).parameters
    except (TypeError, ValueError):  # compiled callables may have no signature
        return False


def apply_transform(
    transform: Transform, windows: FloatArray, sample_rate_hz: int
) -> Array:
    """The transform's features, with the rate passed to those that take it.

    Parameters
    ----------
    transform : Transform
    windows : numpy.ndarray, shape (n, frames) or (n, channels, frames), float32
    sample_rate_hz : int

    Returns
    -------
    numpy.ndarray, shape (n, ...)

    Examples
    --------
    >>> apply_transform(Identity(), np.zeros((2, 5), np.float32), 16000).shape
    (2, 5)
    """
    takes_rate = isinstance(transform, Chain) or needs_sample_rate(transform)
    rate = {"sample_rate_hz": sample_rate_hz} if takes_rate else {}
    features: Array = transform(windows, **rate)
    return features


@dataclass(frozen=True)
class Identity:
    """The samples themselves, as float32 or as int16.

    ``y = clip(round(32768 x), -32768, 32767)`` for int16, halves to even: what
    libsndfile divided when it read 16-bit PCM, so those sources come back exactly.

    Raises
    ------
    RecipeError
        If the dtype is another, or int16 is asked of NaN.

    Examples
    --------
    >>> Identity("int16")(np.array([[0.5, -1.0, 1.0]], np.float32))
    array([[ 16384, -32768,  32767]], dtype=int16)
    """

    dtype: str = "float32"

    def __post_init__(self) -> None:
        _check_choice("dtype", self.dtype, ("float32", "int16"))

    def __call__(self, windows: FloatArray) -> Array:
        windows = _as_float32(windows)
        if self.dtype == "float32":
            return windows
        scaled = windows * np.float32(INT16_SCALE)
        np.rint(scaled, out=scaled)
        np.clip(scaled, -INT16_SCALE, INT16_SCALE - 1, out=scaled)
        try:
            with np.errstate(invalid="raise"):
                return scaled.astype(np.int16)
        except FloatingPointError as error:
            raise RecipeError(
                "dtype", "cannot hold NaN, which some windows do; use float32", "int16"
            ) from error


@dataclass(frozen=True)
class PeakGain:
    """Scales each window so that its peak is at a level.

    ``y = x * 10**(level_db / 20) / max|x|``, the maximum over all the window's frames
    and channels. Silence stays silence.

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

    level_db: float = 0.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "level_db", _level(self.level_db))

    def __call__(self, windows: FloatArray) -> FloatArray:
        return _scale_windows(windows, _peak, self.level_db)


@dataclass(frozen=True)
class RmsGain:
    """Scales each window so that its root mean square is at a level.

    ``y = x * 10**(level_db / 20) / sqrt(mean(x**2))``, the mean over all the window's
    frames and channels. Silence stays silence; peaks may exceed full scale.

    Attributes
    ----------
    level_db : float
        dB relative to an RMS of 1, -200 to 200.

    Examples
    --------
    >>> RmsGain(level_db=0)(np.array([[0.25, -0.25]], np.float32))
    array([[ 1., -1.]], dtype=float32)
    """

    level_db: float = -20.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "level_db", _level(self.level_db))

    def __call__(self, windows: FloatArray) -> FloatArray:
        return _scale_windows(windows, _rms, self.level_db)


@dataclass(frozen=True, kw_only=True)
class LogMel:
    """Logarithm of the power in mel bands, frame by frame.

    ::

        S[t, k] = |sum_j hann[j] * x[t * hop + j] * exp(-2i pi j k / n_fft)|**2
        M[t, m] = sum_k bank[m, k] * S[t, k]
        y[t, m] = ln(max(M[t, m], floor))    or    10 log10(max(M[t, m], floor))

    with the periodic Hann window and the bank of :func:`mel_filter_bank`. Frames lie
    whole within the window (they are not centred, nothing is padded):
    ``t = 0 .. (frames - n_fft) // hop``. Shape (n, frames) gives
    (n, time_frames, n_mels), shape (n, channels, frames) gives
    (n, channels, time_frames, n_mels), in float32.

    Attributes
    ----------
    n_fft, hop : int
        Length of a frame, and from one to the next, in frames of the signal.
    n_mels : int
        Number of bands.
    f_min, f_max : float
        Edges of the lowest and of the highest band, in Hz; None: half the rate.
    floor : float
        The least power; silence gives exactly the logarithm of it.
    log : str
        ``ln`` (nepers of power) or ``db``.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if a frame is longer than the
        window, ``f_max`` exceeds half the rate, or a band is empty.

    Examples
    --------
    >>> LogMel(n_mels=40)(np.zeros((2, 16000), np.float32), 16000).shape
    (2, 59, 40)
    """

    n_fft: int = 1024
    hop: int = 256
    n_mels: int = 64
    f_min: float = 0.0
    f_max: float | None = None
    floor: float = 1e-10
    log: str = "ln"

    def __post_init__(self) -> None:
        for name in ("n_fft", "hop", "n_mels"):
            object.__setattr__(self, name, _whole(name, getattr(self, name)))
        for name in ("f_min", "f_max", "floor"):
            if name != "f_max" or self.f_max is not None:
                object.__setattr__(self, name, _real(name, getattr(self, name)))
        if self.f_min < 0:
            raise RecipeError("f_min", "must not be negative", self.f_min)
        if self.f_max is not None and self.f_max <= self.f_min:
            raise RecipeError(
                "f_max", f"must be above f_min, {self.f_min:g} Hz", self.f_max
            )
        if self.floor <= 0:
            raise RecipeError("floor", "must be positive", self.floor)
        _check_choice("log", self.log, ("ln", "db"))

    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> FloatArray:
        windows = _as_float32(windows)
        frames = windows.shape[-1]
        count = self._time_frames(frames)
        bank = _sparse_bank(sample_rate_hz, *self._bank_parameters(sample_rate_hz))
        out = np.empty((*windows.shape[:-1], count, self.n_mels), np.float32)
        framed = np.lib.stride_tricks.sliding_window_view(
            windows.reshape(-1, frames), self.n_fft, axis=-1
        )[:, :: self.hop]
        flat_out = out.reshape(-1, count, self.n_mels)

        hann = _hann(self.n_fft)
        scale = 10 / math.log(10) if self.log == "db" else 1.0
        buffer = np.empty(0, np.float32)
        for block in _blocks(len(framed), count, self.n_fft):
            part = framed[block]
            if buffer.size < part.size:
                buffer = np.empty(part.size, np.float32)
            tapered = buffer[: part.size].reshape(part.shape)
            np.multiply(part, hann, out=tapered)
            power = _mel_power(tapered.reshape(-1, self.n_fft), bank)
            # The floor after the logarithm: silence is exactly the floor's, however
            # this machine's float32 logarithm rounds.
            with np.errstate(divide="ignore"):
                np.log(power, out=power)
            power *= np.float32(scale)
            np.maximum(power, np.float32(scale * math.log(self.floor)), out=power)
            flat_out[block] = power.T.reshape(*part.shape[:2], self.n_mels)
        return out

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """What the last two axes mean, as JSON values.

        The time of a frame is that of its first sample, in seconds from the start of
        the window: ``start + step * t``; it spans ``length`` seconds from there. The
        frequency of a band is that of its peak.

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
        _, n_mels, f_min, f_max = self._bank_parameters(sample_rate_hz)
        return [
            {
                "name": "time",
                "unit": "s",
                "size": self._time_frames(frames),
                "start": 0.0,
                "step": self.hop / sample_rate_hz,
                "length": self.n_fft / sample_rate_hz,
            },
            {
                "name": "mel_band",
                "unit": "Hz",
                "size": n_mels,
                "values": _mel_edges(n_mels, f_min, f_max)[1:-1].tolist(),
            },
        ]

    def _time_frames(self, frames: int) -> int:
        if self.n_fft > frames:
            raise RecipeError(
                "n_fft", f"must not exceed the window's {frames} frames", self.n_fft
            )
        return 1 + (frames - self.n_fft) // self.hop

    def _bank_parameters(self, sample_rate_hz: int) -> tuple[int, int, float, float]:
        f_max = sample_rate_hz / 2 if self.f_max is None else self.f_max
        return self.n_fft, self.n_mels, self.f_min, f_max


@dataclass(frozen=True)
class Chain:
    """Transforms applied from left to right; chains within it are spliced in.

    Raises
    ------
    RecipeError
        If there are fewer than two steps, or one is not callable.

    Examples
    --------
    >>> Chain((PeakGain(), Identity("int16")))(np.full((1, 2), 0.1, np.float32), 8000)
    array([[32767, 32767]], dtype=int16)
    """

    steps: tuple[Transform, ...]

    def __post_init__(self) -> None:
        steps: list[Transform] = []
        for step in self.steps:
            if not callable(step):
                raise RecipeError("steps", "must be callables", step)
            steps += step.steps if isinstance(step, Chain) else (step,)
        if len(steps) < 2:
            raise RecipeError("steps", "must be two or more", tuple(steps))
        object.__setattr__(self, "steps", tuple(steps))

    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> Array:
        for step in self.steps:
            windows = apply_transform(step, windows, sample_rate_hz)
        return windows

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """The axes of the last step that tells them; an empty list if none does.

        Steps after that one are taken to keep the axes, and steps before it to keep
        the number of frames.
        """
        for step in reversed(self.steps):
            axes = getattr(step, "axes", None)
            if axes is not None:
                return list(axes(sample_rate_hz, frames))
        return []


def mel_filter_bank(
    sample_rate_hz: int, n_fft: int, n_mels: int, f_min: float, f_max: float
) -> FloatArray:
    """Triangular mel filters of equal area over the bins of a real FFT.

    ::

        mel(f) = 3 f / 200                          below 1000 Hz
        mel(f) = 15 + 27 log(f / 1000) / log(6.4)   from 1000 Hz

    Edges ``e[0 .. n_mels + 1]`` are evenly spaced in mel from ``f_min`` to ``f_max``.
    Filter ``m`` rises linearly in Hz from ``e[m]`` to ``e[m + 1]``, falls to
    ``e[m + 2]``, and peaks at ``2 / (e[m + 2] - e[m])``.

    Parameters
    ----------
    sample_rate_hz : int
    n_fft, n_mels : int
        Length of the FFT; number of filters.
    f_min, f_max : float
        First and last edge in Hz.

    Returns
    -------
    numpy.ndarray, shape (n_mels, n_fft // 2 + 1), float32
        Weights in 1/Hz.

    Raises
    ------
    RecipeError
        If the edges do not lie in order between 0 and half the rate, or a filter lies
        between two bins: it would be a feature that is constant for any input.

    References
    ----------
    M. Slaney, Auditory Toolbox, version 2, Interval Research Corporation, Technical
    Report 1998-010, 1998.

    Examples
    --------
    >>> mel_filter_bank(8000, 8, 2, 0.0, 4000.0).shape
    (2, 5)
    """
    nyquist = sample_rate_hz / 2
    if f_max > nyquist:
        raise RecipeError(
            "f_max",
            f"must not exceed {nyquist:g} Hz, half the sample rate {sample_rate_hz} Hz",
            f_max,
        )
    if not 0 <= f_min < f_max:
        raise RecipeError("f_min", f"must lie between 0 and {f_max:g} Hz", f_min)
    bins = np.arange(n_fft // 2 + 1) * (sample_rate_hz / n_fft)
    edges = _mel_edges(n_mels, f_min, f_max)
    low, centre, high = (edges[i : i + n_mels, np.newaxis] for i in range(3))
    rise = (bins - low) / (centre - low)
    fall = (high - bins) / (high - centre)
    triangles = np.maximum(0, np.minimum(rise, fall))
    # A bin that lies on an edge has no weight but may have a rounding error's.
    empty = np.flatnonzero(triangles.max(axis=1) < 1e-9)
    if empty.size:
        band = int(empty[0])
        raise RecipeError(
            "n_mels",
            f"leaves {empty.size} bands without a bin of the FFT, the first from "
            f"{edges[band]:.1f} to {edges[band + 2]:.1f} Hz, where n_fft={n_fft} at "
            f"{sample_rate_hz} Hz has a bin every {sample_rate_hz / n_fft:.1f} Hz; use "
            "fewer bands or a larger n_fft",
            n_mels,
        )
    weights: FloatArray = (triangles * (2 / (high - low))).astype(np.float32)
    return weights


def _mel_edges(n_mels: int, f_min: float, f_max: float) -> npt.NDArray[np.float64]:
    """The bands' edges in Hz; band m spans three of them, m to m + 2."""
    mels = np.linspace(_mel(f_min), _mel(f_max), n_mels + 2)
    logarithmic = 1000 * np.exp(np.maximum(mels - 15, 0) * (math.log(6.4) / 27))
    return np.where(mels < 15, mels * (200 / 3), logarithmic)


def _mel(hz: float) -> float:
    return 3 * hz / 200 if hz < 1000 else 15 + 27 * math.log(hz / 1000, 6.4)


@functools.lru_cache(maxsize=32)
def _sparse_bank(
    sample_rate_hz: int, n_fft: int, n_mels: int, f_min: float, f_max: float
) -> Any:
    return scipy.sparse.csr_array(
        mel_filter_bank(sample_rate_hz, n_fft, n_mels, f_min, f_max)
    )


@functools.lru_cache(maxsize=32)
def _hann(n_fft: int) -> FloatArray:
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n_fft) / n_fft)
    return hann.astype(np.float32)


def _mel_power(tapered: FloatArray, bank: Any) -> FloatArray:
    """Mel power of frames (f, n_fft), as (n_mels, f).

    The bank is banded: a bin feeds two bands at most. So its sparse product needs a
    few per cent of a dense one's multiplications; it is quick where a row holds one
    bin of all frames, and the FFT can leave its result so at no cost. And unlike
    BLAS, whose kernels vary with the shape, it adds each frame's bins up in the same
    order whatever the number of frames. Squares of the real and the imaginary parts
    stay side by side until after the product, where they are fewer to add.
    """
    spectrum = scipy.fft.rfft(tapered.T, axis=0)
    squares = spectrum.view(np.float32)
    np.square(squares, out=squares)
    parts = bank @ squares
    power: FloatArray = parts[:, 0::2] + parts[:, 1::2]
    return power


def _blocks(windows: int, count: int, n_fft: int) -> Iterator[tuple[slice, slice]]:
    """Slices over windows and their ``count`` frames, ``BLOCK_SAMPLES`` at a time."""
    frames = max(1, BLOCK_SAMPLES // n_fft)
    several = max(1, frames // count)
    for window in range(0, windows, several):
        for frame in range(0, count, frames):
            yield slice(window, window + several), slice(frame, frame + frames)


def _scale_windows(
    windows: FloatArray, measure: Callable[[FloatArray], float], level_db: float
) -> FloatArray:
    windows = _as_float32(windows)
    level = 10 ** (level_db / 20)
    out = np.empty(windows.shape, np.float32)
    # One by one: in the cache, and a sum's rounding cannot depend on the neighbours.
    for window, scaled in zip(windows, out, strict=True):
        size = measure(window)
        # In float64, where the factor of the faintest window is still finite.
        ratio = np.divide(window, size if size != 0 else 1.0, dtype=np.float64)
        np.multiply(ratio, level, out=scaled, casting="same_kind")
    return out


def _peak(window: FloatArray) -> float:
    return float(np.abs(window).max(initial=0))


def _rms(window: FloatArray) -> float:
    # The order of the squares in memory decides how their sum is rounded.
    return math.sqrt(np.square(window, dtype=np.float64, order="C").mean())


def _as_float32(windows: Array) -> FloatArray:
    windows = np.asarray(windows)
    if windows.dtype.kind != "f":
        raise RecipeError(
            "feature",
            "takes samples as floating point; identity(dtype='int16') can only be the "
            "last step of a chain",
            str(windows.dtype),
        )
    return windows.astype(np.float32, copy=False)


def _check_choice(field: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise RecipeError(field, f"must be one of {', '.join(choices)}", value)


def _whole(field: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise RecipeError(field, "must be a whole number", value)
    if value < 1:
        raise RecipeError(field, "must be at least 1", value)
    return int(value)


def _real(field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise RecipeError(field, "must be a number", value)
    if not math.isfinite(value):
        raise RecipeError(field, "must be finite", value)
    return float(value)


def _level(value: Any) -> float:
    level = _real("level_db", value)
    if abs(level) > MAX_LEVEL_DB:
        raise RecipeError(
            "level_db", f"must lie within {MAX_LEVEL_DB:g} dB of full scale", level
        )
    return level
