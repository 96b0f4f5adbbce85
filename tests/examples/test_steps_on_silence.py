"""Steps that raise, on silence and on the windows of a clip."""

import sys
from dataclasses import dataclass

import numpy as np
import pytest

from beam_pipeline.errors import RecipeError, TransformError
from beam_pipeline.examples.window_steps import (
    required_sample_rate,
    run_on_windows,
    silent_windows,
    trying,
)
from beam_pipeline.transforms.selection import Energy
from beam_pipeline.transforms.steps import AUGMENTATION, SELECTION, TRANSFORM
from tests.raising import raises


@dataclass(frozen=True)
class Mine:
    pass


@pytest.mark.parametrize(("error", "cause"), [
    (KeyError("whiskers"), "KeyError: 'whiskers'"), (SystemExit(3), "SystemExit: 3"),
    (StopIteration("no more"), "StopIteration: no more")])  # fmt: skip
@pytest.mark.parametrize(("step", "name"), [(Mine(), "Mine"), (Energy(), "Energy")])
def test_a_step_that_raises_on_silence(error, cause, step, name):
    facts = [name, "(2, 5)", cause]
    with (
        raises(RecipeError, "augment", "a.b.c", naming=facts) as caught,
        trying(step, AUGMENTATION, silent_windows((5,)), "a.b.c"),
    ):
        raise error
    assert caught.value.__cause__ is error


def test_a_recipe_error_of_a_step_keeps_its_problem_and_value():
    with (
        raises(RecipeError, "keep: energy: above_db", 7, naming="is odd"),
        trying(Energy(), SELECTION, silent_windows((5,)), "energy()"),
    ):
        raise RecipeError("above_db", "is odd", 7)


def test_an_interrupt_is_no_fault_of_the_step():
    with (
        pytest.raises(KeyboardInterrupt),
        trying(Mine(), SELECTION, silent_windows((5,)), ""),
    ):
        raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        run_on_windows(interrupt, (np.zeros((2, 5)),), "x", np.arange(2), "a.wav")


def interrupt(windows):
    raise KeyboardInterrupt


def test_steps_that_need_one_sample_rate():
    assert required_sample_rate(8000, TRANSFORM, "log_mel()") == 8000
    with raises(RecipeError, "feature", "log_mel()", naming="--sample-rate"):
        required_sample_rate(None, TRANSFORM, "log_mel()")


WINDOWS = np.arange(12, dtype=np.float32).reshape(4, 3)
STARTS = np.array([100, 110, 120, 130])
KEYS = np.arange(4)


def exits_on_large_keys(windows, keys):
    if keys.max() >= 2:
        sys.exit(f"{len(windows)} windows")


def fails_together(windows, keys):
    if len(windows) > 1:
        raise ValueError(f"{len(keys)} windows")


@pytest.mark.parametrize(("run", "facts"), [
    # The cause is that of the first call, with all windows.
    (exits_on_large_keys, ["window at frame 120", "SystemExit: 4 windows"]),
    (fails_together, ["100", "130", "together", "ValueError: 4 windows"]),
])  # fmt: skip
def test_a_step_that_fails_on_sound(run, facts):
    with raises(TransformError, path="a.wav", naming=["feature x", *facts]):
        run_on_windows(run, (WINDOWS, KEYS), "feature x", STARTS, "a.wav")
