"""Flags as keywords, and misspelt ones."""

import pytest

from beam_pipeline.cli.commands import COMMANDS
from beam_pipeline.cli.parser import parse_command
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
        parse_command(COMMANDS, words.split())
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert_names(error, *facts)
    assert error.count("\n") == 1
    assert "required" not in error


def test_values_may_look_like_anything(tmp_path):
    words = ["plan", "--input", "a--b", "--label-from", "(--x)", "--seed", "-3"]
    options = parse_command(COMMANDS, words).options
    assert options == {"label_from": "(--x)", "seed": -3}


def test_texts_by_feature():
    texts = ("a=png", "b=a=b", "c=")
    words = ["plan", "--input", "x", *(f"--encoding={text}" for text in texts)]
    options = parse_command(COMMANDS, words).options
    assert options == {"encodings": {"a": "png", "b": "a=b", "c": ""}}


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
        parse_command(COMMANDS, words)
