"""The progress of a run: a bar in a terminal or a notebook, or lines in a log."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import sys
import time
from collections.abc import Callable
from typing import Any

from beam_pipeline.text import time_text

SECONDS_BETWEEN_LINES = 10.0


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


def watch_bar(stack: contextlib.ExitStack, totals: Any) -> Callable[[int, float], None]:
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
        bar.set_postfix_str(_audio(seconds, totals), refresh=False)
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
            _audio(seconds, totals),
            f"{rate:.0f} examples/s",
        ]
        if rate:
            words.append(f"{(totals.examples - examples) / rate:.0f} s left")
        print(", ".join(words), file=sys.stderr)

    return update


def _audio(seconds: float, totals: Any) -> str:
    return f"{time_text(seconds, totals.seconds)} of examples"
