"""The job on this machine: one plan, then its shards, written by several processes.

::

    this process     plan -> work folder            finish <- work folder
                            \\                     /
    writers 0..n-1           shards k, k+n, k+2n ..

The plan is in :mod:`.local_plan`. The writers are pipelines in Beam's in-memory runner,
with the steps of the whole job; the end is the same function. Beam's own multi-process
mode takes seconds to start, waits for ever for a worker that died, and loses records.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from itertools import chain
from typing import Any

import apache_beam as beam

from beam_pipeline.dataset.finish import finish_data_set
from beam_pipeline.dataset.work_folder import Totals
from beam_pipeline.pipeline.graph import write_shards
from beam_pipeline.pipeline.job import Job
from beam_pipeline.plan.summary import PlanSummary
from beam_pipeline.run.local_plan import plan_phase
from beam_pipeline.run.phases import in_memory_pipeline, store
from beam_pipeline.run.stored import phase_folder, stored, stored_work
from beam_pipeline.run.watching import Watch, reporting
from beam_pipeline.run.writer_processes import wait_for, writer_processes
from beam_pipeline.write.counters import ProcessCounter

# Starting another process costs more time than it saves with less audio than this.
SECONDS_PER_WRITER = 600.0
# The memory of a smaller plan is not worth the time of collecting it.
MANY_CLIPS = 10_000


def run_local(
    job: Job,
    workers: int | None,
    watch: Callable[[Totals], Watch] | None = None,
) -> None:
    """Runs the job on this machine.

    Parameters
    ----------
    workers : int, optional
        Number of processes that write. Default: one for each core, but fewer for a
        small plan, see :func:`writers_for`.
    watch : callable, optional
        See :func:`beam_pipeline.run.watching.reporting`.

    Raises
    ------
    AudioTFRecordsError
        The error of a phase; WorkerDied if a process ended without one.
    """
    with phase_folder(job) as folder:
        summary = plan_phase(job, folder)
        if summary.listing.clips >= MANY_CLIPS:
            give_back_memory()
        totals = totals_of(summary)
        write_in_processes(job, folder, writers_for(summary, workers), totals, watch)
        finish_data_set(
            summary,
            stored(folder, "infos"),
            chain(stored(folder, "rejects"), stored(folder, "lost")),
            stored(folder, "manifest"),
            stored(folder, "observed"),
            output=job.output,
            work_folder=job.work_folder,
            recipe=job.recipe,
            max_rejected=job.max_rejected,
            columns=job.inputs[0].columns,
        )


def write_in_processes(
    job: Job,
    folder: str,
    writers: int,
    totals: Totals,
    watch: Callable[[Totals], Watch] | None = None,
) -> None:
    """Writes the shards of the stored plan; see :func:`run_local`."""
    shared = multiprocessing.RawArray("d", 2 * writers)
    with ExitStack() as running:
        if writers > 1:
            write = partial(write_phase, job, folder, writers, shared)
            processes = running.enter_context(writer_processes(write, writers))
        # After the writers: it starts a thread, and a process with threads must not
        # fork.
        running.enter_context(reporting(watch, totals, shared))
        if writers > 1:
            wait_for(processes)
        else:
            write_phase(job, folder, 1, shared, 0)


def write_phase(job: Job, folder: str, writers: int, shared: Any, writer: int) -> None:
    """Writes every ``writers``-th shard of the stored plan.

    ``shared`` is an array with two numbers for each writer: examples and seconds.
    """
    with ProcessCounter.counting(shared, writer), in_memory_pipeline() as pipeline:
        work = (
            pipeline
            | "Writer" >> beam.Create([writer], reshuffle=False)
            | "MyShards" >> beam.FlatMap(stored_work, folder, writers)
        )
        written = write_shards(work, job)
        store(written.infos, folder, "infos")
        store(written.rejects, folder, "lost")
        store(written.observed, folder, "observed")


def give_back_memory() -> None:
    """Frees the memory of the plan, before writers inherit it."""
    gc.collect()
    with suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def totals_of(summary: PlanSummary) -> Totals:
    """Returns the number of examples, and the seconds of audio, of a plan."""
    layouts = summary.layouts
    return Totals(
        sum(layout.total for layout in layouts.values()),
        sum(summary.seconds(split) for split in layouts),
    )


def writers_for(summary: PlanSummary, workers: int | None) -> int:
    """Returns the number of processes that write: at most one for each shard.

    ``workers`` is the number that the user wants. None means one for each core, but no
    more than one for each ten minutes of audio, rounded up.
    """
    shards = max((layout.shards for layout in summary.layouts.values()), default=1)
    if workers is None:
        cores = (
            len(os.sched_getaffinity(0))
            if sys.platform == "linux"
            else (os.cpu_count() or 1)
        )
        workers = min(cores, 1 + int(totals_of(summary).seconds / SECONDS_PER_WRITER))
    return max(1, min(workers, shards))
