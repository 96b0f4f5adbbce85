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
            Feature to its values: an array with a first axis for the examples, or a
            list with None for those that lack the feature.

        Raises
        ------
        UnstorableAttribute
            If a value is not of its declared type; it names the class and the
            attribute.
        """
        if not examples:
            return [], {}
        columns: dict[str, Any] = {}
        shared: dict[str, Any] = {}
        count = len(examples)
        for name, field in self._declared.items():
            values = [getattr(example, name) for example in examples]
            try:
                columns[name] = found = _column(name, field, values)
            except InputError as error:
                cls = type(examples[0]).__name__
                raise UnstorableAttribute(cls, str(error)) from error
            shape_in = self._shape_of.get(name)
            if isinstance(found, list):
                if shape_in is not None:
                    shapes = [None if a is None else np.array(a.shape) for a in found]
                    columns[shape_in] = shapes
            elif found.shape == ():
                shared[name] = found.item()
                columns[name] = np.broadcast_to(found, (count,))
            elif shape_in is not None:
                shared[shape_in] = found.shape[1:]
                columns[shape_in] = np.array([found.shape[1:]], np.int64)
        return self._encoder.encode(count, {**columns, **shared}), columns


def _column(name: str, field: Field, values: Sequence[Any]) -> Any:
    """Returns the values of some examples as they are stored.

    It is a scalar if all share one object; an array with a first axis if their arrays
    are alike, which are converted together; otherwise a list, with None for a missing
    value.
    """
    some = values[0]
    if isinstance(some, np.ndarray) and some.shape:
        if {type(v) for v in values} == {type(some)} and (
            {(v.dtype, v.shape) for v in values} == {(some.dtype, some.shape)}
        ):
            field.stored(name, some)  # its shape is checked
            stacked = np.concatenate(values).reshape(len(values), *some.shape)
            return cast(name, as_array(name, stacked), field.dtype)
    elif field.shape == () and all(value is some for value in values):
        stored = field.stored(name, some)
        return [None] * len(values) if stored is None else stored
    return [field.stored(name, value) for value in values]
