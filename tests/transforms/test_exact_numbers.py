"""exact_numbers.py, against Python's fractions."""

from fractions import Fraction

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.transforms.exact_numbers import (
    LEAST_EXPONENT,
    exact_units,
    moments,
    sums_of_distances,
)

UNIT = Fraction(1, 1 << -LEAST_EXPONENT)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(FLOATS, max_size=5))
def test_units_are_exact(values):
    found = exact_units(np.array(values, np.float64))
    assert [n * UNIT for n in found] == [Fraction(x) for x in values]


@given(st.lists(st.tuples(st.integers(0, 99), FLOATS, FLOATS, FLOATS), max_size=4))
@settings(deadline=None)
def test_sums_of_distances(columns):
    counts = [column[0] for column in columns]
    numbers = np.array([column[1:] for column in columns]).reshape(-1, 3).T
    sums, squares = sums_of_distances(counts, *numbers)
    for (n, *floats), total, square in zip(columns, sums, squares, strict=True):
        m, first, second = map(Fraction, floats)
        assert total * UNIT == n * m + first
        error = second + 2 * m * first + n * m * m - square * UNIT
        assert 0 <= error < UNIT  # rounded down


def test_moments():
    values = np.array([1e-300, 3.5, -(2.0**60), 7.0])
    totals = sum(exact_units(values))
    squares = sum(int(Fraction(x) ** 2 / UNIT) for x in values.tolist())
    found = moments(4, totals, squares)
    assert found["mean"] == float(sum(map(Fraction, values.tolist())) / 4)
    np.testing.assert_allclose(found["std"], values.std(), rtol=1e-15)
    assert moments(0, 0, 0) == {"mean": None, "std": None}
