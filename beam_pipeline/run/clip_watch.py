"""Finds the clips that end or stall the worker processes of a run.

::

    looks    the mark of a worker stays the same for too long    -> kill the worker
    exits    at which clip? the second exit at the same clip     -> poison clip

A poison clip goes into the work folder, where the next process finds it.
"""

from __future__ import annotations

import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from beam_pipeline.dataset.work_folder import delete_drafts_of
from beam_pipeline.errors import ClipCrash, ClipTimeout, WorkerDied
from beam_pipeline.inputs.sources import locate
from beam_pipeline.marks import Mark, WorkerState
from beam_pipeline.pipeline.job import Job
from beam_pipeline.plan.poison_clips import (
    Cause,
    PoisonClip,
    PoisonClips,
    cause_of,
    changed_ns_of,
    write_poison_clip,
)
from beam_pipeline.run.worker_processes import FROM_OUTSIDE, WorkerProcess

TIME_LIMIT_S = 600.0

# More exits than this are not the fault of single clips.
MOST_EXITS = 200

# A message says what a run waits for after this time, and each time it has doubled.
PATIENCE_S = 30.0

# The longest time between two looks that counts: the run may have been suspended.
MOST_BETWEEN_S = 1.0

_LOG = logging.getLogger(__name__)


@dataclass
class _Clock:
    """How long a mark has stayed the same."""

    mark: Mark | None
    age_s: float = 0.0
    told_at_s: float = PATIENCE_S


class ClipWatch:
    """Watches workers, and decides what happens after one has ended.

    Parameters
    ----------
    states
        The shared memory of each worker.
    limit_s : float
        How long a step may take for one block of a clip.
    holds : callable, optional
        Whether the work of a worker has some poison clips. A worker that has answered
        works again then.
    """

    def __init__(
        self,
        job: Job,
        states: Sequence[WorkerState],
        limit_s: float,
        holds: Callable[[int, PoisonClips], bool] | None = None,
    ) -> None:
        self._job = job
        self._states = states
        self._limit_s = limit_s
        self._holds = holds
        self._found: list[PoisonClip] = []
        self._known = [0] * len(states)  # poison clips when the worker began
        self._exits = 0
        self._exits_at = Counter[Cause]()
        self._one_thread: set[int] = set()
        self._clocks: dict[int, _Clock] = {}
        self._killed_at: dict[int, Mark] = {}
        self._looked = time.monotonic()

    def begin(self, number: int) -> None:
        """Makes the shared memory of a worker ready before it begins."""
        self._states[number].clear()
        self._states[number].one_thread = number in self._one_thread
        self._known[number] = len(self._found)
        self._clocks.pop(number, None)

    def look(self, running: Mapping[int, WorkerProcess]) -> None:
        """Kills each worker whose clip takes too much time."""
        now = time.monotonic()
        passed = min(now - self._looked, MOST_BETWEEN_S)
        self._looked = now
        for number, worker in running.items():
            mark = self._states[number].mark()
            clock = self._clocks.get(number)
            if mark is None or clock is None or clock.mark != mark:
                self._clocks[number] = _Clock(mark)
                continue
            clock.age_s += passed
            if clock.age_s >= clock.told_at_s:
                clock.told_at_s *= 2
                _LOG.warning(
                    "%s has taken %.0f s; the time limit is %g s",
                    mark, clock.age_s, self._limit_s,
                )  # fmt: skip
            late = clock.age_s > self._limit_s and number not in self._killed_at
            if late and not worker.has_ended():
                self._killed_at[number] = mark
                worker.kill()

    def after_exit(self, number: int, worker: WorkerProcess, advice: str) -> None:
        """Finds out at which clip a worker ended, which has sent no answer.

        Raises
        ------
        WorkerDied
            If no clip was the cause.
        """
        mark = self._states[number].mark()
        killed_at = self._killed_at.pop(number, None)
        delete_drafts_of(worker.pid, self._job.work_folder)
        self._exits += 1
        from_outside = killed_at is None and worker.exit_text() in FROM_OUTSIDE
        if from_outside or (mark is None and killed_at is None):
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
        self._exits_at[cause_of(mark)] += 1
        if self._exits_at[cause_of(mark)] == 2:
            self._reject(mark, None if killed_at else worker.exit_text())

    def works_again(self, number: int) -> bool:
        """Whether a worker that has answered must work again, for new poison clips."""
        new = self._found[self._known[number] :]
        return bool(new and self._holds and self._holds(number, PoisonClips(new)))

    def _reject(self, mark: Mark, exit_text: str | None) -> None:
        if exit_text is None:
            error, limit_s = ClipTimeout.__name__, self._limit_s
            reason = f"took longer than the time limit of {limit_s:g} s, twice"
        else:
            error, limit_s = ClipCrash.__name__, 0.0
            reason = f"ended the process with {exit_text}, twice"
        path = locate(self._job.inputs, mark.source, mark.filepath)
        clip = PoisonClip(
            mark.row,
            mark.source,
            mark.filepath,
            mark.stage,
            error,
            f"{mark.describe()} {reason}",
            limit_s,
            changed_ns_of(path),
        )
        write_poison_clip(clip, self._job.work_folder)
        self._found.append(clip)
