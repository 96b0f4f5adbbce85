"""``Example``: a class whose declared attributes become the features of records.

::

    class Clip(Example):
        def __init__(self, name, label):
            super().__init__()
            self.name, self._label = name, label

        @tfrecordable(dtype=Example.Field.TYPE_INT32)
        def label(self):
            return self._label

The order of the declarations is the order in which readers return them; a subclass
appends its own to those of its parents.

A value is stored as :mod:`beam_pipeline.elements.values` does it: if the declared dtype
holds it exactly. Python's floats, also in lists, are rounded.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from beam_pipeline.elements.values import as_array, cast, checked_dtype
from beam_pipeline.encodings import RAW
from beam_pipeline.errors import InputError, OptionError, UnstorableAttribute
from beam_pipeline.examples.serialisation import ExampleEncoder
from beam_pipeline.examples.spec import FeatureSpec, add_feature
from beam_pipeline.inputs.table_files import decoded, split_lines
from beam_pipeline.storage import files

# Where a property's function keeps the type of its value.
_STORED_AS = "_stored_as"

_TEXTS = (str, bytes, "bytes")


@dataclass(frozen=True, slots=True)
class FieldType:
    """The type of a stored attribute.

    Attributes
    ----------
    dtype : str
        ``string``, or the name of a numpy dtype of numbers.
    is_array : bool
        Whether a value is an array, of any shape, instead of a scalar.
    """

    dtype: str
    is_array: bool = False

    @staticmethod
    def scalar(dtype: Any) -> FieldType:
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
        return FieldType("string" if is_text else checked_dtype("dtype", dtype))

    @staticmethod
    def array(dtype: Any) -> FieldType:
        """Returns the type of an array of any shape; ``dtype`` as of :meth:`scalar`."""
        return replace(FieldType.scalar(dtype), is_array=True)

    def specs(self, name: str) -> tuple[FeatureSpec, ...]:
        """Returns the features that store an attribute with this name.

        The second one, of arrays, is ``<name>/shape``.
        """
        made: dict[str, FeatureSpec] = {}
        shape = None if self.is_array else ()
        encoding = RAW if self.is_array and self.dtype != "string" else None
        add_feature(made, name, self.dtype, shape, encoding, has_shape=self.is_array)
        return tuple(made[key] for key in sorted(made))

    def stored(self, name: str, value: Any) -> npt.NDArray[Any]:
        """Returns a value as it is stored.

        Raises
        ------
        InputError
            If the value is no scalar or no array, or the dtype does not hold it.
        """
        if not self.is_array and isinstance(value, np.generic):
            value = value.item()  # a scalar is rounded as a number of Python
        array = cast(name, as_array(name, value), self.dtype)
        if bool(array.shape) != self.is_array:
            raise InputError(
                f"Feature {name} has the shape {array.shape}, but is declared as "
                f"{self}. Give it that shape, or declare another."
            )
        return array

    def __str__(self) -> str:
        return f"array of {self.dtype}" if self.is_array else self.dtype


class Field(FieldType):
    """The types of attributes: those with a name, and how to make others."""

    __slots__ = ()

    TYPE_BOOL = FieldType.scalar("bool")
    TYPE_INT32 = FieldType.scalar("int32")
    TYPE_INT64 = FieldType.scalar("int64")
    TYPE_FLOAT = FieldType.scalar("float32")
    TYPE_DOUBLE = FieldType.scalar("float64")
    TYPE_STRING = FieldType.scalar("string")
    TYPE_ARRAY_INT32 = FieldType.array("int32")
    TYPE_ARRAY_FLOAT32 = FieldType.array("float32")


class ClassEncoder:
    """Serialises examples of a class, or objects with the attributes it declares."""

    def __init__(self, cls: type[Example]):
        self._declared = declared_fields(cls)
        specs = cls.feature_specs()
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
            Feature to its values: a list with an array for each example.

        Raises
        ------
        UnstorableAttribute
            If a value is not of its declared type; it names the class and the
            attribute.
        """
        columns: dict[str, Any] = {}
        for name, field in self._declared.items():
            try:
                found = [field.stored(name, getattr(each, name)) for each in examples]
            except InputError as error:
                cls = type(examples[0]).__name__
                raise UnstorableAttribute(cls, str(error)) from error
            columns[name] = found
            if name in self._shape_of:
                columns[self._shape_of[name]] = [array.shape for array in found]
        return self._encoder.encode(len(examples), columns), columns


E = TypeVar("E", bound="Example")


class IgnoreExampleException(Exception):  # the name that user code knows
    """Raised in ``load`` or ``split``: leaves the example out of the data set."""


def tfrecordable(dtype: Any) -> Callable[[Callable[[Any], Any]], property]:
    """Declares a property of an :class:`Example` whose value is stored.

    ::

        @tfrecordable(dtype=Example.Field.TYPE_INT32)
        def label(self):
            return self._label

        @label.setter
        def label(self, value):
            self._label = value

    Parameters
    ----------
    dtype : Example.Field, or what ``Example.Field.scalar`` takes
        The type of the value.

    Raises
    ------
    OptionError
        If there is no such type.
    """
    field = dtype if isinstance(dtype, FieldType) else FieldType.scalar(dtype)

    def decorate(function: Callable[[Any], Any]) -> property:
        vars(function)[_STORED_AS] = field
        return property(function)

    return decorate


class Example:
    """One example, or what one is made from. A subclass declares what is stored.

    A subclass overrides :meth:`load` if its data are too large to be kept for all
    examples, :meth:`split` if an example becomes several records, and
    :meth:`to_csv_row` and :meth:`from_csv_row` for lists of examples in CSV files.
    """

    Field = Field

    def load(self, **kwargs: Any) -> None:
        """Loads the data into the attributes. Called right before they are stored.

        Raises
        ------
        IgnoreExampleException
            In a subclass: to leave out the example.
        """

    def split(self, **kwargs: Any) -> Sequence[Example] | None:
        """Returns the examples to store; as it is, only this one.

        Raises
        ------
        IgnoreExampleException
            In a subclass: to leave out the example.
        """
        return [self]

    def to_csv_row(self) -> Sequence[Any]:
        """Returns what :meth:`from_csv_row` needs to make this example again."""
        raise NotImplementedError(
            f"{type(self).__name__} does not define to_csv_row(), which returns the "
            "values of a row."
        )

    @classmethod
    def from_csv_row(cls: type[E], row: list[str], **kwargs: Any) -> E:
        """Returns the example of a row. A subclass may define a static method."""
        raise NotImplementedError(
            f"{cls.__name__} does not define from_csv_row(row, **kwargs), which "
            "returns an instance."
        )

    @classmethod
    def feature_specs(cls) -> tuple[FeatureSpec, ...]:
        """Returns the specs of the stored features, in the order of declaration.

        An array is followed by its shape, ``<name>/shape``.

        Raises
        ------
        OptionError
            If the class declares none.
        """
        declared = declared_fields(cls).items()
        return tuple(spec for name, field in declared for spec in field.specs(name))

    def serialize_to_string(self) -> bytes:
        """Returns the ``tf.train.Example`` of this example, serialised.

        Raises
        ------
        UnstorableAttribute
            If a value is not of its declared type. It is a TypeError.
        """
        (record,), _ = ClassEncoder(type(self)).encode([self])
        return record

    @classmethod
    def parse_from_string(cls, serialized_examples: Any) -> tuple[Any, ...]:
        """Returns the tensors of one serialised example, in the order of declaration.

        Parameters
        ----------
        serialized_examples : bytes, or a scalar tensor of strings
            For example an element of a ``tf.data.TFRecordDataset``, in its ``map``.
        """
        from beam_pipeline.read.replay import make_tuple_parser

        return make_tuple_parser(cls.feature_specs())(serialized_examples)


def declared_fields(cls: Any) -> dict[str, FieldType]:
    """Returns the types of all stored attributes of a class; see ``feature_specs``."""
    found: dict[str, FieldType] = {}
    for parent in reversed(getattr(cls, "__mro__", ())):
        for name, value in vars(parent).items():
            if isinstance(value, property) and hasattr(value.fget, _STORED_AS):
                found[name] = getattr(value.fget, _STORED_AS)
    if not found:
        raise OptionError(
            "example_class",
            "must declare what is stored, with @tfrecordable",
            getattr(cls, "__name__", cls),
        )
    return found


def csv_line(row: Sequence[Any]) -> str:
    """Returns a row as a line of CSV, with its end."""
    line = io.StringIO()
    csv.writer(line, lineterminator="\n").writerow(row)
    return line.getvalue()


def read_csv_rows(path: files.PathLike) -> list[list[str]]:
    """Reads the rows of a CSV file without a header; empty lines are left out.

    Raises
    ------
    InputError
        If there is no such file, or it is not CSV in UTF-8.
    """
    path = files.absolute(str(path))
    if files.size(path) < 0:
        raise InputError(f"{path} does not exist. Check the path.")
    with files.open_read(path) as file, decoded(file, path) as text:
        return [row for _, row in split_lines(text, path, ",")]
