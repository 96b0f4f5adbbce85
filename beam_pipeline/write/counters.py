"""Counts what this process has written, in memory shared with a watcher."""

from __future__ import annotations

from typing import Any


class ProcessCounter:
    """Counts what this process has written, for whoever watches the run.

    ``watched`` is None, or shared memory that the watcher sets before the work starts.
    It holds the number of examples, and the seconds of audio.
    """

    watched: Any = None

    @classmethod
    def add(cls, examples: int, seconds: float) -> None:
        """Adds to the counts, if anyone watches."""
        if cls.watched is not None:
            cls.watched[0] += examples
            cls.watched[1] += seconds
