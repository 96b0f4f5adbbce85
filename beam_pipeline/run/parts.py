"""Runs a job of unknown number of examples: on this machine, or on a runner of Beam."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from threadpoolctl import threadpool_limits

from beam_pipeline.dataset.parts_job import PartsJob, finish_parts, finished_sources
from beam_pipeline.dataset.work_folder import Totals
from beam_pipeline.run.engine import pipeline_for, run_pipeline, temporary_files
from beam_pipeline.run.watching import Watch, reporter, reporting_work
from beam_pipeline.run.worker_processes import can_fork
from beam_pipeline.run.workers import Workers
from beam_pipeline.transforms.main_code import by_value
from beam_pipeline.write.part_blocks import (
    BlockRef,
    BlockResult,
    merge_results,
    write_block,
)
from beam_pipeline.write.part_shards import cut_shards, join_pieces

_NOTHING_KEPT = "No data set was written. Give the same call again."


def run_parts(
    job: PartsJob,
    workers: int | None,
    beam_args: Sequence[str],
    watch: Callable[[Totals], Watch] | None = None,
) -> None:
    """Runs the job, to its metadata.

    Parameters
    ----------
    workers : int, optional
        Number of processes on this machine. Default: one for each core, if they start
        fast and have work; otherwise one.
    beam_args : sequence of str
        Options of Beam. If there are any, Beam's runner among them runs the job.
    watch : callable, optional
        See :func:`beam_pipeline.run.watching.reporter`; it counts sources.

    Raises
    ------
    AudioTFRecordsError
        The error of a worker, on whatever machine; WorkerDied or IncompleteRun if one
        ended without an error.
    """
    if beam_args:
        _run_on_beam(job, beam_args, watch)
        return
    writers = _writers_for(job, workers)
    # A new interpreter does not have the classes of the caller's script.
    given = job if writers == 1 or can_fork() else by_value(job)
    work = partial(_write_share, given, writers)
    with Workers() as processes:
        totals = Totals(job.sources or 0, 0.0)
        look = reporter(watch, totals, processes.states(writers))
        results = processes.run(work, writers, look=look, advice=_NOTHING_KEPT)
    result = merge_results(results)
    job.target.make_room()
    infos = [
        join_pieces(shard, job.output, job.parts, may_move=True)
        for split in job.splits
        for shard in cut_shards(
            split, (p for p in result.parts if p.split == split), job.sizes
        )
    ]
    finish_parts(job, infos, result)


def _writers_for(job: PartsJob, workers: int | None) -> int:
    if workers is None:
        workers = len(os.sched_getaffinity(0)) if can_fork() else 1
    return max(1, min(workers, len(job.blocks)))


def _write_blocks(job: PartsJob, blocks: Sequence[BlockRef]) -> Iterator[BlockResult]:
    # One thread, as on every runner: sums depend on the threads.
    with threadpool_limits(1):
        for ref in blocks:
            yield write_block(ref, job.encoder, job.sizes, job.parts)


def _write_share(given: PartsJob | bytes, writers: int, writer: int) -> BlockResult:
    """Writes every ``writers``-th block."""
    if isinstance(given, bytes):
        given = pickle.loads(given)
    assert isinstance(given, PartsJob)
    return merge_results(_write_blocks(given, given.blocks[writer::writers]))


def _run_on_beam(
    job: PartsJob, beam_args: Sequence[str], watch: Callable[[Totals], Watch] | None
) -> None:
    from beam_pipeline.pipeline.parts_graph import build_parts_pipeline

    done = partial(finished_sources, job.work)
    totals = Totals(job.sources or 0, 0.0)
    with temporary_files(), reporting_work(watch, totals, done):
        pipeline = pipeline_for(beam_args)
        build_parts_pipeline(pipeline, job)
        run_pipeline(pipeline, job.output, job.work, beam_args, _NOTHING_KEPT)
