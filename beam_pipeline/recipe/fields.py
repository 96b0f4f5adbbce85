"""Options as people give them, and how a section of the recipe declares them.

A field of a section is declared once, by :func:`option`. Its flag, its keyword, and its
name in YAML and in ``metadata.json`` follow from that::

    --classes owl,tit         the command line    text
    classes=["owl", "tit"]    Python              text or a list
    "classes": "owl,tit"      metadata.json       JSON, of which the recipe's hash is
    ("owl", "tit")            a section           what the package works with
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from beam_pipeline.errors import RecipeError
from beam_pipeline.recipe.values import (
    check_text,
    comma_list,
    comma_text,
    is_real,
    parse_shares,
    shares_text,
)


class Kind(NamedTuple):
    """How an option's values look: ``json(name, given)``, ``value(name, json)``."""

    json: Callable[[str, Any], Any]
    value: Callable[[str, Any], Any]


@dataclass(frozen=True)
class Option:
    """One option of a recipe.

    Attributes
    ----------
    name : str
        Its keyword; the flag has dashes instead of underscores.
    field : str
        The section's field.
    default : object
        As in JSON.
    help, metavar : str
        For ``--help``: what the option is for, and what to give.
    parse : callable
        From the text of a flag to JSON.
    choices : tuple of str
        The only values, if there are so few.
    """

    name: str
    field: str
    default: Any
    help: str
    metavar: str
    parse: Callable[[str], Any]
    choices: tuple[str, ...]
    kind: Kind


def as_given(name: str, value: Any) -> Any:
    """The value as it is."""
    return value


def _names_json(name: str, given: Any) -> Any:
    return comma_text(given) if isinstance(given, list | tuple) else given


def _names_value(name: str, text: Any) -> tuple[str, ...]:
    check_text(name, text, may_be_empty=name == "event_targets")
    return tuple(comma_list(text))


def _extra_value(name: str, text: Any) -> tuple[str, ...]:
    return () if text == "none" else _names_value(name, text)


def _shares_json(name: str, given: Any) -> Any:
    return shares_text(given) if isinstance(given, Mapping) else given


def _shares_value(name: str, text: Any) -> dict[str, float]:
    check_text(name, text)
    return parse_shares(text)


def _seconds(name: str, given: Any) -> Any:
    # One value has one JSON: 1 second is 1.0. What is refused is shown as it was given.
    return float(given) if is_real(given) and given > 0 else given


def _steps_json(name: str, given: Any) -> Any:
    if isinstance(given, str) or not given:
        return given
    from beam_pipeline.transforms.expressions import STEP_FIELDS, format_steps

    steps = getattr(given, "steps", given)  # of a chain
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


PLAIN = Kind(as_given, as_given)
SECONDS = Kind(_seconds, as_given)
NAMES = Kind(_names_json, _names_value)
EXTRA_NAMES = Kind(_names_json, _extra_value)
SHARES = Kind(_shares_json, _shares_value)
STEPS = Kind(_steps_json, as_given)
FEATURES = Kind(_features_json, as_given)


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
    """Declares a field of a section that is also an option.

    ``name`` is the option's, where the field has another; ``default`` is as in JSON,
    and ``value`` is what the section holds then, where that differs.
    """
    declared = (name, default, help, metavar, parse, choices, kind)
    held = default if value is None else value
    if isinstance(held, Mapping):
        return field(default_factory=lambda: dict(held), metadata={"option": declared})
    return field(default=held, metadata={"option": declared})


def options_of(section: type) -> Iterator[Option]:
    """The options that a section declares, in the order of its fields."""
    for each in fields(section):
        name, *declared = each.metadata["option"]
        yield Option(name or each.name, each.name, *declared)


def with_values(section: type, given: Mapping[str, Any]) -> Any:
    """The section with the values that options have in JSON."""
    values = {}
    for each in options_of(section):
        json = given[each.name]
        if json is not None or each.default is not None:
            values[each.field] = each.kind.value(each.name, json)
    return section(**values)
