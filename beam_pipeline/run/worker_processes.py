"""Worker processes on this machine: how one starts, answers and ends."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from beam_pipeline.errors import AudioTFRecordsError, OptionError, WorkerDied
from beam_pipeline.marks import Marks, WorkerState
from beam_pipeline.storage.claim import beating, without_heartbeats

# Their threads are not in threading's count.
THREADED = {"jax", "tensorflow", "obstore"}

# Signals that somebody else sends, and not what the process is working on.
FROM_OUTSIDE = {"SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"}

# How long a process may take to end after its answer. Threads of a step may hold it.
LAST_SECONDS = 5.0

_PR_SET_PDEATHSIG = 1  # from Linux' prctl.h


def can_fork() -> bool:
    """Whether new processes are forks of this one.

    A fork takes milliseconds and a new interpreter seconds, but only a process without
    threads, those of libraries included, can fork safely.
    """
    # Heartbeats rest while a process is forked.
    alone = sys.platform == "linux" and threading.active_count() - beating() <= 1
    return alone and sys.modules.keys().isdisjoint(THREADED) and can_start()


def can_start() -> bool:
    """Whether this process may start others; Python forbids it to daemonic ones."""
    return not multiprocessing.current_process().daemon


def check_can_start(workers: int | None, time_limit: float | None) -> None:
    """Checks the options of a run that need other processes.

    Raises
    ------
    OptionError
        If this process cannot start any.
    """
    values = {"workers": None if workers == 1 else workers, "time_limit": time_limit}
    for name, value in values.items():
        if value is not None and not can_start():
            raise OptionError(
                name,
                "needs other processes, which a daemonic process, such as a worker of "
                "multiprocessing.Pool, must not start; leave it out, or call from a "
                "process that is not daemonic",
                value,
            )


class Answer(NamedTuple):
    """What a worker sends before it ends: a value, or the error to raise."""

    value: Any
    error: BaseException | None = None


class WorkerProcess:
    """A process that calls ``work`` with its number, sends what it returns, and ends.

    ``state`` holds its marks and counts.
    """

    def __init__(
        self, work: Callable[[int], Any], number: int, name: str, state: WorkerState
    ) -> None:
        context: Any = multiprocessing.get_context("fork" if can_fork() else "spawn")
        self.answer: Answer | None = None
        self.state = state
        self._name = name
        self._pipe, theirs = context.Pipe()
        self._readable = True
        self._process = context.Process(
            target=_main, args=(work, number, name, state, theirs), name=name
        )
        self._process.daemon = True
        with _hidden_main(), _frozen_memory(), without_heartbeats():
            self._process.start()
        theirs.close()

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def ends(self) -> list[Any]:
        """What becomes readable when the process answers or dies."""
        return [self._process.sentinel, *([self._pipe] if self._readable else [])]

    def has_ended(self) -> bool:
        """Whether the process has answered or died."""
        alive = self._process.is_alive()
        if self._readable and self._pipe.poll():
            self._readable = False
            with suppress(EOFError, OSError):  # it died, or a step closed its files
                self.answer = self._pipe.recv()
        return self.answer is not None or not alive

    def exit_text(self) -> str:
        """How the process ended: ``SIGSEGV`` or ``exit status 1``."""
        code = self._process.exitcode
        return signal.Signals(-code).name if code < 0 else f"exit status {code}"

    def exit_error(self) -> str:
        """The message for a process that ended without an answer."""
        how = self.exit_text()
        if how == "SIGKILL":
            return (
                f"A worker process ({self._name}) was killed from outside ({how}): by "
                "the system, because memory was short, or by somebody. If memory was "
                "short, try fewer `workers`."
            )
        if how in FROM_OUTSIDE:
            return f"A worker process ({self._name}) was ended from outside ({how})."
        kind = "signal " if how.startswith("SIG") else ""
        return f"A worker process ended early ({self._name}, {kind}{how})."

    def join(self) -> None:
        """Waits until the process, which has answered, is gone."""
        self._process.join(LAST_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Ends the process, if it still runs."""
        if self._process.is_alive():
            self._process.kill()
        self._process.join()
        self._readable = False
        self._pipe.close()


def _main(
    work: Callable[[int], Any],
    number: int,
    name: str,
    state: WorkerState,
    pipe: Connection,
) -> None:
    """What the process runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _die_with_parent()
    with Marks.kept_in(state):
        try:
            answer = Answer(work(number))
        except AudioTFRecordsError as error:
            answer = Answer(None, error)
        except BaseException as error:  # the parent raises it
            answer = Answer(None, _failure(error, name, state))
    pipe.send(answer)


def _failure(error: BaseException, name: str, state: WorkerState) -> WorkerDied:
    """Returns the error for an exception that is none of this package."""
    first = error
    while first.__cause__ is not None:  # runners wrap errors
        first = first.__cause__
    lines = str(first).strip().splitlines() or [""]
    mark = state.mark()
    doing = "" if mark is None else f" at {mark}"
    reason = f"{name}, {type(first).__name__}: {lines[-1]}"
    return WorkerDied(f"A worker failed{doing} ({reason}).", traceback.format_exc())


def _die_with_parent() -> None:
    """Ends this process when its parent ends, however that happens."""
    parent: Any = multiprocessing.parent_process()
    if sys.platform == "linux":
        # Also in a step that never returns to Python, where no thread would run.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent.pid:
            os._exit(1)
        return
    threading.Thread(target=_exit_after, args=(parent.sentinel,), daemon=True).start()


def _exit_after(sentinel: Any) -> None:
    wait([sentinel])
    os._exit(1)


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

    Workers need nothing from it: transforms are in modules, or come by value.
    """
    main = vars(sys.modules["__main__"])
    hidden = {name: main.get(name) for name in ("__file__", "__spec__")}
    main.pop("__file__", None)
    main["__spec__"] = None
    try:
        yield
    finally:
        main.update({n: v for n, v in hidden.items() if v or n == "__spec__"})
