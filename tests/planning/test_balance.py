"""Which groups are moved: shares of splits and classes, and what does not matter."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.inputs.splits import Splitter, group_key
from beam_pipeline.planning import balance as search
from beam_pipeline.planning.balance import (
    EVERYTHING,
    balance,
    choose_moves,
    tally_groups,
)
from beam_pipeline.planning.clips import Clip
from beam_pipeline.recipe.recipe import Recipe, Splits, moved_key

SHARES = "train=8,eval=1,test=1"


def clip(group, label, examples=1, split=""):
    return Clip(0, 0, "x.wav", label, split, 1, 1, 1, "WAV", "PCM_16", 1, 1, examples,
                group=group)  # fmt: skip


def recipe_of(splits=SHARES, **options):
    return Recipe(win_len=1, splits=splits, stratify=True, **options)


def splits_of(clips, splits=SHARES):
    """The split of each group, and the groups that were moved."""
    splitter = Splitter(Splits(splits=splits).hashed_shares())
    tally = tally_groups([clips], recipe_of(splits))
    moved = balance(tally, splitter)
    keys = {c.group: group_key(0, c.group) for c in clips}
    found = {g: moved.get(k, splitter.split_of(k)) for g, k in keys.items()}
    return found, moved


def counts_of(clips, found, label=None):
    counts = Counter()
    for c in clips:
        if label in (None, c.label):
            counts[found[c.group]] += c.examples
    return counts


def distance(clips, found, shares):
    """The mean over classes of the distance of a split from its share, and the most."""
    parts = []
    for label in {c.label for c in clips}:
        counts = counts_of(clips, found, label)
        total = sum(counts.values())
        parts.append([abs(counts[n] / total - s) for n, s in shares.items()])
    return float(np.mean(parts)), float(np.max(parts))


def test_classes_of_equal_files_have_their_shares_exactly():
    clips = [clip(f"{i}.wav", f"c{i % 50}", 5) for i in range(2000)]
    found, moved = splits_of(clips)
    for label in {c.label for c in clips}:
        assert counts_of(clips, found, label) == {"train": 160, "eval": 20, "test": 20}
    assert len(moved) < 200  # most files stay where the hash put them


def test_classes_that_can_be_everywhere_are():
    """A long tail: most classes have few files."""
    rng = np.random.default_rng(0)
    labels = np.minimum(rng.zipf(1.4, 1200), 216)
    clips = [clip(f"{i}.wav", f"c{c}", 1 + i % 4) for i, c in enumerate(labels)]
    found, _ = splits_of(clips)
    files = Counter(c.label for c in clips)
    lacking = [
        label for label, n in files.items()
        if n >= 10 and len(counts_of(clips, found, label)) < 3
    ]  # fmt: skip
    assert lacking == []
    assert sum(n >= 10 for n in files.values()) > 10


def test_unequal_groups_are_as_close_as_the_best_assignment():
    rng = np.random.default_rng(1)
    shares = Splits(splits="a=3,b=1").hashed_shares()
    for _ in range(20):
        clips = [
            clip(f"g{k}", f"c{c}", int(rng.integers(1, 30)))
            for k in range(8) for c in range(2)
        ]  # fmt: skip
        found, _ = splits_of(clips, "a=3,b=1")
        groups = sorted(found)
        best = min(
            distance(clips, dict(zip(groups, way, strict=True)), shares)[0]
            for way in product("ab", repeat=len(groups))
        )
        assert distance(clips, found, shares)[0] <= 1.5 * best + 0.02


CORPORA = st.lists(
    st.tuples(st.integers(0, 40), st.sampled_from("wxyz"), st.integers(1, 30)),
    min_size=1, max_size=120,
)  # fmt: skip


@given(CORPORA, st.sampled_from([SHARES, "a=1,b=1,c=1", "train=3,test=1"]))
@settings(max_examples=50, deadline=None)
def test_splits_are_no_further_from_their_shares_than_those_of_the_hash(rows, splits):
    clips = [clip(f"g{g}", c, n) for g, c, n in rows]
    shares = Splits(splits=splits).hashed_shares()
    splitter = Splitter(shares)
    tally = tally_groups([clips], recipe_of(splits))
    before = search.Search(tally, splitter)
    after = search.Search(tally, splitter)
    after.improve()
    assert after.cost() <= before.cost()
    found, _ = splits_of(clips, splits)
    if len(found) >= len(shares):
        assert set(found.values()) == set(shares)


@given(CORPORA, st.randoms(use_true_random=False), st.integers(1, 50))
@settings(max_examples=40, deadline=None)
def test_the_order_of_clips_and_blocks_does_not_matter(rows, random, size):
    clips = [clip(f"g{g}", c, n) for g, c, n in rows]
    splitter = Splitter(Splits(splits=SHARES).hashed_shares())
    whole = tally_groups([clips], recipe_of())
    random.shuffle(clips)
    blocks = [clips[at : at + size] for at in range(0, len(clips), size)]
    found = tally_groups(blocks, recipe_of())
    assert found == whole
    assert list(found.movable) == sorted(whole.movable)
    assert balance(found, splitter) == balance(whole, splitter)


def test_copies_do_not_count():
    """Only train has copies; a clip may have its split, and the copies, already."""
    recipe = recipe_of(augment="noise()", copies=2)
    plain = [clip("g", "a", 4), clip("h", "b", 3)]
    copied = [clip("g", "a", 12, "train"), clip("h", "b", 3, "test")]
    assert tally_groups([plain], recipe) == tally_groups([copied], recipe)


def test_a_clip_of_several_classes_counts_for_each():
    recipe = recipe_of(label_separator=";")
    counts = tally_groups([[clip("g", "a;b", 4), clip("g", "b", 1)]], recipe)
    assert counts.movable == {group_key(0, "g"): {EVERYTHING: 5, "a": 4, "b": 5}}
    assert {name: sum(some) for name, some in counts.examples.items()} == {
        EVERYTHING: 5,
        "a": 4,
        "b": 5,
    }


def test_many_groups_are_balanced_among_the_movable_ones(monkeypatch):
    """Sums of all groups decide, also of those that cannot be moved."""
    monkeypatch.setattr(search, "MOVABLE", 64)
    clips = [clip(f"{i}.wav", f"c{i % 3}") for i in range(6000)]
    found, moved = splits_of(clips)
    mean, most = distance(clips, found, Splits(splits=SHARES).hashed_shares())
    assert (mean, most) < (0.001, 0.002)
    assert 0 < len(moved) <= 4 * 3 * 64


# Without `stratify`


def splits_by_hash(groups, **options):
    """The split of each group, and which groups were moved."""
    recipe = Recipe(win_len=1, **options)
    splitter = Splitter(recipe.hashed_shares())
    tally = tally_groups([[clip(group, None) for group in groups]], recipe)
    moves = choose_moves(tally, recipe) or {}
    keys = {group: group_key(0, group) for group in groups}
    found = {g: moves.get(moved_key(k), splitter.split_of(k)) for g, k in keys.items()}
    return found, {g for g, k in keys.items() if moved_key(k) in moves}


GROUPS = st.lists(st.integers(0, 10**9).map(str), min_size=4, max_size=15, unique=True)


@given(GROUPS)
def test_one_more_group_moves_one_at_most_where_one_split_would_be_empty(groups):
    splits = "train=.6,eval=.2,test=.2"
    before, moved = splits_by_hash(groups[:-1], splits=splits)
    after, _ = splits_by_hash(groups, splits=splits)
    assert set(before.values()) == set(after.values()) == {"train", "eval", "test"}
    changed = [group for group in before if before[group] != after[group]]
    assert len(changed) <= 2
    from_train = Counter(before.values())["train"] > 1 or not moved
    if len(moved) <= 1 and from_train:
        assert len(changed) <= len(moved)


@given(GROUPS)
def test_a_group_moves_only_into_an_empty_split(groups):
    found, moved = splits_by_hash(groups, splits="train=.8,eval=.1,test=.1")
    splitter = Splitter(Splits(splits="train=.8,eval=.1,test=.1").hashed_shares())
    of_hash = {group: splitter.split_of(group_key(0, group)) for group in groups}
    empty = {"train", "eval", "test"} - {*of_hash.values()}
    assert sorted(found[group] for group in moved) == sorted(empty)
    assert all(found[group] == of_hash[group] for group in {*groups} - moved)


@pytest.mark.parametrize(("groups", "folds"), [(96, 5), (6, 8), (6, 4), (1000, 10)])
def test_folds_are_even(groups, folds):
    found, _ = splits_by_hash([f"clip {k}" for k in range(groups)], folds=folds)
    sizes = Counter(found.values())
    assert len(sizes) == min(groups, folds)
    assert max(sizes.values()) - min(sizes.values()) <= 1
