"""Makes clips of listed rows, from the headers of their files."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import BinaryIO

from beam_pipeline.audio.clip_reader import output_frames
from beam_pipeline.audio.decoder import AudioInfo, may_break
from beam_pipeline.audio.probe import check_channel, probe_audio, telling_length
from beam_pipeline.audio.retrying import retry
from beam_pipeline.errors import (
    ClipError,
    InputError,
    ShortClip,
    UnusableEntry,
    read_error,
)
from beam_pipeline.examples.windows import (
    WindowPlan,
    WindowPlans,
    count_windows,
    cover_passages,
    place_windows,
    too_short_or_long,
)
from beam_pipeline.inputs.event_files import Event, EventTable, clip_events
from beam_pipeline.inputs.recorded_clips import changed_file
from beam_pipeline.inputs.rows import Header, SourceRow
from beam_pipeline.inputs.sources import Input, locate
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.marks import Marks
from beam_pipeline.plan.clip_audio import (
    check_clip,
    find_loader,
    find_passages,
    fingerprint_clip,
    measure_clip,
    measure_features,
    measuring_steps,
)
from beam_pipeline.plan.clips import (
    NO_POISON_CLIPS,
    PROBE,
    Clip,
    PoisonClips,
    Reject,
    with_split,
)
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.recipe.sections import Audio
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import LONGEST_RECORD
from beam_pipeline.transforms.base import seconds_to_frames

# How far a row or an event may reach beyond the end of its file.
SECONDS_ROUNDED = 0.005


class Prober:
    """Makes clips of rows, under a recipe.

    The work that all rows share is done once. If the table describes the files, a row
    needs only arithmetic.
    """

    def __init__(
        self,
        inputs: Sequence[Input],
        recipe: Recipe,
        poison_clips: PoisonClips = NO_POISON_CLIPS,
    ):
        self._inputs = inputs
        self._poison_clips = poison_clips
        self._recipe = recipe
        self._events = EventTable.of(recipe)
        self._split = DEFAULT_SPLIT if recipe.hashed_shares() is None else ""
        self._plans = WindowPlans(recipe)
        self._measures = measuring_steps(recipe)

    def probe(self, row: SourceRow) -> Clip | Reject:
        """Returns the clip of a row, or a reject with the reason.

        If the machine fails, it reads the file again; see :mod:`.retrying`.
        """
        try:
            if row.problem is not None:
                raise UnusableEntry(row.filepath, row.problem)
            if (poison_clip := self._poison_clips.probed(row)) is not None:
                raise poison_clip.to_error()
            return retry(lambda: self.clip(row), row.filepath)
        except ClipError as error:
            stage = "sources" if row.problem is not None else "probe"
            name, reason = type(error).__name__, error.reason
            if row.line:
                entry = self._inputs[row.source]
                table = "the table" if entry.in_memory else entry.location
                reason += f" (row {row.line} of {table})"
            return Reject(
                row.row,
                row.filepath,
                stage,
                name,
                reason,
                seconds=_seconds_of(row, error.seconds),
            )
        finally:
            Marks.unmark()

    def clip(self, row: SourceRow, info: AudioInfo | None = None) -> Clip:
        """Returns the clip of a row without a problem.

        Parameters
        ----------
        info : AudioInfo, optional
            What an earlier probe found in the row's file, which is not opened then.

        Raises
        ------
        ClipError
            If the row cannot become a clip.
        """
        modified_ns = 0
        if info is None and row.known is not None:
            info = AudioInfo(*row.known, format="", subtype="")
            if files.is_beams(row.filepath):
                with files.closing(self._begun(row)):
                    pass  # raises if the file does not exist
        if info is None:
            info, modified_ns = self._probed(row)
        with telling_length(info):
            return self._clip_of(row, info, modified_ns)

    def _clip_of(self, row: SourceRow, info: AudioInfo, modified_ns: int) -> Clip:
        recipe = self._recipe
        channel = recipe.channels if row.channel is None else row.channel
        check_channel(info, channel, name=row.filepath)
        rate = recipe.sample_rate or info.sample_rate_hz
        total = output_frames(info.frames, info.sample_rate_hz, rate)
        start, stop = _part_of(row, total, rate)
        frames = stop - start
        plan = self._plans.of(rate, frames)
        windows = count_windows(frames, plan)
        if windows and recipe.windows_are_clips:
            _check_length(row.filepath, frames, info.channels, recipe)
        if windows == 0 and too_short_or_long(frames, plan) is None:
            raise ShortClip(
                row.filepath,
                f"is shorter than one window: it has {frames} frames, but a window has "
                f"{plan.length}; use a shorter window, or set `tail` to pad",
            )
        events = self._events_of(row, info) if windows else ()
        placed = None
        if windows and recipe.windows_are_at_events:
            placed = place_windows(
                events, recipe.windows_at, plan.length, (start, stop), total, rate
            )
            windows = len(placed.starts)
        clip = Clip(
            row=row.row,
            source=row.source,
            filepath=row.filepath,
            label=row.label,
            split=row.split or self._split,
            native_frames=info.frames,
            native_rate_hz=info.sample_rate_hz,
            channels=info.channels,
            format=info.format,
            subtype=info.subtype,
            sample_rate_hz=rate,
            frames=frames,
            examples=windows,
            modified_ns=modified_ns,
            group=row.group,
            start=start,
            channel=row.channel,
            columns=row.columns,
            events=events,
            file=row.file,
            placed=placed,
        )
        if recipe.hash_files:
            path = locate(self._inputs, row.source, row.filepath)
            clip = clip._replace(sha256=hash_file(path, row.filepath))
        if windows:  # a clip that is left out needs nothing else
            part = _part_of(row, info.frames, info.sample_rate_hz)
            clip = self._decoded(clip, plan, part, whole=may_break(info))
        # So far, it has as many examples as windows; without a split, it has no copies.
        return with_split(clip._replace(split=""), clip.split, recipe.copies)

    def _decoded(
        self, clip: Clip, plan: WindowPlan, part: tuple[int, int], *, whole: bool
    ) -> Clip:
        """Returns a clip with all that only its samples say.

        ``part`` is its part of its file at the native rate, and ``whole`` says whether
        it may break in the middle. A clip in which a placement finds nothing has no
        windows.
        """
        recipe, placement = self._recipe, self._recipe.placement
        whole = whole and recipe.whole_clips
        reads = recipe.stream or placement or self._measures or recipe.fingerprint
        if whole or reads:
            Marks.mark(clip, PROBE)
        if whole:
            check_clip(clip, *part, self._inputs, recipe)
        if recipe.stream:
            clip = measure_clip(clip, self._inputs, recipe)
        if placement:
            passages = find_passages(clip, placement, self._inputs, recipe)
            placed = cover_passages(passages, clip.frames, plan)
            clip = clip._replace(placed=placed, examples=len(placed.starts))
        if clip.examples and self._measures:
            clip = measure_features(clip, self._measures, self._inputs, self._recipe)
        if clip.examples and recipe.fingerprint:
            clip = fingerprint_clip(clip, *part, self._inputs, recipe)
        return clip

    def _events_of(self, row: SourceRow, info: AudioInfo) -> tuple[Event, ...]:
        """Returns the events of a row's file; raises UnusableEntry if one is later."""
        events = clip_events(
            row.filepath,
            self._inputs[row.source].root,
            self._recipe,
            self._recipe.classes,
            self._events,
        )
        seconds = info.frames / info.sample_rate_hz
        for event in events:
            if event.start_s > seconds + SECONDS_ROUNDED:
                raise UnusableEntry(
                    row.filepath,
                    f"has an event ({event.label}) at {event.start_s:g} s, but is only "
                    f"{seconds:g} s long",
                )
        return events

    def check_unchanged(self, row: SourceRow) -> None:
        """Raises InputError if a recorded file has another header than it had then.

        A file that cannot be read any more is not needed.
        """
        info = None if row.known is None else AudioInfo(*row.known, "", "")
        try:
            if info is None and self._poison_clips.probed(row) is None:
                info = self._probed(row)[0]
        except ClipError:
            return
        finally:
            Marks.unmark()
        if info is None or row.recorded is None:
            return
        now = Header(info.frames, info.sample_rate_hz, info.channels)
        if now != row.recorded:
            raise changed_file(row.filepath, row.recorded, now)

    def _begun(self, row: SourceRow) -> str | BinaryIO:
        path = locate(self._inputs, row.source, row.filepath)
        try:
            return files.begin_read(path)
        except (OSError, InputError) as error:  # InputError: unknown scheme
            raise read_error(row.filepath, "cannot be opened", error) from error

    def _probed(self, row: SourceRow) -> tuple[AudioInfo, int]:
        """Returns what a row's file holds, and when it was last changed."""
        Marks.mark(row, PROBE)
        recipe = self._recipe
        loader = find_loader(recipe, row.filepath)
        with files.closing(self._begun(row)) as source:
            if loader is not None:
                info = loader.probe(source, row.filepath)
            else:
                info = probe_audio(
                    source,
                    name=row.filepath,
                    allow_truncated=recipe.allow_truncated,
                    allow_nonfinite=recipe.allow_nonfinite,
                    decoders=recipe.decoder,
                )
            return info, files.modified_ns(source)


def _seconds_of(row: SourceRow, of_file: float | None) -> float | None:
    """Returns the seconds of a row's part of its file; None if they are not known."""
    if of_file is None:
        return None
    left = max(0.0, of_file - row.offset_s)
    return left if row.duration_s is None else min(left, row.duration_s)


def _check_length(filepath: str, frames: int, channels: int, audio: Audio) -> None:
    """Raises UnusableEntry if a whole clip is larger than a message of protobuf."""
    length = 4 * frames * (channels if audio.channels == "keep" else 1)
    if length > LONGEST_RECORD:
        raise UnusableEntry(
            filepath,
            f"is too long for one example: its {frames} frames take {length} bytes, "
            f"but must take at most {LONGEST_RECORD}; record it in windows",
        )


def _part_of(row: SourceRow, frames: int, rate_hz: int) -> tuple[int, int]:
    """Returns (first frame, end) of a row's part of its file.

    ``frames`` is the length of the file at ``rate_hz``.
    """
    start = seconds_to_frames(row.offset_s, rate_hz)
    stop = frames
    if row.duration_s is not None:
        stop = start + seconds_to_frames(row.duration_s, rate_hz)
    # Seconds in tables are rounded, so the end may be a few frames too late.
    if start >= frames or stop > frames + rate_hz * SECONDS_ROUNDED:
        raise UnusableEntry(
            row.filepath,
            f"is {frames / rate_hz:g} s long, but its row in the table asks for the "
            f"part from {row.offset_s:g} to {stop / rate_hz:g} s",
        )
    return start, min(stop, frames)


_BLOCK_BYTES = 1 << 20


def hash_file(path: str, name: str) -> str:
    """Returns the SHA-256 of a file, as ``sha256sum`` prints it.

    Those of the last files are known, so parts of a file cost nothing.

    Parameters
    ----------
    name : str
        Name of the file in errors.

    Raises
    ------
    UnreadableAudio
        The file cannot be read.
    """
    try:
        return _sha256(path, files.changed_ns(path))
    except OSError as error:
        raise read_error(name, "cannot be hashed", error) from error


@lru_cache(maxsize=1024)  # rows of one file are mostly close to each other
def _sha256(path: str, _changed_ns: int) -> str:
    digest = hashlib.sha256()
    with files.open_read(path) as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            Marks.progress()
    return digest.hexdigest()
