"""Flags as the keywords of ``record``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from beam_pipeline.errors import RecipeError


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

        options = {**read_recipe(args.recipe), **options}
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
