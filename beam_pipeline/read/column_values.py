"""What conditions compute with: numbers, texts and truths, for each row or for all.

A value is a constant number (int or float), or an array or a scalar of Arrow. Arrays of
numbers are int64 or float64. NaN is a missing value.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

NUMBER, TEXT, TRUTH = "a number", "a text", "true or false"

Value = Any

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "equal": operator.eq,
    "not_equal": operator.ne,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
}
OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
_OF_ARROW = {"+": "add", "-": "subtract", "*": "multiply", "/": "divide"}
_INT64 = np.iinfo(np.int64)


def column_value(column: Any) -> Value:
    """Returns a column: whole numbers as int64, other numbers as float64."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.cast(kind.value_type)
    elif pa.types.is_integer(kind) and kind != pa.uint64():
        column = column.cast(pa.int64())
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind):
        column = _known(column.cast(pa.float64(), safe=False))
    return column


def constant_value(value: float | str | bool) -> Value:
    """Returns a constant; raises UnicodeEncodeError for a text that is no Unicode."""
    import pyarrow as pa

    return pa.scalar(value) if isinstance(value, str | bool) else value


def kind_of(value: Value) -> str | None:
    """Returns ``NUMBER``, ``TEXT`` or ``TRUTH``; None for values of other types."""
    import pyarrow as pa

    if is_number(value):
        return NUMBER
    if pa.types.is_string(value.type) or pa.types.is_large_string(value.type):
        return TEXT
    if pa.types.is_boolean(value.type):
        return TRUTH
    is_numeric = pa.types.is_int64(value.type) or pa.types.is_float64(value.type)
    return NUMBER if is_numeric else None


def is_number(value: Value) -> bool:
    """Whether a value is a constant number."""
    return isinstance(value, int | float)


def is_constant(value: Value) -> bool:
    """Whether a value is the same for all rows, and not missing."""
    import pyarrow as pa

    return is_number(value) or (isinstance(value, pa.Scalar) and value.is_valid)


def is_missing(value: Value) -> Value:
    """Returns where a value is missing."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pa.scalar(False) if is_number(value) else pc.is_null(value)


def compared(name: str, left: Value, right: Value) -> Value:
    """Returns a comparison of values of one kind, by a name in ``COMPARISONS``.

    A comparison with a missing value is missing.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if is_number(left) and is_number(right):
        return pa.scalar(COMPARISONS[name](left, right))
    if kind_of(left) == NUMBER:
        sides = [left, right]
        if _is_whole(left) and _is_whole(right):
            # Of the whole numbers beyond int64, the sign says how they compare.
            sides = [_infinity(side) if _beyond(side) else side for side in sides]
        as_type = _as_int64 if all(map(_is_whole, sides)) else _as_float64
        left, right = map(as_type, sides)
    return pc.call_function(name, [left, right])


def is_one_of(values: Value, constants: Sequence[Value]) -> Value:
    """Returns where an array of numbers or texts is equal to one of some constants."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted: list[Any]
    if kind_of(values) == TEXT:
        wanted = [constant.as_py() for constant in constants]
    elif _is_whole(values):
        wanted = [int(c) for c in constants if not _beyond(c) and c == int(c)]
    else:
        wanted = [_as_float64(c).as_py() for c in constants]
        wanted += [-c for c in wanted if c == 0]  # Arrow tells the two zeros apart
    found = pc.is_in(values, value_set=pa.array(wanted, values.type))
    return pc.if_else(pc.is_null(values), None, found)


def computed(sign: str, left: Value, right: Value) -> Value:
    """Returns the result of an operation with numbers, by a sign in ``OPERATIONS``.

    Results are those of Python: ``/`` divides as float64, ``//`` rounds down. Division
    by zero, and what is no number, is a missing value.

    Raises
    ------
    OverflowError
        If the result of an operation with whole numbers is beyond int64.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if is_number(left) and is_number(right):
        try:
            return _known_constant(OPERATIONS[sign](left, right))
        except ZeroDivisionError:
            return _missing()
    if sign == "/" or not (_is_whole(left) and _is_whole(right)):
        sides = [_as_float64(left), _as_float64(right)]
        if sign in ("/", "//", "%"):
            sides[1] = _nonzero(sides[1])
        if sign in _OF_ARROW:
            return _known(pc.call_function(_OF_ARROW[sign], sides))
        return _known(_rounded_down(sign, *sides))
    for side in (left, right):
        if _beyond(side):
            raise OverflowError(f"{side} is beyond 64-bit whole numbers")
    sides = [_as_int64(left), _as_int64(right)]
    if sign not in _OF_ARROW:
        return _rounded_down(sign, sides[0], _nonzero(sides[1]))
    try:
        return pc.call_function(f"{_OF_ARROW[sign]}_checked", sides)
    except pa.ArrowInvalid as error:
        found = pc.call_function(_OF_ARROW[sign], [*map(_as_float64, sides)])
        most = pc.max(pc.abs(found)).as_py()
        raise OverflowError(
            f"a result of about {most:.2g} is beyond 64-bit whole numbers"
        ) from error


def _is_whole(value: Value) -> bool:
    import pyarrow as pa

    return isinstance(value, int) or (
        not is_number(value) and bool(pa.types.is_int64(value.type))
    )


def _beyond(value: Value) -> bool:
    """Whether a value is a constant number that int64 does not reach."""
    return is_number(value) and not _INT64.min <= value <= _INT64.max


def _as_int64(value: Value) -> Any:
    import pyarrow as pa

    return pa.scalar(value, pa.int64()) if is_number(value) else value


def _as_float64(value: Value) -> Any:
    import pyarrow as pa

    if not is_number(value):
        return value.cast(pa.float64(), safe=False)
    try:
        return pa.scalar(float(value), pa.float64())
    except OverflowError:
        return pa.scalar(_infinity(value), pa.float64())


def _infinity(sign: float) -> float:
    return math.inf if sign > 0 else -math.inf


def _known(values: Any) -> Any:
    """Returns float64 values with null instead of NaN."""
    import pyarrow.compute as pc

    return pc.if_else(pc.is_nan(values), _missing(), values)


def _known_constant(number: float) -> Value:
    return number if number == number else _missing()


def _missing() -> Any:
    import pyarrow as pa

    return pa.scalar(None, pa.float64())


def _nonzero(values: Any) -> Any:
    """Returns values with null instead of zero."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(pc.equal(values, 0), pa.scalar(None, values.type), values)


def _rounded_down(sign: str, left: Any, right: Any) -> Any:
    """Returns ``//`` or ``%`` of two values of one type, of which one is an array.

    Two scalars give a missing value: numbers that are constants come here only beside
    columns.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar):
        return _missing()
    n = len(right if isinstance(left, pa.Scalar) else left)
    arrays = [
        pa.repeat(side, n) if isinstance(side, pa.Scalar) else side
        for side in (left, right)
    ]
    missing = pc.or_(*map(pc.is_null, arrays)).to_numpy(zero_copy_only=False)
    first, second = (pc.fill_null(a, 1).to_numpy(zero_copy_only=False) for a in arrays)
    is_beyond = (first == _INT64.min) & (second == -1) & ~missing
    if sign == "//" and pa.types.is_int64(left.type) and is_beyond.any():
        raise OverflowError("a result of about 9.2e+18 is beyond 64-bit whole numbers")
    with np.errstate(all="ignore"):
        return pa.array(OPERATIONS[sign](first, second), left.type, mask=missing)
