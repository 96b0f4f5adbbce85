"""Conditions on the columns of a table, as text: ``class == 'owl' and snr_db > 10``.

The text is a Python expression, which becomes one of Arrow: comparisons, ``and``,
``or``, ``not``, ``in``, ``is None`` and ``+ - * /``. A name is a column. No code runs:
everything else is an error. For a column whose name is no identifier, an expression of
Arrow does the same: ``pyarrow.compute.field("my col") == 2``.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Mapping
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from beam_pipeline.errors import OptionError, listed
from beam_pipeline.text import shortened

# The column `class` has the name of a keyword of Python; quoted texts may hold it.
_CLASS = re.compile(r"""("(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')|\bclass\b""")
_CLASS_NAME = "class__"

_OPERATORS: Mapping[type[ast.AST], Any] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.And: operator.and_,
    ast.Or: operator.or_,
    ast.Not: operator.invert,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.USub: pc.negate_checked,
}
_ALLOWED = (
    "It may hold comparisons, and, or, not, + - * / of columns and numbers, `in` with "
    "constants (class in ['owl', 'wren'], or 'night' in path), and for missing values "
    "`class is None`. To compare values, write ==. Texts need quotes, numbers have "
    "none. To compute beyond 64 bits, multiply by 1.0 first"
)
_REFUSED = (
    ValueError, TypeError, SyntaxError, OverflowError, RecursionError, MemoryError,
    pa.ArrowException,
)  # fmt: skip
_SHOWN = 200


def rows_where(table: pa.Table, condition: object) -> Any:
    """Returns which rows of a table meet a condition.

    A comparison with a missing value is not met. NaN in a column is a missing value,
    and so is the result of a division by zero.

    Parameters
    ----------
    table : pyarrow.Table
    condition : str or pyarrow.compute.Expression

    Returns
    -------
    numpy.ndarray, shape (rows,), bool

    Raises
    ------
    OptionError
        If the condition cannot be read, names no column of the table, compares values
        of different kinds, or computes integers beyond 64 bits.
    """
    if not isinstance(condition, str | pc.Expression):
        need = "must be text, such as class == 'owl', or an expression of Arrow"
        raise OptionError("where", need, condition)
    try:
        met = condition
        if isinstance(condition, str):
            text = _CLASS.sub(lambda found: found[1] or _CLASS_NAME, condition)
            met = _expression(ast.parse(f"({text}\n)", mode="eval").body, table.schema)
        rows = ds.dataset(table).to_table(columns={"met": met})["met"]
        if not pa.types.is_boolean(rows.type):
            raise TypeError(f"it gives {rows.type}, and not true or false")
    except _REFUSED as error:
        problem = (str(error).splitlines() or ["it is too long"])[0]
        problem = problem.replace("has no kernel matching input types", "cannot take")
        problem = f"cannot be used: {problem}. {_ALLOWED}"
        raise OptionError("where", problem, _shown(condition)) from error
    return np.asarray(rows.fill_null(False))


def _expression(tree: ast.expr, schema: pa.Schema) -> Any:
    """Returns a part of a condition as an expression of Arrow."""
    match tree:
        case ast.Name():
            return _column(tree.id.replace(_CLASS_NAME, "class"), schema)
        case ast.Constant(value=float()):  # Arrow would take 1.0 for a float32
            return pc.scalar(tree.value).cast(pa.float64(), safe=False)
        case ast.Constant(value=bool() | int() | str()):
            return pc.scalar(tree.value)
        case ast.BoolOp():
            parts = [_expression(part, schema) for part in tree.values]
            return reduce(_OPERATORS[type(tree.op)], parts)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            return _OPERATORS[type(tree.op)](_expression(tree.operand, schema))
        case ast.BinOp(op=ast.Div()):
            left, right = (
                _expression(side, schema).cast(pa.float64(), safe=False)
                for side in (tree.left, tree.right)
            )
            nothing = pa.scalar(None, pa.float64())
            return pc.if_else(right == 0, nothing, pc.divide(left, right))
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult()):
            left, right = (_expression(s, schema) for s in (tree.left, tree.right))
            return _OPERATORS[type(tree.op)](left, right)
        case ast.Compare():
            sides = pairwise([tree.left, *tree.comparators])
            compared = [
                _compared(left, sign, right, schema)
                for (left, right), sign in zip(sides, tree.ops, strict=True)
            ]
            return reduce(operator.and_, compared)
    raise _not_allowed(tree)


def _column(name: str, schema: pa.Schema) -> Any:
    """Returns a column, whose integers have 64 bits, and whose NaN are null."""
    if name not in schema.names:
        columns = listed(schema.names, name)
        raise ValueError(f"there is no column {name!r}, only {columns}")
    column, kind = pc.field(name), schema.field(name).type
    if pa.types.is_floating(kind):
        nothing = pa.scalar(None, pa.float64())
        return pc.if_else(pc.is_nan(column), nothing, column.cast(pa.float64()))
    if pa.types.is_dictionary(kind):
        return column.cast(kind.value_type)
    is_narrow = pa.types.is_integer(kind) and kind != pa.uint64()
    return column.cast(pa.int64()) if is_narrow else column


def _compared(
    left: ast.expr, sign: ast.cmpop, right: ast.expr, schema: pa.Schema
) -> Any:
    match sign, left, right:
        case ast.IsNot(), _, _:
            return ~_compared(left, ast.Is(), right, schema)
        case ast.NotIn(), _, _:
            return ~_compared(left, ast.In(), right, schema)
        case ast.Is(), _, ast.Constant(value=None):
            return _expression(left, schema).is_null()
        case ast.In(), _, ast.List() | ast.Tuple() | ast.Set():
            values = _expression(left, schema)
            if not all(map(_is_constant, right.elts)):
                raise _not_allowed(right)
            wanted = ast.literal_eval(right)
            found = (
                pc.is_in(values, value_set=pa.array(list(wanted))) if wanted else False
            )
            return pc.if_else(values.is_valid(), found, pa.scalar(None, pa.bool_()))
        case ast.In(), ast.Constant(value=str()), _:
            return pc.match_substring(_expression(right, schema), left.value)
        case ast.Is() | ast.In(), _, _:
            raise _not_allowed(ast.Compare(left, [sign], [right]))
    return _OPERATORS[type(sign)](_expression(left, schema), _expression(right, schema))


def _is_constant(item: ast.expr) -> bool:
    if isinstance(item, ast.UnaryOp):  # a negative number
        item = item.operand
    return isinstance(item, ast.Constant) and item.value is not None


def _not_allowed(tree: ast.expr) -> ValueError:
    return ValueError(f"it holds {_shown(ast.unparse(tree))}")


def _shown(condition: object) -> str:
    text = str(condition).replace(_CLASS_NAME, "class")
    return shortened(text, _SHOWN)
