"""The progress of a run: noted, found out from any machine, reported and shown.

::

    plan.json, receipts    ->  RunProgress    ->  Reporter   ->  a watcher: a bar in a
    in the work folder         (examples, s)                     terminal or a notebook,
    counts of processes    ->                                    lines in a log

A watcher is a function that takes the totals of the plan, and returns a function that
takes the examples and the seconds of audio that are written so far.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import posixpath
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from beam_pipeline.dataset import folders
from beam_pipeline.errors import AudioTFRecordsError, InputError, StoreError
from beam_pipeline.planning.shards import PlanSummary
from beam_pipeline.process import WorkerState
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import WORK_FOLDER, Claim
from beam_pipeline.text import time_text, typed

WATCH_S = 2.0  # how often to look at a work folder, perhaps on an object store

SECONDS_BETWEEN_LINES = 10.0


class Totals(NamedTuple):
    """The examples and the seconds of audio that a run has to write."""

    examples: int
    seconds: float


NOTHING = Totals(0, 0.0)


@dataclass(frozen=True, slots=True)
class RunProgress:
    """How far a run is.

    Attributes
    ----------
    totals : Totals
        Zero while the run is planning.
    examples, seconds : int, float
        The part of the totals that is in finished shards.
    shards, shards_done : int
        Number of shards in the plan, and of finished ones.
    error : AudioTFRecordsError or None
        Why the run failed.
    """

    totals: Totals = NOTHING
    examples: int = 0
    seconds: float = 0.0
    shards: int = 0
    shards_done: int = 0
    error: AudioTFRecordsError | None = None


@dataclass(frozen=True)
class _Plan:
    """``plan.json``: the examples of each shard, by the name of its receipt."""

    seconds: float
    shards: Mapping[str, int]


def write_totals(summary: PlanSummary, work_folder: str, claim: Claim) -> None:
    """Writes ``plan.json``: the examples of each shard, and all seconds of audio."""
    shards = {
        posixpath.basename(folders.receipt_path(shard.name, "")): shard.examples
        for layout in summary.layouts.values()
        for shard in map(layout.shard, range(layout.shards))
    }
    plan = _Plan(math.fsum(map(summary.seconds, summary.layouts)), shards)
    content = json.dumps(asdict(plan), indent=2).encode()
    claim.write(files.join(work_folder, folders.PLAN_FILE), content)


def read_progress(work_folder: str) -> RunProgress:
    """Returns how far the run in a claimed work folder is.

    Raises
    ------
    InputError
        If a file of the run is damaged.
    """
    path = files.join(work_folder, folders.PLAN_FILE)
    plan: _Plan | None = folders.read_stored(path, lambda json: typed(_Plan, json, ""))
    run_error = folders.read_run_error(work_folder)
    if plan is None:
        return RunProgress(error=run_error)
    done = {n.replace(folders.LOST, ".json") for n in folders.receipts(work_folder)}
    finished = [count for name, count in plan.shards.items() if name in done]
    totals = Totals(sum(plan.shards.values()), plan.seconds)
    seconds = plan.seconds * sum(finished) / max(1, totals.examples)
    counts = len(plan.shards), len(finished)
    return RunProgress(totals, sum(finished), seconds, *counts, run_error)


def find_run(folder: str) -> str | None:
    """Returns the work folder of a run, by that folder or by the output of the run.

    None means that the data set is complete.

    Raises
    ------
    InputError
        If the folder holds neither a run nor a data set.
    """
    folder = files.absolute(folder)
    for work in (folder, files.join(folder, WORK_FOLDER)):
        if folders.has_run(work):
            return work
    outer = folder.rstrip("/").rpartition("/")[0]
    for output in (folder, outer):
        if output and files.exists(files.join(output, folders.METADATA)):
            return None
    raise InputError(
        f"{folder} holds no run and no data set. Give the folder that a run writes to, "
        "or its work folder, which it deletes when the data set is complete."
    )


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


Update = Callable[[int, float], None]
Watch = Callable[[Totals], Update]


class Reporter:
    """Reports the progress of a run to a watcher; what is reported never goes back.

    Without a watcher, nothing is looked at.

    Parameters
    ----------
    watch : callable, optional
        The watcher.
    progress : callable
        Returns how far the run is.
    seconds : float
        The least time between two looks at it.
    """

    def __init__(
        self,
        watch: Watch | None,
        progress: Callable[[], RunProgress],
        seconds: float = 0.0,
    ):
        self._watch = watch
        self._progress = progress
        self._seconds = seconds
        self._next = 0.0
        self._report: Update | None = None
        self._totals = NOTHING
        self._most = (0, 0.0)

    @classmethod
    def of_workers(
        cls, watch: Watch | None, totals: Totals, states: Sequence[WorkerState]
    ) -> Reporter:
        """Returns a reporter of what workers on this machine have counted."""

        def progress() -> RunProgress:
            examples = sum(state.examples for state in states)
            return RunProgress(totals, examples, sum(s.seconds for s in states))

        return cls(watch, progress)

    def look(self) -> None:
        """Reports how far the run is now, if its plan is known."""
        if self._watch is None or time.monotonic() < self._next:
            return
        self._next = time.monotonic() + self._seconds
        # The run deletes its folder at the end: a look may fail, or miss receipts.
        with contextlib.suppress(OSError, InputError, StoreError):
            found = self._progress()
            self._most = max(self._most, (int(found.examples), found.seconds))
            if self._report is None and found.totals.examples and not found.error:
                self._report, self._totals = self._watch(found.totals), found.totals
            if self._report is not None:
                self._report(*self._most)

    @contextlib.contextmanager
    def looking(self, seconds: float) -> Iterator[None]:
        """Looks again and again, in a thread, while the block runs; once more then."""
        if self._watch is None:
            yield
            return
        done = threading.Event()

        def repeat() -> None:
            while not done.wait(seconds):
                self.look()

        thread = threading.Thread(target=repeat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()
            self.look()

    def finish(self) -> None:
        """Reports that all is done, if anything was reported before."""
        if self._report is not None and self._totals.examples:
            self._report(*self._totals)


# Of a run that nobody watches.
UNWATCHED = Reporter(None, RunProgress)


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and hasattr(ipython.get_ipython(), "kernel")


def make_bar(**options: Any) -> Any:
    """Returns a bar of tqdm: a widget in a notebook that has ipywidgets, or text.

    This is what ``tqdm.auto`` does, without its warning if ipywidgets is missing.
    """
    if in_notebook() and importlib.util.find_spec("ipywidgets") is not None:
        from tqdm.notebook import tqdm

        options["dynamic_ncols"] = True
    else:
        from tqdm import tqdm

        # Some terminals say that they have 0 columns, where tqdm would show nothing.
        options["ncols"] = shutil.get_terminal_size().columns

    class Bar(tqdm):  # type: ignore[misc]
        # The thread of a monitor would keep later runs from forking their processes.
        monitor_interval = 0

    return Bar(**options)


def progress_bar(
    total: int | None,
    progress: bool | None,
    desc: str = "record",
    unit: str = " elements",
) -> Any:
    """Returns a progress bar: over elements, or what else ``unit`` names.

    ``progress`` is whether there is one; None: in a terminal and in a notebook.
    """
    shown = progress if progress is not None else in_notebook() or None
    return make_bar(
        total=total, unit=unit, desc=desc, disable=None if shown is None else not shown
    )


def watch_bar(stack: contextlib.ExitStack, totals: Totals) -> Update:
    """Starts a progress bar, which ``stack`` closes.

    Returns the function that updates it with the number of finished examples and their
    seconds of audio.
    """
    bar = make_bar(
        total=totals.examples,
        disable=not totals.examples,
        unit=" examples",
        bar_format="{l_bar}{bar}| {n_fmt}/{total_fmt} examples, {rate_fmt}, "
        "{remaining} left{postfix}",
    )
    stack.callback(bar.close)

    def update(examples: int, seconds: float) -> None:
        text = f"{time_text(seconds, totals.seconds)} of examples"
        bar.set_postfix_str(text, refresh=False)
        bar.update(examples - bar.n)

    return update


def watch_lines(_stack: contextlib.ExitStack, totals: Totals) -> Update:
    """Returns a function that prints the progress, at most every ten seconds.

    For logs, in the place of :func:`watch_bar`.
    """
    started = last = time.monotonic()

    def update(examples: int, seconds: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < SECONDS_BETWEEN_LINES or not examples:
            return
        last = now
        share, rate = examples / totals.examples, examples / (now - started)
        print(
            f"{examples:,} of {totals.examples:,} examples ({share:.0%}), "
            f"{time_text(seconds, totals.seconds)} of examples, {rate:.0f} examples/s, "
            f"{(totals.examples - examples) / rate:.0f} s left",
            file=sys.stderr,
        )

    return update
