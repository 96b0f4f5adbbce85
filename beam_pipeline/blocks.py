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
import functools
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline import files
from beam_pipeline.audio import ClipReader
from beam_pipeline.decoder import SAMPLE_BYTES, AudioInfo
from beam_pipeline.errors import ClipError, InputError, RecipeError, UnreadableAudio
from beam_pipeline.events import Event, near
from beam_pipeline.examples import ExampleEncoder
from beam_pipeline.expressions import STREAM, naming_step, parse_stream
from beam_pipeline.features import FeatureSet
from beam_pipeline.fingerprints import CHUNK_FRAMES, fingerprint_audio
from beam_pipeline.plan import Clip, Corpus, Reject, Segment, Shard, ShardTask, clip_key
from beam_pipeline.recipe import Recipe, comma_list
from beam_pipeline.sources import Input, locate
from beam_pipeline.streams import Reader, SteppedReader, measure_factors, with_factors
from beam_pipeline.treatment import Treatment, copies_in, example_numbers
from beam_pipeline.windows import WindowPlan, cut_windows, window_starts

# Sixteen one-second windows at 16 kHz: what the transforms run fastest on.
BLOCK_BYTES = 1 << 20

# The first bytes of so many clips are on their way from an object store while one is
# decoded: short clips would else wait for an answer each.
CLIPS_AHEAD = 16

Integers = npt.NDArray[np.int64]

# From glibc's malloc.h; the second may be 32 MiB at most.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT_BYTES = 32 << 20


@dataclass(frozen=True, slots=True)
class Place:
    """Which examples a block holds, and where and in which form they go."""

    form: Format
    shard: Shard
    position: int
    clip: Clip
    first: int
    windows: int


@dataclass(frozen=True, slots=True)
class FrameBlock:
    """A stretch of a clip that covers some windows; ``frames`` begin at ``offset``.

    ``starts`` and ``copies`` tell each example's window and which copy it is of it.
    """

    place: Place
    starts: Integers
    copies: Integers
    offset: int
    frames: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class WindowBlock:
    """Windows, shape ``(n, frames)`` or ``(n, channels, frames)``.

    ``n`` is less than the place has where windows were left out.
    """

    place: Place
    starts: Integers
    copies: Integers
    windows: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class FeatureBlock:
    """Every feature of some windows, each of shape ``(n, ...)``, and the windows."""

    place: Place
    starts: Integers
    copies: Integers
    values: Mapping[str, npt.NDArray[Any]]
    windows: npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Lost:
    """Windows that the plan counted and that cannot be made, and why."""

    place: Place
    reject: Reject


@dataclass(frozen=True, slots=True)
class Format:
    """What all examples of a data set share; None where clips differ.

    ``rates_hz`` maps each output sample rate to its number of clips.
    """

    features: FeatureSet
    treatment: Treatment
    classes: tuple[str, ...]
    win_len: int
    hop: int
    sample_rate_hz: int | None
    channels: int | None
    rates_hz: Mapping[int, int]

    @classmethod
    def of(
        cls, corpus: Corpus, recipe: Recipe, columns: Sequence[tuple[str, str]] = ()
    ) -> Format:
        """What a corpus looks like under a recipe.

        Raises
        ------
        RecipeError
            If clips differ in what the recipe needs to be one, or a transform does not
            work on its windows.
        InputError
            If no clip was accepted.
        """
        if not corpus.rates_hz:
            raise InputError("Not one clip can be recorded.")
        rate = _the_one(corpus.rates_hz)
        by_seconds = recipe.win_seconds is not None or recipe.hop_seconds is not None
        if rate is None and by_seconds:
            raise RecipeError(
                "sample_rate",
                "windows in seconds have one length only at one sample rate; give "
                "--sample-rate, or --win-len and --hop",
                _listed(corpus.rates_hz, "Hz", corpus.named),
            )
        channels = None
        if recipe.channels == "keep":
            channels = _the_one(corpus.channels)
            if channels is None:
                raise RecipeError(
                    "channels",
                    "keep needs the same number in every clip; mix them, or pick one",
                    _listed(corpus.channels, "channels", corpus.named),
                )
        classes = corpus.labels
        if recipe.classes is not None:
            classes = tuple(comma_list(recipe.classes))
        windows = WindowPlan.of(recipe, rate or 1)
        shape = (windows.length,) if channels is None else (channels, windows.length)
        try:
            treatment = Treatment.of(recipe, shape, rate)
            features = FeatureSet.of(
                recipe,
                sample_rate_hz=rate,
                win_len=windows.length,
                channels=channels,
                classes=classes,
                columns=columns,
            )
        except RecipeError as error:
            if rate is not None:
                raise
            field, problem, value = error.args
            problem += "; the clips are " + _listed(corpus.rates_hz, "Hz", corpus.named)
            raise RecipeError(field, problem, value) from error
        return cls(
            features,
            treatment,
            classes,
            windows.length,
            windows.hop,
            rate,
            channels,
            dict(sorted(corpus.rates_hz.items())),
        )


class ShardWork(NamedTuple):
    """All that it takes to write a shard.

    The format travels along, instead of being a side input of each step: runners end a
    fused stage where a step has side inputs, and would move the audio between stages.
    """

    task: ShardTask
    form: Format


def _the_one(counts: Mapping[int, int]) -> int | None:
    return next(iter(counts)) if len(counts) == 1 else None


def _listed(
    counts: Mapping[int, int], unit: str, named: Mapping[tuple[str, int], str]
) -> str:
    return ", ".join(
        f"{n} of {value} {unit} (such as {named.get((unit, value), '?')})"
        for value, n in sorted(counts.items())
    )


def decode_blocks(
    work: ShardWork, inputs: Sequence[Input], recipe: Recipe
) -> Iterator[FrameBlock | Lost]:
    """Decodes what a shard needs, in the order of its places."""
    ahead: deque[tuple[Segment, Integers, Integers, str | BinaryIO]] = deque()
    for segment in work.task.segments:
        starts, copies = _examples_of(segment, recipe)
        source = _begin_read(segment, starts, inputs, recipe)
        ahead.append((segment, starts, copies, source))
        if len(ahead) > CLIPS_AHEAD:
            yield from _decode_segment(work, *ahead.popleft(), recipe)
    while ahead:
        yield from _decode_segment(work, *ahead.popleft(), recipe)


def _examples_of(segment: Segment, recipe: Recipe) -> tuple[Integers, Integers]:
    """Where the window of each example starts, and which copy of it each is."""
    clip = segment.clip
    windows, copies = example_numbers(
        segment.first, segment.windows, copies_in(recipe, clip.split)
    )
    first = int(windows[0])
    starts = window_starts(
        clip.frames,
        WindowPlan.of(recipe, clip.sample_rate_hz),
        first,
        int(windows[-1]) - first + 1,
        clip_key(recipe.seed, clip.filepath, clip.source),
    )
    return starts[windows - first], copies


def _begin_read(
    segment: Segment, starts: Integers, inputs: Sequence[Input], recipe: Recipe
) -> str | BinaryIO:
    """Opens a segment's file, telling a store which part of it will be read."""
    clip = segment.clip
    length = WindowPlan.of(recipe, clip.sample_rate_hz).length
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
    recipe: Recipe,
) -> Iterator[FrameBlock | Lost]:
    clip = segment.clip
    plan = WindowPlan.of(recipe, clip.sample_rate_hz)
    channels = clip.channels if recipe.channels == "keep" else 1
    budget = max(plan.length, BLOCK_BYTES // (4 * channels))
    done = 0

    def place(until: int) -> Place:
        return Place(
            work.form,
            work.task.shard,
            segment.position + done,
            clip,
            segment.first + done,
            until - done,
        )

    try:
        with files.closing(source), open_clip(source, clip, recipe) as decoder:
            reader = step_clip(decoder, clip, recipe)
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
                yield FrameBlock(
                    place(until), block, copies[done:until], offset, frames
                )
                done = until
    except ClipError as error:
        yield lose(place(len(starts)), "decode", error)


def open_clip(source: str | BinaryIO, clip: Clip, recipe: Recipe) -> ClipReader:
    """A reader of a clip's frames at the output rate."""
    info = AudioInfo(
        clip.native_frames,
        clip.native_rate_hz,
        clip.channels,
        clip.format,
        clip.subtype,
    )
    return ClipReader(
        source,
        info,
        name=clip.filepath,
        sample_rate_hz=recipe.sample_rate,
        channels=recipe.channels if clip.channel is None else clip.channel,
    )


@dataclass(frozen=True, slots=True)
class PartReader:
    """Reads ranges of a part of a file."""

    reader: ClipReader
    start: int

    def read(self, start: int, stop: int) -> npt.NDArray[np.float32]:
        return self.reader.read(self.start + start, self.start + stop)


@functools.cache
def stream_steps(stream: str, sample_rate_hz: int) -> tuple[Any, ...]:
    """The steps of an expression.

    Raises
    ------
    RecipeError
        Naming the step that does not work at this rate.
    """
    steps = parse_stream(stream)
    for step in steps:
        with naming_step(step, STREAM):
            step.context(sample_rate_hz)
    return steps


def step_clip(decoder: ClipReader, clip: Clip, recipe: Recipe) -> Reader:
    """A reader of a clip's frames after the recipe's steps on its stream."""
    part = PartReader(decoder, clip.start) if clip.start else decoder
    if not recipe.stream:
        return part
    steps = stream_steps(recipe.stream, clip.sample_rate_hz)
    steps = with_factors(steps, clip.factors)
    return SteppedReader(part, steps, clip.frames, clip.sample_rate_hz)


def measure_clip(clip: Clip, inputs: Sequence[Input], recipe: Recipe) -> Clip:
    """The clip with the factors that the recipe's clip gains need."""

    @contextlib.contextmanager
    def open_reader() -> Iterator[Reader]:
        with _opened(clip, inputs, recipe) as decoder:
            yield PartReader(decoder, clip.start)

    steps = stream_steps(recipe.stream, clip.sample_rate_hz)
    factors = measure_factors(
        steps, open_reader, clip.frames, clip.sample_rate_hz, clip.filepath
    )
    return clip._replace(factors=factors)


def fingerprint_clip(
    clip: Clip, first: int, stop: int, inputs: Sequence[Input], recipe: Recipe
) -> Clip:
    """The clip with its fingerprint.

    ``first`` and ``stop`` bound it at the native rate: what a recipe makes of samples
    does not matter, only which of them it takes.
    """
    channel = recipe.channels if clip.channel is None else clip.channel
    native = replace(
        recipe,
        sample_rate=None,
        channels=channel if isinstance(channel, int) else "keep",
    )
    channels = 1 if isinstance(channel, int) else clip.channels
    with _opened(clip, inputs, native) as decoder:
        chunks = (
            np.atleast_2d(decoder.read(at, min(at + CHUNK_FRAMES, stop)))
            for at in range(first, stop, CHUNK_FRAMES)
        )
        content, sketch = fingerprint_audio(chunks, clip.native_rate_hz, channels)
    return clip._replace(content=content, sketch=sketch)


@contextlib.contextmanager
def _opened(
    clip: Clip, inputs: Sequence[Input], recipe: Recipe
) -> Iterator[ClipReader]:
    """A reader of a clip that is to be read whole."""
    path = locate(inputs, clip.source, clip.filepath)
    with (
        files.closing(files.begin_read(path)) as source,
        open_clip(source, clip, recipe) as decoder,
    ):
        yield decoder


def keep_freed_memory() -> None:
    """Tells glibc to keep what blocks free, instead of giving it back to the system.

    A block's arrays are of a size that glibc returns at once, and the next block then
    faults every page in again, which can cost more than the transforms. Elsewhere than
    with glibc nothing happens.
    """
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        ctypes.CDLL("libc.so.6").mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)


def lose(place: Place, stage: str, error: ClipError) -> Lost:
    """Marks windows as lost, with the reason as a reject of their clip."""
    clip, first, n = place.clip, place.first, place.windows
    reason = (
        f"{error.reason}; windows {first} to {first + n - 1} of {clip.windows} are not "
        f"in {place.shard.name}"
    )
    reject = Reject(
        clip.row,
        clip.filepath,
        stage,
        type(error).__name__,
        reason,
        clip.label,
        place.shard.name,
        place.shard.split,
        n,
        clip.sample_rate_hz,
    )
    return Lost(place, reject)


def cut_block(block: FrameBlock) -> WindowBlock:
    """Cuts a block's windows out of its frames."""
    win_len = block.place.form.win_len
    windows = cut_windows(block.frames, block.offset, block.starts, win_len)
    return WindowBlock(block.place, block.starts, block.copies, windows)


def treat_block(block: WindowBlock) -> WindowBlock | Lost:
    """Leaves windows out and augments copies, as the recipe says."""
    treatment, clip = block.place.form.treatment, block.place.clip
    starts, copies, windows = block.starts, block.copies, block.windows
    numbers = np.arange(block.place.first, block.place.first + len(starts))
    rate = clip.sample_rate_hz
    try:
        rule = block.place.form.features.events
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
        return lose(block.place, "treat", error)
    return WindowBlock(block.place, starts, copies, windows)


def timed(
    block: WindowBlock | FeatureBlock,
) -> tuple[Sequence[Event], npt.NDArray[np.float64], float]:
    """A clip's events; where windows start in its file, and how long they are, in s."""
    clip, rate = block.place.clip, block.place.clip.sample_rate_hz
    starts_s = (clip.start + block.starts) / rate
    length_s = block.place.form.win_len / rate
    return near(clip.events, starts_s, length_s), starts_s, length_s


def narrow_events(segment: Segment, recipe: Recipe) -> Segment:
    """The segment without events that none of its windows can hold.

    A day's recording has thousands, and each of its shards few of them.
    """
    clip, rate = segment.clip, segment.clip.sample_rate_hz
    if not clip.events:
        return segment
    starts, _ = _examples_of(segment, recipe)
    length_s = WindowPlan.of(recipe, rate).length / rate
    some = near(clip.events, (clip.start + starts) / rate, length_s)
    return segment._replace(clip=clip._replace(events=some))


def count_events(
    clip: Clip, examples: int, form: Format, recipe: Recipe
) -> tuple[dict[str, int], int]:
    """What a clip's first examples come to by its events.

    How many count for each class, and how many are left out for want of an event.
    """
    rule, rate = form.features.events, clip.sample_rate_hz
    if rule is None:
        return {}, 0
    starts, _ = _examples_of(Segment(clip, 0, examples, 0), recipe)
    windows = clip.events, (clip.start + starts) / rate, form.win_len / rate
    return rule.counts(*windows), int((~rule.kept(*windows)).sum())


def transform_block(block: WindowBlock) -> FeatureBlock | Lost:
    """Applies every transform to a block's windows."""
    clip, features = block.place.clip, block.place.form.features
    values: dict[str, npt.NDArray[Any]] = {}
    try:
        if len(block.windows):
            values = features.apply(
                block.windows, clip.sample_rate_hz, clip.filepath, block.starts
            )
    except ClipError as error:
        return lose(block.place, "transform", error)
    return FeatureBlock(block.place, block.starts, block.copies, values, block.windows)


def encode_block(
    block: FeatureBlock, encoder: ExampleEncoder, targets: Mapping[str, int]
) -> list[bytes]:
    """Serialises a block's examples."""
    clip = block.place.clip
    columns = {
        **block.values,
        "filepath": clip.filepath,
        "index": clip.row,
        "fs": clip.sample_rate_hz,
        "win_start_idx": block.starts,
        "copy": block.copies,
    }
    features = block.place.form.features
    columns.update(features.of_clip(clip.label, clip.columns, targets))
    if features.events is not None:
        columns.update(features.events.columns(*timed(block)))
    return encoder.encode(len(block.starts), columns)
