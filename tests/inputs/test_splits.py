"""Splits: shares, salts, and that nothing moves."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.errors import RecipeError
from beam_pipeline.inputs.splits import (
    SALTS,
    Splitter,
    add_tallies,
    choose_salt,
    group_key,
    tally_salts,
)
from beam_pipeline.recipe.clip_sections import Splits
from beam_pipeline.recipe.values import parse_shares
from tests.raising import raises

SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")


def tally_of(clips, shares, seed=0):
    """The tally of (group, label, windows)."""
    return tally_salts(
        shares,
        [group_key(seed, group) for group, _, _ in clips],
        [label for _, label, _ in clips],
        [windows for _, _, windows in clips],
    )


def digits(speakers, clips=50):
    return [(s, str(digit), clips) for s in speakers for digit in range(10)]


@pytest.mark.parametrize(
    ("text", "shares"),
    [
        ("train=1", {"train": 1}),
        ("train=.8,eval=.1,test=.1", {"train": 0.8, "eval": 0.1, "test": 0.1}),
        (" train = 8 , test = 2 ", {"train": 0.8, "test": 0.2}),
        ("a=0.7,b=0.2,c=0.1", {"a": 0.7, "b": 0.2, "c": 0.1}),
    ],
)
def test_shares_add_up_to_one(text, shares):
    parsed = parse_shares(text.replace(" = ", "="))
    assert list(parsed) == list(shares)
    assert parsed == pytest.approx(shares)
    assert math.fsum(parsed.values()) == pytest.approx(1, abs=1e-15)


@pytest.mark.parametrize(
    "text",
    ["", "train", "train=", "train=x", "=1", "train=0", "train=-1", "train=nan",
     "train=inf", "a b=1", "train=.5,train=.5", "train=1,"],
)  # fmt: skip
def test_what_is_no_split(text):
    with raises(RecipeError, "splits", text):
        parse_shares(text)


def test_a_group_is_known_by_its_name_and_the_seed():
    assert group_key(0, "theo") == group_key(0, "theo") == 11558853270148254228
    keys = {group_key(seed, name) for seed in (0, 1) for name in (*SPEAKERS, "é", "")}
    assert len(keys) == 16


@pytest.mark.parametrize(
    "shares", [{"a": 0.8, "b": 0.1, "c": 0.1}, Splits(folds=7).hashed_shares()]
)
@pytest.mark.parametrize("salt", [0, 5])
def test_shares_are_kept_over_many_groups(shares, salt):
    splitter = Splitter(shares, salt)
    names = [splitter.split_of(group_key(0, f"clip {i}")) for i in range(20_000)]
    for name, share in shares.items():
        assert names.count(name) / 20_000 == pytest.approx(share, abs=0.01)


@given(st.integers(0, 2**64 - 1), st.integers(0, SALTS - 1))
@settings(deadline=None)
def test_the_tally_agrees_with_the_splitter(key, salt):
    shares = parse_shares("train=6,eval=3,test=1")
    counts = tally_salts(shares, [key], ["x"], [3])["x"]
    assert counts.sum() == 3 * SALTS
    assert list(shares)[int(counts[salt].argmax())] == Splitter(shares, salt).split_of(
        key
    )


def test_tallies_of_parts_add_up():
    shares = parse_shares("train=3,test=1")
    clips = [(f"g{i % 7}", "ab"[i % 2] if i % 3 else None, i) for i in range(50)]
    whole = tally_of(clips, shares)
    parts = add_tallies([tally_of(clips[:20], shares), tally_of(clips[20:], shares)])
    assert set(whole) == set(parts) == {"", "a", "b"}
    for label, counts in whole.items():
        np.testing.assert_array_equal(counts, parts[label])


def test_stratified_speakers_are_four_one_one():
    shares = parse_shares("train=4,eval=1,test=1")
    splitter = Splitter(shares, choose_salt(shares, tally_of(digits(SPEAKERS), shares)))
    splits = [splitter.split_of(group_key(0, name)) for name in SPEAKERS]
    assert sorted(map(splits.count, shares)) == [1, 1, 4]
    assert splits.count("train") == 4


@pytest.mark.parametrize("name", ["anna", "mike", "zed"])
def test_a_new_speaker_moves_none_of_the_others(name):
    shares = parse_shares("train=4,eval=1,test=1")
    before = choose_salt(shares, tally_of(digits(SPEAKERS), shares))
    more = [*digits(SPEAKERS), *digits([name], 10)]
    assert choose_salt(shares, tally_of(more, shares)) == before


def test_a_class_that_can_be_everywhere_is():
    shares = parse_shares("train=8,test=2")
    clips = [(f"common {i}", "common", 10) for i in range(40)]
    clips += [(f"rare {i}", "rare", 1) for i in range(2)]
    splitter = Splitter(shares, choose_salt(shares, tally_of(clips, shares)))
    found = {splitter.split_of(group_key(0, f"rare {i}")) for i in range(2)}
    assert found == {"train", "test"}


def test_what_cannot_be_close_is_the_closest():
    shares = parse_shares("train=1,test=1")
    clips = [("big", "a", 90), ("small", "a", 10)]
    splitter = Splitter(shares, choose_salt(shares, tally_of(clips, shares)))
    assert splitter.split_of(group_key(0, "big")) != splitter.split_of(
        group_key(0, "small")
    )
