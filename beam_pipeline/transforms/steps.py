"""Expressions: steps as text, ``peak_gain(level_db=-1.0)|log_mel(n_mels=64)``.

::

    expression = step ("|" step)*
    step       = name ["(" [argument ("," argument)*] ")"]
    argument   = parameter "=" literal
    name       = a built-in step, or package.module.qualified.name for your own,
                 or __main__.qualified.name['SHA-256'] for one without a module

This is Python's own syntax, which ``ast`` reads; nothing is evaluated. A name without a
dot is one of the steps of its kind in :mod:`beam_pipeline.transforms`: transforms,
augmentations, selections, stream steps, placements.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import inspect
import re
import sys
import timeit
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from beam_pipeline import transforms as catalogue
from beam_pipeline.errors import OptionError, RecipeError, listed
from beam_pipeline.transforms import own_code
from beam_pipeline.transforms.base import (
    Identity,
    Step,
    Transform,
    apply_transform,
    chain_of,
    steps_of,
)
from beam_pipeline.transforms.clip_steps import Placement
from beam_pipeline.transforms.own_code import MAIN, UnknownCode, import_own

# Reading takes time that grows with the length.
LONGEST_EXPRESSION = 10_000


def step_name(step: Any) -> str:
    """The name of a step, or of a class of steps, for errors and in expressions."""
    cls = step if isinstance(step, type) else type(step)
    if issubclass(cls, Step):
        return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
    return str(getattr(step, "__name__", cls.__name__))


@dataclass(frozen=True)
class Kind:
    """A kind of steps.

    Attributes
    ----------
    noun, field : str
        The word for a step in errors, and the recipe's field that errors name.
    example : str
        An expression that errors show.
    method, lacks : str
        The method that a step must have, and what errors say if it is missing.
    own : str
        What a user-defined step can be.
    words : tuple of str
        Values of the field that are no expressions.
    alone : bool
        Whether an expression is one step.
    has_built_in : bool
        Whether this package has steps of the kind.
    """

    noun: str
    field: str
    example: str
    method: str
    lacks: str
    own: str = "a frozen dataclass"
    words: tuple[str, ...] = ()
    alone: bool = False
    has_built_in: bool = True

    @functools.cached_property
    def table(self) -> dict[str, type[Any]]:
        """The built-in steps of the kind, by name."""
        members = (getattr(catalogue, name) for name in catalogue.__all__)
        return {
            step_name(member): member
            for member in members
            if isinstance(member, type) and issubclass(member, Step)
            if self.has_built_in and self.fits(member)
        }

    def fits(self, step: Any) -> bool:
        """Whether a step, or the instances of a class, have the method."""
        if isinstance(step, type):  # a class itself can be called
            return any(self.method in vars(base) for base in step.__mro__)
        return callable(getattr(step, self.method, None))

    @property
    def advice(self) -> str:
        return (
            f"use {self.own} of a module that can be imported, or of the script or "
            "notebook that runs"
        )


TRANSFORM = Kind(
    noun="transform",
    field="feature",
    example="peak_gain(level_db=-1)|log_mel(n_mels=64)",
    method="__call__",
    lacks="cannot be called on windows",
    own="a function or a frozen dataclass",
)
AUGMENTATION = Kind(
    noun="augmentation",
    field="augment",
    example="random_gain(low_db=-3)|noise()",
    method="augment",
    lacks="has no method augment(windows, keys, sample_rate_hz)",
)
SELECTION = Kind(
    noun="selection",
    field="keep",
    example="energy(above_db=-50)|peak()",
    method="keep",
    lacks="has no method keep(windows, sample_rate_hz)",
)
STREAM = Kind(
    noun="stream step",
    field="stream",
    example="high_pass(cutoff_hz=50)|clip_gain(kind='peak')",
    method="context",
    lacks="has no methods context(sample_rate_hz) and "
    "on_stream(frames, sample_rate_hz)",
)
PLACEMENT = Kind(
    noun="placement",
    field="windows_at",
    example="peaks(above_db=-40,min_gap_s=0.5)",
    method="passages",
    lacks="has no method passages(blocks, sample_rate_hz)",
    words=("grid", "events", "onsets"),
    alone=True,
)

LOADER = Kind(
    noun="loader",
    field="loader",
    example="my_files.load",
    method="__call__",
    lacks="cannot be called on a path",
    own="a function or a frozen dataclass",
    alone=True,
    has_built_in=False,
)

# The recipe's fields that hold expressions.
STEP_FIELDS = {
    kind.field: kind for kind in (STREAM, SELECTION, AUGMENTATION, PLACEMENT, LOADER)
}


def given_steps(options: Mapping[str, Any]) -> Iterator[tuple[str, Kind]]:
    """Yields the expressions in the JSON of a recipe, without those of features."""
    for field, kind in STEP_FIELDS.items():
        expression = options.get(field)
        if expression and expression not in kind.words:
            yield expression, kind


def parse_transform(expression: str, dtype: str = "float32") -> Transform:
    """The transform that an expression describes.

    User-defined: ``package.module.name`` is a function or an instance, and
    ``package.module.Class(x=1)`` creates an instance. ``dtype`` is the dtype of a last
    ``identity()`` that does not name one.

    Raises
    ------
    RecipeError
        If the expression cannot be read, a name or a parameter does not exist, a module
        cannot be imported, a class cannot be instantiated, or the result is not
        callable.

    Examples
    --------
    >>> parse_transform("peak_gain()|identity(dtype='int16')")
    Chain(steps=(PeakGain(level_db=0.0), Identity(dtype='int16')))
    """
    steps = parse_steps(expression, TRANSFORM)
    check_order(steps, expression)
    last = split_steps(expression, TRANSFORM)[-1]
    says_dtype = any(argument.arg == "dtype" for argument in last.arguments or [])
    if isinstance(steps[-1], Identity) and not says_dtype:
        steps = (*steps[:-1], Identity(dtype))
    return chain_of(steps)


def given_transform(given: Transform | str) -> tuple[Transform, str]:
    """Returns the transform that a caller gives, and its text or its name.

    Unlike in a recipe, it may be any callable, such as a lambda.

    Raises
    ------
    OptionError
        If it is neither an expression nor a transform.
    """
    if isinstance(given, str):
        return parse_transform(given), given
    if isinstance(given, type) or not callable(given):
        raise OptionError(
            "transform", "must be an expression or a transform, such as LogMel()", given
        )
    return given, getattr(given, "__name__", None) or repr(given)


def check_order(steps: Sequence[Transform], expression: str) -> None:
    """Raises RecipeError if a step needs samples and the step before returns none.

    The input and output of user-defined transforms are unknown. So neither they nor the
    steps right after them are checked.
    """
    ended_by = None
    for step in steps:
        if not isinstance(step, Step):
            ended_by = None
        elif ended_by is not None and not step.on_features:
            names = [name for name, cls in TRANSFORM.table.items() if cls.on_features]
            raise RecipeError(
                TRANSFORM.field,
                f"{step_name(step)} needs samples, but the step before it, {ended_by}, "
                f"does not return samples; after {ended_by}, use only "
                f"{', '.join(names)} or your own transform",
                expression,
            )
        elif not (step.gives_samples or step.on_features):
            ended_by = step_name(step)


def format_transform(transform: Transform | str) -> str:
    """The canonical expression: every parameter, in the order of the fields.

    It keeps its meaning if a default changes in a later version, and
    ``parse_transform(format_transform(t)) == t``. An expression becomes canonical, too.

    Raises
    ------
    RecipeError
        If another process could not find the transform by its name, or an argument is
        not a Python literal.

    Examples
    --------
    >>> format_transform("peak_gain|identity")
    "peak_gain(level_db=0.0)|identity(dtype='float32')"
    """
    if isinstance(transform, str):
        transform = parse_transform(transform)
    return format_steps(steps_of(transform), TRANSFORM)


@functools.cache
def parse_stream(expression: str) -> tuple[Any, ...]:
    """The steps on a clip's samples that an expression describes."""
    return parse_steps(expression, STREAM)


@functools.cache
def parse_placement(expression: str) -> Placement:
    """The placement of windows that an expression describes."""
    (placement,) = parse_steps(expression, PLACEMENT)
    return placement  # type: ignore[no-any-return]


def parse_steps(expression: str, kind: Kind) -> tuple[Any, ...]:
    """The steps that an expression describes, each checked to be of the kind.

    Raises
    ------
    RecipeError
        As for :func:`parse_transform`.

    Examples
    --------
    >>> parse_steps("energy(above_db=-50)|peak", SELECTION)
    (Energy(above_db=-50.0), Peak(above_db=-40.0))
    """
    steps = tuple(
        _make_step(step, expression, kind) for step in split_steps(expression, kind)
    )
    if kind.alone and len(steps) > 1:
        raise RecipeError(
            kind.field, f"must be one {kind.noun}, not {len(steps)}", expression
        )
    return steps


def format_steps(steps: Iterable[Any] | str, kind: Kind) -> str:
    """The canonical expression of steps of a kind; see ``format_transform``.

    Examples
    --------
    >>> format_steps("energy|peak()", SELECTION)
    'energy(above_db=-60.0)|peak(above_db=-40.0)'
    """
    if isinstance(steps, str):
        steps = parse_steps(steps, kind)
    return "|".join(_format_step(step, kind) for step in steps)


def register_functions(code: Iterable[Any]) -> None:
    """Lets recipes find functions and classes that have no module of their own.

    Raises
    ------
    RecipeError
        If one has no hash, see :mod:`.own_code`.
    """
    for each in code:
        is_code = isinstance(each, type | FunctionType)
        try:
            own_code.name_of(each if is_code else type(each))
        except UnknownCode as error:
            raise RecipeError("functions", str(error), each) from None


@contextlib.contextmanager
def naming(where: str, field: str) -> Iterator[None]:
    """Puts a place before the field of a RecipeError from the ``with`` block."""
    try:
        yield
    except RecipeError as error:
        inner, problem, value = error.args
        inner = inner.removeprefix(field).removeprefix(": ")
        found = ": ".join(part for part in (where, inner) if part)
        raise RecipeError(found, problem, value) from error.__cause__


def naming_step(step: Any, kind: Kind) -> contextlib.AbstractContextManager[None]:
    """Adds a step's field and name to a RecipeError from the ``with`` block."""
    return naming(f"{kind.field}: {step_name(step)}", kind.field)


def naming_feature(name: str) -> contextlib.AbstractContextManager[None]:
    """Adds a feature's name to a RecipeError from the ``with`` block."""
    return naming(f"{TRANSFORM.field} {name}", TRANSFORM.field)


def _format_step(step: Any, kind: Kind) -> str:
    if isinstance(step, type):
        raise RecipeError(
            kind.field, f"is a class; pass an instance, {step.__name__}()", step
        )
    cls = type(step)
    if kind.table.get(step_name(step)) is cls:
        name = step_name(step)
    else:
        is_instance = dataclasses.is_dataclass(step)
        try:
            name = own_code.name_of(cls if is_instance else step)
        except UnknownCode as error:
            raise RecipeError(kind.field, f"{error}; {kind.advice}", step) from None
    if not dataclasses.is_dataclass(step):
        return name
    parameters = [f.name for f in dataclasses.fields(step) if f.init]
    arguments = [f"{p}={_literal(step, p, kind)}" for p in parameters]
    return f"{name}({','.join(arguments)})"


class NamedStep(NamedTuple):
    """A step of an expression: its name, and its arguments; None: no parentheses."""

    name: str
    arguments: list[ast.keyword] | None


def split_steps(expression: str, kind: Kind) -> list[NamedStep]:
    """The names and the arguments of the steps of an expression, in their order."""
    if len(expression) > LONGEST_EXPRESSION:
        raise RecipeError(
            kind.field,
            f"must be an expression of at most {LONGEST_EXPRESSION} characters",
            expression,
        )
    try:
        node = ast.parse(expression.replace("\n", " ").strip(), mode="eval").body
        steps = []
        while isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            steps.append(_named(node.right))
            node = node.left
        return [_named(node), *reversed(steps)]
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        # The last two: it is nested too deep.
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise RecipeError(
            kind.field,
            f"must be one or more steps, like {kind.example} ({reason})",
            expression,
        ) from error


def names_own_code(expression: str) -> bool:
    """Whether a transform has steps that are not of this package; runs none of them."""
    return any("." in step.name for step in split_steps(expression, TRANSFORM))


def _named(node: ast.expr) -> NamedStep:
    """A step: ``name``, ``package.module.name``, either of them called or hashed."""
    arguments = None
    if isinstance(node, ast.Call):
        arguments, names = node.keywords, [each.arg for each in node.keywords]
        text = ast.unparse(node.func)
        if node.args or None in names:
            raise ValueError(f"name every argument of {text}, like {text}(x=1)")
        node = node.func
    text = ast.unparse(node)
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        node = node.value
    while isinstance(node, ast.Attribute):
        node = node.value
    if not isinstance(node, ast.Name):
        raise ValueError(f"{text} is no name of a step")
    return NamedStep(text, arguments)


def _make_step(named: NamedStep, expression: str, kind: Kind) -> Any:
    name, arguments = named
    try:
        target = _find(name, kind)
        is_class = isinstance(target, type)
        if arguments is not None and not is_class:
            raise _Refused(f"{name} is not a class, so it takes no arguments")
        if not kind.fits(target):  # before an instance is made, which may do anything
            which = "" if is_class else f"is of type {type(target).__name__}, which "
            raise _Refused(f"{name} {which}{kind.lacks}; {kind.advice}")
        if not is_class:
            return target
        return _instantiate(target, name, arguments or [], kind)
    except _Refused as refused:
        raise RecipeError(kind.field, str(refused), expression) from refused.__cause__


class _Refused(Exception):
    """What is wrong with a step of an expression."""


def _find(name: str, kind: Kind) -> Any:
    """The class of a built-in step, or what a person's own name stands for."""
    if name in kind.table:
        return kind.table[name]
    if "[" in name:
        try:
            return own_code.find(name)
        except (LookupError, UnknownCode) as error:
            raise _Refused(error.args[0]) from None
    root, *attributes = name.split(".")
    if not attributes:
        known = [*kind.words, *kind.table]
        available = f"Available: {listed(known, name)}. " if known else ""
        raise _Refused(
            f"there is no {kind.noun} {name}. {available}Give your own as "
            "package.module.name"
        )
    if root == MAIN:
        raise _Refused(
            f"{name} is a name in a script or a notebook, and text cannot say which "
            f"code that is; in Python, pass {attributes[-1]} itself"
        )
    target: Any = None if _is_of_python(root) else _imported(root)
    for at, attribute in enumerate(attributes):
        module = ".".join([root, *attributes[:at]])
        if hasattr(target, "__path__") and not hasattr(target, attribute):
            _imported(f"{module}.{attribute}", may_be_missing=True)
        if target is not None and not hasattr(target, attribute):
            raise _Refused(f"{module} has no {attribute}")
        target = getattr(target, attribute, None)
    is_code = isinstance(target, type | FunctionType | BuiltinFunctionType)
    if target is None or (is_code and _is_of_python(target.__module__ or "")):
        raise _Refused(f"{name} is of Python's own library, which has no {kind.noun}")
    return target


def _imported(module: str, *, may_be_missing: bool = False) -> ModuleType | None:
    try:
        return import_own(module)
    except Exception as error:  # the module's own code may raise anything
        is_missing = isinstance(error, ModuleNotFoundError) and error.name == module
        if may_be_missing and is_missing:
            return None
        raise _Refused(
            f"cannot import {module} ({type(error).__name__}: {error})"
        ) from error


def _is_of_python(module: str) -> bool:
    """Whether a module is of Python's own library: a recipe may be a stranger's."""
    return module.partition(".")[0] in sys.stdlib_module_names


def _instantiate(
    cls: type[Any], name: str, arguments: list[ast.keyword], kind: Kind
) -> Any:
    values: dict[str, Any] = {}
    for keyword in arguments:
        parameter = str(keyword.arg)
        if parameter in values:
            raise _Refused(f"{parameter} is given twice")
        try:
            values[parameter] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, RecursionError, MemoryError) as error:
            raise _Refused(
                f"{parameter}={ast.unparse(keyword.value)} is not a literal; use "
                "numbers, text in quotes, True, False, None, or tuples or lists of "
                "these"
            ) from error
    try:
        with naming_step(cls, kind):
            return cls(**values)
    except RecipeError:
        raise
    except Exception as error:  # the class's own code may raise anything
        raise _Refused(
            f"cannot create {name} ({type(error).__name__}: {error})"
        ) from error


def _literal(step: Any, parameter: str, kind: Kind) -> str:
    """A parameter's value as text that evaluates to the same value and type."""
    value = getattr(step, parameter)
    text = repr(value)
    try:
        tree = ast.parse(text, mode="eval")
        again = ast.literal_eval(tree)
        # The printed order of a set differs between processes.
        ordered = not any(isinstance(node, ast.Set) for node in ast.walk(tree))
        same = ordered and type(again) is type(value) and bool(again == value)
    except (SyntaxError, ValueError, TypeError):
        same = False
    if not same:
        raise RecipeError(
            kind.field,
            f"{parameter}={text} ({type(value).__name__}) cannot be stored in a "
            "recipe; use numbers, text, True, False, None, or tuples of these",
            step,
        )
    return text


WINDOWS = 16
REPEATS = 5

KINDS = (TRANSFORM, *STEP_FIELDS.values())

# What to run for transforms that have a parameter without a default, or must follow
# others.
EXAMPLES = {
    "as_image": "log_mel()|as_image()",
    "band_pass": "band_pass(low_hz=300,high_hz=3000)",
    "cmvn": "log_mel()|cmvn()",
    "delta": "log_mel()|delta()",
    "gain": "gain(gain_db=-6)",
    "high_pass": "high_pass(cutoff_hz=50)",
    "low_pass": "low_pass(cutoff_hz=1000)",
    "resample": "resample(rate_hz=8000)",
    "spec_augment": "log_mel()|spec_augment()",
}


def describe_steps(texts: Sequence[str], sample_rate_hz: int, frames: int) -> str:
    """Lists named steps, with their documentation, or expressions.

    Transforms are run on noise: the list has the dtype and the shape of one window's
    result, and the time for each window on one core; or why the expression does not
    suit the window. Without texts, all steps are listed, with the first sentence of
    their documentation.

    Raises
    ------
    RecipeError
        If no step has a name, or an expression cannot be read.
    """
    every = [(kind, name) for kind in KINDS for name in sorted(kind.table)]
    lines: list[str] = []
    before = TRANSFORM
    for kind, given in [(_kind_of(t), t) for t in map(str.strip, texts)] or every:
        if kind is not before:
            lines += ["", f"--{kind.field.replace('_', '-')}:"]
            before = kind
        cls = kind.table.get(given)
        text = inspect.cleandoc(cls.__doc__ or "") if cls else ""
        if not texts:
            text = text.partition("\n\n")[0].replace("\n", " ")
        lines.append(_call_of(given, cls) if cls else given)
        if kind is TRANSFORM:
            tried = EXAMPLES.get(given, f"{given}()") if cls else given
            transform = parse_transform(tried)
            try:
                outcome = f"-> {_outcome(transform, sample_rate_hz, frames)}"
            except RecipeError as error:
                outcome = f"(here: {error})"
            lines.append(f"  {tried}  {outcome}")
        elif cls is None:
            parse_steps(given, kind)
        lines += [f"    {line}".rstrip() for line in text.splitlines()]
    return "\n".join(lines)


def _kind_of(text: str) -> Kind:
    """The first kind whose table has all steps of an expression; else transforms."""
    names = [step.name for step in split_steps(text, TRANSFORM)]
    return next(
        (kind for kind in KINDS if all(name in kind.table for name in names)), TRANSFORM
    )


def _outcome(transform: Transform, sample_rate_hz: int, frames: int) -> str:
    """What a transform gives for a window of noise, and the shortest of several times.

    It runs on one core, as in a job.
    """
    from threadpoolctl import threadpool_limits

    rng = np.random.default_rng(0)
    noise = (0.1 * rng.standard_normal((WINDOWS, frames))).astype(np.float32)
    run = functools.partial(apply_transform, transform, sample_rate_hz=sample_rate_hz)
    first = run(noise[:1])
    shape = "x".join(map(str, first.shape[1:])) or "scalar"
    with threadpool_limits(1):
        seconds = min(timeit.repeat(lambda: run(noise), number=1, repeat=REPEATS))
    return f"{first.dtype} {shape}, {1e6 * seconds / WINDOWS:.0f} us"


def _call_of(name: str, cls: type[Any]) -> str:
    """``name(parameter=default,...)``; ``parameter=?`` if there is no default."""
    parameters = [
        f"{f.name}={'?' if f.default is MISSING else repr(f.default)}"
        for f in fields(cls)
        if f.init
    ]
    return f"{name}({','.join(parameters)})"
