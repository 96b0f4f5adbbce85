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

import bisect
import math
import os
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.job import Job
from beam_pipeline.planning.clips import Reject, window_frames
from beam_pipeline.planning.poison_clips import read_poison_clips
from beam_pipeline.planning.shards import (
    Segment,
    ShardInfo,
    ShardWork,
    narrow_events,
)
from beam_pipeline.planning.summary import PlanSummary
from beam_pipeline.process import OneThread
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.run.workers import Workers
from beam_pipeline.storage.tfrecord import compress_member, suffix_for
from beam_pipeline.write.blocks import BLOCK_BYTES
from beam_pipeline.write.shard import ShardDraft, encode_shard


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


def choose_blocks(
    works: Iterable[ShardWork], total: int, sample: int, recipe: Recipe
) -> Iterator[tuple[Segment, int, ShardWork]]:
    """Yields the blocks of some examples, and how many of them each block has.

    Parameters
    ----------
    works : iterable of ShardWork
        The shards of a plan, which have ``total`` examples.
    sample : int
        The number of examples, which are chosen at random.

    Yields
    ------
    block : Segment
        A part of a segment of the shard.
    times : int
    work : ShardWork
    """
    draw = np.random.default_rng([0, recipe.seed & (1 << 63) - 1])
    chosen = np.sort(draw.choice(total, min(sample, total), replace=False))
    before = 0
    for work in works:
        for segment in work.segments:
            first = before + segment.position
            inside = chosen[(first <= chosen) & (chosen < first + segment.examples)]
            clip = segment.clip
            channels = clip.channels if recipe.channels == "keep" else 1
            length = 4 * channels * window_frames(clip, recipe)
            size = max(1, BLOCK_BYTES // length)
            for number, times in Counter(((inside - first) // size).tolist()).items():
                at = number * size
                count = min(size, segment.examples - at)
                block = Segment(clip, segment.first + at, count, segment.position + at)
                yield narrow_events(block, recipe), times, work
        before += work.shard.examples


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
    total = sum(layout.total for layout in summary.layouts.values())
    found = list(choose_blocks(works, total, sample, job.recipe)) if total else []
    if not found:
        return None
    work = _one_shard([block for block, _, _ in found], found[0][2])
    measure = partial(_measure, work, job, folder)
    info, taken = processes.call(measure, job, "sample", apart=True)
    planned = np.array([block.examples for block, _, _ in found])
    # Examples, bytes and seconds for each planned example; one row for each chosen one.
    rates = np.repeat(taken / planned[:, None], [times for _, times, _ in found], 0)
    examples, size, seconds = (total * rates.mean(0)).tolist()
    size_error = seconds_error = math.inf
    if len(rates) > 1:
        errors = 2 * total * rates.std(0, ddof=1) / math.sqrt(len(rates))
        _, size_error, seconds_error = errors.tolist()
    lost = info.shard.examples - info.examples - info.left_out
    return Forecast(
        info.examples, lost, examples, size, size_error, seconds, seconds_error
    )


def _one_shard(blocks: Sequence[Segment], work: ShardWork) -> ShardWork:
    """Returns the work for one shard of these blocks, like that of another shard."""
    ends = np.cumsum([block.examples for block in blocks]).tolist()
    segments = tuple(
        block._replace(position=end - block.examples)
        for block, end in zip(blocks, ends, strict=True)
    )
    shard = work.shard._replace(examples=ends[-1], mix_seed=None)
    return work._replace(shard=shard, segments=segments)


def _measure(
    work: ShardWork, job: Job, folder: str
) -> tuple[ShardInfo, npt.NDArray[np.float64]]:
    """Writes a shard; returns it, and what each of its segments took.

    The array has a row for each segment, with its examples, bytes and seconds. Its
    bytes are a part of those of the file: a GZIP member may hold examples of several
    clips.
    """
    poison_clips = read_poison_clips(job.work_folder)
    compression = job.recipe.compression
    path = os.path.join(folder, "sample" + suffix_for(compression))
    shard, segments = work.shard, work.segments
    starts = [segment.position for segment in segments]
    taken = np.zeros((len(segments), 3))
    with OneThread.held():
        # What a process needs once, such as tables of a filter.
        first = _one_shard(segments[:1], work)
        deque(encode_shard(first, job.inputs, job.recipe, poison_clips), maxlen=0)
        draft = ShardDraft(shard, work.example_format, path, compression)
        start = time.perf_counter()
        for block in encode_shard(work, job.inputs, job.recipe, poison_clips):
            draft.write(block)
            seconds = time.perf_counter() - start
            content = b"".join(block.records)
            size = len(compress_member(content, compression))
            row = bisect.bisect(starts, block.slot.position) - 1
            taken[row] += len(block.records), size, seconds
            start = time.perf_counter()
        info = draft.close(path)
    taken[:, 1] *= info.bytes / max(1, taken[:, 1].sum())
    return info._replace(members="", windows="", seen=None), taken


@dataclass(frozen=True, repr=False)
class Plan:
    """A plan, and the clips that cannot be recorded, as far as headers show.

    It can be taken apart as a pair, ``summary, rejects = plan(...)``.

    Attributes
    ----------
    summary : PlanSummary
        Splits, shards, examples and seconds.
    rejects : sequence of Reject
        In the order of the inputs. They are on disk if they are many.
    forecast : Forecast or None
        What a run will take, if a ``sample`` was asked for.
    """

    summary: PlanSummary
    rejects: Sequence[Reject]
    forecast: Forecast | None = None

    def __iter__(self) -> Iterator[Any]:
        return iter((self.summary, self.rejects))

    def __repr__(self) -> str:
        return f"<Plan: {self.summary.described()}; {len(self.rejects):,} rejects>"
