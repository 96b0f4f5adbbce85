"""Readers of a clip's samples.

::

    file -> part of it -> rate, channels and steps of the recipe -> windows
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from beam_pipeline.audio.clip_reader import ClipReader
from beam_pipeline.audio.decoder import AudioInfo
from beam_pipeline.audio.loaded import Loader
from beam_pipeline.examples.windows import window_blocks
from beam_pipeline.inputs.sources import Input, locate
from beam_pipeline.permutation import Integers
from beam_pipeline.plan.clips import Clip, window_frames
from beam_pipeline.recipe.recipe import Audio, Recipe
from beam_pipeline.storage import files
from beam_pipeline.transforms.steps import (
    LOADER,
    STREAM,
    naming_step,
    parse_steps,
    parse_stream,
)
from beam_pipeline.transforms.stream import (
    Reader,
    SteppedReader,
    in_clip,
    with_factors,
)


def header_of(clip: Clip) -> AudioInfo:
    """Returns the properties of a clip's file, as the probe found them."""
    return AudioInfo(
        clip.native_frames,
        clip.native_rate_hz,
        clip.channels,
        clip.format,
        clip.subtype,
    )


def open_clip(source: str | BinaryIO, clip: Clip, audio: Audio) -> ClipReader:
    """Returns a reader of a clip's file at the output rate."""
    return ClipReader(
        source,
        header_of(clip),
        name=clip.filepath,
        sample_rate_hz=audio.sample_rate,
        channels=audio.channels if clip.channel is None else clip.channel,
        decoders=audio.decoder,
        loader=find_loader(audio, clip.filepath),
    )


def find_loader(audio: Audio, filepath: str) -> Loader | None:
    """Returns the loader that reads a file; None if a decoder does."""
    if not audio.loads(filepath):
        return None
    (load,) = parse_steps(audio.loader, LOADER)
    return Loader(load, audio.loader, audio.allow_nonfinite)


@dataclass(frozen=True, slots=True)
class PartReader:
    """Reads ranges of a part of a file."""

    reader: ClipReader
    start: int

    def read(self, start: int, stop: int) -> npt.NDArray[np.float32]:
        return self.reader.read(self.start + start, self.start + stop)


@functools.cache
def stream_steps(stream: str, sample_rate_hz: int) -> tuple[Any, ...]:
    """Returns the steps of an expression.

    Raises
    ------
    RecipeError
        If a step does not work at this sample rate. Names the step.
    """
    steps = parse_stream(stream)
    for step in steps:
        with naming_step(step, STREAM):
            step.context(sample_rate_hz)
    return steps


def steps_in(clip: Clip, audio: Audio) -> tuple[Any, ...]:
    """Returns the steps on the stream of a clip, which know where it is."""
    steps = stream_steps(audio.stream, clip.sample_rate_hz)
    return in_clip(steps, clip.filepath, clip.source, clip.start)


def step_clip(decoder: ClipReader, clip: Clip, audio: Audio) -> Reader:
    """Returns a reader of a clip's frames after the recipe's stream steps."""
    part = PartReader(decoder, clip.start) if clip.start else decoder
    if not audio.stream:
        return part
    steps = with_factors(steps_in(clip, audio), clip.factors)
    return SteppedReader(part, steps, clip.frames, clip.sample_rate_hz)


@contextlib.contextmanager
def opened_clip(
    clip: Clip, inputs: Sequence[Input], audio: Audio
) -> Iterator[ClipReader]:
    """Opens a clip whose samples are all read."""
    path = locate(inputs, clip.source, clip.filepath)
    with (
        files.closing(files.begin_read(path)) as source,
        open_clip(source, clip, audio) as decoder,
    ):
        yield decoder


def read_stretches(
    decoder: ClipReader, clip: Clip, starts: Integers, most_frames: int, recipe: Recipe
) -> Iterator[tuple[Integers, npt.NDArray[np.float32]]]:
    """Reads the frames of windows, from some starts on, in blocks.

    Yields
    ------
    starts : numpy.ndarray, shape (n,), int64
        Some of the starts, whose windows have at most ``most_frames`` together.
    frames : numpy.ndarray, shape (frames,) or (channels, frames), float32
        From the first start to the end of the last window, or of the clip.
    """
    reader, length = step_clip(decoder, clip, recipe), window_frames(clip, recipe)
    for block in window_blocks(starts, length, most_frames):
        stop = min(int(block[-1]) + length, clip.frames)
        yield block, reader.read(int(block[0]), stop)
