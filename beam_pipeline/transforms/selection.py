"""Which windows of a clip are kept: selections. Where they are: placements.

A selection decides about each window by itself, so the other windows of a block do not
matter. It computes levels in float64 from fixed pieces, so rounding is the same in any
block. A placement reads the blocks of a clip once, and returns passages::

    level      __/\\__/\\/\\____/````\\______     of adjacent frames
    peaks      [  ]  [  ]    [  ]             a window around each peak
    sounds     [  ]  [  ]    [  ][  ]         windows over each passage of sound

Its levels are those of :class:`Energy`, of frames instead of windows. They do not
depend on where one block ends and the next begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Protocol

import numpy as np
import scipy  # loads its packages when they are used

from beam_pipeline.arrays import Booleans, DoubleArray, FloatArray, Integers
from beam_pipeline.parameters import Number, parameter
from beam_pipeline.transforms.base import (
    COUNT,
    LEVEL_DB,
    Step,
    as_float32,
    quiet,
    seconds_to_frames,
    slices,
)

# Samples that are squared together; their float64 squares stay in the cache.
_PIECE = 2**16


class Selection(Protocol):
    """``selection.keep(windows, sample_rate_hz)`` returns which windows are kept.

    ``windows`` is read-only float32 of shape (n, frames) or (n, channels, frames); the
    result is boolean of shape (n,). Each result may depend only on its own window.
    A selection of your own is a frozen dataclass.
    """

    def keep(self, windows: FloatArray, sample_rate_hz: int) -> Booleans: ...


class _AboveLevel(Step):
    """Keeps a window whose measure is at a level, or above.

    Attributes
    ----------
    unit_db : int
        Decibels of a tenfold measure: 10 for a power, 20 for an amplitude.
    """

    unit_db: ClassVar[int] = 10

    above_db: float = parameter(-60.0, LEVEL_DB)

    def keep(self, windows: FloatArray, sample_rate_hz: int) -> Booleans:
        windows = as_float32(windows)
        least = 10 ** (self.above_db / self.unit_db)
        kept = (self._is_kept(window, least) for window in windows)
        return np.fromiter(kept, bool, len(windows))

    def _is_kept(self, window: FloatArray, least: float) -> bool:
        return self._measure(window) >= least

    def _measure(self, window: FloatArray) -> float:
        raise NotImplementedError


class Energy(_AboveLevel):
    """Keeps a window whose root mean square is at a level, or above.

    ``10 log10(mean(x**2)) >= above_db``, with the mean over all frames and channels of
    the window. 0 dB is an RMS of 1, so a full-scale sine is at -3.01 dB. Silence and
    windows that contain NaN are left out at any level.

    Attributes
    ----------
    above_db : float
        dB relative to an RMS of 1, -200 to 200.

    Raises
    ------
    RecipeError
        If the level is out of its range.

    Examples
    --------
    >>> Energy().keep(np.array([[0.1, -0.1], [0, 0]], np.float32), 16000)
    array([ True, False])
    """

    def _measure(self, window: FloatArray) -> float:
        return mean_square(window)


class AcEnergy(_AboveLevel):
    """Keeps a window whose root mean square without its offset is at a level, or above.

    ``10 log10(mean((x - m)**2)) >= above_db``, where ``m`` is the mean of each channel
    in the window, its DC offset, and the outer mean is over all frames and channels.
    Recorders with an offset of 0.03 are never below -30.5 dB for ``energy``. Silence,
    constant windows and windows that contain NaN or infinity are left out at any level.

    Attributes
    ----------
    above_db : float
        dB relative to an RMS of 1, -200 to 200.

    Raises
    ------
    RecipeError
        If the level is out of its range.

    Examples
    --------
    >>> windows = np.array([[0.13, -0.07], [0.03, 0.03]], np.float32)
    >>> AcEnergy().keep(windows, 16000)
    array([ True, False])
    """

    def _measure(self, window: FloatArray) -> float:
        return variance(window)


class Peak(_AboveLevel):
    """Keeps a window whose peak is at a level, or above.

    ``20 log10(max|x|) >= above_db``, with the maximum over all frames and channels of
    the window. Silence and windows that contain NaN are left out at any level.

    Attributes
    ----------
    above_db : float
        dB relative to full scale, which is 1; -200 to 200.

    Raises
    ------
    RecipeError
        If the level is out of its range.

    Examples
    --------
    >>> Peak(above_db=-6).keep(np.array([[0.1, -0.6], [0.1, 0.2]], np.float32), 16000)
    array([ True, False])
    """

    unit_db = 20

    above_db: float = parameter(-40.0, LEVEL_DB)

    def _measure(self, window: FloatArray) -> float:
        return max(float(window.max()), -float(window.min()))


class Active(_AboveLevel):
    """Keeps a window that is above a level for a share of its time.

    The window is cut into adjacent frames. A frame is active if
    ``10 log10(mean(x**2)) >= above_db``, with the mean over its samples in all
    channels. The window is kept if ``active / frames >= share``. Samples after the last
    whole frame are ignored. Silence is left out at any level; a frame that contains NaN
    is not active.

    Attributes
    ----------
    above_db : float
        dB relative to an RMS of 1, -200 to 200.
    share : float
        Above 0, at most 1.
    frame : int
        Length of a frame, in frames of the signal.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if a frame is longer than the window.

    Examples
    --------
    >>> window = np.array([[0.1, 0.1, 0, 0, 0, 0, 0, 0]], np.float32)
    >>> Active(share=0.25, frame=2).keep(window, 16000)
    array([ True])
    >>> Active(share=0.26, frame=2).keep(window, 16000)
    array([False])
    """

    above_db: float = parameter(-50.0, LEVEL_DB)
    share: float = parameter(0.1, Number(most=1.0, is_positive=True))
    frame: int = parameter(512, COUNT)

    def keep(self, windows: FloatArray, sample_rate_hz: int) -> Booleans:
        frames = windows.shape[-1]
        if self.frame > frames:
            raise self.refused("frame", f"must not exceed the window's {frames} frames")
        return super().keep(windows, sample_rate_hz)

    def _is_kept(self, window: FloatArray, least: float) -> bool:
        active = frame_powers(window, self.frame) >= least
        # Divide, do not multiply: 7 / 100 rounds to the same number as the text 0.07,
        # but 0.07 * 100 is more than 7.
        return int(np.count_nonzero(active)) / len(active) >= self.share


def frame_powers(window: FloatArray, frame: int) -> DoubleArray:
    """Mean square of each whole frame, over its samples in all channels, in float64.

    Parameters
    ----------
    window : numpy.ndarray, shape (n,) or (channels, n), float32
    frame : int
        The length of a frame. Samples after the last whole frame are ignored.

    Returns
    -------
    numpy.ndarray, shape (n // frame,), float64
    """
    channels = np.atleast_2d(window)
    count = window.shape[-1] // frame
    powers = np.zeros(count)
    for channel in channels:
        for some in slices(count, _PIECE // frame):
            framed = channel[some.start * frame : some.stop * frame]
            squares = np.square(framed, dtype=np.float64)
            powers[some] += squares.reshape(-1, frame).sum(axis=1)
    powers /= frame * len(channels)
    return powers


def mean_square(window: FloatArray) -> float:
    """Mean of the squares of a window's samples, in float64.

    The sum goes channel by channel, in pieces of a fixed length: the order of a sum
    decides how it is rounded.
    """
    total = sum(
        float(np.square(piece, dtype=np.float64).sum())
        for channel in window.reshape(-1, window.shape[-1])
        for piece in _pieces(channel)
    )
    return total / window.size


@quiet()
def variance(window: FloatArray) -> float:
    """Mean of the squared distances of samples from their channel's mean, in float64.

    The sums have the order of :func:`mean_square`.
    """
    total = 0.0
    for channel in window.reshape(-1, window.shape[-1]):
        sums = (float(piece.sum(dtype=np.float64)) for piece in _pieces(channel))
        mean = sum(sums) / len(channel)
        for piece in _pieces(channel):
            total += float(np.square(piece.astype(np.float64) - mean).sum())
    return total / window.size


def _pieces(channel: FloatArray) -> list[FloatArray]:
    return [channel[piece] for piece in slices(len(channel), _PIECE)]


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
