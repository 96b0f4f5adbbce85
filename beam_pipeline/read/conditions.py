"""Conditions on the columns of a table, as text: ``class == 'owl' and snr_db > 10``.

The text is Python's: comparisons, ``and``, ``or``, ``not``, ``in``, ``is None`` and
arithmetic. A name is a column; a name that is no identifier stands in backticks. No
code runs: everything else is an error.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from typing import Any

from beam_pipeline.errors import OptionError, did_you_mean

# A text in quotes, which stays; a name in backticks; a name.
_TOKENS = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|`(?P<quoted>[^`]+)`"""
    r"""|(?P<name>[^\W\d]\w*)"""
)
_WORDS = {"and", "or", "not", "in", "is", "None", "True", "False"}
_COMPARED = {
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
}
_COMPUTED = {
    ast.Add: "add",
    ast.Sub: "subtract",
    ast.Mult: "multiply",
    ast.Div: "divide",
}


def rows_where(table: Any, condition: str) -> Any:
    """Returns which rows of a table meet a condition.

    A comparison with a missing value is not met.

    Parameters
    ----------
    table : pyarrow.Table
    condition : str

    Returns
    -------
    numpy.ndarray, shape (rows,), bool

    Raises
    ------
    OptionError
        If the condition cannot be read, names no column of the table, or compares
        values of different kinds.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    tree, columns = _parse(condition, table.column_names)
    try:
        found = _Evaluation(table, columns, condition).value(tree)
        if not pa.types.is_boolean(found.type):
            raise _refused(condition, "must be true or false for each row")
    except pa.ArrowException as error:
        raise _refused(condition, f"cannot be computed: {error}") from error
    if isinstance(found, pa.Scalar):
        found = pa.chunked_array([pa.array([found.as_py()] * len(table), pa.bool_())])
    return pc.fill_null(found, False).to_numpy()


def _parse(condition: str, names: Iterable[str]) -> tuple[ast.expr, dict[str, str]]:
    """Returns the tree of a condition, and the column of each name in it."""
    known, columns = list(names), {}
    if not isinstance(condition, str):
        raise _refused(condition, "must be a text, like \"class == 'owl'\"")

    def placeholder(found: re.Match[str]) -> str:
        name = found["quoted"] or found["name"]
        if found["text"] or name in _WORDS:
            return found[0]
        if name not in known:
            close = did_you_mean(name, known)
            hint = f" Did you mean {close}?" if close else ""
            raise _refused(
                condition, f"names no column {name!r}, only {', '.join(known)}.{hint}"
            )
        made = f"column_{known.index(name)}"
        columns[made] = name
        return made

    try:
        text = _TOKENS.sub(placeholder, condition.strip())
        return ast.parse(text, mode="eval").body, columns
    except SyntaxError as error:
        raise _refused(condition, f"cannot be read: {error.msg}") from error


def _refused(condition: Any, problem: str) -> OptionError:
    return OptionError("condition", problem, condition)


class _Evaluation:
    """Computes the value of a tree: a column, or one value for all rows."""

    def __init__(self, table: Any, columns: dict[str, str], condition: str):
        self._table = table
        self._columns = columns
        self._condition = condition

    def value(self, tree: ast.expr) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        if isinstance(tree, ast.Name):
            column = self._table[self._columns[tree.id]]
            if pa.types.is_dictionary(column.type):
                column = column.cast(column.type.value_type)
            return column
        if isinstance(tree, ast.Constant) and not isinstance(tree.value, bytes):
            return pa.scalar(tree.value)
        if isinstance(tree, ast.BoolOp):
            name = "and_kleene" if isinstance(tree.op, ast.And) else "or_kleene"
            found = self.value(tree.values[0])
            for other in tree.values[1:]:
                found = pc.call_function(name, [found, self.value(other)])
            return found
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
            return pc.invert(self.value(tree.operand))
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
            return pc.negate(self.value(tree.operand))
        if isinstance(tree, ast.BinOp) and type(tree.op) in _COMPUTED:
            sides = [self.value(tree.left), self.value(tree.right)]
            return pc.call_function(_COMPUTED[type(tree.op)], sides)
        if isinstance(tree, ast.Compare):
            return self._comparison(tree)
        raise _refused(
            self._condition,
            f"holds {ast.unparse(tree)!r}; it may hold comparisons, and, or, not, in, "
            "is None, + - * / of columns, numbers and texts",
        )

    def _comparison(self, tree: ast.Compare) -> Any:
        import pyarrow.compute as pc

        found, left = None, tree.left
        for operator, right in zip(tree.ops, tree.comparators, strict=True):
            met = self._compared(left, operator, right)
            found = met if found is None else pc.and_kleene(found, met)
            left = right
        return found

    def _compared(self, left: ast.expr, operator: ast.cmpop, right: ast.expr) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        if type(operator) in _COMPARED:
            sides = [self.value(left), self.value(right)]
            return pc.call_function(_COMPARED[type(operator)], sides)
        is_none = isinstance(right, ast.Constant) and right.value is None
        if isinstance(operator, ast.Is | ast.IsNot) and is_none:
            missing = pc.is_null(self.value(left))
            return missing if isinstance(operator, ast.Is) else pc.invert(missing)
        if not isinstance(operator, ast.In | ast.NotIn):
            raise _refused(self._condition, "may use `is` only with None")
        if isinstance(right, ast.List | ast.Tuple | ast.Set):
            column = self.value(left)
            values = [self.value(item).as_py() for item in right.elts]
            found = pc.is_in(column, value_set=pa.array(values).cast(column.type))
            found = pc.if_else(pc.is_null(column), None, found)
        else:
            part = self.value(left).as_py()
            if not isinstance(part, str):
                raise _refused(
                    self._condition,
                    "needs a list after `in`, or a text before it: class in ['owl', "
                    "'wren'], 'night' in path",
                )
            found = pc.match_substring(self.value(right), part)
        return found if isinstance(operator, ast.In) else pc.invert(found)
