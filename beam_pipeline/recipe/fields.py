"""Options of a recipe and of a run: how a section declares them, and their types.

:func:`option` declares a field of a section once. The flag, the keyword, and the name
in YAML and in ``metadata.json`` follow from it. The forms of a value are those of
:mod:`beam_pipeline.parameters`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from functools import cache
from typing import Any

from beam_pipeline.errors import RecipeError
from beam_pipeline.parameters import ValueType, check_text, parameter
from beam_pipeline.recipe.moved_groups import moves_text, parse_moves


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option.

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
    values : ValueType
        What values it has.
    """

    name: str
    field: str
    default: Any
    help: str
    metavar: str
    values: ValueType

    @property
    def choices(self) -> tuple[str, ...]:
        """All allowed values; empty if they cannot be listed."""
        choices: tuple[str, ...] = getattr(self.values, "choices", ())
        return choices


def option(
    default: Any,
    values: ValueType,
    help: str,
    metavar: str = "",
    *,
    name: str | None = None,
    held: Any = None,
) -> Any:
    """Declares a field of a section as an option.

    Parameters
    ----------
    default, values, help, metavar
        See :class:`Option`.
    name : str, optional
        The option's name. Default: the field's.
    held : object, optional
        What the section holds for the default. Default: ``default`` itself.
    """
    return parameter(
        default if held is None else held,
        values,
        name=name,
        default=default,
        help=help,
        metavar=metavar,
    )


@cache
def options_of(section: type) -> tuple[Option, ...]:
    """Returns the options that a section declares, in the order of its fields."""
    options = []
    for each in fields(section):
        declared = dict(each.metadata)
        if not declared:
            continue
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
    options = options_of(section)
    # None stands for an option that is not given.
    absent = {o.name for o in options if o.default is None and given[o.name] is None}
    return section(**{o.field: given[o.name] for o in options if o.name not in absent})


def changed_options(section: Any) -> list[Option]:
    """Returns the options of a section that have other values than the defaults."""
    declared: type = type(section)
    return [
        each
        for each in options_of(declared)
        if getattr(section, each.field) != getattr(declared, each.field)
    ]


def json_of(section: Any, option: Option) -> Any:
    """Returns the JSON of an option's value in a section."""
    return option.values.json(option.name, getattr(section, option.field))


def check_one_of(given: Mapping[str, Any], needed: str | None = None) -> None:
    """Refuses more than one of these options; with ``needed``, none of them, too.

    ``needed`` is what one of them has to give.
    """
    present = {name: value for name, value in given.items() if value is not None}
    if len(present) > 1:
        raise RecipeError(" and ".join(present), "give only one of them", present)
    if needed is not None and not present:
        raise RecipeError(" or ".join(given), f"give one of them: {needed}", None)


@dataclass(frozen=True)
class Shares(ValueType):
    """Names with shares: ``train=.8,test=.2``, or a mapping; a field holds a dict.

    Shares are relative: ``train=8,test=2`` means the same. So .7, .2 and .1, whose sum
    in binary is not 1, are valid, too. A field's shares add up to 1.
    """

    def json(self, name: str, given: Any) -> Any:
        return shares_text(given) if isinstance(given, Mapping) else given

    def value(self, name: str, json: Any) -> dict[str, float]:
        check_text(name, json)
        return parse_shares(json)


@dataclass(frozen=True)
class Moves(ValueType):
    """Groups that are in another split than that of their hash."""

    def json(self, name: str, given: Any) -> Any:
        return moves_text(given) if isinstance(given, Mapping) else given

    def value(self, name: str, json: Any) -> dict[int, str]:
        return parse_moves(name, json)


@dataclass(frozen=True)
class Steps(ValueType):
    """Steps: an expression, or Python objects; a field holds the expression."""

    example: str
    may_be_empty: bool = True

    def json(self, name: str, given: Any) -> Any:
        if isinstance(given, str) or given is None:
            return given
        from beam_pipeline.transforms.steps import STEP_FIELDS, format_steps

        steps = getattr(given, "steps", given)  # a chain has them
        several = list(steps) if isinstance(steps, list | tuple) else [steps]
        if any(isinstance(step, str | bool | int | float | dict) for step in several):
            raise RecipeError(
                name,
                f"must be text, like {self.example}, with | between several steps",
                given,
            )
        return format_steps(several, STEP_FIELDS[name])

    def value(self, name: str, json: Any) -> Any:
        check_text(name, json, self.may_be_empty)
        return json


def as_given(feature: str, value: Any) -> Any:
    """Returns the value of a feature unchanged."""
    return value


@dataclass(frozen=True)
class ByFeature(ValueType):
    """A text for each feature, by its name.

    Attributes
    ----------
    noun : str
        What the mapping holds, with an example, for errors.
    texts : ValueType
        The type of the texts.
    text_of : callable
        Makes a text of an object, from the name of the feature and the object.
    """

    noun: str
    texts: ValueType
    text_of: Callable[[str, Any], Any] = as_given

    def json(self, name: str, given: Any) -> Any:
        if not isinstance(given, Mapping):
            raise RecipeError(name, f"must map names to {self.noun}", given)
        return {
            feature: self._text(name, feature, value)
            for feature, value in given.items()
        }

    def _text(self, name: str, feature: Any, value: Any) -> Any:
        if not isinstance(feature, str):
            raise RecipeError(
                name, "names must be text; in YAML, put this name in quotes", feature
            )
        return self.texts.value(f"{name}: {feature}", self.text_of(feature, value))


def parse_shares(text: str) -> dict[str, float]:
    """Parses ``train=.8,eval=.1,test=.1`` as shares that add up to 1, in their order.

    Raises
    ------
    RecipeError
        If the text has another form, a name occurs twice, or a share is not positive.
    """
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        try:
            share = float(value)
        except ValueError:
            share = math.nan
        if not (equals and name.isidentifier() and math.isfinite(share) and share > 0):
            raise RecipeError(
                "splits", "must look like train=.8,eval=.1,test=.1", part or text
            )
        if name in shares:
            raise RecipeError("splits", f"names the split {name} twice", text)
        shares[name] = share
    total = math.fsum(shares.values())
    return {name: share / total for name, share in shares.items()}


def shares_text(shares: Mapping[str, object]) -> str:
    """Returns the text that :func:`parse_shares` parses into these shares."""
    return ",".join(f"{name}={share}" for name, share in shares.items())
