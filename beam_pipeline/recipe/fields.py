"""Options of a recipe: how a section declares them, and the forms of their values.

:func:`option` declares a field of a section once. The flag, the keyword, and the name
in YAML and in ``metadata.json`` follow from it. A value has four forms::

    --classes owl,tit         the command line    text
    classes=["owl", "tit"]    Python              text or a list
    "classes": "owl,tit"      metadata.json       JSON, which the recipe's hash covers
    ("owl", "tit")            a section           what the package computes with
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import cache
from numbers import Integral
from typing import Any, NamedTuple

from beam_pipeline.errors import RecipeError
from beam_pipeline.recipe.moved_groups import moves_json, parse_moves
from beam_pipeline.recipe.values import (
    check_text,
    comma_list,
    comma_text,
    is_real,
    parse_shares,
    shares_text,
)


class Kind(NamedTuple):
    """Two conversions of an option's values, each called with the option's name.

    ``json(name, given)`` converts what Python or the command line gives to JSON.
    ``value(name, json)`` converts JSON to what the section holds.
    """

    json: Callable[[str, Any], Any]
    value: Callable[[str, Any], Any]


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option of a recipe.

    Attributes
    ----------
    name : str
        The keyword. The flag has dashes instead of underscores.
    field : str
        The section's field.
    default : object
        The default, as JSON.
    help, metavar : str
        For ``--help``: what the option does, and a name for its value.
    parse : callable
        Converts the text of a flag to JSON.
    choices : tuple of str
        All allowed values; empty if they cannot be listed.
    kind : Kind
        Converts values between their forms.
    """

    name: str
    field: str
    default: Any
    help: str
    metavar: str
    parse: Callable[[str], Any]
    choices: tuple[str, ...]
    kind: Kind


def _plain_json(name: str, given: Any) -> Any:
    if isinstance(given, Integral) and not isinstance(given, bool):
        return int(given)  # it may be numpy's
    return given


def as_given(name: str, value: Any) -> Any:
    """Returns the value unchanged."""
    return value


def _names_json(name: str, given: Any) -> Any:
    return comma_text(given) if isinstance(given, list | tuple) else given


def _names_value(name: str, text: Any) -> tuple[str, ...]:
    # An empty `event_targets` gets the error that lists the possible targets.
    check_text(name, text, may_be_empty=name == "event_targets")
    return tuple(comma_list(text))


def _names_or_none_value(name: str, text: Any) -> tuple[str, ...]:
    return () if text == "none" else _names_value(name, text)


def _shares_json(name: str, given: Any) -> Any:
    return shares_text(given) if isinstance(given, Mapping) else given


def _shares_value(name: str, text: Any) -> dict[str, float]:
    check_text(name, text)
    return parse_shares(text)


# Equal numbers have one JSON: 1 second is 1.0. A number that the section refuses keeps
# its form, so that the error shows it as given.


def _seconds_json(name: str, given: Any) -> Any:
    return float(given) if is_real(given) and given > 0 else given


def _fraction_json(name: str, given: Any) -> Any:
    return float(given) if is_real(given) and 0 <= given <= 1 else given


def _steps_json(name: str, given: Any) -> Any:
    if isinstance(given, str) or not given:
        return given
    from beam_pipeline.transforms.expressions import STEP_FIELDS, format_steps

    steps = getattr(given, "steps", given)  # a chain has them
    several = steps if isinstance(steps, list | tuple) else [steps]
    return format_steps(several, STEP_FIELDS[name])


def _features_json(name: str, given: Any) -> Any:
    if not isinstance(given, Mapping):
        raise RecipeError(name, "must map names to transforms", given)
    return {feature: _expression(feature, value) for feature, value in given.items()}


def _expression(feature: str, given: Any) -> Any:
    if isinstance(given, str) or not callable(given):
        return given
    from beam_pipeline.transforms.expressions import format_transform, naming_feature

    with naming_feature(feature):
        return format_transform(given)


def _encodings_json(name: str, given: Any) -> Any:
    if not isinstance(given, Mapping):
        raise RecipeError(name, "must map names of features to encodings", given)
    return dict(given)


PLAIN = Kind(_plain_json, as_given)
SECONDS = Kind(_seconds_json, as_given)
FRACTION = Kind(_fraction_json, as_given)
NAMES = Kind(_names_json, _names_value)
NAMES_OR_NONE = Kind(_names_json, _names_or_none_value)
SHARES = Kind(_shares_json, _shares_value)
MOVES = Kind(moves_json, parse_moves)
STEPS = Kind(_steps_json, as_given)
FEATURES = Kind(_features_json, as_given)
ENCODINGS_OF = Kind(_encodings_json, as_given)


def option(
    default: Any,
    help: str,
    metavar: str = "",
    *,
    name: str | None = None,
    parse: Callable[[str], Any] = str,
    choices: tuple[str, ...] = (),
    kind: Kind = PLAIN,
    value: Any = None,
) -> Any:
    """Declares a field of a section as an option.

    Parameters
    ----------
    default, help, metavar, parse, choices, kind
        See :class:`Option`.
    name : str, optional
        The option's name. Default: the field's.
    value : object, optional
        What the section holds for the default. Default: ``default`` itself.
    """
    declared = {
        "name": name, "default": default, "help": help, "metavar": metavar,
        "parse": parse, "choices": choices, "kind": kind,
    }  # fmt: skip
    held = default if value is None else value
    if isinstance(held, Mapping):
        return field(default_factory=lambda: dict(held), metadata=declared)
    return field(default=held, metadata=declared)


@cache
def options_of(section: type) -> tuple[Option, ...]:
    """Returns the options that a section declares, in the order of its fields."""
    options = []
    for each in fields(section):
        declared = dict(each.metadata)
        name = declared.pop("name") or each.name
        options.append(Option(name=name, field=each.name, **declared))
    return tuple(options)


def with_values(section: type, given: Mapping[str, Any]) -> Any:
    """Creates a section from the JSON values of its options.

    Raises
    ------
    RecipeError
        If the section refuses a value.
    """
    values = {}
    for each in options_of(section):
        json = given[each.name]
        if json is None and each.default is None:
            continue  # not given: the field's own default
        values[each.field] = each.kind.value(each.name, json)
    return section(**values)
