"""What a run will take: its bytes, time and memory, from a random sample of its blocks.

::

    plan        example 0 ... example 7,411 ... example 52,902 ...      chosen at random
                                 |                   |
    clips       |----|----|----|####|----|     |###############|        their blocks
                                 |                   |
    a process        decode, transform, encode, compress, as a run does
                                 |                   |
    forecast     mean over blocks of bytes and seconds per example, times all examples

A block is what a worker holds at once: some windows of one clip. An example chooses its
block, so a block is chosen with a probability that grows with its examples. That makes
the mean over blocks of "per example" an unbiased estimate.
"""

from __future__ import annotations

import bisect
import math
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from beam_pipeline.dataset.suspect_files import read_suspects
from beam_pipeline.examples.format import ExampleFormat
from beam_pipeline.examples.windows import WindowPlan
from beam_pipeline.inputs.sources import locate
from beam_pipeline.marks import Marks
from beam_pipeline.pipeline.job import Job
from beam_pipeline.plan.batch import Batch
from beam_pipeline.plan.clip_audio import open_clip, step_clip
from beam_pipeline.plan.clips import Clip
from beam_pipeline.plan.order import PlacedClips
from beam_pipeline.plan.segments import (
    Segment,
    ShardTask,
    ShardWork,
    locate_examples,
    narrow_events,
)
from beam_pipeline.plan.shards import Shard, ShardLayout
from beam_pipeline.plan.summary import PlanSummary
from beam_pipeline.plan.suspects import Suspects
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.run.guard import Guard
from beam_pipeline.run.supervising import Workers
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import suffix_for
from beam_pipeline.write.alone import ShardWriter, write_alone
from beam_pipeline.write.blocks import BLOCK_BYTES, decode_audio
from beam_pipeline.write.one_thread import OneThread
from beam_pipeline.write.stretches import StretchFile


class SampledBlock(NamedTuple):
    """A block of the plan, and how many of the chosen examples are in it."""

    work: ShardWork
    chosen: int


class MeasuredBlock(NamedTuple):
    """What a block took.

    Attributes
    ----------
    planned, kept, lost : int
        Its examples: all; those that were written; those that could not be made.
    bytes : int
        Of the file, compressed.
    seconds : float
    """

    planned: int
    kept: int
    lost: int
    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run will take, estimated from a sample.

    Attributes
    ----------
    sampled : int
        How many examples were made.
    lost : int
        How many of them could not be made: their clips would be rejected.
    examples : float
        How many examples the data set will have. Selections may leave some out.
    bytes, bytes_error : float
        The bytes of all shards, and two standard errors of this number; infinite if
        there was only one block.
    seconds, seconds_error : float
        The time that one worker of this machine needs to write all shards, likewise.
    plan_seconds : float
        The time that reading headers and planning took.
    memory_bytes : int
        The largest resident memory of the process that made the sample.
    shards : int
        A shard is written by one worker.
    workers : int
        How many workers a run on this machine has.
    """

    sampled: int
    lost: int
    examples: float
    bytes: float
    bytes_error: float
    seconds: float
    seconds_error: float
    plan_seconds: float
    memory_bytes: int
    shards: int
    workers: int

    @property
    def bytes_per_example(self) -> float:
        """The compressed bytes of an example; 0 if there is none."""
        return self.bytes / self.examples if self.examples else 0.0

    def wall_seconds(self, workers: int | None = None) -> float:
        """Returns how long a run takes with some workers, each as fast as one here.

        The plan is made once, and a worker writes whole shards::

            plan_seconds + ceil(shards / workers) * seconds / shards

        Starting processes, or machines, and ending a run are not in it. Default: the
        workers of a run on this machine.
        """
        rounds = -(-self.shards // (workers or self.workers))
        return self.plan_seconds + rounds * self.seconds / max(1, self.shards)

    @property
    def vcpu_hours(self) -> float:
        """The hours of one worker, the plan included."""
        return (self.plan_seconds + self.seconds) / 3600

    def cost(self, price_per_vcpu_hour: float) -> float:
        """Returns the price of :attr:`vcpu_hours`."""
        return self.vcpu_hours * price_per_vcpu_hour


class BlockSampler:
    """Chooses examples of a plan at random, and finds their blocks.

    Parameters
    ----------
    layouts : mapping
        The shards of each split.
    count : int
        How many examples to choose; all of them if there are fewer.
    """

    def __init__(
        self,
        layouts: Mapping[str, ShardLayout],
        example_format: ExampleFormat | None,
        recipe: Recipe,
        count: int,
    ):
        self._layouts, self._format, self._recipe = layouts, example_format, recipe
        totals = [layout.total for layout in layouts.values()]
        ends = list(accumulate(totals, initial=0))
        self._first = dict(zip(layouts, ends, strict=False))
        draw = np.random.default_rng([0, recipe.shards.seed & (1 << 63) - 1])
        chosen = draw.choice(ends[-1], min(count, ends[-1]), replace=False)
        self._chosen: list[int] = np.sort(chosen).tolist()

    def find(self, placed: PlacedClips) -> Iterator[SampledBlock]:
        """Yields the blocks of some clips that have chosen examples."""
        layout = self._layouts[placed.split]
        first = self._first[placed.split] + placed.first_window
        end = self._first[placed.split] + layout.total
        for clip in placed.clips:
            stop = min(first + clip.examples, end)
            if first >= end:
                return
            low = bisect.bisect_left(self._chosen, first)
            high = bisect.bisect_left(self._chosen, stop)
            size = _block_examples(clip, self._recipe)
            blocks = Counter((n - first) // size for n in self._chosen[low:high])
            for number, chosen in blocks.items():
                begin = number * size
                count = min(size, stop - first - begin)
                yield SampledBlock(self._work(clip, begin, count, layout), chosen)
            first += clip.examples

    def _work(
        self, clip: Clip, begin: int, count: int, layout: ShardLayout
    ) -> ShardWork:
        assert self._format is not None  # there are clips
        segment = narrow_events(Segment(clip, begin, count, 0), self._recipe)
        shard = Shard("", clip.split, 0, count, per_member=layout.per_member)
        return ShardWork(ShardTask(shard, Batch([segment])), self._format)


def _block_examples(clip: Clip, recipe: Recipe) -> int:
    """Returns how many examples of a clip a worker holds at once, about."""
    length = WindowPlan.of(recipe.windows, clip.sample_rate_hz, clip.frames).length
    channels = clip.channels if recipe.audio.channels == "keep" else 1
    return max(1, BLOCK_BYTES // (4 * channels * length))


def forecast(
    summary: PlanSummary,
    blocks: Sequence[SampledBlock],
    plan_seconds: float,
    workers: int,
    job: Job,
    folder: str,
    processes: Workers,
) -> Forecast:
    """Makes the blocks in a process of its own, and returns what all would take."""
    states = processes.states(1)
    guard = Guard(job, processes.limits, states)
    works = _in_one_shard([block.work for block in blocks])
    measure = partial(_measure_all, works, job, folder)
    ((measured, joined, memory),) = processes.run(measure, states, guard, name="sample")
    total = sum(layout.total for layout in summary.layouts.values())
    chosen = [block.chosen for block in blocks]
    size, size_error = _total_of(
        [one.bytes / one.planned for one in measured], chosen, total
    )
    seconds, seconds_error = _total_of(
        [one.seconds / one.planned for one in measured], chosen, total
    )
    examples, _ = _total_of([one.kept / one.planned for one in measured], chosen, total)
    return Forecast(
        sampled=sum(one.kept for one in measured),
        lost=sum(one.lost for one in measured),
        examples=examples,
        bytes=size * joined,
        bytes_error=size_error * joined,
        seconds=seconds,
        seconds_error=seconds_error,
        plan_seconds=plan_seconds,
        memory_bytes=memory,
        shards=sum(layout.shards for layout in summary.layouts.values()),
        workers=workers,
    )


def _total_of(
    values: Sequence[float], chosen: Sequence[int], total: int
) -> tuple[float, float]:
    """Returns ``total`` times the mean of values, and two standard errors of that.

    ``chosen`` is how often each value counts.
    """
    count = sum(chosen)
    if not count:
        return 0.0, math.inf
    repeated = np.repeat(values, chosen)
    error = np.std(repeated, ddof=1) / math.sqrt(count) if count > 1 else math.inf
    return float(repeated.mean()) * total, 2 * float(error) * total


def _in_one_shard(works: Sequence[ShardWork]) -> list[ShardWork]:
    """Returns blocks with positions in one shard, one after the other."""
    counts = [work.task.segments[0].examples for work in works]
    placed, position = [], 0
    for work, count in zip(works, counts, strict=True):
        (segment,) = work.task.segments
        shard = work.task.shard._replace(examples=sum(counts))
        segments = Batch([segment._replace(position=position)])
        placed.append(work._replace(task=ShardTask(shard, segments)))
        position += count
    return placed


def _measure_all(
    works: Sequence[ShardWork], job: Job, folder: str, _: int
) -> tuple[list[MeasuredBlock], float, int]:
    """Makes blocks; returns what each took, and the memory of this process.

    Between them is how many bytes they take in one shard, divided by those of each by
    itself: a GZIP member may hold examples of several clips.
    """
    # A writer has Beam in its memory, too.
    import beam_pipeline.pipeline.graph  # noqa: F401

    suspects = read_suspects(job.work_folder)
    path = os.path.join(folder, "block" + suffix_for(job.recipe.shards.compression))

    def alone(work: ShardWork) -> StretchFile:
        return write_alone(work, job.inputs, job.recipe, path, suspects)

    OneThread.begin()
    try:
        alone(works[0])  # what a process needs once, such as tables of a filter
        seconds, joined = _time_all(works, job, path, suspects)
        memory = peak_bytes()
        written = [alone(work) for work in works]
    finally:
        OneThread.end()
    measured = []
    for work, file, taken in zip(works, written, seconds, strict=True):
        (segment,) = work.task.segments
        lost = segment.examples - file.examples - file.left_out
        if segment.first and not lost:
            # A run reads on from the block before: the way to this one does not count.
            taken = max(0.0, taken - _seconds_to(segment, job))
        measured.append(
            MeasuredBlock(segment.examples, file.examples, lost, file.bytes, taken)
        )
    by_themselves = sum(file.bytes for file in written)
    return measured, joined.bytes / by_themselves, memory


def _time_all(
    works: Sequence[ShardWork], job: Job, path: str, suspects: Suspects
) -> tuple[list[float], StretchFile]:
    """Writes one shard of blocks; returns the seconds of each, and the shard."""
    writer = ShardWriter(works[0], path)
    seconds = []
    for work in works:
        started = time.perf_counter()
        for frames in decode_audio(work, job.inputs, job.recipe, suspects):
            writer.write(frames)
        seconds.append(time.perf_counter() - started)
    Marks.unmark()
    return seconds, writer.close()


def _seconds_to(segment: Segment, job: Job) -> float:
    """Returns the time for opening a clip and going to the first frame of a segment."""
    clip, audio = segment.clip, job.recipe.audio
    starts, _ = locate_examples(segment, job.recipe)
    path = locate(job.inputs, clip.source, clip.filepath)
    started = time.perf_counter()
    with (
        files.closing(files.begin_read(path)) as source,
        open_clip(source, clip, audio) as decoder,
    ):
        first = int(starts[0])
        step_clip(decoder, clip, audio).read(first, first + 1)
    return time.perf_counter() - started


def peak_bytes() -> int:
    """Returns the largest resident memory that this process has had."""
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
