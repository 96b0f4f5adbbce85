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
import glob
import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import traceback
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from multiprocessing.connection import Connection, wait
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_pipeline import files
from beam_pipeline.blocks import ShardWork
from beam_pipeline.errors import AudioTFRecordsError, WorkerDied
from beam_pipeline.finish import PlanSummary, finish_data_set
from beam_pipeline.pipeline import Job, Planned, place_clips, plan_shards, write_shards
from beam_pipeline.progress import PHASES, Totals
from beam_pipeline.stages import Progress

# Below this much audio a second process costs more than it brings.
SECONDS_PER_WRITER = 600.0
POLL_S = 0.2
THREADED = {"tensorflow", "obstore"}  # have threads that Python does not know of
_STEP = "[while running "

Watch = Callable[[int, float], None]


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
        planned = plan_shards(pipeline, job)
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
            placed = place_clips(pipeline, job)
            keep(placed.summary, folder, "summary")
            keep(placed.rejects, folder, "rejects")
        return next(kept(folder, "summary")), list(kept(folder, "rejects"))


@contextmanager
def phase_folder(job: Job) -> Iterator[str]:
    """An empty folder on this machine for what phases hand on to each other."""
    if not files.is_local(job.work_folder):
        with tempfile.TemporaryDirectory(prefix="audio-tfrecords-") as folder:
            yield folder
        return
    folder = files.join(job.work_folder, PHASES)
    # Left by a run that was cut off; finished shards stay.
    files.delete_below(folder)
    yield folder


@contextmanager
def in_memory_pipeline() -> Iterator[beam.Pipeline]:
    """A pipeline that runs in this process when the block ends.

    Errors of ours come out as they were raised, without the step's name in the middle.
    """
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=_Options([]))
    yield pipeline
    try:
        pipeline.run().wait_until_finish()
    except Exception as error:
        raise original(error) from error


class _Options(PipelineOptions):  # type: ignore[misc]
    """Options that make each view of themselves once.

    Beam asks for views hundreds of times while it builds a pipeline, and each makes an
    argument parser: a quarter of the time that a small job takes.
    """

    def view_as(self, cls: type) -> Any:
        views = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]


def original(error: BaseException) -> BaseException:
    """The error of ours that a runner has wrapped, or the error itself.

    Beam raises a copy with the step's name in its first argument; ours is its context.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, AudioTFRecordsError) and _STEP not in str(seen.args[0]):
            return seen
        seen = seen.__cause__ or seen.__context__
    return error


@dataclass(eq=False)
class Keep(beam.DoFn):  # type: ignore[misc]
    """Writes each bundle's elements to a file of their own, for another phase.

    Only for the in-memory runner, which runs no bundle twice.
    """

    folder: str

    def start_bundle(self) -> None:
        os.makedirs(self.folder, exist_ok=True)
        self._file = open(os.path.join(self.folder, uuid.uuid4().hex), "wb")  # noqa: SIM115

    def process(self, element: Any) -> None:
        pickle.dump(element, self._file, pickle.HIGHEST_PROTOCOL)

    def finish_bundle(self) -> None:
        self._file.close()


def keep(collection: beam.PCollection, folder: str, name: str) -> None:
    """Keeps a collection for another phase."""
    collection | f"Keep {name}" >> beam.ParDo(Keep(os.path.join(folder, name)))


def kept(folder: str, name: str) -> Iterator[Any]:
    """The elements that earlier phases of this run have kept."""
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), name, "*"))):
        with open(path, "rb") as file:
            while file.peek(1):
                yield pickle.load(file)


def kept_work(writer: int, folder: str, writers: int) -> Iterator[ShardWork]:
    """Every ``writers``-th shard of the plan."""
    for work in kept(folder, "work"):
        if work.task.shard.number % writers == writer:
            yield work


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


def write_phase(job: Job, folder: str, writer: int, writers: int, shared: Any) -> None:
    """Writes every ``writers``-th shard of the kept plan."""
    Progress.watched = memoryview(shared).cast("B").cast("d")[2 * writer :]
    try:
        with in_memory_pipeline() as pipeline:
            work = (
                pipeline
                | "Writer" >> beam.Create([writer], reshuffle=False)
                | "MyShards" >> beam.FlatMap(kept_work, folder, writers)
            )
            written = write_shards(work, job)
            keep(written.infos, folder, "infos")
            keep(written.rejects, folder, "lost")
            keep(written.observed, folder, "observed")
    finally:
        Progress.watched = None


@contextmanager
def writer_processes(
    job: Job, folder: str, writers: int, shared: Any
) -> Iterator[list[Any]]:
    """The writers, as (process, pipe of its failure); they end with the block."""
    # A fork takes milliseconds and a fresh interpreter seconds, but only a process
    # without threads, and without libraries that have some, can be forked safely.
    can_fork = sys.platform == "linux" and threading.active_count() == 1
    method = "fork" if can_fork and not THREADED & set(sys.modules) else "spawn"
    context: Any = multiprocessing.get_context(method)
    started = []
    try:
        with _hidden_main(), _frozen_memory():
            for writer in range(writers):
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(
                    target=_writer_main,
                    args=(job, folder, writer, writers, shared, theirs),
                    name=f"writer {writer}",
                    daemon=True,
                )
                process.start()
                theirs.close()
                started.append((process, ours))
        yield started
    finally:
        for process, _ in started:
            if process.is_alive():
                process.kill()
            process.join()


def wait_for(processes: list[Any]) -> None:
    """Waits for all writers to end well.

    Raises
    ------
    AudioTFRecordsError
        What the first to fail has raised.
    WorkerDied
        If one ended without a word.
    """
    for process, failure in _ended(processes):
        if failure is not None:
            details = failure.args[1:] if isinstance(failure, WorkerDied) else ()
            raise failure from RuntimeError(*details) if details else None
        if process.exitcode != 0:
            raise WorkerDied(_obituary(process))


@contextmanager
def _frozen_memory() -> Iterator[None]:
    """Processes that are forked in the block never look for garbage in what is here.

    A collection would copy all of it.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _hidden_main() -> Iterator[None]:
    """Keeps a fresh interpreter from running the caller's script a second time.

    Nothing in it is needed: transforms live in modules.
    """
    main = vars(sys.modules["__main__"])
    hidden = {name: main.get(name) for name in ("__file__", "__spec__")}
    main.pop("__file__", None)
    main["__spec__"] = None
    try:
        yield
    finally:
        main.update({n: v for n, v in hidden.items() if v or n == "__spec__"})


def _ended(started: list[Any]) -> Iterator[tuple[Any, BaseException | None]]:
    """Each process as it ends, with the error that it sent."""
    waiting = {process.sentinel: (process, pipe) for process, pipe in started}
    while waiting:
        for sentinel in wait(list(waiting)):
            process, pipe = waiting.pop(sentinel)
            process.join()
            try:
                failure = pipe.recv() if pipe.poll() else None
            except EOFError:
                failure = None
            yield process, failure


def _obituary(process: Any) -> str:
    code = process.exitcode
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
    hint = ""
    if code == -signal.SIGKILL:
        hint = " It may have run out of memory: try fewer --workers."
    return (
        f"A worker process ended early ({process.name}, {how}).{hint} The shards that "
        "were finished are kept: give the same command again to continue."
    )


def _writer_main(
    job: Job, folder: str, writer: int, writers: int, shared: Any, pipe: Connection
) -> None:
    """One writer: ends with its parent, and sends home what it raises."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        write_phase(job, folder, writer, writers, shared)
    except AudioTFRecordsError as error:
        pipe.send(error)
        sys.exit(1)
    except Exception as error:  # sent home, where it is raised again
        first = error
        while first.__cause__ is not None:  # what runners wrap is the cause
            first = first.__cause__  # type: ignore[assignment]
        lines = str(first).strip().splitlines() or [""]
        reason = f"{type(first).__name__}: {lines[-1]}"
        pipe.send(
            WorkerDied(
                f"A worker failed (writer {writer}, {reason}). The shards that were "
                "finished are kept: give the same command again to continue.",
                traceback.format_exc(),
            )
        )
        sys.exit(1)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


@contextmanager
def reporting(
    watch: Callable[[Totals], Watch] | None, totals: Totals, shared: Any
) -> Iterator[None]:
    """Tells the watcher the sums of the shared numbers while the block runs."""
    if watch is None:
        yield
        return
    report = watch(totals)
    done = threading.Event()

    def tell() -> None:
        report(int(sum(shared[0::2])), sum(shared[1::2]))

    def keep_telling() -> None:
        while not done.wait(POLL_S):
            tell()

    thread = threading.Thread(target=keep_telling, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        tell()
