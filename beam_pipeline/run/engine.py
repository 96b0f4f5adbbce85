"""The job on a runner of Beam: what is checked before, and how it runs.

Beam drops options that it does not know, and waits minutes for a job server that does
not exist, without a message.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import socket
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from beam_pipeline.dataset import folders, progress
from beam_pipeline.dataset.progress import Reporter, Watch
from beam_pipeline.errors import (
    AudioTFRecordsError,
    EngineError,
    IncompleteRun,
    OptionError,
    WorkerDied,
    did_you_mean,
)
from beam_pipeline.planning.clips import count_exits, drop_changed, read_poison_clips
from beam_pipeline.recipe.recipe import RunOptions
from beam_pipeline.run.workers import KEPT, MOST_EXITS, Workers
from beam_pipeline.storage import files
from beam_pipeline.storage.files import temporary_folder

if TYPE_CHECKING:
    from beam_pipeline.dataset.job import Job

ANSWER_S = 10.0
TOKEN_S = 6.0

_ADDRESS = re.compile(
    r"(?:(https?|spark)://)?(\[[0-9a-f:.]+\]|[^/,:\[\]]+)(?::(\d+))?/?"
)

# Runner -> the options with an address of its engine.
_ADDRESSES = {
    "DataflowRunner": ("dataflow_endpoint",),
    "FlinkRunner": ("flink_master",),
    "SparkRunner": ("spark_master_url", "spark_rest_url"),
}
_HAVE_JOB_SERVER = (
    "PortableRunner", "PrismRunner", "FlinkRunner", "SparkRunner", "KafkaStreamsRunner",
)  # fmt: skip

_LOG = logging.getLogger(__name__)

_STEP = "[while running "
_ENDED = "The runner ended the job with the state {}. {}"


def check_runner(run: RunOptions) -> None:
    """Checks the runner of a job that is to run now, if it has one.

    Raises
    ------
    OptionError, EngineError
        As :func:`check_engine`; and if its options make a template instead.
    """
    if run.is_template():
        raise OptionError(
            "--template_location",
            "makes a template and does not run the job; `write_template` makes one, "
            "and only of `record`",
            run.beam_args,
        )
    if run.has_runner():
        check_engine(run.beam_args)


def check_engine(beam_args: Sequence[str]) -> None:
    """Checks a runner's name, its options and its address, without starting anything.

    Raises
    ------
    OptionError
        See :func:`check_beam_args`.
    EngineError
        If nothing answers at an address, or Google gives this machine no token for
        Dataflow.
    """
    name, values = check_beam_args(beam_args)
    check_addresses(name, values)
    if name == "DataflowRunner" and not values["no_auth"]:
        check_credentials(values["gcp_oauth_scopes"])


def check_beam_args(beam_args: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Checks a runner's name and its options; returns the name, and Beam's options.

    Which options are known depends on the runner:

    - With a job server, any: it has options of its own, which cannot be known before.
      Those that Beam does not know are logged, because Beam may drop them.
    - With every other runner, Beam's options and those that the runner's own module
      defines.

    Raises
    ------
    OptionError
        If the runner or an option is unknown, or a value is wrong or missing.
    """
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
    from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator

    words = list(beam_args)
    _parse(words)  # before Beam does: it ends the process if a value is wrong
    options = PipelineOptions(words)
    runner = _make_runner(options.view_as(StandardOptions).runner)
    values, unknown = _parse(words)  # again: the runner may define options
    name = type(runner).__name__
    if name == "BundleBasedDirectRunner":
        problem = (
            "this runner cannot run the job, because it decodes all blocks of a shard "
            "before it writes the first one. Use DirectRunner, or leave `--runner` out"
        )
        raise _wrong(problem, f"--runner={name}")
    if name == "PortableRunner" and not values.get("job_endpoint"):
        raise _wrong("--job_endpoint=HOST:PORT is missing", f"--runner={name}")
    for option in (word.partition("=")[0] for word in unknown):
        if name not in _HAVE_JOB_SERVER:
            problem = f"the runner does not know this option{_hint(option)}"
            raise _wrong(problem, option)
        named = option + _hint(option)
        _LOG.warning("Beam has no option %s; the job server may know it.", named)
    errors = PipelineOptionsValidator(options, runner).validate()
    if errors:
        problems = " ".join(line.strip().rstrip(".") + "." for line in errors)
        problem = f"{name} needs other values: {problems} Write options as --NAME=VALUE"
        raise _wrong(problem, " ".join(words))
    # Listing the inputs may need options of Beam's file systems.
    FileSystems.set_options(options)
    return name, values


def _wrong(problem: str, value: str) -> OptionError:
    return OptionError("options of Beam", problem, value)


def _make_runner(name: str) -> Any:
    from apache_beam.runners.runner import create_runner

    try:
        return create_runner(name)
    except (ValueError, ImportError, AttributeError) as error:
        problem = f"the runner is not available ({error})"
        raise _wrong(problem, f"--runner={name}") from error


def _parse(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Returns the values of all options that Beam knows, and all other words."""
    parser = _parser()
    try:
        values, unknown = parser.parse_known_args(list(words))
    except argparse.ArgumentError as error:
        raise _wrong(f"wrong value: {error}", " ".join(words)) from error
    return vars(values), unknown


def _parser() -> argparse.ArgumentParser:
    from apache_beam.options.pipeline_options import (
        PipelineOptions,
        _BeamArgumentParser,
    )

    parser: argparse.ArgumentParser = _BeamArgumentParser(
        prog="options of Beam", allow_abbrev=False, exit_on_error=False
    )
    # By name: a module that runs as a script may define a class twice.
    classes = {str(cls): cls for cls in PipelineOptions.__subclasses__()}
    for cls in classes.values():
        cls._add_argparse_args(parser)
    return parser


def _hint(option: str) -> str:
    known = re.findall(r"--[\w-]+", _parser().format_help())
    close = did_you_mean(option, known, cutoff=0.8)
    return f" (did you mean {close}?)" if close else ""


def check_addresses(runner: str, values: dict[str, Any]) -> None:
    """Connects once to each address in the options of a runner.

    Values that are no address (``[local]``, ``local[4]``, ``yarn``) are not checked.

    Raises
    ------
    EngineError
        If a connection fails.
    """
    for name in ("job_endpoint", *_ADDRESSES.get(runner, ())):
        found = _ADDRESS.fullmatch(str(values.get(name) or ""))
        if found is None:
            continue
        scheme, host, port = found.groups()
        if port is None and scheme == "https":
            port = "443"
        if port is None:
            continue
        try:
            address = host.strip("[]"), int(port)
            socket.create_connection(address, ANSWER_S).close()
        except (OSError, OverflowError) as error:
            raise EngineError(
                f"Nothing answers at --{name}={values[name]} ({error}). Start the "
                "engine, as launch/README.md shows, or check host, port and network. "
                "Nothing was written."
            ) from error


def check_credentials(scopes: Sequence[str]) -> None:
    """Asks Google for a token, as Beam would do for minutes.

    Raises
    ------
    EngineError
        If there is none in time.
    """
    import google.auth
    from google.auth.transport.requests import Request

    problems = [f"no answer in {TOKEN_S:g} s"]

    def ask() -> None:
        try:
            credentials: Any
            credentials, _ = google.auth.default(scopes=scopes)
            credentials.refresh(Request())
            problems.clear()
        except Exception as error:
            # Google's errors have a second argument, the whole answer.
            is_google = error.args and not isinstance(error, OSError)
            problems[:] = [str(error.args[0] if is_google else error)]

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(TOKEN_S)
    if problems:
        raise EngineError(
            "Google gives no token for the credentials of this machine "
            f"({problems[0]}). Check the network, and log in by `gcloud auth "
            "application-default login` or name the key of a service account in "
            "GOOGLE_APPLICATION_CREDENTIALS. Nothing was written."
        )


def run_on_engine(
    job: Job, beam_args: Sequence[str], time_limit: float | None, watch: Watch | None
) -> dict[str, int]:
    """Runs the job on a runner of Beam and waits for it; returns its counters.

    Many runners have their workers in the process that submits, or start servers from
    it. So it is a process that is watched, see :mod:`.workers`. Workers elsewhere have
    a guard, see :mod:`beam_pipeline.pipeline.engine_guard`. If clips have ended some of
    them, the job is sent again: it may have failed, or have written a part of these
    clips.

    Raises
    ------
    AudioTFRecordsError
        The error of a worker, on whatever machine; IncompleteRun if the runner ended
        the job without one; WorkerDied if the process ended, not because of a clip.
    """
    reporter = Reporter(
        watch, partial(progress.read_progress, job.work_folder), progress.WATCH_S
    )
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
    reporter.finish()
    return counts


def as_sent(job: Job) -> Job:
    """Returns a job that knows the poison clips of today, for which it need not end."""
    known = len(read_poison_clips(job.work_folder))
    return replace(job, known_poison=known)


def _run(job: Job, beam_args: Sequence[str]) -> dict[str, int]:
    """Runs the job in this process."""
    from beam_pipeline.pipeline.graph import build_pipeline

    job.claim.discard(files.join(job.work_folder, folders.ERROR_FILE))
    with pipeline_for(beam_args) as pipeline:
        build_pipeline(pipeline, as_sent(job))
        result = run_pipeline(pipeline, job.output, job.work_folder)
        if job.shards_folder() != job.output and folders.has_run(job.work_folder):
            state = "DONE, but the data set in the output is that of before"
            raise IncompleteRun(_ENDED.format(state, KEPT))
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


def run_pipeline(pipeline: Any, output: str, work: str, advice: str = KEPT) -> Any:
    """Runs a pipeline that writes a data set, and waits for it; returns its result.

    Parameters
    ----------
    output, work : str
        The output folder, and the work folder with the error.
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
        ours = folders.read_run_error(work) or original(error)
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
        raise folders.read_run_error(work) or IncompleteRun(
            _ENDED.format(state, advice)
        )
    ends = ((output, folders.METADATA), (work, folders.NOTHING_NEW))
    if not any(files.exists(files.join(*end)) for end in ends):
        cause = "its workers must be able to read `input` and to write `output`"
        state = f"{state}, but there is no {folders.METADATA} ({cause})"
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
    return lines[-1].strip()


def read_counters(result: Any) -> dict[str, int]:
    """Returns the counters of the job; their names are the same on every runner."""
    from apache_beam.metrics import MetricsFilter

    from beam_pipeline.pipeline.graph import COUNTERS

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
