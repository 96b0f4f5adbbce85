"""The flags of ``record`` and ``plan``: one for each option."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any

from beam_pipeline.cli.given_flags import REPEATED
from beam_pipeline.errors import RecipeError
from beam_pipeline.recipe.fields import Option
from beam_pipeline.recipe.options import RunOptions
from beam_pipeline.recipe.recipe import recipe_options

# Groups of --help, with the sections of the recipe in each, and what to know first.
_GROUPS: Mapping[str, tuple[tuple[str, ...], str]] = {
    "inputs and output": ((), ""),
    "manifests": (("columns",), "Columns of CSV, TSV, JSONL, Parquet and Avro files."),
    "labels": (("labels",), "The class of each clip."),
    "events": (("events",), "Labels with times: the classes of each window."),
    "splits": (
        ("splits",),
        "At most one of --splits, --folds and --split-column. Without them there is "
        "one split, records.",
    ),
    "audio": (("audio",), ""),
    "windows": (
        ("windows", "augmentation"),
        "One of --win-len and --win-seconds is required.",
    ),
    "features": (("features",), "What examples hold of their windows."),
    "shards": (
        ("shards",),
        "At most one of --elements-per-file, --shard-bytes and --num-shards.",
    ),
}


def add_job_flags(parser: argparse.ArgumentParser, **output: Any) -> None:
    """Adds every flag of ``record``: one for each option of the recipe and the run."""
    options = recipe_options().values()
    for title, (sections, description) in _GROUPS.items():
        group = parser.add_argument_group(title, description or None)
        if not sections:
            _add_inputs(group)
            group.add_argument("--output", metavar="DIR", **output)
        for option in (o for section, o in options if section in sections):
            _add_option(group, option)
    group = parser.add_argument_group(
        "run",
        "How the job runs. These options do not change the data. Options of Beam "
        "follow a lone --.",
    )
    for field in fields(RunOptions):
        if field.metadata:
            _add_run_option(group, field)


def _add_inputs(group: Any) -> None:
    group.add_argument(
        "--input",
        action="append",
        required=True,
        metavar="PATH",
        help="a folder, a glob, an audio file, a manifest (CSV, TSV, JSONL, Parquet, "
        "Avro) or a .txt file of paths, local, in gs:// or s3://, or on another file "
        "system of Beam; SPLIT=PATH puts it into a split; may be repeated",
    )
    group.add_argument(
        "--recipe",
        metavar="PATH",
        help="read options from a YAML file or a data set, which also decides classes "
        "and splits; flags override them",
    )


def _add_option(group: Any, option: Option) -> None:
    """Adds a flag of the recipe. Only the recipe declares its default."""
    flag, text = "--" + option.name.replace("_", "-"), option.help.replace("%", "%%")
    if option.name in REPEATED:
        group.add_argument(
            REPEATED[option.name],
            dest=option.name,
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
            type=flag_type(option.parse),
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
        more = {"type": flag_type(parse), "metavar": field.metadata["metavar"]}
    if field.default == ():
        more["action"] = "append"
    group.add_argument(
        flag,
        default=argparse.SUPPRESS,
        help=field.metadata["help"].replace("%", "%%"),
        **more,
    )


def add_forecast_flags(parser: argparse.ArgumentParser) -> None:
    """Adds the flag of a forecast, which ``record`` does not have."""
    group = parser.add_argument_group(
        "forecast", "Bytes after GZIP and time, from a random sample."
    )
    group.add_argument(
        "--sample",
        type=flag_type(int),
        metavar="N",
        help="make N random examples, with the windows of their clips that a worker "
        "holds at once, as a run would; this decodes audio. Default: none",
    )


def flag_type(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Returns a type for argparse, which prints the problem that ``parse`` raises."""

    def parse_flag(text: str) -> Any:
        try:
            return parse(text)
        except RecipeError as error:
            _, problem, value = error.args
            raise argparse.ArgumentTypeError(f"{problem}; got {value!r}") from error

    parse_flag.__name__ = {"int": "whole number", "float": "number"}.get(
        parse.__name__, parse.__name__
    )
    return parse_flag
