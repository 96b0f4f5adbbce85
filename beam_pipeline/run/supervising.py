"""Runs work in processes of this machine, until all of it is done.

::

    this process       start -> look, look, ... -> answers
                         \\        ^ marks        /
    worker processes      work .................     killed or dead: started again
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from typing import Any, TypeVar

from beam_pipeline.errors import WorkerDied
from beam_pipeline.marks import Marks, WorkerState, new_states
from beam_pipeline.pipeline.job import Job
from beam_pipeline.run.guard import Guard
from beam_pipeline.run.limits import NO_LIMITS, Limits
from beam_pipeline.run.worker_processes import Answer, WorkerProcess, can_fork

_T = TypeVar("_T")

KEPT = "Finished shards are kept: give the same command again to continue."

LOOK_S = 0.2


class Workers:
    """Processes of this machine; killed at the end of the ``with`` block.

    One process that has answered is kept for the work that follows, because it knows
    what the first work has taught it, and a new one would cost time.
    """

    def __init__(self, limits: Limits = NO_LIMITS) -> None:
        self.limits = limits
        self._running: dict[int, WorkerProcess] = {}
        self._idle: WorkerProcess | None = None
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

    def are_watched(self) -> bool:
        """Whether even a single worker has a process, which is watched.

        Where a fork is not possible, a process takes seconds to start, and small jobs
        run in this one; unless the user has set a limit.
        """
        return can_fork() or self.limits.given

    def dismiss(self) -> None:
        """Lets the process end that waits for work."""
        if self._idle is not None:
            self._let_go(self._idle)
        self._idle = None

    def _let_go(self, worker: WorkerProcess) -> None:
        # To end takes a process some time, for which nobody needs to wait.
        worker.let_go()
        self._leaving.append(worker)

    def states(self, workers: int) -> list[WorkerState]:
        """Returns the shared memory of some workers, the first that of the idle one."""
        if self._idle is None:
            return new_states(workers)
        return [self._idle.state, *new_states(workers - 1)]

    def call(self, work: Callable[[int], _T], job: Job, name: str) -> _T:
        """Returns ``work(0)``, from a watched process if that is possible.

        The process may die, and ``work`` is called again: it must begin afresh.
        """
        states = self.states(1)
        if not self.are_watched():
            with Marks.kept_in(states[0]):
                return work(0)
        guard = Guard(job, self.limits, states)
        value: _T = self.run(work, states, guard, name=name)[0]
        return value

    def run(
        self,
        work: Callable[[int], Any],
        states: Sequence[WorkerState],
        guard: Guard | None = None,
        *,
        look: Callable[[], None] | None = None,
        name: str = "writer {}",
        advice: str = KEPT,
    ) -> list[Any]:
        """Calls ``work`` with each number, each in a process; returns the answers.

        Parameters
        ----------
        states
            From :meth:`states`, for as many workers as wanted.
        guard : Guard, optional
            Watches the processes. Without it, a worker that dies ends the run.
        look : callable, optional
            Called several times a second, and at the end.
        name : str
            The name of a worker in errors.
        advice : str
            The end of the message if a worker died.

        Raises
        ------
        AudioTFRecordsError
            The error of the first worker that failed.
        WorkerDied
            If a worker ended without sending an error, not because of a clip.
        """
        answers: dict[int, Any] = {}
        waiting = list(range(len(states)))
        try:
            while waiting or self._running:
                for number in waiting:
                    if guard is not None:
                        guard.begin(number)
                    self._start(work, number, name.format(number), states[number])
                waiting = []
                _wait_for_any(list(self._running.values()))
                if look is not None:
                    look()
                if guard is not None:
                    guard.look(self._running)
                for number, worker in list(self._running.items()):
                    if not worker.has_ended():
                        continue
                    if worker.answer is None:
                        _mourn(number, worker, guard, advice)
                        waiting.append(number)
                    else:
                        answers[number] = _value_of(worker.answer, advice)
                        self._release(worker)
                    del self._running[number]
                if guard is not None and not waiting:
                    waiting = [n for n in answers if guard.works_again(n)]
                    answers = {n: v for n, v in answers.items() if n not in waiting}
        finally:
            if look is not None:
                look()
        return [answers[number] for number in range(len(states))]

    def _start(
        self, work: Callable[[int], Any], number: int, name: str, state: WorkerState
    ) -> None:
        idle = self._idle
        if idle is not None and idle.state is state:
            self._idle = None
            if idle.give(work, number, name):
                self._running[number] = idle
                return
            idle.kill()
        self._running[number] = WorkerProcess(work, number, name, state)

    def _release(self, worker: WorkerProcess) -> None:
        if self._idle is None:
            self._idle = worker
        else:
            self._let_go(worker)


def _wait_for_any(workers: Sequence[WorkerProcess]) -> None:
    """Waits until a worker has answered or died, but not for long."""
    ready = wait([end for worker in workers for end in worker.ends], LOOK_S)
    if ready and not any(worker.has_ended() for worker in workers):
        time.sleep(LOOK_S)  # a step has closed the files of its process


def _mourn(
    number: int, worker: WorkerProcess, guard: Guard | None, advice: str
) -> None:
    worker.kill()
    if guard is None:
        raise WorkerDied(f"{worker.obituary()} {advice}")
    guard.after_death(number, worker, advice)


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
