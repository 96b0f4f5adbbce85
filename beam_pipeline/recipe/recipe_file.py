"""Recipes in files: YAML with the flags' names, or the metadata of a data set."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beam_pipeline.errors import InputError, RecipeError, did_you_mean
from beam_pipeline.recipe.recipe import recipe_options
from beam_pipeline.storage import files

# Fields that are steps, and how they may look.
_STEPS = {
    "stream": "high_pass(cutoff_hz=50)",
    "keep": "energy(above_db=-50)",
    "augment": "random_gain()|noise()",
}


def read_recipe(path: str) -> dict[str, Any]:
    """The fields of the recipe that a file gives, by their names in Python.

    Raises
    ------
    InputError
        If the file is not there, cannot be read, or has a name twice or a wrong one.
    RecipeError
        If a value is of a kind that its field cannot have.
    """
    location = files.absolute(path)
    if files.size(location) < 0:
        raise InputError(f"{path}: there is no such file. Check --recipe.")
    values = _load(files.read_bytes(location), path)
    if isinstance(values, dict) and "format_version" in values:
        values = values.get("recipe")
    if not isinstance(values, dict):
        raise InputError(f"{path} holds no recipe, but {type(values).__name__}.")
    named = _by_field(values, path)
    for name, value in named.items():
        try:
            named[name] = _checked(name, value)
        except RecipeError as error:
            where, problem, got = error.args
            raise RecipeError(f"{path}: {where}", problem, got) from error
    return named


def _load(text: bytes, path: str) -> Any:
    """What is in YAML, of which JSON is a part; a name that comes twice is refused."""
    import yaml

    try:
        loader = yaml.SafeLoader(text)
        root = loader.get_single_node()
        if root is None:
            return None
        _check_names_once(root, path)
        return loader.construct_document(root)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is neither YAML nor JSON: {error}") from error


def _check_names_once(root: Any, path: str) -> None:
    """Raises InputError if a mapping of YAML, at any depth, has a name twice."""
    import yaml

    left, seen = [root], set()
    while left:
        node = left.pop()
        if id(node) in seen:  # reached by an alias, too
            continue
        seen.add(id(node))
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
                    f"{path}: {key.value} stands there twice, in lines "
                    f"{lines[key.value]} and {line}. Keep one of them."
                )
            lines[key.value] = line


def _by_field(values: Mapping[Any, Any], path: str) -> dict[str, Any]:
    """The same values by the fields' names; in files they may be those of flags."""
    known = recipe_options()
    written: dict[str, str] = {}
    named = {}
    for key, value in values.items():
        text = str(key)
        name = text.replace("-", "_")
        if name not in known:
            close = did_you_mean(name, known)
            hint = "The recipe in audio-tfrecords record --help lists them."
            if close:
                dashed = close.replace("_", "-")
                hint = f"Did you mean {close if '_' in text else dashed}?"
            raise InputError(f"{path}: a recipe has no field {text}. {hint}")
        if name in named:
            raise InputError(
                f"{path}: {written[name]} and {text} are the same. Keep one of them."
            )
        named[name], written[name] = value, text
    return named


def _checked(name: str, value: Any) -> Any:
    """A field's value, if it is of a kind that a file can give it."""
    if name == "features":
        if not isinstance(value, dict):
            raise RecipeError(
                name, "must be names with transforms, like {mel: log_mel()}", value
            )
        for feature, transform in value.items():
            if not isinstance(feature, str):
                raise RecipeError(name, "a name must be text; quote it", feature)
            if not isinstance(transform, str):
                raise RecipeError(
                    f"{name}: {feature}",
                    "must be text, like log_mel(n_mels=64)",
                    transform,
                )
        return value
    if name in _STEPS and not isinstance(value, str):
        raise RecipeError(
            name,
            f"must be text, like {_STEPS[name]}, with | between steps if there are "
            "several",
            value,
        )
    _, option = recipe_options()[name]
    parse = option.parse
    if isinstance(value, str) and parse not in (int, float):
        return parse(value)  # YAML has numbers of its own
    return value
