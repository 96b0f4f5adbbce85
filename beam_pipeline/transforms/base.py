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
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import RecipeError

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float32]

INT16_SCALE = 32768


class Transform(Protocol):
    """``transform(windows)`` or ``transform(windows, sample_rate_hz=rate)``.

    ``windows`` is float32 of shape (n, frames), or (n, channels, frames); the result
    has shape (n, ...) with any dtype and any shape per window, the same for all. The
    rate goes to those that have a parameter ``sample_rate_hz``. Functions and frozen
    dataclasses at the top level of a module can be named in a recipe. A method
    ``axes(sample_rate_hz, frames)`` may tell what the last axes mean, as
    ``LogMel.axes`` does, and ``rate_after(sample_rate_hz)`` at which rate the result
    is, where that is another.
    """

    def __call__(self, windows: Any, /, *args: Any, **kwargs: Any) -> Array: ...


def needs_sample_rate(transform: Transform) -> bool:
    """Whether the transform, or a step of the chain, takes ``sample_rate_hz``."""
    if isinstance(transform, Chain):
        return any(needs_sample_rate(step) for step in transform.steps)
    for call in (type(transform).__call__, transform):
        if isinstance(call, FunctionType):
            return _takes_rate(call)
    return _takes_rate.__wrapped__(transform)  # may have no hash


# Asked for each block: looking at a signature takes as long as a small transform.
@functools.lru_cache(maxsize=256)
def _takes_rate(call: Callable[..., Any]) -> bool:
    try:
        return "sample_rate_hz" in inspect.signature(call).parameters
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


def per_window(function: Callable[..., Any]) -> Callable[..., Array]:
    """Makes a transform of a function, or a method, that takes a single window.

    ::

        @per_window
        def crest(window):                # float32, (frames,) or (channels, frames)
            return np.abs(window).max() / np.sqrt(np.mean(window**2))

    It may take ``sample_rate_hz`` as well. What it returns is stacked, so it must have
    one shape for all windows. A transform that takes many windows at once is faster
    where numpy does its work.

    Examples
    --------
    >>> per_window(np.ptp)(np.array([[1, 2], [3, 7]], np.float32)).tolist()
    [1.0, 4.0]
    """

    @functools.wraps(function)
    def transform(*args: Any, **kwargs: Any) -> Array:
        *bound, windows = args
        return np.stack([function(*bound, window, **kwargs) for window in windows])

    return transform


@dataclass(frozen=True)
class Identity:
    """The samples themselves, as float32 or as int16.

    ``y = clip(round(32768 x), -32768, 32767)`` for int16, halves to even: what
    libsndfile divided when it read 16-bit PCM, so those sources come back exactly.

    Raises
    ------
    RecipeError
        If the dtype is another, or int16 is asked of NaN or infinity.

    Examples
    --------
    >>> Identity("int16")(np.array([[0.5, -1.0, 1.0]], np.float32))
    array([[ 16384, -32768,  32767]], dtype=int16)
    """

    dtype: str = "float32"

    def __post_init__(self) -> None:
        check_choice("dtype", self.dtype, ("float32", "int16"))

    def __call__(self, windows: FloatArray) -> Array:
        windows = as_float32(windows)
        if self.dtype == "float32":
            return windows
        if not np.isfinite(windows).all():
            raise RecipeError(
                "dtype",
                "cannot hold NaN or infinity, as some windows do; use float32",
                "int16",
            )
        scaled: FloatArray = np.rint(windows * np.float32(INT16_SCALE))
        np.clip(scaled, -INT16_SCALE, INT16_SCALE - 1, out=scaled)
        return scaled.astype(np.int16)


@dataclass(frozen=True)
class Chain:
    """Transforms applied from left to right; chains within it are spliced in.

    Raises
    ------
    RecipeError
        If there are fewer than two steps, or one is not callable.

    Examples
    --------
    >>> Chain((Identity(), Identity("int16")))(np.full((1, 2), 0.5, np.float32), 8000)
    array([[16384, 16384]], dtype=int16)
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
            sample_rate_hz = rate_after(step, sample_rate_hz)
        return windows

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """The axes of the last step that tells them; an empty list if none does.

        Steps after that one are taken to keep the axes, and steps before it to keep
        the number of frames, but for those that change the rate.
        """
        found: list[dict[str, Any]] = []
        for step in self.steps:
            axes = getattr(step, "axes", None)
            if axes is not None:
                found = list(axes(sample_rate_hz, frames))
            after = rate_after(step, sample_rate_hz)
            if after != sample_rate_hz:
                frames = -(-frames * after // sample_rate_hz)
            sample_rate_hz = after
        return found


def rate_after(step: Transform, sample_rate_hz: int) -> int:
    """The sample rate of what a step makes of windows at a rate."""
    change = getattr(step, "rate_after", None)
    return sample_rate_hz if change is None else int(change(sample_rate_hz))


def as_float32(windows: Array) -> FloatArray:
    windows = np.asarray(windows)
    if windows.dtype.kind != "f":
        hint = {
            "i": "; identity(dtype='int16') can only be the last step of a chain",
            "c": "; take the magnitude or power of complex values first",
        }.get(windows.dtype.kind, "")
        raise RecipeError(
            "feature", f"takes real numbers as floating point{hint}", str(windows.dtype)
        )
    if windows.ndim < 2:
        raise RecipeError(
            "feature",
            "takes windows, (n, frames) or (n, channels, frames), not a value for each",
            windows.shape,
        )
    return windows.astype(np.float32, copy=False)


def check_choice(field: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise RecipeError(field, f"must be one of {', '.join(choices)}", value)


def whole(field: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise RecipeError(field, "must be a whole number", value)
    if value < 1:
        raise RecipeError(field, "must be at least 1", value)
    return int(value)


def real(field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise RecipeError(field, "must be a number", value)
    if not math.isfinite(value):
        raise RecipeError(field, "must be finite", value)
    return float(value)
