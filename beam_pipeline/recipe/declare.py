"""Options: how a section declares them, and their types.

:func:`option` declares a field of a section once, and the section's docstring explains
it. The flag, the keyword, the name in YAML and in ``metadata.json``, the checks and the
text of ``--help`` follow from it. The forms of a value are those of
:mod:`beam_pipeline.parameters`.

The options of a recipe are in :mod:`.recipe`, those of a run in :mod:`.run_options`.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any

from beam_pipeline.errors import RecipeError
from beam_pipeline.parameters import Text, ValueType, attribute_texts, parameter

_KEY_BYTES = 6
_SHARES_ROUNDED = 0.0101  # .33 three times
_GROUPS = re.compile("([A-Za-z0-9_-]{8})+")


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option of a recipe, a run or a command.

    Attributes
    ----------
    name : str
        The keyword, the name in YAML and JSON, and the attribute that holds the value.
    default : object
        The default, as JSON.
    metavar : str
        What stands for a value in ``--help``.
    values : ValueType
        What values it has.
    help : str
        What the option does.
    is_carried : bool
        Whether only the recipe of a data set has it: neither flags nor keywords do.
    repeats : bool
        Whether the flag may be given several times.
    required : bool
        Whether the flag must be given.
    short : str
        Another flag than that of the name.
    """

    name: str
    default: Any
    metavar: str
    values: ValueType
    help: str
    is_carried: bool = False
    repeats: bool = False
    required: bool = False
    short: str = ""

    @property
    def choices(self) -> tuple[str, ...]:
        """All allowed values; empty if they cannot be listed."""
        choices: tuple[str, ...] = getattr(self.values, "choices", ())
        return choices

    @property
    def singular(self) -> str:
        """The name of one of its values, from which the flag follows: ``feature``."""
        return self.name[:-1] if isinstance(self.values, ByFeature) else self.name

    @property
    def flag(self) -> str:
        return self.short or "--" + self.singular.replace("_", "-")


def option(default: Any, values: ValueType, metavar: str = "", **more: Any) -> Any:
    """Declares a field as an option; the docstring of its class explains it.

    Parameters
    ----------
    default : object
        What the field holds if no value is given. None allows None.
    values, metavar, **more
        See :class:`Option`.
    """
    return parameter(default, values, metavar=metavar, **more)


@cache
def options_of(section: type) -> tuple[Option, ...]:
    """Returns the options that a section declares, in the order of its fields."""
    texts = attribute_texts(section)
    options = []
    for each in fields(section):
        declared = dict(each.metadata)
        if "values" not in declared:
            continue
        default = each.default
        if each.default_factory is not MISSING:
            default = each.default_factory()
        if default is not None:
            default = declared["values"].json(default)
        options.append(
            Option(
                name=each.name,
                default=default,
                help=texts.get(each.name, ""),
                **declared,
            )
        )
    return tuple(options)


def find_option(options: Mapping[str, Option], name: str) -> Option | None:
    """Returns the option with a name, which may be that of a flag: ``num-shards``."""
    name = name.replace("-", "_")
    found = options.get(name)
    return found or next((o for o in options.values() if o.singular == name), None)


def changed_options(section: Any, declared: type) -> list[Option]:
    """Returns the options of a section that have other values than the defaults."""
    return [o for o in options_of(declared) if json_of(section, o) != o.default]


def json_of(section: Any, option: Option) -> Any:
    """Returns the JSON of an option's value in a section; None stays None."""
    held = getattr(section, option.name)
    return None if held is None else option.values.json(held)


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

    Shares of which one is 1 or more are relative: ``train=8,test=2`` means the same.
    Fractions must add up to 1, within 1 %, so that .33 three times are valid.
    """

    def value(self, name: str, given: Any) -> dict[str, float]:
        text = self.json(given) if isinstance(given, Mapping) else given
        shares: dict[str, float] = {}
        for part in str(text).split(","):
            split, equals, number = part.strip().partition("=")
            try:
                share = float(number)
            except ValueError:
                share = math.nan
            if not (equals and split.isidentifier() and 0 < share < math.inf):
                raise RecipeError(
                    name, "must look like train=.8,eval=.1,test=.1", part or text
                )
            if split in shares:
                raise RecipeError(name, f"names the split {split} twice", text)
            shares[split] = share
        total = math.fsum(shares.values())
        if max(shares.values()) < 1 and abs(total - 1) > _SHARES_ROUNDED:
            raise RecipeError(
                name,
                f"has shares that add up to {total:.4g}, but they must add up to 1; or "
                "give ratios of whole numbers, like train=8,test=2",
                text,
            )
        return shares

    def json(self, held: Any) -> Any:
        parts = (f"{name}={share}".removesuffix(".0") for name, share in held.items())
        return ",".join(parts)


def relative_shares(shares: Mapping[str, float]) -> dict[str, float]:
    """Returns shares that add up to 1."""
    total = math.fsum(shares.values())
    return {name: share / total for name, share in shares.items()}


@dataclass(frozen=True)
class MovedGroups(ValueType):
    """Groups that are in another split than that of their hash; a field holds a dict.

    A group is known by the first 48 bits of its key, which are eight characters of
    Base64. So the recipe holds no names, and eight characters for each moved group::

        eval=9k3XnQ2bAAEgf0zu,test=-Zq01x_v
    """

    def value(self, name: str, given: Any) -> dict[int, str]:
        if isinstance(given, Mapping):
            return dict(given)
        moves: dict[int, str] = {}
        text = Text(may_be_empty=True).value(name, given)
        for part in text.split(",") if text else ():
            split, equals, encoded = part.partition("=")
            if not (split and equals and _GROUPS.fullmatch(encoded)):
                raise RecipeError(
                    name,
                    "must be SPLIT=GROUPS, as in the recipe of a data set's "
                    "metadata.json, with eight characters of Base64 for each group",
                    part,
                )
            content = base64.urlsafe_b64decode(encoded)
            for start in range(0, len(content), _KEY_BYTES):
                key = int.from_bytes(content[start : start + _KEY_BYTES], "big")
                if moves.setdefault(key, split) != split:
                    raise RecipeError(name, "names a group in two splits", text)
        return moves

    def json(self, held: Any) -> Any:
        parts = []
        for split in sorted(set(held.values())):
            keys = sorted(key for key, name in held.items() if name == split)
            content = b"".join(key.to_bytes(_KEY_BYTES, "big") for key in keys)
            parts.append(f"{split}={base64.urlsafe_b64encode(content).decode()}")
        return ",".join(parts)


def moved_key(key: int) -> int:
    """Returns the 48 bits of a group's key by which a recipe knows it."""
    return key >> 16


@dataclass(frozen=True)
class Steps(ValueType):
    """Steps: an expression, or Python objects; a field holds the expression."""

    example: str
    may_be_empty: bool = True

    def value(self, name: str, given: Any) -> str:
        if isinstance(given, str) or given is None:
            return Text(self.may_be_empty).value(name, given)
        from beam_pipeline.transforms.steps import STEP_FIELDS, format_steps

        steps = getattr(given, "steps", given)  # a chain has them
        several = list(steps) if isinstance(steps, list | tuple) else [steps]
        if any(isinstance(step, str | bool | int | float | dict) for step in several):
            problem = f"must be text, like {self.example}, with | between several steps"
            raise RecipeError(name, problem, given)
        return format_steps(several, STEP_FIELDS[name])


@dataclass(frozen=True)
class ByFeature(ValueType):
    """A text for each feature, by its name.

    Attributes
    ----------
    noun : str
        What the mapping holds, with an example, for errors.
    texts : ValueType
        The type of the texts.
    text_of : callable, optional
        Makes a text of an object, from the name of the feature and the object.
    """

    noun: str
    texts: ValueType
    text_of: Callable[[str, Any], Any] | None = None

    def value(self, name: str, given: Any) -> dict[str, str]:
        if not isinstance(given, Mapping):
            raise RecipeError(name, f"must map names to {self.noun}", given)
        held = {}
        for feature, value in given.items():
            text = value if self.text_of is None else self.text_of(feature, value)
            held[feature] = self.texts.value(f"{name}: {feature}", text)
        return held

    def json(self, held: Any) -> Any:
        return dict(held)
