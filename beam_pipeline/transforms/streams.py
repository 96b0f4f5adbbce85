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
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import NonFiniteAudio, RecipeError
from beam_pipeline.marks import Marks
from beam_pipeline.transforms.base import check_choice, real
from beam_pipeline.transforms.catalogue import BUILT_IN
from beam_pipeline.transforms.dither import Dither
from beam_pipeline.transforms.loudness import ClipMeter

FloatArray = npt.NDArray[np.float32]

CHUNK_FRAMES = 1 << 16
MAX_LEVEL_DB = 200.0


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


@dataclass(frozen=True, kw_only=True)
class ClipGain:
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

    KINDS: ClassVar[tuple[str, ...]] = ("peak", "rms", "lufs")

    kind: str = "peak"
    level_db: float = -1.0

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, self.KINDS)
        object.__setattr__(self, "level_db", real("level_db", self.level_db))
        if abs(self.level_db) > MAX_LEVEL_DB:
            raise RecipeError(
                "level_db",
                f"must be between -{MAX_LEVEL_DB:g} and {MAX_LEVEL_DB:g}",
                self.level_db,
            )

    def context(self, sample_rate_hz: int) -> int:
        """The number of earlier frames: none. See :func:`with_factors`."""
        return 0

    def measure(
        self, reader: Reader, frames: int, sample_rate_hz: int, name: str
    ) -> float:
        """The factor for a clip of ``frames`` frames; ``name`` is for errors.

        Raises
        ------
        NonFiniteAudio
            If a sample is NaN or infinite, or the factor would be infinite.
        """
        meter = ClipMeter(self.kind, sample_rate_hz)
        for start in range(0, frames, CHUNK_FRAMES):
            chunk = np.atleast_2d(reader.read(start, min(start + CHUNK_FRAMES, frames)))
            finite = np.isfinite(chunk)
            if not finite.all():
                frame = start + int(np.argmin(finite.all(axis=0)))
                raise NonFiniteAudio(
                    name,
                    f"has a sample that is NaN or infinite at frame {frame}, so "
                    f"clip_gain cannot measure its {self.kind} level; repair the file, "
                    "or remove clip_gain",
                )
            meter.add(chunk)
        level_db = meter.result()
        if level_db == -math.inf:
            return 1.0
        factor = 10 ** ((self.level_db - level_db) / 20)
        if not math.isfinite(factor):
            raise NonFiniteAudio(
                name,
                f"has a {self.kind} level of {level_db:g} dB, which is too far from "
                f"{self.level_db:g} dB for clip_gain",
            )
        return factor


STREAM_STEPS: dict[str, type[Any]] = {
    "clip_gain": ClipGain,
    "dither": Dither,
    **{name: step for name, step in BUILT_IN.items() if hasattr(step, "on_stream")},
}


@dataclass(frozen=True)
class Factor:
    """A clip gain whose factor is known."""

    value: float

    def context(self, sample_rate_hz: int) -> int:
        return 0

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
