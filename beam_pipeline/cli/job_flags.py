"""The flags of ``record`` and ``plan``: one for each option."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from beam_pipeline.cli.given_flags import REPEATED
from beam_pipeline.errors import RecipeError
from beam_pipeline.recipe.fields import Option, options_of
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
    for option in options_of(RunOptions):
        _add_option(group, option)


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
    """Adds the flag of an option, without its default, which the option declares."""
    flag = REPEATED.get(option.name, "--" + option.name.replace("_", "-"))
    shown = option.default not in (None, "", ()) and option.name not in REPEATED
    text = f"{option.help}; default: {option.default}" if shown else option.help
    takes: dict[str, Any] = {
        "type": _type_of(option),
        "choices": option.choices or None,
        "metavar": "|".join(option.choices) or option.metavar,
    }
    if option.default is False:
        takes, text = {"action": "store_true"}, option.help
    elif option.name in REPEATED or option.default == ():
        takes = {"action": "append", "metavar": option.metavar}
    group.add_argument(
        flag,
        dest=option.name,
        default=argparse.SUPPRESS,
        help=text.replace("%", "%%"),
        **takes,
    )


def _type_of(option: Option) -> Callable[[str], Any]:
    """Returns the type of an option's flag for argparse; it checks the value."""

    def parse(text: str) -> Any:
        values, name = option.values, option.name
        given = values.parse(text)
        values.value(name, values.json(name, given))
        return given

    return flag_type(parse)


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
