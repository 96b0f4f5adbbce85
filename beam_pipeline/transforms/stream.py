"""Steps on the samples of a whole clip, before windows are cut.

A step is causal: its output at a frame depends on that frame and on the frames before
it, as far back as its context. So a clip is computed in chunks on a fixed grid, each
with the context before it. A sample has the same value for any shards and blocks::

    clip      |-------- chunk 0 --------|-------- chunk 1 --------|-- chunk 2 --|
    chunk 1              |-- context ---|-------------------------|
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from beam_pipeline.arrays import FloatArray
from beam_pipeline.errors import NonFiniteAudio
from beam_pipeline.hashing import clip_key, hash64
from beam_pipeline.parameters import Choice, Number, WholeNumber, parameter
from beam_pipeline.process import Marks
from beam_pipeline.transforms.augment import white_noise
from beam_pipeline.transforms.base import (
    INT16_SCALE,
    LEVEL_DB,
    FrameByFrame,
    Step,
    slices,
)
from beam_pipeline.transforms.descriptors import clip_level

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
        The steps in this clip, see :func:`in_clip`, without any :class:`ClipGain`, see
        :func:`with_factors`.
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
    steps: Sequence[Any], filepath: str, source: int, start: int
) -> tuple[Any, ...]:
    """The steps in a clip of a file that begins at a frame of it.

    A step that depends on the clip is replaced by its ``of_clip(filepath, source,
    start)``.
    """
    return tuple(
        step.of_clip(filepath, source, start) if hasattr(step, "of_clip") else step
        for step in steps
    )


def with_factors(
    steps: Sequence[Any], factors: Sequence[float]
) -> tuple[StreamStep, ...]:
    """The steps, with each clip gain replaced by its factor."""
    left = iter(factors)
    return tuple(
        Factor(next(left)) if isinstance(step, ClipGain) else step for step in steps
    )


def measure_factors(
    steps: Sequence[Any],
    open_reader: Callable[[], Any],
    frames: int,
    sample_rate_hz: int,
    name: str,
) -> tuple[float, ...]:
    """The factor of each clip gain among the steps, in their order.

    A gain measures the clip after the steps before it.
    """
    factors: list[float] = []
    for at, step in enumerate(steps):
        if isinstance(step, ClipGain):
            with open_reader() as reader:
                before = with_factors(steps[:at], factors)
                stepped = SteppedReader(reader, before, frames, sample_rate_hz)
                factors.append(step.measure(stepped, frames, sample_rate_hz, name))
    return tuple(factors)


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
    >>> noise = Dither(amplitude=8).of_clip("a.wav", 0, 0)
    >>> silence = np.zeros((1, 5), np.float32)
    >>> (noise.on_stream_from(0, silence, 16000) * 32768).round(2)[0]
    array([ -1.38,   2.6 ,  -9.5 , -11.78, -13.24], dtype=float32)
    """

    amplitude: float = parameter(1.0, Number(0.0, INT16_SCALE))
    seed: int = parameter(0, WholeNumber(None))

    def of_clip(self, filepath: str, source: int, start: int) -> ClipDither:
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
