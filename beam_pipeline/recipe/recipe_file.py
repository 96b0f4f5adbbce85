"""Recipes in files: YAML with the names of options, or a data set's metadata."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beam_pipeline.errors import InputError, RecipeError, did_you_mean, shown
from beam_pipeline.parameters import Names
from beam_pipeline.recipe.recipe import recipe_options
from beam_pipeline.storage import files


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
    if files.exists(files.join(location, "metadata.json")):
        location = files.join(location, "metadata.json")
    if files.size(location) < 0:
        if files.is_folder(location):
            raise InputError(
                f"{path} is a folder without metadata.json, so it is no data set. Give "
                "a file or a data set as `recipe`."
            )
        raise InputError(f"{path}: there is no such file. Check `recipe`.")
    values = _load(files.read_bytes(location), path)
    if isinstance(values, dict) and "format_version" in values:
        values = _of_data_set(values)
    if not isinstance(values, dict):
        raise InputError(
            f"{path} must hold a recipe: names of options with their values; got "
            f"{shown(values, 80)}."
        )
    named = _by_option(values, path)
    for name, value in named.items():
        try:
            named[name] = _checked(name, value)
        except RecipeError as error:
            where, problem, got = error.args
            raise RecipeError(f"{path}: {where}", problem, got) from error.__cause__
    return named


def _of_data_set(metadata: Mapping[str, Any]) -> Any:
    """The recipe in a data set's metadata, with the classes beside it."""
    recipe, classes = metadata.get("recipe"), metadata.get("classes")
    if recipe is None and isinstance(metadata.get("options"), dict):
        recipe = metadata["options"].get("recipe")  # of a data set that was converted
    if isinstance(recipe, dict) and recipe.get("classes") is None and classes:
        return {**recipe, "classes": classes}
    return recipe


def _load(text: bytes, path: str) -> Any:
    """Parses YAML, which includes JSON, and refuses a name that occurs twice."""
    import yaml

    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            return None
        _check_names_once(root, path)
        _keep_names_as_text(root)
        return loader.construct_document(root)
    except (yaml.YAMLError, ValueError) as error:
        raise InputError(f"{path} is neither YAML nor JSON: {error}") from error
    except RecursionError as error:
        raise InputError(f"{path} is nested too deep for a recipe") from error


def _check_names_once(root: Any, path: str) -> None:
    """Raises InputError if a mapping of YAML, at any depth, has a name twice."""
    import yaml

    left, visited = [root], set()
    while left:
        node = left.pop()
        if id(node) in visited:  # an alias leads to a node again
            continue
        visited.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            left += node.value
        if not isinstance(node, yaml.MappingNode):
            continue
        lines: dict[str, int] = {}
        for key, value in node.value:
            left.append(value)
            if not isinstance(key, yaml.ScalarNode):
                continue
            line = key.start_mark.line + 1
            if key.value in lines:
                raise InputError(
                    f"{path}: {key.value} occurs twice, in lines "
                    f"{lines[key.value]} and {line}. Keep one of them."
                )
            lines[key.value] = line


def _keep_names_as_text(root: Any) -> None:
    """Makes all names in a list text: ``no``, ``007`` and ``1:30`` are classes."""
    import yaml

    if not isinstance(root, yaml.MappingNode):
        return
    for key, value in root.value:
        _, option = recipe_options().get(str(key.value).replace("-", "_"), ("", None))
        is_list = isinstance(value, yaml.SequenceNode)
        if is_list and option is not None and isinstance(option.values, Names):
            for name in value.value:
                if isinstance(name, yaml.ScalarNode):
                    name.tag = "tag:yaml.org,2002:str"


def _by_option(values: Mapping[Any, Any], path: str) -> dict[str, Any]:
    """Returns the values by the options' names; the file may have those of flags."""
    known = recipe_options()
    written: dict[str, str] = {}
    named = {}
    for key, value in values.items():
        text = str(key)
        name = text.replace("-", "_")
        if name not in known:
            close = did_you_mean(name, known)
            hint = "audio-tfrecords record --help lists the options."
            if close:
                dashed = close.replace("_", "-")
                hint = f"Did you mean {dashed if '-' in text else close}?"
            raise InputError(f"{path}: a recipe has no option {text}. {hint}")
        if name in named:
            raise InputError(
                f"{path}: {written[name]} and {text} are the same option. Keep one of "
                "them."
            )
        named[name], written[name] = value, text
    return named


def _checked(name: str, value: Any) -> Any:
    """Returns an option's value from a file, parsed and checked."""
    _, option = recipe_options()[name]
    given = option.values.from_file(value)
    if given is not None or option.default is not None:
        option.values.value(name, option.values.json(name, given))
    return given
