"""The job on this machine: one plan, then its shards, written by several processes.

::

    this process                                    finish <- work folder
    one process      plan -> work folder            /
    writers 0..n-1           shards k, k+n, k+2n ..

The plan is in :mod:`.local_plan`. The writers are pipelines in Beam's in-memory runner,
with the steps of the whole job; the end is the same function. Beam's own multi-process
mode takes seconds to start, waits for ever for a worker that died, and loses records.

A clip that ends or stalls a process is rejected, see :mod:`.guard`. So the plan, and a
single writer, have a process, too, if that starts fast; else they run in this one.
"""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any

import apache_beam as beam

from beam_pipeline.dataset.suspect_files import drop_cleared
from beam_pipeline.dataset.work_folder import Totals
from beam_pipeline.marks import Marks
from beam_pipeline.pipeline.finish import finish_job
from beam_pipeline.pipeline.graph import write_shards
from beam_pipeline.pipeline.job import Job
from beam_pipeline.pipeline.planner import planned_rejects, planned_work, read_plan
from beam_pipeline.plan.suspects import Suspects
from beam_pipeline.run.guard import Guard
from beam_pipeline.run.limits import Limits
from beam_pipeline.run.local_plan import plan_here
from beam_pipeline.run.phases import in_memory_pipeline, store
from beam_pipeline.run.stored import check_ours, phase_folder, stored
from beam_pipeline.run.supervising import Workers
from beam_pipeline.run.watching import Watch, reporter, reporting
from beam_pipeline.run.writers import totals_of, writers_for
from beam_pipeline.storage import files
from beam_pipeline.storage.pages import Pages

# The memory of a smaller plan is not worth the time of collecting it.
MANY_CLIPS = 10_000


def run_local(
    job: Job,
    workers: int | None,
    limits: Limits,
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
    with phase_folder(job) as folder, Workers(limits) as processes:
        drop_cleared(job.work_folder, job.inputs, limits)
        summary = plan_here(job, folder, processes)
        if summary.listing.clips >= MANY_CLIPS:
            processes.dismiss()
            give_back_memory()
        writers = writers_for(summary, workers)
        write_planned(job, folder, writers, processes, totals_of(summary), watch)
        processes.dismiss()
        plan = read_plan(folder)
        finish_job(
            summary,
            _stored_by_all(folder, writers, "infos"),
            chain(
                planned_rejects(plan, folder),
                _stored_by_all(folder, writers, "rejects"),
            ),
            Pages(folder, plan.manifest),
            job,
        )


def write_planned(
    job: Job,
    folder: str,
    writers: int,
    processes: Workers,
    totals: Totals,
    watch: Callable[[Totals], Watch] | None,
) -> None:
    """Writes the shards of the stored plan."""
    states = processes.states(writers)
    write = partial(write_phase, job, folder, writers)
    if writers == 1 and not processes.are_watched():
        with reporting(watch, totals, states), Marks.kept_in(states[0]):
            write(0)
        return
    guard = Guard(job, processes.limits, states, partial(_holds, folder, writers))
    processes.run(write, states, guard, look=reporter(watch, totals, states))


def write_phase(job: Job, folder: str, writers: int, writer: int) -> None:
    """Writes every ``writers``-th shard of the stored plan."""
    results = results_of(writer, folder)
    files.delete_below(results)  # a process before this one may have died
    with in_memory_pipeline() as pipeline:
        work = (
            pipeline
            | "Writer" >> beam.Create([writer], reshuffle=False)
            | "MyShards" >> beam.FlatMap(planned_work, folder, writers)
        )
        written = write_shards(work, job)
        shards = (written.finished, written.shards) | "AllShards" >> beam.Flatten()
        store(shards, results, "infos")
        store(written.rejects, results, "rejects")


def _stored_by_all(folder: str, writers: int, name: str) -> Iterator[Any]:
    """Yields what the writers have stored under a name, all of it."""
    for writer in range(writers):
        yield from stored(results_of(writer, folder), name)
    check_ours(folder)


def results_of(writer: int, folder: str) -> str:
    """The folder in which a writer stores what it has written."""
    return files.join(folder, f"writer-{writer}")


def _holds(folder: str, writers: int, writer: int, suspects: Suspects) -> bool:
    """Whether a writer's shards have examples of suspects."""
    return any(map(suspects.among, planned_work(writer, folder, writers)))


def give_back_memory() -> None:
    """Frees the memory of the plan, before writers inherit it."""
    gc.collect()
    with suppress(OSError, AttributeError):  # another C library than glibc
        ctypes.CDLL("libc.so.6").malloc_trim(0)
