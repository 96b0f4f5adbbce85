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
from beam_pipeline.recipe.fields import options_of
from beam_pipeline.recipe.keywords import (
    CarriedKeywords,
    Encoding,
    RecipeKeywords,
    RecordKeywords,
    RunKeywords,
)
from beam_pipeline.recipe.options import RunOptions
from beam_pipeline.recipe.recipe import Recipe, recipe_options
from beam_pipeline.recipe.sections import ENCODINGS
from tests.raising import raises
from tests.sounds import write_sound

CALLS = Path(__file__).with_name("typed_calls.py")


def test_the_keywords_are_the_options():
    given = [name for name, option in recipe_options().items() if not option.is_carried]
    assert set(RecipeKeywords.__annotations__) == {*given, "feature", "encoding"}
    assert set(CarriedKeywords.__annotations__) == {
        *RecipeKeywords.__annotations__, "split_moves"
    }  # fmt: skip
    assert list(RunKeywords.__annotations__) == [f.name for f in fields(RunOptions)]
    assert set(RecordKeywords.__annotations__) == {
        *RecipeKeywords.__annotations__, *RunKeywords.__annotations__
    }  # fmt: skip


@pytest.mark.parametrize("function", [record, plan, write_template])
def test_help_lists_every_keyword_with_its_default(function):
    found = inspect.signature(function).parameters
    for name in {*RecordKeywords.__annotations__} - {"feature", "encoding"}:
        option = recipe_options().get(name)
        default = RunOptions.__dataclass_fields__[name] if option is None else option
        assert found[name].default == default.default
    assert inspect.Parameter.VAR_KEYWORD not in {p.kind for p in found.values()}


def test_every_option_is_explained_and_its_choices_are_typed():
    for option in (*recipe_options().values(), *options_of(RunOptions)):
        assert option.help.endswith((".", "...")), option
        kind = RecordKeywords.__annotations__.get(option.name, "")
        text = getattr(kind, "__forward_arg__", str(kind))
        assert all(choice in text for choice in option.choices), option
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
    with pytest.raises(UnknownOption):  # only the recipe of a data set has it
        split_options(None, {"win_len": 1, "folds": 2, "split_moves": {}})


OLD = {"folds": 2, "split_moves": "fold0=9k3XnQ2b"}
ALTERNATIVES = [
    ({"win_seconds": 1}, {"win_len": 100}, {"win_len": 100}),
    ({"win_len": 100, "hop": 50}, {"hop_seconds": 0.5},
     {"win_len": 100, "hop_seconds": 0.5}),
    ({"win_len": 1, "splits": "a=1"}, {"folds": 3}, {"win_len": 1, "folds": 3}),
    ({"win_len": 1, "num_shards": 3}, {"shard_bytes": 5},
     {"win_len": 1, "shard_bytes": 5}),
    ({"win_len": 1, "seed": 3}, {"seed": 4}, {"win_len": 1, "seed": 4}),
    ({"win_len": 1, "seed": 3}, {}, {"win_len": 1, "seed": 3}),
    ({"win_len": 1, "classes": "a"}, {"label_from": "none"},
     {"win_len": 1, "label_from": "none"}),
    # Moved groups are those of one hash.
    ({"win_len": 1, **OLD}, {"folds": 2, "stratify": True},
     {"win_len": 1, **OLD, "stratify": True}),
    ({"win_len": 1, **OLD}, {"folds": 3}, {"win_len": 1, "folds": 3}),
    ({"win_len": 1, **OLD}, {"seed": 3}, {"win_len": 1, "folds": 2, "seed": 3}),
    ({"win_len": 1, **OLD}, {"group_by": ["x"]},
     {"win_len": 1, "folds": 2, "group_by": "x"}),
    ({"win_len": 1, **OLD}, {"split_column": "x"}, {"win_len": 1, "split_column": "x"}),
]  # fmt: skip


@pytest.mark.parametrize(("before", "given", "made"), ALTERNATIVES)
def test_an_option_takes_the_place_of_its_alternatives(before, given, made):
    for recipe in (before, Recipe(**before)):  # as in a file, and of a data set
        assert split_options(recipe, given)[0] == Recipe(**made)


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
    assert type(recipe.win_len) is int
    with raises(RecipeError, "win_len"):
        Recipe(win_len=np.bool_(True))
