"""Steps on the samples of a whole clip, before windows are cut.

A step is causal: what it makes of a frame depends on that frame and on those before it,
no further back than its context. So a clip is computed in chunks that lie on a fixed
grid, each with the context before it, and a sample is the same wherever a shard begins
and however blocks are cut::

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
from beam_pipeline.transforms.base import check_choice, real
from beam_pipeline.transforms.catalogue import BUILT_IN
from beam_pipeline.transforms.loudness import ClipMeter

FloatArray = npt.NDArray[np.float32]

CHUNK_FRAMES = 1 << 16
MAX_LEVEL_DB = 200.0


class Reader(Protocol):
    """What reads ranges of a clip, forward; see ``audio.ClipReader``."""

    def read(self, start: int, stop: int) -> FloatArray: ...


class StreamStep(Protocol):
    """A step on a clip's samples.

    ``on_stream`` takes float32 of shape (rows, frames) and gives the same shape; it
    begins at rest. Its output after the first ``context`` frames is what it would be
    had it begun earlier.
    """

    def context(self, sample_rate_hz: int) -> int: ...

    def on_stream(self, frames: FloatArray, sample_rate_hz: int) -> FloatArray: ...


@dataclass(frozen=True, kw_only=True)
class ClipGain:
    """Scales a whole clip so that a measure of it is at a level.

    The clip is decoded once more for it, when it is probed. Silence stays silence.

    Attributes
    ----------
    kind : str
        ``peak``: largest absolute sample; ``rms``: root mean square of all samples;
        both in dB of full scale. ``lufs``: integrated loudness, ITU-R BS.1770-4.
    level_db : float
        dB, or LUFS.

    Raises
    ------
    RecipeError
        If the kind is another, or the level is beyond 200 dB.
    """

    KINDS: ClassVar[tuple[str, ...]] = ("peak", "rms", "lufs")

    kind: str = "peak"
    level_db: float = -1.0

    def __post_init__(self) -> None:
        check_choice("kind", self.kind, self.KINDS)
        object.__setattr__(self, "level_db", real("level_db", self.level_db))
        if abs(self.level_db) > MAX_LEVEL_DB:
            raise RecipeError(
                "level_db", f"must lie within {MAX_LEVEL_DB:g} dB", self.level_db
            )

    def context(self, sample_rate_hz: int) -> int:
        """None: it needs nothing but its factor, see :func:`with_factors`."""
        return 0

    def measure(
        self, reader: Reader, frames: int, sample_rate_hz: int, name: str
    ) -> float:
        """The factor for a clip of so many frames.

        Raises
        ------
        NonFiniteAudio
            If there is none, because samples are NaN or infinite.
        """
        meter = ClipMeter(self.kind, sample_rate_hz)
        for start in range(0, frames, CHUNK_FRAMES):
            chunk = np.atleast_2d(reader.read(start, min(start + CHUNK_FRAMES, frames)))
            finite = np.isfinite(chunk)
            if not finite.all():
                frame = start + int(np.argmin(finite.all(axis=0)))
                raise NonFiniteAudio(
                    name,
                    f"has a sample that is NaN or infinite at frame {frame}, so no "
                    f"{self.kind} level for clip_gain; mend the file, or leave out "
                    "clip_gain",
                )
            meter.add(chunk)
        level_db = meter.result()
        if level_db == -math.inf:
            return 1.0
        factor = 10 ** ((self.level_db - level_db) / 20)
        if not math.isfinite(factor):
            raise NonFiniteAudio(
                name,
                f"has a {self.kind} level of {level_db:g} dB, too far from "
                f"{self.level_db:g} dB for clip_gain",
            )
        return factor


STREAM_STEPS: dict[str, type[Any]] = {
    "clip_gain": ClipGain,
    **{name: step for name, step in BUILT_IN.items() if hasattr(step, "on_stream")},
}


@dataclass(frozen=True)
class Factor:
    """A clip gain with its measure taken."""

    value: float

    def context(self, sample_rate_hz: int) -> int:
        return 0

    def on_stream(self, frames: FloatArray, sample_rate_hz: int) -> FloatArray:
        return frames * np.float32(self.value)


class SteppedReader:
    """Reads ranges of a clip, forward, with steps done to it.

    Parameters
    ----------
    reader
        The clip as it is.
    steps
        None of them a :class:`ClipGain`; see :func:`with_factors`.
    frames : int
        Length of the clip.

    Raises
    ------
    RecipeError
        If a step does not work at this rate.
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
        # Long contexts would else be computed again and again.
        self._size = max(CHUNK_FRAMES, self._context)
        self._chunks: dict[int, FloatArray] = {}

    def read(self, start: int, stop: int) -> FloatArray:
        """Frames ``start`` to ``stop``; as ``audio.ClipReader.read``."""
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
        given = self._reader.read(start - before, min(start + self._size, self._frames))
        frames = np.atleast_2d(given)
        for step in self._steps:
            frames = step.on_stream(frames, self._rate)
        return frames[..., before:].reshape(*given.shape[:-1], -1)


def with_factors(
    steps: Sequence[Any], factors: Sequence[float]
) -> tuple[StreamStep, ...]:
    """The steps, with each clip gain's factor in its place."""
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

    A gain measures what the steps before it have made of the clip.
    """
    factors: list[float] = []
    for at, step in enumerate(steps):
        if isinstance(step, ClipGain):
            with open_reader() as reader:
                before = with_factors(steps[:at], factors)
                stepped = SteppedReader(reader, before, frames, sample_rate_hz)
                factors.append(step.measure(stepped, frames, sample_rate_hz, name))
    return tuple(factors)
