"""What a watcher sees of a run."""

import os
import pty
import threading
from functools import partial

from beam_pipeline.dataset.progress import Reporter, RunProgress, Totals, make_bar
from beam_pipeline.process import new_state

TOTALS = Totals(6, 3.0)


def test_progress_never_goes_back():
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

    reporter = Reporter(watch, partial(read, "work"))
    with reporter.looking(0.001):
        assert over.wait(30)
    reporter.finish()
    assert seen == [TOTALS, (0, 0.0), (4, 2.0), (4, 2.0), (6, 3.0), (6, 3.0)]


def test_writers_are_summed_and_reported_at_the_end():
    seen = []
    states = [new_state(), new_state()]
    for state, examples in zip(states, (2, 4), strict=True):
        state.examples, state.seconds = examples, examples / 2
    reporter = Reporter.of_workers(
        lambda totals: lambda *done: seen.append(done), TOTALS, states
    )
    reporter.look()
    states[1].clear()  # another process takes its place
    reporter.look()
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
