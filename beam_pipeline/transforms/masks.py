"""Masks on the spectra of augmented copies."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.augment import Drawn, Keys, draw, draw_whole
from beam_pipeline.transforms.base import FloatArray, as_float32, check_choice, real
from beam_pipeline.transforms.quiet import quiet

_MAX_MASKS = 100
_FILLS = ("mean", "least", "zero")


@dataclass(frozen=True, kw_only=True)
class SpecAugment:
    """Masks bands and times of the spectra of copies, at random; others stay.

    A step of a feature, after one that gives (time_frames, bins). Examples that are no
    copies are not changed, nor is anything in ``as_tf`` and ``dofns.Transform``, which
    know no copies. Each of ``freq_masks`` masks::

        f = whole number, uniform from 0 to min(max_bins, bins)
        b = whole number, uniform from 0 to bins - f
        y[t, b .. b + f - 1] = fill

    and each of ``time_masks`` masks does the same in time, with at most ``max_frames``
    frames, and at most the share ``max_share`` of all (rounded down). Masks may
    overlap. The channels of a window share the masks. The shape does not change; the
    result is float32.

    Attributes
    ----------
    freq_masks, time_masks : int
        Number of masks, 0 to 100.
    max_bins, max_frames : int
        Largest width of a mask, in bins and in spectrum frames.
    max_share : float
        Largest width of a mask in time, as a share of the spectrum's frames, 0 to 1.
    fill : str
        ``mean``: the mean of all values of the spectrum (of its channel) before it is
        masked. ``least``: the least of them. ``zero``: 0.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if the features lack the axes
        (time_frames, bins).

    References
    ----------
    D. S. Park et al., SpecAugment: A simple data augmentation method for automatic
    speech recognition, Interspeech 2019. This is without its warping of time.

    Examples
    --------
    >>> masks = SpecAugment(freq_masks=1, max_bins=2, time_masks=0, fill="zero")
    >>> features, keys = np.ones((1, 2, 4), np.float32), np.array([3], np.uint64)
    >>> masks.on_copies(features, keys, 16000).tolist()
    [[[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]]]
    """

    freq_masks: int = 2
    max_bins: int = 27
    time_masks: int = 2
    max_frames: int = 100
    max_share: float = 0.2
    fill: str = "mean"

    def __post_init__(self) -> None:
        for name in ("freq_masks", "max_bins", "time_masks", "max_frames"):
            value = getattr(self, name)
            is_whole = isinstance(value, numbers.Integral)
            if not is_whole or isinstance(value, bool) or value < 0:
                raise RecipeError(name, "must be a whole number, 0 or more", value)
            if name.endswith("masks") and value > _MAX_MASKS:
                raise RecipeError(name, f"must be at most {_MAX_MASKS}", value)
            object.__setattr__(self, name, int(value))
        object.__setattr__(self, "max_share", real("max_share", self.max_share))
        if not 0 <= self.max_share <= 1:
            raise RecipeError("max_share", "must be between 0 and 1", self.max_share)
        check_choice("fill", self.fill, _FILLS)

    def __call__(self, features: FloatArray) -> FloatArray:
        """The features as they are, checked to be spectra."""
        features = as_float32(features)
        if features.ndim < 3:
            raise RecipeError(
                "feature",
                "spec_augment must follow a step that returns spectra, like "
                "log_mel|spec_augment",
                features.shape,
            )
        return features

    @quiet
    def on_copies(
        self, features: FloatArray, keys: Keys, sample_rate_hz: int
    ) -> FloatArray:
        features = self(features)
        drawn = self.drawn(keys, *features.shape[-2:])
        frames = _covered(drawn["first_frame"], drawn["frames"], features.shape[-2])
        bins = _covered(drawn["first_bin"], drawn["bins"], features.shape[-1])
        masked = frames[:, :, np.newaxis] | bins[:, np.newaxis, :]
        masked = masked.reshape(
            len(features), *[1] * (features.ndim - 3), *features.shape[-2:]
        )
        return np.where(masked, self._fill(features), features)

    def drawn(self, keys: Keys, frames: int, bins: int) -> Drawn:
        """The place and the width of each mask, of shape (n, masks)."""
        most = min(self.max_frames, int(self.max_share * frames))
        first_frame, widths = _draw_masks(keys, self.time_masks, frames, most, 0)
        most = min(self.max_bins, bins)
        first_bin, heights = _draw_masks(keys, self.freq_masks, bins, most, 1)
        return {
            "first_frame": first_frame,
            "frames": widths,
            "first_bin": first_bin,
            "bins": heights,
        }

    def _fill(self, features: FloatArray) -> Any:
        if self.fill == "zero" or not features.size:
            return np.float32(0)
        axes = (-2, -1)
        if self.fill == "least":
            return features.min(axis=axes, keepdims=True)
        features = np.ascontiguousarray(features)
        mean = features.mean(axis=axes, keepdims=True, dtype=np.float64)
        return mean.astype(np.float32)


def _draw_masks(
    keys: Keys, masks: int, size: int, most: int, axis: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The starts and the widths of some masks along an axis, each (n, masks)."""
    widths = np.zeros((len(keys), masks), np.int64)
    starts = np.zeros_like(widths)
    for mask in range(masks):
        # Other masks stay as they are if there are more of them.
        at = 4 * mask + 2 * axis
        widths[:, mask] = draw_whole(keys, at, most + 1)
        left = size - widths[:, mask] + 1
        starts[:, mask] = np.floor(draw(keys, at + 1) * left)
    return starts, widths


def _covered(
    starts: npt.NDArray[np.int64], widths: npt.NDArray[np.int64], size: int
) -> npt.NDArray[np.bool_]:
    """Which places (n, size) one of the masks covers."""
    at = np.arange(size)
    starts, widths = starts[..., np.newaxis], widths[..., np.newaxis]
    covered = (at >= starts) & (at < starts + widths)
    return np.asarray(covered.any(axis=1))
