"""The job on this machine: one plan, then its shards in as many processes as pay.

::

    this process     plan -> work folder            finish <- work folder
                            \\                     /
    writers 0..n-1           shards k, k+n, k+2n ..

The first two are pipelines in Beam's in-memory runner, made of the same parts as the
whole job, and the last is the same function. Beam's own multi-process mode is not used:
it takes seconds to start, waits for ever for a worker that died, and loses records.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack, suppress
from itertools import chain
from typing import Any

from beam_pipeline.dataset.finish import finish_data_set
from beam_pipeline.dataset.work_folder import Totals
from beam_pipeline.pipeline.graph import (
    Planned,
    find_clips,
    place_clips,
    plan_shards,
    sum_up,
)
from beam_pipeline.pipeline.job import Job
from beam_pipeline.plan.summary import PlanSummary
from beam_pipeline.run.phases import (
    in_memory_pipeline,
    keep,
    kept,
    phase_folder,
)
from beam_pipeline.run.watching import Watch, reporting
from beam_pipeline.run.writers import wait_for, write_phase, writer_processes

# Below this much audio a second process costs more than it brings.
SECONDS_PER_WRITER = 600.0


def run_local(
    job: Job,
    workers: int | None,
    watch: Callable[[Totals], Watch] | None = None,
) -> None:
    """Runs the job on this machine.

    Parameters
    ----------
    workers : int, optional
        Processes that write. Default: one a core, but no more than the plan has use
        for.
    watch : callable, optional
        Is called with the totals once they are known; what it returns is called with
        the examples and seconds written, now and then.

    Raises
    ------
    AudioTFRecordsError
        What a phase raised, or WorkerDied.
    """
    with phase_folder(job) as folder:
        plan_phase(job, folder)
        give_back_memory()
        summary: PlanSummary = next(kept(folder, "summary"))
        totals = totals_of(summary)
        writers = writers_for(summary, workers)
        shared = multiprocessing.RawArray("d", 2 * writers)
        with ExitStack() as running:
            if writers > 1:
                processes = running.enter_context(
                    writer_processes(job, folder, writers, shared)
                )
            # Only now: it starts a thread, and forking does not go with threads.
            running.enter_context(reporting(watch, totals, shared))
            if writers > 1:
                wait_for(processes)
            else:
                write_phase(job, folder, 0, 1, shared)
        finish_data_set(
            summary,
            kept(folder, "infos"),
            chain(kept(folder, "rejects"), kept(folder, "lost")),
            kept(folder, "manifest"),
            kept(folder, "observed"),
            output=job.output,
            work_folder=job.work_folder,
            recipe=job.recipe,
            max_rejected=job.max_rejected,
            columns=job.inputs[0].columns,
        )


def plan_phase(job: Job, folder: str) -> None:
    """Makes the plan and keeps it for the other phases."""
    with in_memory_pipeline() as pipeline:
        found = find_clips(pipeline, job)
        planned = plan_shards(found, place_clips(found, job), job)
        for name in Planned._fields:
            keep(getattr(planned, name), folder, name)


def give_back_memory() -> None:
    """Frees what the in-memory runner held, before writers inherit it."""
    gc.collect()
    with suppress(OSError, AttributeError):  # elsewhere than with glibc
        ctypes.CDLL("libc.so.6").malloc_trim(0)


def plan_local(job: Job) -> tuple[PlanSummary, list[Any]]:
    """The plan and the rejects by header; writes into the work folder alone."""
    with phase_folder(job) as folder:
        with in_memory_pipeline() as pipeline:
            found = find_clips(pipeline, job)
            summary = sum_up(found, place_clips(found, job), job)
            keep(summary, folder, "summary")
            keep(found.rejects, folder, "rejects")
        return next(kept(folder, "summary")), list(kept(folder, "rejects"))


def totals_of(summary: PlanSummary) -> Totals:
    """How much there is to write."""
    layouts = summary.layouts
    return Totals(
        sum(layout.total for layout in layouts.values()),
        sum(summary.seconds(split) for split in layouts),
    )


def writers_for(summary: PlanSummary, workers: int | None) -> int:
    """How many processes write."""
    shards = max((layout.shards for layout in summary.layouts.values()), default=1)
    if workers is None:
        cores = (
            len(os.sched_getaffinity(0))
            if sys.platform == "linux"
            else (os.cpu_count() or 1)
        )
        workers = min(cores, 1 + int(totals_of(summary).seconds / SECONDS_PER_WRITER))
    return max(1, min(workers, shards))
