"""The types of the columns of tables, from all of their values."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from beam_pipeline.inputs.tables import Table, declared_types, read_rows

INT64, FLOAT32, FLOAT64 = "int64", "float32", "float64"
STRING, BYTES = "string", "bytes"
# float32 holds every whole number up to this one, and float64 up to the other.
MOST_WHOLE_FLOAT32 = 2**24
MOST_WHOLE_FLOAT64 = 2**53


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
    for _, row in read_rows(table):
        for name, values in seen.items():
            values.add(row.get(name))
    declared = declared_types(table)
    return {name: values.type(declared.get(name)) for name, values in seen.items()}


class _Seen:
    """The kinds of a column's values so far."""

    def __init__(self) -> None:
        self._kinds: set[str] = set()
        self._entries: set[str] = set()  # of lists
        self._lengths: set[int] = set()  # two of them show that they differ

    def add(self, value: Any) -> None:
        if TEXT in self._kinds:
            return  # text stays text
        if not isinstance(value, list | tuple):
            self._kinds.add(_kind_of(value))
            return
        if len(self._lengths) < 2:
            self._lengths.add(len(value))
        if NESTED not in self._entries:
            self._entries |= _kinds_of_entries(value, self._entries)

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


def is_number(value: Any) -> bool:
    """Whether a value may be a number; Python also reads 1_2 and non-ASCII digits."""
    return not isinstance(value, str) or ("_" not in value and value.isascii())


def is_missing(value: Any) -> bool:
    """Whether a cell is empty."""
    return value is None or value == "" or value != value


def fits_int64(value: int) -> bool:
    """Whether 64 bits hold a whole number."""
    return -(2**63) <= value < 2**63


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


def _kind_of_whole(value: int) -> str:
    if not fits_int64(value):
        return TEXT
    return WHOLE if abs(value) <= MOST_WHOLE_FLOAT32 else LARGE


def _kind_of(value: Any) -> str:
    if value is None or value == "":
        return MISSING
    if isinstance(value, bool | int):
        return _kind_of_whole(value)
    if isinstance(value, float):
        return _kind_of_float(value) if value == value else NAN
    if isinstance(value, bytes):
        return RAW_BYTES
    if isinstance(value, Mapping):
        return NESTED
    if not isinstance(value, str) or not is_number(value):
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


def _kinds_of_entries(values: Sequence[Any], known: set[str]) -> set[str]:
    """Returns the kinds of the entries of a list; not all of those that are known.

    Lists come from files that have types, so a text in them is a text: CSV has none.
    """
    types = set(map(type, values))
    if types == {float}:
        return _kinds_of_floats(np.array(values, np.float64), known)
    if types == {int}:
        return {_kind_of_whole(min(values)), _kind_of_whole(max(values))}
    return set(map(_kind_of_entry, values))


def _kind_of_entry(value: Any) -> str:
    if isinstance(value, str):
        return TEXT
    return NESTED if isinstance(value, list | tuple) else _kind_of(value)


def _kinds_of_floats(values: Any, known: set[str]) -> set[str]:
    """Returns the kinds of numbers, as :func:`_kind_of_float`, faster."""
    kinds = set()
    missing = np.isnan(values)
    if missing.any():
        kinds.add(MISSING)
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
