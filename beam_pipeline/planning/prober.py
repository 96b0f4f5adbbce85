"""Makes clips of listed rows, from the headers of their files.

What only the samples of a whole clip say is found here, too: gains, passages,
and bytes for features.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache, partial
from typing import Any, BinaryIO

import numpy as np

from beam_pipeline import errors
from beam_pipeline.arrays import FloatArray, Integers
from beam_pipeline.audio import clip_reader
from beam_pipeline.audio.decoder import AudioInfo, may_break
from beam_pipeline.audio.retries import retry
from beam_pipeline.examples.features import resolve_transforms
from beam_pipeline.examples.window_steps import measuring_step, run_on_windows
from beam_pipeline.examples.windows import (
    WindowPlan,
    WindowPlans,
    count_windows,
    cover_passages,
    place_windows,
    slice_windows,
    too_short_or_long,
)
from beam_pipeline.inputs.columns import Header, SourceRow
from beam_pipeline.inputs.event_files import Event, EventTable, clip_events
from beam_pipeline.inputs.listing import changed_file
from beam_pipeline.inputs.sources import Input, locate
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.planning import clips
from beam_pipeline.planning.clips import NO_POISON_CLIPS, Clip, PoisonClips, Reject
from beam_pipeline.planning.shards import Segment, locate_examples
from beam_pipeline.process import PROBE, Marks
from beam_pipeline.recipe.recipe import Audio, Recipe
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import LONGEST_RECORD
from beam_pipeline.transforms import base
from beam_pipeline.transforms.base import Transform
from beam_pipeline.transforms.clip_steps import ClipGain
from beam_pipeline.transforms.steps import PLACEMENT, parse_placement

# A part of a file is resampled from frames before it and after it: at most 256 frames
# of the lower rate before, and a few blocks of 16384 frames after.
_AROUND_FRAMES = 1 << 17
# Frames of the stretch that is measured at once.
_BLOCK_FRAMES = 1 << 18
# Those of the stretch that is decoded for a placement, or to be dropped.
_CHUNK_FRAMES = 1 << 16
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
        self._measures = _measuring_steps(recipe)

    def probe(self, row: SourceRow) -> Clip | Reject:
        """Returns the clip of a row, or a reject with the reason.

        If the machine fails, it reads the file again; see
        :mod:`beam_pipeline.audio.clip_reader`.
        """
        try:
            if row.problem is not None:
                raise errors.UnusableEntry(row.filepath, row.problem)
            if (poison_clip := self._poison_clips.probed(row)) is not None:
                raise poison_clip.to_error()
            return retry(lambda: self.clip(row), row.filepath)
        except errors.ClipError as error:
            stage = "sources" if row.problem is not None else PROBE
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

    def clip(self, row: SourceRow) -> Clip:
        """Returns the clip of a row without a problem.

        Raises
        ------
        ClipError
            If the row cannot become a clip.
        """
        if row.known is None:
            info, modified_ns = self._probed(row)
        else:
            info, modified_ns = AudioInfo(*row.known, format="", subtype=""), 0
            if files.is_beams(row.filepath):
                with files.closing(self._begun(row)):
                    pass  # raises if the file does not exist
        with clip_reader.adding_length(info):
            return self._clip_of(row, info, modified_ns)

    def _clip_of(self, row: SourceRow, info: AudioInfo, modified_ns: int) -> Clip:
        recipe = self._recipe
        channel = recipe.channels if row.channel is None else row.channel
        clip_reader.check_output(info, channel, recipe.sample_rate, name=row.filepath)
        rate = recipe.sample_rate or info.sample_rate_hz
        total = clip_reader.output_frames(info.frames, info.sample_rate_hz, rate)
        start, stop = _part_of(row, total, rate)
        frames = stop - start
        plan = self._plans.of(rate, frames)
        windows = count_windows(frames, plan)
        if windows and recipe.windows_are_clips:
            _check_length(row.filepath, frames, info.channels, recipe)
        if windows == 0 and too_short_or_long(frames, plan) is None:
            raise errors.ShortClip(
                row.filepath,
                f"is shorter than one window: it has {frames} frames, but a window has "
                f"{plan.length}; record and open_audio fill it with zeros if `tail` is "
                "pad",
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
        return clips.with_split(clip._replace(split=""), clip.split, recipe.copies)

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
        if whole or recipe.stream or placement or self._measures:
            Marks.mark(clip, PROBE)
        if whole:
            self._check_whole(clip, *part)
        if recipe.stream:
            clip = clip._replace(factors=self._factors_of(clip))
        if placement:
            placed = cover_passages(self._passages_of(clip), clip.frames, plan)
            clip = clip._replace(placed=placed, examples=len(placed.starts))
        if clip.examples and self._measures:
            clip = clip._replace(measured=tuple(self._measure(clip)))
        return clip

    def _check_whole(self, clip: Clip, first: int, stop: int) -> None:
        """Decodes all that a clip's windows may need, at its own rate, and drops it."""
        first = max(0, first - _AROUND_FRAMES)
        stop = min(stop + _AROUND_FRAMES, clip.native_frames)
        audio = self._recipe.audio_with(sample_rate=None)
        with clips.opened_clip(clip, self._inputs, audio) as decoder:
            for at in range(first, stop, _CHUNK_FRAMES):
                decoder.read(at, min(at + _CHUNK_FRAMES, stop))

    def _factors_of(self, clip: Clip) -> tuple[float, ...]:
        """Returns the factors of the recipe's clip gains.

        A gain measures the clip after the steps before it.
        """
        rate = clip.sample_rate_hz
        for at, step in enumerate(clips.stream_steps(self._recipe.stream, rate)):
            if isinstance(step, ClipGain):
                with clips.opened_clip(clip, self._inputs, self._recipe) as decoder:
                    reader = clips.step_clip(decoder, clip, self._recipe, at)
                    factor = step.measure(reader, clip.frames, rate, clip.filepath)
                clip = clip._replace(factors=(*clip.factors, factor))
        return clip.factors

    def _passages_of(self, clip: Clip) -> Integers:
        """Returns the passages that a placement finds in a clip; decodes all of it.

        It gets the frames that windows are cut from, after the steps on the stream.
        They come in blocks of a fixed length, so that the plan is the same in every
        run.

        Returns
        -------
        numpy.ndarray, shape (n, 2), int64
            The first frame of each passage in the clip, and the frame after its last
            one.

        Raises
        ------
        UnreadableAudio
            If decoding fails.
        TransformError
            If the placement raises, or what it returns are not passages of the clip.
        """
        step = parse_placement(self._recipe.placement)
        name = f"{PLACEMENT.field}: {type(step).__name__}"
        with clips.opened_clip(clip, self._inputs, self._recipe) as decoder:
            reader = clips.step_clip(decoder, clip, self._recipe)

            def blocks() -> Iterator[FloatArray]:
                for at in range(0, clip.frames, _CHUNK_FRAMES):
                    block = reader.read(at, min(at + _CHUNK_FRAMES, clip.frames))
                    Marks.step(name)
                    yield block
                    Marks.step("")

            try:
                found = np.asarray(step.passages(blocks(), clip.sample_rate_hz))
            except errors.ClipError:
                raise
            except (Exception, SystemExit) as error:
                kind = (
                    errors.Unreadable
                    if errors.is_of_machine(error)
                    else errors.TransformError
                )
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
            raise errors.TransformError(
                clip.filepath,
                f"{name} must return passages, integers of shape (n, 2), from 0 to "
                f"{clip.frames}, each with its first frame and the frame after its "
                f"last one; got {found.dtype} of shape {found.shape}: "
                f"{found[:2].tolist()}",
            )
        return found.astype(np.int64)

    def _measure(self, clip: Clip) -> Iterator[tuple[str, bytes]]:
        """Yields the measure of each feature of a clip; decodes it for each.

        Raises
        ------
        ClipError
            If decoding or a transform fails.
        """
        for name, (before, step) in self._measures.items():
            run = partial(
                base.apply_transform, before, sample_rate_hz=clip.sample_rate_hz
            )
            what = f"feature {name}"
            values = (
                run_on_windows(run, (windows,), what, starts, clip.filepath)
                for starts, windows in self._windows(clip)
            )
            yield name, step.measure(values)

    def _windows(self, clip: Clip) -> Iterator[tuple[Integers, FloatArray]]:
        """Yields some starts, and the windows from there, in blocks."""
        recipe = self._recipe
        # A clip without a split has no copies yet: its examples are its windows.
        segment = Segment(clip._replace(split=""), 0, clip.examples, 0)
        starts, _ = locate_examples(segment, recipe)
        with clips.opened_clip(clip, self._inputs, recipe) as decoder:
            length = clips.window_frames(clip, recipe)
            stretches = clips.read_stretches(
                decoder, clip, starts, _BLOCK_FRAMES, recipe
            )
            for block, frames in stretches:
                yield block, slice_windows(frames, block, length)

    def _events_of(self, row: SourceRow, info: AudioInfo) -> tuple[Event, ...]:
        """Returns the events of a row's file; raises UnusableEntry if one is later."""
        events = clip_events(
            row.filepath, self._inputs[row.source].root, self._recipe, self._events
        )
        seconds = info.frames / info.sample_rate_hz
        for event in events:
            if event.start_s > seconds + SECONDS_ROUNDED:
                raise errors.UnusableEntry(
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
        except errors.ClipError:
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
        except (OSError, errors.InputError) as error:  # InputError: unknown scheme
            raise errors.read_error(row.filepath, "cannot be opened", error) from error

    def _probed(self, row: SourceRow) -> tuple[AudioInfo, int]:
        """Returns what a row's file holds, and when it was last changed."""
        Marks.mark(row, PROBE)
        recipe = self._recipe
        loader = clips.find_loader(recipe, row.filepath)
        with files.closing(self._begun(row)) as source:
            if loader is not None:
                info = loader.probe(source, row.filepath)
            else:
                info = clip_reader.probe_audio(
                    source,
                    name=row.filepath,
                    allow_truncated=recipe.allow_truncated,
                    allow_nonfinite=recipe.allow_nonfinite,
                    decoders=recipe.decoder,
                )
            return info, files.modified_ns(source)


def _measuring_steps(recipe: Recipe) -> dict[str, tuple[Transform, Any]]:
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
    transforms = resolve_transforms(recipe)
    found = {}
    for name, transform in transforms.items():
        at = measuring_step(transform, name)
        if at is not None:
            steps = base.steps_of(transform)
            found[name] = base.chain_of(steps[:at]), steps[at]
    return found


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
        raise errors.UnusableEntry(
            filepath,
            f"is too long for one example: its {frames} frames take {length} bytes, "
            f"but must take at most {LONGEST_RECORD}; record it in windows",
        )


def _part_of(row: SourceRow, frames: int, rate_hz: int) -> tuple[int, int]:
    """Returns (first frame, end) of a row's part of its file.

    ``frames`` is the length of the file at ``rate_hz``.
    """
    if not frames:
        raise errors.EmptyAudio(
            row.filepath, f"is so short that no frame of it is left at {rate_hz} Hz"
        )
    start = base.seconds_to_frames(row.offset_s, rate_hz)
    stop = frames
    if row.duration_s is not None:
        stop = start + base.seconds_to_frames(row.duration_s, rate_hz)
    # Seconds in tables are rounded, so the end may be a few frames too late.
    if start >= frames or stop > frames + rate_hz * SECONDS_ROUNDED:
        raise errors.UnusableEntry(
            row.filepath,
            f"is {frames / rate_hz:g} s long, but its row in the table asks for the "
            f"part from {row.offset_s:g} to {stop / rate_hz:g} s",
        )
    return start, min(stop, frames)


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
        raise errors.read_error(name, "cannot be hashed", error) from error


@lru_cache(maxsize=1024)  # rows of one file are mostly close to each other
def _sha256(path: str, _changed_ns: int) -> str:
    return files.hash_of(path)[1]
