"""Keywords of ``record``: what type checkers, ``help()`` and the command line know."""

import inspect
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import get_args

import numpy as np
import pytest

from beam_pipeline.api import plan, record, write_template
from beam_pipeline.errors import InputError, OptionError, RecipeError, UnknownOption
from beam_pipeline.recipe.canonical import split_options
from beam_pipeline.recipe.keywords import (
    Encoding,
    RecipeKeywords,
    RecordKeywords,
    RunKeywords,
)
from beam_pipeline.recipe.options import RunOptions
from beam_pipeline.recipe.recipe import SECTIONS, Recipe, recipe_options
from beam_pipeline.recipe.values import ENCODINGS
from tests.raising import raises
from tests.sounds import write_sound

CALLS = Path(__file__).with_name("typed_calls.py")


def test_the_keywords_are_the_options():
    assert list(RecipeKeywords.__annotations__) == list(recipe_options())
    assert list(RunKeywords.__annotations__) == [f.name for f in fields(RunOptions)]
    assert set(RecordKeywords.__annotations__) == {
        *RecipeKeywords.__annotations__,
        *RunKeywords.__annotations__,
    }


@pytest.mark.parametrize("function", [record, plan, write_template])
def test_help_lists_every_keyword_with_its_default(function):
    found = inspect.signature(function).parameters
    for name, (_, option) in recipe_options().items():
        assert found[name].default == option.default
    for field in fields(RunOptions):
        assert found[field.name].default == field.default
    assert inspect.Parameter.VAR_KEYWORD not in {p.kind for p in found.values()}


def test_every_choice_is_in_the_types():
    for name, (_, option) in recipe_options().items():
        if option.choices:
            kind = RecipeKeywords.__annotations__[name]
            text = getattr(kind, "__forward_arg__", str(kind))
            assert all(choice in text for choice in option.choices), name


def test_the_types_have_every_encoding():
    assert get_args(Encoding) == ENCODINGS


def test_a_type_checker_takes_every_keyword_and_no_other():
    # At one path in every run: mypy remembers what it said of a module by its name.
    root = Path(__file__).parents[2]
    wrong = Path(".pytest_cache", "wrong.py")
    (root / wrong).parent.mkdir(exist_ok=True)
    (root / wrong).write_text(
        "from beam_pipeline import record\n"
        'record("in", "out", win_lenght=1)\n'
        'record("in", "out", win_len="1")\n'
        'record("in", "out", win_len=1, tail="cut")\n'
        'record("in", "out", win_len=1, features=["log_mel()"])\n'
        'record("in", "out", win_len=1, encodings={"signal": "gif"})\n'
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", CALLS, wrong],
        capture_output=True, text=True, cwd=root,
    )  # fmt: skip
    lines = [line for line in done.stdout.splitlines() if ": error:" in line]
    assert [line.split(":")[:2] for line in lines] == [
        [str(wrong), str(number)] for number in (2, 3, 4, 5, 6)
    ], done.stdout
    assert "win_lenght" in lines[0]
    used = CALLS.read_text()
    assert [
        name for name in RecordKeywords.__annotations__ if f"{name}=" not in used
    ] == []


def test_a_misspelt_keyword_is_corrected():
    with pytest.raises(UnknownOption) as raised:
        record("in", "out", win_lenght=1)
    assert str(raised.value) == "no option win_lenght; did you mean win_len?"
    with pytest.raises(UnknownOption) as raised:
        split_options(None, {"overwirte": True})
    assert str(raised.value) == "no option overwirte; did you mean overwrite?"


def test_a_recipe_has_its_sections():
    recipe = Recipe(win_len=1, classes=["a, b", "c"], splits={"x": 3, "y": 1})
    for name, section in SECTIONS.items():
        assert isinstance(getattr(recipe, name), section)
    assert recipe.labels.classes == ("a, b", "c")
    assert recipe.splits.shares == {"x": 0.75, "y": 0.25}
    assert recipe.to_json()["classes"] == '"a, b",c'
    assert get_args(RecipeKeywords.__annotations__["seed"]) == ()
    assert repr(recipe) == ("Recipe(classes='\"a, b\",c', splits='x=3,y=1', win_len=1)")


def test_shares_are_checked_when_the_recipe_is_made():
    from tests.raising import raises

    with raises(ValueError, "splits", "rubbish"):
        Recipe(win_len=1, splits="rubbish")


def test_arguments_that_are_no_options_are_checked(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for wrong in (3, {"win_len": 1}):
        with raises(OptionError, "recipe", wrong):
            plan(str(tmp_path / "in"), recipe=wrong)
    for wrong in (3, None):
        with raises(InputError, naming=str(wrong)):
            plan(wrong, win_len=1)
    write_sound(tmp_path / "in" / "a" / "x.wav", 500)
    for wrong in (3, None, ""):
        with raises(InputError, naming=["--output", repr(wrong)]):
            record(str(tmp_path / "in"), wrong, win_len=1)


def test_whole_numbers_may_be_those_of_numpy() -> None:
    recipe = Recipe(win_len=np.int64(500), channels=np.int32(1), seed=np.uint8(3))
    assert recipe == Recipe(win_len=500, channels=1, seed=3)
    assert type(recipe.windows.win_len) is int
    with raises(RecipeError, "win_len"):
        Recipe(win_len=np.bool_(True))
