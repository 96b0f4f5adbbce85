"""Recipes in files: YAML with the names of options, or a data set's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beam_pipeline.errors import InputError, RecipeError, did_you_mean, shown
from beam_pipeline.recipe.fields import find_option
from beam_pipeline.recipe.recipe import recipe_options
from beam_pipeline.storage import files

# Tags of YAML that a recipe may have.
_KINDS = {"str", "null", "bool", "int", "float", "timestamp", "seq", "map"}


def read_recipe(path: str) -> dict[str, Any]:
    """Returns the options of the recipe in a file or a data set, by names in Python.

    Those of a data set have its classes, in its order, so that its targets keep their
    meaning for other data.

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
        if files.is_folder(location):
            raise InputError(
                f"{path} is a folder without metadata.json, so it is no data set. Give "
                "a file or a data set as `recipe`."
            )
        raise InputError(f"{path}: there is no such file. Check `recipe`.")
    values = _load(files.read_bytes(location), path)
    of_data_set = isinstance(values, dict) and "format_version" in values
    if of_data_set:
        values = _of_data_set(values)
    if not isinstance(values, dict):
        raise InputError(
            f"{path} must hold a recipe: names of options with their values; got "
            f"{shown(values, 80)}."
        )
    return _by_option(values, path, of_data_set)


def _of_data_set(metadata: Mapping[str, Any]) -> Any:
    """The recipe in a data set's metadata, with the classes beside it."""
    recipe, classes = metadata.get("recipe"), metadata.get("classes")
    if recipe is None and isinstance(metadata.get("options"), dict):
        recipe = metadata["options"].get("recipe")  # of a data set that was converted
    if isinstance(recipe, dict) and recipe.get("classes") is None and classes:
        return {**recipe, "classes": classes}
    return recipe


def _load(text: bytes, path: str) -> Any:
    """Parses YAML, which includes JSON.

    Texts and numbers stay text, which the type of an option parses as the text of a
    flag. So ``no``, ``007`` and ``1:30`` are classes.
    """
    import yaml

    try:
        root = yaml.compose(text, yaml.SafeLoader)
        return None if root is None else _value(root, path, {})
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{path} is neither YAML nor JSON: {error}") from error
    except RecursionError as error:
        raise InputError(f"{path} is nested too deep for a recipe") from error


def _value(node: Any, path: str, known: dict[int, Any]) -> Any:
    """Returns what a node of YAML stands for; an alias is the same object again.

    Raises
    ------
    InputError
        If a mapping has a name twice.
    """
    if id(node) in known:
        return known[id(node)]
    kind = node.tag.removeprefix("tag:yaml.org,2002:")
    if kind not in _KINDS:
        raise ValueError(f"{node.tag} in line {node.start_mark.line + 1}")
    if isinstance(node.value, str):
        found: Any = {"null": None, "bool": node.value.lower() in ("true", "yes", "on")}
        return found.get(kind, node.value)
    if node.id == "sequence":
        made: Any = known.setdefault(id(node), [])
        made += (
            each.value if isinstance(each.value, str) else _value(each, path, known)
            for each in node.value
        )
        return made
    made, lines = known.setdefault(id(node), {}), {}  # type: ignore[var-annotated]
    for key, value in node.value:
        if not isinstance(key.value, str):
            raise ValueError(f"a name must be text, in line {key.start_mark.line + 1}")
        line = key.start_mark.line + 1
        if key.value in made:
            raise InputError(
                f"{path}: {key.value} occurs twice, in lines {lines[key.value]} and "
                f"{line}. Keep one of them."
            )
        made[key.value], lines[key.value] = _value(value, path, known), line
    return made


def _by_option(
    values: Mapping[str, Any], path: str, of_data_set: bool
) -> dict[str, Any]:
    """Returns the checked values by the names of options, which may be those of flags.

    Only the recipe of a data set has options that no flag gives.
    """
    known = {
        n: o for n, o in recipe_options().items() if of_data_set or not o.is_carried
    }
    written: dict[str, str] = {}
    named: dict[str, Any] = {}
    for text, value in values.items():
        name = text.replace("-", "_")
        option = find_option(known, name)
        if option is None:
            close = did_you_mean(name, known)
            hint = "audio-tfrecords record --help-all lists the options."
            if close:
                dashed = close.replace("_", "-")
                hint = f"Did you mean {dashed if '-' in text else close}?"
            raise InputError(f"{path}: a recipe has no option {text}. {hint}")
        if option.name in named:
            raise InputError(
                f"{path}: {written[option.name]} and {text} are the same option. Keep "
                "one of them."
            )
        given = option.values.parse(value) if isinstance(value, str) else value
        try:
            if given is not None or option.default is not None:
                option.values.value(option.name, option.values.json(option.name, given))
        except RecipeError as error:
            where, problem, got = error.args
            raise RecipeError(f"{path}: {where}", problem, got) from error.__cause__
        named[option.name], written[option.name] = given, text
    return named
