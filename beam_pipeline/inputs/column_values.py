"""Values of the columns of tables, by type."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from typing import Any

from beam_pipeline.inputs.column_types import (
    BYTES,
    FLOAT32,
    FLOAT64,
    INT64,
    MOST_WHOLE_FLOAT64,
    STRING,
    ColumnType,
    fits_int64,
    is_missing,
    is_number,
)
from beam_pipeline.inputs.tables import Row

MOST_FLOAT32 = 3.4028234663852886e38
# No file holds more frames: at 8 bits, these are a terabyte.
MOST_KNOWN = 2**40


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
