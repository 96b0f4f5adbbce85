"""Engines of Beam: what is said to them is tested before a job is claimed for them.

Beam itself drops options that it does not know, waits for minutes, without a word, for
a job server that is not there, and tells all this only when a job is under way.
"""

from __future__ import annotations

import argparse
import logging
import re
import socket
from collections.abc import Iterable, Sequence
from typing import Any

from beam_pipeline.errors import EngineError, OptionError, did_you_mean

ANSWER_S = 10.0

_ADDRESS = re.compile(r"(?:(?:https?|spark)://)?(\[[0-9a-f:.]+\]|[^/,:\[\]]+):(\d+)/?")
_BEAM_OPTIONS = "options of Beam"
_CANNOT_FETCH = "Unable to fetch remote"

# Runner -> the options with an engine's address, and that with a job server of one's
# own; and the folder in launch/ that brings both.
_ENGINES = {
    "FlinkRunner": (("flink_master",), "flink_job_server_jar", "flink"),
    "SparkRunner": (
        ("spark_master_url", "spark_rest_url"),
        "spark_job_server_jar",
        "spark",
    ),
    "PrismRunner": ((), "prism_location", "prism"),
}
_START_JOB_SERVER = ("FlinkRunner", "SparkRunner", "KafkaStreamsRunner")
_NEED_JOB_SERVER = ("PortableRunner", "PrismRunner", *_START_JOB_SERVER)
_UBER_JARS = ("flink_submit_uber_jar", "spark_submit_uber_jar")

_LOG = logging.getLogger(__name__)


def check_engine(beam_args: Sequence[str]) -> None:
    """Tests a runner's name, its options and its address, without starting anything.

    An option is refused if nobody can know it. Who knows it depends on the runner:

    - A job server (``--job_endpoint``) is asked which options it takes besides Beam's.
    - FlinkRunner and SparkRunner otherwise start a job server of their own, or send
      the job to a cluster as a jar. What those take is not known before, so that an
      option that is not Beam's cannot be judged: it is named in a warning, and left to
      them. (Beam drops what the job server does not know.)
    - Every other runner takes Beam's options alone, with those that a module of
      one's own defines which the runner is in.

    Raises
    ------
    OptionError
        If the runner or an option is unknown, or a value or a needed one is wrong.
    EngineError
        If nobody answers at an address.
    """
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import (
        PipelineOptions,
        PortableOptions,
        StandardOptions,
    )
    from apache_beam.options.pipeline_options_validator import PipelineOptionsValidator

    words = list(beam_args)
    _parse(words)  # before Beam does, which ends the process where a value is wrong
    options = PipelineOptions(words)
    runner = _make_runner(options.view_as(StandardOptions).runner)
    values, unknown = _parse(words)  # the runner may have brought options
    name = type(runner).__name__
    endpoint = options.view_as(PortableOptions).job_endpoint
    more: Iterable[str] = ()
    judged = True
    if name in _NEED_JOB_SERVER and endpoint not in (None, "", "embed"):
        more = _ask_job_server(endpoint)
    elif name == "PortableRunner" and not endpoint:
        raise OptionError(
            _BEAM_OPTIONS, "name no --job_endpoint=HOST:PORT", f"--runner={name}"
        )
    else:
        check_addresses(name, values)
        judged = name not in _START_JOB_SERVER
    if any(values.get(option) for option in _UBER_JARS):
        judged = False
    _refuse_unknown(unknown, more, judged)
    errors = PipelineOptionsValidator(options, runner).validate()
    if errors:
        problems = " ".join(line.strip().rstrip(".") + "." for line in errors)
        raise OptionError(
            _BEAM_OPTIONS,
            f"are not what {name} needs: {problems} Options are "
            "written as --NAME=VALUE",
            " ".join(words),
        )
    # Inputs are listed from here, on file systems that may take options, too.
    FileSystems.set_options(options)


def _make_runner(name: str) -> Any:
    from apache_beam.options.pipeline_options import StandardOptions
    from apache_beam.runners.runner import create_runner

    try:
        return create_runner(name)
    except (ValueError, ImportError, AttributeError) as error:
        if "." in name or not isinstance(error, ValueError):
            problem = f"name a runner that cannot be had ({error})"
        else:
            known = StandardOptions.KNOWN_RUNNER_NAMES
            problem = "name no runner of Beam" + _did_you_mean(name, known)
            problem += f"; there are {', '.join(known)}, and classes as MODULE.CLASS"
        raise OptionError(_BEAM_OPTIONS, problem, f"--runner={name}") from error


def _parse(words: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The values of all options that Beam knows, and the words that it does not."""
    parser = _parser()
    try:
        values, unknown = parser.parse_known_args(list(words))
    except argparse.ArgumentError as error:
        raise OptionError(
            _BEAM_OPTIONS, f"have a wrong value: {error}", " ".join(words)
        ) from error
    return vars(values), unknown


def _parser() -> argparse.ArgumentParser:
    from apache_beam.options.pipeline_options import (
        PipelineOptions,
        _BeamArgumentParser,
    )

    parser: argparse.ArgumentParser = _BeamArgumentParser(
        prog="options of Beam", allow_abbrev=False, exit_on_error=False
    )
    # A class that was defined twice, in a module that was run as a script, counts once.
    classes = {str(cls): cls for cls in PipelineOptions.__subclasses__()}
    for cls in classes.values():
        cls._add_argparse_args(parser)
    return parser


def _refuse_unknown(unknown: Sequence[str], more: Iterable[str], judged: bool) -> None:
    """Raises OptionError for a word that is no option, nor the value of one."""
    theirs = set(more)
    known = [*_parser()._option_string_actions, *theirs]
    value_may_follow = False
    for word in unknown:
        name, equals, _ = word.partition("=")
        if name in theirs:
            value_may_follow = not equals
            continue
        if not word.startswith("-") and value_may_follow:
            value_may_follow = False
            continue
        hint = _did_you_mean(name, known)
        if judged or not word.startswith("-"):
            raise OptionError(
                _BEAM_OPTIONS, f"hold one that the runner does not know{hint}", name
            )
        value_may_follow = not equals
        _LOG.warning(
            "%s is no option of Beam's own%s; it is left to the job server.", name, hint
        )


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = did_you_mean(name, known, cutoff=0.8)
    return f" (did you mean {close}?)" if close else ""


def _ask_job_server(endpoint: str) -> list[str]:
    """The options that a job server takes.

    Raises
    ------
    EngineError
        If there is none.
    """
    import grpc
    from apache_beam.portability.api import beam_job_api_pb2, beam_job_api_pb2_grpc

    with grpc.insecure_channel(endpoint) as channel:
        stub = beam_job_api_pb2_grpc.JobServiceStub(channel)
        request = beam_job_api_pb2.DescribePipelineOptionsRequest()
        try:
            answer = stub.DescribePipelineOptions(request, timeout=ANSWER_S)
        except grpc.RpcError as error:
            raise EngineError(
                f"No job server of Beam answers at --job_endpoint={endpoint} "
                f"({error.details()}). Start it, as launch/flink/start.sh and "
                "launch/spark/start.sh do, or check host and port. Nothing was started "
                "or written."
            ) from error
    return [f"--{option.name}" for option in answer.options]


def check_addresses(runner: str, values: dict[str, Any]) -> None:
    """Connects once to each address that options name for a runner.

    What names none (``[local]``, ``local[4]``, ``yarn``) is left to the runner.

    Raises
    ------
    EngineError
        If nobody takes the connection.
    """
    names, _, folder = _ENGINES.get(runner, ((), "", ""))
    for name in names:
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
                "host and port. Nothing was started or written."
            ) from error


def explain_start(error: Exception, beam_args: Sequence[str]) -> EngineError | None:
    """What to do where a job server could not be fetched; None for other errors."""
    from apache_beam import __version__

    if _CANNOT_FETCH not in str(error):
        return None
    runner = type(_make_runner(_parse(beam_args)[0]["runner"])).__name__
    _, option, folder = _ENGINES.get(runner, _ENGINES["FlinkRunner"])
    what = str(error).partition(". ")[0]  # then come mirrors and places of a cache
    return EngineError(
        f"{runner} needs a job server that fits Beam {__version__}, and there "
        f"is none to be had: {what}. Use launch/{folder}/submit.sh, which brings one "
        f"that works, or give your own by --{option}=FILE."
    )
