"""Counts what this process has written, in memory shared with a watcher."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class ProcessCounter:
    """Counts what this process has written, for whoever watches the run."""

    _watched: Any = None

    @classmethod
    @contextmanager
    def counting(cls, shared: Any, writer: int) -> Iterator[None]:
        """Counts into shared memory while the block runs.

        ``shared`` is an array with two numbers for each writer: the examples, and the
        seconds of audio.
        """
        cls._watched = memoryview(shared).cast("B").cast("d")[2 * writer :]
        try:
            yield
        finally:
            cls._watched = None

    @classmethod
    def add(cls, examples: int, seconds: float) -> None:
        """Adds to the counts, if anyone watches."""
        if cls._watched is not None:
            cls._watched[0] += examples
            cls._watched[1] += seconds
