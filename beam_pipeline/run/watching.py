"""How far a run is: reports it to a watcher during the run.

A watcher is a function that takes the totals of the plan and returns a function that
takes the examples and the seconds of audio written so far.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from beam_pipeline.dataset.work_folder import (
    RunProgress,
    Totals,
    find_run,
    read_progress,
)
from beam_pipeline.errors import InputError, StoreError
from beam_pipeline.marks import WorkerState

WATCH_S = 2.0  # how often to look at a work folder, perhaps on an object store

Watch = Callable[[int, float], None]


def reporter(
    watch: Callable[[Totals], Watch] | None,
    totals: Totals,
    states: Sequence[WorkerState],
) -> Callable[[], None] | None:
    """Returns a function that reports the progress of workers on this machine."""
    if watch is None:
        return None
    report, most = watch(totals), (0, 0.0)

    def look() -> None:
        nonlocal most
        done = sum(s.examples for s in states), sum(s.seconds for s in states)
        most = max(most, (int(done[0]), done[1]))  # a writer may begin again
        report(*most)

    return look


@contextmanager
def watching(work: str, watch: Callable[..., Any] | None) -> Iterator[None]:
    """Reports the progress that the work folder shows while the block runs."""
    if watch is None:
        yield
        return
    started: list[tuple[Totals, Callable[[int, float], Any]]] = []
    last = 0

    def look() -> None:
        nonlocal last
        # The run deletes its folder at the end: a look may fail, or miss receipts.
        with suppress(OSError, InputError, StoreError):
            progress = read_progress(work)
            if progress.totals.examples and progress.examples >= last:
                last = progress.examples
                if not started:
                    started.append((progress.totals, watch(progress.totals)))
                started[0][1](progress.examples, progress.seconds)

    with repeating(look, WATCH_S):
        yield
    for totals, report in started:
        report(*totals)


@contextmanager
def reporting_work(
    watch: Callable[[Totals], Watch] | None, totals: Totals, done: Callable[[], int]
) -> Iterator[None]:
    """Reports what ``done`` finds in the work folder while the block runs."""
    if watch is None:
        yield
        return
    report = watch(totals)
    last = 0

    def look() -> None:
        nonlocal last
        with suppress(OSError, InputError, StoreError):
            last = max(last, done())
            report(last, 0.0)

    with repeating(look, WATCH_S):
        yield


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
