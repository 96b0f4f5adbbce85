"""The flags, one for each field of the recipe and the run; defaults stand there alone."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from beam_pipeline import __version__
from beam_pipeline.cli.commands import (
    PROGRAM,
    run_audit,
    run_plan,
    run_record,
    run_show,
    run_status,
    run_transforms,
    run_verify,
)
from beam_pipeline.errors import RecipeError
from beam_pipeline.recipe.recipe import Recipe


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Audio files to sharded GZIP TFRecords, for training.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    recording = _command(
        commands,
        "record",
        run_record,
        "record audio as a data set",
        f"{PROGRAM} record --input sounds/ --output records/ --win-seconds 1 "
        "--feature 'log_mel=log_mel(n_mels=64)'",
    )
    _add_inputs(recording)
    recording.add_argument("--output", required=True, help="a new or empty folder")
    _add_recipe(recording)
    _add_run(recording)

    planning = _command(
        commands,
        "plan",
        run_plan,
        "what record would do, from headers alone",
        f"{PROGRAM} plan --input sounds/ --win-seconds 1",
    )
    _add_inputs(planning)
    planning.add_argument("--output", default=None, help=argparse.SUPPRESS)
    _add_recipe(planning)
    _add_run(planning)

    showing = _command(
        commands, "show", run_show, "look at examples", f"{PROGRAM} show records/ -n 3"
    )
    showing.add_argument("records", metavar="DIR", help="a data set")
    showing.add_argument(
        "-n", type=int, default=3, help="how many, spread over it; default: 3"
    )
    showing.add_argument(
        "--split", default=None, help="which split; default: the first"
    )
    showing.add_argument(
        "--plot", default=None, metavar="FILE.png", help="draw them into a picture"
    )

    verifying = _command(
        commands,
        "verify",
        run_verify,
        "test every checksum and count",
        f"{PROGRAM} verify records/",
    )
    verifying.add_argument("records", metavar="DIR", help="a data set")

    auditing = _command(
        commands,
        "audit",
        run_audit,
        "find leaks between splits, and doubles",
        f"{PROGRAM} audit records/ --group-by speaker",
    )
    auditing.add_argument("records", metavar="DIR", help="a data set")
    auditing.add_argument(
        "--group-by",
        default=None,
        metavar="COLUMNS",
        help="columns a,b of its manifest that make a group; default: as recorded",
    )
    auditing.add_argument(
        "--json", action="store_true", help="every finding as a line of JSON"
    )

    listing = _command(
        commands,
        "transforms",
        run_transforms,
        "every transform: parameters, result and cost for a window",
        f"{PROGRAM} transforms 'low_pass(cutoff_hz=1000)|mfcc' --win-len 16000",
    )
    listing.add_argument(
        "steps",
        nargs="*",
        metavar="STEPS",
        help="only these: names, with their documentation, or expressions",
    )
    listing.add_argument(
        "--win-len",
        type=int,
        default=16000,
        help="frames in the window; default: 16000",
    )
    listing.add_argument(
        "--sample-rate", type=int, default=16000, help="its rate in Hz; default: 16000"
    )

    asking = _command(
        commands,
        "status",
        run_status,
        "how far a run is, on whatever machines",
        f"{PROGRAM} status --watch gs://bucket/records",
    )
    asking.add_argument(
        "run_folder", metavar="DIR", help="the output or the work folder of a run"
    )
    asking.add_argument(
        "--watch", action="store_true", help="a progress bar, until the run ends"
    )
    return parser


def _command(
    commands: Any, name: str, run: Callable[..., int], text: str, example: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=f"example: {example}",
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input",
        action="append",
        required=True,
        help="a folder, a glob, an audio file, or a .txt file of paths; on any file "
        "system of Beam; may be repeated",
    )
    parser.add_argument(
        "--recipe",
        metavar="FILE",
        help="take flags from a YAML file, or from a data set's metadata.json",
    )


def _add_recipe(parser: argparse.ArgumentParser) -> None:
    """One flag for each field of the recipe; a default stands there alone."""
    group = parser.add_argument_group("recipe (decides the data)")
    for field in fields(Recipe):
        flag = "--" + field.name.replace("_", "-")
        text = field.metadata["help"]
        if field.name == "features":
            group.add_argument(
                "--feature",
                dest="features",
                action="append",
                metavar="NAME=CALL",
                default=argparse.SUPPRESS,
                help=text.replace("%", "%%"),
            )
        elif field.default is False:
            group.add_argument(
                flag, action="store_true", default=argparse.SUPPRESS, help=text
            )
        else:
            if field.default is not None:
                text += f"; default: {field.default}"
            group.add_argument(
                flag,
                type=_flag_type(field.metadata["parse"]),
                choices=field.metadata.get("choices"),
                metavar=None if "choices" in field.metadata else "VALUE",
                default=argparse.SUPPRESS,
                help=text.replace("%", "%%"),
            )


def _flag_type(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Lets argparse tell what is wrong with a value in our words."""

    def parse_flag(text: str) -> Any:
        try:
            return parse(text)
        except RecipeError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    parse_flag.__name__ = {"int": "whole number", "float": "number"}.get(
        parse.__name__, parse.__name__
    )
    return parse_flag


def _add_run(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "run (decides no data; options of Beam stand after a lone --)"
    )
    group.add_argument(
        "--max-rejected",
        default=argparse.SUPPRESS,
        metavar="N|P%",
        help="how many clips may be rejected; default: 0",
    )
    group.add_argument(
        "--overwrite",
        action="store_true",
        default=argparse.SUPPRESS,
        help="replace the data set that is in the output folder",
    )
    group.add_argument(
        "--workers",
        type=int,
        default=argparse.SUPPRESS,
        metavar="N",
        help="processes on this machine; default: one a core, for a large job",
    )
    group.add_argument(
        "--work-dir",
        default=argparse.SUPPRESS,
        metavar="DIR",
        help="where unfinished shards lie; default: _work in the output folder",
    )
