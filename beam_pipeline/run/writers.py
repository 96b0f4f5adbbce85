"""Writer processes on this machine: starting them, and learning how each ended."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any

import apache_beam as beam

from beam_pipeline.errors import AudioTFRecordsError, WorkerDied
from beam_pipeline.pipeline.graph import write_shards
from beam_pipeline.pipeline.job import Job
from beam_pipeline.run.phases import in_memory_pipeline, keep, kept_work
from beam_pipeline.write.counters import ProcessCounter

THREADED = {"tensorflow", "obstore"}  # have threads that Python does not know of


def write_phase(job: Job, folder: str, writer: int, writers: int, shared: Any) -> None:
    """Writes every ``writers``-th shard of the kept plan."""
    ProcessCounter.watched = memoryview(shared).cast("B").cast("d")[2 * writer :]
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
        ProcessCounter.watched = None


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
