"""Conditions on the columns of a table, as text: ``class == 'owl' and snr_db > 10``.

The text is a Python expression, which becomes one of Arrow: comparisons, ``and``,
``or``, ``not``, ``in``, ``is None`` and ``+ - * /``. A name is a column. No code runs:
everything else is an error. For a column whose name is no identifier, an expression of
Arrow does the same: ``pyarrow.compute.field("my col") == 2``.
"""

from __future__ import annotations

import ast
import io
import keyword
import operator
import tokenize
from collections.abc import Mapping, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from beam_pipeline.errors import OptionError, did_you_mean

_WORDS = {"and", "or", "not", "in", "is", "None", "True", "False"}
# Columns such as `class` have names that are keywords of Python.
_KEYWORD_COLUMNS = set(keyword.kwlist) - _WORDS
_MARK = "__column"

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
_LISTS = ast.List | ast.Tuple | ast.Set
_ALLOWED = (
    "It may hold comparisons, and, or, not, is None, + - * / of columns and numbers, "
    "and `in` with constants: class in ['owl', 'wren'], or 'night' in path. To compare "
    "values, write =="
)
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
    shown = _shortened(str(condition))
    try:
        if isinstance(condition, str):
            met = _expression(_parse(condition), table.schema)
        else:
            met = condition
        rows = ds.dataset(table).to_table(columns={"met": met})["met"]
    except RecursionError as error:
        problem = "is nested too deeply; use `in` with a list, or where() several times"
        raise OptionError("condition", problem, shown) from error
    except (pa.ArrowException, OverflowError) as error:
        problem = str(error).splitlines()[0]
        problem = problem.replace("has no kernel matching input types", "cannot take")
        remedy = "Texts need quotes, numbers have none"
        if "overflow" in problem:
            remedy = "Multiply a number by 1.0 first, to compute with decimals"
        problem = f"cannot be computed: {problem}. {remedy}"
        raise OptionError("condition", problem, shown) from error
    except ValueError as error:
        raise OptionError("condition", str(error), shown) from error
    except TypeError as error:
        problem = "must be a text, like \"class == 'owl'\""
        raise OptionError("condition", problem, condition) from error
    if not pa.types.is_boolean(rows.type):
        problem = f"gives {rows.type}, and not true or false; compare it with a value"
        raise OptionError("condition", problem, shown)
    return np.asarray(rows.fill_null(False))


def _parse(text: str) -> ast.expr:
    """Returns the tree of a condition; keywords that may be columns have a mark."""
    if not text.strip():
        raise ValueError("is empty; write for example class == 'owl'")
    try:
        tokens = tokenize.generate_tokens(io.StringIO(f"({text}\n)").readline)
        marked = [
            (token.type, token.string + _MARK * (token.string in _KEYWORD_COLUMNS))
            for token in tokens
        ]
        return ast.parse(tokenize.untokenize(marked), mode="eval").body
    except (SyntaxError, tokenize.TokenError, ValueError, MemoryError) as error:
        problem = str(error.args[0]) if error.args else "it is too long"
        raise ValueError(f"cannot be read: {problem}. {_ALLOWED}") from error


def _expression(tree: ast.expr, schema: pa.Schema) -> Any:
    """Returns a part of a condition as an expression of Arrow."""
    match tree:
        case ast.Name():
            return _column(tree.id.removesuffix(_MARK), schema)
        case ast.Constant(value=float()):  # Arrow would take 1.0 for a float32
            return pc.scalar(tree.value).cast(pa.float64(), safe=False)
        case ast.Constant(value=bool() | int() | str()):
            return pc.scalar(tree.value)
        case ast.BoolOp():
            parts = [_expression(part, schema) for part in tree.values]
            return reduce(_OPERATORS[type(tree.op)], parts)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            return _OPERATORS[type(tree.op)](_expression(tree.operand, schema))
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div()):
            left, right = (_expression(s, schema) for s in (tree.left, tree.right))
            if not isinstance(tree.op, ast.Div):
                return _OPERATORS[type(tree.op)](left, right)
            left, right = (s.cast(pa.float64(), safe=False) for s in (left, right))
            nothing = pa.scalar(None, pa.float64())
            return pc.if_else(right == 0, nothing, pc.divide(left, right))
        case ast.Compare():
            sides = pairwise([tree.left, *tree.comparators])
            compared = [
                _compared(left, sign, right, schema)
                for (left, right), sign in zip(sides, tree.ops, strict=True)
            ]
            return reduce(operator.and_, compared)
        case ast.Constant(value=None):
            raise ValueError(
                "has None where a value must be. To find missing values, write `class "
                "is None` or `class is not None`"
            )
    raise ValueError(f"holds {_shown(tree)}. {_ALLOWED}")


def _column(name: str, schema: pa.Schema) -> Any:
    """Returns a column, whose integers have 64 bits, and whose NaN are null."""
    if name not in schema.names:
        close = did_you_mean(name, [*schema.names, *sorted(_WORDS)])
        hint = "" if close is None else f" Did you mean {close}?"
        raise ValueError(
            f"names no column {name!r}; the columns are {', '.join(schema.names)}."
            f"{hint} Texts need quotes"
        )
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
    match sign:
        case ast.IsNot():
            return ~_compared(left, ast.Is(), right, schema)
        case ast.NotIn():
            return ~_compared(left, ast.In(), right, schema)
        case ast.Is() if isinstance(right, ast.Constant) and right.value is None:
            return _expression(left, schema).is_null()
        case ast.In() if isinstance(right, _LISTS) and _are_constants(right.elts):
            values = _expression(left, schema)
            wanted = pa.array(ast.literal_eval(item) for item in right.elts)
            found = pc.is_in(values, value_set=wanted) if len(wanted) else False
            return pc.if_else(values.is_valid(), found, pa.scalar(None, pa.bool_()))
        case ast.In() if isinstance(left, ast.Constant) and isinstance(left.value, str):
            return pc.match_substring(_expression(right, schema), left.value)
        case ast.Is() | ast.In():
            word = "is" if isinstance(sign, ast.Is) else "in"
            raise ValueError(f"holds {_shown(left)} {word} {_shown(right)}. {_ALLOWED}")
    return _OPERATORS[type(sign)](_expression(left, schema), _expression(right, schema))


def _are_constants(items: Sequence[ast.expr]) -> bool:
    try:
        return None not in [ast.literal_eval(item) for item in items]
    except ValueError:
        return False


def _shown(tree: ast.expr) -> str:
    return _shortened(ast.unparse(tree).replace(_MARK, ""))


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
