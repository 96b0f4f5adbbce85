"""Writer processes on this machine: how they start and end."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from typing import Any

from beam_pipeline.errors import AudioTFRecordsError, WorkerDied

KEPT = "Finished shards are kept: give the same command again to continue."

THREADED = {"tensorflow", "obstore"}  # their threads are not in threading's count


def can_fork() -> bool:
    """Whether new processes are forks of this one.

    A fork takes milliseconds and a new interpreter seconds, but only a process without
    threads, those of libraries included, can fork safely.
    """
    alone = sys.platform == "linux" and threading.active_count() == 1
    return alone and not THREADED & set(sys.modules)


@contextmanager
def writer_processes(write: Callable[[int], None], writers: int) -> Iterator[list[Any]]:
    """The writers, as (process, pipe for its error); killed at the end of the block.

    Each process calls ``write`` with its number.
    """
    context: Any = multiprocessing.get_context("fork" if can_fork() else "spawn")
    started = []
    try:
        with _hidden_main(), _frozen_memory():
            for writer in range(writers):
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(
                    target=_writer_main,
                    args=(write, writer, theirs),
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


def wait_for(processes: list[Any], advice: str = KEPT) -> None:
    """Waits until all writers have ended.

    Parameters
    ----------
    advice : str
        The end of the message if a writer died.

    Raises
    ------
    AudioTFRecordsError
        The error of the first writer that failed.
    WorkerDied
        If a writer ended without sending an error.
    """
    for process, failure in _ended(processes):
        if isinstance(failure, WorkerDied):
            message, *details = failure.args
            raise WorkerDied(f"{message} {advice}", *details) from (
                RuntimeError(*details) if details else None
            )
        if failure is not None:
            raise failure
        if process.exitcode != 0:
            raise WorkerDied(f"{_obituary(process)} {advice}")


@contextmanager
def _frozen_memory() -> Iterator[None]:
    """Exempts the objects of now from garbage collection in processes forked here.

    A collection writes to each object, and so would copy the memory they share.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


@contextmanager
def _hidden_main() -> Iterator[None]:
    """Keeps a new interpreter from running the caller's script a second time.

    Writers need nothing from it: transforms are in modules.
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
    """Each process when it has ended, with the error that it sent."""
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
    """The message for a process that sent no error."""
    code = process.exitcode
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit status {code}"
    hint = ""
    if code == -signal.SIGKILL:
        hint = " It may have run out of memory: try fewer `workers`."
    return f"A worker process ended early ({process.name}, {how}).{hint}"


def _writer_main(write: Callable[[int], None], writer: int, pipe: Connection) -> None:
    """The process of a writer: sends its error to its parent, and ends with it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_die_with_parent, daemon=True).start()
    try:
        write(writer)
    except AudioTFRecordsError as error:
        pipe.send(error)
        sys.exit(1)
    except Exception as error:  # the parent raises it
        first: BaseException = error
        while first.__cause__ is not None:  # runners wrap errors
            first = first.__cause__
        lines = str(first).strip().splitlines() or [""]
        reason = f"{type(first).__name__}: {lines[-1]}"
        pipe.send(
            WorkerDied(
                f"A worker failed (writer {writer}, {reason}).",
                traceback.format_exc(),
            )
        )
        sys.exit(1)


def _die_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)
