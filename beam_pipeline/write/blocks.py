"""One shard's way from files to records, in blocks of windows, without Beam.

::

    ShardWork -> FrameBlock -> WindowBlock -> FeatureBlock -> serialised examples
              decode        cut, treat    transform        encode

A block is windows of one clip, small enough for the processor's cache, and is all that
is ever in memory. Where a block cannot be made, a :class:`Lost` travels in its place,
so that the shard's places still add up.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from beam_pipeline.audio.decoder import SAMPLE_BYTES
from beam_pipeline.errors import ClipError, UnreadableAudio
from beam_pipeline.examples.encoding import ExampleEncoder
from beam_pipeline.examples.event_targets import near
from beam_pipeline.examples.format import ExampleFormat
from beam_pipeline.examples.windows import WindowPlan, cut_windows
from beam_pipeline.inputs.event_files import Event
from beam_pipeline.inputs.sources import Input, locate
from beam_pipeline.plan.clip_audio import open_clip, step_clip
from beam_pipeline.plan.clips import Clip, Reject
from beam_pipeline.plan.segments import Integers, Segment, ShardWork, locate_examples
from beam_pipeline.plan.shards import Shard
from beam_pipeline.recipe.example_sections import Audio, Windows
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files

# Sixteen one-second windows at 16 kHz: what the transforms run fastest on.
BLOCK_BYTES = 1 << 20

# The first bytes of so many clips are on their way from an object store while one is
# decoded: short clips would else wait for an answer each.
CLIPS_AHEAD = 16

# From glibc's malloc.h; the second may be 32 MiB at most.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Slot:
    """Which examples a block holds, and which positions of which shard they get."""

    example_format: ExampleFormat
    shard: Shard
    position: int
    clip: Clip
    first: int
    examples: int


@dataclass(frozen=True, slots=True)
class FrameBlock:
    """A stretch of a clip that covers some windows; ``frames`` begin at ``offset``.

    ``starts`` and ``copies`` tell each example's window and which copy it is of it.
    """

    slot: Slot
    starts: Integers
    copies: Integers
    offset: int
    frames: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class WindowBlock:
    """Windows, shape ``(n, frames)`` or ``(n, channels, frames)``.

    ``n`` is less than the place has where windows were left out.
    """

    slot: Slot
    starts: Integers
    copies: Integers
    windows: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class FeatureBlock:
    """Every feature of some windows, each of shape ``(n, ...)``, and the windows."""

    slot: Slot
    starts: Integers
    copies: Integers
    values: Mapping[str, npt.NDArray[Any]]
    windows: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Lost:
    """Windows that the plan counted and that cannot be made, and why."""

    slot: Slot
    reject: Reject


def decode_blocks(
    work: ShardWork, inputs: Sequence[Input], recipe: Recipe
) -> Iterator[FrameBlock | Lost]:
    """Decodes what a shard needs, in the order of its places."""
    ahead: deque[tuple[Segment, Integers, Integers, str | BinaryIO]] = deque()
    for segment in work.task.segments:
        starts, copies = locate_examples(segment, recipe)
        source = _begin_read(segment, starts, inputs, recipe.windows)
        ahead.append((segment, starts, copies, source))
        if len(ahead) > CLIPS_AHEAD:
            yield from _decode_segment(
                work, *ahead.popleft(), recipe.audio, recipe.windows
            )
    while ahead:
        yield from _decode_segment(work, *ahead.popleft(), recipe.audio, recipe.windows)


def _begin_read(
    segment: Segment, starts: Integers, inputs: Sequence[Input], windows: Windows
) -> str | BinaryIO:
    """Opens a segment's file, telling a store which part of it will be read."""
    clip = segment.clip
    length = WindowPlan.of(windows, clip.sample_rate_hz).length
    begin = clip.start + int(starts[0])
    native = clip.native_frames * clip.sample_rate_hz / clip.native_rate_hz
    share = min(1.0, (clip.start + int(starts[-1]) + length) / native)
    samples = share * clip.native_frames * clip.channels
    sample_bytes = SAMPLE_BYTES.get(clip.subtype, 2)
    # What begins in the middle is sought, after a look at the header.
    expected = int(samples * sample_bytes) + 4096 if begin == 0 else 0
    path = locate(inputs, clip.source, clip.filepath)
    return files.begin_read(path, expected, share)


def _decode_segment(
    work: ShardWork,
    segment: Segment,
    starts: Integers,
    copies: Integers,
    source: str | BinaryIO,
    audio: Audio,
    windows: Windows,
) -> Iterator[FrameBlock | Lost]:
    clip = segment.clip
    plan = WindowPlan.of(windows, clip.sample_rate_hz)
    channels = clip.channels if audio.channels == "keep" else 1
    budget = max(plan.length, BLOCK_BYTES // (4 * channels))
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
        with files.closing(source), open_clip(source, clip, audio) as decoder:
            reader = step_clip(decoder, clip, audio)
            changed = files.modified_ns(source) != clip.modified_ns
            if changed and clip.modified_ns:
                raise UnreadableAudio(clip.filepath, "was changed since it was probed")
            while done < len(starts):
                # Neither the windows nor the stretch that they lie in may be large.
                offset = int(starts[done])
                until = min(
                    done + budget // plan.length,
                    int(
                        np.searchsorted(starts, offset + budget - plan.length, "right")
                    ),
                )
                block = starts[done:until]
                stop = min(int(block[-1]) + plan.length, clip.frames)
                frames = reader.read(offset, stop)
                yield FrameBlock(slot(until), block, copies[done:until], offset, frames)
                done = until
    except ClipError as error:
        yield lose(slot(len(starts)), "decode", error)


def keep_freed_memory() -> None:
    """Tells glibc to keep what blocks free, instead of giving it back to the system.

    A block's arrays are of a size that glibc returns at once, and the next block then
    faults every page in again, which can cost more than the transforms. Elsewhere than
    with glibc nothing happens.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        ctypes.CDLL("libc.so.6").mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)


def lose(slot: Slot, stage: str, error: ClipError) -> Lost:
    """Marks windows as lost, with the reason as a reject of their clip."""
    clip, first, n = slot.clip, slot.first, slot.examples
    reason = (
        f"{error.reason}; windows {first} to {first + n - 1} of {clip.examples} are not "
        f"in {slot.shard.name}"
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
    )
    return Lost(slot, reject)


def cut_block(block: FrameBlock) -> WindowBlock:
    """Cuts a block's windows out of its frames."""
    win_len = block.slot.example_format.win_len
    windows = cut_windows(block.frames, block.offset, block.starts, win_len)
    return WindowBlock(block.slot, block.starts, block.copies, windows)


def select_and_augment(block: WindowBlock) -> WindowBlock | Lost:
    """Leaves windows out and augments copies, as the recipe says."""
    treatment, clip = block.slot.example_format.treatment, block.slot.clip
    starts, copies, windows = block.starts, block.copies, block.windows
    numbers = np.arange(block.slot.first, block.slot.first + len(starts))
    rate = clip.sample_rate_hz
    try:
        rule = block.slot.example_format.features.events
        if treatment.selections or (rule is not None and rule.drops):
            kept = treatment.chosen(windows, starts, rate, clip.filepath)
            if rule is not None and rule.drops:
                kept &= rule.kept(*timed(block))
            if not kept.all():
                starts, copies, numbers = starts[kept], copies[kept], numbers[kept]
                windows = windows[kept]
        made = np.flatnonzero(copies)
        if made.size:
            windows = windows.copy()
            windows[made] = treatment.augmented(
                windows[made],
                numbers[made],
                starts[made],
                rate,
                clip.filepath,
                clip.source,
            )
            windows.flags.writeable = False
    except ClipError as error:
        return lose(block.slot, "treat", error)
    return WindowBlock(block.slot, starts, copies, windows)


def timed(
    block: WindowBlock | FeatureBlock,
) -> tuple[Sequence[Event], npt.NDArray[np.float64], float]:
    """A clip's events; where windows start in its file, and how long they are, in s."""
    clip, rate = block.slot.clip, block.slot.clip.sample_rate_hz
    starts_s = (clip.start + block.starts) / rate
    length_s = block.slot.example_format.win_len / rate
    return near(clip.events, starts_s, length_s), starts_s, length_s


def transform_block(block: WindowBlock) -> FeatureBlock | Lost:
    """Applies every transform to a block's windows."""
    clip, features = block.slot.clip, block.slot.example_format.features
    values: dict[str, npt.NDArray[Any]] = {}
    try:
        if len(block.windows):
            values = features.apply(
                block.windows, clip.sample_rate_hz, clip.filepath, block.starts
            )
    except ClipError as error:
        return lose(block.slot, "transform", error)
    return FeatureBlock(block.slot, block.starts, block.copies, values, block.windows)


def encode_block(
    block: FeatureBlock, encoder: ExampleEncoder, targets: Mapping[str, int]
) -> list[bytes]:
    """Serialises a block's examples."""
    clip = block.slot.clip
    columns = {
        **block.values,
        "filepath": clip.filepath,
        "index": clip.row,
        "fs": clip.sample_rate_hz,
        "win_start_idx": block.starts,
        "copy": block.copies,
    }
    features = block.slot.example_format.features
    columns.update(features.of_clip(clip.label, clip.columns, targets))
    if features.events is not None:
        columns.update(features.events.columns(*timed(block)))
    return encoder.encode(len(block.starts), columns)
