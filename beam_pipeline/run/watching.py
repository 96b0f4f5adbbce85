"""How far a run is, for whoever watches it while it runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from beam_pipeline.dataset.work_folder import Totals, read_progress
from beam_pipeline.errors import InputError, StoreError

POLL_S = 0.2

Watch = Callable[[int, float], None]

WATCH_S = 2.0


@contextmanager
def reporting(
    watch: Callable[[Totals], Watch] | None, totals: Totals, shared: Any
) -> Iterator[None]:
    """Tells the watcher the sums of the shared numbers while the block runs."""
    if watch is None:
        yield
        return
    report = watch(totals)
    done = threading.Event()

    def tell() -> None:
        report(int(sum(shared[0::2])), sum(shared[1::2]))

    def keep_telling() -> None:
        while not done.wait(POLL_S):
            tell()

    thread = threading.Thread(target=keep_telling, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
        tell()


@contextmanager
def watching(work: str, watch: Callable[..., Any] | None) -> Iterator[None]:
    """Tells the watcher what stands in the work folder, while the block runs."""
    if watch is None:
        yield
        return
    done = threading.Event()
    started: list[tuple[Totals, Callable[[int, float], Any]]] = []

    def keep_telling() -> None:
        while not done.wait(WATCH_S):
            # The folder goes at the end, and a look that fails is made again.
            with suppress(OSError, InputError, StoreError):
                seen = read_progress(work)
                if seen.totals.examples:
                    if not started:
                        started.append((seen.totals, watch(seen.totals)))
                    started[0][1](seen.examples, seen.seconds)

    thread = threading.Thread(target=keep_telling, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    for totals, report in started:
        report(*totals)
