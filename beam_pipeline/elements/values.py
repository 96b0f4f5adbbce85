"""Values of examples as arrays that can be stored: their types, and exact casts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.arrays import numpy_dtype
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.text import shown

Array = npt.NDArray[Any]

# The dtypes that numpy arrays and decode_raw, or a bitcast, carry without a change.
STORED_DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "bfloat16", "complex64", "complex128", "string",
)  # fmt: skip

# What Python's numbers become, if no dtype is given.
_PYTHON_DTYPES = {"b": "bool", "i": "int64", "f": "float32", "c": "complex64"}


class PythonValues(np.ndarray):
    """Numbers of Python, or a list of them: they have no dtype of their own."""


class NoValues(PythonValues):
    """An empty list, which fits every dtype."""


def as_array(name: str, value: Any) -> Array:
    """Returns a value of a feature as an array that can be stored; texts as bytes.

    Raises
    ------
    InputError
        If it cannot be stored.
    """
    if isinstance(value, str | bytes | bytearray):
        return _texts([value], ())
    if isinstance(value, np.ndarray | np.generic) or hasattr(value, "__array__"):
        return _checked(name, value, np.asarray(value))
    try:
        array = np.asarray(value)
    except ValueError:  # lists of different lengths, or bytes that are no text
        return _texts_of_lists(name, value)
    if array.dtype.kind in "SU":  # numpy makes texts of numbers beside texts
        return _texts_of_lists(name, value)
    if array.dtype.kind == "f" and array.size and np.abs(array).max() >= 2.0**63:
        array = _large(name, value, array)
    if array.dtype.kind in _PYTHON_DTYPES:
        return array.view(PythonValues if array.size else NoValues)
    return _checked(name, value, array)


def _checked(name: str, value: Any, array: Array) -> Array:
    kind = array.dtype.kind
    if kind in "SUO":
        items = array.ravel().tolist()
        if all(isinstance(item, str | bytes | bytearray) for item in items):
            return _texts(items, array.shape)
    is_stored = kind in "biufc" and array.dtype.char not in "gG"
    if not is_stored and array.dtype.name != "bfloat16":
        raise _unstorable(name, value)
    return array


def _texts_of_lists(name: str, value: Any) -> Array:
    """Returns a list of texts, or of lists of texts."""
    # numpy's own types of text lose zeros at the end.
    objects = np.array(value, object)
    items = objects.ravel().tolist()
    if not all(isinstance(item, str | bytes | bytearray) for item in items):
        raise InputError(
            f"Feature {name}: {shown(value)} has values of several types, or lists of "
            "different lengths. Convert the values to one type; for such lists, record "
            "a tf.data.Dataset of ragged tensors."
        )
    return _texts(items, objects.shape)


def _texts(items: Sequence[Any], shape: tuple[int, ...]) -> Array:
    made = np.empty(len(items), object)
    made[:] = [i.encode() if isinstance(i, str) else bytes(i) for i in items]
    return made.reshape(shape)


def _large(name: str, value: Any, array: Array) -> Array:
    """Returns whole numbers as uint64, if int64 cannot hold them, but uint64 can.

    numpy makes floats of them, which have other values.
    """
    items = np.array(value, object).ravel().tolist()
    if not all(isinstance(item, int) for item in items):
        return array
    if all(0 <= item < 2**64 for item in items):
        return np.array(items, np.uint64).reshape(array.shape)
    raise _unstorable(name, value)


def _unstorable(name: str, value: Any) -> InputError:
    return InputError(
        f"Feature {name}: {shown(value)} cannot be stored. Give numbers of at most "
        "64 bits, texts, bytes, lists or numpy arrays of them."
    )


def dtype_of(array: Array) -> str:
    """Returns the name of the dtype that the values of an array are stored with."""
    if array.dtype.kind == "O":
        return "string"
    if isinstance(array, PythonValues):
        return _PYTHON_DTYPES[array.dtype.kind]
    return str(array.dtype.name)


def common_dtype(name: str, arrays: Sequence[Array]) -> str:
    """Returns the dtype of a feature with these values; numpy's own types come first.

    Raises
    ------
    InputError
        If the values have several dtypes.
    """
    arrays = [array for array in arrays if not isinstance(array, NoValues)]
    found = {dtype_of(array) for array in arrays}
    if "string" not in found:
        own = {dtype_of(a) for a in arrays if not isinstance(a, PythonValues)}
        found = own or found
        if not own and len(found) > 1:
            widest = ("complex64", "float32", "int64")
            return next(dtype for dtype in widest if dtype in found)
    if len(found) > 1:
        raise InputError(
            f"Feature {name} has several types: {', '.join(sorted(found))}. Convert "
            "the values to one of them, or give `dtypes`."
        )
    return found.pop() if found else "float32"


def checked_dtype(option: str, dtype: Any) -> str:
    """Returns the name of a dtype that the user gives for a feature.

    Raises
    ------
    OptionError
        If features cannot have it.
    """
    made = None
    # numpy takes None for float64.
    with suppress(TypeError, AttributeError):
        made = dtype if dtype in ("string", None) else numpy_dtype(dtype).name
    if made not in STORED_DTYPES:
        known = ", ".join(STORED_DTYPES)
        raise OptionError(option, f"must be one of {known}", dtype)
    return str(made)


def cast(name: str, array: Array, dtype: str) -> Array:
    """Returns the values with a dtype, if it holds every one of them.

    Numbers of Python may be rounded to fewer digits; others may not.

    Raises
    ------
    InputError
        If it does not hold them.
    """
    wanted = numpy_dtype(dtype)
    if array.dtype == wanted:
        return array
    if isinstance(array, NoValues):
        return np.zeros(array.shape, wanted)
    found = "string" if array.dtype.kind == "O" else str(array.dtype.name)
    if "string" not in (dtype, found):
        drops = array.dtype.kind == "c" and wanted.kind != "c"
        with np.errstate(all="ignore"):
            made = np.asarray(array.real if drops else array).astype(wanted)
            if holds(made, array):
                return made
    raise InputError(
        f"Feature {name} is {dtype}, which does not hold the value "
        f"{shown(array.tolist())} ({found}). Convert the value, or give the "
        "feature another dtype."
    )


def holds(made: Array, array: Array) -> bool:
    """Whether a converted array has the same values; NaN is the same as NaN."""
    kinds = {made.dtype.kind, array.dtype.kind}
    if kinds <= _WHOLE:
        return bool(np.all(made == np.asarray(array)))
    if kinds & _WHOLE:
        # Python compares whole numbers with others exactly.
        return bool(made.tolist() == array.tolist())
    if made.dtype.kind != "c" and np.any(array.imag):
        return False
    # complex128 holds every value of each type of fractions.
    wide, source = (
        np.asarray(values).ravel().astype(np.complex128).view(np.float64)
        for values in (made, array)
    )
    same = (wide == source) | (np.isnan(wide) & np.isnan(source))
    if isinstance(array, PythonValues):  # it may be rounded
        # From 2**24 on, float32 has no fractions, and soon not even whole numbers:
        # times and identifiers would become others.
        exact = np.abs(source) < 2.0 ** (_DIGITS.get(made.dtype.name, 52) + 1)
        same |= np.isfinite(wide) & np.isfinite(source) & exact
    return bool(np.all(same))


# The kinds of dtypes of whole numbers.
_WHOLE = {"b", "i", "u"}
# The bits of the mantissa.
_DIGITS = {"float16": 10, "bfloat16": 7, "float32": 23, "complex64": 23}
