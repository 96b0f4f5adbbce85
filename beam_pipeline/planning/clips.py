"""Clips: their copies and their samples; rejects; and poison clips.

::

    window 0    window 1    window 2         of a clip, with copies = 2
    0  1  2     3  4  5     6  7  8          examples of the clip
    =  a  b     =  a  b     =  a  b          unchanged, first copy, second copy

    file -> part of it -> rate, channels and steps of the recipe -> windows

Clips and rejects are named tuples, which pickle ten times as fast as dataclasses, to
half the size.

Poison clips have ended or stalled the process working on them, twice::

    a process ends or stalls at a clip -> note in the work folder
    a second one does                  -> poison clip -> reject

If decoding was at fault, all clips of the file are rejected. If a step of the recipe
was at fault, only the clip is. All examples of a clip are lost together, also those in
shards that were finished before: which shards were finished depends on the number of
workers, and the bytes must not. The work folder has a file for each, so that the same
command rejects these clips at once, on any machine.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from beam_pipeline import errors
from beam_pipeline.arrays import FloatArray, Integers
from beam_pipeline.audio.clip_reader import ClipReader
from beam_pipeline.audio.decoder import AudioInfo, Loader
from beam_pipeline.errors import ClipCrash, ClipError, ClipTimeout, RecipeError
from beam_pipeline.examples.windows import (
    NO_EVENT,
    PlacedWindows,
    WindowPlan,
    too_short_or_long,
    window_blocks,
)
from beam_pipeline.inputs.sources import Input, locate
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.process import DECODE, PROBE, Mark, Marked
from beam_pipeline.recipe.recipe import Audio, Recipe, Windows
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import POISON_CLIPS, Claim
from beam_pipeline.text import bytes_sha256
from beam_pipeline.transforms.clip_steps import Reader, SteppedReader, in_clip
from beam_pipeline.transforms.steps import (
    LOADER,
    STREAM,
    naming_step,
    parse_steps,
    parse_stream,
)


class Clip(NamedTuple):
    """A clip that can be decoded.

    Attributes
    ----------
    row, source, filepath, label
        As in the listing.
    split : str
        The split of all its examples; empty until it is decided.
    native_frames, native_rate_hz, channels, format, subtype
        The properties of its file.
    sample_rate_hz, frames : int
        The output rate, and the clip's length at that rate.
    examples : int
        The number of its windows and their copies. Zero if it is left out, because of
        its length or because it has nothing that windows are placed at; see
        :func:`beam_pipeline.planning.clips.why_left_out`.
    modified_ns : int
        The time of the last change to its file. A run that continues keeps no shard
        of an older file.
    factors : tuple of float
        The factors of the recipe's clip gains.
    group : str
        Clips of one group are in one split.
    start : int
        Its first frame in its file, at the output rate.
    channel : int or None
        The only channel to take; None if the recipe decides.
    columns : tuple
        The values of the extra columns and of the targets.
    events : tuple of Event
        Labels with times, in seconds from the start of its file.
    file : int
        Identifies its file: the row of the file's first clip.
    sha256 : str
        The SHA-256 of its file, in hexadecimal, if the recipe asks for it.
    placed : PlacedWindows or None
        Its windows, if they are not on a grid. A segment has only its own.
    measured : tuple of (str, bytes)
        What the steps of features measured that need the whole clip.
    """

    row: int
    source: int
    filepath: str
    label: str | None
    split: str
    native_frames: int
    native_rate_hz: int
    channels: int
    format: str
    subtype: str
    sample_rate_hz: int
    frames: int
    examples: int
    modified_ns: int = 0
    factors: tuple[float, ...] = ()
    group: str = ""
    start: int = 0
    channel: int | None = None
    columns: tuple[Any, ...] = ()
    events: tuple[Any, ...] = ()
    file: int = 0
    placed: PlacedWindows | None = None
    sha256: str = ""
    measured: tuple[tuple[str, bytes], ...] = ()


def window_frames(clip: Clip, windows: Windows) -> int:
    """Returns how many frames a window of a clip has, padding included."""
    return WindowPlan.of(windows, clip.sample_rate_hz, clip.frames).length


class Reject(NamedTuple):
    """A clip, or part of one, that did not become examples.

    ``examples`` is how many of its planned examples ``shard`` lacks. ``seconds`` is the
    audio that is lost: of the clip, or of these examples, where overlapping
    windows count once. It is None if the header could not be read.
    """

    row: int
    filepath: str
    stage: str
    error: str
    reason: str
    label: str | None = None
    shard: str | None = None
    split: str | None = None
    examples: int = 0
    sample_rate_hz: int = 0
    seconds: float | None = None


# Copies are for training; evaluation data stay unchanged.
SPLITS_WITH_COPIES = (DEFAULT_SPLIT, "train")


def with_split(clip: Clip, split: str, copies: int) -> Clip:
    """Returns a clip in a split, with the copies that its windows have there."""
    windows = clip.examples // (1 + copies_in(copies, clip.split))
    return clip._replace(split=split, examples=windows * (1 + copies_in(copies, split)))


def check_split_of_copies(copies: int, splits: Iterable[str]) -> None:
    """Raises RecipeError if the recipe asks for copies and no split has them."""
    names = list(splits)
    if copies and names and not any(copies_in(copies, n) for n in names):
        raise RecipeError(
            "copies",
            f"need a split named train, but the splits are {', '.join(names)}",
            copies,
        )


def copies_in(copies: int, split: str) -> int:
    """Returns how many augmented copies each window of a split has."""
    return copies if split in SPLITS_WITH_COPIES else 0


def example_numbers(first: int, count: int, copies: int) -> tuple[Integers, Integers]:
    """Returns (windows, copies) of a clip's examples ``first .. first + count - 1``.

    >>> [part.tolist() for part in example_numbers(1, 4, 2)]
    [[0, 0, 1, 1], [1, 2, 0, 1]]
    """
    window, copy = np.divmod(np.arange(first, first + count), copies + 1)
    return window, copy


# A placement found no passage in it.
NO_SOUND = "no_sound"


def why_left_out(frames: int, plan: WindowPlan, windows: Windows) -> str:
    """Returns why a clip of ``frames`` frames without a window is left out.

    ``plan`` is that of the recipe's ``windows`` in the clip.
    """
    nothing = NO_SOUND if windows.placement else NO_EVENT
    return too_short_or_long(frames, plan) or nothing


# Readers of the samples of a clip


def header_of(clip: Clip) -> AudioInfo:
    """Returns the properties of a clip's file, as the probe found them."""
    return AudioInfo(
        clip.native_frames,
        clip.native_rate_hz,
        clip.channels,
        clip.format,
        clip.subtype,
    )


def reader_of(source: str | BinaryIO, clip: Clip, audio: Audio) -> ClipReader:
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

    def read(self, start: int, stop: int) -> FloatArray:
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


def step_clip(
    decoder: ClipReader, clip: Clip, audio: Audio, count: int | None = None
) -> Reader:
    """Returns a reader of a clip's frames after the recipe's stream steps.

    ``count`` is the number of the steps. Default: all.
    """
    part = PartReader(decoder, clip.start) if clip.start else decoder
    if not audio.stream:
        return part
    steps = in_clip(
        stream_steps(audio.stream, clip.sample_rate_hz)[:count],
        clip.filepath,
        clip.source,
        clip.start,
        clip.factors,
    )
    return SteppedReader(part, steps, clip.frames, clip.sample_rate_hz)


@contextlib.contextmanager
def opened_clip(
    clip: Clip, inputs: Sequence[Input], audio: Audio
) -> Iterator[ClipReader]:
    """Opens a clip whose samples are all read."""
    path = locate(inputs, clip.source, clip.filepath)
    with (
        files.closing(files.begin_read(path)) as source,
        reader_of(source, clip, audio) as decoder,
    ):
        yield decoder


def read_stretches(
    decoder: ClipReader, clip: Clip, starts: Integers, most_frames: int, recipe: Recipe
) -> Iterator[tuple[Integers, FloatArray]]:
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


# Poison clips

_ONE_THREAD = "one-thread"
_TWICE = ", twice"

# What is at fault: a stage, an input and a file; or "step", an input and a row.
Cause = tuple[str, int, str | int]


class PoisonClip(NamedTuple):
    """A clip at which processes have ended.

    Attributes
    ----------
    row, source, filepath
        As in the listing.
    stage : str
        Where it happened; its reject has the same stage.
    error : str
        The name of a kind of ClipError.
    reason : str
        What happened.
    limit_s : float
        The time limit that was passed; 0 if the process ended.
    changed_ns : int
        When its file was last changed; 0 if unknown. The clip is tried again after
        another change.
    exits : int
        How many processes have ended.
    """

    row: int
    source: int
    filepath: str
    stage: str
    error: str
    reason: str
    limit_s: float = 0.0
    changed_ns: int = 0
    exits: int = 2

    @property
    def is_poison(self) -> bool:
        """Whether it must not be worked on again."""
        return self.exits > 1

    def to_error(self) -> ClipError:
        """Returns the error that rejects the clip."""
        kind: type[ClipError] = getattr(errors, self.error)
        return kind(self.filepath, self.reason)


def cause_of(found: PoisonClip | Mark) -> Cause:
    """What is at fault if a process ends or stalls at a mark."""
    if found.stage in (PROBE, DECODE):
        return found.stage, found.source, found.filepath
    return "step", found.source, found.row


class PoisonClips:
    """The poison clips of a run, by what is at fault."""

    def __init__(self, clips: Iterable[PoisonClip] = ()) -> None:
        self._by_cause = {cause_of(clip): clip for clip in clips if clip.is_poison}

    def __len__(self) -> int:
        return len(self._by_cause)

    def __iter__(self) -> Iterator[PoisonClip]:
        return iter(self._by_cause.values())

    def probed(self, row: Marked) -> PoisonClip | None:
        """Returns the poison clip, found while headers were read, that a row is."""
        return self._by_cause.get((PROBE, row.source, row.filepath))

    def recorded(self, clip: Marked) -> PoisonClip | None:
        """Returns the poison clip, found while shards were written, that a clip is."""
        if not self._by_cause:
            return None
        return self._by_cause.get(
            (DECODE, clip.source, clip.filepath)
        ) or self._by_cause.get(("step", clip.source, clip.row))

    def among(self, clips: Iterable[Marked]) -> bool:
        """Whether :meth:`recorded` finds one of some clips."""
        return any(map(self.recorded, clips))


NO_POISON_CLIPS = PoisonClips()


@dataclass(frozen=True)
class Exits:
    """Notes in a work folder at which clips processes have ended."""

    inputs: Sequence[Input]
    work_folder: str
    claim: Claim
    limit_s: float

    def note(self, mark: Mark, exit_text: str | None) -> None:
        """Notes an exit; the second one at a clip makes it a poison clip.

        ``exit_text`` says how the process ended; None if the time limit had passed.
        """
        if exit_text is None:
            error, limit_s = ClipTimeout.__name__, self.limit_s
            reason = f"took longer than the time limit of {limit_s:g} s"
        else:
            error, limit_s = ClipCrash.__name__, 0.0
            reason = f"ended the process with {exit_text}"
        reason = f"{mark.describe()} {reason}"
        path = _path_of(mark, self.work_folder)
        exits = 1
        if files.exists(path):
            before = _read(path)
            exits += before.exits
            is_equal = reason == before.reason.removesuffix(_TWICE)
            reason += _TWICE if is_equal else f"; before that, {before.reason}"
        changed_ns = changed_ns_of(locate(self.inputs, mark.source, mark.filepath))
        at = mark.row, mark.source, mark.filepath, mark.stage
        clip = PoisonClip(*at, error, reason, limit_s, changed_ns, exits)
        self.claim.write(path, json.dumps(clip._asdict(), indent=2).encode())

    def want_one_thread(self) -> None:
        """Notes that a process ended while its threads worked on several clips."""
        path = files.join(self.work_folder, POISON_CLIPS, _ONE_THREAD)
        self.claim.write(path, b"")


def only_one_thread(work_folder: str) -> bool:
    """Whether threads of a process must work on one clip after the other."""
    return files.exists(files.join(work_folder, POISON_CLIPS, _ONE_THREAD))


def count_exits(work_folder: str) -> int:
    """Returns how many exits have been noted."""
    exits = sum(clip.exits for clip in _stored(work_folder))
    return exits + only_one_thread(work_folder)


def read_poison_clips(work_folder: str) -> PoisonClips:
    """Returns the poison clips of a run."""
    return PoisonClips(_stored(work_folder))


def changed_ns_of(path: str) -> int:
    """Returns when a file was last changed; 0 if it is gone or its time unknown."""
    try:
        return files.changed_ns(path)
    except FileNotFoundError:
        return 0


def drop_changed(work_folder: str, inputs: Sequence[Input], limit_s: float) -> None:
    """Deletes the poison clips of an earlier run that deserve another try.

    These are clips whose file has changed since, and those that passed a time limit
    which is higher now.
    """
    for clip in list(_stored(work_folder)):
        path = locate(inputs, clip.source, clip.filepath)
        more_time = 0 < clip.limit_s < limit_s
        if more_time or changed_ns_of(path) != clip.changed_ns:
            files.delete([_path_of(clip, work_folder)])


def _stored(work_folder: str) -> Iterator[PoisonClip]:
    folder = files.join(work_folder, POISON_CLIPS)
    if not files.is_folder(folder):
        return
    for name in files.list_files(folder):
        if name != _ONE_THREAD:
            yield _read(files.join(folder, name))


def _read(path: str) -> PoisonClip:
    return PoisonClip(**json.loads(files.read_bytes(path)))


def _path_of(clip: PoisonClip | Mark, work_folder: str) -> str:
    name = bytes_sha256(repr(cause_of(clip)).encode())
    return files.join(work_folder, POISON_CLIPS, f"{name}.json")
