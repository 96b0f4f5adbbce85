"""Flags as the keywords of ``record``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from beam_pipeline.cli.flags import REPEATED
from beam_pipeline.errors import RecipeError
from beam_pipeline.recipe.fields import options_of
from beam_pipeline.recipe.options import RunOptions
from beam_pipeline.recipe.recipe import recipe_options

# Options of which a recipe has one at most.
_ALTERNATIVES = (
    ("win_len", "win_seconds"),
    ("hop", "hop_seconds"),
    ("split_column", "splits", "folds"),
    ("elements_per_file", "shard_bytes", "num_shards"),
)

# Options that decide the split of a group before any is moved.
_OF_HASH = ("split_column", "splits", "folds", "group_by", "seed")


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the options of the recipe and the run, as keywords of ``record``.

    Options on the command line override those in the file of ``--recipe``.
    """
    known = {*recipe_options(), *(option.name for option in options_of(RunOptions))}
    options = {name: value for name, value in vars(args).items() if name in known}
    for name in REPEATED:
        if name in options:
            options[name] = _by_feature(name, options[name])
    if args.recipe is not None:
        from beam_pipeline.recipe.recipe_file import read_recipe

        recipe = read_recipe(args.recipe)
        if any(options.get(n, recipe.get(n)) != recipe.get(n) for n in _OF_HASH):
            recipe.pop("split_moves", None)  # they are those of another hash
        for ways in _ALTERNATIVES:
            if any(name in options for name in ways):
                # One that is given in place of another: --win-len of win_seconds.
                recipe = {n: v for n, v in recipe.items() if n not in ways}
        if options.get("label_from") == "none":
            recipe.pop("classes", None)  # there are none
        options = {**recipe, **options}
    return options


def _by_feature(option: str, texts: Sequence[str]) -> dict[str, str]:
    """Returns the texts after each ``NAME=``, by the names."""
    flag, (_, declared) = REPEATED[option], recipe_options()[option]
    named: dict[str, str] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        if not equals or not name.isidentifier():
            raise RecipeError(flag, f"must look like {declared.metavar}", text)
        if name in named:
            raise RecipeError(flag, "is given twice for the same feature", name)
        named[name] = rest
    return named
