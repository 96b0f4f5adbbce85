"""Parameters: values that recipes, runs and steps take, each declared once.

A field of a class that derives from :class:`Declared`, which makes it a frozen
dataclass, names the type of its values. From that follow the checks, the parser of a
flag's text, and the JSON::

    class Windows(Declared):
        hop: int | None = parameter(None, WholeNumber())

A value has three forms::

    --classes owl,tit         given            text, a Python object, or JSON
    ("owl", "tit")            in a field       what the package computes with
    "classes": "owl,tit"      metadata.json    JSON, which a recipe's hash covers

Each check raises :class:`.RecipeError` with the name and the value found.
"""

from __future__ import annotations

import csv
import inspect
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, dataclass_transform

from beam_pipeline.errors import RecipeError, UnknownOption, did_you_mean

if TYPE_CHECKING:
    from typing import Self

_ATTRIBUTES = "\nAttributes\n----------\n"
# As YAML spells them.
_FLAGS = {
    **dict.fromkeys(("true", "yes", "on"), True),
    **dict.fromkeys(("false", "no", "off"), False),
}


@dataclass(frozen=True)
class ValueType:
    """What values a parameter has; this one allows any."""

    def parse(self, text: str) -> Any:
        """Returns what a text stands for; the text itself if it stands for nothing."""
        return text

    def value(self, name: str, given: Any) -> Any:
        """Returns what a field holds for a given value, which may be held or JSON.

        Raises
        ------
        RecipeError
            If the value is not allowed.
        """
        return given

    def json(self, held: Any) -> Any:
        """Returns the JSON of what a field holds."""
        return held


@dataclass(frozen=True)
class Flag(ValueType):
    """True or False."""

    def parse(self, text: str) -> Any:
        return _FLAGS.get(text.lower(), text)

    def value(self, name: str, given: Any) -> bool:
        if not isinstance(given, bool):
            raise RecipeError(name, "must be True or False", given)
        return given


@dataclass(frozen=True)
class WholeNumber(ValueType):
    """A whole number between bounds, or one of some words."""

    least: int | None = 1
    most: int | None = None
    words: tuple[str, ...] = ()

    def parse(self, text: str) -> Any:
        return int(text) if re.fullmatch("[+-]?[0-9]{1,4000}", text) else text

    def value(self, name: str, given: Any) -> Any:
        if isinstance(given, str) and given in self.words:
            return given
        is_number = isinstance(given, Integral) and not isinstance(given, bool)
        if not (is_number and self._is_within(int(given))):
            choices = ", ".join([*self.words, "a whole number"])
            raise RecipeError(
                name, f"must be {choices}{_bounds(self.least, self.most)}", given
            )
        return int(given)  # it may be numpy's

    def _is_within(self, number: int) -> bool:
        is_low = self.least is not None and number < self.least
        return not (is_low or (self.most is not None and number > self.most))


@dataclass(frozen=True)
class Bytes(WholeNumber):
    """A number of bytes, also as text with a unit: ``128MiB``."""

    def parse(self, text: str) -> Any:
        match = re.fullmatch(r"(\d+)\s*(|[kmgt]i?b|b)", text.strip(), re.IGNORECASE)
        if match is None:
            return text
        unit = match[2].lower()
        power = " kmgt".index(unit[0]) if unit and unit != "b" else 0
        return int(match[1]) * int((1024 if "i" in unit else 1000) ** power)


@dataclass(frozen=True)
class Number(ValueType):
    """A finite number; a field holds a float, so that 1 is 1.0.

    Attributes
    ----------
    least, most : float, optional
        The least and the largest allowed number.
    below : float, optional
        Numbers must be below this one.
    is_positive : bool
        Whether it must be above 0.
    unit : str
        The unit, for errors: ``seconds``.
    """

    least: float | None = None
    most: float | None = None
    below: float | None = None
    is_positive: bool = False
    unit: str = ""

    def parse(self, text: str) -> Any:
        try:
            return float(text)
        except ValueError:
            return text

    def value(self, name: str, given: Any) -> float:
        is_number = isinstance(given, Real) and not isinstance(given, bool)
        if not (is_number and self._is_within(given)):
            what = "a positive number" if self.is_positive else "a finite number"
            unit = f" of {self.unit}" if self.unit else ""
            below = "" if self.below is None else f", below {self.below:g}"
            bounds = _bounds(self.least, self.most) + below
            raise RecipeError(name, f"must be {what}{unit}{bounds}", given)
        return float(given)

    def _is_within(self, number: float) -> bool:
        is_low = self.least is not None and number < self.least
        is_high = self.most is not None and number > self.most
        is_high |= self.below is not None and number >= self.below
        is_other = self.is_positive and number <= 0
        return math.isfinite(number) and not (is_low or is_high or is_other)


def _bounds(least: float | None, most: float | None) -> str:
    """The end of an error: which numbers are allowed."""
    low, high = (str(n) if is_whole(n) else f"{n or 0:g}" for n in (least, most))
    if least is not None and most is not None:
        return f" from {low} to {high}"
    if least is not None:
        return f", {low} or more"
    return "" if most is None else f", {high} or less"


@dataclass(frozen=True)
class Text(ValueType):
    """Text."""

    may_be_empty: bool = False
    is_character: bool = False

    def value(self, name: str, given: Any) -> str:
        if not isinstance(given, str):
            raise RecipeError(name, "must be text", given)
        if not (given or self.may_be_empty):
            raise RecipeError(name, "must not be empty", given)
        if self.is_character and len(given) != 1:
            raise RecipeError(name, "must be one character", given)
        return given


@dataclass(frozen=True)
class Choice(ValueType):
    """One of some words."""

    choices: tuple[str, ...]

    def value(self, name: str, given: Any) -> Any:
        if given not in self.choices:
            raise RecipeError(name, f"must be one of {', '.join(self.choices)}", given)
        return given


@dataclass(frozen=True)
class Names(ValueType):
    """Names, as a list or as text with commas between them; a field holds a tuple.

    Attributes
    ----------
    none : str, optional
        The text for no names.
    known : tuple of str, optional
        What names there are. Default: any.
    are_different : bool
        Whether no name may be empty or occur twice.
    """

    none: str | None = None
    known: tuple[str, ...] = ()
    are_different: bool = False

    def value(self, name: str, given: Any) -> tuple[str, ...]:
        text = comma_text(given) if isinstance(given, list | tuple) else given
        if self.none is not None and text in ("", self.none):
            return ()
        names = tuple(comma_list(Text().value(name, text)))
        for each in names if self.known else ():
            Choice(self.known).value(name, each)
        if self.are_different and ("" in names or len(set(names)) < len(names)):
            like = ",".join(self.known or ("owl", "tit"))
            raise RecipeError(name, f"must be different names, like {like}", text)
        return names

    def json(self, held: Any) -> Any:
        return comma_text(held) or self.none


def parameter(default: Any, values: ValueType, /, **declared: Any) -> Any:
    """Declares a field of a :class:`Declared` dataclass.

    Parameters
    ----------
    default : object
        What the field holds if no value is given. None allows None;
        :data:`dataclasses.MISSING`: a value must be given.
    values : ValueType
    **declared
        What else the field's metadata hold.
    """
    metadata = {"values": values, **declared}
    if isinstance(default, Mapping):
        return field(default_factory=lambda: dict(default), metadata=metadata)
    return field(default=default, metadata=metadata)


@dataclass_transform(frozen_default=True, kw_only_default=True)
@dataclass(frozen=True, kw_only=True)
class Declared:
    """Base of frozen dataclasses whose fields are declared by :func:`parameter`.

    A subclass needs no decorator: its options are those of the class, as in
    ``class Gain(Step, kw_only=False)``. Fields hold checked values. A subclass checks
    values together in ``check``.

    Raises
    ------
    RecipeError
        If a field does not allow its value, or no field has the name of a keyword.
    """

    def __init_subclass__(cls, *, kw_only: bool = True, **options: bool) -> None:
        dataclass(frozen=True, kw_only=kw_only, **options)(cls)

    def __new__(cls, *args: Any, **given: Any) -> Self:
        known = [each.name for each in fields(cls) if each.init]
        for name in given:
            if name not in known:
                problem = f"no parameter {name}; {_hint(name, known, 'parameters')}"
                raise RecipeError(cls.__name__, problem, given[name])
        return super().__new__(cls)

    def __post_init__(self) -> None:
        for each in fields(self):
            given, values = getattr(self, each.name), each.metadata.get("values")
            is_default = each.default is not MISSING and given is each.default
            if values is None or is_default:
                continue
            object.__setattr__(self, each.name, values.value(each.name, given))
        self.check()

    def check(self) -> None:
        """Checks what depends on several values."""


def _hint(name: str, known: Sequence[str], what: str) -> str:
    """Returns the remedy for a name that does not exist."""
    close = did_you_mean(name, known)
    names = ", ".join(known) or "none"
    return f"did you mean {close}?" if close else f"the {what} are {names}"


def unknown_option(name: str, known: Iterable[str]) -> UnknownOption:
    """Returns the error for an unknown option; its hint names the closest option."""
    dash = "-" if "-" in name else "_"  # as it is written
    names = sorted(each.replace("_", dash) for each in known)
    return UnknownOption(name, _hint(name, names, "options"))


def check_known(given: Iterable[str], known: Sequence[str]) -> None:
    """Raises UnknownOption if a keyword is not known."""
    for name in given:
        if name not in known:
            raise unknown_option(name, known)


def attribute_texts(cls: type) -> dict[str, str]:
    """Returns what the docstrings of a class and its bases say of each attribute.

    They have a section ``Attributes``, with a line for each name and indented text.
    """
    texts: dict[str, list[str]] = {}
    for base in cls.__mro__:
        _, _, section = inspect.cleandoc(base.__doc__ or "").partition(_ATTRIBUTES)
        words: list[str] = []
        for line in section.partition("\n----")[0].splitlines():
            if line and not line.startswith(" "):
                words = texts.setdefault(line.partition(" ")[0], [])
            words += line.split() if line.startswith(" ") else []
    return {name: " ".join(words) for name, words in texts.items()}


def comma_list(text: str | None) -> list[str]:
    """Returns the parts of ``a, b,c``; an empty list for None.

    A part that contains a comma is in quotes, as in CSV: ``a,"b, or c"``.
    """
    if not text:
        return [] if text is None else [""]
    (parts,) = csv.reader([text], skipinitialspace=True)
    return [part.strip() for part in parts]


def comma_text(parts: Iterable[object]) -> str:
    """Returns the text that :func:`comma_list` parses into these parts."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([str(part) for part in parts])
    return line.getvalue()


def is_whole(value: Any) -> bool:
    """Whether a value is an integer and not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_real(value: Any) -> bool:
    """Whether a value is an integer or a float, and not a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_whole(name: str, value: Any, least: int | None = 1) -> int:
    """Returns an integer; refuses anything else, and integers below ``least``."""
    whole: int = WholeNumber(least).value(name, value)
    return whole


def check_flag(name: str, value: Any) -> bool:
    """Returns a bool; refuses anything else."""
    flag: bool = Flag().value(name, value)
    return flag


def check_text(name: str, value: Any, may_be_empty: bool = False) -> None:
    """Refuses anything but text, and empty text unless it is allowed."""
    Text(may_be_empty).value(name, value)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Refuses anything but one of the choices."""
    Choice(tuple(choices)).value(name, value)
