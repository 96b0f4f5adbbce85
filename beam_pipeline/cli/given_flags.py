"""Flags as the keywords of ``record``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from beam_pipeline.errors import RecipeError
from beam_pipeline.recipe.fields import ByFeature, Option, options_of
from beam_pipeline.recipe.options import RunOptions
from beam_pipeline.recipe.recipe import recipe_options


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """Returns the options of the recipe and the run, as keywords of ``record``."""
    of_run = {option.name: option for option in options_of(RunOptions)}
    known = {**recipe_options(), **of_run}
    given = {name: value for name, value in vars(args).items() if name in known}
    for name, texts in given.items():
        if isinstance(known[name].values, ByFeature):
            given[name] = _by_feature(known[name], texts)
    return given


def _by_feature(option: Option, texts: Sequence[str]) -> dict[str, str]:
    """Returns the texts after each ``NAME=``, by the names."""
    named: dict[str, str] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        if not equals or not name.isidentifier():
            raise RecipeError(option.flag, f"must look like {option.metavar}", text)
        if name in named:
            raise RecipeError(option.flag, "is given twice for the same feature", name)
        named[name] = rest
    return named
