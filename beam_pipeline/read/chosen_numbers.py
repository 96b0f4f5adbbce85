"""Which examples of some records a key chooses."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipeline.read.example_places import Integers


def chosen_numbers(keys: Any, numbers: range | Integers, where: str) -> Integers:
    """Returns the elements of ``numbers`` that a list of positions, or a mask, chooses.

    Parameters
    ----------
    keys : array-like
        Integers, of which negative ones count from the end; or a bool for each number.
    numbers : range or numpy.ndarray
        The numbers in the split of the examples to choose from.
    where : str
        What they are, for errors.

    Raises
    ------
    IndexError
        If there is no such example, or a mask has another length.
    """
    chosen: Any = np.asarray(keys)
    length = len(numbers)
    if chosen.dtype == bool:
        if chosen.shape != (length,):
            raise IndexError(
                f"a mask needs a value for each of the {length} examples of {where}, "
                f"but has the shape {chosen.shape}"
            )
        chosen = np.flatnonzero(chosen)
    if chosen.size == 0:
        chosen = chosen.astype(np.int64)
    if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
        hint = " (`records[i]` is one example)" if chosen.ndim == 0 else ""
        raise IndexError(
            "several examples are chosen by a slice, a list of numbers or a mask, not "
            f"by {keys!r}{hint}"
        )
    wrong = (chosen < -length) | (chosen >= length)
    if wrong.any():
        raise no_example(chosen[wrong][0], length, where)
    chosen = chosen.astype(np.int64)
    chosen = np.where(chosen < 0, chosen + length, chosen)
    if isinstance(numbers, range):
        return np.asarray(numbers.start + chosen * numbers.step)
    return np.asarray(numbers[chosen])


def no_example(number: int, length: int, where: str) -> IndexError:
    """Returns the error for an example that does not exist."""
    return IndexError(
        f"there is no example {number}, only {length} examples of {where}"
    )
