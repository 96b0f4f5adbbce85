"""near_sketches against the comparison of all pairs."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.read import similarity
from beam_pipeline.read.similarity import joined, near_sketches


def groups_of(pairs, count):
    """The smallest member of each item's group; joins one pair after the other."""
    group = list(range(count))
    for one, other in pairs:
        old, new = sorted((group[one], group[other]), reverse=True)
        group = [new if value == old else value for value in group]
    return group


def smallest(numbers):
    """Renames groups to their smallest members."""
    first = {}
    return [first.setdefault(number, at) for at, number in enumerate(numbers)]


def distances(sketches):
    bits = np.unpackbits(sketches, axis=1)
    return (bits[:, None] != bits).sum(axis=-1)


def pairs_within(sketches, most):
    return np.argwhere(np.triu(distances(sketches) <= most, 1)).tolist()


@st.composite
def families(draw, size):
    """Distinct sketches; many are copies of others with some bits changed."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    found = list(rng.integers(0, 256, (draw(st.integers(1, 4)), size), np.uint8))
    for _ in range(draw(st.integers(0, 30))):
        bits = np.unpackbits(found[rng.integers(len(found))])
        changed = rng.choice(len(bits), rng.integers(1, len(bits) // 4), replace=False)
        bits[changed] ^= 1
        found.append(np.packbits(bits))
    return np.unique(np.stack(found), axis=0)


@given(families(64), st.integers(0, 70))
def test_near_sketches_are_those_of_all_pairs(sketches, most):
    count = len(sketches)
    found, complete = near_sketches(sketches, most)
    assert complete
    width = max(count.bit_length() + 2, 8)
    sure = min(most, 512 // width - 1)
    surely = smallest(groups_of(pairs_within(sketches, sure), count))
    at_most = smallest(groups_of(pairs_within(sketches, most), count))
    found = smallest(found)
    # Pairs that are always found are a part of the found, which are a part of all.
    assert all(found[i] == found[surely[i]] for i in range(count))
    assert all(at_most[i] == at_most[found[i]] for i in range(count))


@pytest.mark.parametrize("bit", [0, 7, 8, 63, 64, 65, 127, 448, 511])
@pytest.mark.parametrize("count", [2, 300])
def test_any_bit_may_be_the_one_that_differs(bit, count):
    sketches = np.random.default_rng(0).integers(0, 256, (count, 64), np.uint8)
    bits = np.unpackbits(sketches[0])
    bits[bit] ^= 1
    sketches[-1] = np.packbits(bits)
    found, _ = near_sketches(sketches, 1)
    assert smallest(found) == [*range(count - 1), 0]
    found, _ = near_sketches(sketches, 0)
    assert smallest(found) == list(range(count))


@pytest.mark.parametrize("count", [0, 1])
def test_few_sketches(count):
    found, complete = near_sketches(np.zeros((count, 64), np.uint8), 64)
    assert (len(found), complete) == (count, True)


def test_the_limit_is_exact():
    sketches = np.zeros((2, 64), np.uint8)
    for differ in range(60, 70):
        sketches[1] = np.packbits(np.arange(512) < differ)
        found, _ = near_sketches(sketches, 64)
        # These bits fill the first bands, so the others are equal.
        assert (found[0] == found[1]) == (differ <= 64)


def test_too_many_equal_sketches_are_incomplete(monkeypatch):
    monkeypatch.setattr(similarity, "NEIGHBOURS", 4)
    rng = np.random.default_rng(0)
    sketches = rng.integers(0, 256, (40, 64), np.uint8)
    assert near_sketches(sketches, 64)[1]
    sketches[:, :8] = 0  # the same in the first bands, far in all
    found, complete = near_sketches(sketches, 64)
    assert not complete
    assert smallest(found) == list(range(40))


def test_a_large_family_is_one_group():
    bits = np.zeros((2000, 512), np.uint8)
    rows = np.arange(2000)
    bits[rows, rows % 512] = 1
    bits[rows, rows // 512 * 100 + 7] = 1
    sketches = np.unique(np.packbits(bits, axis=1), axis=0)
    found, _ = near_sketches(sketches, 4)
    assert len(set(found.tolist())) == 1


@settings(max_examples=50)
@given(st.integers(1, 12).flatmap(
    lambda n: st.tuples(
        st.just(n), st.lists(st.tuples(*[st.integers(0, n - 1)] * 2), max_size=12)
    )
))  # fmt: skip
def test_joined_are_those_that_pairs_connect(case):
    count, pairs = case
    one, other = (np.array([p[i] for p in pairs], np.int64) for i in (0, 1))
    assert smallest(joined(count, one, other)) == smallest(groups_of(pairs, count))
