"""Conditions on the columns of a table, as text: ``class == 'owl' and snr_db > 10``.

The text is a Python expression, of which Arrow computes each part: comparisons,
``and``, ``or``, ``not``, ``in``, ``is None`` and ``+ - * /``. A name is a column. No
code runs: everything else is an error. For a column whose name is no identifier, an
expression of Arrow does the same: ``pyarrow.compute.field("my col") == 2``.
"""

from __future__ import annotations

import ast
import io
import keyword
import tokenize
from functools import reduce
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from beam_pipeline.errors import OptionError, did_you_mean

NUMBER, TEXT, TRUTH, OTHER = "numbers", "texts", "true or false", "other data"

_WORDS = {"and", "or", "not", "in", "is", "None", "True", "False"}
# Columns such as `class` have names that are keywords of Python.
_KEYWORD_COLUMNS = set(keyword.kwlist) - _WORDS
_MARK = "__column"

_COMPARED = {
    ast.Eq: pc.equal,
    ast.NotEq: pc.not_equal,
    ast.Lt: pc.less,
    ast.LtE: pc.less_equal,
    ast.Gt: pc.greater,
    ast.GtE: pc.greater_equal,
}
_COMPUTED = {
    ast.Add: pc.add_checked,
    ast.Sub: pc.subtract_checked,
    ast.Mult: pc.multiply_checked,
    ast.Div: pc.divide,
}
_LISTS = ast.List | ast.Tuple | ast.Set
_SHOWN = 200
_ALLOWED = (
    "It may hold comparisons, and, or, not, is None, + - * / of columns and numbers, "
    "and `in` with a list after it: class in ['owl', 'wren']"
)
_MISSING = "To find missing values, write `class is None` or `class is not None`"


def rows_where(table: pa.Table, condition: object) -> Any:
    """Returns which rows of a table meet a condition.

    A comparison with a missing value is not met. NaN is a missing value, and so is the
    result of a division by zero.

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
    try:
        if isinstance(condition, str):
            met = _Condition(condition, table).rows()
        elif isinstance(condition, pc.Expression):
            found = ds.dataset(table).to_table(columns={"met": condition})
            met = found["met"].cast(pa.bool_())
        else:
            raise OptionError(
                "condition", "must be a text, like \"class == 'owl'\"", condition
            )
    except (pa.ArrowException, OverflowError) as error:
        problem = str(error).splitlines()[0]
        if "overflow" in problem:
            problem += ". Multiply a number by 1.0 first, to compute with decimals"
        raise _refused(str(condition), f"cannot be computed: {problem}") from error
    met = pc.fill_null(met, False)
    is_one = isinstance(met, pa.Scalar)  # the condition names no column
    return np.full(len(table), met.as_py()) if is_one else np.asarray(met)


def _refused(condition: str, problem: str) -> OptionError:
    if len(condition) > _SHOWN:
        condition = f"{condition[:_SHOWN]}..."
    return OptionError("condition", problem, condition)


class _Condition:
    """A condition as text, on the rows of a table.

    Its methods return the values of a part of it: an array of Arrow, or a scalar.
    Integers are int64, other numbers float64 without NaN.
    """

    def __init__(self, text: str, table: pa.Table):
        self._text, self._table = text, table

    def rows(self) -> Any:
        """Returns the truth of the condition for each row, or for all of them."""
        try:
            return self._truth(self._parse())
        except RecursionError as error:
            problem = (
                "is nested too deeply; use `in` with a list, or where() several times"
            )
            raise _refused(self._text, problem) from error

    def _refuse(self, problem: str) -> NoReturn:
        raise _refused(self._text, problem)

    def _parse(self) -> ast.expr:
        if not self._text.strip():
            self._refuse("is empty; write for example class == 'owl'")
        try:
            lines = io.StringIO(f"({self._text}\n)").readline
            marked = map(_marked, tokenize.generate_tokens(lines))
            return ast.parse(tokenize.untokenize(marked), mode="eval").body
        except (SyntaxError, tokenize.TokenError, ValueError, MemoryError) as error:
            problem = str(error.args[0]) if error.args else "it is too long"
            hint = ". To compare values, write ==" if "'=='" in problem else ""
            raise _refused(self._text, f"cannot be read: {problem}{hint}") from error

    def _value(self, tree: ast.expr) -> Any:
        match tree:
            case ast.Name():
                return self._column(tree.id.removesuffix(_MARK))
            case ast.Constant():
                return self._constant(tree)
            case ast.BoolOp():
                met = [self._truth(part) for part in tree.values]
                is_and = isinstance(tree.op, ast.And)
                return reduce(pc.and_kleene if is_and else pc.or_kleene, met)
            case ast.UnaryOp(op=ast.Not()):
                return pc.invert(self._truth(tree.operand))
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                sign = ast.Sub() if isinstance(tree.op, ast.USub) else ast.Add()
                return self._computed(ast.Constant(0), sign, tree.operand)
            case ast.BinOp() if type(tree.op) in _COMPUTED:
                return self._computed(tree.left, tree.op, tree.right)
            case ast.Compare():
                sides = [tree.left, *tree.comparators]
                compared = map(self._compared, sides, tree.ops, sides[1:])
                return reduce(pc.and_kleene, compared)
        raise _refused(self._text, f"holds {_shown(tree)}. {_ALLOWED}")

    def _column(self, name: str) -> Any:
        names = self._table.column_names
        if name not in names:
            close = did_you_mean(name, [*names, *sorted(_WORDS)])
            hint = "" if close is None else f" Did you mean {close}?"
            self._refuse(
                f"names no column {name!r}; the columns are {', '.join(names)}.{hint} "
                "Texts need quotes"
            )
        values = self._table[name]
        if pa.types.is_dictionary(values.type):
            values = values.cast(values.type.value_type)
        if pa.types.is_integer(values.type) and values.type != pa.uint64():
            return values.cast(pa.int64())
        return _known(_as_float(values)) if _kind(values) == NUMBER else values

    def _constant(self, tree: ast.Constant) -> Any:
        if tree.value is None:
            self._refuse(f"has None where a value must be. {_MISSING}")
        if type(tree.value) not in (bool, int, float, str):
            self._refuse(f"holds {_shown(tree)}, which is no number and no text")
        try:
            return pa.scalar(tree.value)
        except UnicodeEncodeError:
            self._refuse(f"holds {_shown(tree)}, which is no valid Unicode")
        except (OverflowError, pa.ArrowException):
            self._refuse(f"holds {_shown(tree)}, which is beyond 64-bit integers")

    def _truth(self, tree: ast.expr) -> Any:
        """Returns values that are true or false."""
        values = self._value(tree)
        if _kind(values) != TRUTH:
            self._refuse(
                f"holds {_shown(tree, values)} where it needs what is true or false "
                "for each row. Compare it with a value"
            )
        return values

    def _computed(self, left: ast.expr, sign: ast.operator, right: ast.expr) -> Any:
        first, second = self._value(left), self._value(right)
        for tree, values in ((left, first), (right, second)):
            if _kind(values) != NUMBER:
                found = _shown(tree, values)
                self._refuse(f"computes with {found}, but can with numbers only")
        if isinstance(sign, ast.Div):
            first, second = _as_float(first), _as_float(second)
            second = _null_where(pc.equal(second, 0.0), second)
        result = _COMPUTED[type(sign)](*_alike(first, second))
        return result if pa.types.is_integer(result.type) else _known(result)

    def _compared(self, left: ast.expr, sign: ast.cmpop, right: ast.expr) -> Any:
        match sign:
            case ast.Is():
                return self._is_missing(left, right)
            case ast.IsNot():
                return pc.invert(self._is_missing(left, right))
            case ast.In():
                return self._is_in(left, right)
            case ast.NotIn():
                return pc.invert(self._is_in(left, right))
        first, second = self._value(left), self._value(right)
        self._check_kinds(left, first, right, second)
        return _COMPARED[type(sign)](*_alike(first, second))

    def _is_missing(self, left: ast.expr, right: ast.expr) -> Any:
        if not (isinstance(right, ast.Constant) and right.value is None):
            self._refuse(
                f"may use `is` only with None, not with {_shown(right)}. To compare "
                "values, write =="
            )
        return pc.is_null(self._value(left))

    def _is_in(self, left: ast.expr, right: ast.expr) -> Any:
        values = self._value(left)
        if isinstance(right, _LISTS):
            return self._is_one_of(left, values, right.elts)
        column = self._value(right)
        is_column = _kind(column) == TEXT and not isinstance(right, ast.Constant)
        if not (is_column and isinstance(left, ast.Constant) and _kind(values) == TEXT):
            self._refuse(
                f"looks for {_shown(left, values)} in {_shown(right, column)}. Write a "
                "list after `in`, class in ['owl', 'wren'], or a text in quotes before "
                "it and a column of texts after it, 'night' in path"
            )
        return pc.match_substring(column, left.value)

    def _is_one_of(self, left: ast.expr, values: Any, items: list[ast.expr]) -> Any:
        wanted: list[Any] = []
        for item in items:
            try:
                constant = ast.Constant(ast.literal_eval(item))
            except ValueError:
                self._refuse(f"has {_shown(item)} in a list, which holds no constant")
            self._check_kinds(left, values, constant, self._constant(constant))
            wanted.append(constant.value)
        if _kind(values) == OTHER:
            self._refuse(f"looks for {_shown(left, values)}. {_ALLOWED}")
        if any(isinstance(number, float) for number in wanted):
            values = _as_float(values)
        if pa.types.is_floating(values.type):
            values = pc.add(values, 0.0)  # -0.0 becomes 0.0
            wanted = [number + 0.0 for number in wanted]
        found = pc.is_in(values, pa.array(wanted, values.type))
        return _null_where(pc.is_null(values), found)

    def _check_kinds(
        self, left: ast.expr, first: Any, right: ast.expr, second: Any
    ) -> None:
        """Raises OptionError if two values cannot be compared with each other."""
        if not _kind(first) == _kind(second) != OTHER:
            self._refuse(
                f"compares {_shown(left, first)} with {_shown(right, second)}. Texts "
                "need quotes, numbers have none"
            )


def _marked(token: tokenize.TokenInfo) -> tuple[int, str]:
    """Returns a token; a keyword of Python that may be a column gets a mark."""
    is_column = token.type == tokenize.NAME and token.string in _KEYWORD_COLUMNS
    return token.type, f"{token.string}{_MARK}" if is_column else token.string


def _shown(tree: ast.expr, values: Any = None) -> str:
    """Returns a part of a condition as text, and what it holds."""
    text = ast.unparse(tree).replace(_MARK, "")
    text = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
    return text if values is None else f"{text} ({_kind(values)})"


def _kind(values: Any) -> str:
    """Returns what an array or a scalar holds."""
    if pa.types.is_integer(values.type) or pa.types.is_floating(values.type):
        return NUMBER
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        return TEXT
    return TRUTH if pa.types.is_boolean(values.type) else OTHER


def _alike(first: Any, second: Any) -> tuple[Any, Any]:
    """Returns two values as those of one type."""
    if _kind(first) == NUMBER and first.type != second.type:
        return _as_float(first), _as_float(second)
    return first, second


def _as_float(numbers: Any) -> Any:
    return pc.cast(numbers, pa.float64(), safe=False)


def _known(numbers: Any) -> Any:
    """Returns numbers with null instead of NaN."""
    return _null_where(pc.is_nan(numbers), numbers)


def _null_where(missing: Any, values: Any) -> Any:
    """Returns values that are null where ``missing`` holds."""
    return pc.if_else(missing, pa.scalar(None, values.type), values)
