"""Runs user-defined steps; the error for what they raise names the step and the cause.

::

    before a run  two silent windows -> step  RecipeError: option, step, shape, cause
    in a run      windows of a clip  -> step  TransformError: clip, step, window, cause

A step may raise anything, ``SystemExit`` included.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import RecipeError, TransformError, Unreadable, is_of_machine
from beam_pipeline.marks import Marks
from beam_pipeline.transforms.steps import Kind, naming_step

_T = TypeVar("_T")


def silent_windows(shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
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
    step: Any, kind: Kind, silence: npt.NDArray[np.float32], expression: str
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


def the_sample_rate(sample_rate_hz: int | None, kind: Kind, expression: str) -> int:
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
    arrays: Sequence[npt.NDArray[Any]],
    name: str,
    starts: npt.NDArray[np.int64],
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
        results = run(*arrays)
    except (Exception, SystemExit) as error:
        Marks.leave_fork()
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
    # A fork must not go on into the runner, whose locks other threads may hold there.
    Marks.leave_fork()
    return results
