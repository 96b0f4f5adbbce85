"""What the steps share: rejects, and one thread for linear algebra."""

from __future__ import annotations

import threading
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from threadpoolctl import threadpool_limits

from beam_pipeline.errors import ClipError
from beam_pipeline.pipeline.sink import COUNTERS
from beam_pipeline.recipe.values import check_choice

REJECTS = "rejects"
ON_ERROR = ("reject", "raise")


class _OneThread:
    """Holds the libraries of linear algebra to one thread while a step needs it.

    Each core has a worker, and bytes must not depend on the number of threads. The last
    step of the process that ends restores the limits that the first one found.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._steps = 0
        self._limits: Any = None

    def begin(self) -> None:
        with self._lock:
            if self._steps == 0:
                self._limits = threadpool_limits(1)
            self._steps += 1

    def end(self) -> None:
        with self._lock:
            self._steps -= 1
            if self._steps == 0:
                self._limits.restore_original_limits()


_ONE_THREAD = _OneThread()


class Step(beam.DoFn):  # type: ignore[misc]
    """A step whose errors are rejects, or raised."""

    def __init__(self, on_error: str):
        super().__init__()
        check_choice("on_error", on_error, ON_ERROR)
        self._on_error = on_error

    def setup(self) -> None:
        _ONE_THREAD.begin()

    def teardown(self) -> None:
        _ONE_THREAD.end()

    def reject(self, stage: str, error: ClipError, reason: str) -> dict[str, str]:
        """Returns the reject of an error, or raises the error."""
        if self._on_error == "raise":
            raise error
        name = type(error).__name__
        Metrics.counter(COUNTERS, f"rejected_{name}").inc()
        return {"path": error.path, "stage": stage, "error": name, "reason": reason}
