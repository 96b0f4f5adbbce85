"""Splits a list of examples into train, eval and test, by ratios."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any, TypeVar

from beam_pipeline.errors import OptionError

T = TypeVar("T")

Ratio = float | Sequence[float]

# Far more than the rounding of float sums and products, far less than an example.
_TOLERANCE = 1e-9
_SUM_TOLERANCE = 1e-6
_OPTION = "examples_train_eval_test_ratio"


def shuffled(examples: Sequence[T], seed: int) -> list[T]:
    """Returns the examples in an order that depends on their number and the seed."""
    order = list(examples)
    random.Random(seed).shuffle(order)
    return order


def split_examples_list(
    examples: Sequence[T], examples_train_eval_test_ratio: Ratio
) -> tuple[list[T], list[T], list[T] | None]:
    """Splits examples by ratios, in their order.

    ::

        ratio       train        eval         test
        a, [a]      int(n * a)   the rest     None
        [a, b]      int(n * a)   the rest     None
        [a, b, c]   int(n * a)   int(n * b)   the rest; None if that is empty

    Products that are whole numbers but for rounding count as whole: 0.29 of 100
    examples are 29, although ``int(100 * 0.29)`` is 28.

    >>> split_examples_list(["p", "q", "r", "s"], [0.5, 0.25, 0.25])
    (['p', 'q'], ['r'], ['s'])

    Parameters
    ----------
    examples_train_eval_test_ratio : float, or sequence of up to three
        Each from 0 to 1. Several must have the sum 1, but for rounding.

    Raises
    ------
    OptionError
        If the ratio is of another kind, or its sum is not 1.
    """
    ratios = checked_ratios(examples_train_eval_test_ratio)
    everything = list(examples)
    total = len(everything)
    train = _share(total, ratios[0])
    if len(ratios) < 3:
        return everything[:train], everything[train:], None
    end = min(train + _share(total, ratios[1]), total)
    return everything[:train], everything[train:end], everything[end:] or None


def checked_ratios(ratio: Any) -> list[float]:
    """Returns one to three ratios; see :func:`split_examples_list`."""
    values = [ratio] if not isinstance(ratio, list | tuple) else list(ratio)
    try:
        ratios = [float(value) for value in values]
    except (TypeError, ValueError):
        ratios = []
    if not 1 <= len(ratios) <= 3 or not all(0 <= value <= 1 for value in ratios):
        raise OptionError(
            _OPTION,
            "must be a number from 0 to 1, or up to three: train, eval and test",
            ratio,
        )
    if len(ratios) > 1 and abs(math.fsum(ratios) - 1) > _SUM_TOLERANCE:
        raise OptionError(
            _OPTION, f"must have the sum 1, and has {math.fsum(ratios):g}", ratio
        )
    return ratios


def _share(total: int, ratio: float) -> int:
    share = total * ratio
    nearest = round(share)
    if abs(share - nearest) <= _TOLERANCE * max(1, total):
        return nearest
    return math.floor(share)
