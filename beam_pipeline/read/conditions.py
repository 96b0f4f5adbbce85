"""Conditions on the columns of a table, as text: ``class == 'owl' and snr_db > 10``.

The text is a Python expression, and becomes an expression of Arrow: comparisons,
``and``, ``or``, ``not``, ``in``, ``is None`` and ``+ - * /``. A name is a column. No
code runs: everything else is an error. For a column whose name is no identifier, an
expression of Arrow does the same: ``pyarrow.compute.field("my col") == 2``.
"""

from __future__ import annotations

import ast
import io
import keyword
import operator
import tokenize
from functools import reduce
from typing import Any, NamedTuple, NoReturn

import numpy as np

from beam_pipeline.errors import OptionError, did_you_mean

NUMBER, TEXT, TRUTH, OTHER = "numbers", "texts", "true or false", "other data"

_WORDS = {"and", "or", "not", "in", "is", "None", "True", "False"}
# Columns such as `class` have names that are keywords of Python.
_KEYWORD_COLUMNS = set(keyword.kwlist) - _WORDS
_MARK = "__column"

_COMPARED = {
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
}
_COMPUTED = {
    ast.Add: "add_checked",
    ast.Sub: "subtract_checked",
    ast.Mult: "multiply_checked",
}
_SIGNS = (*_COMPUTED, ast.Div)
_LISTS = ast.List | ast.Tuple | ast.Set
_TYPES = {NUMBER: "float64", TEXT: "string", TRUTH: "bool"}
_SHOWN = 200


def rows_where(table: Any, condition: Any) -> Any:
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
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.dataset as ds

    if isinstance(condition, str):
        expression = _Condition(condition, table.schema).expression()
    elif isinstance(condition, pc.Expression):
        expression = condition
    else:
        raise OptionError(
            "condition", "must be a text, like \"class == 'owl'\"", condition
        )
    try:
        found = ds.dataset(table).to_table(columns={"met": expression})["met"]
        met = found.cast(pa.bool_())
    except (pa.ArrowException, OverflowError) as error:
        problem = str(error).splitlines()[0]
        if "overflow" in problem:
            problem += ". Multiply a number by 1.0 first, to compute with decimals"
        raise _refused(str(condition), f"cannot be computed: {problem}") from error
    return np.asarray(pc.fill_null(met, False).combine_chunks())


def _refused(condition: str, problem: str) -> OptionError:
    if len(condition) > _SHOWN:
        condition = f"{condition[:_SHOWN]}..."
    return OptionError("condition", problem, condition)


class _Value(NamedTuple):
    """A part of a condition: its expression, what it holds, and how it was written.

    ``whole`` says that it holds integers, ``is_constant`` that it is one value.
    """

    expression: Any
    kind: str
    text: str
    whole: bool = False
    is_constant: bool = False

    def __str__(self) -> str:
        return f"{self.text} ({self.kind})"


class _Condition:
    """A condition as text, for tables with a schema."""

    def __init__(self, text: str, schema: Any):
        self._text = text
        self._schema = schema

    def expression(self) -> Any:
        """Returns the expression of Arrow that the condition is."""
        try:
            return self._truth(self._parse(), "the condition").expression
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
            tokens = [
                (token.type, token.string) for token in tokenize.generate_tokens(lines)
            ]
            marked = [(kind, _marked(kind, word)) for kind, word in tokens]
            return ast.parse(tokenize.untokenize(marked), mode="eval").body
        except (SyntaxError, tokenize.TokenError, ValueError, MemoryError) as error:
            problem = str(error.args[0]) if error.args else "it is too long"
            hint = ". To compare values, write ==" if "'=='" in problem else ""
            raise _refused(self._text, f"cannot be read: {problem}{hint}") from error

    def _value(self, tree: ast.expr) -> _Value:
        match tree:
            case ast.Name():
                return self._column(tree.id.removesuffix(_MARK))
            case ast.Constant():
                return self._constant(tree)
            case ast.BoolOp():
                return self._joined(tree)
            case ast.UnaryOp(op=ast.Not()):
                value = self._truth(tree.operand, "`not`")
                return value._replace(expression=~value.expression, text=_text(tree))
            case ast.UnaryOp(op=ast.USub() | ast.UAdd()):
                sign = ast.Sub() if isinstance(tree.op, ast.USub) else ast.Add()
                return self._computed(ast.Constant(0), sign, tree.operand, _text(tree))
            case ast.BinOp() if isinstance(tree.op, _SIGNS):
                return self._computed(tree.left, tree.op, tree.right, _text(tree))
            case ast.Compare():
                return self._comparison(tree)
        return self._refuse_part(tree)

    def _refuse_part(self, tree: ast.expr) -> NoReturn:
        hint = (
            "it may hold comparisons, and, or, not, in, is None, and + - * / of "
            "columns and numbers"
        )
        if isinstance(tree, _LISTS):
            hint = "a list stands only after `in`: class in ['owl', 'wren']"
        self._refuse(f"holds {_text(tree)}; {hint}")

    def _column(self, name: str) -> _Value:
        """Returns a column: integers as int64, other numbers as float64."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if name not in self._schema.names:
            close = did_you_mean(name, [*self._schema.names, *sorted(_WORDS)])
            hint = "" if close is None else f" Did you mean {close}?"
            columns = ", ".join(self._schema.names)
            self._refuse(
                f"names no column {name!r}; the columns are {columns}.{hint} Texts "
                "need quotes"
            )
        column, type_ = pc.field(name), self._schema.field(name).type
        if pa.types.is_dictionary(type_):
            type_ = type_.value_type
            column = column.cast(type_)
        if pa.types.is_integer(type_) and type_ != pa.uint64():
            return _Value(column.cast(pa.int64()), NUMBER, name, whole=True)
        if pa.types.is_integer(type_) or pa.types.is_floating(type_):
            return _Value(_known(_as_float(column)), NUMBER, name)
        if pa.types.is_string(type_) or pa.types.is_large_string(type_):
            return _Value(column, TEXT, name)
        return _Value(column, TRUTH if pa.types.is_boolean(type_) else OTHER, name)

    def _constant(self, tree: ast.Constant) -> _Value:
        import pyarrow as pa
        import pyarrow.compute as pc

        value = tree.value
        if value is None:
            self._refuse(
                "has None where a value must be: write for example class is None"
            )
        kinds = {bool: TRUTH, int: NUMBER, float: NUMBER, str: TEXT}
        if type(value) not in kinds:
            self._refuse(f"holds {_text(tree)}, which is no number and no text")
        try:
            constant, kind = pc.scalar(value), kinds[type(value)]
            return _Value(constant, kind, _text(tree), isinstance(value, int), True)
        except UnicodeEncodeError:
            self._refuse(f"holds {_text(tree)}, which is no valid Unicode")
        except (OverflowError, pa.ArrowException):
            self._refuse(f"holds {_text(tree)}, which is beyond 64-bit integers")

    def _truth(self, tree: ast.expr, user: str) -> _Value:
        """Returns a value that is true or false; ``user`` is what needs it."""
        value = self._value(tree)
        if value.kind != TRUTH:
            self._refuse(
                f"holds {value}, but {user} needs what is true or false for each row. "
                "Compare it with a value"
            )
        return value

    def _joined(self, tree: ast.BoolOp) -> _Value:
        sign = "and" if isinstance(tree.op, ast.And) else "or"
        parts = [self._truth(part, f"`{sign}`") for part in tree.values]
        join = operator.and_ if sign == "and" else operator.or_
        met = reduce(join, (part.expression for part in parts))
        return _Value(met, TRUTH, _text(tree))

    def _computed(
        self, left: ast.expr, sign: ast.operator, right: ast.expr, text: str
    ) -> _Value:
        import pyarrow.compute as pc

        sides = self._value(left), self._value(right)
        for side in sides:
            if side.kind != NUMBER:
                self._refuse(f"computes with {side}. Only numbers can be computed with")
        if isinstance(sign, ast.Div):
            first, second = (_as_float(side.expression) for side in sides)
            quotient = first / _null_where(second == 0.0, second)
            return _Value(_known(quotient), NUMBER, text)
        result = getattr(pc, _COMPUTED[type(sign)])(*_alike(*sides))
        return _Value(_known(result), NUMBER, text, all(side.whole for side in sides))

    def _comparison(self, tree: ast.Compare) -> _Value:
        met, left = None, tree.left
        for sign, right in zip(tree.ops, tree.comparators, strict=True):
            if isinstance(sign, ast.Is | ast.IsNot):
                found = self._is_missing(left, right)
            elif isinstance(sign, ast.In | ast.NotIn):
                found = self._is_in(left, right)
            else:
                found = self._compared(left, _COMPARED[type(sign)], right)
            if isinstance(sign, ast.IsNot | ast.NotIn):
                found = ~found
            met = found if met is None else met & found
            left = right
        return _Value(met, TRUTH, _text(tree))

    def _is_missing(self, left: ast.expr, right: ast.expr) -> Any:
        if not _is_none(right):
            self._refuse(
                f"may use `is` only with None, not with {_text(right)}. To compare "
                "values, write =="
            )
        return self._value(left).expression.is_null()

    def _compared(self, left: ast.expr, name: str, right: ast.expr) -> Any:
        import pyarrow.compute as pc

        for side, other in ((left, right), (right, left)):
            if _is_none(side):
                word = "is not" if name == "not_equal" else "is"
                self._refuse(
                    f"compares {_text(other)} with None. To find missing values, write "
                    f"{_text(other)} {word} None"
                )
        first, second = self._value(left), self._value(right)
        self._check_kinds(first, second)
        return getattr(pc, name)(*_alike(first, second))

    def _is_in(self, left: ast.expr, right: ast.expr) -> Any:
        import pyarrow.compute as pc

        value = self._value(left)
        if isinstance(right, _LISTS):
            return self._is_one_of(value, right.elts)
        column = self._value(right)
        if column.kind != TEXT or column.is_constant:
            self._refuse(
                f"needs a list after `in`, or a column of texts, not {column}: "
                f"{value.text} in [{column.text}]"
            )
        if not value.is_constant or value.kind != TEXT:
            self._refuse(
                f"looks for {value} in {column}. Before such an `in` must be a text "
                f"in quotes, 'night' in {column.text}; or after it a list, "
                f"{value.text} in ['owl', 'wren']"
            )
        return pc.match_substring(column.expression, ast.literal_eval(left))

    def _is_one_of(self, value: _Value, items: list[ast.expr]) -> Any:
        import pyarrow as pa

        wanted: list[Any] = []
        for item in items:
            if _is_none(item):
                self._refuse(
                    f"has None in the list after {value.text} in. To find missing "
                    f"values, write {value.text} is None"
                )
            try:
                constant = ast.Constant(ast.literal_eval(item))
            except ValueError:
                self._refuse(f"has {_text(item)} in a list, which holds no constant")
            self._check_kinds(value, self._constant(constant))
            wanted.append(constant.value)
        if value.kind == OTHER:
            self._refuse(f"looks for {value} in a list of numbers and texts")
        column, type_ = value.expression, _TYPES[value.kind]
        if value.kind == NUMBER and all(isinstance(number, int) for number in wanted):
            type_ = "int64" if value.whole else type_
        if type_ == "float64":
            column = _as_float(column) + 0.0  # -0.0 becomes 0.0
            wanted = [number + 0.0 for number in wanted]
        return _null_where(column.is_null(), column.isin(pa.array(wanted, type_)))

    def _check_kinds(self, first: _Value, second: _Value) -> None:
        """Raises OptionError if two values cannot be compared with each other."""
        if first.kind == second.kind != OTHER:
            return
        advice = "Compare values of one kind"
        for side, other in ((first, second), (second, first)):
            if side.is_constant and (side.kind, other.kind) == (NUMBER, TEXT):
                advice = f"Write {side.text!r}, in quotes"
            elif side.is_constant and (side.kind, other.kind) == (TEXT, NUMBER):
                advice = f"Write {side.text[1:-1]} without quotes"
        self._refuse(f"compares {first} with {second}. {advice}")


def _marked(kind: int, word: str) -> str:
    """Returns a token; a keyword of Python that may be a column gets a mark."""
    is_column = kind == tokenize.NAME and word in _KEYWORD_COLUMNS
    return f"{word}{_MARK}" if is_column else word


def _text(tree: ast.expr) -> str:
    """Returns a part of a condition as text."""
    text = ast.unparse(tree).replace(_MARK, "")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."


def _is_none(tree: ast.expr) -> bool:
    return isinstance(tree, ast.Constant) and tree.value is None


def _alike(first: _Value, second: _Value) -> list[Any]:
    """Returns two values as expressions of one type."""
    sides = [first.expression, second.expression]
    if first.kind == NUMBER and not (first.whole and second.whole):
        return list(map(_as_float, sides))
    return sides


def _as_float(numbers: Any) -> Any:
    import pyarrow as pa

    return numbers.cast(pa.float64(), safe=False)


def _known(numbers: Any) -> Any:
    """Returns an expression with null instead of NaN."""
    import pyarrow.compute as pc

    return _null_where(pc.is_nan(numbers), numbers)


def _null_where(missing: Any, values: Any) -> Any:
    """Returns an expression that is null where ``missing`` holds."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.if_else(missing, pc.scalar(pa.scalar(None)), values)
