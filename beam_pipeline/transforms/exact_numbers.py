"""Floats as whole numbers of the least float64, whose sums have no rounding errors."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

# The exponent of the least float64.
LEAST_EXPONENT = -1074


def exact_units(values: npt.NDArray[np.float64]) -> list[int]:
    """Returns numbers in units of the least float64, ``2**-1074``."""
    ratios = (value.as_integer_ratio() for value in values.tolist())
    return [n << (1 - LEAST_EXPONENT - d.bit_length()) for n, d in ratios]


def sums_of_distances(
    counts: Iterable[int],
    middles: npt.NDArray[np.float64],
    firsts: npt.NDArray[np.float64],
    seconds: npt.NDArray[np.float64],
) -> tuple[list[int], list[int]]:
    """Returns ``sum x`` and ``sum x**2`` of columns, in units of ``2**-1074``.

    ``sum x = n m + sum (x - m)``, ``sum x**2 = sum (x - m)**2 + 2 m sum (x - m) +
    n m**2``, where ``m`` is close to the mean, so that nothing but ``sum (x - m)`` and
    ``sum (x - m)**2`` was rounded.

    Parameters
    ----------
    counts : iterable of int
        ``n`` of each column.
    middles, firsts, seconds : numpy.ndarray, shape (columns,)
        ``m``, ``sum (x - m)`` and ``sum (x - m)**2`` of each column; finite.
    """
    sums, squares = [], []
    parts = map(exact_units, (middles, firsts, seconds))
    for n, m, first, second in zip(counts, *parts, strict=True):
        sums.append(n * m + first)
        squares.append(second + ((2 * m * first + n * m * m) >> -LEAST_EXPONENT))
    return sums, squares


def moments(count: int, total: int, squares: int) -> dict[str, float | None]:
    """Returns the mean and the standard deviation of a column, from its exact sums.

    The sums are in units of ``2**-1074``. The divisions of integers round once.
    """
    if count == 0:
        return {"mean": None, "std": None}
    one = 1 << -LEAST_EXPONENT
    spread = max(squares * count * one - total * total, 0)
    std = math.sqrt(spread / (count * one) ** 2)
    return {"mean": total / (count * one), "std": std}
