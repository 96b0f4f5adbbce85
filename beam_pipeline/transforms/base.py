"""What a transform is: it turns a block of windows into a block of features.

A transform is any callable ``windows -> features`` that treats each window by itself.
Otherwise, features would change with the shard boundaries, which decide how windows are
grouped into calls. Every transform here gives a window the same bytes in any block.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Protocol, TypeVar, cast

import numpy as np

from beam_pipeline.arrays import Array, DoubleArray, FloatArray
from beam_pipeline.errors import RecipeError
from beam_pipeline.parameters import Choice, Declared, Number, WholeNumber, parameter

INT16_SCALE = 32768

# Types of parameters that several steps have.
COUNT = WholeNumber()
POSITIVE = Number(is_positive=True)
SHARE = Number(0.0, 1.0)
LEVEL_DB = Number(-200.0, 200.0)
LEAST_LEVEL = Number(1e-30, 1e30)

# How a parameter's declaration binds its value to that of another parameter.
_RELATIONS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "above": (operator.gt, "be above"),
    "at_least": (operator.ge, "not be below"),
    "below": (operator.lt, "be below"),
    "at_most": (operator.le, "not exceed"),
}


def seconds_to_frames(seconds: float, sample_rate_hz: int) -> int:
    """Converts seconds to a number of frames; halves are rounded up.

    ======== ======== ======
    seconds  rate     frames
    ======== ======== ======
    1.0      16000    16000
    0.5      11025    5513
    0.1      44100    4410
    1e-9     16000    0
    ======== ======== ======
    """
    return math.floor(seconds * sample_rate_hz + 0.5)


def slices(count: int, size: int) -> list[slice]:
    """Cuts ``count`` places into slices of a size, at least 1; the last is shorter.

    Examples
    --------
    >>> slices(5, 3)
    [slice(0, 3, None), slice(3, 5, None)]
    """
    size = max(1, size)
    return [slice(at, min(at + size, count)) for at in range(0, count, size)]


class Step(Declared):
    """Base of the steps of this package; those of users need none.

    Its fields are the parameters of expressions, in their order.

    Attributes
    ----------
    on_features : bool
        Whether a transform takes any feature, and keeps its shape.
    gives_samples : bool
        Whether a transform returns samples, which any other can take.
    """

    on_features: ClassVar[bool] = False
    gives_samples: ClassVar[bool] = False

    def check(self) -> None:
        """Checks values against others that their declarations name.

        ``parameter(None, HERTZ, above="f_min")`` is above the field ``f_min``, or None.
        """
        for each in fields(self):
            value = getattr(self, each.name)
            for relation, (holds, words) in _RELATIONS.items():
                other = each.metadata.get(relation)
                if other is None or value is None:
                    continue
                bound = getattr(self, other)
                if not holds(value, bound):
                    shown = f"{bound:g}" if isinstance(bound, float) else bound
                    raise self.refused(each.name, f"must {words} {other} ({shown})")

    def refused(self, field: str, problem: str) -> RecipeError:
        """Returns the error of a field's value, for a window or beside other values."""
        return RecipeError(field, problem, getattr(self, field))


class FrameByFrame:
    """A step on a stream whose frames depend on no earlier ones."""

    def context(self, sample_rate_hz: int) -> int:
        """The number of frames that it needs before a stretch: none."""
        return 0


class Transform(Protocol):
    """``transform(windows)`` or ``transform(windows, sample_rate_hz=rate)``.

    ``windows`` is float32 of shape (n, frames) or (n, channels, frames). The result has
    shape (n, ...); all windows have the same dtype and shape. The last step of a chain
    may return a dict of such arrays, for several features. A transform receives the
    sample rate if it has a parameter ``sample_rate_hz``. Recipes can name functions and
    frozen dataclasses.

    Four methods are optional. ``axes(sample_rate_hz, frames)`` describes the last
    axes, as ``LogMel.axes`` does. ``rate_after(sample_rate_hz)`` returns the sample
    rate of the result, if the transform changes it. ``count_clipped(windows)`` returns
    how many values of the result are at the end of its range, because those of the
    windows are beyond. ``on_copies(features, keys, sample_rate_hz)`` changes the
    results of augmented copies: ``keys`` is as in :class:`.augment.Augmentation`, and
    the type and the shape stay.
    """

    def __call__(self, windows: Any, /, *args: Any, **kwargs: Any) -> Any: ...


def needs_sample_rate(transform: Transform) -> bool:
    """Whether the transform, or a step of its chain, takes ``sample_rate_hz``."""
    if isinstance(transform, Chain):
        return any(needs_sample_rate(step) for step in transform.steps)
    try:
        return "sample_rate_hz" in inspect.signature(transform).parameters
    except (TypeError, ValueError):  # compiled callables may have no signature
        return False


def apply_transform(
    transform: Transform, windows: FloatArray, sample_rate_hz: int
) -> Array:
    """Calls a transform, with the sample rate if it takes one.

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
    features: Array = windows
    for step, rate_hz in each_step(transform, sample_rate_hz):
        rate = {"sample_rate_hz": rate_hz} if needs_sample_rate(step) else {}
        features = step(features, **rate)
    return features


def apply_counting(
    transform: Transform, windows: FloatArray, sample_rate_hz: int
) -> tuple[Array, int]:
    """Calls a transform; counts the values that its steps clip.

    Returns
    -------
    features : numpy.ndarray, shape (n, ...)
        That of :func:`apply_transform`.
    clipped : int
        The sum of what the method ``count_clipped`` of each step returns that has one.

    Examples
    --------
    >>> apply_counting(Identity("int16"), np.array([[0.5, 1.5]], np.float32), 16000)
    (array([[16384, 32767]], dtype=int16), 1)
    """
    clipped, features = 0, windows
    for step, rate_hz in each_step(transform, sample_rate_hz):
        count = getattr(step, "count_clipped", None)
        if count is not None:
            clipped += int(count(features))
        features = apply_transform(step, features, rate_hz)
    return features, clipped


def per_window(function: Callable[..., Any]) -> Callable[..., Any]:
    """Makes a transform from a function, or a method, that takes a single window.

    ::

        @per_window
        def crest(window):                # float32, (frames,) or (channels, frames)
            return np.abs(window).max() / np.sqrt(np.mean(window**2))

    The function may also take ``sample_rate_hz``. Its results are stacked, so they must
    have the same shape for all windows; so are the values of a dict. A numpy transform
    that takes many windows in one call is faster.

    Examples
    --------
    >>> per_window(np.ptp)(np.array([[1, 2], [3, 7]], np.float32)).tolist()
    [1.0, 4.0]
    """

    @functools.wraps(function)
    def transform(*args: Any, **kwargs: Any) -> Any:
        *bound, windows = args
        rows = [function(*bound, window, **kwargs) for window in windows]
        if rows and isinstance(rows[0], Mapping):
            return {key: np.stack([row[key] for row in rows]) for key in rows[0]}
        return np.stack(rows)

    return transform


class Identity(Step, kw_only=False):
    """The samples themselves, as float32 or as int16.

    For int16, ``y = clip(round(32768 x), -32768, 32767)``, and halves round to even.
    libsndfile divides 16-bit PCM by 32768, so int16 restores these samples exactly.

    Raises
    ------
    RecipeError
        If the dtype is neither; in a call with int16, if a sample is NaN or infinite.

    Examples
    --------
    >>> Identity("int16")(np.array([[0.5, -1.0, 1.0]], np.float32))
    array([[ 16384, -32768,  32767]], dtype=int16)
    """

    gives_samples = True

    dtype: str = parameter("float32", Choice(("float32", "int16")))

    def __call__(self, windows: FloatArray) -> Array:
        windows = as_float32(windows)
        if self.dtype == "float32":
            return windows
        if not np.isfinite(windows).all():
            raise self.refused(
                "dtype",
                "cannot hold NaN or infinity, but some windows contain them; use "
                "float32",
            )
        scaled: FloatArray = np.rint(windows * np.float32(INT16_SCALE))
        np.clip(scaled, -INT16_SCALE, INT16_SCALE - 1, out=scaled)
        return scaled.astype(np.int16)

    def count_clipped(self, windows: FloatArray) -> int:
        """How many samples int16 cannot hold: they round to -32769 or less, or 32768.

        Examples
        --------
        >>> Identity("int16").count_clipped(np.array([[-1.0, 0.999, 1.0]], np.float32))
        1
        """
        if self.dtype == "float32":
            return 0
        windows, half = as_float32(windows), 0.5 / INT16_SCALE  # which float32 holds
        return int(np.count_nonzero((windows < -1 - half) | (windows >= 1 - half)))


@dataclass(frozen=True)
class Chain:
    """Transforms applied from left to right; inner chains are flattened.

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
            steps += step.steps if isinstance(step, Chain) else (step,)
        object.__setattr__(self, "steps", tuple(steps))

    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> Array:
        return apply_transform(self, windows, sample_rate_hz)

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """The axes from the last step that has ``axes``; an empty list if none has.

        Later steps are assumed to keep the axes. Earlier steps are assumed to keep the
        number of frames, unless they change the rate.
        """
        found: list[dict[str, Any]] = []
        for step, rate_hz in each_step(self, sample_rate_hz):
            axes = getattr(step, "axes", None)
            if axes is not None:
                found = list(axes(rate_hz, frames))
            frames = -(-frames * rate_after(step, rate_hz) // rate_hz)
        return found


def steps_of(transform: Transform) -> tuple[Transform, ...]:
    """Returns the steps of a transform: one, unless it is a chain."""
    return transform.steps if isinstance(transform, Chain) else (transform,)


def chain_of(steps: Sequence[Transform]) -> Transform:
    """Returns some steps as one transform; the samples themselves if there is none."""
    if len(steps) > 1:
        return Chain(tuple(steps))
    return steps[0] if steps else Identity()


def each_step(
    transform: Transform, sample_rate_hz: int
) -> Iterator[tuple[Transform, int]]:
    """Yields the steps of a transform, each with the sample rate of its windows."""
    for step in steps_of(transform):
        yield step, sample_rate_hz
        sample_rate_hz = rate_after(step, sample_rate_hz)


def rate_after(transform: Transform, sample_rate_hz: int) -> int:
    """The sample rate of a transform's result, for windows at a sample rate."""
    for step in steps_of(transform):
        change = getattr(step, "rate_after", None)
        if change is not None:
            sample_rate_hz = int(change(sample_rate_hz))
    return sample_rate_hz


def as_float32(windows: Array) -> FloatArray:
    """Windows as float32, checked to be real floating-point numbers with frames."""
    windows = np.asarray(windows)
    if windows.dtype.kind != "f" or windows.ndim < 2:
        raise RecipeError(
            "feature",
            "needs real floating-point windows of shape (n, frames) or (n, channels, "
            "frames). Give a single window as window[None], of shape (1, frames), and "
            "the magnitude of complex values. In a chain, a step that returns integers "
            "or one value for each window must be the last",
            f"{windows.dtype} of shape {windows.shape}",
        )
    return windows.astype(np.float32, copy=False)


def spectra_of(features: Array, step: str) -> FloatArray:
    """Features of shape (n, [channels,] time_frames, bins), as float32.

    ``step`` is the name of the step that needs them, for errors.
    """
    features = as_float32(features)
    if features.ndim < 3:
        raise RecipeError(
            "feature",
            f"{step} must follow a step that returns spectra, like log_mel|{step}",
            features.shape,
        )
    return features


# Silences numpy's warnings of overflow and of invalid values. Divisions by zero still
# warn: no transform should need one.
quiet = functools.partial(np.errstate, over="ignore", invalid="ignore")

Method = TypeVar("Method", bound=Callable[..., Any])


def on_windows(method: Method) -> Method:
    """Makes a method of a step from one whose windows are float32, see as_float32.

    It silences numpy's warnings, see ``quiet``.
    """

    @functools.wraps(method)
    def transform(step: Any, windows: Array, *args: Any, **named: Any) -> Any:
        with quiet():
            return method(step, as_float32(windows), *args, **named)

    return cast(Method, transform)


WHITE = 255


class AsImage(Step, kw_only=False):
    """Real values as the grey levels of an image, uint8: the last step of a chain.

    ::

        y = clip(rint(255 (x - low) / (high - low)), 0, 255)

    in float64; halves round to even. ``low`` and everything below is black (0),
    ``high`` and everything above is white (255). Between them, ``y`` differs from
    ``x`` by at most half a level, ``(high - low) / 510``. The shape does not change: a
    spectrum (time_frames, bins) is an image with a row for each spectrum frame, and
    keeps its axes.

    The defaults suit ``log_mel()``: silence is at -23.03 nepers, and a sine at full
    scale reaches 7.8. A level is 0.13 nepers, or 0.54 dB. For ``log_mel(log='db')``,
    ``low=-100, high=40`` has the same use.

    Attributes
    ----------
    low, high : float
        The values of black and of white, in the unit of the feature.

    Raises
    ------
    RecipeError
        If ``high`` is not above ``low``; in a call, if a value is NaN or infinite,
        because no grey level stands for it.

    Examples
    --------
    >>> AsImage(low=-1.0, high=1.0)(np.array([[-2.0, 0.0, 0.25, 1.0]], np.float32))
    array([[  0, 128, 159, 255]], dtype=uint8)
    """

    on_features = True

    low: float = parameter(-23.0, Number(-1e300, 1e300))
    high: float = parameter(9.0, Number(-1e300, 1e300), above="low")

    @on_windows
    def __call__(self, windows: FloatArray) -> Array:
        finite = np.isfinite(windows)
        if not finite.all():
            raise RecipeError(
                "feature",
                "must be finite, because no grey level stands for NaN or infinity; "
                "store it as float32, without as_image()",
                float(windows[~finite][0]),
            )
        levels = self._levels(windows)
        np.clip(levels, 0, WHITE, out=levels)
        return levels.astype(np.uint8)

    def _levels(self, windows: FloatArray) -> DoubleArray:
        """The rounded levels, also those below black and above white."""
        levels = windows.astype(np.float64)
        levels -= self.low
        levels *= WHITE
        levels /= self.high - self.low
        np.rint(levels, out=levels)
        return levels

    @quiet()
    def count_clipped(self, windows: FloatArray) -> int:
        """How many values are below black or above white, by half a level or more."""
        levels = self._levels(windows)
        return int(np.count_nonzero((levels < 0) | (levels > WHITE)))
