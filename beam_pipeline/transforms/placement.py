r"""Placements: where the windows of a clip are, by what it sounds like.

::

    level      __/\__/\/\____/````\______     of adjacent frames
    peaks      [  ]  [  ]    [  ]             a window around each peak
    sounds     [  ]  [  ]    [  ][  ]         windows over each passage of sound

A placement reads the blocks of a clip once, and returns passages. Its levels are those
of :class:`.selection.Energy`, of frames instead of windows. They do not depend on where
one block ends and the next begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import FloatArray, real, seconds_to_frames
from beam_pipeline.transforms.quiet import quiet
from beam_pipeline.transforms.selection import frame_powers, level

Integers = npt.NDArray[np.int64]
Powers = npt.NDArray[np.float64]


class Placement(Protocol):
    """``placement.passages(blocks, sample_rate_hz)`` returns passages of a clip.

    ``blocks`` are its frames in order, read-only float32 of shape (frames,) or
    (channels, frames), of any lengths. The result is integer of shape (n, 2): the first
    frame of each passage, and the frame after its last one. A passage may be empty: a
    point in time. Recipes can name frozen dataclasses at the top level of a module.
    """

    def passages(
        self, blocks: Iterable[FloatArray], sample_rate_hz: int
    ) -> Integers: ...


@dataclass(frozen=True, kw_only=True)
class Peaks:
    """Places a window around each peak of the level.

    The clip is cut into adjacent frames. The level of a frame is
    ``10 log10(mean(x**2))``, with the mean over its samples in all channels. A peak is
    the middle of a frame that is above both of its neighbours and at ``above_db``, or
    above; equal neighbours are one frame. Of peaks that are closer to each other than
    ``min_gap_s``, the loudest stays, and of equal ones the first. A frame that contains
    NaN is silent.

    Attributes
    ----------
    above_db : float
        dB relative to an RMS of 1, -200 to 200.
    min_gap_s : float
        Least distance between two peaks, in seconds.
    frame_s : float
        Length of a frame, in seconds. The clip's last frame may be shorter.

    Raises
    ------
    RecipeError
        If a value is out of its range.

    Examples
    --------
    >>> clip = np.array([0, 0.1, 0, 0.1, 0.3, 0.1, 0], np.float32)
    >>> Peaks(min_gap_s=1, frame_s=1).passages([clip], 1).tolist()
    [[1, 1], [4, 4]]
    >>> Peaks(min_gap_s=4, frame_s=1).passages([clip], 1).tolist()
    [[4, 4]]
    """

    above_db: float = -40.0
    min_gap_s: float = 0.5
    frame_s: float = 0.01

    def __post_init__(self) -> None:
        _check(self, "min_gap_s")

    def passages(self, blocks: Iterable[FloatArray], sample_rate_hz: int) -> Integers:
        frame = _frames(self.frame_s, sample_rate_hz)
        powers, total = _powers(blocks, frame)
        peaks = _maxima(powers)
        peaks = peaks[powers[peaks] >= 10 ** (self.above_db / 10)]
        gap = -(-seconds_to_frames(self.min_gap_s, sample_rate_hz) // frame)
        peaks = _apart(peaks, powers[peaks], gap)
        middles = np.minimum(peaks * frame + frame // 2, total - 1)
        return np.stack([middles, middles], axis=1)


@dataclass(frozen=True, kw_only=True)
class Sounds:
    """Places windows over each passage of sound between two silences.

    The clip is cut into adjacent frames. The level of a frame is
    ``10 log10(mean(x**2))``, with the mean over its samples in all channels. It is of
    sound at ``above_db`` or above, and silent otherwise; a frame that contains NaN is
    silent. Silence that is shorter than ``min_gap_s`` does not end a passage. A passage
    that is shorter than ``min_sound_s`` is no passage.

    Attributes
    ----------
    above_db : float
        dB relative to an RMS of 1, -200 to 200.
    min_gap_s : float
        Least length of a silence between two passages, in seconds.
    min_sound_s : float
        Least length of a passage, in seconds.
    frame_s : float
        Length of a frame, in seconds. The clip's last frame may be shorter.

    Raises
    ------
    RecipeError
        If a value is out of its range.

    Examples
    --------
    >>> clip = np.array([0, 0.1, 0, 0.1, 0.3, 0, 0, 0, 0.2], np.float32)
    >>> Sounds(min_gap_s=2, frame_s=1).passages([clip], 1).tolist()
    [[1, 5], [8, 9]]
    """

    above_db: float = -40.0
    min_gap_s: float = 0.2
    min_sound_s: float = 0.0
    frame_s: float = 0.01

    def __post_init__(self) -> None:
        _check(self, "min_gap_s", "min_sound_s")

    def passages(self, blocks: Iterable[FloatArray], sample_rate_hz: int) -> Integers:
        frame = _frames(self.frame_s, sample_rate_hz)
        powers, total = _powers(blocks, frame)
        loud = powers >= 10 ** (self.above_db / 10)
        silence = np.zeros(1, np.bool_)
        changes = np.flatnonzero(np.diff(np.concatenate([silence, loud, silence])))
        begins, ends = changes[::2] * frame, np.minimum(changes[1::2] * frame, total)
        if not len(begins):
            return np.empty((0, 2), np.int64)
        gap = seconds_to_frames(self.min_gap_s, sample_rate_hz)
        apart = begins[1:] - ends[:-1] >= gap
        begins = begins[np.concatenate([[True], apart])]
        ends = ends[np.concatenate([apart, [True]])]
        least = seconds_to_frames(self.min_sound_s, sample_rate_hz)
        long = ends - begins >= least
        return np.stack([begins[long], ends[long]], axis=1)


PLACEMENTS: dict[str, type[Any]] = {"peaks": Peaks, "sounds": Sounds}


def _check(step: Any, *seconds: str) -> None:
    """Checks the values of a placement, and makes numbers of them."""
    object.__setattr__(step, "above_db", level(step.above_db))
    for name in (*seconds, "frame_s"):
        value = real(name, getattr(step, name))
        if value < 0 or (value == 0 and name == "frame_s"):
            least = "above 0" if name == "frame_s" else "0 or more"
            raise RecipeError(name, f"must be {least}", value)
        object.__setattr__(step, name, value)


def _frames(frame_s: float, sample_rate_hz: int) -> int:
    return max(1, seconds_to_frames(frame_s, sample_rate_hz))


@quiet
def _powers(blocks: Iterable[FloatArray], frame: int) -> tuple[Powers, int]:
    """Mean square of each frame, with 0 for NaN, and the number of samples in all.

    Blocks are cut anew, so that no frame is in two of them.
    """
    found, total = [np.zeros(0)], 0
    rest: FloatArray | None = None
    for block in blocks:
        channels = np.atleast_2d(block)
        total += channels.shape[1]
        if rest is not None and rest.shape[1]:
            channels = np.concatenate([rest, channels], axis=1)
        whole = channels.shape[1] // frame * frame
        found.append(frame_powers(channels[:, :whole], frame))
        rest = channels[:, whole:]
    if rest is not None and rest.shape[1]:
        found.append(frame_powers(rest, rest.shape[1]))
    powers = np.concatenate(found)
    return np.where(np.isnan(powers), 0.0, powers), total


def _maxima(powers: Powers) -> Integers:
    """Returns the local maxima, ascending; of a run of equal values, its middle."""
    if not len(powers):
        return np.empty(0, np.int64)
    firsts = np.concatenate([[0], np.flatnonzero(powers[1:] != powers[:-1]) + 1])
    lasts = np.concatenate([firsts[1:], [len(powers)]]) - 1
    values = np.concatenate([[-1.0], powers[firsts], [-1.0]])
    above = (values[1:-1] > values[:-2]) & (values[1:-1] > values[2:])
    middles: Integers = (firsts + lasts) // 2
    return middles[above]


def _apart(places: Integers, powers: Powers, gap: int) -> Integers:
    """Returns the places that stay if each removes weaker ones closer than ``gap``."""
    first = np.searchsorted(places, places - gap, side="right")
    stop = np.searchsorted(places, places + gap, side="left")
    stays = np.ones(len(places), np.bool_)
    for at in np.lexsort((places, -powers)).tolist():
        if stays[at]:
            stays[first[at] : stop[at]] = False
            stays[at] = True
    return places[stays]
