"""How far a run is: reports it to a watcher during the run.

A watcher is a function that takes the totals of the plan and returns a function that
takes the examples and the seconds of audio written so far.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from beam_pipeline.dataset.work_folder import (
    NOTHING,
    WRITING,
    RunProgress,
    Totals,
    find_run,
    read_progress,
)
from beam_pipeline.errors import InputError, StoreError
from beam_pipeline.marks import WorkerState

WATCH_S = 2.0  # how often to look at a work folder, perhaps on an object store

Watch = Callable[[int, float], None]
Progress = Callable[[], RunProgress]


class Reporter:
    """Reports the progress of a run to a watcher; what is reported never goes back.

    Between two looks at the progress, some seconds pass. Without a watcher, nothing is
    looked at.
    """

    def __init__(
        self,
        watch: Callable[[Totals], Watch] | None,
        progress: Progress,
        seconds: float = 0.0,
    ):
        self._watch = watch
        self._progress = progress
        self._seconds = seconds
        self._next = 0.0
        self._report: Watch | None = None
        self._totals = NOTHING
        self._most = (0, 0.0)

    def look(self) -> None:
        """Reports how far the run is now, if its plan is known."""
        if self._watch is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._seconds
        # The run deletes its folder at the end: a look may fail, or miss receipts.
        with suppress(OSError, InputError, StoreError):
            found = self._progress()
            self._most = max(self._most, (int(found.examples), found.seconds))
            if self._report is None and found.state == WRITING:
                self._report, self._totals = self._watch(found.totals), found.totals
            if self._report is not None:
                self._report(*self._most)

    def finish(self, written: Totals = NOTHING) -> None:
        """Reports that all is done, also if it was before anything was reported.

        ``written`` is what the run has written, as far as it is known.
        """
        if self._report is None and self._watch is not None and written.examples:
            self._report, self._totals = self._watch(written), written
        if self._report is not None and self._totals.examples:
            self._report(*self._totals)


def reporter(
    watch: Callable[[Totals], Watch] | None,
    totals: Totals,
    states: Sequence[WorkerState],
) -> Callable[[], None] | None:
    """Returns a function that reports the progress of workers on this machine."""

    def progress() -> RunProgress:
        examples = sum(state.examples for state in states)
        return RunProgress(WRITING, totals, examples, sum(s.seconds for s in states))

    return None if watch is None else Reporter(watch, progress).look


@contextmanager
def watching(
    watch: Callable[[Totals], Watch] | None, progress: Progress
) -> Iterator[None]:
    """Reports the progress of a run, again and again, while the block runs."""
    found = None if watch is None else Reporter(watch, progress)
    with repeating(None if found is None else found.look, WATCH_S):
        yield
    if found is not None:
        found.finish()


def follow(run_folder: str) -> Iterator[RunProgress]:
    """Looks at a run, on whatever machine it is, until its data set is complete.

    Raises
    ------
    InputError
        If the folder holds neither a run nor a data set.
    AudioTFRecordsError
        The error that ended the run.
    """
    while (work := find_run(run_folder)) is not None:
        progress = read_progress(work)
        if progress.error is not None:
            raise progress.error
        yield progress
        time.sleep(WATCH_S)


@contextmanager
def repeating(look: Callable[[], None] | None, seconds: float) -> Iterator[None]:
    """Calls a function again and again, in a thread, while the block runs.

    It is called once more at the end. None: nothing is called.
    """
    if look is None:
        yield
        return
    done = threading.Event()

    def repeat() -> None:
        while not done.wait(seconds):
            look()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        look()
