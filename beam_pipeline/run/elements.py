"""Runs a job of unknown number of examples: on this machine, or on a runner of Beam."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

from threadpoolctl import threadpool_limits

from beam_pipeline.dataset.element_set import ElementSet, finish_elements, lay_out
from beam_pipeline.dataset.work_folder import Totals
from beam_pipeline.run.engine import pipeline_for, run_pipeline, temporary_files
from beam_pipeline.run.watching import Watch, reporter, watching
from beam_pipeline.run.workers import Workers, can_fork
from beam_pipeline.transforms.own_code import by_value
from beam_pipeline.write.element_blocks import (
    BlockEncoder,
    BlockResult,
    StoredBlock,
    count_sources,
    write_block,
)
from beam_pipeline.write.joined_shards import join_shard

_NOTHING_KEPT = "No data set was written. Give the same call again."


def run_elements(
    job: ElementSet,
    encoder: BlockEncoder,
    blocks: Sequence[StoredBlock],
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
    target, totals = job.target, Totals(job.sources or 0, 0.0)
    if beam_args:
        from beam_pipeline.pipeline.elements_graph import build_elements_pipeline

        def progress() -> tuple[Totals, int, float]:
            return totals, count_sources(target.receipts), 0.0

        with temporary_files(), watching(watch, progress):
            pipeline = pipeline_for(beam_args)
            build_elements_pipeline(pipeline, job, encoder, blocks)
            run_pipeline(pipeline, target.output, target.work, beam_args, _NOTHING_KEPT)
        return
    if workers is None:
        workers = len(os.sched_getaffinity(0)) if can_fork() else 1
    writers = max(1, min(workers, len(blocks)))
    work: Callable[[int], list[BlockResult]]
    work = partial(_write_share, job, encoder, blocks, writers)
    if writers > 1 and not can_fork():
        # A new interpreter does not have the classes of the caller's script.
        work = partial(_write_pickled, by_value(work))
    with Workers() as processes:
        look = reporter(watch, totals, processes.states(writers))
        answers = processes.run(work, writers, look=look, advice=_NOTHING_KEPT)
    results = list(chain.from_iterable(answers))
    infos = [
        join_shard(shard, target.output, target.drafts, may_move=True)
        for shard in lay_out(job, results)
    ]
    finish_elements(job, infos, results)


def _write_share(
    job: ElementSet,
    encoder: BlockEncoder,
    blocks: Sequence[StoredBlock],
    writers: int,
    writer: int,
) -> list[BlockResult]:
    """Writes every ``writers``-th block."""
    # One thread, as on every runner: sums depend on the threads.
    with threadpool_limits(1):
        return [
            write_block(block, encoder, job.sizes, job.target)
            for block in blocks[writer::writers]
        ]


def _write_pickled(share: bytes, writer: int) -> list[BlockResult]:
    results: list[BlockResult] = pickle.loads(share)(writer)
    return results
