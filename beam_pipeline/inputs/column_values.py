"""Values of the columns of tables, by type."""

from __future__ import annotations

import json
import math
from typing import Any

from beam_pipeline.inputs.tables import (
    FLOAT32,
    FLOAT64,
    STRING,
    Row,
    fits_int64,
    is_number,
)

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


def convert(name: str, value: Any, dtype: str) -> Any:
    """Converts a table's value to what an example holds.

    Raises
    ------
    ValueError
        If the value is not of this type.
    """
    if dtype == STRING:
        if isinstance(value, list | dict):
            return json.dumps(value, ensure_ascii=False, default=str)
        # A data frame with gaps holds whole numbers as floats.
        whole = isinstance(value, float) and value.is_integer()
        return "" if value is None else str(int(value) if whole else value)
    if dtype in (FLOAT32, FLOAT64):
        most = MOST_FLOAT32 if dtype == FLOAT32 else math.inf
        # NaN is a missing number of Parquet, as `column_types` reads it.
        is_missing = value is None or value == "" or value != value
        return math.nan if is_missing else finite_number(name, value, most)
    try:
        number = int(value)
        if not fits_int64(number):
            raise ValueError
        return number
    except (TypeError, ValueError):
        raise ValueError(
            f"has {value!r} in column {name}, but it must be a 64-bit whole number"
        ) from None


def target_value(name: str, value: Any) -> float:
    """Returns a number to predict, which must not be missing."""
    if value in (None, ""):
        raise ValueError(
            f"has an empty column {name}, but `target_columns` needs a number there"
        )
    return finite_number(name, value)
