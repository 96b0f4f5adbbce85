"""Runs work in processes of this machine, until all of it is done.

::

    this process       start -> look, look, ... -> answers
                         \\        ^ marks        /
    worker processes      work .................     ended or killed: started again
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Any, TypeVar

from beam_pipeline.errors import WorkerDied
from beam_pipeline.marks import Marks, WorkerState, new_state
from beam_pipeline.pipeline.job import Job
from beam_pipeline.plan.poison_clips import PoisonClips
from beam_pipeline.run.clip_watch import TIME_LIMIT_S, ClipWatch
from beam_pipeline.run.watching import repeating
from beam_pipeline.run.worker_processes import (
    Answer,
    WorkerProcess,
    can_fork,
    can_start,
    check_can_start,
)

_T = TypeVar("_T")

KEPT = "Finished shards are kept: give the same command again to continue."

LOOK_S = 0.2


class Workers:
    """Processes of this machine, which end with the ``with`` block.

    They wait for more work after an answer: a new process would cost time, and would
    have to load again what the first work has loaded.

    Parameters
    ----------
    time_limit : float, optional
        See :class:`beam_pipeline.recipe.options.RunOptions`.
    """

    def __init__(self, time_limit: float | None = None) -> None:
        self.limit_s = TIME_LIMIT_S if time_limit is None else time_limit
        self._has_limit = time_limit is not None
        self._states: list[WorkerState] = []
        self._running: dict[int, WorkerProcess] = {}
        self._idle: dict[int, WorkerProcess] = {}
        self._leaving: list[WorkerProcess] = []

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.dismiss()
        for worker in self._running.values():
            worker.kill()
        for worker in self._leaving:
            if kind is None:
                worker.join()
            else:
                worker.kill()

    def dismiss(self) -> None:
        """Lets the processes end that wait for work, and does not wait for that."""
        for worker in self._idle.values():
            worker.let_go()
            self._leaving.append(worker)
        self._idle = {}

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

    def call(
        self, work: Callable[[int], _T], job: Job, name: str, *, apart: bool = False
    ) -> _T:
        """Returns ``work(0)``, from a watched process if that is possible.

        The process may end early, and ``work`` is called again: it must begin afresh.
        """
        value: _T = self.run(work, 1, job, apart=apart, name=name)[0]
        return value

    def run(
        self,
        work: Callable[[int], Any],
        workers: int,
        job: Job | None = None,
        *,
        holds: Callable[[int, PoisonClips], bool] | None = None,
        look: Callable[[], None] | None = None,
        apart: bool = False,
        name: str = "writer {}",
        advice: str = KEPT,
    ) -> list[Any]:
        """Calls ``work`` with each number, each in a process; returns the answers.

        A single worker may be this process, see :meth:`are_watched`.

        Parameters
        ----------
        workers : int
            How many numbers there are.
        job : Job, optional
            Its clips are watched, see :class:`ClipWatch`, which also has ``holds``.
            Without it, a worker that ends early ends the run, and a single worker is
            this process.
        look : callable, optional
            Called several times a second, and at the end.
        apart : bool
            Whether a single worker must not be this process.
        name : str
            The name of a worker in errors.
        advice : str
            The end of the message if a worker ended early.

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
            with repeating(look, LOOK_S), Marks.kept_in(states[0]):
                return [work(0)]
        check_can_start(workers, None)
        watch = None
        if job is not None:
            watch = ClipWatch(job, states, self.limit_s, holds)
        answers: dict[int, Any] = {}
        waiting = list(range(workers))
        try:
            while waiting or self._running:
                for number in waiting:
                    if watch is not None:
                        watch.begin(number)
                    self._start(work, number, name.format(number))
                waiting = []
                _wait_for_any(list(self._running.values()))
                if look is not None:
                    look()
                if watch is not None:
                    watch.look(self._running)
                for number, worker in list(self._running.items()):
                    if not worker.has_ended():
                        continue
                    del self._running[number]
                    if worker.answer is not None:
                        self._idle[number] = worker
                        answers[number] = _value_of(worker.answer, advice)
                        continue
                    worker.kill()
                    if watch is None:
                        raise WorkerDied(f"{worker.exit_error()} {advice}")
                    watch.after_exit(number, worker, advice)
                    waiting.append(number)
                if watch is not None and not waiting:
                    waiting = [n for n in answers if watch.works_again(n)]
                    answers = {n: v for n, v in answers.items() if n not in waiting}
        finally:
            if look is not None:
                look()
        return [answers[number] for number in range(workers)]

    def _start(self, work: Callable[[int], Any], number: int, name: str) -> None:
        idle = self._idle.pop(number, None)
        if idle is not None:
            if idle.give(work, number, name):
                self._running[number] = idle
                return
            idle.kill()
        state = self._states[number]
        self._running[number] = WorkerProcess(work, number, name, state)


def _wait_for_any(workers: Sequence[WorkerProcess]) -> None:
    """Waits until a worker has answered or ended, but not for long."""
    ready = wait([end for worker in workers for end in worker.ends], LOOK_S)
    if ready and not any(worker.has_ended() for worker in workers):
        time.sleep(LOOK_S)  # a step has closed the files of its process


def _value_of(answer: Answer, advice: str) -> Any:
    value, error = answer
    if isinstance(error, WorkerDied):
        message, *details = error.args
        raise WorkerDied(f"{message} {advice}", *details) from (
            RuntimeError(*details) if details else None
        )
    if error is not None:
        raise error
    return value
