"""One shard's way from files of audio to one of records, without Beam.

::

    ShardWork    -> FrameBlock    decode
                 -> WindowBlock   cut
                 -> WindowBlock   select and augment
                 -> FeatureBlock  transform
                 -> EncodedBlock  encode

    blocks in order     0   1   2   3   4   5
    ShardDraft          file of members, or of records if the shard is mixed
    mixed_order         4   0   5   2   1   3
    the mixed shard     |  4 0  |  5 2  |  1 3  |

A block is some windows of one clip, small enough for the processor's cache. Only one
block is in memory. A block whose windows cannot be made goes on without windows, with
its reject, so that the positions of the shard still add up.

A shard is one task: one worker makes all its blocks, in the order of its positions, and
observes them. Only with the last block is the file a shard. Examples of a mixed shard
change places when it is complete.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, BinaryIO, TypeVar

import numpy as np

from beam_pipeline import errors
from beam_pipeline.arrays import Array, FloatArray, Integers
from beam_pipeline.audio.decoder import SAMPLE_BYTES
from beam_pipeline.audio.retries import retried, retry
from beam_pipeline.audio.sketch import SKETCH_SECONDS, hash_windows, sketch_audio
from beam_pipeline.encodings import check_original
from beam_pipeline.examples.event_targets import TimedWindows
from beam_pipeline.examples.features import ExampleFormat
from beam_pipeline.examples.serialisation import ExampleEncoder, check_lengths
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.examples.window_steps import Origins, clip_bits, copy_numbers
from beam_pipeline.examples.windows import slice_windows
from beam_pipeline.inputs.sources import Input, locate
from beam_pipeline.permutation import Permutation
from beam_pipeline.planning import clips
from beam_pipeline.planning.clips import NO_POISON_CLIPS, Clip, PoisonClips, Reject
from beam_pipeline.planning.shards import (
    ClipSketch,
    Segment,
    Shard,
    ShardInfo,
    ShardWork,
    TallyKey,
    locate_examples,
    order_key,
    timed_windows,
)
from beam_pipeline.process import DECODE, ENCODE, SELECT, TRANSFORM, Marks
from beam_pipeline.recipe.recipe import GZIP, VALID_FRAMES, Recipe
from beam_pipeline.storage import files, tfrecord
from beam_pipeline.storage.tfrecord import Members
from beam_pipeline.write import window_rows
from beam_pipeline.write.statistics import DataStatistics, count_levels, describe_levels
from beam_pipeline.write.window_rows import WindowRows, join_rows

# Sixteen one-second windows at 16 kHz; transforms run fastest on this size.
BLOCK_BYTES = 1 << 20

# How many clips are requested from an object store while another is decoded. Without
# this, each short clip would wait for an answer.
CLIPS_AHEAD = 16


def _nothing() -> FloatArray:
    """Returns the frames, or the windows, of a block whose examples are lost."""
    return np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True)
class Slot:
    """Which examples a block holds, and which positions of a shard they get.

    A window has ``length`` frames. ``sketch`` is what an audit compares of the
    examples; None if they could not be decoded, or nothing is compared. ``file`` has
    the bytes of the clip's file, if examples hold it.
    """

    example_format: ExampleFormat
    shard: Shard
    position: int
    clip: Clip
    first: int
    examples: int
    length: int
    sketch: ClipSketch | None = None
    file: bytes = b""


@dataclass(frozen=True, slots=True)
class Block:
    """Some examples of a clip.

    Attributes
    ----------
    rows : WindowRows
        A row for each example of the slot, also for those that were left out or lost.
    reject : Reject or None
        Why the examples of the slot are lost. Then the block has no windows.
    """

    slot: Slot
    rows: WindowRows
    reject: Reject | None = field(default=None, kw_only=True)

    @property
    def starts(self) -> Integers:
        """The first frame of the window of each example that the block still has."""
        return self.rows.starts[self.rows.kept]

    @property
    def copies(self) -> Integers:
        """The number of the copy of each example that the block still has."""
        return self.rows.copies[self.rows.kept]


_Block = TypeVar("_Block", bound=Block)


@dataclass(frozen=True, slots=True)
class FrameBlock(Block):
    """The frames of a clip from the first window's start to the last window's end."""

    frames: FloatArray = field(default_factory=_nothing)


@dataclass(frozen=True, slots=True)
class WindowBlock(Block):
    """Windows, shape ``(n, frames)`` or ``(n, channels, frames)``."""

    windows: FloatArray = field(default_factory=_nothing)


@dataclass(frozen=True, slots=True)
class FeatureBlock(Block):
    """The windows, and every feature of them, each of shape ``(n, ...)``.

    ``clipped`` has the number of values that a feature's transform clipped.
    """

    windows: FloatArray = field(default_factory=_nothing)
    values: Mapping[str, Array] = field(default_factory=dict)
    clipped: Mapping[str, int] = field(default_factory=dict)

    @property
    def valid_frames(self) -> Integers:
        """The frames of each window before the padding, shape (n,)."""
        return self.rows.frames[self.rows.kept]


@dataclass(frozen=True, slots=True)
class EncodedBlock(Block):
    """Serialised examples, and the features that they hold; None if they are lost."""

    records: Sequence[bytes] = ()
    features: FeatureBlock | None = None

    @property
    def positions(self) -> range:
        """The positions of the shard that this block fills."""
        return range(self.slot.position, self.slot.position + self.slot.examples)


class _OpenSegment:
    """The file of a segment, and the windows of it that are wanted.

    The file is opened at once: while another clip is decoded, an object store already
    answers.
    """

    def __init__(self, segment: Segment, inputs: Sequence[Input], recipe: Recipe):
        self.segment, self.clip = segment, segment.clip
        self.length = clips.window_frames(segment.clip, recipe)
        self.starts, self.copies = locate_examples(segment, recipe)
        self._inputs, self._recipe = inputs, recipe
        self._source: str | BinaryIO | None = None
        with suppress(OSError):  # it comes again when it is the clip's turn
            self._source = self._open()

    def _open(self) -> str | BinaryIO:
        """Opens the file; an object store learns which part will be read."""
        clip, starts = self.clip, self.starts
        begin = clip.start + int(starts[0])
        native = clip.native_frames * clip.sample_rate_hz / clip.native_rate_hz
        share = min(1.0, (clip.start + int(starts[-1]) + self.length) / native)
        samples = share * clip.native_frames * clip.channels
        sample_bytes = SAMPLE_BYTES.get(clip.subtype, 2)
        # A segment in the middle of its file is found by seeking, after the header.
        expected = int(samples * sample_bytes) + 4096 if begin == 0 else 0
        path = locate(self._inputs, clip.source, clip.filepath)
        return files.begin_read(path, expected, share)

    def source(self) -> str | BinaryIO:
        """Returns the open file; opens it again if it was taken already."""
        source, self._source = self._source, None
        return self._open() if source is None else source

    def content(self) -> bytes:
        """Returns all bytes of the file."""
        with files.closing(self.source()) as source:
            return (
                files.read_bytes(source) if isinstance(source, str) else source.read()
            )

    def rows(self) -> WindowRows:
        """Returns the planned rows of all windows."""
        frames = np.minimum(self.length, self.clip.frames - self.starts)
        return WindowRows.of(self.starts, frames, self.copies)

    def stretches(self) -> Iterator[tuple[Integers, FloatArray]]:
        """Yields the starts of some windows, and the frames from the first start on.

        If the machine fails, it reads the file again.
        """
        clip, recipe = self.clip, self._recipe
        most = BLOCK_BYTES // (4 * (clip.channels if recipe.channels == "keep" else 1))

        def read() -> Iterator[tuple[Integers, FloatArray]]:
            source = self.source()
            Marks.mark(clip, DECODE)
            with (
                files.closing(source),
                clips.reader_of(source, clip, recipe) as decoder,
            ):
                changed_ns = files.modified_ns(source)
                if clip.modified_ns and changed_ns != clip.modified_ns:
                    reason = "changed after its header was read"
                    raise errors.UnreadableAudio(clip.filepath, reason)
                for stretch in clips.read_stretches(
                    decoder, clip, self.starts, most, recipe
                ):
                    yield stretch
                    Marks.mark(clip, DECODE)

        return retried(read, clip.filepath)

    def sketch(self, done: int, starts: Integers, frames: FloatArray) -> ClipSketch:
        """Returns what an audit compares of a stretch, before which ``done`` are done.

        Copies of windows do not count.
        """
        clip, sketch = self.clip, b""
        heard = starts[self.copies[done : done + len(starts)] == 0]
        places = (heard - starts[0]).tolist()
        windows = [frames[..., at : at + self.length] for at in places]
        if self.segment.first + done == 0:
            sketch = self._sketch_of_start(int(starts[0]), frames)
        key = f"{order_key(clip, self._recipe):020d}"
        return ClipSketch(key, clip.row, hash_windows(windows, heard), sketch.hex())

    def _sketch_of_start(self, first: int, frames: FloatArray) -> bytes:
        """Returns the sketch of the clip, whose frames from ``first`` on are decoded.

        If these are not the first seconds of the clip, as far as it has windows, it
        decodes them. The sketch is empty if these seconds, which may be in no window,
        are damaged.
        """
        clip, recipe = self.clip, self._recipe
        wanted = min(int(SKETCH_SECONDS * clip.sample_rate_hz), clip.frames)
        if frames.shape[-1] < wanted and clip.placed is None:
            last = Segment(clip, clip.examples - 1, 1, 0)
            (start,), _ = locate_examples(last, recipe)
            wanted = min(wanted, int(start) + self.length)

        def read() -> FloatArray:
            with (
                files.closing(self.source()) as source,
                clips.reader_of(source, clip, recipe) as decoder,
            ):
                return clips.step_clip(decoder, clip, recipe).read(0, wanted)

        if first or frames.shape[-1] < wanted:
            try:
                frames = retry(read, clip.filepath)
            except errors.UnreadableAudio:
                return b""
        return sketch_audio(frames[..., :wanted], clip.sample_rate_hz)


def decode_audio(
    work: ShardWork,
    inputs: Sequence[Input],
    recipe: Recipe,
    poison_clips: PoisonClips = NO_POISON_CLIPS,
    with_sketches: bool = True,
) -> Iterator[FrameBlock]:
    """Decodes the clips of a shard, in the order of its positions.

    Poison clips are lost; no decoder opens them. ``with_sketches`` is whether slots get
    what an audit compares, which only a data set needs.
    """
    ahead = deque[_OpenSegment]()
    for segment in work.segments:
        ahead.append(_OpenSegment(segment, inputs, recipe))
        if len(ahead) > CLIPS_AHEAD:
            yield from _decode(ahead.popleft(), work, poison_clips, with_sketches)
    while ahead:
        yield from _decode(ahead.popleft(), work, poison_clips, with_sketches)


def _decode(
    opened: _OpenSegment,
    work: ShardWork,
    poison_clips: PoisonClips,
    with_sketches: bool,
) -> Iterator[FrameBlock]:
    """Decodes the clip of a segment; the rest of it is one lost block if that fails."""
    segment, clip, rows = opened.segment, opened.clip, opened.rows()
    poison_clip = poison_clips.recorded(clip)
    done, file = 0, b""

    def slot(examples: int, sketch: ClipSketch | None = None) -> Slot:
        return Slot(
            work.example_format,
            work.shard,
            segment.position + done,
            clip,
            segment.first + done,
            examples,
            opened.length,
            sketch,
            file,
        )

    try:
        if poison_clip is not None:
            with files.closing(opened.source()):
                raise poison_clip.to_error()

        if work.example_format.features.originals:
            file = retry(opened.content, clip.filepath)
        for starts, frames in opened.stretches():
            sketch = opened.sketch(done, starts, frames) if with_sketches else None
            until = done + len(starts)
            yield FrameBlock(slot(len(starts), sketch), rows.part(done, until), frames)
            done = until
    except errors.ClipError as error:
        left = segment.examples - done
        rest = FrameBlock(slot(left), rows.part(done, segment.examples))
        stage = DECODE if poison_clip is None else poison_clip.stage
        yield _lost(FrameBlock, rest, stage, error)


def read_windows(
    clip: Clip, inputs: Sequence[Input], recipe: Recipe
) -> Iterator[tuple[Integers, FloatArray]]:
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
    opened = _OpenSegment(Segment(clip, 0, clip.examples, 0), inputs, recipe)
    for starts, frames in opened.stretches():
        yield starts, slice_windows(frames, starts, opened.length)


def _lost(
    kind: type[_Block], block: Block, stage: str, error: errors.ClipError
) -> _Block:
    """Returns a block whose examples are lost, with its reject."""
    slot, rows = block.slot, block.rows
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
        label=clip.label,
        shard=slot.shard.name,
        split=slot.shard.split,
        examples=n,
        sample_rate_hz=clip.sample_rate_hz,
        seconds=rows.covered_frames() / clip.sample_rate_hz,
    )
    return kind(slot, rows.rejected(), reject=reject)


def cut_windows(block: FrameBlock) -> WindowBlock:
    """Cuts a block's windows out of its frames."""
    slot, rows = block.slot, block.rows
    if block.reject is not None:
        return WindowBlock(slot, rows, reject=block.reject)
    windows = slice_windows(block.frames, rows.starts, slot.length)
    return WindowBlock(
        slot, rows._replace(levels=window_rows.window_levels(windows)), windows
    )


def select_and_augment(block: WindowBlock) -> WindowBlock:
    """Leaves out windows and augments copies, as the recipe says."""
    slot, rows, windows = block.slot, block.rows, block.windows
    if not len(windows):
        return block
    window_steps, clip = slot.example_format.window_steps, slot.clip
    Marks.mark(clip, SELECT)
    try:
        rule = slot.example_format.features.events
        if window_steps.selections:
            selected = window_steps.selected(windows, _origins(block))
            rows = rows.keep_only(selected, window_rows.BY_KEEP)
        if rule is not None and rule.drops:
            rows = rows.keep_only(rule.selected(timed(block)), window_rows.BY_NO_EVENT)
        if not rows.kept.all():
            windows = windows[rows.kept]
        made = WindowBlock(slot, rows, windows)
        augmented = np.flatnonzero(made.copies)
        if augmented.size:
            windows = windows.copy()
            origins = _origins(made).some(augmented)
            windows[augmented] = window_steps.augmented(windows[augmented], origins)
            windows.flags.writeable = False
            made = WindowBlock(slot, rows, windows)
    except errors.ClipError as error:
        return _lost(WindowBlock, block, SELECT, error)
    return made


def _origins(block: Block) -> Origins:
    """Returns which windows and copies of its clip a block still has."""
    slot, clip, copies = block.slot, block.slot.clip, block.copies
    window_steps = slot.example_format.window_steps
    numbers = slot.first + np.flatnonzero(block.rows.kept)
    windows = (numbers - copies) // (window_steps.copies + 1)
    return Origins(
        clip.filepath,
        clip.sample_rate_hz,
        block.starts,
        copies,
        copy_numbers(windows, copies),
        clip_bits(window_steps.seed, clip.filepath, clip.source),
        clip.measured,
    )


def timed(block: Block) -> TimedWindows:
    """Returns the windows of a block, with the events near them."""
    return timed_windows(block.slot.clip, block.starts, block.slot.length).near()


def apply_transforms(block: WindowBlock) -> FeatureBlock:
    """Applies every transform to a block's windows."""
    slot, rows = block.slot, block.rows
    if not len(block.windows):
        return FeatureBlock(slot, rows, block.windows, reject=block.reject)
    Marks.mark(slot.clip, TRANSFORM)
    try:
        features = slot.example_format.features
        values, clipped = features.apply(block.windows, _origins(block))
    except errors.ClipError as error:
        return _lost(FeatureBlock, block, TRANSFORM, error)
    return FeatureBlock(slot, rows, block.windows, values, clipped)


class BlockEncoder:
    """Serialises blocks; what all blocks of one format share is made once."""

    def __init__(self) -> None:
        self._format: ExampleFormat | None = None

    def encode(self, block: FeatureBlock) -> EncodedBlock:
        """Serialises a block's examples; lost if an encoding cannot hold them."""
        slot, rows, clip = block.slot, block.rows, block.slot.clip
        if block.reject is not None:
            return EncodedBlock(slot, rows, reject=block.reject)
        if not len(block.windows):
            return EncodedBlock(slot, rows, features=block)
        features, classes = slot.example_format.features, slot.example_format.classes
        if slot.example_format is not self._format:
            self._format = slot.example_format
            self._encoder = ExampleEncoder(features.specs.values())
            self._targets = {label: i for i, label in enumerate(classes)}
            self._originals = features.originals
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
        columns.update(features.of_clip(clip.label, clip.columns, self._targets))
        if features.events is not None:
            columns.update(features.events.columns(timed(block)))
        try:
            for name in self._originals:
                check_original(name, block.values[name][0], slot.file)
                columns[name] = [slot.file]
            records = self._encoder.encode(len(block.starts), columns)
            check_lengths(records)
        except errors.InputError as error:
            problem = errors.TransformError(clip.filepath, str(error))
            return _lost(EncodedBlock, block, ENCODE, problem)
        return EncodedBlock(slot, rows, records, block)


# Times in seconds are rounded: less than this part of a frame later is the same frame.
_ROUNDED = 1e-6


def encode_shard(
    work: ShardWork,
    inputs: Sequence[Input],
    recipe: Recipe,
    poison_clips: PoisonClips = NO_POISON_CLIPS,
    with_sketches: bool = True,
) -> Iterator[EncodedBlock]:
    """Makes the blocks of a shard by the steps of a job.

    See :func:`beam_pipeline.pipeline.graph.write_shards`.
    """
    encoder = BlockEncoder()
    for frames in decode_audio(work, inputs, recipe, poison_clips, with_sketches):
        windows = select_and_augment(cut_windows(frames))
        yield encoder.encode(apply_transforms(windows))
    Marks.unmark()


def mixed_order(shard: Shard) -> Integers:
    """Returns for each position of a mixed shard which planned one it takes."""
    assert shard.mix_seed is not None
    order = Permutation(
        shard.examples, shard.mix_seed, name=f"examples of {shard.name}"
    )
    return order.at(np.arange(shard.examples))


class ShardDraft:
    """The local file of a shard, until it is complete.

    Member ``m`` of a shard holds the positions ``m * per_member`` and following. Those
    without a record leave no gap. If the shard is mixed, its records go to a file of
    their own first, as they come.

    Parameters
    ----------
    shard : Shard
    example_format : ExampleFormat
        That of its examples, which are observed.
    path : str
    compression : str
        That of the recipe.
    """

    def __init__(
        self,
        shard: Shard,
        example_format: ExampleFormat,
        path: str,
        compression: str = GZIP,
    ):
        self.shard = shard
        self.path = path
        self._writer = tfrecord.MemberWriter.create(path, compression)
        self._planned = None
        if shard.mix_seed is not None:
            self._planned = _PlannedRecords(f"{path}.planned", shard.examples)
        self._position = self._examples = self._left_out = 0
        self._rows: list[WindowRows] = []
        self._sketches: dict[int, ClipSketch] = {}
        self._number = 0  # of the member that is not complete
        self._observed = Observations.of(example_format)

    @property
    def is_complete(self) -> bool:
        """Whether the last block of the shard has come."""
        return self._position == self.shard.examples

    def write(self, block: EncodedBlock) -> None:
        """Writes the records of the next positions.

        Raises
        ------
        IncompleteRun
            If other positions are next.
        """
        slot = block.slot
        if slot.shard != self.shard or slot.position != self._position:
            raise self._broken(
                f"gave position {slot.position} of shard {slot.shard.name} after the "
                f"first {self._position} positions of shard {self.shard.name}"
            )
        self._position = block.positions.stop
        if block.features is not None:
            self._observed.add(block.features)
        if block.reject is None:
            self._left_out += slot.examples - len(block.records)
        self._examples += len(block.records)
        self._rows.append(block.rows)
        if slot.sketch is not None:
            known = self._sketches.get(slot.clip.row)
            self._sketches[slot.clip.row] = slot.sketch.with_more(known)
        if self._planned is not None:
            self._planned.write(block)
        else:
            with files.writing(self.path):
                for position, record in zip(_kept(block), block.records, strict=True):
                    self._put(position, tfrecord.frame_parts(record))

    def check_complete(self) -> None:
        """Raises IncompleteRun if blocks are missing, when no more can come."""
        if not self.is_complete:
            raise self._broken(
                f"ended a bundle after {self._position} of {self.shard.examples} "
                f"positions of shard {self.shard.name}"
            )

    def _broken(self, what: str) -> errors.IncompleteRun:
        return errors.IncompleteRun(
            f"The runner {what}. All blocks of a shard must come in order and in one "
            "bundle, so the runner must fuse the steps from DecodeAudio to "
            "WriteToTFRecord. FnApiRunner, PrismRunner, FlinkRunner, SparkRunner and "
            "DataflowRunner do."
        )

    def _put(self, position: int, parts: Sequence[bytes]) -> None:
        """Writes a framed record, in parts, to the member of its position."""
        number = position // self.shard.per_member
        if number != self._number:
            self._writer.end_member()
            self._number = number
        self._writer.add(parts)

    def close(self, file: str) -> ShardInfo:
        """Ends the file of a complete shard.

        Parameters
        ----------
        file : str
            The name that the shard will have.
        """
        self.check_complete()
        rows, clips = join_rows(self._rows), ""
        if self._planned is not None:
            order = mixed_order(self.shard)
            with files.writing(self.path):
                for position, record in self._planned.read(order.tolist()):
                    self._put(position, [record])
            rows = WindowRows(*(column[order] for column in rows))
            clips = tfrecord.pack_columns([self._planned.clips()[order]])
        with files.writing(self.path):
            self._writer.close()
        return ShardInfo(
            self.shard,
            file,
            self._examples,
            self._writer.bytes_written,
            self._writer.sha256(),
            left_out=self._left_out,
            seen=self._observed.state(),
            members=Members.of(self._writer.members).pack(),
            windows=rows.pack(),
            clips=clips,
            sketches=tuple(self._sketches.values()),
        )

    def abandon(self) -> None:
        """Closes and deletes the file."""
        with suppress(OSError, ValueError):  # the disk is full; the file is closed
            self._writer.close()
        with suppress(FileNotFoundError):
            os.remove(self.path)
        if self._planned is not None:
            self._planned.abandon()


class _PlannedRecords:
    """A file with the framed records of a mixed shard, in the order of the plan."""

    def __init__(self, path: str, examples: int):
        self._path = path
        with files.writing(path):
            self._file = open(path, "wb")  # noqa: SIM115
        self._sizes = np.zeros(examples, np.int64)
        self._clips: list[Integers] = []

    def write(self, block: EncodedBlock) -> None:
        """Writes the records of a block."""
        self._clips.append(np.full(block.slot.examples, block.slot.clip.row))
        with files.writing(self._path):
            for position, record in zip(_kept(block), block.records, strict=True):
                self._sizes[position] = self._file.write(tfrecord.frame_record(record))

    def clips(self) -> Integers:
        """Returns the row of the clip of each position."""
        return np.concatenate(self._clips)

    def read(self, order: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """Yields the records in another order, and deletes the file.

        Each comes with its position in the mixed shard.
        """
        with files.writing(self._path):
            self._file.close()
        starts, sizes = np.cumsum(self._sizes) - self._sizes, self._sizes.tolist()
        with open(self._path, "rb") as file:
            for position, planned in enumerate(order):
                if sizes[planned]:
                    file.seek(starts[planned])
                    yield position, file.read(sizes[planned])
        os.remove(self._path)

    def abandon(self) -> None:
        """Closes and deletes the file."""
        with suppress(OSError):
            self._file.close()
        with suppress(FileNotFoundError):
            os.remove(self._path)


def _kept(block: EncodedBlock) -> list[int]:
    """Returns the positions of a block's records."""
    return (block.slot.position + np.flatnonzero(block.rows.kept)).tolist()


@dataclass
class Observations:
    """What the metadata say of examples: counts of left-out ones, statistics of others.

    Each shard has its own; their state is JSON values in the receipt of the shard. At
    the end of a run they merge in the order of shards, so the metadata do not depend on
    who wrote which shard, and when.

    Attributes
    ----------
    statistics : DataStatistics
    examples : Counter
        Examples by the class of the clip.
    classes : Counter
        Examples by the classes of their events; empty if the recipe has no events.
    frames : Counter
        Frames of the examples by the class of the clip; empty unless each example is a
        whole clip.
    levels : Counter
        See :func:`beam_pipeline.write.statistics.count_levels`.
    """

    statistics: DataStatistics
    examples: Counter[TallyKey] = field(default_factory=Counter)
    classes: Counter[TallyKey] = field(default_factory=Counter)
    frames: Counter[TallyKey] = field(default_factory=Counter)
    levels: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, example_format: ExampleFormat) -> Observations:
        """Returns empty observations of the features of a format."""
        features = example_format.features
        specs = [features.specs[name] for name in features.made]
        return cls(DataStatistics.of(specs))

    def add(self, block: FeatureBlock) -> None:
        """Adds the examples of a block."""
        clip = block.slot.clip
        key = TallyKey(clip.split, clip.label or "", clip.sample_rate_hz)
        self.examples[key] += len(block.starts)
        if block.slot.example_format.win_len is None:
            self.frames[key] += int(block.valid_frames.sum())
        if len(block.starts):
            self._add_values(block)
        rule = block.slot.example_format.features.events
        if rule is not None:
            for label, n in rule.counts(timed(block)).items():
                self.classes[key._replace(label=label)] += n

    def _add_values(self, block: FeatureBlock) -> None:
        example_format = block.slot.example_format
        win_len, valid = example_format.win_len, block.valid_frames
        features, rate = example_format.features, block.slot.clip.sample_rate_hz
        self.statistics.add_clipped(block.clipped)
        if (
            win_len is None
            or VALID_FRAMES not in features.specs
            or valid.min() >= win_len
        ):
            self._add_whole(block.values, block.windows)
            return
        for k, frames in enumerate(valid.tolist()):
            values = {
                name: without_padding(
                    some[k : k + 1], features.specs.get(name), frames, win_len, rate
                )
                for name, some in block.values.items()
            }
            self._add_whole(values, block.windows[k : k + 1, ..., :frames])

    def _add_whole(self, values: Mapping[str, Any], windows: FloatArray) -> None:
        self.statistics.add(values)
        self.levels.update(count_levels(windows))

    def merge(self, other: Observations) -> None:
        """Adds the observations of other examples."""
        self.statistics.merge(other.statistics)
        for name, _ in _COUNTERS:
            getattr(self, name).update(getattr(other, name))

    def state(self) -> dict[str, Any]:
        """Returns the observations as JSON values."""
        counters = {name: sorted(getattr(self, name).items()) for name, _ in _COUNTERS}
        return {"statistics": self.statistics.state(), **counters}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Observations:
        """Returns the observations that :meth:`state` described."""
        counters = {
            name: Counter({key_of(key): n for key, n in state[name]})
            for name, key_of in _COUNTERS
        }
        return cls(DataStatistics.from_state(state["statistics"]), **counters)

    def to_json(self) -> dict[str, Any]:
        """Returns the statistics of features and of windows for the metadata."""
        return {"windows": describe_levels(self.levels), **self.statistics.to_json()}


# The counters, and the types of their keys.
_COUNTERS: Sequence[tuple[str, Callable[[Any], Any]]] = (
    ("examples", TallyKey._make),
    ("classes", TallyKey._make),
    ("frames", TallyKey._make),
    ("levels", str),
)


def without_padding(
    value: Any, spec: FeatureSpec | None, frames: int, win_len: int, rate_hz: int
) -> Any:
    """Returns a feature of one window without padding.

    ::

        window     [ samples of the clip | zeros      ]   valid frames, then zeros
        signal     [ kept                | left out   ]
        log_mel    [ kept                  | left out ]   a spectrum frame with any
                                                          sample of the clip is kept

    Parameters
    ----------
    value : numpy.ndarray, shape (1, ...), or list
        An array whose axes have a time, or whose last axis has a value for each frame,
        ends where the padding begins. Any other value stays.
    spec : FeatureSpec or None
        None: the feature has no padding.
    frames : int
        The frames of the window before the padding.
    win_len : int
        The frames of a window.
    """
    if spec is None or frames >= win_len:
        return value
    if not isinstance(value, np.ndarray) or value.ndim < 2:
        return value
    for k, axis in enumerate(spec.axes):
        if axis.get("name") == "time" and "step" in axis:
            at = value.ndim - len(spec.axes) + k
            starts = (axis["start"] + axis["step"] * np.arange(axis["size"])) * rate_hz
            count = int(np.count_nonzero(starts < frames - _ROUNDED))
            return value[(slice(None),) * at + (slice(count),)]
    if not spec.axes and value.shape[-1] == win_len:
        return value[..., :frames]
    return value
