"""The flags: one for each option of the recipe and of the run."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import fields
from typing import Any, NoReturn

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
from beam_pipeline.recipe.fields import Option
from beam_pipeline.recipe.options import RunOptions
from beam_pipeline.recipe.recipe import recipe_options


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one paragraph, without every flag before it."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}. See {self.prog} --help.\n")


def make_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = Parser(
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
    _add_job(recording, required=True, help="a folder: new, empty, or to continue in")

    planning = _command(
        commands,
        "plan",
        run_plan,
        "what record would do, from headers alone",
        f"{PROGRAM} plan --input sounds/ --win-seconds 1",
    )
    _add_job(planning, default=None, help=argparse.SUPPRESS)

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


# Groups of --help, as people think of a job; some show several sections of a recipe.
_GROUPS = {
    "inputs": ("columns",),
    "labels": ("labels",),
    "events": ("events",),
    "splits": ("splits",),
    "audio": ("audio",),
    "windows": ("windows", "augmentation"),
    "features": ("features",),
    "shards": ("shards",),
}


def _add_job(parser: argparse.ArgumentParser, **output: Any) -> None:
    """Every flag of ``record``: one for each option of the recipe and of the run."""
    options = recipe_options().values()
    for title, sections in _GROUPS.items():
        group = parser.add_argument_group(title)
        if title == "inputs":
            _add_inputs(group)
            group.add_argument("--output", metavar="DIR", **output)
        for option in (o for section, o in options if section in sections):
            _add_option(group, option)
    run = parser.add_argument_group(
        "run (decides no data; options of Beam follow a lone --)"
    )
    for field in fields(RunOptions):
        if field.metadata:
            _add_run_option(run, field)


def _add_inputs(group: Any) -> None:
    group.add_argument(
        "--input",
        action="append",
        required=True,
        metavar="PATH",
        help="a folder, a glob, an audio file, a manifest (CSV, TSV, JSONL, Parquet) "
        "or a .txt file of paths, on any file system of Beam; SPLIT=PATH puts it into "
        "a split; may be repeated",
    )
    group.add_argument(
        "--recipe",
        metavar="FILE",
        help="take flags from a YAML file, or from a data set's metadata.json",
    )


def _add_option(group: Any, option: Option) -> None:
    """One flag of the recipe; its default is declared by the recipe alone."""
    flag, text = "--" + option.name.replace("_", "-"), option.help.replace("%", "%%")
    if option.name == "features":
        group.add_argument(
            "--feature",
            dest="features",
            action="append",
            metavar=option.metavar,
            default=argparse.SUPPRESS,
            help=text,
        )
    elif option.default is False:
        group.add_argument(
            flag, action="store_true", default=argparse.SUPPRESS, help=text
        )
    else:
        shown = option.default not in (None, "")
        group.add_argument(
            flag,
            type=_flag_type(option.parse),
            choices=option.choices or None,
            metavar="|".join(option.choices) or option.metavar,
            default=argparse.SUPPRESS,
            help=f"{text}; default: {option.default}" if shown else text,
        )


def _add_run_option(group: Any, field: Any) -> None:
    flag = "--" + field.name.replace("_", "-")
    more: dict[str, Any] = {"action": "store_true"}
    if field.default is not False:
        parse = field.metadata["parse"]
        more = {"type": parse, "metavar": field.metadata["metavar"]}
    group.add_argument(
        flag, default=argparse.SUPPRESS, help=field.metadata["help"], **more
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
