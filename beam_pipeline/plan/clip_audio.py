"""Readers of a clip's samples, and what a plan needs to know of all of them.

::

    file -> part of it -> rate, channels and steps of the recipe -> windows
                      measures of whole clips: gains, passages, bytes for features
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from beam_pipeline.audio.clip_reader import ClipReader
from beam_pipeline.audio.decoder import AudioInfo
from beam_pipeline.audio.fingerprint import CHUNK_FRAMES, fingerprint_audio
from beam_pipeline.audio.loaded import Loader
from beam_pipeline.errors import (
    ClipError,
    TransformError,
    Unreadable,
    is_of_machine,
)
from beam_pipeline.examples.augmentation import measuring_step
from beam_pipeline.examples.features import resolve_transforms
from beam_pipeline.examples.trial import run_on_windows
from beam_pipeline.examples.windows import slice_windows, window_blocks
from beam_pipeline.inputs.sources import Input, locate
from beam_pipeline.marks import Marks
from beam_pipeline.permutation import Integers
from beam_pipeline.plan.clips import Clip, window_frames
from beam_pipeline.plan.shards import Segment, locate_examples
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.recipe.sections import Audio
from beam_pipeline.storage import files
from beam_pipeline.transforms.base import Transform, apply_transform, chain_of, steps_of
from beam_pipeline.transforms.steps import (
    LOADER,
    PLACEMENT,
    STREAM,
    naming_step,
    parse_placement,
    parse_steps,
    parse_stream,
)
from beam_pipeline.transforms.stream import (
    Reader,
    SteppedReader,
    in_clip,
    measure_factors,
    with_factors,
)

# A part of a file is resampled from frames before it and after it: at most 256 frames
# of the lower rate before, and a few blocks of 16384 frames after.
_AROUND_FRAMES = 1 << 17

# Frames of the stretch that is measured at once.
_BLOCK_FRAMES = 1 << 18


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


def _steps_in(clip: Clip, audio: Audio) -> tuple[Any, ...]:
    steps = stream_steps(audio.stream, clip.sample_rate_hz)
    return in_clip(steps, clip.filepath, clip.source, clip.start)


def step_clip(decoder: ClipReader, clip: Clip, audio: Audio) -> Reader:
    """Returns a reader of a clip's frames after the recipe's stream steps."""
    part = PartReader(decoder, clip.start) if clip.start else decoder
    if not audio.stream:
        return part
    steps = with_factors(_steps_in(clip, audio), clip.factors)
    return SteppedReader(part, steps, clip.frames, clip.sample_rate_hz)


def measure_clip(clip: Clip, inputs: Sequence[Input], audio: Audio) -> Clip:
    """Returns the clip with the factors of the recipe's clip gains."""

    @contextlib.contextmanager
    def open_reader() -> Iterator[Reader]:
        with opened_clip(clip, inputs, audio) as decoder:
            yield PartReader(decoder, clip.start)

    factors = measure_factors(
        _steps_in(clip, audio),
        open_reader,
        clip.frames,
        clip.sample_rate_hz,
        clip.filepath,
    )
    return clip._replace(factors=factors)


def fingerprint_clip(
    clip: Clip, first: int, stop: int, inputs: Sequence[Input], audio: Audio
) -> Clip:
    """Returns the clip with its fingerprint.

    The fingerprint depends on which samples the recipe takes, not on what it does to
    them. So ``first`` and ``stop`` are frames at the native rate.
    """
    channel = audio.channels if clip.channel is None else clip.channel
    is_one = isinstance(channel, int)
    audio = audio.audio_with(channels=channel if is_one else "keep")
    chunks = map(np.atleast_2d, _native_chunks(clip, first, stop, inputs, audio))
    content, sketch = fingerprint_audio(
        chunks, clip.native_rate_hz, 1 if is_one else clip.channels
    )
    return clip._replace(content=content, sketch=sketch)


def _native_chunks(
    clip: Clip, first: int, stop: int, inputs: Sequence[Input], audio: Audio
) -> Iterator[npt.NDArray[np.float32]]:
    """Yields the frames ``first .. stop - 1`` of a clip's file, at its own rate."""
    with opened_clip(clip, inputs, audio.audio_with(sample_rate=None)) as decoder:
        for at in range(first, stop, CHUNK_FRAMES):
            yield decoder.read(at, min(at + CHUNK_FRAMES, stop))


def find_passages(
    clip: Clip, placement: str, inputs: Sequence[Input], audio: Audio
) -> npt.NDArray[np.int64]:
    """Returns the passages that a placement finds in a clip; decodes all of it.

    It gets the frames that windows are cut from, after the steps on the stream. They
    come in blocks of a fixed length, so that the plan is the same in every run.

    Returns
    -------
    numpy.ndarray, shape (n, 2), int64
        The first frame of each passage in the clip, and the frame after its last one.

    Raises
    ------
    UnreadableAudio
        If decoding fails.
    TransformError
        If the placement raises, or what it returns are not passages of the clip.
    """
    step = parse_placement(placement)
    name = f"{PLACEMENT.field}: {type(step).__name__}"
    with opened_clip(clip, inputs, audio) as decoder:
        reader = step_clip(decoder, clip, audio)

        def blocks() -> Iterator[npt.NDArray[np.float32]]:
            for at in range(0, clip.frames, CHUNK_FRAMES):
                block = reader.read(at, min(at + CHUNK_FRAMES, clip.frames))
                Marks.step(name)
                yield block
                Marks.step("")

        try:
            found = np.asarray(step.passages(blocks(), clip.sample_rate_hz))
        except ClipError:
            raise
        except (Exception, SystemExit) as error:
            Marks.leave_fork()
            kind = Unreadable if is_of_machine(error) else TransformError
            raise kind(
                clip.filepath, f"{name} fails: {type(error).__name__}: {error}"
            ) from error
        finally:
            Marks.step("")
    if not (
        found.ndim == 2
        and found.shape[1] == 2
        and found.dtype.kind in "iu"
        and (found >= 0).all()
        and (found <= clip.frames).all()
        and (found[:, 0] <= found[:, 1]).all()
    ):
        raise TransformError(
            clip.filepath,
            f"{name} must return passages, integers of shape (n, 2), from 0 to "
            f"{clip.frames}, each with its first frame and the frame after its last "
            f"one; got {found.dtype} of shape {found.shape}: {found[:2].tolist()}",
        )
    return found.astype(np.int64)


def check_clip(
    clip: Clip, first: int, stop: int, inputs: Sequence[Input], audio: Audio
) -> None:
    """Decodes all that a clip's windows may need, and drops it.

    ``first`` and ``stop`` are frames at the native rate.

    Raises
    ------
    UnreadableAudio
        If decoding fails.
    """
    first = max(0, first - _AROUND_FRAMES)
    stop = min(stop + _AROUND_FRAMES, clip.native_frames)
    for _ in _native_chunks(clip, first, stop, inputs, audio):
        pass


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


def measuring_steps(recipe: Recipe) -> dict[str, tuple[Transform, Any]]:
    """Returns the steps of a recipe's features that measure whole clips.

    Returns
    -------
    dict
        By feature name, the transform before such a step, and the step.

    Raises
    ------
    RecipeError
        If a transform cannot be made, or has two such steps.
    """
    transforms = resolve_transforms(recipe, recipe.dtype)
    found = {}
    for name, transform in transforms.items():
        at = measuring_step(transform, name)
        if at is not None:
            steps = steps_of(transform)
            found[name] = chain_of(steps[:at]), steps[at]
    return found


def measure_features(
    clip: Clip,
    steps: Mapping[str, tuple[Transform, Any]],
    inputs: Sequence[Input],
    recipe: Recipe,
) -> Clip:
    """Returns the clip with the measure of each feature; decodes it for each.

    The examples of the clip are still its windows, without copies. ``steps`` are those
    of :func:`measuring_steps`.

    Raises
    ------
    ClipError
        If decoding or a transform fails.
    """

    def features(name: str, before: Transform) -> Iterator[npt.NDArray[Any]]:
        run = partial(apply_transform, before, sample_rate_hz=clip.sample_rate_hz)
        for starts, windows in _windows(clip, inputs, recipe):
            yield run_on_windows(
                run, (windows,), f"feature {name}", starts, clip.filepath
            )

    measured = tuple(
        (name, step.measure(features(name, before)))
        for name, (before, step) in steps.items()
    )
    return clip._replace(measured=measured)


def _windows(
    clip: Clip, inputs: Sequence[Input], recipe: Recipe
) -> Iterator[tuple[Integers, npt.NDArray[np.float32]]]:
    """Yields some starts, and the windows from there, in blocks."""
    # A clip without a split has no copies yet: its examples are its windows.
    segment = Segment(clip._replace(split=""), 0, clip.examples, 0)
    starts, _ = locate_examples(segment, recipe)
    with opened_clip(clip, inputs, recipe) as decoder:
        length = window_frames(clip, recipe)
        stretches = read_stretches(decoder, clip, starts, _BLOCK_FRAMES, recipe)
        for block, frames in stretches:
            yield block, slice_windows(frames, int(block[0]), block, length)


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
