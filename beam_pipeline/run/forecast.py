"""What :func:`beam_pipeline.api.plan` returns: a plan, and what its run will take.

The forecast is of bytes and seconds, from a random sample of the plan.

::

    shards      example 0 ... example 7,411 ... example 52,902 ...      chosen at random
                                 |                   |
    segments    |----|----|----|####|----|     |###############|        their blocks
                                 |                   |
    a process        decode, transform, encode, compress, as a run does
                                 |                   |
    forecast     mean over examples of bytes and seconds of their blocks, times all

A block is what a worker holds at once: some windows of one clip. An example chooses its
block, so a block is chosen with a probability that grows with its examples. That makes
the mean over the chosen examples of "per example" an unbiased estimate.
"""

from __future__ import annotations

import math
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.metadata import view_features
from beam_pipeline.examples.windows import WindowPlan
from beam_pipeline.pipeline.job import Job
from beam_pipeline.plan.clips import Reject
from beam_pipeline.plan.poison_clips import read_poison_clips
from beam_pipeline.plan.segments import Segment, ShardTask, ShardWork, narrow_events
from beam_pipeline.plan.shards import ShardInfo
from beam_pipeline.plan.summary import PlanSummary, left_out_words
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.run.workers import Workers
from beam_pipeline.storage.tfrecord import suffix_for
from beam_pipeline.text import html_line, html_table, time_unit
from beam_pipeline.write.blocks import BLOCK_BYTES
from beam_pipeline.write.process_settings import OneThread
from beam_pipeline.write.shard import write_shard

REJECTS_SHOWN = 10

# Split and number of a shard.
ShardKey = tuple[str, int]


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
        there was only one example.
    seconds, seconds_error : float
        The time that one worker of this machine needs to write all shards, likewise.
    """

    sampled: int
    lost: int
    examples: float
    bytes: float
    bytes_error: float
    seconds: float
    seconds_error: float

    @property
    def bytes_per_example(self) -> float:
        """The compressed bytes of an example; 0 if there is none."""
        return self.bytes / self.examples if self.examples else 0.0


def choose_examples(
    summary: PlanSummary, seed: int, count: int
) -> Mapping[ShardKey, list[int]]:
    """Returns positions of ``count`` examples of a plan, by their shards."""
    layouts = summary.layouts.values()
    ends = np.cumsum([0, *(layout.total for layout in layouts)]).tolist()
    draw = np.random.default_rng([0, seed & (1 << 63) - 1])
    chosen = np.sort(draw.choice(ends[-1], min(count, ends[-1]), replace=False))
    found: dict[ShardKey, list[int]] = {}
    for layout, first in zip(layouts, ends, strict=False):
        for index in chosen[(first <= chosen) & (chosen < first + layout.total)]:
            k = layout.shard_at(int(index) - first)
            position = int(index) - first - layout.bound(k)
            found.setdefault((layout.split, k), []).append(position)
    return found


def blocks_of(
    task: ShardTask, positions: Sequence[int], recipe: Recipe
) -> Iterator[tuple[Segment, int]]:
    """Yields the blocks of a shard that have some positions, and of how many of them.

    ``positions`` are in order. A segment is the part of a segment that is a block.
    """
    chosen = np.array(positions)
    for segment in task.segments:
        end = segment.position + segment.examples
        inside = chosen[(segment.position <= chosen) & (chosen < end)]
        clip = segment.clip
        length = WindowPlan.of(recipe.windows, clip.sample_rate_hz, clip.frames).length
        channels = clip.channels if recipe.audio.channels == "keep" else 1
        size = max(1, BLOCK_BYTES // (4 * channels * length))
        numbers = ((inside - segment.position) // size).tolist()
        for number, times in Counter(numbers).items():
            at = number * size
            count = min(size, segment.examples - at)
            block = Segment(clip, segment.first + at, count, segment.position + at)
            yield narrow_events(block, recipe), times


def forecast(
    summary: PlanSummary,
    works: Iterable[ShardWork],
    sample: int,
    job: Job,
    folder: str,
    processes: Workers,
) -> Forecast | None:
    """Makes some examples of a plan in a process of its own; returns what all take.

    ``works`` are the shards of the plan. Returns None if they have no examples.
    """
    recipe = job.recipe
    chosen = choose_examples(summary, recipe.shards.seed, sample)
    found = [
        (block, times, work)
        for work in works
        if (key := (work.task.shard.split, work.task.shard.number)) in chosen
        for block, times in blocks_of(work.task, chosen[key], recipe)
    ]
    if not found:
        return None
    blocks = [_alone(block, work) for block, _, work in found]
    measure = partial(_measure, blocks, job, folder)
    written, lost, taken = processes.call(measure, job, "sample", apart=True)
    planned = [work.task.shard.examples for work in blocks]
    # Examples, bytes and seconds for each planned example; one row for each chosen one.
    rates = np.repeat(taken / np.array(planned)[:, None], [n for _, n, _ in found], 0)
    total, count = sum(layout.total for layout in summary.layouts.values()), len(rates)
    examples, size, seconds = (total * rates.mean(0)).tolist()
    size_error = seconds_error = math.inf
    if count > 1:
        errors = 2 * total * rates.std(0, ddof=1) / math.sqrt(count)
        _, size_error, seconds_error = errors.tolist()
    return Forecast(written, lost, examples, size, size_error, seconds, seconds_error)


def _alone(block: Segment, work: ShardWork) -> ShardWork:
    """Returns the work for a shard that is one block."""
    shard = work.task.shard._replace(examples=block.examples, mix_seed=None)
    return work._replace(task=ShardTask(shard, (block._replace(position=0),)))


def _together(works: Sequence[ShardWork]) -> ShardWork:
    """Returns the work for one shard of all blocks."""
    segments, position = [], 0
    for work in works:
        (block,) = work.task.segments
        segments.append(block._replace(position=position))
        position += block.examples
    shard = works[0].task.shard._replace(examples=position)
    return works[0]._replace(task=ShardTask(shard, tuple(segments)))


def _measure(
    works: Sequence[ShardWork], job: Job, folder: str, _: int
) -> tuple[int, int, npt.NDArray[np.float64]]:
    """Makes blocks; returns their examples that were written, and those that were lost.

    The array has the examples, the bytes and the seconds of each block. Its bytes are a
    part of those of all blocks in one shard: a GZIP member may hold examples of several
    clips.
    """
    poison_clips = read_poison_clips(job.work_folder)
    path = os.path.join(folder, "block" + suffix_for(job.recipe.shards.compression))

    def write(work: ShardWork) -> ShardInfo:
        return write_shard(work, job.inputs, job.recipe, path, poison_clips)

    taken = []
    OneThread.begin()
    try:
        write(works[0])  # what a process needs once, such as tables of a filter
        for work in works:
            started = time.perf_counter()
            info = write(work)
            taken.append((info.examples, info.bytes, time.perf_counter() - started))
        together = write(_together(works))
    finally:
        OneThread.end()
    found = np.array(taken)
    found[:, 1] *= together.bytes / max(1, found[:, 1].sum())
    lost = together.shard.examples - together.examples - together.left_out
    return together.examples, lost, found


class _SummaryAndRejects(NamedTuple):
    summary: PlanSummary
    rejects: Sequence[Reject]


class Plan(_SummaryAndRejects):
    """A plan, and the clips that cannot be recorded, as far as headers show.

    It is a pair, ``summary, rejects = plan(...)``, with one more attribute.

    Attributes
    ----------
    summary : PlanSummary
        Splits, shards, examples and seconds.
    rejects : sequence of Reject
        In the order of the inputs. They are on disk if they are many.
    forecast : Forecast or None
        What a run will take, if a ``sample`` was asked for.
    """

    forecast: Forecast | None

    def __new__(
        cls,
        summary: PlanSummary,
        rejects: Sequence[Reject],
        forecast: Forecast | None = None,
    ) -> Plan:
        plan = super().__new__(cls, summary, rejects)
        plan.forecast = forecast
        return plan

    def __repr__(self) -> str:
        splits = ", ".join(f"{row[0]} {row[1]:,}" for row in self._splits())
        clips = self.summary.listing.clips
        return (
            f"<Plan: examples of {clips:,} clips: {splits or 'none'}; "
            f"{len(self.rejects):,} rejects>"
        )

    def _repr_html_(self) -> str:
        parts = []
        if self.summary.example_format is not None:
            header = ("split", "examples", self._unit()[0], "shards")
            parts += [
                html_table(header, self._splits()),
                view_features(self.summary.example_format.features.specs),
            ]
        listing = self.summary.listing
        left_out = left_out_words(self.summary.left_out)
        parts.append(
            html_line(
                f"{listing.clips:,} clips, {listing.ignored:,} files ignored, "
                f"{len(self.rejects):,} rejects" + (left_out and f", {left_out}")
            )
        )
        if self.forecast is not None:
            found = self.forecast
            parts.append(
                html_line(
                    f"forecast: {found.bytes / 1e6:,.1f} MB of shards, "
                    f"{found.seconds / 60:,.1f} min of one worker"
                )
            )
        first = [(r.filepath, r.reason) for r in islice(self.rejects, REJECTS_SHOWN)]
        if first:
            parts.append(html_table(("rejected", "reason"), first))
        return "".join(parts)

    def _splits(self) -> list[tuple[str, int, str, int]]:
        _, unit_s = self._unit()
        rows = []
        for name, layout in self.summary.layouts.items():
            examples, seconds = self.summary.kept(name)
            rows.append((name, examples, f"{seconds / unit_s:.2f}", layout.shards))
        return rows

    def _unit(self) -> tuple[str, int]:
        return time_unit(self.summary.kept(name)[1] for name in self.summary.layouts)
