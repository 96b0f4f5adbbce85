"""What is not a finite number: it goes through, and nobody is warned.

A sample that is NaN makes NaN of all values that depend on it, and so does infinity
but for the few where it has a meaning; values that grow beyond their type are
infinite. People see in the statistics of a feature that it has such values, and
where. numpy's warnings would name a line of this package instead, on each worker.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numpy as np

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def quiet(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """The function without numpy's warnings of overflow and of invalid values.

    Divisions by zero still warn: nothing here should need one.

    Examples
    --------
    >>> quiet(np.square)(np.float32(1e30))
    np.float32(inf)
    """

    @functools.wraps(function)
    def silent(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        with np.errstate(over="ignore", invalid="ignore"):
            return function(*args, **kwargs)

    return silent
