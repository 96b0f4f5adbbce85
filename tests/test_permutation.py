"""Permutation: a bijection, uniform, and the same for ever."""

from collections import Counter
from itertools import permutations
from math import factorial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.permutation import Permutation


@pytest.mark.parametrize("n", [*range(301), 16384, 16385, 100_003])
def test_every_number_is_there_once(n):
    permutation = Permutation(n, seed=n, epoch=1)
    found = permutation.at(np.arange(n))
    assert found.dtype == np.int64
    assert np.array_equal(np.sort(found), np.arange(n))
    assert np.array_equal(permutation.position_of(found), np.arange(n))


@settings(max_examples=20)
@given(st.integers(1, 2**62 - 1), st.integers(), st.data())
def test_positions_are_found_again(n, seed, data):
    positions = data.draw(st.lists(st.integers(0, n - 1), max_size=20))
    permutation = Permutation(n, seed, epoch=3)
    found = permutation.at(positions)
    assert all(0 <= number < n for number in found)
    assert permutation.position_of(found).tolist() == positions
    one_by_one = [int(permutation.at([position])[0]) for position in positions]
    assert found.tolist() == one_by_one


def test_known_values():
    """A state of an epoch is only a position, so the order must never change."""
    assert Permutation(10).at(np.arange(10)).tolist() == [8, 9, 5, 0, 1, 7, 4, 2, 3, 6]
    assert Permutation(1 << 40, seed=3, epoch=9).at([0, 1, 2]).tolist() == [
        888929764904, 64966098400, 876949261993
    ]  # fmt: skip


@pytest.mark.parametrize("n", [3, 4, 5])
@pytest.mark.parametrize("which", ["seed", "epoch"])
def test_all_orders_are_equally_frequent(n, which):
    draws = 1000
    counts = Counter(
        tuple(Permutation(n, **{which: k}).at(np.arange(n)).tolist())
        for k in range(draws)
    )
    expected = draws / factorial(n)
    orders = list(permutations(range(n)))
    chi = sum((counts[order] - expected) ** 2 / expected for order in orders)
    freedom = len(orders) - 1
    # Wilson and Hilferty's bound of one in 10,000.
    cube = 1 - 2 / (9 * freedom) + 3.72 * (2 / (9 * freedom)) ** 0.5
    assert chi < freedom * cube**3


@pytest.mark.parametrize("seed", range(3))
def test_a_long_order_does_not_follow_that_on_disk(seed):
    n = 100_000
    order = Permutation(n, seed).at(np.arange(n))
    sigma = n**-0.5
    assert abs(np.corrcoef(order, np.arange(n))[0, 1]) < 4 * sigma
    assert abs(np.corrcoef(order[1:], order[:-1])[0, 1]) < 4 * sigma
    # The mean of |i - j| is n / 3, its deviation sqrt(2 / 45 / n) * n for large n.
    displacement = np.abs(order - np.arange(n)).mean() / n
    assert abs(displacement - 1 / 3) < 4 * (2 / 45 / n) ** 0.5
    # Fixed points and neighbours have Poisson's distribution with mean 1.
    assert np.count_nonzero(order == np.arange(n)) < 8
    assert np.count_nonzero(np.diff(order) == 1) < 8
    # Each tenth of the order holds a tenth of each tenth of the disk.
    table = np.histogram2d(order, np.arange(n), 10)[0]
    assert ((table - n / 100) ** 2 / (n / 100)).sum() < 140


@pytest.mark.parametrize("position", [-1, 5])
def test_no_such_position(position):
    with pytest.raises(IndexError, match=r"0 \.\. 4"):
        Permutation(5).at([position])
