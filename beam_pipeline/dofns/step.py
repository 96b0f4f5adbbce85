"""What the steps share: rejects, and one thread for linear algebra."""

from __future__ import annotations

import apache_beam as beam
from apache_beam.metrics import Metrics

from beam_pipeline.errors import ClipError, Unreadable
from beam_pipeline.parameters import check_choice
from beam_pipeline.pipeline.sink import COUNTERS
from beam_pipeline.write.process_settings import OneThread

REJECTS = "rejects"
ON_ERROR = ("reject", "raise")


class Step(beam.DoFn):  # type: ignore[misc]
    """A step whose errors are rejects, or raised."""

    def __init__(self, on_error: str):
        super().__init__()
        check_choice("on_error", on_error, ON_ERROR)
        self._on_error = on_error

    def setup(self) -> None:
        OneThread.begin()

    def teardown(self) -> None:
        OneThread.end()

    def reject(self, stage: str, error: ClipError, reason: str) -> dict[str, str]:
        """Returns the reject of an error, or raises the error.

        That of the machine is raised in any case, so that the runner tries again.
        """
        if self._on_error == "raise" or isinstance(error, Unreadable):
            raise error
        name = type(error).__name__
        Metrics.counter(COUNTERS, f"rejected_{name}").inc()
        return {"path": error.path, "stage": stage, "error": name, "reason": reason}
