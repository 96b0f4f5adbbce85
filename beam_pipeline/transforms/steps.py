"""Expressions: steps as text, ``peak_gain(level_db=-1.0)|log_mel(n_mels=64)``.

::

    expression = step ("|" step)*
    step       = name ["(" [argument ("," argument)*] ")"]
    argument   = parameter "=" literal
    name       = a built-in step, or package.module:qualified.name for your own,
                 or __main__:qualified.name@SHA-256 for one of a script or a notebook

Text is never evaluated. Arguments are Python literals. A name without a module is
looked up in the table of its kind: transforms, augmentations, selections, stream steps,
placements.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import inspect
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any

from beam_pipeline.errors import RecipeError, did_you_mean
from beam_pipeline.transforms import own_code
from beam_pipeline.transforms.ar import ArSpectrum, LinearPrediction
from beam_pipeline.transforms.augment import (
    Augmentation,
    Background,
    Noise,
    RandomGain,
    RandomPolarity,
    Reverb,
    SpecAugment,
    Speed,
    TimeShift,
)
from beam_pipeline.transforms.base import (
    AsImage,
    Identity,
    Transform,
    chain_of,
    steps_of,
)
from beam_pipeline.transforms.cepstral import Cmvn, Delta, Mfcc, Pcen
from beam_pipeline.transforms.cqt import Chroma, Cqt
from beam_pipeline.transforms.filters import BandPass, HighPass, LowPass
from beam_pipeline.transforms.fourier import Fft, Stft
from beam_pipeline.transforms.loudness import Loudness, Lufs
from beam_pipeline.transforms.mel import KaldiFbank, LogMel, Mel
from beam_pipeline.transforms.own_code import MAIN, UnknownCode, import_own
from beam_pipeline.transforms.pitch import Pyin, Yin
from beam_pipeline.transforms.select import PLACEMENTS, SELECTIONS, Placement, Selection
from beam_pipeline.transforms.shape import (
    OnsetStrength,
    Rms,
    SpectralBandwidth,
    SpectralCentroid,
    SpectralContrast,
    SpectralFlatness,
    SpectralRolloff,
    ZeroCrossingRate,
)
from beam_pipeline.transforms.signals import (
    Analytic,
    Downsample,
    Gain,
    LufsGain,
    Normalize,
    PeakGain,
    PreEmphasis,
    Resample,
    RmsGain,
)
from beam_pipeline.transforms.stream import ClipGain, Dither

BUILT_IN: dict[str, type[Any]] = {
    "analytic": Analytic,
    "ar_spectrum": ArSpectrum,
    "as_image": AsImage,
    "band_pass": BandPass,
    "chroma": Chroma,
    "cmvn": Cmvn,
    "cqt": Cqt,
    "delta": Delta,
    "downsample": Downsample,
    "fft": Fft,
    "gain": Gain,
    "high_pass": HighPass,
    "identity": Identity,
    "kaldi_fbank": KaldiFbank,
    "linear_prediction": LinearPrediction,
    "log_mel": LogMel,
    "loudness": Loudness,
    "low_pass": LowPass,
    "lufs": Lufs,
    "lufs_gain": LufsGain,
    "mel": Mel,
    "mfcc": Mfcc,
    "normalize": Normalize,
    "onset_strength": OnsetStrength,
    "pcen": Pcen,
    "peak_gain": PeakGain,
    "pre_emphasis": PreEmphasis,
    "pyin": Pyin,
    "resample": Resample,
    "rms": Rms,
    "rms_gain": RmsGain,
    "spec_augment": SpecAugment,
    "spectral_bandwidth": SpectralBandwidth,
    "spectral_centroid": SpectralCentroid,
    "spectral_contrast": SpectralContrast,
    "spectral_flatness": SpectralFlatness,
    "spectral_rolloff": SpectralRolloff,
    "stft": Stft,
    "yin": Yin,
    "zero_crossing_rate": ZeroCrossingRate,
}

# From samples to samples: any transform can follow these.
SIGNAL_TO_SIGNAL = frozenset({
    "band_pass", "downsample", "high_pass", "identity", "low_pass", "lufs_gain",
    "normalize", "peak_gain", "pre_emphasis", "resample", "rms_gain",
})  # fmt: skip

# These take any feature and keep its shape.
ON_FEATURES = frozenset({"as_image", "cmvn", "delta", "gain", "spec_augment"})

AUGMENTATIONS: dict[str, type[Any]] = {
    "background": Background,
    "noise": Noise,
    "random_gain": RandomGain,
    "random_polarity": RandomPolarity,
    "reverb": Reverb,
    "speed": Speed,
    "time_shift": TimeShift,
}

# On a clip's samples: also those steps on windows that can work on a stream.
STREAM_STEPS: dict[str, type[Any]] = {
    "clip_gain": ClipGain,
    "dither": Dither,
    **{name: step for name, step in BUILT_IN.items() if hasattr(step, "on_stream")},
}


# Reading takes time that grows with the square of the length.
LONGEST_EXPRESSION = 10_000

_NAME = re.compile(r"\s*([^\W\d][\w.]*(?::[^\W\d][\w.]*(?:@[0-9a-f]{64})?)?)\s*")


@dataclass(frozen=True)
class Kind:
    """A kind of steps.

    Attributes
    ----------
    noun, field : str
        The word for a step in errors, and the recipe's field that errors name.
    table : mapping
        The built-in steps, by name.
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
    """

    noun: str
    field: str
    table: Mapping[str, type[Any]]
    example: str
    method: str
    lacks: str
    own: str = "a frozen dataclass"
    words: tuple[str, ...] = ()
    alone: bool = False

    @property
    def advice(self) -> str:
        return (
            f"use {self.own} at the top level of a module that can be imported, or of "
            "the script or notebook that runs"
        )


TRANSFORM = Kind(
    noun="transform",
    field="feature",
    table=BUILT_IN,
    example="peak_gain(level_db=-1)|log_mel(n_mels=64)",
    method="__call__",
    lacks="cannot be called on windows",
    own="a function or a frozen dataclass",
)
AUGMENTATION = Kind(
    noun="augmentation",
    field="augment",
    table=AUGMENTATIONS,
    example="random_gain(low_db=-3)|noise()",
    method="augment",
    lacks="has no method augment(windows, keys, sample_rate_hz)",
)
SELECTION = Kind(
    noun="selection",
    field="keep",
    table=SELECTIONS,
    example="energy(above_db=-50)|peak()",
    method="keep",
    lacks="has no method keep(windows, sample_rate_hz)",
)
STREAM = Kind(
    noun="stream step",
    field="stream",
    table=STREAM_STEPS,
    example="high_pass(cutoff_hz=50)|clip_gain(kind='peak')",
    method="context",
    lacks="has no methods context(sample_rate_hz) and "
    "on_stream(frames, sample_rate_hz)",
)
PLACEMENT = Kind(
    noun="placement",
    field="windows_at",
    table=PLACEMENTS,
    example="peaks(above_db=-40,min_gap_s=0.5)",
    method="passages",
    lacks="has no method passages(blocks, sample_rate_hz)",
    words=("grid", "events", "onsets"),
    alone=True,
)

# Steps of any kind, given for a recipe that names them.
GIVEN = Kind(
    noun="function or class",
    field="functions",
    table={},
    example="my_function",
    method="__call__",
    lacks="cannot be called",
    own="a function or a class",
)

LOADER = Kind(
    noun="loader",
    field="loader",
    table={},
    example="my_files:load",
    method="__call__",
    lacks="cannot be called on a path",
    own="a function or a frozen dataclass",
    alone=True,
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

    User-defined: ``package.module:name`` is a function or an instance, and
    ``package.module:Class(x=1)`` creates an instance. ``dtype`` is the dtype of a last
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
    *_, (name, arguments) = split_steps(expression, TRANSFORM)
    says_dtype = any(argument.arg == "dtype" for argument in arguments or [])
    if BUILT_IN.get(name) is Identity and not says_dtype:
        steps = (*steps[:-1], Identity(dtype))
    return chain_of(steps)


def check_order(steps: Sequence[Transform], expression: str) -> None:
    """Raises RecipeError if a step needs samples and the step before returns none.

    The input and output of user-defined transforms are unknown. So neither they nor the
    steps right after them are checked.
    """
    names = {cls: name for name, cls in BUILT_IN.items()}
    ended_by = None
    for step in steps:
        name = names.get(type(step))
        if name is None:
            ended_by = None
        elif ended_by is not None and name not in ON_FEATURES:
            raise RecipeError(
                TRANSFORM.field,
                f"{name} needs samples, but the step before it, {ended_by}, does not "
                f"return samples; after {ended_by}, use only "
                f"{', '.join(sorted(ON_FEATURES))} or your own transform",
                expression,
            )
        elif name not in SIGNAL_TO_SIGNAL | ON_FEATURES:
            ended_by = name


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
    steps = steps_of(transform)
    return format_steps(steps, TRANSFORM)


def parse_augment(expression: str) -> tuple[Augmentation, ...]:
    """The augmentations that an expression describes, in their order.

    Raises
    ------
    RecipeError
        As for ``parse_transform``; user-defined steps need a method ``augment``.

    Examples
    --------
    >>> parse_augment("random_polarity|time_shift(max_s=0.5)")
    (RandomPolarity(), TimeShift(max_s=0.5, wrap=False))
    """
    return parse_steps(expression, AUGMENTATION)


def parse_selection(expression: str) -> tuple[Selection, ...]:
    """The selections that an expression describes; a window must pass them all.

    Raises
    ------
    RecipeError
        As for ``parse_transform``; user-defined steps need a method ``keep``.

    Examples
    --------
    >>> parse_selection("energy(above_db=-50)|peak")
    (Energy(above_db=-50.0), Peak(above_db=-40.0))
    """
    return parse_steps(expression, SELECTION)


@functools.cache
def parse_stream(expression: str) -> tuple[Any, ...]:
    """The steps on a clip's samples that an expression describes.

    Raises
    ------
    RecipeError
        As for ``parse_transform``; user-defined steps need methods ``context`` and
        ``on_stream``.
    """
    return parse_steps(expression, STREAM)


def parse_loader(expression: str) -> Any:
    """The loader that an expression describes, see :mod:`beam_pipeline.audio.loaded`.

    Raises
    ------
    RecipeError
        As for ``parse_transform``.
    """
    (loader,) = parse_steps(expression, LOADER)
    return loader


@functools.cache
def parse_placement(expression: str) -> Placement:
    """The placement of windows that an expression describes.

    Raises
    ------
    RecipeError
        As for ``parse_transform``; a user-defined one needs a method ``passages``.
    """
    (placement,) = parse_steps(expression, PLACEMENT)
    return placement  # type: ignore[no-any-return]


def parse_steps(expression: str, kind: Kind) -> tuple[Any, ...]:
    """The steps that an expression describes, each checked to be of the kind."""
    steps = tuple(
        _make_step(name, arguments, expression, kind)
        for name, arguments in split_steps(expression, kind)
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


def give_steps(code: Iterable[Any]) -> None:
    """Lets recipes find functions and classes of the script that runs.

    Raises
    ------
    RecipeError
        If one has no hash, see :mod:`.own_code`; or if it is not of the script.
    """
    for each in code:
        if getattr(each, "__module__", None) != MAIN:
            raise RecipeError(
                "functions", "must be functions and classes of the script", each
            )
        target = each if isinstance(each, type | FunctionType) else type(each)
        _name_of(target, each, GIVEN)


@contextlib.contextmanager
def naming_step(step: Any, kind: Kind) -> Iterator[None]:
    """Adds a step's field and name to a RecipeError from the ``with`` block."""
    try:
        yield
    except RecipeError as error:
        field, problem, value = error.args
        names = {cls: name for name, cls in kind.table.items()}
        cls = step if isinstance(step, type) else type(step)
        name = names.get(cls) or getattr(step, "__name__", type(step).__name__)
        inner = field.removeprefix(kind.field).removeprefix(": ")
        where = ": ".join(part for part in (kind.field, name, inner) if part)
        raise RecipeError(where, problem, value) from error.__cause__


def _format_step(step: Any, kind: Kind) -> str:
    if isinstance(step, type):
        raise RecipeError(
            kind.field, f"is a class; pass an instance, {step.__name__}()", step
        )
    if not dataclasses.is_dataclass(step):
        return _name_of(step, step, kind)
    cls = type(step)
    built_in = {cls: name for name, cls in kind.table.items()}
    name = built_in.get(cls) or _name_of(cls, step, kind)
    parameters = [f.name for f in dataclasses.fields(step) if f.init]
    arguments = [f"{p}={_literal(step, p, kind)}" for p in parameters]
    return f"{name}({','.join(arguments)})"


def split_steps(
    expression: str, kind: Kind
) -> Iterator[tuple[str, list[ast.keyword] | None]]:
    """Each step's name and arguments; None for a step without parentheses."""
    if len(expression) > LONGEST_EXPRESSION:
        raise RecipeError(
            kind.field,
            f"must be an expression of at most {LONGEST_EXPRESSION} characters",
            expression,
        )
    rest = expression
    while True:
        match = _NAME.match(rest)
        if match is None:
            raise RecipeError(
                kind.field,
                f"must be one or more steps, like {kind.example}",
                expression,
            )
        rest = rest[match.end() :]
        arguments = None
        if rest.startswith("("):
            call, rest = _split_call(rest, match[1], expression, kind)
            if call.args or any(keyword.arg is None for keyword in call.keywords):
                raise RecipeError(
                    kind.field,
                    f"must name every argument of {match[1]}, like {match[1]}(x=1)",
                    expression,
                )
            arguments = call.keywords
        yield match[1], arguments
        rest = rest.lstrip()
        if not rest:
            return
        if not rest.startswith("|"):
            raise RecipeError(
                kind.field, f"needs a | before the step {rest[:80]!r}", expression
            )
        rest = rest[1:]


def _split_call(
    text: str, name: str, expression: str, kind: Kind
) -> tuple[ast.Call, str]:
    """Splits ``(x=1)|more`` after the shortest prefix that is a Python call.

    Python's parser decides where the call ends, so parentheses and bars within strings
    and brackets need no rules here.
    """
    problem: Exception | None = None
    for closing in re.finditer(r"\)", text):
        try:
            tree = ast.parse("f" + text[: closing.end()], mode="eval")
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            problem = error  # the last two: it is nested too deep
            continue
        if isinstance(tree.body, ast.Call):
            return tree.body, text[closing.end() :]
    raise RecipeError(
        kind.field,
        f"the arguments of {name} cannot be read; write them like "
        f"{name}(x=1, y='text')",
        expression,
    ) from problem


def _make_step(
    name: str, arguments: list[ast.keyword] | None, expression: str, kind: Kind
) -> Any:
    target = _find(name, expression, kind)
    if isinstance(target, type):
        return _instantiate(target, name, arguments or [], expression, kind)
    if arguments is not None:
        raise RecipeError(
            kind.field, f"{name} is not a class, so it takes no arguments", expression
        )
    return _check_step(target, name, expression, kind)


def _find(name: str, expression: str, kind: Kind) -> Any:
    if name in kind.table:
        return kind.table[name]
    module_name, colon, qualified = name.partition(":")
    if not colon:
        known = [*kind.words, *kind.table]
        close = did_you_mean(name, known)
        hint = f"Did you mean {close}? " if close else ""
        available = f"Available: {', '.join(known)}. " if known else ""
        raise RecipeError(
            kind.field,
            f"there is no {kind.noun} {name}. {hint}{available}Give your own as "
            "package.module:name",
            expression,
        )
    if module_name == MAIN:
        try:
            return own_code.find(name)
        except (LookupError, UnknownCode) as error:
            raise RecipeError(kind.field, error.args[0], expression) from None
    if _is_of_python(module_name):
        raise RecipeError(
            kind.field,
            f"{name} is of Python's own library, which has no {kind.noun}",
            expression,
        )
    try:
        target: Any = import_own(module_name)
    except Exception as error:  # the module's own code may raise anything
        raise RecipeError(
            kind.field,
            f"cannot import {module_name} ({type(error).__name__}: {error})",
            expression,
        ) from error
    for attribute in qualified.split("."):
        if not hasattr(target, attribute):
            raise RecipeError(
                kind.field, f"{module_name} has no {qualified}", expression
            )
        target = getattr(target, attribute)
    is_code = isinstance(target, type | FunctionType | BuiltinFunctionType)
    if is_code and _is_of_python(target.__module__ or ""):
        raise RecipeError(
            kind.field,
            f"{name} is of Python's own library, which has no {kind.noun}",
            expression,
        )
    return target


def _is_of_python(module: str) -> bool:
    """Whether a module is of Python's own library: a recipe may be a stranger's."""
    return module.partition(".")[0] in sys.stdlib_module_names


def _instantiate(
    cls: type[Any], name: str, arguments: list[ast.keyword], expression: str, kind: Kind
) -> Any:
    try:
        parameters = dict(inspect.signature(cls).parameters)
    except (TypeError, ValueError):  # compiled classes may have no signature
        parameters = {}
    known = list(parameters)
    values: dict[str, Any] = {}
    for keyword in arguments:
        parameter = str(keyword.arg)
        if parameter not in known:
            has = f"its parameters are {', '.join(known)}" if known else "it has none"
            raise RecipeError(
                kind.field, f"{name} has no parameter {parameter}; {has}", expression
            )
        if parameter in values:
            raise RecipeError(kind.field, f"{parameter} is given twice", expression)
        try:
            values[parameter] = ast.literal_eval(keyword.value)
        except (ValueError, TypeError, RecursionError, MemoryError) as error:
            raise RecipeError(
                kind.field,
                f"{parameter}={ast.unparse(keyword.value)} is not a literal; use "
                "numbers, text in quotes, True, False, None, or tuples or lists of "
                "these",
                expression,
            ) from error
    missing = [
        p.name
        for p in parameters.values()
        if p.default is p.empty
        and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)
        and p.name not in values
    ]
    if missing:
        raise RecipeError(
            kind.field,
            f"{name} needs values for {' and '.join(missing)}, as in "
            f"{name}({','.join(f'{p}=...' for p in missing)})",
            expression,
        )
    # Before an instance is made: making one may do anything.
    if not any(kind.method in vars(base) for base in cls.__mro__):
        raise RecipeError(kind.field, f"{name} {kind.lacks}; {kind.advice}", expression)
    try:
        with naming_step(cls, kind):
            step = cls(**values)
    except RecipeError:
        raise
    except Exception as error:  # the class's own code may raise anything
        raise RecipeError(
            kind.field,
            f"cannot create {name} ({type(error).__name__}: {error})",
            expression,
        ) from error
    return _check_step(step, name, expression, kind)


def _check_step(step: Any, name: str, expression: str, kind: Kind) -> Any:
    if not callable(getattr(step, kind.method, None)):
        raise RecipeError(
            kind.field,
            f"{name} is of type {type(step).__name__}, which {kind.lacks}",
            expression,
        )
    return step


def _name_of(target: Any, step: Any, kind: Kind) -> str:
    """``module:qualname``, checked to name the same object; see also own_code."""
    module = getattr(target, "__module__", None)
    qualified = getattr(target, "__qualname__", None)
    if module is None or qualified is None:
        raise RecipeError(kind.field, f"has no name; {kind.advice}", step)
    name = f"{module}:{qualified}"
    if "<" in qualified:
        raise RecipeError(
            kind.field, f"{name} is a lambda or a local object; {kind.advice}", step
        )
    if module == MAIN:
        try:
            return own_code.name_of(target)
        except UnknownCode as error:
            raise RecipeError(kind.field, str(error), step) from None
    if _find(name, name, kind) is not target:
        raise RecipeError(
            kind.field, f"another object now has the name {name}; {kind.advice}", step
        )
    return name


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


@contextlib.contextmanager
def naming_feature(name: str) -> Iterator[None]:
    """Adds a feature's name to a RecipeError from the ``with`` block."""
    try:
        yield
    except RecipeError as error:
        field, problem, value = error.args
        inner = field.removeprefix(TRANSFORM.field).removeprefix(": ")
        where = f"{TRANSFORM.field} {name}" + (f": {inner}" if inner else "")
        raise RecipeError(where, problem, value) from error.__cause__
