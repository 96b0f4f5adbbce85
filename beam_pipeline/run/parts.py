"""Runs a job of unknown number of examples: on this machine, or on a runner of Beam."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from threadpoolctl import threadpool_limits

from beam_pipeline.dataset.parts_job import PartsJob, finish_parts, finished_sources
from beam_pipeline.dataset.work_folder import Totals
from beam_pipeline.errors import WorkerDied
from beam_pipeline.run.engine import pipeline_for, run_pipeline, temporary_files
from beam_pipeline.run.watching import Watch, reporting, reporting_work
from beam_pipeline.run.writer_processes import (
    can_fork,
    wait_for,
    writer_processes,
)
from beam_pipeline.write.counters import ProcessCounter
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
        See :func:`beam_pipeline.run.watching.reporting`; it counts sources.

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
    shared = multiprocessing.RawArray("d", 2 * writers)
    if writers == 1:
        with reporting(watch, Totals(job.sources or 0, 0.0), shared):
            result = merge_results(_write_blocks(job, job.blocks, shared, 0))
    else:
        result = merge_results(_in_processes(job, writers, shared, watch))
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


def _write_blocks(
    job: PartsJob, blocks: Sequence[BlockRef], shared: Any, writer: int
) -> Iterator[BlockResult]:
    # One thread, as on every runner: sums depend on the threads.
    with ProcessCounter.counting(shared, writer), threadpool_limits(1):
        for ref in blocks:
            yield write_block(ref, job.encoder, job.sizes, job.parts)


def _in_processes(
    job: PartsJob, writers: int, shared: Any, watch: Any
) -> list[BlockResult]:
    # A new interpreter does not have the classes of the caller's script.
    given = job if can_fork() else by_value(job)
    results = []
    with tempfile.TemporaryDirectory(prefix="audio-tfrecords-") as folder:
        write = partial(_write_share, given, folder, writers, shared)
        with (
            writer_processes(write, writers) as processes,
            reporting(watch, Totals(job.sources or 0, 0.0), shared),
        ):
            wait_for(processes, _NOTHING_KEPT)
        for writer in range(writers):
            path = os.path.join(folder, str(writer))
            if not os.path.exists(path):
                raise WorkerDied(
                    f"A worker process ended early (writer {writer}): code that it ran "
                    "called exit(). No data set was written."
                )
            with open(path, "rb") as file:
                results.append(pickle.load(file))
    return results


def by_value(value: Any) -> bytes:
    """Pickles a value with the classes of the caller's script in it."""
    from apache_beam.internal.cloudpickle import cloudpickle

    return bytes(cloudpickle.dumps(value))


def _write_share(
    given: PartsJob | bytes, folder: str, writers: int, shared: Any, writer: int
) -> None:
    """Writes every ``writers``-th block; stores the result for the parent."""
    if isinstance(given, bytes):
        given = pickle.loads(given)
    assert isinstance(given, PartsJob)
    blocks = given.blocks[writer::writers]
    result = merge_results(_write_blocks(given, blocks, shared, writer))
    with open(os.path.join(folder, str(writer)), "wb") as file:
        pickle.dump(result, file, pickle.HIGHEST_PROTOCOL)


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
