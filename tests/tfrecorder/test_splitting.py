from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline.tfrecorder.factory import shuffled, split_examples_list


def sizes(total, ratio):
    train, evaluation, test = split_examples_list(range(total), ratio)
    assert [*train, *evaluation, *(test or ())] == list(range(total))
    return len(train), len(evaluation), None if test is None else len(test)


@pytest.mark.parametrize(("total", "ratio", "expected"), [
    (10, 0.8, (8, 2, None)),
    (10, [0.8], (8, 2, None)),
    (10, 1, (10, 0, None)),
    (10, 0, (0, 10, None)),
    (0, 0.8, (0, 0, None)),
    (1, 0.8, (0, 1, None)),
    (9, 0.8, (7, 2, None)),
    (10, [0.7, 0.3], (7, 3, None)),
    (10, (0.7, 0.3), (7, 3, None)),
    # The sum of these is 0.9999999999999999.
    (10, [0.7, 0.2, 0.1], (7, 2, 1)),
    (13, [0.5, 0.3, 0.2], (6, 3, 4)),
    (3, [0.8, 0.1, 0.1], (2, 0, 1)),
    (10, [0.5, 0.5, 0.0], (5, 5, None)),
    # int(100 * 0.29) is 28, int(3 * (1 / 3)) is 1.
    (100, 0.29, (29, 71, None)),
    (3, [1 / 3, 1 / 3, 1 / 3], (1, 1, 1)),
    (1000, [1 / 3, 2 / 3], (333, 667, None)),
])  # fmt: skip
def test_sizes(total, ratio, expected):
    assert sizes(total, ratio) == expected


@given(st.integers(0, 10**5), st.integers(0, 1000))
def test_a_decimal_ratio_is_exact(total, thousandths):
    train = int(total * Fraction(thousandths, 1000))
    assert sizes(total, thousandths / 1000) == (train, total - train, None)


def test_shuffling_depends_on_the_seed_and_leaves_the_list():
    given_list = list(range(20))
    assert sorted(shuffled(given_list, 1)) == given_list == list(range(20))
    assert shuffled(given_list, 0) != shuffled(given_list, 1)
    # The same in every version of Python.
    assert shuffled(range(5), 0) == [2, 1, 0, 4, 3]
