"""Splits: shares, hashes, and groups that are moved."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline.errors import RecipeError
from beam_pipeline.inputs.splits import Splitter, group_key
from beam_pipeline.recipe.recipe import MovedGroups, Splits, moved_key
from tests.raising import raises

SPEAKERS = ("george", "jackson", "lucas", "nicolas", "theo", "yweweler")
KEYS = st.integers(0, 2**64 - 1)


@pytest.mark.parametrize(("text", "shares"), [
    ("train=1", {"train": 1}),
    ("train=.8,eval=.1,test=.1", {"train": 0.8, "eval": 0.1, "test": 0.1}),
    (" train = 8 , test = 2 ", {"train": 0.8, "test": 0.2}),
    ("a=0.7,b=0.2,c=0.1", {"a": 0.7, "b": 0.2, "c": 0.1}),
])  # fmt: skip
def test_shares_add_up_to_one(text, shares):
    parsed = Splits(splits=text.replace(" = ", "=")).hashed_shares()
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
        Splits(splits=text).hashed_shares()


def test_a_group_is_known_by_its_name_and_the_seed():
    assert group_key(0, "theo") == group_key(0, "theo") == 11558853270148254228
    keys = {group_key(seed, name) for seed in (0, 1) for name in (*SPEAKERS, "é", "")}
    assert len(keys) == 16


@pytest.mark.parametrize(
    "shares", [{"a": 0.8, "b": 0.1, "c": 0.1}, Splits(folds=7).hashed_shares()]
)
def test_shares_are_kept_over_many_groups(shares):
    splitter = Splitter(shares)
    names = [splitter.split_of(group_key(0, f"clip {i}")) for i in range(20_000)]
    for name, share in shares.items():
        assert names.count(name) / 20_000 == pytest.approx(share, abs=0.01)


def test_the_split_of_a_hash_never_changes():
    """Data sets exist whose splits were decided so."""
    splitter = Splitter(Splits(splits="train=6,eval=2,test=2").hashed_shares())
    found = [splitter.split_of(group_key(0, name)) for name in SPEAKERS]
    assert found == ["train", "train", "train", "train", "eval", "train"]


@given(st.lists(KEYS, min_size=1, max_size=9))
def test_arrays_of_groups_have_the_same_splits(keys):
    splitter = Splitter(Splits(splits="train=6,eval=3,test=1").hashed_shares())
    numbers = splitter.numbers_of(np.array(keys, np.uint64))
    assert [splitter.names[k] for k in numbers] == [splitter.split_of(k) for k in keys]


@given(st.dictionaries(st.integers(0, 2**48 - 1), st.sampled_from(["a", "b_1", "c"])))
def test_moves_come_back_from_text(moves):
    text = MovedGroups().json(moves)
    assert MovedGroups().value("split_moves", text) == moves


@given(KEYS, st.sampled_from("abc"))
def test_only_a_moved_group_is_in_another_split(key, split):
    shares = Splits(splits="a=1,b=1,c=1").hashed_shares()
    splitter = Splitter(shares, moves={moved_key(key): split})
    assert splitter.split_of(key) == split
    other = key ^ (1 << 63)
    assert splitter.split_of(other) == Splitter(shares).split_of(other)


@pytest.mark.parametrize(
    "text",
    ["a", "a=", "=9k3XnQ2b", "a=9k3XnQ2", "a=9k3XnQ2b9", "a=9k3XnQ2b,", "a=9k3X+Q2b",
     "a=9k3XnQ2b,b=9k3XnQ2b", "x=9k3XnQ2b"],
)  # fmt: skip
def test_what_is_no_move(text):
    with raises(RecipeError, "split_moves"):
        Splits(splits={"a": 1.0}, split_moves=text)


def test_moves_need_splits():
    with raises(RecipeError, "split_moves"):
        Splits(split_moves={1: "a"})
    assert Splits(split_column="part").splits_are_decided()
    assert not Splits(folds=2, stratify=True).splits_are_decided()
    assert Splits(folds=2, stratify=True, split_moves={}).splits_are_decided()
