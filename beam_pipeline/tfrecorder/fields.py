"""The types of stored attributes, which values they accept, and their records.

The chunks of one example mostly have equal shapes and equal numbers: then their records
are the rows of one array of bytes, which is several times as fast as one by one.
"""

from __future__ import annotations

import itertools
import operator
import reprlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import OptionError, UnstorableAttribute
from beam_pipeline.examples.encoding import encode_entry
from beam_pipeline.examples.protobuf import varint
from beam_pipeline.examples.spec import (
    BYTES_LIST,
    FLOAT_LIST,
    INT64_LIST,
    RAW,
    FeatureSpec,
    Shape,
)
from beam_pipeline.storage.tfrecord import FramedRecords, frame_rows

# Some records, and the values of their numeric features.
Encodings = tuple[Sequence[bytes] | FramedRecords, dict[str, Any]]

# From this number of equal records on, they are made together.
_FEW = 4

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


class RecordEncoder:
    """Serialises objects with the attributes that a class declares."""

    def __init__(self, declared: Mapping[str, Field]):
        self._declared = declared
        specs = [spec for name in declared for spec in declared[name].specs(name)]
        self._specs = sorted(specs, key=lambda spec: spec.name.encode())
        self._numeric = [spec for spec in specs if spec.name in declared
                         and spec.dtype != STRING]  # fmt: skip
        self._get = operator.attrgetter(*declared)

    def encode(self, example: object) -> bytes:
        """Returns the ``tf.train.Example`` of an example, serialised.

        Equal values give equal bytes; features are in the order of their names.

        Raises
        ------
        UnstorableAttribute
            If a value is not of its declared type; it names class, attribute and both.
        """
        return _message(self._entries(self._stored(example)))

    def encode_all(self, examples: Sequence[object]) -> Iterator[Encodings]:
        """Yields the records of examples in their order, with their values.

        The values have a first axis for the examples. The bytes are those of
        :meth:`encode`.
        """
        rows = [self._values(example) for example in examples]
        columns = list(zip(*rows, strict=True))
        alike = zip(*map(_likeness, self._declared.values(), columns), strict=True)
        start = 0
        for _, group in itertools.groupby(alike):
            stop = start + sum(1 for _ in group)
            if stop - start >= _FEW:
                arrays = [column[start:stop] for column in columns]
                yield self._rows(self._stored(examples[start]), arrays, stop - start)
            else:
                yield from map(self._one, examples[start:stop])
            start = stop

    def _values(self, example: object) -> tuple[Any, ...]:
        found: Any = self._get(example)
        return found if len(self._declared) > 1 else (found,)

    def _stored(self, example: object) -> dict[str, Any]:
        """Returns the values of features as they are stored; None for missing ones."""
        stored: dict[str, Any] = {}
        for (name, field), value in zip(
            self._declared.items(), self._values(example), strict=True
        ):
            if value is None and field.optional:
                continue
            try:
                stored[name] = field.encodable(value)
            except UnstorableValue as error:
                where = f"{type(example).__name__}.{name}"
                raise UnstorableAttribute(
                    where, _problem(field, value, error)
                ) from error
            stored[f"{name}/shape"] = list(np.shape(stored[name]))
        return stored

    def _entries(self, stored: Mapping[str, Any]) -> list[tuple[str, bytes]]:
        return [
            (spec.name, encode_entry(spec, stored[spec.name]))
            for spec in self._specs
            if spec.name in stored
        ]

    def _one(self, example: object) -> Encodings:
        stored = self._stored(example)
        # Copies: a view would keep the array that it is part of.
        arrays = {
            spec.name: np.array(stored[spec.name])[np.newaxis]
            for spec in self._numeric
            if spec.name in stored
        }
        return [_message(self._entries(stored))], self._with_shapes(arrays)

    def _rows(
        self, first: Mapping[str, Any], columns: Sequence[Any], count: int
    ) -> Encodings:
        """Returns the records of examples that differ in the values of arrays alone."""
        arrays: dict[str, Any] = {}
        for (name, field), column in zip(self._declared.items(), columns, strict=True):
            if name in first and field.dtype not in (STRING, BYTES):
                shape = (count, *first[name].shape)
                arrays[name] = (
                    np.concatenate(column).reshape(shape)
                    if field.shape != ()
                    else np.broadcast_to(first[name], shape)
                )
        entries = self._entries(first)
        message = _message(entries)
        rows = np.empty((count, len(message)), np.uint8)
        rows[:] = np.frombuffer(message, np.uint8)
        end = len(message) - sum(len(entry) for _, entry in entries)
        for name, entry in entries:
            end += len(entry)
            # The bytes of an array are the end of its entry.
            if name in arrays and self._declared[name].shape != ():
                values = arrays[name].reshape(count, -1).view(np.uint8)
                rows[:, end - values.shape[1] : end] = values
        return frame_rows(rows), self._with_shapes(arrays)

    def _with_shapes(self, arrays: dict[str, Any]) -> dict[str, Any]:
        for spec in self._numeric:
            if spec.shape_in is not None and spec.name in arrays:
                shape = arrays[spec.name].shape[1:]
                arrays[spec.shape_in] = np.array([shape], np.int64)
        return arrays


def _message(entries: Sequence[tuple[str, bytes]]) -> bytes:
    content = b"".join([entry for _, entry in entries])
    return b"\x0a" + varint(len(content)) + content


def _likeness(field: Field, column: Sequence[Any]) -> list[Any]:
    """Returns, for each value, what is equal for values that rows may share."""
    if field.shape == ():
        # Not the values: True, 1 and 1.0 are equal, and so are 0.0 and -0.0.
        return [
            (type(value), repr(value)) if isinstance(value, _SCALARS) else object()
            for value in column
        ]
    if set(map(type, column)) == {np.ndarray} and {array.dtype for array in column} == {
        np.dtype(field.dtype)
    }:
        return [array.shape or object() for array in column]
    return [None if value is None else object() for value in column]


_SCALARS = (str, bytes, int, float, complex, np.generic, type(None))


def _problem(field: Field, value: Any, error: UnstorableValue) -> str:
    problem = f"{error}, but it is declared as {field}"
    if value is None:
        return f"{problem}. Assign it in load(), or declare it with optional=True."
    may_convert = getattr(value, "ndim", 0) and "array of shape" not in str(error)
    if may_convert and "does not fit" not in str(error):
        return f'{problem}. Convert it, for example with .astype("{field.dtype}").'
    return f"{problem}."
