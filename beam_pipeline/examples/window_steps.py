"""Steps on windows: which leave some out, change copies or depend on the clip.

::

    window 0    window 1    window 2         of a clip, with copies = 2
    0  1  2     3  4  5     6  7  8          examples of the clip
    =  a  b     =  a  b     =  a  b          unchanged, first copy, second copy

A step that changes copies gets a key for each: 64 random bits. They depend on the seed,
on the clip's path and input, on the step, on the window's number in its clip and on the
copy's number. So a recipe with more copies gives the same first copies, and nothing
depends on shards, blocks or workers.

A step may raise anything, ``SystemExit`` included. The error names the step and the
cause::

    before a run  two silent windows -> step  RecipeError: option, step, shape, cause
    in a run      windows of a clip  -> step  TransformError: clip, step, window, cause
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from beam_pipeline.arrays import Array, Booleans, FloatArray, Integers, Keys
from beam_pipeline.errors import RecipeError, TransformError, Unreadable, is_of_machine
from beam_pipeline.permutation import hash64
from beam_pipeline.process import Marks
from beam_pipeline.recipe.canonical import load_step
from beam_pipeline.recipe.recipe import Augmentation, Recipe
from beam_pipeline.text import clip_key, text_key
from beam_pipeline.transforms.base import Transform, chain_of, steps_of
from beam_pipeline.transforms.own_code import ByValue
from beam_pipeline.transforms.steps import (
    AUGMENTATION,
    SELECTION,
    TRANSFORM,
    Kind,
    naming_step,
    parse_steps,
)

COPY_BITS = 16


def clip_bits(seed: int, filepath: str, source: int) -> int:
    """Returns random bits of a clip, which are not those of its random starts."""
    return int(~np.uint64(clip_key(seed, filepath, source)))


def copy_numbers(windows: Integers, copies: Integers) -> Integers:
    """Returns a number for each pair of a window's number and a copy's."""
    return (windows << COPY_BITS) + copies


def measuring_step(transform: Transform, name: str) -> int | None:
    """Returns the number of the step that measures clips; None if there is none.

    Raises
    ------
    RecipeError
        If there are two.
    """
    steps = enumerate(steps_of(transform))
    found = [at for at, step in steps if getattr(step, "measures_clips", False)]
    if len(found) > 1:
        problem = "must have at most one step that measures whole clips"
        raise RecipeError(f"{TRANSFORM.field} {name}", problem, len(found))
    return found[0] if found else None


def changes_copies(step: Transform) -> bool:
    """Whether a step changes augmented copies, and nothing else."""
    return hasattr(step, "on_copies")


def check_copies(
    transforms: Mapping[str, Transform], augmentation: Augmentation
) -> None:
    """Checks that something changes copies, and that there are copies to change.

    Raises
    ------
    RecipeError
        If a step changes copies and there are none, or the other way round.
    """
    changing = [
        name
        for name, transform in transforms.items()
        if any(map(changes_copies, steps_of(transform)))
    ]
    if changing and not augmentation.copies:
        problem = "has a step that changes nothing but copies; give `copies`"
        raise RecipeError(f"{TRANSFORM.field} {changing[0]}", problem, 0)
    if augmentation.copies and not (augmentation.augment or changing):
        raise RecipeError(
            "copies and augment",
            "must be given together: the number of copies, and the steps that alter "
            "them; a feature may alter them instead, with spec_augment",
            (augmentation.copies, augmentation.augment),
        )


class Origins(NamedTuple):
    """Which windows and copies of a clip some examples are.

    Attributes
    ----------
    filepath, sample_rate_hz
        Those of the clip.
    starts : numpy.ndarray, shape (n,), int64
        The first frame of each window in the clip; errors name it.
    copies : numpy.ndarray, shape (n,), int64
        The number of each example's copy; 0 for a window as it is.
    numbers : numpy.ndarray, shape (n,), int64
        See :func:`copy_numbers`.
    bits : int
        See :func:`clip_bits`.
    measured : tuple of (str, bytes)
        The measure of the clip for each feature that has a step which needs it.
    """

    filepath: str
    sample_rate_hz: int
    starts: Integers
    copies: Integers
    numbers: Integers
    bits: int = 0
    measured: tuple[tuple[str, bytes], ...] = ()

    def some(self, chosen: Array) -> Origins:
        """Returns those of some of the examples."""
        return self._replace(
            starts=self.starts[chosen],
            copies=self.copies[chosen],
            numbers=self.numbers[chosen],
        )

    def keys(self, step: int) -> Keys:
        """Returns the key of each example for a step that changes copies."""
        return hash64(int(hash64(self.bits, np.array([step]))[0]), self.numbers)

    def place(self, transform: Transform, name: str, rows: Integers) -> Transform:
        """Returns the transform of a feature for some rows of the examples.

        ``name`` is the feature's.
        """
        copies = np.flatnonzero(self.copies[rows])
        placed: list[Transform] = []
        at = 0
        for step in steps_of(transform):
            if getattr(step, "measures_clips", False):
                measured = dict(self.measured)[name]
                placed.append(step.of_measured(measured))  # type: ignore[attr-defined]
            else:
                placed.append(step)
            if copies.size and changes_copies(step):
                keys = self.some(rows[copies]).keys(text_key(name, str(at)) >> 1)
                placed.append(_OnCopies(step, copies, keys))
                at += 1
        return chain_of(placed)


@dataclass(frozen=True, eq=False)
class _OnCopies:
    """Changes the features of some rows, with the ``on_copies`` of a step."""

    step: Any
    rows: Integers
    keys: Keys

    def __call__(self, features: Array, sample_rate_hz: int) -> Array:
        features = np.array(features)
        chosen = features[self.rows]
        chosen.flags.writeable = False
        made = self.step.on_copies(chosen, self.keys, sample_rate_hz)
        features[self.rows] = _checked(self.step, made, chosen.dtype, chosen.shape)
        return features


@dataclass(frozen=True)
class WindowSteps:
    """The selections and augmentations of a recipe."""

    selections: tuple[Any, ...] = ()
    augmentations: tuple[Any, ...] = ()
    seed: int = 0
    copies: int = 0

    def __getstate__(self) -> dict[str, Any]:
        steps = ("selections", "augmentations")
        return vars(self) | {name: ByValue(getattr(self, name)) for name in steps}

    @classmethod
    def of(
        cls, recipe: Recipe, shape: tuple[int, ...], sample_rate_hz: int | None
    ) -> WindowSteps:
        """Returns the steps of a recipe, after a trial on two silent windows.

        Parameters
        ----------
        shape : tuple of int
            The shape of one window.
        sample_rate_hz : int or None
            None if clips have different rates.

        Raises
        ------
        RecipeError
            If a step does not exist, raises, returns an array of the wrong type or
            shape, or if there are steps and no single sample rate.
        """
        found: dict[Kind, tuple[Any, ...]] = {}
        silence = silent_windows(shape)
        keys = np.arange(len(silence), dtype=np.uint64)
        for kind in (SELECTION, AUGMENTATION):
            text = getattr(recipe, kind.field)
            found[kind] = parse_steps(text, kind) if text else ()
            rate = required_sample_rate(sample_rate_hz, kind, text) if text else 0
            for step in found[kind]:
                with trying(step, kind, silence, text):
                    if kind is SELECTION:
                        _selected(step, rate, silence)
                    else:
                        _augmented(load_step(step, rate), rate, silence, keys)
        return cls(found[SELECTION], found[AUGMENTATION], recipe.seed, recipe.copies)

    def selected(self, windows: FloatArray, origins: Origins) -> Booleans:
        """Returns which windows pass every selection, shape (n,).

        Raises
        ------
        TransformError
            If a selection raises, or does not return one boolean for each window.
        """
        selected = np.ones(len(windows), np.bool_)
        for step in self.selections:
            run = partial(_selected, step, origins.sample_rate_hz)
            name = f"{SELECTION.field}: {type(step).__name__}"
            selected &= run_on_windows(
                run, (windows,), name, origins.starts, origins.filepath
            )
        return selected

    def augmented(self, windows: FloatArray, origins: Origins) -> FloatArray:
        """Returns windows after every augmentation, in the order of the recipe.

        Raises
        ------
        TransformError
            If an augmentation raises, or returns another type or shape.
        """
        for at, step in enumerate(self.augmentations):
            loaded = load_step(step, origins.sample_rate_hz)
            run = partial(_augmented, loaded, origins.sample_rate_hz)
            name = f"{AUGMENTATION.field}: {type(step).__name__}"
            arrays = windows, origins.keys(at)
            windows = run_on_windows(
                run, arrays, name, origins.starts, origins.filepath
            )
        return windows


def _selected(step: Any, sample_rate_hz: int, windows: FloatArray) -> Booleans:
    return _checked(step, step.keep(windows, sample_rate_hz), np.bool_, (len(windows),))


def _augmented(
    step: Any, sample_rate_hz: int, windows: FloatArray, keys: Keys
) -> FloatArray:
    made = step.augment(windows, keys, sample_rate_hz)
    made = _checked(step, made, np.float32, windows.shape).view()
    made.flags.writeable = False
    return made


def _checked(step: Any, returned: Any, dtype: Any, shape: tuple[int, ...]) -> Array:
    """Returns what a step made; raises RecipeError if it has another type or shape."""
    made: Array = np.asarray(returned)
    if made.dtype != dtype or made.shape != shape:
        raise RecipeError(
            type(step).__name__,
            f"must return {np.dtype(dtype)} values of shape {shape} for its windows",
            f"{made.dtype} {made.shape}",
        )
    return made


# How steps run: on silence before a run, then on windows

_T = TypeVar("_T")


def silent_windows(shape: tuple[int, ...]) -> FloatArray:
    """Returns two silent windows, read-only as the windows of a clip are.

    Parameters
    ----------
    shape : tuple of int
        The shape of one window, ``(frames,)`` or ``(channels, frames)``.

    Returns
    -------
    numpy.ndarray, shape (2, *shape), float32
    """
    silence = np.zeros((2, *shape), np.float32)
    silence.flags.writeable = False
    return silence


@contextlib.contextmanager
def trying(
    step: Any, kind: Kind, silence: FloatArray, expression: str
) -> Iterator[None]:
    """Makes a RecipeError of whatever a block raises that runs a step on silence.

    Parameters
    ----------
    step : object
        The step that the block runs.
    kind : Kind
        Its kind, which has the option that errors name.
    silence : numpy.ndarray
        The windows that the first step of the expression gets.
    expression : str
        The steps as the recipe spells them; the value that errors quote.

    Raises
    ------
    RecipeError
        If the block raises. A RecipeError of the block stays, with the step's name
        added to its option; any other exception becomes one that names the step, the
        shape of the windows and the cause.
    """
    try:
        with naming_step(step, kind):
            yield
    except RecipeError:
        raise
    except (Exception, SystemExit) as error:
        name = getattr(step, "__name__", type(step).__name__)
        raise RecipeError(
            kind.field,
            f"{name} fails on two silent windows of shape {silence.shape}: "
            f"{type(error).__name__}: {error}",
            expression,
        ) from error


def required_sample_rate(
    sample_rate_hz: int | None, kind: Kind, expression: str
) -> int:
    """Returns the sample rate that steps need.

    Raises
    ------
    RecipeError
        If it is None, because clips have different rates.
    """
    if sample_rate_hz is None:
        problem = "needs one sample rate for all clips; give `sample_rate`"
        raise RecipeError(kind.field, problem, expression)
    return sample_rate_hz


def run_on_windows(
    run: Callable[..., _T],
    arrays: Sequence[Array],
    name: str,
    starts: Integers,
    filepath: str,
) -> _T:
    """Returns ``run(*arrays)``; if it fails, looks for a window that fails alone.

    Parameters
    ----------
    run : callable
        Runs a step on some windows.
    arrays : sequence of numpy.ndarray, each of shape (n, ...)
        The windows, and what else ``run`` needs for each of them.
    name : str
        The step's name in errors.
    starts : numpy.ndarray, shape (n,), int64
        The first frame of each window in its clip.

    Raises
    ------
    TransformError
        If ``run`` raises. Names the step, the window and the cause.
    """
    Marks.step(name)
    try:
        return run(*arrays)
    except (Exception, SystemExit) as error:
        where = f"the windows from frame {starts[0]} to {starts[-1]} together"
        for at in range(len(arrays[0])):
            try:
                run(*(array[at : at + 1] for array in arrays))
            except (Exception, SystemExit):  # only whether it fails matters
                where = f"the window at frame {starts[at]}"
                break
        kind = Unreadable if is_of_machine(error) else TransformError
        raise kind(
            filepath, f"{name} fails on {where}: {type(error).__name__}: {error}"
        ) from error
