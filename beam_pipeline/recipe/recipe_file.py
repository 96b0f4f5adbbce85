"""Recipes in files: YAML with the names of options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beam_pipeline.errors import InputError, OptionError, RecipeError
from beam_pipeline.recipe.recipe import named_options, recipe_options
from beam_pipeline.storage import files
from beam_pipeline.text import shown

# What stands for no value where an option may have none.
_NULLS = ("", "~", "null")


def read_recipe(path: str) -> dict[str, Any]:
    """Returns the options of the recipe in a file, by names in Python.

    Raises
    ------
    InputError
        If the file does not exist or cannot be parsed, or if a name is unknown or
        occurs twice.
    RecipeError
        If a value is of a type that its option cannot have.
    """
    location = files.absolute(path)
    if files.size(location) < 0:
        raise InputError(
            f"{path}: there is no such file, or it is a folder without metadata.json, "
            "which is no data set. Check `recipe`."
        )
    values = _load(files.read_bytes(location), path)
    if not isinstance(values, dict):
        raise InputError(
            f"{path} must hold a recipe: names of options with their values; got "
            f"{shown(values)}."
        )
    return _by_option(values, path)


def _load(text: bytes, path: str) -> Any:
    """Parses YAML, which includes JSON; texts, numbers and all else stay text.

    The type of an option parses them as the text of a flag. So ``no``, ``007`` and
    ``1:30`` are classes.
    """
    import yaml

    class Loader(yaml.BaseLoader):  # type: ignore[misc]
        """A loader that refuses a name that occurs twice."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            made, seen = super().construct_mapping(node, deep), set()
            for key, _ in node.value:
                if key.value in seen:
                    raise yaml.MarkedYAMLError(
                        None, None, f"{key.value} occurs twice", key.start_mark
                    )
                seen.add(key.value)
            return made

    try:
        return yaml.load(text, Loader)
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{path}: not a recipe in YAML or JSON: {error}") from error
    except RecursionError as error:
        raise InputError(f"{path} is nested too deep for a recipe") from error


def _by_option(values: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Returns the checked values by the names of options, which may be those of flags.

    Only the recipe of a data set has options that no flag gives.
    """
    known = {n: o for n, o in recipe_options().items() if not o.is_carried}
    try:
        found = named_options(values, known)
    except OptionError as error:
        raise InputError(f"{path}: {error}") from error
    named: dict[str, Any] = {}
    for option, value in found:
        given = option.values.parse(value) if isinstance(value, str) else value
        if value in _NULLS and option.default is None:
            given = None
        try:
            if given is not None:
                given = option.values.json(option.values.value(option.name, given))
        except RecipeError as error:
            where, problem, got = error.args
            raise RecipeError(f"{path}: {where}", problem, got) from error.__cause__
        named[option.name] = given
    return named
