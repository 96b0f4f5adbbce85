"""Transforms: what turns a block of windows into a block of features.

A transform is any callable ``windows -> features`` that treats each window by itself.
A feature that depends on how windows are grouped into calls would change with the
shard boundaries, so everything here gives a window the same bytes in any block.
"""

from __future__ import annotations

import inspect
import math
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import RecipeError
from beam_pipeline.mel import (
    cache_blocks,
    hann_window,
    mel_edges,
    mel_power,
    sparse_filter_bank,
)

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float32]

INT16_SCALE = 32768
MAX_LEVEL_DB = 200.0


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
        scaled: FloatArray = np.rint(windows * np.float32(INT16_SCALE))
        np.clip(scaled, -INT16_SCALE, INT16_SCALE - 1, out=scaled)
        try:
            with np.errstate(invalid="raise"):
                samples: Array = scaled.astype(np.int16)
        except FloatingPointError as error:
            raise RecipeError(
                "dtype", "cannot hold NaN, which some windows do; use float32", "int16"
            ) from error
        return samples


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

    with the periodic Hann window and the bank of ``mel.mel_filter_bank``. Frames lie
    whole within the window (they are not centred, nothing is padded), so that
    ``t = 0 .. (frames - n_fft) // hop``. Windows (n, frames) give
    (n, time_frames, n_mels), windows (n, channels, frames) give
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
        bank = sparse_filter_bank(
            sample_rate_hz, *self._bank_parameters(sample_rate_hz)
        )
        out = np.empty((*windows.shape[:-1], count, self.n_mels), np.float32)
        framed = np.lib.stride_tricks.sliding_window_view(
            windows.reshape(-1, frames), self.n_fft, axis=-1
        )[:, :: self.hop]
        flat_out = out.reshape(-1, count, self.n_mels)

        hann = hann_window(self.n_fft)
        scale = 10 / math.log(10) if self.log == "db" else 1.0
        buffer = np.empty(0, np.float32)
        for block in cache_blocks(len(framed), count, self.n_fft):
            part = framed[block]
            if buffer.size < part.size:
                buffer = np.empty(part.size, np.float32)
            tapered = buffer[: part.size].reshape(part.shape)
            np.multiply(part, hann, out=tapered)
            power = mel_power(tapered.reshape(-1, self.n_fft), bank)
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
                "values": mel_edges(n_mels, f_min, f_max)[1:-1].tolist(),
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
