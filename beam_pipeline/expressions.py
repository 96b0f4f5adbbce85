"""Expressions: transforms as text, ``peak_gain(level_db=-1.0)|log_mel(n_mels=64)``.

::

    expression = step ("|" step)*
    step       = name ["(" [argument ("," argument)*] ")"]
    argument   = parameter "=" literal
    name       = a built-in's, or package.module:qualified.name of your own

Text is never evaluated: arguments are Python literals, and names are looked up.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import importlib
import inspect
import re
from collections.abc import Iterator
from typing import Any

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import Chain, Transform
from beam_pipeline.transforms.catalogue import BUILT_IN

_NAME = re.compile(r"\s*([^\W\d][\w.]*(?::[^\W\d][\w.]*)?)\s*")
_ADVICE = (
    "use a function or a frozen dataclass at the top level of a module that can be "
    "imported"
)


def parse_transform(expression: str) -> Transform:
    """The transform that an expression stands for.

    Your own: ``package.module:name`` is a function or an instance,
    ``package.module:Class(x=1)`` an instance made here.

    Raises
    ------
    RecipeError
        If it cannot be read, a name or a parameter does not exist, a module cannot be
        imported, a class cannot be instantiated, or the result is not callable.

    Examples
    --------
    >>> parse_transform("peak_gain()|identity(dtype='int16')")
    Chain(steps=(PeakGain(level_db=0.0), Identity(dtype='int16')))
    """
    steps = [
        _make_step(name, arguments, expression)
        for name, arguments in _split_steps(expression)
    ]
    return steps[0] if len(steps) == 1 else Chain(tuple(steps))


def format_transform(transform: Transform | str) -> str:
    """The canonical expression: every parameter, in the order of the fields.

    A default that changes in a later version cannot change what it stands for, and
    ``parse_transform(format_transform(t)) == t``. An expression is made canonical.

    Raises
    ------
    RecipeError
        If the transform has no name that another process could find it by, or an
        argument that is not a Python literal.

    Examples
    --------
    >>> format_transform("peak_gain|identity")
    "peak_gain(level_db=0.0)|identity(dtype='float32')"
    """
    if isinstance(transform, str):
        transform = parse_transform(transform)
    if isinstance(transform, Chain):
        return "|".join(format_transform(step) for step in transform.steps)
    if isinstance(transform, type):
        raise RecipeError(
            "feature",
            f"is a class; make an instance, {transform.__name__}()",
            transform,
        )
    if not dataclasses.is_dataclass(transform):
        return _name_of(transform, transform)
    cls = type(transform)
    built_in = {cls: name for name, cls in BUILT_IN.items()}
    name = built_in.get(cls) or _name_of(cls, transform)
    parameters = [f.name for f in dataclasses.fields(transform) if f.init]
    arguments = [f"{p}={_literal(transform, p)}" for p in parameters]
    return f"{name}({','.join(arguments)})"


def _split_steps(expression: str) -> Iterator[tuple[str, list[ast.keyword] | None]]:
    """Each step's name and arguments; None where it has no parentheses."""
    rest = expression
    while True:
        match = _NAME.match(rest)
        if match is None:
            raise RecipeError(
                "feature",
                "must be steps like peak_gain(level_db=-1)|log_mel(n_mels=64)",
                expression,
            )
        rest = rest[match.end() :]
        arguments = None
        if rest.startswith("("):
            call, rest = _split_call(rest, match[1], expression)
            if call.args or any(keyword.arg is None for keyword in call.keywords):
                raise RecipeError(
                    "feature",
                    f"name every argument of {match[1]}, like {match[1]}(x=1)",
                    expression,
                )
            arguments = call.keywords
        yield match[1], arguments
        rest = rest.lstrip()
        if not rest:
            return
        if not rest.startswith("|"):
            raise RecipeError(
                "feature", f"put | between steps, before {rest!r}", expression
            )
        rest = rest[1:]


def _split_call(text: str, name: str, expression: str) -> tuple[ast.Call, str]:
    """Splits ``(x=1)|more`` after the shortest prefix that is a Python call.

    Python's own parser decides where it ends, so that parentheses and bars within
    strings and brackets need no rules here.
    """
    problem: Exception | None = None
    for closing in re.finditer(r"\)", text):
        try:
            tree = ast.parse("f" + text[: closing.end()], mode="eval")
        except (SyntaxError, ValueError) as error:
            problem = error
            continue
        if isinstance(tree.body, ast.Call):
            return tree.body, text[closing.end() :]
    raise RecipeError(
        "feature",
        f"cannot read the arguments of {name}; write them like {name}(x=1, y='text')",
        expression,
    ) from problem


def _make_step(
    name: str, arguments: list[ast.keyword] | None, expression: str
) -> Transform:
    target = _find(name, expression)
    if isinstance(target, type):
        return _instantiate(target, name, arguments or [], expression)
    if arguments is not None:
        raise RecipeError(
            "feature", f"{name} is not a class, so it takes no arguments", expression
        )
    return _check_callable(target, name, expression)


def _find(name: str, expression: str) -> Any:
    if name in BUILT_IN:
        return BUILT_IN[name]
    module_name, colon, qualified = name.partition(":")
    if not colon:
        close = difflib.get_close_matches(name, BUILT_IN, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise RecipeError(
            "feature",
            f"there is no transform {name}; {hint}There are {', '.join(BUILT_IN)}; "
            "your own are written package.module:name",
            expression,
        )
    try:
        target: Any = importlib.import_module(module_name)
    except Exception as error:  # the module's own code may raise anything
        raise RecipeError(
            "feature",
            f"cannot import {module_name} ({type(error).__name__}: {error})",
            expression,
        ) from error
    for attribute in qualified.split("."):
        if not hasattr(target, attribute):
            raise RecipeError(
                "feature", f"{module_name} has no {qualified}", expression
            )
        target = getattr(target, attribute)
    return target


def _instantiate(
    cls: type[Any], name: str, arguments: list[ast.keyword], expression: str
) -> Transform:
    try:
        known = list(inspect.signature(cls).parameters)
    except (TypeError, ValueError):  # compiled classes may have no signature
        known = []
    values: dict[str, Any] = {}
    for keyword in arguments:
        parameter = str(keyword.arg)
        if parameter not in known:
            has = f"only {', '.join(known)}" if known else "none at all"
            raise RecipeError(
                "feature", f"{name} has no parameter {parameter}, {has}", expression
            )
        if parameter in values:
            raise RecipeError("feature", f"{parameter} is given twice", expression)
        try:
            values[parameter] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError) as error:
            raise RecipeError(
                "feature",
                f"{parameter}={ast.unparse(keyword.value)} is not a literal; text "
                "needs quotes, and only numbers, text, True, False, None and tuples or "
                "lists of them are taken",
                expression,
            ) from error
    try:
        transform = cls(**values)
    except RecipeError:
        raise
    except Exception as error:  # the class's own code may raise anything
        raise RecipeError(
            "feature",
            f"cannot make {name} ({type(error).__name__}: {error})",
            expression,
        ) from error
    return _check_callable(transform, name, expression)


def _check_callable(target: Any, name: str, expression: str) -> Transform:
    if not callable(target):
        raise RecipeError(
            "feature",
            f"{name} is of type {type(target).__name__}, which cannot be called on "
            "windows",
            expression,
        )
    transform: Transform = target
    return transform


def _name_of(target: Any, transform: Any) -> str:
    """``module:qualname``, checked to lead back to the same object."""
    module = getattr(target, "__module__", None)
    qualified = getattr(target, "__qualname__", None)
    if module is None or qualified is None:
        raise RecipeError("feature", f"has no name; {_ADVICE}", transform)
    if module == "__main__":
        raise RecipeError(
            "feature",
            f"{qualified} is defined in the script that runs, where workers cannot "
            f"find it; {_ADVICE}",
            transform,
        )
    name = f"{module}:{qualified}"
    if "<" in qualified:
        raise RecipeError(
            "feature", f"{name} is a lambda or a local object; {_ADVICE}", transform
        )
    if _find(name, name) is not target:
        raise RecipeError(
            "feature", f"{name} is now another object; {_ADVICE}", transform
        )
    return name


def _literal(transform: Any, parameter: str) -> str:
    """A parameter's value as text that gives the same value and type back."""
    value = getattr(transform, parameter)
    text = repr(value)
    try:
        tree = ast.parse(text, mode="eval")
        again = ast.literal_eval(tree)
        # Sets are printed in another order in every process.
        ordered = not any(isinstance(node, ast.Set) for node in ast.walk(tree))
        same = ordered and type(again) is type(value) and bool(again == value)
    except (SyntaxError, ValueError, TypeError):
        same = False
    if not same:
        raise RecipeError(
            "feature",
            f"{parameter}={text} ({type(value).__name__}) cannot be written down; use "
            "numbers, text, True, False, None, or tuples of them",
            transform,
        )
    return text
