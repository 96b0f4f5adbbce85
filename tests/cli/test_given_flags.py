"""Flags as keywords: misspelt ones, and those that override a recipe's file."""

import json

import pytest

from beam_pipeline.cli.given_flags import given_options
from beam_pipeline.cli.main import parse_flags
from beam_pipeline.errors import RecipeError
from tests.raising import assert_names, raises


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        ("record --inptu sounds --output o", ["--inptu", "--input"]),
        ("record --outptu=o", ["--outptu", "--output"]),
        ("plan --win-lenght 3", ["--win-lenght", "--win-len"]),
        ("show records --plto x.png", ["--plto", "--plot"]),
        ("record --runner=DirectRunner", ["--runner"]),
        ("recrod --input sounds", ["no command recrod", "record"]),
    ],
)
def test_a_misspelt_flag_is_named_before_a_missing_one(words, facts, capsys):
    with pytest.raises(SystemExit) as ended:
        parse_flags(words.split())
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert_names(error, *facts)
    assert error.count("\n") == 1
    assert "required" not in error


def test_values_may_look_like_anything(tmp_path):
    words = ["plan", "--input", "a--b", "--label-from", "(--x)", "--seed", "-3"]
    options = given_options(parse_flags(words))
    assert options == {"label_from": "(--x)", "seed": -3}


@pytest.mark.parametrize(
    ("text", "flags", "options"),
    [
        ("win_seconds: 1\n", "--win-len 100", {"win_len": 100}),
        ("win_len: 100\nhop: 50\n", "--hop-seconds .5",
         {"win_len": 100, "hop_seconds": 0.5}),
        ("win_len: 1\nsplits: a=1\n", "--folds 3", {"win_len": 1, "folds": 3}),
        ("win_len: 1\nnum_shards: 3\n", "--shard-bytes 1MiB",
         {"win_len": 1, "shard_bytes": 1 << 20}),
        ("win_len: 1\nencodings: {a: raw, b: raw}\n", "--encoding a=png",
         {"win_len": 1, "encodings": {"a": "png"}}),
        ("win_len: 1\n", "--encoding a=png --encoding b=a=b --encoding c=",
         {"win_len": 1, "encodings": {"a": "png", "b": "a=b", "c": ""}}),
        ("win_len: 1\nseed: 3\n", "--seed 4", {"win_len": 1, "seed": 4}),
        ("win_len: 1\nseed: 3\n", "", {"win_len": 1, "seed": 3}),
        ("folds: 2\nsplit_moves: fold0=9k3XnQ2b\n", "--folds 2 --stratify",
         {"folds": 2, "split_moves": "fold0=9k3XnQ2b", "stratify": True}),
        ("folds: 2\nsplit_moves: fold0=9k3XnQ2b\n", "--folds 3", {"folds": 3}),
        ("splits: a=1\nsplit_moves: a=9k3XnQ2b\n", "--split-column x",
         {"split_column": "x"}),
        ("folds: 2\nsplit_moves: fold0=9k3XnQ2b\n", "--seed 3",
         {"folds": 2, "seed": 3}),
    ],
)  # fmt: skip
def test_a_flag_takes_the_place_of_its_alternatives(text, flags, options, tmp_path):
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    words = ["plan", "--input", "x", "--recipe", str(path), *flags.split()]
    assert given_options(parse_flags(words)) == options


@pytest.mark.parametrize("option", ["feature", "encoding"])
@pytest.mark.parametrize(
    ("texts", "facts"),
    [
        (["png"], ["NAME", "'png'"]),
        (["=png"], ["NAME", "'=png'"]),
        (["a-b=png"], ["NAME", "'a-b=png'"]),
        (["a=png", "b=raw", "a=raw"], ["twice", "'a'"]),
    ],
)
def test_texts_that_name_no_feature(option, texts, facts):
    words = ["plan", "--input", "x", *(f"--{option}={text}" for text in texts)]
    with raises(RecipeError, f"--{option}", naming=facts):
        given_options(parse_flags(words))


def test_a_recipe_of_a_data_set_gives_way_to_flags(tmp_path):
    from beam_pipeline.recipe.recipe import Recipe

    recipe = {"format_version": 1, "recipe": Recipe(win_seconds=1.0).to_json()}
    path = tmp_path / "metadata.json"
    path.write_text(json.dumps(recipe))
    words = ["plan", "--input", "x", "--recipe", str(path), "--win-len", "7"]
    options = given_options(parse_flags(words))
    assert Recipe(**options).windows.win_len == 7
