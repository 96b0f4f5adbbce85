"""The types of stored attributes, which values they accept, and their records."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from beam_pipeline.elements.values import holds
from beam_pipeline.errors import OptionError, UnstorableAttribute
from beam_pipeline.examples.encoding import ExampleEncoder
from beam_pipeline.examples.spec import (
    BYTES_LIST,
    FLOAT_LIST,
    INT64_LIST,
    RAW,
    FeatureSpec,
    Shape,
)
from beam_pipeline.examples.structure import add_feature

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
        names = {str: STRING, bytes: BYTES, STRING: STRING, BYTES: BYTES}
        found = names.get(dtype) if isinstance(dtype, str | type) else None
        return cls(found or _number_dtype(dtype), optional=optional)

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
        made: dict[str, FeatureSpec] = {}
        if self.is_text:
            dtype, encoding = STRING, BYTES_LIST
        else:
            dtype, encoding = self.dtype, RAW
            kind = np.dtype(dtype).kind
            if self.shape == () and (dtype == "float32" or kind in "biu"):
                encoding = FLOAT_LIST if kind == "f" else INT64_LIST
            if dtype == "uint64":
                encoding = RAW
        has_shape = self.shape is None or None in self.shape
        add_feature(
            made, name, dtype, self.shape, encoding,
            optional=self.optional, has_shape=has_shape,
        )  # fmt: skip
        return tuple(made[key] for key in sorted(made))

    @property
    def is_text(self) -> bool:
        """Whether the values are texts or bytes."""
        return self.dtype in (STRING, BYTES)

    def encodable(self, value: Any) -> Any:
        """Returns a value as it is stored.

        Integers of another width are cast if they fit, and narrower floats are widened.
        Python floats, alone or in lists, are rounded to the dtype, and so is a scalar
        of numpy. An array of wider floats is refused: rounding it is up to the caller.

        Returns
        -------
        bytes, or numpy.ndarray in C order
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
    if isinstance(value, np.ndarray) and value.dtype == dtype:
        return value
    try:
        found = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise UnstorableValue(f"found {describe(value)}: {error}") from error
    is_list = isinstance(value, list | tuple)
    if found.size == 0 and is_list:
        return found.astype(dtype)
    if found.dtype.kind == "O" and _are_integers(value):
        raise UnstorableValue(f"found {describe(value)}, which does not fit")
    is_integer = found.dtype.kind in "biu"
    may_round = is_scalar or is_list or np.can_cast(found.dtype, dtype)
    if found.dtype.kind not in _ACCEPTED[dtype.kind] or not (is_integer or may_round):
        raise UnstorableValue(f"found {describe(value)}")
    with np.errstate(over="ignore"):
        stored = found.astype(dtype)
    if is_integer:
        fits = holds(stored, found)
    else:
        fits = not bool((np.isinf(stored) & ~np.isinf(found)).any())
    if not fits:
        raise UnstorableValue(f"found {describe(value)}, which does not fit")
    return stored


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


for _name, _dtype in {
    "BOOL": "bool", "INT32": "int32", "INT64": "int64", "FLOAT": "float32",
    "DOUBLE": "float64", "STRING": STRING, "BYTES": BYTES,
}.items():  # fmt: skip
    setattr(Field, f"TYPE_{_name}", Field.scalar(_dtype))
for _dtype in ("int32", "int64", "float32", "float64"):
    setattr(Field, f"TYPE_ARRAY_{_dtype.upper()}", Field.array(_dtype))


class ClassEncoder:
    """Serialises objects with the attributes that a class declares."""

    def __init__(self, declared: Mapping[str, Field]):
        self._declared = declared
        specs = [spec for name in declared for spec in declared[name].specs(name)]
        self._encoder = ExampleEncoder(specs)
        self._shape_of = {spec.name: spec.shape_in for spec in specs if spec.shape_in}

    def encode(self, examples: Sequence[object]) -> tuple[list[bytes], dict[str, Any]]:
        """Returns the records of examples, and the values of their numbers.

        Equal values give equal bytes; features are in the order of their names.

        Returns
        -------
        records : list of bytes
            A ``tf.train.Example`` of each, serialised.
        values : dict
            Feature to its values: an array with a first axis for the examples, or a
            list with None for those that lack the feature.

        Raises
        ------
        UnstorableAttribute
            If a value is not of its declared type; it names class, attribute and both.
        """
        count = len(examples)
        if not count:
            return [], {}
        columns: dict[str, Any] = {}
        numbers: dict[str, Any] = {}
        for name, field in self._declared.items():
            found = _column(name, field, examples)
            is_shared = not isinstance(found, list) and np.ndim(found) == 0
            if found is None:
                found = [None] * count
            columns[name] = found
            if field.is_text:
                continue
            if is_shared and not isinstance(found, list):
                columns[name], found = found.item(), np.full(count, found)
            numbers[name] = found
            shape_in = self._shape_of.get(name)
            if shape_in is None:
                continue
            if isinstance(found, list):
                shapes: Any = [None if v is None else v.shape for v in found]
                columns[shape_in] = numbers[shape_in] = shapes
            else:
                columns[shape_in] = found.shape[1:]
                numbers[shape_in] = np.array([found.shape[1:]], np.int64)
        return self._encoder.encode(count, columns), numbers


def _column(name: str, field: Field, examples: Sequence[object]) -> Any:
    """Returns the values of an attribute as they are stored.

    It is a number or a text, if all examples share the object; an array with a first
    axis, if their arrays are alike; or a list, with None for a missing value.
    """
    values = [getattr(example, name) for example in examples]
    first = _stored(name, field, examples[0], values[0])
    if field.shape == ():
        if all(value is values[0] for value in values):
            return first
    elif {type(value) for value in values} == {np.ndarray} and {
        (value.dtype, value.shape) for value in values
    } == {(first.dtype, first.shape)}:
        return np.concatenate(values).reshape(len(values), *first.shape)
    others = zip(examples[1:], values[1:], strict=True)
    return [first, *(_stored(name, field, *each) for each in others)]


def _stored(name: str, field: Field, example: object, value: Any) -> Any:
    """Returns a value as it is stored; None for one that may be left out."""
    if value is None and field.optional:
        return None
    try:
        return field.encodable(value)
    except UnstorableValue as error:
        where = f"{type(example).__name__}.{name}"
        raise UnstorableAttribute(where, _problem(field, value, error)) from error


def _problem(field: Field, value: Any, error: UnstorableValue) -> str:
    problem = f"{error}, but it is declared as {field}"
    if value is None:
        return f"{problem}. Assign it in load(), or declare it with optional=True."
    may_convert = getattr(value, "ndim", 0) and "array of shape" not in str(error)
    if may_convert and "does not fit" not in str(error):
        return f'{problem}. Convert it, for example with .astype("{field.dtype}").'
    return f"{problem}."
