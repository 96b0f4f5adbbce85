"""Finds the clips that end or stall the worker processes of a run.

::

    looks     marks that stay the same for too long, too much memory -> kill the worker
    deaths    whose clip was it? the second death at a clip          -> suspect

A suspect goes into the work folder, where the next process finds it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from beam_pipeline.dataset.suspect_files import changed_ns_of, write_suspect
from beam_pipeline.dataset.work_folder import delete_drafts_of
from beam_pipeline.errors import (
    ClipCrash,
    ClipError,
    ClipMemory,
    ClipTimeout,
    WorkerDied,
)
from beam_pipeline.inputs.sources import locate
from beam_pipeline.marks import Mark, WorkerState
from beam_pipeline.pipeline.job import Job
from beam_pipeline.plan.suspects import Suspect, Suspects, fault_of
from beam_pipeline.run.limits import Limits, own_bytes, resident_bytes
from beam_pipeline.run.worker_processes import WorkerProcess

# Somebody else ended the process, not what it was working on.
FROM_OUTSIDE = {"SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT"}

# More deaths than this are not the fault of single clips.
MOST_DEATHS = 200

# A clip is blamed for too much memory if at least this share of it came with the clip.
SHARE_OF_CLIP = 0.1

# A message says what a run waits for after this time, and each time it has doubled.
PATIENCE_S = 30.0

# The longest time between two looks that counts: the run may have been suspended.
MOST_BETWEEN_S = 1.0

_LOG = logging.getLogger(__name__)


class _Killed(NamedTuple):
    mark: Mark
    error: type[ClipError]


class _Clock:
    """How long a mark has stayed the same."""

    def __init__(self, mark: Mark) -> None:
        self.mark = mark
        self.age_s = 0.0
        self.told_at_s = PATIENCE_S


class Guard:
    """Watches workers, and decides what happens after one has died.

    Parameters
    ----------
    states
        The shared memory of each worker.
    holds : callable, optional
        Whether the work of a worker has clips of some suspects. A worker that has
        already ended works again then.
    """

    def __init__(
        self,
        job: Job,
        limits: Limits,
        states: Sequence[WorkerState],
        holds: Callable[[int, Suspects], bool] | None = None,
    ) -> None:
        self._job = job
        self._limits = limits
        self._states = states
        self._holds = holds
        self._suspects: list[Suspect] = []
        self._known = [0] * len(states)  # suspects when the worker's process started
        self._deaths: Counter[object] = Counter()
        self._killed: dict[int, _Killed] = {}
        self._one_thread: set[int] = set()
        self._clocks: dict[tuple[int, int], _Clock] = {}
        self._looked = time.monotonic()
        self._resident: dict[int, float] = {}
        self._before_clip: dict[int, tuple[object, float]] = {}
        self._exact_at = 0.0

    def begin(self, number: int) -> None:
        """Makes the shared memory of a worker ready for a new process."""
        self._states[number].clear()
        self._states[number].one_thread = number in self._one_thread
        self._known[number] = len(self._suspects)
        self._resident.pop(number, None)
        self._before_clip.pop(number, None)
        self._clocks = {key: c for key, c in self._clocks.items() if key[0] != number}

    def look(self, running: Mapping[int, WorkerProcess]) -> None:
        """Kills a worker whose clip takes too much time or memory.

        Raises
        ------
        WorkerDied
            If the run takes too much memory, and not for a single clip.
        """
        now = time.monotonic()
        passed = min(now - self._looked, MOST_BETWEEN_S)
        self._looked = now
        marks = {number: self._states[number].marks() for number in running}
        for number, worker in running.items():
            for mark in marks[number]:
                if self._overdue((number, mark.thread), mark, passed):
                    self._kill(number, worker, mark, ClipTimeout)
        self._look_at_memory(running, marks)

    def _overdue(self, key: tuple[int, int], mark: Mark, passed: float) -> bool:
        clock = self._clocks.get(key)
        if clock is None or clock.mark != mark:
            self._clocks[key] = _Clock(mark)
            return False
        clock.age_s += passed
        if clock.age_s >= clock.told_at_s:
            clock.told_at_s *= 2
            _LOG.warning(
                "%s has taken %.0f s; the time limit is %g s",
                mark, clock.age_s, self._limits.time_s,
            )  # fmt: skip
        return clock.age_s > self._limits.time_s

    def _look_at_memory(
        self,
        running: Mapping[int, WorkerProcess],
        marks: Mapping[int, Sequence[Mark]],
    ) -> None:
        used = {number: resident_bytes(run.pid) for number, run in running.items()}
        for number, size in used.items():
            clips = [fault_of(mark) for mark in marks[number]]
            if clips and self._before_clip.get(number, ("", 0.0))[0] != clips:
                before = self._resident.get(number, size)
                self._before_clip[number] = clips, before
            self._resident[number] = size
        limit = self._limits.memory_bytes
        total = sum(used.values())
        if total <= limit or total < self._exact_at:
            return
        own = {number: own_bytes(run.pid) for number, run in running.items()}
        if sum(own.values()) <= limit:
            self._exact_at = total + limit / 100
            return
        largest = max(own, key=lambda number: own[number])
        _, before = self._before_clip.get(largest, ("", 0.0))
        grown = self._resident[largest] - before
        if not marks[largest] or grown < SHARE_OF_CLIP * limit:
            raise WorkerDied(
                f"The processes of the run use {sum(own.values()) / 1e9:.1f} GB, but "
                f"`memory_limit` is {limit / 1e9:.1f} GB. No single clip is the cause. "
                "Try fewer `workers`, or raise `memory_limit`."
            )
        self._kill(largest, running[largest], marks[largest][0], ClipMemory)

    def _kill(
        self, number: int, worker: WorkerProcess, mark: Mark, error: type[ClipError]
    ) -> None:
        if number not in self._killed and not worker.has_ended():
            self._killed[number] = _Killed(mark, error)
            worker.kill()

    def after_death(self, number: int, worker: WorkerProcess, advice: str) -> None:
        """Finds out which clip a worker died of, which has sent no answer.

        Raises
        ------
        WorkerDied
            If it died of something else.
        """
        marks = self._states[number].marks()
        killed = self._killed.pop(number, None)
        delete_drafts_of(worker.pid, self._job.work_folder)
        self._deaths[""] += 1
        if killed is None and (worker.died_of() in FROM_OUTSIDE or not marks):
            raise WorkerDied(f"{worker.obituary()} {advice}")
        if self._deaths[""] > MOST_DEATHS:
            doing = "".join(f" at {mark}" for mark in marks)
            raise WorkerDied(
                f"{MOST_DEATHS} worker processes ended early, too many for single "
                f"clips; the last{doing}. {advice}"
            )
        if killed is not None and killed.error is ClipTimeout:
            if killed.mark in marks:  # otherwise it had just gone on
                self._accuse(killed.mark, ClipTimeout, worker)
        elif len(marks) > 1:
            self._one_thread.add(number)
        elif marks and (killed is None or fault_of(killed.mark) == fault_of(marks[0])):
            self._deaths[fault_of(marks[0])] += 1
            if self._deaths[fault_of(marks[0])] > 1:
                error = ClipCrash if killed is None else killed.error
                self._accuse(marks[0], error, worker)

    def works_again(self, number: int) -> bool:
        """Whether a worker that has ended must work again, for suspects found since."""
        new = self._suspects[self._known[number] :]
        return bool(new and self._holds and self._holds(number, Suspects(new)))

    def _accuse(
        self, mark: Mark, error: type[ClipError], worker: WorkerProcess
    ) -> None:
        limit, what = 0.0, mark.describe()
        if error is ClipTimeout:
            limit = self._limits.time_s
            reason = f"{what} took longer than the time limit of {limit:g} s"
        elif error is ClipMemory:
            limit = self._limits.memory_bytes
            reason = f"{what} took more than the {limit / 1e9:g} GB of the limit, twice"
        else:
            reason = f"{what} ended the process with {worker.died_of()}, twice"
        path = locate(self._job.inputs, mark.source, mark.filepath)
        suspect = Suspect(
            mark.row,
            mark.source,
            mark.filepath,
            mark.stage,
            error.__name__,
            reason,
            limit,
            changed_ns_of(path),
        )
        write_suspect(suspect, self._job.work_folder)
        self._suspects.append(suspect)
