"""The job on a runner of Beam."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import METADATA
from beam_pipeline.dataset.progress import (
    NOTHING,
    WATCH_S,
    Reporter,
    Totals,
    Watch,
    read_progress,
)
from beam_pipeline.dataset.work_folder import (
    CONTINUE,
    NOTHING_NEW,
    VERDICT_FILE,
    has_run,
    read_verdict,
)
from beam_pipeline.errors import AudioTFRecordsError, IncompleteRun, WorkerDied
from beam_pipeline.planning.poison_clips import (
    count_exits,
    drop_changed,
    read_poison_clips,
)
from beam_pipeline.run.workers import MOST_EXITS, Workers
from beam_pipeline.storage import files
from beam_pipeline.storage.files import temporary_folder

if TYPE_CHECKING:
    from beam_pipeline.dataset.job import Job

_STEP = "[while running "
_ENDED = "The runner ended the job with the state {}. {}"
_KEPT = f"Finished shards are kept. {CONTINUE}"


def run_on_engine(
    job: Job,
    beam_args: Sequence[str],
    time_limit: float | None,
    watch: Watch | None,
) -> dict[str, int]:
    """Runs the job on a runner of Beam and waits for it; returns its counters.

    Many runners have their workers in the process that submits, or start servers from
    it. So it is a process that is watched, see :mod:`.workers`. Workers elsewhere have
    a guard, see :mod:`beam_pipeline.pipeline.guard`. If clips have ended some of them,
    the job is sent again: it may have failed, or have written a part of these clips.

    Raises
    ------
    AudioTFRecordsError
        The error of a worker, on whatever machine; IncompleteRun if the runner ended
        the job without one; WorkerDied if the process ended, not because of a clip.
    """
    reporter = Reporter(watch, partial(read_progress, job.work_folder), WATCH_S)
    with temporary_files(), Workers(time_limit) as processes:
        job = replace(job, limit_s=processes.limit_s)
        drop_changed(job.work_folder, job.inputs, processes.limit_s)
        while True:
            noted = count_exits(job.work_folder)
            try:
                counts = processes.call(
                    partial(_run, job, beam_args),
                    job,
                    "runner",
                    reporter=reporter,
                    with_children=True,
                )
                break
            except WorkerDied:
                raise
            except AudioTFRecordsError:
                if not noted < count_exits(job.work_folder) <= MOST_EXITS:
                    raise
    reporter.finish(partial(_written, job))
    return counts


def _written(job: Job) -> Totals:
    """Returns what a finished job has written; nothing if it had nothing to do."""
    if not files.exists(files.join(job.output_folder, METADATA)):
        return NOTHING
    splits = Metadata.load(job.output_folder).splits.values()
    examples = sum(split.examples for split in splits)
    return Totals(examples, sum(split.seconds for split in splits))


def _run(job: Job, beam_args: Sequence[str], _: int) -> dict[str, int]:
    """Runs the job in this process."""
    from beam_pipeline.pipeline.graph import build_pipeline

    job.claim.discard(files.join(job.work_folder, VERDICT_FILE))
    known_poison = len(read_poison_clips(job.work_folder))
    with pipeline_for(beam_args) as pipeline:
        build_pipeline(pipeline, replace(job, known_poison=known_poison))
        result = run_pipeline(pipeline, job.output, job.work_folder)
        if job.shards_folder() != job.output and has_run(job.work_folder):
            state = "DONE, but the data set in the output is that of before"
            raise IncompleteRun(_ENDED.format(state, _KEPT))
        return read_counters(result)


@contextmanager
def temporary_files() -> Iterator[None]:
    """A private folder for temporary files while the block runs, deleted after it.

    Beam and its runners leave several folders behind for each pipeline.
    """
    before, of_others = tempfile.tempdir, os.environ.get("TMPDIR")
    with temporary_folder() as folder:
        tempfile.tempdir = os.environ["TMPDIR"] = folder  # of processes, too
        try:
            yield
        finally:
            tempfile.tempdir = before
            os.environ.pop("TMPDIR")
            if of_others is not None:
                os.environ["TMPDIR"] = of_others


@contextmanager
def pipeline_for(beam_args: Sequence[str]) -> Iterator[Any]:
    """Yields an empty pipeline with these options; then nothing is left of it.

    Prism's server, which DirectRunner may start, too, would be left: Beam stops it when
    the process ends, fails if its temporary files are gone then, and leaves it alive.
    """
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    options = PipelineOptions(list(beam_args))
    with temporary_files():
        try:
            yield beam.Pipeline(options=options)
        finally:
            prism = sys.modules.get("apache_beam.runners.portability.prism_runner")
            if prism is not None:
                prism.PrismRunner().default_job_server(options).stop()


def run_pipeline(pipeline: Any, output: str, work: str, advice: str = _KEPT) -> Any:
    """Runs a pipeline that writes a data set, and waits for it; returns its result.

    Parameters
    ----------
    output, work : str
        The output folder, and the work folder with the verdict.
    advice : str
        The end of the message if the job did not succeed.

    Raises
    ------
    AudioTFRecordsError
        See :func:`run_on_engine`.
    """
    from apache_beam.runners.runner import PipelineState

    result = None
    try:
        result = pipeline.run()
        state = result.wait_until_finish() or result.state
    except Exception as error:
        ours = read_verdict(work) or original(error)
        if isinstance(ours, AudioTFRecordsError):
            raise ours from error
        state = "never started"
        if result is not None:
            state = "FAILED"  # unless the runner still knows the state
            with suppress(Exception):
                state = result.state
        state = f"{state} ({_reason(error)})"
        raise IncompleteRun(_ENDED.format(state, advice)) from error
    if state != PipelineState.DONE:
        raise read_verdict(work) or IncompleteRun(_ENDED.format(state, advice))
    results = files.join(output, METADATA), files.join(work, NOTHING_NEW)
    if not any(map(files.exists, results)):
        cause = "its workers must be able to read `input` and to write `output`"
        state = f"{state}, but there is no {METADATA} ({cause})"
        raise IncompleteRun(_ENDED.format(state, advice))
    return result


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


def _reason(error: Exception) -> str:
    """One line: the last of a worker's traceback, or the details of a gRPC error."""
    details = getattr(error, "details", None)
    text = str(details()) if callable(details) else str(error)
    lines = text.strip().splitlines() or [type(error).__name__]
    last = lines[-1].strip()
    if last.startswith("ModuleNotFoundError"):
        last += "; workers must be able to import it, see docs/engines.md"
    return last


def read_counters(result: Any) -> dict[str, int]:
    """Returns the counters of the job; their names are the same on every runner."""
    from apache_beam.metrics import MetricsFilter

    from beam_pipeline.pipeline.sink import COUNTERS

    found = result.metrics().query(MetricsFilter().with_namespace(COUNTERS))
    counts: Counter[str] = Counter()
    for counter in found["counters"]:
        counts[counter.key.metric.name] += counter.result or 0
    return dict(sorted(counts.items()))


@contextmanager
def quiet_beam() -> Iterator[None]:
    """Silences Beam's log while the block runs. Errors are raised anyway."""
    logger = logging.getLogger("apache_beam")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
