"""The progress of a run, as a bar in a terminal or as lines in a log."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import Any

SECONDS_BETWEEN_LINES = 10.0


def watch_terminal(
    stack: contextlib.ExitStack, totals: Any
) -> Callable[[int, float], None]:
    """Starts a progress bar, which ``stack`` closes.

    Returns the function that updates it with the number of finished examples and their
    seconds of audio.
    """
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[misc]
        monitor_interval = 0  # no thread: with one, processes could not be forked

    bar = Bar(
        total=totals.examples,
        unit=" examples",
        dynamic_ncols=True,
        bar_format="{l_bar}{bar}| {n_fmt}/{total_fmt} examples, {rate_fmt}, "
        "{remaining} left{postfix}",
    )
    stack.callback(bar.close)

    def update(examples: int, seconds: float) -> None:
        bar.set_postfix_str(f"{seconds / 3600:.2f} hours of examples", refresh=False)
        bar.update(examples - bar.n)

    return update


def watch_lines(totals: Any) -> Callable[[int, float], None]:
    """Returns a function that prints the progress, at most every ten seconds."""
    started = last = time.monotonic()

    def update(examples: int, seconds: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < SECONDS_BETWEEN_LINES:
            return
        last = now
        rate = examples / (now - started)
        words = [
            f"{examples:,} of {totals.examples:,} examples "
            f"({100 * examples // max(1, totals.examples)}%)",
            f"{seconds / 3600:.2f} hours of examples",
            f"{rate:.0f} examples/s",
        ]
        if rate:
            words.append(f"{(totals.examples - examples) / rate:.0f} s left")
        print(", ".join(words), file=sys.stderr)

    return update
