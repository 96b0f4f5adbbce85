"""The types of arrays: names for numpy's, by what they hold, and their dtypes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float32]
DoubleArray = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]
Keys = npt.NDArray[np.uint64]

# Dtypes of features whose values are no numbers. A value of the first is a text, or
# bytes where it is no UTF-8.
STRING, BYTES = TEXTS = ("string", "bytes")


def numpy_dtype(name: str) -> np.dtype[Any]:
    """Returns the dtype with this name; an object dtype for ``TEXTS``.

    Raises
    ------
    TypeError
        If numpy has no such dtype.
    """
    if name in TEXTS:
        return np.dtype(object)
    try:
        return np.dtype(name)
    except TypeError:
        import ml_dtypes  # bfloat16 and its kin, which TensorFlow and JAX use

        return np.dtype(getattr(ml_dtypes, name, name))


def object_array(values: Sequence[Any]) -> Array:
    """Returns values as an array of one axis, whatever they are."""
    found = np.empty(len(values), object)
    found[:] = values
    return found
