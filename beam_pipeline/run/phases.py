"""Phases of a run on this machine: in-memory pipelines that pass elements by files."""

from __future__ import annotations

import glob
import os
import pickle
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_pipeline.dataset.work_folder import PHASES
from beam_pipeline.errors import AudioTFRecordsError
from beam_pipeline.pipeline.job import Job
from beam_pipeline.plan.segments import ShardWork
from beam_pipeline.storage import files

_STEP = "[while running "


@contextmanager
def phase_folder(job: Job) -> Iterator[str]:
    """An empty folder on this machine for what phases hand on to each other."""
    if not files.is_local(job.work_folder):
        with tempfile.TemporaryDirectory(prefix="audio-tfrecords-") as folder:
            yield folder
        return
    folder = files.join(job.work_folder, PHASES)
    # Left by a run that was cut off; finished shards stay.
    files.delete_below(folder)
    yield folder


@contextmanager
def in_memory_pipeline() -> Iterator[beam.Pipeline]:
    """A pipeline that runs in this process when the block ends.

    Errors of ours come out as they were raised, without the step's name in the middle.
    """
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=_Options([]))
    try:
        yield pipeline
        try:
            pipeline.run().wait_until_finish()
        except Exception as error:
            raise original(error) from error
    finally:
        # Beam does so only for a pipeline that it has run, and never in IPython.
        files.delete_below(pipeline.local_tempdir)


class _Options(PipelineOptions):  # type: ignore[misc]
    """Options that make each view of themselves once.

    Beam asks for views hundreds of times while it builds a pipeline, and each makes an
    argument parser: a quarter of the time that a small job takes.
    """

    def view_as(self, cls: type) -> Any:
        views = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]


def original(error: BaseException) -> BaseException:
    """The error of ours that a runner has wrapped, or the error itself.

    Beam raises a copy with the step's name in its first argument; ours is its context.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, AudioTFRecordsError) and _STEP not in str(seen.args[0]):
            return seen
        seen = seen.__cause__ or seen.__context__
    return error


@dataclass(eq=False)
class Keep(beam.DoFn):  # type: ignore[misc]
    """Writes each bundle's elements to a file of their own, for another phase.

    Only for the in-memory runner, which runs no bundle twice.
    """

    folder: str

    def start_bundle(self) -> None:
        os.makedirs(self.folder, exist_ok=True)
        self._file = open(os.path.join(self.folder, uuid.uuid4().hex), "wb")  # noqa: SIM115

    def process(self, element: Any) -> None:
        pickle.dump(element, self._file, pickle.HIGHEST_PROTOCOL)

    def finish_bundle(self) -> None:
        self._file.close()


def keep(collection: beam.PCollection, folder: str, name: str) -> None:
    """Keeps a collection for another phase."""
    collection | f"Keep {name}" >> beam.ParDo(Keep(os.path.join(folder, name)))


def kept(folder: str, name: str) -> Iterator[Any]:
    """The elements that earlier phases of this run have kept."""
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), name, "*"))):
        with open(path, "rb") as file:
            while file.peek(1):
                yield pickle.load(file)


def kept_work(writer: int, folder: str, writers: int) -> Iterator[ShardWork]:
    """Every ``writers``-th shard of the plan."""
    for work in kept(folder, "work"):
        if work.task.shard.number % writers == writer:
            yield work
