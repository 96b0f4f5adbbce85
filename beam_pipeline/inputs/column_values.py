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
import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
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

# Kinds of values. A whole number is large if float32 may not hold it, and so is a round
# one, which is a float; a long one has digits that float32 loses.
TEXT, RAW_BYTES, WHOLE, LARGE = "text", "bytes", "whole", "large"
NUMBER, LONG, ROUND, LARGE_ROUND = "number", "long", "round", "large round"
MISSING, NAN, NESTED = "missing", "NaN", "nested"


def column_types(table: Table, names: Sequence[str]) -> dict[str, ColumnType]:
    """Finds the type of each column that examples hold, from all its values.

    A column of whole numbers is int64, of other numbers float32, or float64 if float32
    would lose digits, and of anything else text. If numbers are missing, they are NaN
    and the column is not int64; but with whole numbers beyond 2**24, which may be keys,
    it is text. Lists of such values are lists of one type. Lists of lists, and lists
    beside single values, are text.

    What the file declares counts for columns without a value.
    """
    seen = {name: _Seen() for name in names}
    rows = read_rows(table)
    while batch := [row for _, row in islice(rows, BATCH_ROWS)]:
        for name, column in seen.items():
            column.add([row.get(name) for row in batch])
    declared = declared_types(table)
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
                self._entries |= _kinds(entries, self._entries, text=TEXT)
        if TEXT not in self._kinds:  # text stays text
            single = values
            if lists:
                single = [v for v in values if not isinstance(v, list | tuple)]
            self._kinds |= _kinds(single, self._kinds)

    def type(self, declared: tuple[str, bool] | None) -> ColumnType:
        """Returns the type; see :func:`.tables.declared_types` for the parameter."""
        kind, is_list = declared or (MISSING, False)
        single = self._kinds - {MISSING, NAN}
        if NESTED in self._kinds | self._entries or (self._lengths and single):
            return ColumnType(STRING)
        if self._lengths or (is_list and not single):
            entries = self._entries or {kind}
            is_fixed = len(self._lengths) == 1 and not self._kinds
            size = next(iter(self._lengths)) if is_fixed else None
            return ColumnType(_dtype_of_entries(entries), (size or None,))
        return ColumnType(_dtype_of(self._kinds if single else {*self._kinds, kind}))


def _dtype_of(kinds: Iterable[str]) -> str:
    found = set(kinds)
    known = found - {MISSING, NAN}
    if known & {TEXT, RAW_BYTES}:
        return BYTES if known == {RAW_BYTES} else STRING
    if not known:
        return FLOAT32 if NAN in found else STRING
    if known == found and known <= {WHOLE, LARGE}:
        return INT64
    # With missing values the type is float32, which would change large whole numbers.
    fractions = known & {NUMBER, LONG}
    if not known & {LARGE, LARGE_ROUND}:
        return FLOAT64 if LONG in known else FLOAT32
    return STRING if known != found and not fractions else FLOAT64


def _dtype_of_entries(kinds: set[str]) -> str:
    known = kinds - {MISSING, NAN}
    if not known:
        return FLOAT32
    # Lists are measurements, not keys.
    are_numbers = not known & {TEXT, RAW_BYTES}
    if are_numbers and known & {LARGE, LARGE_ROUND} and known != kinds:
        return FLOAT64
    return _dtype_of(kinds)


def _kinds(values: Sequence[Any], known: set[str], text: str | None = None) -> set[str]:
    """Returns the kinds of values; those of ``known`` may be left out.

    ``text`` is the kind of every text; without it, texts may be numbers, as in CSV.
    """
    by_type: dict[type, list[Any]] = {}
    for value in values:
        by_type.setdefault(type(value), []).append(value)
    kinds: set[str] = set()
    for kind, some in by_type.items():
        if kind is float:
            kinds |= _kinds_of_floats(np.array(some, np.float64), known | kinds)
        elif kind is int or kind is bool:
            kinds |= {_kind_of_whole(min(some)), _kind_of_whole(max(some))}
        elif kind is str and text is None:
            kinds.update(map(_kind_of_text, set(some)))
        elif kind is type(None):
            kinds.add(MISSING)
        elif issubclass(kind, bytes):
            kinds.add(RAW_BYTES)
        else:
            is_nested = issubclass(kind, Mapping | list | tuple)
            kinds.add(NESTED if is_nested else TEXT)
    return kinds


def _kind_of_text(value: str) -> str:
    """Returns the kind of a text: that of a number, if it looks like one."""
    if value == "":
        return MISSING
    if not is_number(value):
        return TEXT
    try:
        whole = int(value)
        # 007 is a code, not a number.
        is_code = value.lstrip("+-") not in ("0", value.lstrip("+-0"))
        return TEXT if is_code else _kind_of_whole(whole)
    except ValueError:
        pass
    try:
        number = float(value)
    except ValueError:
        return TEXT
    return _kind_of_float(number) if math.isfinite(number) else TEXT


def _kind_of_whole(value: int) -> str:
    if not fits_int64(value):
        return TEXT
    return WHOLE if abs(value) <= MOST_WHOLE_FLOAT32 else LARGE


def _kind_of_float(value: float) -> str:
    if not value.is_integer():
        return NUMBER if _survives_float32(value) else LONG
    return ROUND if abs(value) <= MOST_WHOLE_FLOAT32 else LARGE_ROUND


def _survives_float32(value: float) -> bool:
    """Whether float32 holds a number, or all digits of a number of at most seven."""
    try:
        (narrow,) = struct.unpack("f", struct.pack("f", value))
    except OverflowError:
        return False
    return bool(narrow == value) or float(f"{narrow:.7g}") == value


def is_number(value: Any) -> bool:
    """Whether a value may be a number; Python also reads 1_2 and non-ASCII digits."""
    return not isinstance(value, str) or ("_" not in value and value.isascii())


def is_missing(value: Any) -> bool:
    """Whether a cell is empty."""
    return value is None or value == "" or value != value


def fits_int64(value: int) -> bool:
    """Whether 64 bits hold a whole number."""
    return -(2**63) <= value < 2**63


def _kinds_of_floats(values: Any, known: set[str]) -> set[str]:
    """Returns the kinds of numbers; LONG may be left out if it is known."""
    kinds = set()
    missing = np.isnan(values)
    if missing.any():
        kinds.add(NAN)
        values = values[~missing]
    is_round = np.isfinite(values) & (np.trunc(values) == values)
    is_large = np.abs(values) > MOST_WHOLE_FLOAT32
    if (is_round & is_large).any():
        kinds.add(LARGE_ROUND)
    if (is_round & ~is_large).any():
        kinds.add(ROUND)
    fractions = values[~is_round]
    with np.errstate(over="ignore"):
        exact = fractions.astype(np.float32) == fractions
    if exact.any():
        kinds.add(NUMBER)
    for value in fractions[~exact].tolist() if LONG not in known else ():
        kinds.add(_kind_of_float(value))
        if LONG in kinds:
            break
    return kinds


def optional_count(values: Row, name: str) -> int | None:
    """Returns a column's value as a positive integer; None if it is missing."""
    value = values.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, str) and value.isdecimal() and value.isascii():
        number: float = int(value)
    else:
        number = finite_number(name, value)
    if number != int(number) or not 1 <= number <= MOST_KNOWN:
        raise ValueError(
            f"has {name} {number:g}, which is not a whole number from 1 to 2**40"
        )
    return int(number)


def optional_number(values: Row, name: str) -> float | None:
    """Returns a column's value as a finite number; None if it is missing."""
    value = values.get(name)
    if value is None or value == "":
        return None
    return finite_number(name, value)


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
    values: Any = () if _is_empty(value) else value
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
    if _are_of_type(values, kind.dtype):
        return tuple(values)
    return tuple(_single(name, entry, kind.dtype) for entry in values)


def _are_of_type(values: Sequence[Any], dtype: str) -> bool:
    """Whether a list needs no conversion, which takes some time for long ones."""
    types = set(map(type, values))
    if dtype == INT64:
        return types == {int} and fits_int64(min(values)) and fits_int64(max(values))
    if dtype in (FLOAT32, FLOAT64):
        most = MOST_FLOAT32 if dtype == FLOAT32 else sys.float_info.max
        return types == {float} and all(-most <= value <= most for value in values)
    return types == ({str} if dtype == STRING else {bytes})


def _is_empty(value: Any) -> bool:
    return not isinstance(value, list | tuple) and is_missing(value)


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
