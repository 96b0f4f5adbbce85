"""One shard's way from files to records, in blocks of windows, without Beam.

::

    ShardWork -> FrameBlock -> WindowBlock -> FeatureBlock -> serialised examples
              decode        cut, treat    transform        encode

A block is some windows of one clip, small enough for the processor's cache. Only one
block is in memory. If a block cannot be made, a :class:`Lost` takes its place, so that
the positions of the shard still add up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from beam_pipeline.audio.decoder import SAMPLE_BYTES
from beam_pipeline.errors import ClipError, InputError, TransformError, UnreadableAudio
from beam_pipeline.examples.encoding import ExampleEncoder, check_lengths
from beam_pipeline.examples.event_targets import near
from beam_pipeline.examples.format import ExampleFormat
from beam_pipeline.examples.windows import WindowPlan, slice_windows, window_blocks
from beam_pipeline.inputs.event_files import Event
from beam_pipeline.inputs.sources import Input, locate
from beam_pipeline.marks import Marks
from beam_pipeline.plan.clip_audio import open_clip, step_clip
from beam_pipeline.plan.clips import Clip, Reject
from beam_pipeline.plan.segments import Integers, Segment, ShardWork, locate_examples
from beam_pipeline.plan.shards import Shard
from beam_pipeline.plan.suspects import DECODE, NO_SUSPECTS, Suspects
from beam_pipeline.recipe.example_sections import Audio
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.recipe.values import VALID_FRAMES
from beam_pipeline.recipe.window_section import Windows
from beam_pipeline.storage import files
from beam_pipeline.write.window_rows import (
    BY_KEEP,
    BY_NO_EVENT,
    REJECTED,
    WindowRows,
    window_levels,
)

# Sixteen one-second windows at 16 kHz; transforms run fastest on this size.
BLOCK_BYTES = 1 << 20

# The stages after decoding that rejects and marks name.
TREAT, TRANSFORM, ENCODE = "treat", "transform", "encode"

# How many clips are requested from an object store while another is decoded. Without
# this, each short clip would wait for an answer.
CLIPS_AHEAD = 16


@dataclass(frozen=True, slots=True)
class Slot:
    """Which examples a block holds, and which positions of a shard they get."""

    example_format: ExampleFormat
    shard: Shard
    position: int
    clip: Clip
    first: int
    examples: int


@dataclass(frozen=True, slots=True)
class Block:
    """Some examples of a clip.

    ``starts`` has the first frame of each example's window, and ``copies`` the number
    of its copy. There are fewer than ``slot.examples`` if windows were left out.
    """

    slot: Slot
    starts: Integers
    copies: Integers


@dataclass(frozen=True, slots=True)
class FrameBlock(Block):
    """A stretch of a clip that covers the windows; ``frames`` begin at ``offset``."""

    offset: int
    frames: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class WindowBlock(Block):
    """Windows, shape ``(n, frames)`` or ``(n, channels, frames)``.

    ``rows`` has a row for each example of the slot, also for those that were left out.
    """

    windows: npt.NDArray[np.float32]
    rows: WindowRows


@dataclass(frozen=True, slots=True)
class FeatureBlock(Block):
    """Every feature of the windows, each of shape ``(n, ...)``, and the windows.

    ``clipped`` has the number of values that a feature's transform clipped.
    """

    values: Mapping[str, npt.NDArray[Any]]
    clipped: Mapping[str, int]
    windows: npt.NDArray[np.float32]
    rows: WindowRows

    @property
    def valid_frames(self) -> Integers:
        """The frames of each window before the padding, shape (n,)."""
        return self.rows.frames[self.rows.kept]


@dataclass(frozen=True, slots=True)
class Lost:
    """The slot of planned examples that cannot be made, and the reason."""

    slot: Slot
    reject: Reject
    rows: WindowRows


def decode_audio(
    work: ShardWork,
    inputs: Sequence[Input],
    recipe: Recipe,
    suspects: Suspects = NO_SUSPECTS,
) -> Iterator[FrameBlock | Lost]:
    """Decodes the clips of a shard, in the order of its positions.

    Suspects are lost without being opened by a decoder.
    """
    ahead: deque[tuple[Segment, Integers, Integers, str | BinaryIO]] = deque()
    decode = partial(_decode_segment, work, recipe, suspects)
    for segment in work.task.segments:
        starts, copies = locate_examples(segment, recipe)
        source = _begin_read(segment, starts, inputs, recipe.windows)
        ahead.append((segment, starts, copies, source))
        if len(ahead) > CLIPS_AHEAD:
            yield from decode(*ahead.popleft())
    while ahead:
        yield from decode(*ahead.popleft())


def _begin_read(
    segment: Segment, starts: Integers, inputs: Sequence[Input], windows: Windows
) -> str | BinaryIO:
    """Opens a segment's file; an object store learns which part will be read."""
    clip = segment.clip
    length = WindowPlan.of(windows, clip.sample_rate_hz, clip.frames).length
    begin = clip.start + int(starts[0])
    native = clip.native_frames * clip.sample_rate_hz / clip.native_rate_hz
    share = min(1.0, (clip.start + int(starts[-1]) + length) / native)
    samples = share * clip.native_frames * clip.channels
    sample_bytes = SAMPLE_BYTES.get(clip.subtype, 2)
    # A segment in the middle of its file is found by seeking, after the header.
    expected = int(samples * sample_bytes) + 4096 if begin == 0 else 0
    path = locate(inputs, clip.source, clip.filepath)
    return files.begin_read(path, expected, share)


def _decode_segment(
    work: ShardWork,
    recipe: Recipe,
    suspects: Suspects,
    segment: Segment,
    starts: Integers,
    copies: Integers,
    source: str | BinaryIO,
) -> Iterator[FrameBlock | Lost]:
    clip, audio, windows = segment.clip, recipe.audio, recipe.windows
    suspect = suspects.recorded(clip)
    done = 0

    def slot(until: int) -> Slot:
        return Slot(
            work.example_format,
            work.task.shard,
            segment.position + done,
            clip,
            segment.first + done,
            until - done,
        )

    try:
        if suspect is not None:
            with files.closing(source):
                raise suspect.to_error()
        for block, frames in _read_stretches(clip, starts, source, audio, windows):
            until = done + len(block)
            yield FrameBlock(
                slot(until), block, copies[done:until], int(block[0]), frames
            )
            done = until
    except ClipError as error:
        left = starts[done:]
        length = WindowPlan.of(windows, clip.sample_rate_hz, clip.frames).length
        frames_left = np.minimum(length, clip.frames - left)
        rows = WindowRows.lost(left, frames_left, copies[done:])
        stage = DECODE if suspect is None else suspect.stage
        yield lose(slot(len(starts)), stage, error, rows)


def _read_stretches(
    clip: Clip,
    starts: Integers,
    source: str | BinaryIO,
    audio: Audio,
    windows: Windows,
) -> Iterator[tuple[Integers, npt.NDArray[np.float32]]]:
    """Yields the starts of some windows, and the frames from the first start on."""
    length = WindowPlan.of(windows, clip.sample_rate_hz, clip.frames).length
    channels = clip.channels if audio.channels == "keep" else 1
    Marks.mark(clip, DECODE)
    with files.closing(source), open_clip(source, clip, audio) as decoder:
        reader = step_clip(decoder, clip, audio)
        changed = files.modified_ns(source) != clip.modified_ns
        if changed and clip.modified_ns:
            raise UnreadableAudio(clip.filepath, "changed after its header was read")
        for block in window_blocks(starts, length, BLOCK_BYTES // (4 * channels)):
            Marks.mark(clip, DECODE)
            stop = min(int(block[-1]) + length, clip.frames)
            yield block, reader.read(int(block[0]), stop)


def read_windows(
    clip: Clip, inputs: Sequence[Input], recipe: Recipe
) -> Iterator[tuple[Integers, npt.NDArray[np.float32]]]:
    """Decodes a clip and cuts its windows, in blocks, as for a shard of its own.

    Yields
    ------
    starts : numpy.ndarray, shape (n,), int64
        The first frame of each window.
    windows : numpy.ndarray, shape (n, frames) or (n, channels, frames), float32
        Read-only.

    Raises
    ------
    ClipError
        If decoding fails; the blocks before are good.
    """
    segment = Segment(clip, 0, clip.examples, 0)
    starts, _ = locate_examples(segment, recipe)
    windows, audio = recipe.windows, recipe.audio
    source = _begin_read(segment, starts, inputs, windows)
    length = WindowPlan.of(windows, clip.sample_rate_hz, clip.frames).length
    for block, frames in _read_stretches(clip, starts, source, audio, windows):
        yield block, slice_windows(frames, int(block[0]), block, length)


def lose(slot: Slot, stage: str, error: ClipError, rows: WindowRows) -> Lost:
    """Returns the examples of a slot as lost, with a reject of their clip."""
    clip, first, n = slot.clip, slot.first, slot.examples
    cause = error.reason.rstrip(".")
    reason = (
        f"{cause}; examples {first} to {first + n - 1} of {clip.examples} are "
        f"missing in {slot.shard.name}"
    )
    reject = Reject(
        clip.row,
        clip.filepath,
        stage,
        type(error).__name__,
        reason,
        clip.label,
        slot.shard.name,
        slot.shard.split,
        n,
        clip.sample_rate_hz,
        rows.covered_frames() / clip.sample_rate_hz,
    )
    return Lost(slot, reject, rows.without(np.zeros(n, bool), REJECTED))


def cut_windows(block: FrameBlock) -> WindowBlock:
    """Cuts a block's windows out of its frames."""
    clip = block.slot.clip
    win_len = block.slot.example_format.window_frames(clip.frames)
    windows = slice_windows(block.frames, block.offset, block.starts, win_len)
    frames = np.minimum(win_len, clip.frames - block.starts)
    rows = WindowRows.of(block.starts, frames, block.copies, window_levels(windows))
    return WindowBlock(block.slot, block.starts, block.copies, windows, rows)


def select_and_augment(block: WindowBlock) -> WindowBlock | Lost:
    """Leaves out windows and augments copies, as the recipe says."""
    treatment, clip = block.slot.example_format.treatment, block.slot.clip
    starts, copies, windows = block.starts, block.copies, block.windows
    rows = block.rows
    Marks.mark(clip, TREAT)
    rate = clip.sample_rate_hz
    try:
        rule = block.slot.example_format.features.events
        if treatment.selections:
            selected = treatment.selected(windows, starts, rate, clip.filepath)
            rows = rows.without(selected, BY_KEEP)
        if rule is not None and rule.drops:
            rows = rows.without(rule.selected(*timed(block)), BY_NO_EVENT)
        if not rows.kept.all():
            starts, copies = starts[rows.kept], copies[rows.kept]
            windows = windows[rows.kept]
        numbers = block.slot.first + np.flatnonzero(rows.kept)
        augmented = np.flatnonzero(copies)
        if augmented.size:
            windows = windows.copy()
            windows[augmented] = treatment.augmented(
                windows[augmented],
                numbers[augmented],
                starts[augmented],
                rate,
                clip.filepath,
                clip.source,
            )
            windows.flags.writeable = False
    except ClipError as error:
        return lose(block.slot, TREAT, error, block.rows)
    return WindowBlock(block.slot, starts, copies, windows, rows)


def timed(block: Block) -> tuple[Sequence[Event], npt.NDArray[np.float64], float]:
    """Returns the events near a block, its windows' starts and their length.

    Starts are in seconds from the start of the file, the length is in seconds.
    """
    clip, rate = block.slot.clip, block.slot.clip.sample_rate_hz
    starts_s = (clip.start + block.starts) / rate
    length_s = block.slot.example_format.window_frames(clip.frames) / rate
    return near(clip.events, starts_s, length_s), starts_s, length_s


def apply_transforms(block: WindowBlock) -> FeatureBlock | Lost:
    """Applies every transform to a block's windows."""
    clip, example_format = block.slot.clip, block.slot.example_format
    numbers = block.slot.first + np.flatnonzero(block.rows.kept)
    origins = example_format.treatment.origins(
        numbers, block.copies, clip.filepath, clip.source, clip.measured
    )
    values: dict[str, npt.NDArray[Any]] = {}
    clipped: dict[str, int] = {}
    Marks.mark(clip, TRANSFORM)
    try:
        if len(block.windows):
            values, clipped = example_format.features.apply(
                block.windows,
                clip.sample_rate_hz,
                clip.filepath,
                block.starts,
                origins,
            )
    except ClipError as error:
        return lose(block.slot, TRANSFORM, error, block.rows)
    return FeatureBlock(
        block.slot,
        block.starts,
        block.copies,
        values,
        clipped,
        block.windows,
        block.rows,
    )


def encode_examples(
    block: FeatureBlock, encoder: ExampleEncoder, targets: Mapping[str, int]
) -> list[bytes] | Lost:
    """Serialises a block's examples; lost if an encoding cannot hold their values."""
    clip = block.slot.clip
    Marks.mark(clip, ENCODE)
    columns = {
        **block.values,
        "filepath": clip.filepath,
        "index": clip.row,
        "fs": clip.sample_rate_hz,
        "win_start_idx": block.starts,
        "copy": block.copies,
        VALID_FRAMES: block.valid_frames,
    }
    features = block.slot.example_format.features
    columns.update(features.of_clip(clip.label, clip.columns, targets))
    if features.events is not None:
        columns.update(features.events.columns(*timed(block)))
    try:
        records = encoder.encode(len(block.starts), columns)
        check_lengths(records)
    except InputError as error:
        problem = TransformError(clip.filepath, str(error))
        return lose(block.slot, ENCODE, problem, block.rows)
    return records
