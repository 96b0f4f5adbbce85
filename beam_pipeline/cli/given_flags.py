"""Flags as the keywords of ``record``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from beam_pipeline.errors import RecipeError

# Options of which a recipe has one at most.
_ALTERNATIVES = (
    ("win_len", "win_seconds"),
    ("hop", "hop_seconds"),
    ("split_column", "splits", "folds"),
    ("elements_per_file", "shard_bytes", "num_shards"),
)


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the options of the recipe and the run, as keywords of ``record``.

    Options on the command line override those in the file of ``--recipe``.
    """
    other = {"command", "run", "debug", "input", "output", "recipe"}
    options = {name: value for name, value in vars(args).items() if name not in other}
    if "features" in options:
        options["features"] = _parse_features(options["features"])
    if args.recipe is not None:
        from beam_pipeline.recipe.recipe_file import read_recipe

        recipe = read_recipe(args.recipe)
        for ways in _ALTERNATIVES:
            if any(name in options for name in ways):
                # One that is given in place of another: --win-len of win_seconds.
                recipe = {n: v for n, v in recipe.items() if n not in ways}
        options = {**recipe, **options}
    return options


def _parse_features(texts: Sequence[str]) -> dict[str, str]:
    features: dict[str, str] = {}
    for text in texts:
        name, equals, expression = text.partition("=")
        if not equals or not name.isidentifier():
            raise RecipeError("--feature", "must look like NAME=EXPR", text)
        if name in features:
            raise RecipeError("--feature", "two features have the same name", name)
        features[name] = expression
    return features
