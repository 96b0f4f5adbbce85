"""Conditions on the columns of a table, as text: ``class == 'owl' and snr_db > 10``.

The text is Python's: comparisons, ``and``, ``or``, ``not``, ``in``, ``is None`` and
arithmetic. A name is a column; a name that is no identifier, or is a word of Python's,
stands in backticks. No code runs: everything else is an error.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from beam_pipeline.errors import OptionError, did_you_mean
from beam_pipeline.read.column_values import (
    NUMBER,
    TEXT,
    TRUTH,
    Value,
    column_value,
    compared,
    computed,
    constant_value,
    is_constant,
    is_missing,
    is_one_of,
    kind_of,
)

# A text in quotes and a number, which stay; a name in backticks; a name; a new line.
_TOKENS = re.compile(
    r"""(?P<text>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|(?P<number>(?<!\w)(?:0[xob][\da-f_]+|(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)"""
    r"""(?:e[+-]?\d[\d_]*)?))"""
    r"""|`(?P<quoted>(?:[^`]|``)+)`|(?P<name>[^\W\d]\w*)|(?P<line>[\r\n]+)""",
    re.IGNORECASE | re.DOTALL,
)
_WORDS = {"and", "or", "not", "in", "is", "None", "True", "False"}
_PLACEHOLDER = "column_{}"
_SHOWN = 200

_COMPARED = {
    ast.Eq: "equal",
    ast.NotEq: "not_equal",
    ast.Lt: "less",
    ast.LtE: "less_equal",
    ast.Gt: "greater",
    ast.GtE: "greater_equal",
}
_COMPUTED = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}
_LISTS = ast.List | ast.Tuple | ast.Set
_PLURAL = {NUMBER: "numbers", TEXT: "texts", TRUTH: "true or false", None: "other data"}


def rows_where(table: Any, condition: str) -> Any:
    """Returns which rows of a table meet a condition.

    A comparison with a missing value is not met. NaN is a missing value, and so is the
    result of a division by zero.

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
        If the condition cannot be read, names no column of the table, compares values
        of different kinds, or computes whole numbers beyond 64 bits.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not isinstance(condition, str):
        raise _refused(condition, "must be a text, like \"class == 'owl'\"")
    try:
        evaluation = _Evaluation(table, _Text(condition, table.column_names))
        found = evaluation.truth(evaluation.text.tree, "the condition")
    except RecursionError as error:
        raise _refused(
            condition,
            "is nested too deeply; use `in` with a list, or where() several times",
        ) from error
    except pa.ArrowException as error:
        raise _refused(condition, f"cannot be computed: {error}") from error
    if isinstance(found, pa.Scalar):
        return np.full(len(table), found.as_py() or False)
    return np.asarray(pc.fill_null(found, False))


def _refused(condition: Any, problem: str) -> OptionError:
    if isinstance(condition, str) and len(condition) > _SHOWN:
        condition = f"{condition[:_SHOWN]}..."
    return OptionError("condition", problem, condition)


class _Text:
    """A condition as it was written, its tree, and the column of each name in it."""

    def __init__(self, condition: str, names: Sequence[str]):
        self.condition = condition
        self.columns: dict[str, str] = {}
        self._written: dict[str, str] = {}
        self._known = names
        self._text = _TOKENS.sub(self._placeholder, condition).strip()
        if not self._text:
            raise self.refused("is empty; write for example class == 'owl'")
        try:
            self.tree = ast.parse(self._text, mode="eval").body
        except SyntaxError as error:
            raise self._unreadable(error) from error
        except (ValueError, MemoryError) as error:
            raise self.refused(f"cannot be read: {error or 'too long'}") from error

    def refused(self, problem: str) -> OptionError:
        return _refused(self.condition, problem)

    def part(self, tree: ast.expr) -> str:
        """Returns a part of the condition as it was written."""
        part = self._as_written(ast.get_source_segment(self._text, tree) or "")
        return part if len(part) <= _SHOWN else f"{part[:_SHOWN]}..."

    def _placeholder(self, found: re.Match[str]) -> str:
        if found["line"]:
            return " "
        name = found["quoted"] or found["name"]
        if name is None or found["name"] in _WORDS:
            return found[0]
        if found["quoted"]:
            name = name.replace("``", "`")
        if name not in self._known:
            raise self._no_column(name, found)
        made = _PLACEHOLDER.format(len(self.columns))
        self.columns[made] = name
        self._written[made] = found[0]
        return made

    def _no_column(self, name: str, found: re.Match[str]) -> OptionError:
        spelled = {known: _spelled(known) for known in self._known}
        if not found["quoted"]:
            spelled = {word: word for word in sorted(_WORDS)} | spelled
        close = did_you_mean(name, spelled)
        hint = "" if close is None else f" Did you mean {spelled[close]}?"
        columns = ", ".join(map(_spelled, self._known))
        return self.refused(
            f"names no column {name!r}, at character {found.start() + 1}; the columns "
            f"are {columns}.{hint} Texts need quotes"
        )

    def _unreadable(self, error: SyntaxError) -> OptionError:
        written = re.compile(r"\bcolumn_\d+\b")
        problem = written.sub(lambda m: self._written.get(m[0], m[0]), error.msg)
        near = hint = ""
        if error.lineno == 1 and error.offset:
            rest = self._as_written(self._text[error.offset - 1 :])
            near = f", at {rest[:_SHOWN]!r}" if rest.strip() else ", at its end"
            hint = ". To compare values, write ==" * rest.startswith("=")
        return self.refused(f"cannot be read{near}: {problem}{hint}")

    def _as_written(self, text: str) -> str:
        return _TOKENS.sub(lambda m: self._written.get(m["name"] or "", m[0]), text)


def _spelled(name: str) -> str:
    """Returns a column as a condition names it."""
    bare = name.isidentifier() and name not in _WORDS
    return name if bare else f"`{name.replace('`', '``')}`"


class _Evaluation:
    """Computes the value of a tree: for each row, or one value for all rows."""

    def __init__(self, table: Any, text: _Text):
        self.text = text
        self._table = table

    def value(self, tree: ast.expr) -> Value:
        import pyarrow.compute as pc

        if isinstance(tree, ast.Name):
            return column_value(self._table[self.text.columns[tree.id]])
        if isinstance(tree, ast.Constant):
            return self._constant(tree)
        if isinstance(tree, ast.BoolOp):
            sign = "and" if isinstance(tree.op, ast.And) else "or"
            found, *others = (self.truth(v, f"`{sign}`") for v in tree.values)
            for other in others:
                found = pc.call_function(f"{sign}_kleene", [found, other])
            return found
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
            return pc.invert(self.truth(tree.operand, "`not`"))
        if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub | ast.UAdd):
            number = self._number(tree.operand)
            sign = "-" if isinstance(tree.op, ast.USub) else "+"
            return self._computed(tree, sign, 0, number)
        if isinstance(tree, ast.BinOp) and type(tree.op) in _COMPUTED:
            sides = self._number(tree.left), self._number(tree.right)
            return self._computed(tree, _COMPUTED[type(tree.op)], *sides)
        if isinstance(tree, ast.Compare):
            return self._comparison(tree)
        part = self.text.part(tree)
        if isinstance(tree, _LISTS):
            problem = "a list stands only after `in`: class in ['owl', 'wren']"
        else:
            problem = (
                "it may hold comparisons, and, or, not, in, is None, and + - * / // % "
                "of columns and numbers"
            )
        raise self.text.refused(f"holds {part}; {problem}")

    def truth(self, tree: ast.expr, user: str) -> Any:
        """Returns a value that is true or false; ``user`` is what needs it."""
        value = self.value(tree)
        if kind_of(value) != TRUTH:
            raise self.text.refused(
                f"holds {self._described(tree, value)}, but {user} needs what is true "
                "or false for each row. Compare it with a value"
            )
        return value

    def _constant(self, tree: ast.Constant) -> Value:
        if tree.value is None:
            raise self.text.refused(
                "has None where a value must be. None stands only after `is` or "
                "`is not`: class is None"
            )
        if not isinstance(tree.value, int | float | str):
            raise self.text.refused(
                f"holds {self.text.part(tree)}, which is no number and no text"
            )
        try:
            return constant_value(tree.value)
        except UnicodeEncodeError as error:
            raise self.text.refused(
                f"holds {self.text.part(tree)}, which is no valid Unicode"
            ) from error

    def _number(self, tree: ast.expr) -> Value:
        value = self.value(tree)
        if kind_of(value) != NUMBER:
            raise self.text.refused(
                f"computes with {self._described(tree, value)}. Only numbers can be "
                "computed with"
            )
        return value

    def _computed(self, tree: ast.expr, sign: str, left: Value, right: Value) -> Value:
        try:
            return computed(sign, left, right)
        except OverflowError as error:
            raise self.text.refused(
                f"cannot be computed: {self.text.part(tree)}: {error}. Multiply a "
                "number by 1.0 first, to compute with decimals"
            ) from error

    def _comparison(self, tree: ast.Compare) -> Any:
        import pyarrow.compute as pc

        found, left = None, tree.left
        for sign, right in zip(tree.ops, tree.comparators, strict=True):
            if isinstance(sign, ast.Is | ast.IsNot):
                met = self._is_missing(left, right)
            elif isinstance(sign, ast.In | ast.NotIn):
                met = self._is_in(left, right)
            else:
                met = self._compared(left, _COMPARED[type(sign)], right)
            if isinstance(sign, ast.IsNot | ast.NotIn):
                met = pc.invert(met)
            found = met if found is None else pc.and_kleene(found, met)
            left = right
        return found

    def _is_missing(self, left: ast.expr, right: ast.expr) -> Any:
        if not _is_none(right):
            raise self.text.refused(
                f"may use `is` only with None, not with {self.text.part(right)}. To "
                "compare values, write =="
            )
        return is_missing(self.value(left))

    def _compared(self, left: ast.expr, name: str, right: ast.expr) -> Any:
        for side, other in ((left, right), (right, left)):
            if _is_none(side):
                self._refuse_none(other, name)
        first, second = self.value(left), self.value(right)
        self._check_kinds(left, first, right, second)
        return compared(name, first, second)

    def _refuse_none(self, tree: ast.expr, name: str) -> NoReturn:
        word = "is not" if name == "not_equal" else "is"
        part = self.text.part(tree)
        raise self.text.refused(
            f"compares {part} with None. To find missing values, write {part} {word} "
            "None"
        )

    def _is_in(self, left: ast.expr, right: ast.expr) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        if isinstance(right, _LISTS):
            return self._is_one_of(left, right.elts)
        written = self.text.part(left)
        part, whole = self.value(left), self.value(right)
        if kind_of(whole) == TEXT and not isinstance(whole, pa.Scalar):
            if kind_of(part) == TEXT and isinstance(part, pa.Scalar):
                return pc.match_substring(whole, part.as_py())
            raise self.text.refused(
                f"looks for {self._described(left, part)} in "
                f"{self._described(right, whole)}. Before such an `in` must be a text "
                f"in quotes, 'night' in {self.text.part(right)}; or after it a list, "
                f"{written} in ['owl', 'wren']"
            )
        raise self.text.refused(
            f"needs a list after `in`, or a column of texts, not "
            f"{self._described(right, whole)}: {written} in [{self.text.part(right)}]"
        )

    def _is_one_of(self, left: ast.expr, items: Sequence[ast.expr]) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        value, constants = self.value(left), []
        found = pc.if_else(is_missing(value), None, pa.scalar(False))
        for item in items:
            if _is_none(item):
                part = self.text.part(left)
                raise self.text.refused(
                    f"has None in the list after {part} in. To find missing values, "
                    f"write {part} is None"
                )
            other = self.value(item)
            self._check_kinds(left, value, item, other)
            if is_constant(other) and not is_constant(value):
                constants.append(other)
            else:
                found = pc.or_kleene(found, compared("equal", value, other))
        if constants and kind_of(value) != TRUTH and not isinstance(value, pa.Scalar):
            return pc.or_kleene(found, is_one_of(value, constants))
        for other in constants:
            found = pc.or_kleene(found, compared("equal", value, other))
        return found

    def _check_kinds(
        self, left: ast.expr, first: Value, right: ast.expr, second: Value
    ) -> None:
        """Raises OptionError if two values cannot be compared with each other."""
        kinds = kind_of(first), kind_of(second)
        if kinds[0] == kinds[1] and None not in kinds:
            return
        advice = "Compare values of one kind"
        for tree, kind in ((left, kinds[1]), (right, kinds[0])):
            if not isinstance(tree, ast.Constant) or isinstance(tree.value, bool):
                continue
            if kind == TEXT:
                advice = f"Write {self.text.part(tree)!r}"
            elif kind == NUMBER:
                advice = f"Write {_number_of(tree.value)} without quotes"
        raise self.text.refused(
            f"compares {self._described(left, first)} with "
            f"{self._described(right, second)}. {advice}"
        )

    def _described(self, tree: ast.expr, value: Value) -> str:
        part, kind = self.text.part(tree), kind_of(value)
        if isinstance(tree, ast.Name):
            return f"column {part} (which holds {_PLURAL[kind]})"
        return f"{part} ({kind})"


def _is_none(tree: ast.expr) -> bool:
    return isinstance(tree, ast.Constant) and tree.value is None


def _number_of(text: Any) -> str:
    """Returns the number that a text spells, or else an example of one."""
    try:
        float(text)
    except ValueError:
        return "a number"
    return str(text)
