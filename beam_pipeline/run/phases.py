"""Phases of a run on this machine: in-memory pipelines that exchange files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms import core, userstate

from beam_pipeline.errors import AudioTFRecordsError
from beam_pipeline.run.stored import ElementFile
from beam_pipeline.storage import files

_STEP = "[while running "


@contextmanager
def in_memory_pipeline() -> Iterator[beam.Pipeline]:
    """A pipeline that runs in this process when the block ends.

    Errors of this package leave the block as they were raised, without the name of the
    stage that Beam adds.
    """
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=_Options([]))
    # Only transforms in other languages use it. Beam deletes it only for a pipeline
    # that it has run, never in IPython, and a process that dies does not.
    files.delete_below(pipeline.local_tempdir)
    with plain_labels(), _inspected_once():
        yield pipeline
        try:
            pipeline.run().wait_until_finish()
        except Exception as error:
            first = original(error)
            if first is error:
                raise
            # Without Beam's copy, whose traceback is long and says no more.
            raise first from first.__cause__


@contextmanager
def plain_labels() -> Iterator[None]:
    """Keeps Beam from adding the number of a notebook's cell to the labels of steps.

    For that, Beam would load its interactive package, which logs a warning and loads
    scripts from the internet into the notebook.
    """
    add_number = beam.pipeline.alter_label_if_ipython
    beam.pipeline.alter_label_if_ipython = lambda *_: None
    try:
        yield
    finally:
        beam.pipeline.alter_label_if_ipython = add_number


@contextmanager
def _inspected_once() -> Iterator[None]:
    """Beam inspects each method of each step many times: 12,000 times for a small job.

    This takes a third of its time, so each function is inspected once. Beam looks for
    state and timers in each, too; the steps of pipelines in memory have none.
    """
    inspect, find_state = core.get_function_args_defaults, userstate.get_dofn_specs
    known: dict[Any, Any] = {}

    def remembered(function: Any) -> Any:
        plain = getattr(function, "__func__", function)
        # The arguments of a method do not include the object that it is bound to.
        key = plain, plain is function
        if key not in known:
            known[key] = inspect(function)
        return known[key]

    core.get_function_args_defaults = remembered
    userstate.get_dofn_specs = lambda _: (set(), set())
    try:
        yield
    finally:
        core.get_function_args_defaults = inspect
        userstate.get_dofn_specs = find_state


class _Options(PipelineOptions):  # type: ignore[misc]
    """Options that make each of their views once.

    Beam asks for views hundreds of times while it builds a pipeline. Each new view
    makes an argument parser, which takes a quarter of the time of a small job.
    """

    def view_as(self, cls: type) -> Any:
        views = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]


def original(error: BaseException) -> BaseException:
    """Returns the error of this package that a runner has wrapped, or the error itself.

    Errors of a disk that cannot be written become errors of this package.

    Beam raises a copy, with the name of the stage in its first argument. The original
    is the context of the copy.
    """
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, AudioTFRecordsError) and _STEP not in str(inner.args[0]):
            return inner
        explained = files.why_not_written(inner)
        if explained is not None:
            return explained
        inner = inner.__cause__ or inner.__context__
    return error


@dataclass(eq=False)
class StoreElements(beam.DoFn):  # type: ignore[misc]
    """Writes the elements of each bundle to a new file, for a later phase.

    Only for the in-memory runner, which runs no bundle twice.
    """

    folder: str
    name: str

    def start_bundle(self) -> None:
        self._file = ElementFile(self.folder, self.name)

    def process(self, element: Any) -> None:
        self._file.extend([element])

    def finish_bundle(self) -> None:
        self._file.close()


def store(collection: beam.PCollection, folder: str, name: str) -> None:
    """Stores the elements of a collection under a name, for a later phase."""
    collection | f"Store {name}" >> beam.ParDo(StoreElements(folder, name))
