"""Features as the grey levels of an image."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import (
    Array,
    FloatArray,
    as_float32,
    is_within,
    real,
)
from beam_pipeline.transforms.quiet import quiet

WHITE = 255


@dataclass(frozen=True)
class AsImage:
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

    low: float = -23.0
    high: float = 9.0

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            object.__setattr__(self, name, real(name, getattr(self, name)))
        if not 0 < self.high - self.low < math.inf:
            raise RecipeError(
                "high",
                f"must be above low ({self.low:g}), by a finite difference",
                self.high,
            )

    @quiet
    def __call__(self, windows: FloatArray) -> Array:
        windows = as_float32(windows)
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

    def _levels(self, windows: FloatArray) -> npt.NDArray[np.float64]:
        """The rounded levels, also those below black and above white."""
        levels = windows.astype(np.float64)
        levels -= self.low
        levels *= WHITE
        levels /= self.high - self.low
        np.rint(levels, out=levels)
        return levels

    @quiet
    def count_clipped(self, windows: FloatArray) -> int:
        """How many values are below black or above white, by half a level or more."""
        if is_within(windows, self.low, self.high):
            return 0
        levels = self._levels(windows)
        return int(np.count_nonzero((levels < 0) | (levels > WHITE)))
