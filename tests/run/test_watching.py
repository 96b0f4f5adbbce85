"""watching.py: what a watcher sees of a run."""

import os
import pty
import threading
from functools import partial

from beam_pipeline.dataset.progress import make_bar
from beam_pipeline.dataset.work_folder import RunProgress, Totals
from beam_pipeline.marks import new_state
from beam_pipeline.run import watching

TOTALS = Totals(6, 3.0)


def test_progress_never_goes_back(monkeypatch):
    """A run deletes its receipts before it ends."""
    looks = iter([(0, 0.0), (4, 2.0), (2, 1.0), (6, 3.0)])
    seen, over = [], threading.Event()

    def read(work):
        look = next(looks, None)
        if look is None:
            over.set()
            raise FileNotFoundError(work)
        return RunProgress("writing", TOTALS, *look)

    def watch(totals):
        seen.append(totals)
        return lambda *done: seen.append(done)

    monkeypatch.setattr(watching, "WATCH_S", 0.001)
    with watching.watching(watch, partial(read, "work")):
        assert over.wait(30)
    assert seen == [TOTALS, (0, 0.0), (4, 2.0), (4, 2.0), (6, 3.0), (6, 3.0)]


def test_writers_are_summed_and_reported_at_the_end():
    seen = []
    states = [new_state(), new_state()]
    for state, examples in zip(states, (2, 4), strict=True):
        state.examples, state.seconds = examples, examples / 2
    watch = watching.reporter(lambda totals: lambda *done: seen.append(done), TOTALS,
                              states)  # fmt: skip
    watch()
    states[1].clear()  # another process takes its place
    watch()
    assert seen == [(6, 3.0), (6, 3.0)]


def test_a_bar_is_seen_in_a_terminal_of_no_columns():
    ours, theirs = pty.openpty()
    assert os.get_terminal_size(theirs).columns == 0
    with open(theirs, "w") as terminal:
        bar = make_bar(total=4, file=terminal)
        bar.update(4)
        bar.close()
        assert b"0/4" in os.read(ours, 10_000)
    os.close(ours)
