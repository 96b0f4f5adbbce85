"""Values of columns of tables: their types, from all values, and the values by type.

======================================  =================================
values of a column                      type
======================================  =================================
whole numbers                           int64
other numbers                           float32; float64 to keep digits
bytes                                   bytes
anything else                           string
lists of one of these                   a list, of one length or of any
======================================  =================================
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from beam_pipeline.inputs.tables import (
    BATCH_ROWS,
    Row,
    Table,
    declared_types,
    read_rows,
)

INT64, FLOAT32, FLOAT64 = "int64", "float32", "float64"
STRING, BYTES = "string", "bytes"
# float32 holds every whole number up to this one, and float64 up to the other.
MOST_WHOLE_FLOAT32 = 2**24
MOST_WHOLE_FLOAT64 = 2**53
MOST_FLOAT32 = 3.4028234663852886e38
# No file holds more frames: at 8 bits, these are a terabyte.
MOST_KNOWN = 2**40


class ColumnType(NamedTuple):
    """What each value of a column is.

    Attributes
    ----------
    dtype : str
        ``int64``, ``float32``, ``float64``, ``string`` or ``bytes``.
    shape : tuple
        ``()``: a single value. ``(n,)``: a list of n values. ``(None,)``: a list of any
        length.
    """

    dtype: str
    shape: tuple[int | None, ...] = ()

    @property
    def is_one_number(self) -> bool:
        """Whether a value is one number."""
        return not self.shape and self.dtype not in (STRING, BYTES)

    def __str__(self) -> str:
        sizes = ", ".join("any length" if n is None else str(n) for n in self.shape)
        return f"list of {self.dtype}, {sizes}" if self.shape else self.dtype


Column = tuple[str, ColumnType]

# Kinds of values. A number is WHOLE or a FLOAT; LARGE if it is an integer that float32
# may not hold; a FRACTION is LONG if float32 loses digits of it.
TEXT, RAW_BYTES, NESTED, MISSING, NAN = "text", "bytes", "nested", "missing", "NaN"
WHOLE, FLOAT, LARGE, FRACTION, LONG = "whole", "float", "large", "fraction", "long"


def column_types(
    tables: Sequence[Table], names: Sequence[str]
) -> dict[str, ColumnType]:
    """Finds the type of each column that examples hold, from all values of all tables.

    A column of whole numbers is int64, of other numbers float32, or float64 if float32
    would lose digits, and of anything else text. If numbers are missing, they are NaN
    and the column is not int64; but with whole numbers beyond 2**24, which may be keys,
    it is text. Lists of such values are lists of one type. Lists of lists, and lists
    beside single values, are text.

    What a Parquet file declares counts for columns without a value.
    """
    seen = {name: _Seen() for name in names}
    declared: dict[str, Any] = {}
    for table in tables:
        rows = read_rows(table)
        while batch := [row for _, row in islice(rows, BATCH_ROWS)]:
            for name, column in seen.items():
                column.add([row.get(name) for row in batch])
        declared |= declared_types(table)
    return {name: column.type(declared.get(name)) for name, column in seen.items()}


class _Seen:
    """The kinds of a column's values so far."""

    def __init__(self) -> None:
        self._kinds: set[str] = set()
        self._entries: set[str] = set()  # of lists
        self._lengths: set[int] = set()  # two of them show that they differ

    def add(self, values: Sequence[Any]) -> None:
        """Adds some values."""
        lists = [value for value in values if isinstance(value, list | tuple)]
        self._lengths.update(islice({len(value) for value in lists}, 2))
        for entries in lists:
            if NESTED not in self._entries:
                # Lists come from files that have types: a text in them is a text.
                self._entries |= _kinds(entries, self._entries, reads_text=False)
        if TEXT not in self._kinds:  # text stays text
            single = values
            if lists:
                single = [v for v in values if not isinstance(v, list | tuple)]
            self._kinds |= _kinds(single, self._kinds)

    def type(self, declared: Any) -> ColumnType:
        """Returns the type; ``declared`` is that of Arrow, if a file declares one."""
        kind, is_list = _declared_kind(declared)
        single = self._kinds - {MISSING, NAN}
        if NESTED in self._kinds | self._entries or (self._lengths and single):
            return ColumnType(STRING)
        if self._lengths or (is_list and not single):
            is_fixed = len(self._lengths) == 1 and not self._kinds
            size = next(iter(self._lengths)) if is_fixed else None
            return ColumnType(
                _dtype_of(self._entries or {kind}, are_entries=True), (size or None,)
            )
        return ColumnType(_dtype_of(self._kinds if single else {*self._kinds, kind}))


def _declared_kind(declared: Any) -> tuple[str, bool]:
    """Returns the kind of a type of Arrow, and whether values are lists."""
    if declared is None:
        return MISSING, False
    from pyarrow import types

    is_list = types.is_list(declared) or types.is_large_list(declared)
    kind = declared.value_type if is_list else declared
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_integer(kind) or types.is_floating(kind):
        return NAN, is_list
    if types.is_binary(kind) or types.is_large_binary(kind):
        return RAW_BYTES, is_list
    is_text = types.is_string(kind) or types.is_large_string(kind)
    return TEXT if is_text else MISSING, is_list


def _dtype_of(kinds: set[str], are_entries: bool = False) -> str:
    """Returns the type of single values, or of the entries of lists, of some kinds."""
    known = kinds - {MISSING, NAN}
    if known & {TEXT, RAW_BYTES}:
        return BYTES if known == {RAW_BYTES} else STRING
    if not known:
        return FLOAT32 if are_entries or NAN in kinds else STRING
    if known == kinds and FLOAT not in known:
        return INT64
    if LARGE not in known:
        return FLOAT64 if LONG in known else FLOAT32
    # With gaps, large integers may be keys, which a float would change. Lists are
    # measurements.
    are_keys = known != kinds and FRACTION not in known and not are_entries
    return STRING if are_keys else FLOAT64


def _kinds(values: Sequence[Any], known: set[str], reads_text: bool = True) -> set[str]:
    """Returns the kinds of values; LONG may be left out if it is ``known``.

    With ``reads_text``, texts may be numbers, as in CSV.
    """
    by_type: dict[type, list[Any]] = {}
    for value in values:
        by_type.setdefault(type(value), []).append(value)
    kinds: set[str] = set()
    for kind, some in by_type.items():
        if kind is str and reads_text:
            numbers = [_number_or_text(text) for text in set(some)]
            kinds |= _kinds(numbers, known | kinds, reads_text=False)
        elif kind is float:
            kinds |= _kinds_of_floats(np.array(some, np.float64), known | kinds)
        elif kind is int or kind is bool:
            low, high = min(some), max(some)
            kinds.add(WHOLE if fits_int64(low) and fits_int64(high) else TEXT)
            if max(-low, high) > MOST_WHOLE_FLOAT32:
                kinds.add(LARGE)
        elif kind is type(None):
            kinds.add(MISSING)
        elif issubclass(kind, bytes):
            kinds.add(RAW_BYTES)
        else:
            is_nested = issubclass(kind, Mapping | list | tuple)
            kinds.add(NESTED if is_nested else TEXT)
    return kinds


def _number_or_text(text: str) -> int | float | str | None:
    """Returns the number that a text of a table stands for; None if it is empty."""
    if text == "":
        return None
    with suppress(ValueError):
        whole = int(text)
        digits = text.lstrip("+-")
        is_code = digits not in ("0", digits.lstrip("0"))  # 007
        return text if is_code or not is_number(text) else whole
    with suppress(ValueError):
        number = float(text)
        return number if math.isfinite(number) and is_number(text) else text
    return text


def _kinds_of_floats(values: Any, known: set[str]) -> set[str]:
    kinds = {NAN} if (is_nan := np.isnan(values)).any() else set()
    values = values[~is_nan]
    is_round = np.isfinite(values) & (np.trunc(values) == values)
    if (np.abs(values[is_round]) > MOST_WHOLE_FLOAT32).any():
        kinds.add(LARGE)
    fractions = values[~is_round]
    with np.errstate(over="ignore"):
        exact = fractions.astype(np.float32) == fractions
    kinds |= {FLOAT} if values.size else set()
    kinds |= {FRACTION} if fractions.size else set()
    inexact = () if LONG in known else fractions[~exact].tolist()
    return kinds | {LONG} if any(map(_loses_digits, inexact)) else kinds


def _loses_digits(value: float) -> bool:
    """Whether float32 loses digits of a number, of at most seven."""
    with np.errstate(over="ignore"):
        return float(f"{np.float32(value):.7g}") != value


def is_number(value: Any) -> bool:
    """Whether a value may be a number; Python also reads 1_2 and non-ASCII digits."""
    return not isinstance(value, str) or ("_" not in value and value.isascii())


def is_missing(value: Any) -> bool:
    """Whether a cell is empty."""
    return value is None or value == "" or value != value


def fits_int64(value: int) -> bool:
    """Whether 64 bits hold a whole number."""
    return -(2**63) <= value < 2**63


def optional_whole(values: Row, name: str | None, least: int = 1) -> int | None:
    """Returns a column's value as a whole number; None if it is missing."""
    number = optional_number(values, name)
    if number is None:
        return None
    if number != int(number) or not least <= number <= MOST_KNOWN:
        raise ValueError(
            f"has {name} {number:g}, which is not a whole number from {least} to 2**40"
        )
    return int(number)


def optional_number(values: Row, name: str | None) -> float | None:
    """Returns a column's value as a finite number; None without a value or a column."""
    value = None if name is None else values.get(name)
    return None if name is None or is_missing(value) else finite_number(name, value)


def finite_number(name: str, value: Any, most: float = MOST_FLOAT32) -> float:
    """Returns a column's value as a finite number; float32 can hold it by default.

    Raises
    ------
    ValueError
        If it is not one.
    """
    try:
        number = float(value) if is_number(value) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or abs(number) > most:
        raise ValueError(f"has {value!r} in column {name}, but it must be a number")
    return number


def convert(name: str, value: Any, kind: ColumnType) -> Any:
    """Converts a table's value to what an example holds; a list becomes a tuple.

    Raises
    ------
    ValueError
        If the value is not of this type.
    """
    if not kind.shape:
        return _single(name, value, kind.dtype)
    is_list = isinstance(value, list | tuple)
    values: Any = () if not is_list and is_missing(value) else value
    if not isinstance(values, list | tuple):
        raise ValueError(
            f"has {value!r} in column {name}, but all other values are lists"
        )
    (size,) = kind.shape
    if size is not None and len(values) != size:
        raise ValueError(
            f"has a list of {len(values)} values in column {name}, but each must have "
            f"{size}"
        )
    if set(map(type, values)) == {float} and kind.dtype in (FLOAT32, FLOAT64):
        # Most long lists need no conversion, which takes some time.
        most = MOST_FLOAT32 if kind.dtype == FLOAT32 else sys.float_info.max
        if all(-most <= value <= most for value in values):
            return tuple(values)
    return tuple(_single(name, entry, kind.dtype) for entry in values)


def _single(name: str, value: Any, dtype: str) -> Any:
    if dtype == STRING:
        return _text(name, value)
    if dtype == BYTES:
        if isinstance(value, bytes):
            return value
        if not is_missing(value):
            raise ValueError(f"has {value!r} in column {name}, but it must be bytes")
        return b""
    if dtype in (FLOAT32, FLOAT64):
        if is_missing(value):
            return math.nan
        most = MOST_FLOAT32 if dtype == FLOAT32 else math.inf
        number = finite_number(name, value, most)
        _check_digits(name, value, number)
        return number
    assert dtype == INT64
    try:
        whole = int(value)
        if not fits_int64(whole):
            raise ValueError
        return whole
    except (TypeError, ValueError):
        raise ValueError(
            f"has {value!r} in column {name}, but it must be a 64-bit whole number"
        ) from None


def _text(name: str, value: Any) -> str:
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    if isinstance(value, bytes):
        raise ValueError(
            f"has bytes in column {name}, but other values are not bytes; store texts "
            "as texts, or all values as bytes"
        )
    # A data frame with gaps holds whole numbers as floats.
    whole = isinstance(value, float) and value.is_integer()
    return "" if is_missing(value) else str(int(value) if whole else value)


def _check_digits(name: str, value: Any, number: float) -> None:
    """Raises ValueError if a whole number is another one as a float."""
    if abs(number) < MOST_WHOLE_FLOAT64 or isinstance(value, float):
        return
    try:
        whole = int(value)
    except ValueError:  # a text with a fraction or an exponent
        return
    if whole != number:
        raise ValueError(
            f"has {whole} in column {name}, which float64 would change to "
            f"{number:.0f}; other values there are fractions, so give all of them as "
            "text, or leave the column out with `columns`"
        )


def target_value(name: str, value: Any) -> float:
    """Returns a number to predict, which must not be missing."""
    if value in (None, ""):
        raise ValueError(
            f"has an empty column {name}, but `target_columns` needs a number there"
        )
    return finite_number(name, value)
