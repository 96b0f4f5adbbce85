"""Steps that see a clip before its windows become features.

On the samples of a whole clip: streams. Where windows are: placements. Which windows
are kept: selections.

A step on a stream is causal: its output at a frame depends on that frame and on the
frames before it, as far back as its context. So a clip is computed in chunks on a fixed
grid, each with the context before it. A sample has the same value for any shards and
blocks::

    clip      |-------- chunk 0 --------|-------- chunk 1 --------|-- chunk 2 --|
    chunk 1              |-- context ---|-------------------------|

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

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import scipy  # loads its packages when they are used

from beam_pipeline.arrays import Booleans, DoubleArray, FloatArray, Integers
from beam_pipeline.errors import NonFiniteAudio
from beam_pipeline.parameters import Choice, Number, WholeNumber, parameter
from beam_pipeline.permutation import hash64
from beam_pipeline.process import Marks
from beam_pipeline.text import clip_key
from beam_pipeline.transforms.augment import white_noise
from beam_pipeline.transforms.base import (
    COUNT,
    INT16_SCALE,
    LEVEL_DB,
    FrameByFrame,
    Step,
    as_float32,
    quiet,
    seconds_to_frames,
    slices,
)
from beam_pipeline.transforms.descriptors import clip_level
from beam_pipeline.transforms.signals import frame_powers, mean_square, variance

CHUNK_FRAMES = 1 << 16


class Reader(Protocol):
    """Reads ranges of a clip, forward; see ``audio.clip_reader.ClipReader``."""

    def read(self, start: int, stop: int) -> FloatArray: ...


class StreamStep(Protocol):
    """A step on a clip's samples.

    ``on_stream`` takes float32 of shape (rows, frames) and returns the same shape. It
    begins at rest. After the first ``context`` frames, its output is the same as if it
    had begun earlier.

    A step that depends on the number of a frame has ``on_stream_from(first, frames,
    sample_rate_hz)`` instead, with the number of the first frame in the clip. A step
    that depends on the clip has ``of_clip``, see :func:`in_clip`.
    """

    def context(self, sample_rate_hz: int) -> int: ...

    def on_stream(self, frames: FloatArray, sample_rate_hz: int) -> FloatArray: ...


class ClipGain(FrameByFrame, Step):
    """Scales a whole clip so that a measure of it is at a level.

    The probe decodes the clip once more to measure it. Silence stays silence.

    Attributes
    ----------
    kind : str
        ``peak``: largest absolute sample; ``rms``: root mean square of all samples;
        both in dB of full scale. ``lufs``: integrated loudness, ITU-R BS.1770-4.
    level_db : float
        dB, or LUFS; -200 to 200.

    Raises
    ------
    RecipeError
        If the kind is unknown, or the level is out of its range.
    """

    kind: str = parameter("peak", Choice(("peak", "rms", "lufs")))
    level_db: float = parameter(-1.0, LEVEL_DB)

    def measure(
        self, reader: Reader, frames: int, sample_rate_hz: int, name: str
    ) -> float:
        """The factor for a clip of ``frames`` frames; ``name`` is for errors.

        Raises
        ------
        NonFiniteAudio
            If a sample is NaN or infinite, or the factor would be infinite.
        """

        chunks = slices(frames, CHUNK_FRAMES)
        blocks = (np.atleast_2d(reader.read(at.start, at.stop)) for at in chunks)
        level_db = clip_level(self.kind, blocks, sample_rate_hz)
        if level_db == -math.inf:
            return 1.0
        factor = 10 ** ((self.level_db - level_db) / 20)
        if not math.isfinite(factor):
            raise NonFiniteAudio(
                name,
                f"has a {self.kind} level of {level_db:g} dB, which clip_gain cannot "
                f"bring to {self.level_db:g} dB; repair the file, or remove clip_gain",
            )
        return factor

    def of_clip(
        self, filepath: str, source: int, start: int, factors: Iterator[float]
    ) -> Factor:
        """The gain of a clip, of which it has been measured."""
        return Factor(next(factors))


@dataclass(frozen=True)
class Factor(FrameByFrame):
    """A clip gain whose factor is known."""

    value: float

    def on_stream(self, frames: FloatArray, sample_rate_hz: int) -> FloatArray:
        return frames * np.float32(self.value)


class SteppedReader:
    """Reads ranges of a clip, forward, with steps applied to its samples.

    Parameters
    ----------
    reader
        The clip without the steps.
    steps
        The steps in this clip, see :func:`in_clip`.
    frames : int
        Length of the clip.

    Raises
    ------
    RecipeError
        If a step does not work at this sample rate.
    """

    def __init__(
        self,
        reader: Reader,
        steps: Sequence[StreamStep],
        frames: int,
        sample_rate_hz: int,
    ):
        self._reader = reader
        self._steps = steps
        self._frames = frames
        self._rate = sample_rate_hz
        self._context = sum(step.context(sample_rate_hz) for step in steps)
        # A chunk is at least as long as the context, which is computed again for each.
        self._size = max(CHUNK_FRAMES, self._context)
        self._chunks: dict[int, FloatArray] = {}

    def read(self, start: int, stop: int) -> FloatArray:
        """Frames ``start`` to ``stop``; see ``ClipReader.read``."""
        if start == stop:
            last = min(start, self._frames - 1)
            return self.read(last, last + 1)[..., :0]
        wanted = range(start // self._size, (stop - 1) // self._size + 1)
        self._chunks = {k: c for k, c in self._chunks.items() if k in wanted}
        for k in wanted:
            if k not in self._chunks:
                self._chunks[k] = self._compute(k * self._size)
        parts = [
            self._chunks[k][..., max(start - k * self._size, 0) : stop - k * self._size]
            for k in wanted
        ]
        out = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=-1)
        out.flags.writeable = False
        return out

    def _compute(self, start: int) -> FloatArray:
        before = min(start, self._context)
        first = start - before
        given = self._reader.read(first, min(start + self._size, self._frames))
        frames = np.atleast_2d(given)
        for step in self._steps:
            Marks.step(f"stream: {type(step).__name__}")
            on_stream_from = getattr(step, "on_stream_from", None)
            if on_stream_from is None:
                frames = step.on_stream(frames, self._rate)
            else:
                frames = on_stream_from(first, frames, self._rate)
        Marks.step("")
        return frames[..., before:].reshape(*given.shape[:-1], -1)


def in_clip(
    steps: Sequence[Any],
    filepath: str,
    source: int,
    start: int,
    factors: Sequence[float] = (),
) -> tuple[StreamStep, ...]:
    """The steps in a clip of a file that begins at a frame of it.

    A step that depends on the clip is replaced by its ``of_clip(filepath, source,
    start, factors)``. It takes its factor from an iterator of those of the clip's
    gains.
    """
    clip = filepath, source, start, iter(factors)
    return tuple(
        step.of_clip(*clip) if hasattr(step, "of_clip") else step for step in steps
    )


# The standard deviation of the sum of four numbers from 0 to 65535.
_STD = math.sqrt(4 * (65536**2 - 1) / 12)


class Dither(FrameByFrame, Step):
    """Adds faint noise to a whole clip, as Kaldi does to each frame.

    ::

        y[t] = x[t] + amplitude / 32768 * g[t]

    with noise ``g`` of mean 0 and standard deviation 1. So the amplitude is in steps of
    16-bit audio, the scale of Kaldi's samples, where 1 is the default. It keeps the
    logarithm of a band without any energy away from its floor.

    ``g`` depends on the seed, on the clip's path and input, on the number of the frame
    in the clip's file (at the output rate), and on the channel. So a frame has the same
    noise in all windows that have it, in all copies, features and parts of the file, in
    any block, and with any number of workers. Kaldi instead draws new noise for each
    frame of a spectrum and in each run.

    ``g`` is the sum of the four 16-bit parts of a word of SplitMix64, scaled; see
    :class:`Noise`. It is nearly normal (kurtosis 2.7 instead of 3) and ends at 3.46
    standard deviations.

    Attributes
    ----------
    amplitude : float
        Standard deviation of the noise, in steps of 16-bit audio, 0 to 32768.
    seed : int
        Another seed gives other noise.

    Raises
    ------
    RecipeError
        If the amplitude is out of its range, or the seed is not a whole number.

    References
    ----------
    D. Povey et al., The Kaldi Speech Recognition Toolkit, ASRU 2011.

    Examples
    --------
    >>> (noise,) = in_clip([Dither(amplitude=8)], "a.wav", 0, 0)
    >>> silence = np.zeros((1, 5), np.float32)
    >>> (noise.on_stream_from(0, silence, 16000) * 32768).round(2)[0]
    array([ -1.38,   2.6 ,  -9.5 , -11.78, -13.24], dtype=float32)
    """

    amplitude: float = parameter(1.0, Number(0.0, INT16_SCALE))
    seed: int = parameter(0, WholeNumber(None))

    def of_clip(
        self, filepath: str, source: int, start: int, factors: Iterator[float]
    ) -> ClipDither:
        """The dither of a clip that begins at a frame of its file."""
        key = clip_key(self.seed, filepath, source)
        return ClipDither(self.amplitude / INT16_SCALE / _STD, key, start)


@dataclass(frozen=True)
class ClipDither(FrameByFrame):
    """A dither whose clip is known: its factor, its key, and its start in its file."""

    factor: float
    key: int
    start: int

    def on_stream_from(
        self, first: int, frames: FloatArray, sample_rate_hz: int
    ) -> FloatArray:
        """Adds noise to frames (rows, frames) of the clip, from ``first`` on."""
        begin = self.start + first
        keys = hash64(self.key, np.arange(len(frames), dtype=np.int64)).tolist()
        out = np.empty(frames.shape, np.float32)
        for row, key in zip(out, keys, strict=True):
            row[:] = white_noise(key, begin, begin + frames.shape[-1])
        out *= np.float32(self.factor)
        out += frames
        return out


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
