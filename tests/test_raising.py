"""raising.py: the helper finds whole facts, and misses what is not there."""

import pytest

from beam_pipeline.errors import RecipeError
from tests.raising import names, raises


@pytest.mark.parametrize(
    ("fact", "found"),
    [
        (100, True), (10, False), ("00", False), ("a/1.wav", True), ("1.wav", True),
        (".wav", True), ("wav", True), ("av", False), ("--win-len", True),
        ("--win", False), ("--hop-len", True), ("hop_len", True), ("'x y'", True),
        (0.5, True), (5, False), ("", True),
    ],
)  # fmt: skip
def test_facts_are_found_whole(fact, found):
    text = "a/1.wav: has 100 frames, 0.5 s of 'x y'; give --win-len or hop_len"
    assert names(text, fact) == found


@pytest.mark.parametrize(
    "wrong",
    [{"field": "hops"}, {"value": 1}, {"value": 0.0}, {"value": False},
     {"naming": 7}, {"naming": ["hop", 7]}],
)  # fmt: skip
def test_what_is_not_so_fails(wrong):
    with raises(RecipeError, "hop", 0, naming=["hop", 3]):
        raise RecipeError("hop", "must be under 3", 0)
    with pytest.raises(AssertionError), raises(RecipeError, **wrong):
        raise RecipeError("hop", "must be under 3", 0)
