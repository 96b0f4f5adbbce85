"""The types of stored attributes, and which values they accept."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import OptionError
from beam_pipeline.examples.spec import (
    BYTES_LIST,
    FLOAT_LIST,
    INT64_LIST,
    RAW,
    FeatureSpec,
    Shape,
)

STRING, BYTES = "string", "bytes"

# For each kind of dtype, the kinds of values that it may accept.
_ACCEPTED = {"b": "biu", "i": "biu", "u": "biu", "f": "biuf", "c": "biufc"}


class UnstorableValue(TypeError):
    """A value that a field does not accept; ``str()`` says why."""


@dataclass(frozen=True, slots=True)
class Field:
    """The type of a stored attribute.

    Attributes
    ----------
    dtype : str
        The name of a numpy dtype of numbers, ``string`` or ``bytes``.
    shape : tuple of int or None, or None
        ``()``: a scalar. Otherwise an array; a size that differs between examples is
        None, and the shape is None if the number of axes differs.
    optional : bool
        Whether the value may be None. Then it is not stored.
    """

    dtype: str
    shape: Shape | None = ()
    optional: bool = False

    TYPE_BOOL: ClassVar[Field]
    TYPE_INT32: ClassVar[Field]
    TYPE_INT64: ClassVar[Field]
    TYPE_FLOAT: ClassVar[Field]
    TYPE_DOUBLE: ClassVar[Field]
    TYPE_STRING: ClassVar[Field]
    TYPE_BYTES: ClassVar[Field]
    TYPE_ARRAY_INT32: ClassVar[Field]
    TYPE_ARRAY_INT64: ClassVar[Field]
    TYPE_ARRAY_FLOAT32: ClassVar[Field]
    TYPE_ARRAY_FLOAT64: ClassVar[Field]

    @classmethod
    def scalar(cls, dtype: Any, *, optional: bool = False) -> Field:
        """Returns the type of a number or a text.

        Parameters
        ----------
        dtype : str, type or numpy.dtype
            ``"string"``, ``"bytes"``, or a dtype of numbers: ``"uint8"``, ``np.uint8``.

        Raises
        ------
        OptionError
            If there is no such type.
        """
        if dtype in (STRING, str):
            return cls(STRING, optional=optional)
        if dtype in (BYTES, bytes):
            return cls(BYTES, optional=optional)
        return cls(_number_dtype(dtype), optional=optional)

    @classmethod
    def array(
        cls, dtype: Any, shape: Shape | None = None, *, optional: bool = False
    ) -> Field:
        """Returns the type of an array of numbers.

        Parameters
        ----------
        dtype : str, type or numpy.dtype
            A dtype of numbers.
        shape : tuple of int or None, optional
            If given, arrays of any other shape are refused, and readers know the shape.
            A size that differs between examples is None.

        Raises
        ------
        OptionError
            If there is no such type, or the shape has no axis or a negative size.
        """
        if shape is not None and (
            not isinstance(shape, tuple | list)
            or not shape
            or not all(n is None or (isinstance(n, int) and n >= 0) for n in shape)
        ):
            raise OptionError("shape", "must be a tuple such as (None, 40)", shape)
        shape = None if shape is None else tuple(shape)
        return cls(_number_dtype(dtype), shape, optional)

    def specs(self, name: str) -> tuple[FeatureSpec, ...]:
        """Returns the features that store an attribute with this name.

        The second one, of arrays whose shape differs, is ``<name>/shape``.
        """
        optional = self.optional
        if self.dtype in (STRING, BYTES):
            return (FeatureSpec(name, STRING, (), BYTES_LIST, optional=optional),)
        if self.shape == ():
            encoding = {"f4": FLOAT_LIST}.get(np.dtype(self.dtype).str[1:], RAW)
            if np.dtype(self.dtype).kind in "biu" and self.dtype != "uint64":
                encoding = INT64_LIST
            return (FeatureSpec(name, self.dtype, (), encoding, optional=optional),)
        if self.shape is not None and None not in self.shape:
            return (FeatureSpec(name, self.dtype, self.shape, RAW, optional=optional),)
        shape_name = f"{name}/shape"
        axes = None if self.shape is None else len(self.shape)
        return (
            FeatureSpec(
                name, self.dtype, self.shape, RAW, shape_in=shape_name,
                optional=optional,
            ),
            FeatureSpec(
                shape_name, "int64", (axes,), INT64_LIST, f"shape of {name}",
                optional=optional,
            ),
        )  # fmt: skip

    def encodable(self, value: Any) -> Any:
        """Returns a value as it is stored.

        Integers of another width are cast if they fit, and narrower floats are widened.
        Python floats, alone or in lists, are rounded to the dtype, and so is a scalar
        of numpy. An array of wider floats is refused: rounding it is up to the caller.

        Returns
        -------
        bytes, or numpy.ndarray in little-endian C order
            Text as UTF-8; numbers with the declared dtype.

        Raises
        ------
        UnstorableValue
            If the value has another type or shape, or does not fit.
        """
        if self.dtype == STRING:
            return _text(value)
        if self.dtype == BYTES:
            if not isinstance(value, bytes | bytearray | memoryview):
                raise UnstorableValue(f"found {describe(value)}")
            return bytes(value)
        array = _numbers(value, np.dtype(self.dtype), is_scalar=self.shape == ())
        self._check_shape(value, array.shape)
        return np.asarray(array, order="C")

    def _check_shape(self, value: Any, shape: tuple[int, ...]) -> None:
        if self.shape == () or shape == ():
            if self.shape != shape:
                raise UnstorableValue(f"found {describe(value)}")
            return
        if self.shape is not None and (
            len(shape) != len(self.shape)
            or any(n not in (None, m) for n, m in zip(self.shape, shape, strict=True))
        ):
            raise UnstorableValue(f"found an array of shape {shape}")

    def __str__(self) -> str:
        if self.shape == ():
            return self.dtype
        shape = "" if self.shape is None else f" of shape {self.shape}"
        return f"array of {self.dtype}{shape}"


def _number_dtype(dtype: Any) -> str:
    """Returns the name of a dtype that can be stored."""
    problem = (
        "must be 'string', 'bytes' or a dtype of numpy such as 'float32'; arrays are "
        "of numbers only"
    )
    if dtype is None:  # for numpy, this is float64
        raise OptionError("dtype", problem, dtype)
    try:
        found = np.dtype(dtype)
    except TypeError as error:
        raise OptionError("dtype", problem, dtype) from error
    # Extended precision has different formats on different machines.
    if found.kind not in "biufc" or found.char in "gG":
        raise OptionError("dtype", problem, dtype)
    return str(found.name)


def _text(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        raise UnstorableValue(f"found {describe(value)}")
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise UnstorableValue(f"found a text that is not Unicode: {error}") from error


def _numbers(value: Any, dtype: np.dtype[Any], *, is_scalar: bool) -> npt.NDArray[Any]:
    """Returns a value as an array of a dtype; see :meth:`Field.encodable`."""
    little = dtype.newbyteorder("<")
    if isinstance(value, np.ndarray) and value.dtype == dtype:
        return value.astype(little, copy=False)
    try:
        found = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise UnstorableValue(f"found {describe(value)}: {error}") from error
    if found.size == 0 and isinstance(value, list | tuple):
        return found.astype(little)
    if found.dtype.kind == "O" and _are_integers(value):
        raise UnstorableValue(f"found {describe(value)}, which does not fit")
    if found.dtype.kind not in _ACCEPTED[dtype.kind]:
        raise UnstorableValue(f"found {describe(value)}")
    is_integer = found.dtype.kind in "biu"
    may_round = is_scalar or isinstance(value, list | tuple)
    if not (is_integer or may_round or np.can_cast(found.dtype, dtype)):
        raise UnstorableValue(f"found {describe(value)}")
    with np.errstate(over="ignore"):
        stored = found.astype(little)
    if is_integer:
        fits = _integers_fit(found, dtype)
    else:
        fits = not bool((np.isinf(stored) & ~np.isinf(found)).any())
    if not fits:
        raise UnstorableValue(f"found {describe(value)}, which does not fit")
    return stored


def _integers_fit(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> bool:
    """Whether a dtype holds each of these integers exactly."""
    if values.size == 0:
        return True
    low, high = int(values.min()), int(values.max())
    if dtype.kind == "b":
        return low >= 0 and high <= 1
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return int(limits.min) <= low and high <= int(limits.max)
    # Up to this number, floats have no gaps.
    whole: int = 2 ** (int(np.finfo(dtype).nmant) + 1)
    return -whole <= low and high <= whole


def _are_integers(value: Any) -> bool:
    values = np.asarray(value, object).ravel()
    return values.size > 0 and all(isinstance(v, int) for v in values.tolist())


def describe(value: Any) -> str:
    """Returns the type of a value, in words."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} with shape {value.shape}"
    if value is None:
        return "None"
    return f"{type(value).__name__} {reprlib.repr(value)}"


Field.TYPE_BOOL = Field.scalar("bool")
Field.TYPE_INT32 = Field.scalar("int32")
Field.TYPE_INT64 = Field.scalar("int64")
Field.TYPE_FLOAT = Field.scalar("float32")
Field.TYPE_DOUBLE = Field.scalar("float64")
Field.TYPE_STRING = Field.scalar(STRING)
Field.TYPE_BYTES = Field.scalar(BYTES)
Field.TYPE_ARRAY_INT32 = Field.array("int32")
Field.TYPE_ARRAY_INT64 = Field.array("int64")
Field.TYPE_ARRAY_FLOAT32 = Field.array("float32")
Field.TYPE_ARRAY_FLOAT64 = Field.array("float64")
