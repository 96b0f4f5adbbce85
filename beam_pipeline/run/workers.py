"""Processes of this machine: how they run work until all of it is done.

::

    this process       start -> look, look, ... -> answers
                         \\        ^ marks        /
    worker processes      work .................     ended or killed: started again

    looks    the mark of a worker stays the same for too long    -> kill the worker
    exits    at which clip? the second exit at the same clip     -> poison clip

A poison clip goes into the work folder, where the next process finds it.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar

from beam_pipeline.dataset.folders import CONTINUE, delete_drafts_of
from beam_pipeline.dataset.job import Job
from beam_pipeline.dataset.progress import UNWATCHED, Reporter
from beam_pipeline.errors import AudioTFRecordsError, OptionError, WorkerDied
from beam_pipeline.planning.clips import Exits
from beam_pipeline.process import Mark, MarkClock, Marks, WorkerState, new_state
from beam_pipeline.storage.claim import beating, without_heartbeats

_T = TypeVar("_T")

KEPT = f"Finished shards are kept. {CONTINUE}"

LOOK_S = 0.2

TIME_LIMIT_S = 600.0

# More exits than this are not the fault of single clips.
MOST_EXITS = 200

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


def limit_of(time_limit: float | None) -> float:
    """Returns how long a step may take for a block of a clip, in seconds."""
    return TIME_LIMIT_S if time_limit is None else time_limit


class WorkerProcess:
    """A process that calls ``work`` with its number, sends what it returns, and ends.

    ``state`` holds its marks and counts. A process ``with_children`` ends together with
    all processes that it has started, also if this process is killed.
    """

    def __init__(
        self,
        work: Callable[[int], Any],
        number: int,
        name: str,
        state: WorkerState,
        with_children: bool = False,
    ) -> None:
        context: Any = multiprocessing.get_context("fork" if can_fork() else "spawn")
        # A value, or the error to raise.
        self.answer: tuple[Any, BaseException | None] | None = None
        self.state = state
        self._name = name
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(
            target=_main,
            args=(work, number, name, state, theirs, with_children),
            name=name,
        )
        self._process.daemon = True
        with _hidden_main(), without_heartbeats():
            self._process.start()
        theirs.close()
        self._group_end = _group_end(self.pid) if with_children else None

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def ends(self) -> list[Any]:
        """What becomes readable when the process answers or dies."""
        return [self._process.sentinel, self._pipe]

    def has_ended(self) -> bool:
        """Whether the process has answered or died, or can answer no more."""
        if self.answer is not None or self._pipe.closed:
            return True
        if not self._pipe.poll():
            return not self._process.is_alive()
        with suppress(EOFError, OSError):  # it died, or a step closed its files
            self.answer = self._pipe.recv()
        return True

    def exit_text(self) -> str:
        """How the process ended: ``SIGSEGV`` or ``exit status 1``."""
        code = self._process.exitcode
        return signal.Signals(-code).name if code < 0 else f"exit status {code}"

    def exit_error(self) -> str:
        """The message for a process that ended without an answer."""
        how = self.exit_text()
        if how in FROM_OUTSIDE:
            return (
                f"A worker process ({self._name}) was ended from outside ({how}): by "
                "somebody, or by the system, because memory was short. If memory was "
                "short, try fewer `workers`."
            )
        return f"A worker process ended early ({self._name}, {how})."

    def join(self) -> None:
        """Waits until the process, which has answered, is gone."""
        self._process.join(LAST_SECONDS)
        self.kill()

    def kill(self) -> None:
        """Ends the process, if it still runs."""
        if self._process.is_alive():
            self._process.kill()
        if self._group_end is not None:
            self._group_end.communicate()
        self._process.join()
        self._pipe.close()


def _group_end(leader: int) -> subprocess.Popen[bytes]:
    """Starts what kills a group of processes when this process closes it, or dies."""
    script = 'cat; kill -s KILL -- "-$1"'
    return subprocess.Popen(
        ["sh", "-c", script, "sh", str(leader)],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,  # if all have ended
        start_new_session=True,  # the terminal's signals must not end it first
    )


def _main(
    work: Callable[[int], Any],
    number: int,
    name: str,
    state: WorkerState,
    pipe: Connection,
    leads_group: bool,
) -> None:
    """What the process runs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if leads_group:
        os.setpgid(0, 0)
    _die_with_parent()
    gc.freeze()  # a collection would write to the objects that a fork shares
    value = error = None
    with Marks.kept_in(state):
        try:
            value = work(number)
        except AudioTFRecordsError as raised:
            error = raised
        except BaseException as raised:  # the parent raises it
            error = _failure(raised, name, state)
    pipe.send((value, error))


def _failure(error: BaseException, name: str, state: WorkerState) -> WorkerDied:
    """Returns the error for an exception that is none of this package."""
    first = error
    while first.__cause__ is not None:  # runners wrap errors
        first = first.__cause__
    lines = str(first).strip().splitlines() or [""]
    mark = state.mark() or Marks.failed_at
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


class ClipWatch:
    """Watches workers, and decides what happens after one has ended.

    Parameters
    ----------
    job : Job, optional
        Whose clips are watched. Without it, each worker that ends early ends the run.
    states
        The shared memory of each worker.
    limit_s : float
        How long a step may take for one block of a clip.
    """

    def __init__(
        self, job: Job | None, states: Sequence[WorkerState], limit_s: float
    ) -> None:
        self._job = job
        self._states = states
        self._limit_s = limit_s
        self._exits = 0
        self._one_thread: set[int] = set()
        self._clocks = {n: MarkClock(limit_s) for n in range(len(states))}
        self._stalled: dict[int, Mark] = {}

    def begin(self, number: int) -> None:
        """Makes the shared memory of a worker ready before it begins."""
        self._states[number].clear()
        self._states[number].one_thread = number in self._one_thread
        self._clocks[number] = MarkClock(self._limit_s)

    def look(self, running: Mapping[int, WorkerProcess]) -> None:
        """Kills each worker whose clip takes too much time."""
        for number, worker in running.items():
            mark = self._states[number].mark()
            is_overdue = self._clocks[number].is_overdue(mark)
            if is_overdue and mark is not None and not worker.has_ended():
                self._stalled[number] = mark
                worker.kill()

    def after_exit(self, number: int, worker: WorkerProcess, advice: str) -> None:
        """Finds out at which clip a worker ended, which has sent no answer.

        Raises
        ------
        WorkerDied
            If no clip was the cause.
        """
        mark = self._states[number].mark()
        killed_at = self._stalled.pop(number, None)
        if (job := self._job) is not None:
            delete_drafts_of(worker.pid, job.work_folder, job.claim)
        self._exits += 1
        from_outside = killed_at is None and worker.exit_text() in FROM_OUTSIDE
        if job is None or from_outside or (mark is None and killed_at is None):
            raise WorkerDied(f"{worker.exit_error()} {advice}")
        if self._exits > MOST_EXITS:
            doing = "" if mark is None else f" at {mark}"
            raise WorkerDied(
                f"{MOST_EXITS} worker processes ended early, too many for single "
                f"clips; the last{doing}. {advice}"
            )
        if mark is None or killed_at not in (None, mark):
            return  # it went on just before it was killed
        if self._states[number].several:
            self._one_thread.add(number)
            return
        exits = Exits(job.inputs, job.work_folder, job.claim, self._limit_s)
        exits.note(mark, None if killed_at else worker.exit_text())


class Workers:
    """Processes of this machine, which end with the ``with`` block.

    Parameters
    ----------
    time_limit : float, optional
        See :class:`beam_pipeline.recipe.recipe.RunOptions`.
    """

    def __init__(self, time_limit: float | None = None) -> None:
        self.limit_s = limit_of(time_limit)
        self._has_limit = time_limit is not None
        self._states: list[WorkerState] = []
        self._running: dict[int, WorkerProcess] = {}
        self._answered: list[WorkerProcess] = []

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for worker in self._running.values():
            worker.kill()
        for worker in self._answered:
            if kind is None:
                worker.join()
            else:
                worker.kill()

    def states(self, workers: int) -> list[WorkerState]:
        """Returns the shared memory of the first workers."""
        while len(self._states) < workers:
            self._states.append(new_state())
        return self._states[:workers]

    def are_watched(self) -> bool:
        """Whether even a single worker has a process, which is watched.

        Where a fork is not possible, a process takes seconds to start, and small jobs
        run in this one; unless the user has set a limit.
        """
        return can_fork() or self._has_limit

    def call(self, work: Callable[[], _T], job: Job, name: str, **options: Any) -> _T:
        """Returns ``work()``, from a watched process if that is possible.

        The process may end early, and ``work`` is called again: it must begin afresh.
        The options are those of :meth:`run`.
        """
        call = partial(_without_number, work)
        value: _T = self.run(call, 1, job, name=name, **options)[0]
        return value

    def run(
        self,
        work: Callable[[int], Any],
        workers: int,
        job: Job | None = None,
        *,
        reporter: Reporter = UNWATCHED,
        apart: bool = False,
        name: str = "writer {}",
        advice: str = KEPT,
        with_children: bool = False,
    ) -> list[Any]:
        """Calls ``work`` with each number, each in a process; returns the answers.

        A single worker may be this process, see :meth:`are_watched`.

        Parameters
        ----------
        workers : int
            How many numbers there are.
        job : Job, optional
            See :class:`ClipWatch`. Without it, a single worker is this process.
        reporter : Reporter
            Looks several times a second, and at the end.
        apart : bool
            Whether a single worker must not be this process.
        name : str
            The name of a worker in errors.
        advice : str
            The end of the message if a worker ended early.
        with_children : bool
            See :class:`WorkerProcess`.

        Raises
        ------
        AudioTFRecordsError
            The error of the first worker that failed.
        WorkerDied
            If a worker ended without sending an error, not because of a clip.
        """
        states = self.states(workers)
        watched = apart or (job is not None and self.are_watched())
        if workers == 1 and not (watched and can_start()):
            states[0].clear()
            with reporter.looking(LOOK_S), Marks.kept_in(states[0]):
                return [work(0)]
        check_can_start(workers, None)
        watch = ClipWatch(job, states, self.limit_s)
        answers: dict[int, Any] = {}
        waiting = list(range(workers))
        try:
            while waiting or self._running:
                for number in waiting:
                    watch.begin(number)
                    self._running[number] = WorkerProcess(
                        work, number, name.format(number), states[number], with_children
                    )
                waiting = []
                wait([end for worker in self._running.values() for end in worker.ends],
                     LOOK_S)  # fmt: skip
                reporter.look()
                watch.look(self._running)
                for number, worker in list(self._running.items()):
                    if not worker.has_ended():
                        continue
                    del self._running[number]
                    if worker.answer is not None:
                        self._answered.append(worker)
                        answers[number] = _value_of(*worker.answer, advice)
                        continue
                    worker.kill()
                    watch.after_exit(number, worker, advice)
                    waiting.append(number)
        finally:
            reporter.look()
        return [answers[number] for number in range(workers)]


def _without_number(work: Callable[[], _T], number: int) -> _T:
    """Calls the work of the only worker, which needs no number."""
    return work()


def _value_of(value: Any, error: BaseException | None, advice: str) -> Any:
    """Returns the answer of a worker, or raises its error."""
    if isinstance(error, WorkerDied):
        message, *details = error.args
        raise WorkerDied(f"{message} {advice}", *details) from (
            RuntimeError(*details) if details else None
        )
    if error is not None:
        raise error
    return value
