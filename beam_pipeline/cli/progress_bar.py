"""How far a run is, as a bar in a terminal or as lines in a log."""

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
    """A progress bar, closed by ``stack``: windows, hours of audio, rate, time left."""
    from tqdm import tqdm

    bar = tqdm(
        total=totals.examples,
        unit=" windows",
        dynamic_ncols=True,
        bar_format="{l_bar}{bar}| {n_fmt}/{total_fmt} windows, {rate_fmt}, "
        "{remaining} left{postfix}",
    )
    stack.callback(bar.close)

    def tell(examples: int, seconds: float) -> None:
        bar.set_postfix_str(f"{seconds / 3600:.2f} h of audio", refresh=False)
        bar.update(examples - bar.n)

    return tell


def watch_lines(totals: Any) -> Callable[[int, float], None]:
    """A plain line now and then."""
    started = last = time.monotonic()

    def tell(examples: int, seconds: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < SECONDS_BETWEEN_LINES:
            return
        last = now
        rate = examples / (now - started)
        left = f"{(totals.examples - examples) / rate:.0f} s left" if rate else ""
        print(
            f"{examples} of {totals.examples} windows "
            f"({100 * examples // max(1, totals.examples)}%), "
            f"{seconds / 3600:.2f} h of audio, {rate:.0f} windows/s, {left}",
            file=sys.stderr,
        )

    return tell
