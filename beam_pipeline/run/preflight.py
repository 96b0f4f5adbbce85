"""What is tried before anything is written: the recipe, and the options of Beam.

Beam drops options that it does not know, and waits minutes for a job server that does
not exist, without a message.
"""

from __future__ import annotations

import argparse
import logging
import re
import socket
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from beam_pipeline.errors import (
    EngineError,
    InputError,
    OptionError,
    RecipeError,
    did_you_mean,
)
from beam_pipeline.examples.event_targets import named_no_event
from beam_pipeline.examples.format import Corpus, ExampleFormat
from beam_pipeline.inputs.listing import Listing
from beam_pipeline.inputs.rows import SourceRow
from beam_pipeline.inputs.sources import Input
from beam_pipeline.planning.clips import Clip, check_split_of_copies
from beam_pipeline.planning.poison_clips import read_poison_clips
from beam_pipeline.recipe.recipe import LABEL_SOURCES, Recipe
from beam_pipeline.storage.files import temporary_folder

if TYPE_CHECKING:
    from beam_pipeline.dataset.job import Job

ANSWER_S = 10.0
# How long Dataflow may take to answer, and Google to give a token.
DATAFLOW_ANSWER_S = 3.0
TOKEN_S = 6.0
# Without one of them, Beam's validator says so.
_DATAFLOW_OPTIONS = ("project", "region", "temp_location")
# A recipe is tried on one of so many rows.
FIRST_ROWS = 20

_ADDRESS = re.compile(r"(?:(?:https?|spark)://)?(\[[0-9a-f:.]+\]|[^/,:\[\]]+):(\d+)/?")

# Runner -> the options with an address of its engine, and the folder in launch/ with
# scripts that start it.
_ENGINES = {
    "FlinkRunner": (("flink_master",), "flink"),
    "SparkRunner": (("spark_master_url", "spark_rest_url"), "spark"),
}
_HAVE_JOB_SERVER = (
    "PortableRunner", "PrismRunner", "FlinkRunner", "SparkRunner", "KafkaStreamsRunner",
)  # fmt: skip

_LOG = logging.getLogger(__name__)


def check_engine(beam_args: Sequence[str]) -> None:
    """Checks a runner's name, its options and its address, without starting anything.

    Which options are known depends on the runner:

    - With a job server, Beam's options. Those of the job server cannot be known before,
      so that any other option only gives a warning. (Beam drops those that the job
      server does not know.) FlinkRunner and SparkRunner start a job server if there is
      no ``--job_endpoint``.
    - With every other runner, Beam's options and those that the runner's own module
      defines.

    Raises
    ------
    OptionError
        If the runner or an option is unknown, or a value is wrong or missing.
    EngineError
        If nothing answers at an address, or Dataflow takes no credentials from here.
    """
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import (
        PipelineOptions,
        StandardOptions,
    )
    from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator

    from beam_pipeline.pipeline.sink import REFUSED_RUNNER, WHY_REFUSED

    words = list(beam_args)
    _parse(words)  # before Beam does: it ends the process if a value is wrong
    options = PipelineOptions(words)
    runner = _make_runner(options.view_as(StandardOptions).runner)
    values, unknown = _parse(words)  # again: the runner may define options
    name = type(runner).__name__
    if name == REFUSED_RUNNER:
        problem = f"this runner cannot run the job: {WHY_REFUSED}. Use DirectRunner, or"
        raise _wrong(f"{problem} leave `--runner` out", f"--runner={name}")
    if name == "PortableRunner" and not values.get("job_endpoint"):
        raise _wrong("--job_endpoint=HOST:PORT is missing", f"--runner={name}")
    check_addresses(name, values)
    if name == "DataflowRunner" and all(map(values.get, _DATAFLOW_OPTIONS)):
        check_dataflow(values)
    _refuse_unknown(unknown, is_judged=name not in _HAVE_JOB_SERVER)
    errors = PipelineOptionsValidator(options, runner).validate()
    if errors:
        problems = " ".join(line.strip().rstrip(".") + "." for line in errors)
        problem = f"{name} needs other values: {problems} Write options as --NAME=VALUE"
        raise _wrong(problem, " ".join(words))
    # Listing the inputs may need options of Beam's file systems.
    FileSystems.set_options(options)


def _wrong(problem: str, value: str) -> OptionError:
    return OptionError("options of Beam", problem, value)


def _make_runner(name: str) -> Any:
    from apache_beam.options.pipeline_options import StandardOptions
    from apache_beam.runners.runner import create_runner

    try:
        return create_runner(name)
    except (ValueError, ImportError, AttributeError) as error:
        if "." in name or not isinstance(error, ValueError):
            problem = f"the runner is not available ({error})"
        else:
            known = StandardOptions.KNOWN_RUNNER_NAMES
            problem = f"Beam does not have this runner{_did_you_mean(name, known)}; "
            problem += f"give one of {', '.join(known)}, or a class as MODULE.CLASS"
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


def _refuse_unknown(unknown: Sequence[str], *, is_judged: bool) -> None:
    """Raises OptionError for a word that is neither an option nor the value of one.

    If not ``is_judged``, an unknown option is only logged.
    """
    value_may_follow = False
    for word in unknown:
        name, equals, _ = word.partition("=")
        is_option = word.startswith("-")
        if not is_option and value_may_follow:
            value_may_follow = False
            continue
        value_may_follow = not equals
        known = re.findall(r"--[\w-]+", _parser().format_help())
        hint = _did_you_mean(name, known)
        if is_judged or not is_option:
            raise _wrong(f"the runner does not know this option{hint}", name)
        _LOG.warning("Beam has no option %s%s; the job server may know it.", name, hint)


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = did_you_mean(name, known, cutoff=0.8)
    return f" (did you mean {close}?)" if close else ""


def check_addresses(runner: str, values: dict[str, Any]) -> None:
    """Connects once to each address in the options of a runner.

    Values that are no address (``[local]``, ``local[4]``, ``yarn``) are not checked.

    Raises
    ------
    EngineError
        If a connection fails.
    """
    names, folder = _ENGINES.get(runner, ((), "flink"))
    for name in ("job_endpoint", *names):
        found = _ADDRESS.fullmatch(str(values.get(name) or ""))
        if found is None:
            continue
        address = found[1].strip("[]"), int(found[2])
        try:
            socket.create_connection(address, ANSWER_S).close()
        except (OSError, OverflowError) as error:
            raise EngineError(
                f"Nothing answers at --{name}={values[name]} ({error}). Start the "
                f"engine, as launch/{folder}/start.sh does on this machine, or check "
                "host and port. Nothing was written."
            ) from error


def check_dataflow(values: Mapping[str, Any]) -> None:
    """Connects to Dataflow, and asks for a token, as Beam would do for minutes.

    Raises
    ------
    EngineError
        If nothing answers in time, or the credentials are not accepted.
    """
    import google.auth
    from google.auth.transport.requests import Request

    def connect() -> None:
        parts = urlsplit(values["dataflow_endpoint"])
        address = parts.hostname or "", parts.port or 443
        socket.create_connection(address, DATAFLOW_ANSWER_S).close()

    def ask_for_token() -> None:
        credentials: Any
        credentials, _ = google.auth.default(scopes=values["gcp_oauth_scopes"])
        credentials.refresh(Request())

    endpoint = f"--dataflow_endpoint={values['dataflow_endpoint']}"
    problem = f"Dataflow does not answer at {endpoint}"
    _try(connect, DATAFLOW_ANSWER_S, problem, "Check the network")
    if not values["no_auth"]:
        _try(
            ask_for_token,
            TOKEN_S,
            "Google gives no token for the credentials of this machine",
            "Check the network, and log in by `gcloud auth application-default login` "
            "or name the key of a service account in GOOGLE_APPLICATION_CREDENTIALS",
        )


def _try(
    question: Callable[[], None], seconds: float, problem: str, remedy: str
) -> None:
    """Raises EngineError if a question fails, or is not answered in time."""
    errors: list[Exception] = []

    def ask() -> None:
        try:
            question()
        except Exception as raised:
            errors.append(raised)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        errors.append(TimeoutError(f"no answer in {seconds:g} s"))
    if errors:
        (error,) = errors
        # Google's errors have a second argument, the whole answer.
        reason = error if isinstance(error, OSError) else error.args[0]
        raise EngineError(
            f"{problem} ({reason}). {remedy}. Nothing was written."
        ) from error


def check_transforms(
    recipe: Recipe, inputs: Sequence[Input], time_limit: float | None
) -> None:
    """Runs every transform on silence with the shape of the first readable clip.

    Raises
    ------
    InputError
        If the inputs hold no audio file.
    RecipeError
        If a transform fails.
    """
    from beam_pipeline.dataset.job import Job
    from beam_pipeline.run.workers import Workers

    check_label_column(recipe, inputs)
    shares = recipe.hashed_shares()
    named = [entry.split for entry in inputs if entry.split]
    check_split_of_copies(recipe.copies, shares or named)
    first = list(islice(Listing(inputs, recipe).rows(), FIRST_ROWS))
    recipe = recipe.replace(hash_files=False)  # it would read whole files
    if not first:
        locations = ", ".join(entry.location for entry in inputs)
        raise InputError(f"There is no audio file in {locations}. Check `input`.")
    # In a process of its own: a bad one must not end the run.
    with temporary_folder() as work, Workers(time_limit) as processes:
        job = Job(tuple(inputs), "", work, recipe)
        clip = processes.call(partial(_first_clip, first, job), job, "probe")
    if clip is None:
        return
    labels = set() if clip.label is None else {clip.label}
    if recipe.events is not None:
        # This clip may have no event.
        labels = {event.label for event in clip.events} or {"?"}
        labels.update(named_no_event(recipe))
    rate, channels = clip.sample_rate_hz, clip.channels
    corpus = Corpus(
        tuple(sorted(labels)),
        {rate: 1},
        {channels: 1},
        dict.fromkeys([("Hz", rate), ("channels", channels)], clip.filepath),
    )
    ExampleFormat.of(corpus, recipe, inputs[0].columns)


def _first_clip(rows: Sequence[SourceRow], job: Job, _: int) -> Clip | None:
    """Returns the first clip that has a window; or the first that a decoder opens."""
    from beam_pipeline.planning.prober import Prober

    prober = Prober(job.inputs, job.recipe, read_poison_clips(job.work_folder))
    opened = None
    for clip in map(prober.probe, rows):
        if isinstance(clip, Clip):
            opened = opened or clip
            if clip.examples:
                return clip
    return opened


def check_label_column(recipe: Recipe, inputs: Sequence[Input]) -> None:
    """Raises RecipeError if both a column and events give the classes.

    The recipe itself does not check this: the metadata of data sets that exist may have
    both, and must stay readable.
    """
    label_from = recipe.label_from
    if recipe.events is None or label_from in LABEL_SOURCES:
        return
    if any(e.table is not None and label_from in e.table.names for e in inputs):
        raise RecipeError(
            "label_from",
            "must not be a column if `events` is given, because the events give the "
            "classes; leave `label_from` out (`columns` can name the column instead)",
            label_from,
        )
