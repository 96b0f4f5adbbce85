"""Where the windows of a clip are, by what it sounds like: placements.

A placement reads the blocks of a clip once, and returns passages::

    level      __/\\__/\\/\\____/````\\______     of adjacent frames
    peaks      [  ]  [  ]    [  ]             a window around each peak
    sounds     [  ]  [  ]    [  ][  ]         windows over each passage of sound

Its levels are those of :class:`.selection.Energy`, of frames instead of windows. They
do not depend on where one block ends and the next begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

import numpy as np
import scipy  # loads its packages when they are used

from beam_pipeline.arrays import DoubleArray, FloatArray, Integers
from beam_pipeline.parameters import Number, parameter
from beam_pipeline.transforms.base import (
    LEVEL_DB,
    Step,
    quiet,
    seconds_to_frames,
)
from beam_pipeline.transforms.selection import frame_powers

SECONDS = Number(0.0, unit="seconds")
FRAME_S = Number(is_positive=True, unit="seconds")


class Placement(Protocol):
    """``placement.passages(blocks, sample_rate_hz)`` returns passages of a clip.

    ``blocks`` are its frames in order, read-only float32 of shape (frames,) or
    (channels, frames), of any lengths. The result is integer of shape (n, 2): the first
    frame of each passage, and the frame after its last one. A passage may be empty: a
    point in time. A placement of your own is a frozen dataclass.
    """

    def passages(
        self, blocks: Iterable[FloatArray], sample_rate_hz: int
    ) -> Integers: ...


class Peaks(Step):
    """Places a window around each peak of the level.

    The clip is cut into adjacent frames. The level of a frame is
    ``10 log10(mean(x**2))``, with the mean over its samples in all channels. A peak is
    the middle of a frame that is louder than both of its neighbours, and has
    ``above_db`` or more; equal neighbours are one frame. Of peaks that are closer to
    each other than ``min_gap_s``, the loudest stays, and of equal ones the first. A
    frame that contains NaN is silent.

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

    above_db: float = parameter(-40.0, LEVEL_DB)
    min_gap_s: float = parameter(0.5, SECONDS)
    frame_s: float = parameter(0.01, FRAME_S)

    def passages(self, blocks: Iterable[FloatArray], sample_rate_hz: int) -> Integers:
        frame, powers, total = _powers(blocks, self.frame_s, sample_rate_hz)
        # Between values below all others; of a run of equal values, the middle counts.
        between = np.pad(powers, 1, constant_values=-1.0)
        found, _ = scipy.signal.find_peaks(between, height=10 ** (self.above_db / 10))
        peaks: Integers = found - 1
        gap = -(-seconds_to_frames(self.min_gap_s, sample_rate_hz) // frame)
        peaks = _apart(peaks, powers[peaks], gap)
        middles = np.minimum(peaks * frame + frame // 2, total - 1)
        return np.stack([middles, middles], axis=1)


class Sounds(Step):
    """Places windows over each passage of sound between two silences.

    The clip is cut into adjacent frames. The level of a frame is
    ``10 log10(mean(x**2))``, with the mean over its samples in all channels. A frame
    with ``above_db`` or more is of sound, others are silent, as is a frame that
    contains NaN. Silence that is shorter than ``min_gap_s`` does not end a passage. A
    passage that is shorter than ``min_sound_s`` is none.

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

    above_db: float = parameter(-40.0, LEVEL_DB)
    min_gap_s: float = parameter(0.2, SECONDS)
    min_sound_s: float = parameter(0.0, SECONDS)
    frame_s: float = parameter(0.01, FRAME_S)

    def passages(self, blocks: Iterable[FloatArray], sample_rate_hz: int) -> Integers:
        frame, powers, total = _powers(blocks, self.frame_s, sample_rate_hz)
        loud = powers >= 10 ** (self.above_db / 10)
        changes = np.flatnonzero(np.diff(loud, prepend=False, append=False))
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


@quiet()
def _powers(
    blocks: Iterable[FloatArray], frame_s: float, sample_rate_hz: int
) -> tuple[int, DoubleArray, int]:
    """The frame, the mean square of each, with 0 for NaN, and the length of the clip.

    Blocks are cut anew, so that no frame is in two of them.
    """
    frame = max(1, seconds_to_frames(frame_s, sample_rate_hz))
    found, total = [np.zeros(0)], 0
    rest = np.empty((1, 0), np.float32)
    for block in map(np.atleast_2d, blocks):
        total += block.shape[1]
        if rest.shape[1]:
            block = np.concatenate([rest, block], axis=1)
        whole = block.shape[1] // frame * frame
        found.append(frame_powers(block[:, :whole], frame))
        rest = block[:, whole:]
    if rest.shape[1]:
        found.append(frame_powers(rest, rest.shape[1]))
    powers = np.concatenate(found)
    return frame, np.where(np.isnan(powers), 0.0, powers), total


def _apart(places: Integers, powers: DoubleArray, gap: int) -> Integers:
    """Returns the places that stay if each removes weaker ones closer than ``gap``."""
    first = np.searchsorted(places, places - gap, side="right")
    stop = np.searchsorted(places, places + gap, side="left")
    stays = np.ones(len(places), np.bool_)
    for at in np.lexsort((places, -powers)).tolist():
        if stays[at]:
            stays[first[at] : stop[at]] = False
            stays[at] = True
    return places[stays]
