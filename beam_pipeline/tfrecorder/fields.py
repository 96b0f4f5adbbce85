"""The types of stored attributes, and their features.

A value is stored as :mod:`beam_pipeline.elements.values` does it: if the declared dtype
holds it exactly. Python's floats, also in lists, are rounded.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from beam_pipeline.elements.values import as_array, cast, checked_dtype
from beam_pipeline.errors import InputError, OptionError, UnstorableAttribute
from beam_pipeline.examples.encoding import ExampleEncoder
from beam_pipeline.examples.spec import (
    FLOAT_LIST,
    INT64_LIST,
    RAW,
    FeatureSpec,
    Shape,
    numpy_dtype,
)
from beam_pipeline.examples.structure import add_feature

_TEXTS = (str, bytes, "bytes")


@dataclass(frozen=True, slots=True)
class Field:
    """The type of a stored attribute.

    Attributes
    ----------
    dtype : str
        ``string``, or the name of a numpy dtype of numbers.
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
        is_text = isinstance(dtype, str | type) and dtype in _TEXTS
        made = "string" if is_text else checked_dtype("dtype", dtype)
        return cls(made, optional=optional)

    @classmethod
    def array(
        cls, dtype: Any, shape: Shape | None = None, *, optional: bool = False
    ) -> Field:
        """Returns the type of an array.

        Parameters
        ----------
        dtype : str, type or numpy.dtype
            As of :meth:`scalar`.
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
        return cls(cls.scalar(dtype).dtype, shape, optional)

    def specs(self, name: str) -> tuple[FeatureSpec, ...]:
        """Returns the features that store an attribute with this name.

        The second one, of arrays whose shape differs, is ``<name>/shape``.
        """
        made: dict[str, FeatureSpec] = {}
        encoding = None
        if self.dtype != "string":
            encoding = RAW
            kind = numpy_dtype(self.dtype).kind
            if self.shape == () and self.dtype != "uint64" and kind in "biu":
                encoding = INT64_LIST
            elif self.shape == () and self.dtype == "float32":
                encoding = FLOAT_LIST
        has_shape = self.shape is None or None in self.shape
        add_feature(
            made, name, self.dtype, self.shape, encoding,
            optional=self.optional, has_shape=has_shape,
        )  # fmt: skip
        return tuple(made[key] for key in sorted(made))

    def stored(self, name: str, value: Any) -> npt.NDArray[Any] | None:
        """Returns a value as it is stored; None for one that may be left out.

        Raises
        ------
        InputError
            If the value has another type or shape, or the dtype does not hold it.
        """
        if value is None and self.optional:
            return None
        if value is None:
            raise InputError(
                f"Feature {name} is None, but is declared as {self}. Assign it in "
                "load(), or declare it with optional=True."
            )
        if self.shape == () and isinstance(value, np.generic):
            value = value.item()  # a scalar is rounded as a number of Python
        array = cast(name, as_array(name, value), self.dtype)
        if not self._has_shape(array.shape):
            raise InputError(
                f"Feature {name} has the shape {array.shape}, but is declared as "
                f"{self}. Give it that shape, or declare another."
            )
        return array

    def _has_shape(self, found: tuple[int, ...]) -> bool:
        if self.shape is None:
            return found != ()
        return len(found) == len(self.shape) and all(
            size in (None, n) for size, n in zip(self.shape, found, strict=True)
        )

    def __str__(self) -> str:
        if self.shape == ():
            return self.dtype
        shape = "" if self.shape is None else f" of shape {self.shape}"
        return f"array of {self.dtype}{shape}"


for _name, _dtype in {
    "BOOL": "bool", "INT32": "int32", "INT64": "int64", "FLOAT": "float32",
    "DOUBLE": "float64", "STRING": "string", "BYTES": "bytes",
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
        """Returns the records of examples, and the values of their features.

        Equal values give equal bytes; features are in the order of their names.

        Returns
        -------
        records : list of bytes
            A ``tf.train.Example`` of each, serialised.
        values : dict
            Feature to a list with its array in each example, or None.

        Raises
        ------
        UnstorableAttribute
            If a value is not of its declared type; it names the class and the
            attribute.
        """
        columns: dict[str, list[Any]] = {}
        for name, field in self._declared.items():
            arrays = [_stored(name, field, example) for example in examples]
            columns[name] = arrays
            if name in self._shape_of:
                shapes = [None if a is None else np.array(a.shape) for a in arrays]
                columns[self._shape_of[name]] = shapes
        return self._encoder.encode(len(examples), columns), columns


def _stored(name: str, field: Field, example: object) -> npt.NDArray[Any] | None:
    value = getattr(example, name)
    try:
        return field.stored(name, value)
    except InputError as error:
        raise UnstorableAttribute(type(example).__name__, str(error)) from error
