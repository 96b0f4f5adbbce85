"""``Example``: a class whose declared attributes become the features of records.

::

    class Clip(Example):
        def __init__(self, name, label):
            super().__init__()
            self.name, self._label = name, label

        @tfrecordable(dtype=Example.Field.TYPE_INT32)
        def label(self):
            return self._label

    @dataclass
    class Clip(Example):
        name: str
        label: int = feature("int32")

Both declare the same feature. The order of the declarations is the order in which
readers return them; a subclass appends its own to those of its parents. The fields of a
dataclass come before its properties.

A value is stored as :mod:`beam_pipeline.elements.values` does it: if the declared dtype
holds it exactly. Python's floats, also in lists, are rounded.
"""

from __future__ import annotations

import csv
import dataclasses
import io
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from beam_pipeline.codecs import RAW, fits_shape
from beam_pipeline.elements.values import as_array, cast, checked_dtype
from beam_pipeline.errors import InputError, OptionError, UnstorableAttribute
from beam_pipeline.examples.encoding import ExampleEncoder
from beam_pipeline.examples.spec import FeatureSpec, Shape
from beam_pipeline.examples.structure import add_feature
from beam_pipeline.inputs.table_files import decoded, split_lines
from beam_pipeline.storage import files

# The type of a stored attribute: of a dataclass's field, and of a property's function.
_METADATA = "beam_pipeline.tfrecorder"
_STORED_AS = "_stored_as"

_TEXTS = (str, bytes, "bytes")


@dataclasses.dataclass(frozen=True, slots=True)
class FieldType:
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

    @staticmethod
    def scalar(dtype: Any, *, optional: bool = False) -> FieldType:
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
        return FieldType(made, optional=optional)

    @staticmethod
    def array(
        dtype: Any, shape: Shape | None = None, *, optional: bool = False
    ) -> FieldType:
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
        return FieldType(FieldType.scalar(dtype).dtype, shape, optional)

    def specs(self, name: str) -> tuple[FeatureSpec, ...]:
        """Returns the features that store an attribute with this name.

        The second one, of arrays whose shape differs, is ``<name>/shape``.
        """
        made: dict[str, FeatureSpec] = {}
        is_raw = self.shape != () and self.dtype != "string"
        add_feature(
            made, name, self.dtype, self.shape, RAW if is_raw else None,
            optional=self.optional, has_shape=self.shape is None or None in self.shape,
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
        fits = array.shape != ()
        if self.shape is not None:
            fits = fits_shape(array.shape, self.shape)
        if not fits:
            raise InputError(
                f"Feature {name} has the shape {array.shape}, but is declared as "
                f"{self}. Give it that shape, or declare another."
            )
        return array

    def __str__(self) -> str:
        if self.shape == ():
            return self.dtype
        shape = "" if self.shape is None else f" of shape {self.shape}"
        return f"array of {self.dtype}{shape}"


class Field(FieldType):
    """The types of attributes: those with a name, and how to make others."""

    __slots__ = ()

    TYPE_BOOL = FieldType.scalar("bool")
    TYPE_INT32 = FieldType.scalar("int32")
    TYPE_INT64 = FieldType.scalar("int64")
    TYPE_FLOAT = FieldType.scalar("float32")
    TYPE_DOUBLE = FieldType.scalar("float64")
    TYPE_STRING = FieldType.scalar("string")
    TYPE_BYTES = FieldType.scalar("bytes")
    TYPE_ARRAY_INT32 = FieldType.array("int32")
    TYPE_ARRAY_INT64 = FieldType.array("int64")
    TYPE_ARRAY_FLOAT32 = FieldType.array("float32")
    TYPE_ARRAY_FLOAT64 = FieldType.array("float64")


class ClassEncoder:
    """Serialises objects with the attributes that a class declares."""

    def __init__(self, declared: Mapping[str, FieldType]):
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
            Feature to its values: a list with an array for each example, or None for
            those that lack the feature.

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
                shapes = [None if array is None else array.shape for array in found]
                columns[self._shape_of[name]] = shapes
        return self._encoder.encode(len(examples), columns), columns


E = TypeVar("E", bound="Example")
Known = TypeVar("Known")


def _once_for_a_class(
    function: Callable[[type[Example]], Known],
) -> Callable[[type[Example]], Known]:
    return cache(function)  # type: ignore[return-value]  # classes have a hash


class IgnoreExampleException(Exception):  # the name that user code knows
    """Raised in ``load`` or ``split``: leaves the example out of the data set."""


def tfrecordable(
    dtype: Any, *, optional: bool = False
) -> Callable[[Callable[[Any], Any]], property]:
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
    optional : bool
        Whether the value may be None. Then it is not stored.

    Raises
    ------
    OptionError
        If there is no such type.
    """
    field = dtype if isinstance(dtype, FieldType) else FieldType.scalar(dtype)
    if optional:
        field = dataclasses.replace(field, optional=True)

    def decorate(function: Callable[[Any], Any]) -> property:
        vars(function)[_STORED_AS] = field
        return property(function)

    return decorate


def feature(dtype: Any, *, optional: bool = False, **options: Any) -> Any:
    """Declares a dataclass field with a number or a text that is stored.

    ::

        @dataclass
        class Clip(Example):
            label: int = feature("int32")
            note: str | None = feature("string", optional=True, default=None)

    Parameters
    ----------
    dtype : str, type or numpy.dtype
        ``"string"``, ``"bytes"``, or a dtype of numbers.
    optional : bool
        Whether the value may be None. Then it is not stored.
    **options
        Those of :func:`dataclasses.field`: ``default``, ``kw_only``, ...

    Raises
    ------
    OptionError
        If there is no such type.
    """
    return _dataclass_field(FieldType.scalar(dtype, optional=optional), options)


def array_feature(
    dtype: Any, shape: Shape | None = None, *, optional: bool = False, **options: Any
) -> Any:
    """Declares a dataclass field with an array of numbers that is stored.

    ::

        @dataclass
        class Clip(Example):
            data: np.ndarray | None = array_feature("float32", default=None)
            mel: np.ndarray | None = array_feature("float32", (None, 64), default=None)

    Two instances of the dataclass are compared without their arrays.

    Parameters
    ----------
    dtype : str, type or numpy.dtype
        A dtype of numbers.
    shape : tuple of int or None, optional
        If given, arrays of any other shape are refused, and readers know the shape.
        A size that differs between examples is None.
    optional : bool
        Whether the value may still be None when it is stored. Then it is left out.
    **options
        Those of :func:`dataclasses.field`: ``default``, ``kw_only``, ...

    Raises
    ------
    OptionError
        If there is no such type.
    """
    declared = FieldType.array(dtype, shape, optional=optional)
    return _dataclass_field(declared, {"compare": False, **options})


def _dataclass_field(declared: FieldType, options: dict[str, Any]) -> Any:
    metadata = {**options.pop("metadata", {}), _METADATA: declared}
    return dataclasses.field(metadata=metadata, **options)


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

    def release(self) -> None:
        """Sets the stored attributes to None. Called once they are stored."""
        for name in declared_fields(type(self)):
            with suppress(AttributeError):  # a property without a setter
                setattr(self, name, None)

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

        An array whose shape is not fixed is followed by its shape, ``<name>/shape``.

        Raises
        ------
        OptionError
            If the class declares none, or a field of it is not a dataclass's.
        """
        declared = declared_fields(cls).items()
        return tuple(spec for name, field in declared for spec in field.specs(name))

    @classmethod
    def get_tfrecordable_attribute_names(cls) -> list[str]:
        """Returns the names of the stored attributes, in the order of declaration."""
        return list(declared_fields(cls))

    @classmethod
    def get_tfrecordable_ordered_dict(cls) -> OrderedDict[str, FieldType]:
        """Returns the types of the stored attributes, in the order of declaration."""
        return OrderedDict(declared_fields(cls))

    def serialize_to_string(self) -> bytes:
        """Returns the ``tf.train.Example`` of this example, serialised.

        Raises
        ------
        UnstorableAttribute
            If a value is not of its declared type. It is a TypeError.
        """
        (record,), _ = encoder_of(type(self)).encode([self])
        return record

    def get_byte_size(self) -> int:
        """Returns the length of :meth:`serialize_to_string`."""
        return len(self.serialize_to_string())

    @classmethod
    def parse_from_string(cls, serialized_examples: Any) -> tuple[Any, ...]:
        """Returns the tensors of one serialised example, in the order of declaration.

        Parameters
        ----------
        serialized_examples : bytes, or a scalar tensor of strings
            For example an element of a ``tf.data.TFRecordDataset``, in its ``map``.
        """
        from beam_pipeline.read.parse import make_tuple_parser

        return make_tuple_parser(cls.feature_specs())(serialized_examples)

    @staticmethod
    def to_csv_file(filepath: files.PathLike, examples: Iterable[Example]) -> None:
        """Appends the row of each example to a CSV file on this machine."""
        with open(filepath, "a", newline="", encoding="utf-8") as file:
            file.writelines(csv_line(example.to_csv_row()) for example in examples)

    @classmethod
    def from_csv_file(cls: type[E], filepath: files.PathLike, **kwargs: Any) -> list[E]:
        """Returns the examples of the rows of a CSV file; see :meth:`from_csv_row`."""
        return [cls.from_csv_row(row, **kwargs) for row in read_csv_rows(filepath)]


@_once_for_a_class
def declared_fields(cls: type[Example]) -> dict[str, FieldType]:
    """Returns the types of all stored attributes of a class; see ``feature_specs``."""
    found: dict[str, FieldType] = {}
    for parent in reversed(cls.__mro__):
        for name, declared in vars(parent).get("__dataclass_fields__", {}).items():
            if _METADATA in declared.metadata:
                found[name] = declared.metadata[_METADATA]
        for name, value in vars(parent).items():
            if isinstance(value, property) and hasattr(value.fget, _STORED_AS):
                found[name] = getattr(value.fget, _STORED_AS)
            if isinstance(value, dataclasses.Field):
                raise OptionError(
                    "example_class",
                    f"declares {name} with feature(), so it needs the decorator "
                    "@dataclasses.dataclass",
                    cls.__name__,
                )
    if not found:
        raise OptionError(
            "example_class",
            "must declare what is stored, with @tfrecordable or feature()",
            cls.__name__,
        )
    return found


@_once_for_a_class
def encoder_of(cls: type[Example]) -> ClassEncoder:
    """Returns the encoder of a class."""
    return ClassEncoder(declared_fields(cls))


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
    try:
        with files.open_read(path) as file, decoded(file, path) as text:
            return [row for _, row in split_lines(text, path, ",")]
    except FileNotFoundError as error:
        raise InputError(f"{path} does not exist.") from error
