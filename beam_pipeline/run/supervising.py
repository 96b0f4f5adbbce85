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
from beam_pipeline.run.limits import Limits
from beam_pipeline.run.worker_processes import WorkerProcess, can_fork

_T = TypeVar("_T")

KEPT = "Finished shards are kept: give the same command again to continue."

LOOK_S = 0.2


def is_guarded(limits: Limits) -> bool:
    """Whether work runs in processes that are watched, and not in this one.

    Where a fork is not possible, a process takes seconds to start, and small jobs run
    here; unless the user has set a limit.
    """
    return can_fork() or limits.given


def call_guarded(
    work: Callable[[int], _T], job: Job, limits: Limits, name: str = "plan"
) -> _T:
    """Returns ``work(0)``, from a watched process if that is possible.

    The process may die, and ``work`` is called again: it must begin from the start.
    """
    states = new_states(1)
    if not is_guarded(limits):
        with Marks.kept_in(states[0]):
            return work(0)
    value: _T = run_workers(work, states, Guard(job, limits, states), name=name)[0]
    return value


def run_workers(
    work: Callable[[int], Any],
    states: Sequence[WorkerState],
    guard: Guard | None = None,
    *,
    look: Callable[[], None] | None = None,
    name: str = "writer {}",
    advice: str = KEPT,
) -> list[Any]:
    """Calls ``work`` with each number in a process of its own; returns the answers.

    Parameters
    ----------
    states
        The shared memory of each worker, from
        :func:`beam_pipeline.marks.new_states`.
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
    running: dict[int, WorkerProcess] = {}
    waiting = list(range(len(states)))
    try:
        while waiting or running:
            for number in waiting:
                if guard is not None:
                    guard.begin(number)
                label, state = name.format(number), states[number]
                running[number] = WorkerProcess(work, number, label, state)
            waiting = []
            _wait_for_any(list(running.values()))
            if look is not None:
                look()
            if guard is not None:
                guard.look(running)
            for number, worker in list(running.items()):
                if not worker.has_ended():
                    continue
                del running[number]
                if worker.answer is None:
                    _mourn(number, worker, guard, advice)
                    waiting.append(number)
                else:
                    worker.join()
                    answers[number] = _value_of(worker, advice)
            if guard is not None and not waiting:
                waiting = [number for number in answers if guard.works_again(number)]
                answers = {n: v for n, v in answers.items() if n not in waiting}
    finally:
        for worker in running.values():
            worker.kill()
        if look is not None:
            look()
    return [answers[number] for number in range(len(states))]


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


def _value_of(worker: WorkerProcess, advice: str) -> Any:
    assert worker.answer is not None
    value, error = worker.answer
    if isinstance(error, WorkerDied):
        message, *details = error.args
        raise WorkerDied(f"{message} {advice}", *details) from (
            RuntimeError(*details) if details else None
        )
    if error is not None:
        raise error
    return value
