"""Normalises the mean and the variance of features over time."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import (
    FloatArray,
    as_float32,
    check_choice,
    real,
    whole,
)
from beam_pipeline.transforms.mel import cache_blocks
from beam_pipeline.transforms.quiet import quiet

DoubleArray = npt.NDArray[np.float64]

WINDOW, CLIP = "window", "clip"


@dataclass(frozen=True, kw_only=True)
class Cmvn:
    """Subtracts the mean over time from each bin, and divides by the deviation.

    For features of shape (time_frames, bins)::

        y[t, b] = (x[t, b] - mean[b]) / sqrt(max(var[b], floor))

    with ``var[b] = mean((x[., b] - mean[b])**2)``; with ``norm_vars=False``,
    ``y = x - mean``. The shape (n, [channels,] time_frames, bins) does not change; the
    result is float32. Features that are constant in time, like those of silence, give
    0.

    The mean and the variance are those

    - of each window by itself: ``over="window"``;
    - of ``window`` spectrum frames around each frame, as in Kaldi's
      ``apply-cmvn-sliding``: ``window=300``. With ``center``, a frame has
      ``window // 2`` frames before it, and is followed by the others. Without, it has
      ``window`` frames before it, and the first ``min_window`` frames share their
      values. At the ends, frames are taken that exist;
    - of all spectrum frames of all windows of the clip: ``over="clip"``. Each window of
      the recipe counts once, also one that ``keep`` leaves out; so frames count twice
      where windows overlap, and padding counts. The probe decodes the clip once more
      to measure it, like ``clip_gain``.

    Where clips are not known, each window counts as one: in ``as_tf`` and
    ``dofns.Transform``.

    The largest difference found to Kaldi's loop in float64 is 6e-8 of the largest
    value, in windows of 10 frames and more. In shorter ones, frames may be almost
    equal; the difference of squares then has few digits, and with ``norm_vars`` it is
    2e-3.

    Attributes
    ----------
    norm_vars : bool
        Whether to divide by the deviation.
    over : str
        ``window`` or ``clip``.
    window : int or None
        Number of spectrum frames; None: all.
    min_window : int
        Least number of frames at the start, without ``center``.
    center : bool
        Whether the window is around its frame, and not before it.
    floor : float
        The least variance.

    Raises
    ------
    RecipeError
        If a value is out of its range, or ``window`` is given for clips; in a call, if
        the features lack the axes (time_frames, bins).

    References
    ----------
    D. Povey et al., The Kaldi Speech Recognition Toolkit, ASRU 2011. O. Viikki and
    K. Laurila, Cepstral domain segmental feature vector normalization for noise robust
    speech recognition, Speech Communication 25, 1998.

    Examples
    --------
    >>> features = np.array([[[1], [2], [6]]], np.float32)
    >>> Cmvn(norm_vars=False)(features)[0, :, 0]
    array([-2., -1.,  3.], dtype=float32)
    >>> Cmvn(norm_vars=False, window=2, center=True)(features)[0, :, 0]
    array([-0.5,  0.5,  2. ], dtype=float32)
    """

    norm_vars: bool = True
    over: str = WINDOW
    window: int | None = None
    min_window: int = 100
    center: bool = False
    floor: float = 1e-10

    def __post_init__(self) -> None:
        for name in ("norm_vars", "center"):
            if not isinstance(getattr(self, name), bool):
                raise RecipeError(name, "must be True or False", getattr(self, name))
        check_choice("over", self.over, (WINDOW, CLIP))
        if self.window is not None:
            object.__setattr__(self, "window", whole("window", self.window))
            if self.over != WINDOW:
                raise RecipeError(
                    "window", f"must not be given with over={self.over!r}", self.window
                )
        object.__setattr__(self, "min_window", whole("min_window", self.min_window))
        object.__setattr__(self, "floor", real("floor", self.floor))
        if self.floor <= 0:
            raise RecipeError("floor", "must be positive", self.floor)

    @property
    def measures_clips(self) -> bool:
        """Whether a clip must be measured first; see :meth:`measure`."""
        return self.over != WINDOW

    @quiet
    def __call__(self, features: FloatArray) -> FloatArray:
        features = _spectra(features)
        count, bins = features.shape[-2:]
        flat = features.reshape(math.prod(features.shape[:-2]), count, bins)
        out = np.empty(flat.shape, np.float32)
        for rows, _ in cache_blocks(len(flat), 1, max(1, count * bins)):
            x = flat[rows].astype(np.float64, order="C")
            x -= _mean(x)
            if self.window is None:
                if self.norm_vars:
                    variance = _mean(np.square(x))
                    x /= np.sqrt(np.maximum(variance, self.floor))
            elif count:
                self._slide(x)
            out[rows] = x
        return out.reshape(features.shape)

    def _slide(self, x: DoubleArray) -> None:
        """Normalises features (n, time_frames, bins) of mean 0 in place."""
        assert self.window is not None
        bounds = _bounds(x.shape[1], self.window, self.min_window, self.center)
        starts, stops = bounds
        frames = (stops - starts)[:, np.newaxis]
        mean = _sums(x, starts, stops) / frames
        if self.norm_vars:
            squares = _sums(np.square(x), starts, stops) / frames
            variance = np.maximum(squares - np.square(mean), self.floor)
            x -= mean
            x /= np.sqrt(variance)
        else:
            x -= mean

    @quiet
    def measure(self, blocks: Iterable[FloatArray]) -> bytes:
        """Measures a clip, for :meth:`of_measured`.

        Parameters
        ----------
        blocks : iterable of numpy.ndarray
            The features of all windows of the clip, in blocks. The result does not
            depend on how the windows are divided into blocks.

        Returns
        -------
        bytes
            The mean, then the standard deviation of each bin (of each channel):
            float64, little-endian.
        """
        count = 0
        for block in blocks:
            features = _spectra(block).astype(np.float64, order="C")
            if not count:
                # Differences from a value near the mean keep their digits.
                centre = _mean(features[:1])
                total = np.zeros_like(centre)
                squares = np.zeros_like(centre)
            features -= centre
            # One window after the other, whatever block it is in.
            for window in features:
                total += window.sum(axis=-2, keepdims=True)
                squares += np.square(window).sum(axis=-2, keepdims=True)
            count += len(features) * features.shape[-2]
        mean = total / count
        variance = squares / count - np.square(mean)
        std = np.sqrt(np.maximum(variance, self.floor))
        both = (mean + centre, std if self.norm_vars else np.ones_like(mean))
        return b"".join(values.astype("<f8").tobytes() for values in both)

    def of_measured(self, measured: bytes) -> MeasuredCmvn:
        """The step for a clip that was measured."""
        return MeasuredCmvn(measured)


@dataclass(frozen=True)
class MeasuredCmvn:
    """A normalisation whose mean and deviation are known."""

    measured: bytes

    @quiet
    def __call__(self, features: FloatArray) -> FloatArray:
        features = _spectra(features)
        shape = (2, *features.shape[1:-2], 1, features.shape[-1])
        mean, std = np.frombuffer(self.measured, "<f8").reshape(shape)
        made: FloatArray = ((features.astype(np.float64) - mean) / std).astype("f4")
        return made


def _spectra(features: FloatArray) -> FloatArray:
    features = as_float32(features)
    if features.ndim < 3:
        raise RecipeError(
            "feature",
            "cmvn must follow a step that returns spectra, like mfcc|cmvn",
            features.shape,
        )
    return features


def _mean(x: DoubleArray) -> DoubleArray:
    # Unlike ``x.mean``, this gives NaN without a warning if there are no frames.
    mean: DoubleArray = x.sum(axis=-2, keepdims=True) / x.shape[-2]
    return mean


def _sums(
    x: DoubleArray, starts: npt.NDArray[np.int64], stops: npt.NDArray[np.int64]
) -> DoubleArray:
    """Sums of the frames from each start to its stop, for features (n, t, bins)."""
    running = np.zeros((x.shape[0], x.shape[1] + 1, x.shape[2]))
    np.cumsum(x, axis=1, out=running[:, 1:])
    sums: DoubleArray = running[:, stops] - running[:, starts]
    return sums


@functools.lru_cache(maxsize=32)
def _bounds(
    count: int, window: int, min_window: int, center: bool
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """First frame, and frame after the last one, of the window of each frame."""
    at = np.arange(count)
    if center:
        starts = at - window // 2
        stops = np.maximum(starts, 0) + window
    else:
        starts = at - window
        stops = np.maximum(at + 1, min_window)
    starts = np.maximum(starts, 0)
    beyond = np.maximum(stops - count, 0)
    return np.maximum(starts - beyond, 0), stops - beyond
