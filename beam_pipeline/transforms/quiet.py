"""Passes NaN and infinity through, without numpy's warnings.

Every value that depends on a NaN sample is NaN. The same holds for infinity, except
where it has a meaning. Values too large for their type become infinite. A feature's
statistics report such values and where they occur; numpy's warnings would only name a
line of this package, on each worker.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import numpy as np

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


def quiet(function: Callable[Parameters, Result]) -> Callable[Parameters, Result]:
    """Silences numpy's warnings of overflow and of invalid values in a function.

    Divisions by zero still warn: no transform should need one.

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
