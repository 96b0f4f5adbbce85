"""How much this process has written, in memory that a watcher shares."""

from __future__ import annotations

from typing import Any


class ProcessCounter:
    """What this process has written, for whoever watches it; see :mod:`record`.

    ``watched`` is shared memory that a watcher puts here before the work starts, or
    None: examples, and seconds of audio.
    """

    watched: Any = None

    @classmethod
    def add(cls, examples: int, seconds: float) -> None:
        if cls.watched is not None:
            cls.watched[0] += examples
            cls.watched[1] += seconds
