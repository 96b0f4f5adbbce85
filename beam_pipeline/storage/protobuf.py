"""The wire format of protobuf: of tensors, and features taken out of examples.

An example is a map of features on the wire, an entry for each::

    Example            1: Features
    SequenceExample    1: Features, the context    2: FeatureLists
    Features           1: entry, for each feature
    FeatureLists       1: entry, for each feature
    entry              1: key                      2: value

A tensor has the bytes of ``tf.io.serialize_tensor``: numbers are the bytes of the
array, and texts are a list. The message of a float32 array of shape (2, 3) is::

    08 01                               dtype: the number of float32
    12 08  12 02 08 02  12 02 08 03     shape: a dimension of 2, a dimension of 3
    22 18  ...                          24 bytes, little-endian and in C order

``tf.make_tensor_proto`` may store numbers as a list instead, which is not read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.arrays import Array, numpy_dtype, object_array

# The wire types: how long the value of a field is.
VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5
_WIDTHS = {FIXED64: 8, FIXED32: 4}

# An integer for VARINT, or the bytes of any other wire type.
FieldValue = int | memoryview


def varint(value: int) -> bytes:
    """Returns a protobuf variable-length integer."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def length_delimited(number: int, content: bytes | memoryview) -> bytes:
    """Returns a field that holds bytes: its tag, their length, and them."""
    return b"".join(
        (bytes((number << 3 | LENGTH_DELIMITED,)), varint(len(content)), content)
    )


def read_fields(data: bytes | memoryview) -> Iterator[tuple[int, FieldValue]]:
    """Yields the number and the value of each field of a message.

    Raises
    ------
    ValueError
        If the data are not a message, or end inside a field.
    """
    view, at = memoryview(data), 0
    while at < len(view):
        tag, at = read_varint(view, at)
        wire = tag & 7
        if wire == VARINT:
            number, at = read_varint(view, at)
            yield tag >> 3, number
            continue
        if wire == LENGTH_DELIMITED:
            width, at = read_varint(view, at)
        elif wire in _WIDTHS:
            width = _WIDTHS[wire]
        else:
            raise ValueError(f"not a protobuf message: wire type {wire}")
        if at + width > len(view):
            raise ValueError("the protobuf message ends early")
        yield tag >> 3, view[at : at + width]
        at += width


def read_varint(view: bytes | memoryview, at: int) -> tuple[int, int]:
    """Returns the integer at a position, unsigned of 64 bits, and the position after.

    Raises
    ------
    ValueError
        If there is none.
    """
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(view):
            raise ValueError("the protobuf message ends early")
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise ValueError("not a protobuf message: a number has more than 10 bytes")


_FEATURES, _FEATURE_LISTS = 1, 2
_ENTRY, _KEY, _VALUE = 1, 1, 2


def message(value: FieldValue) -> memoryview:
    """Returns the bytes of a field; a ValueError if it is a number."""
    if isinstance(value, int):
        raise ValueError("not a tf.train.Example: a number instead of a message")
    return value


def entry_parts(entry: memoryview) -> tuple[bytes, memoryview]:
    """Returns the key and the value of an entry; without them, they are empty."""
    parts = dict(read_fields(entry))  # of several, the last one counts
    key, value = (parts.get(field, memoryview(b"")) for field in (_KEY, _VALUE))
    return bytes(message(key)), message(value)


def example_features(record: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Yields (key, ``Feature``) of an example, or of the context of a sequence."""
    return _entries_of(record, _FEATURES)


def feature_lists(record: bytes) -> Iterator[tuple[bytes, list[memoryview]]]:
    """Yields (key, the ``Feature`` of each step) of a ``SequenceExample``."""
    for key, steps in _entries_of(record, _FEATURE_LISTS):
        yield key, [message(v) for f, v in read_fields(steps) if f == _ENTRY]


def _entries_of(record: bytes, wanted: int) -> Iterator[tuple[bytes, memoryview]]:
    for field, features in read_fields(record):
        if field == wanted:
            for number, entry in read_fields(message(features)):
                if number == _ENTRY:
                    yield entry_parts(message(entry))


def keep_features(record: bytes, names: Collection[bytes]) -> bytes:
    """Returns an example with only the features that have these names.

    Parameters
    ----------
    record : bytes
        A serialised ``tf.train.Example`` or ``tf.train.SequenceExample``.
    names : collection of bytes
        The names, as UTF-8. The record may lack them.

    Raises
    ------
    ValueError
        If the record is no such message.
    """
    return _rewritten(record, lambda name, entry: entry if name in names else b"")


def replace_features(record: bytes, entries: Mapping[bytes, bytes]) -> bytes:
    """Returns an example with other values of some features.

    All other features keep their bytes. A feature that the example lacks is not added.

    Parameters
    ----------
    record : bytes
        See :func:`keep_features`.
    entries : mapping
        Names, as UTF-8, to entries as of :func:`.encode_entry`.

    Raises
    ------
    ValueError
        If the record is no such message.
    """
    return _rewritten(record, lambda name, entry: entries.get(name, entry))


def _rewritten(record: bytes, rewrite: Callable[[bytes, bytes], bytes]) -> bytes:
    """Returns an example with what a function gives for the name and entry of each."""
    made: list[bytes] = []
    for field, value in read_fields(record):
        if field not in (_FEATURES, _FEATURE_LISTS):
            continue
        entries = []
        for number, found in read_fields(message(value)):
            if number == _ENTRY:
                entry = message(found)
                whole = length_delimited(_ENTRY, entry)
                entries.append(rewrite(entry_parts(entry)[0], whole))
        made.append(length_delimited(field, b"".join(entries)))
    return b"".join(made)


# Tensors

_DTYPE, _SHAPE, _DIMENSION, _CONTENT, _STRINGS = 1, 2, 2, 4, 8
# dtype -> its number in TensorFlow.
_NUMBERS = {
    "float32": 1, "float64": 2, "int32": 3, "uint8": 4, "int16": 5, "int8": 6,
    "string": 7, "complex64": 8, "int64": 9, "bool": 10, "bfloat16": 14, "uint16": 17,
    "complex128": 18, "float16": 19, "uint32": 22, "uint64": 23,
}  # fmt: skip

DTYPES = tuple(_NUMBERS)


def encode_tensor(array: npt.ArrayLike) -> bytes:
    """Serialises an array as a ``tensorflow.TensorProto``.

    Parameters
    ----------
    array : array_like
        Of any shape and a dtype of :data:`DTYPES`. Arrays of texts, and object arrays
        of ``bytes`` and ``str``, become string tensors; ``str`` is stored as UTF-8.

    Returns
    -------
    bytes
        Equal to ``tf.io.serialize_tensor(array)``.

    Raises
    ------
    TypeError
        If TensorFlow has no dtype for the array, or an object is not a text.
    """
    given, array = array, np.asarray(array)
    if array.dtype.kind in "SU" and not isinstance(given, np.ndarray):
        # Arrays of numpy's own texts drop zero bytes at the end of a text.
        array = np.array(given, object)
    name = "string" if array.dtype.kind in "OSUT" else array.dtype.name
    if name not in _NUMBERS:
        raise TypeError(
            f"an array of dtype {array.dtype} cannot be a tensor; the dtypes are "
            f"{', '.join(DTYPES)}"
        )
    # Protobuf leaves out a number that is 0.
    sizes = [b"\x08" + varint(n) if n else b"" for n in array.shape]
    shape = b"".join([length_delimited(_DIMENSION, size) for size in sizes])
    head = b"\x08" + varint(_NUMBERS[name]) + length_delimited(_SHAPE, shape)
    if array.size == 0:
        return head
    if name == "string":
        texts = map(_text_bytes, array.ravel().tolist())
        return head + b"".join([length_delimited(_STRINGS, text) for text in texts])
    return head + length_delimited(
        _CONTENT, array.astype(numpy_dtype(name), copy=False).tobytes()
    )


def decode_tensor(data: bytes, dtype: str) -> Array:
    """Returns the array in a serialised ``tensorflow.TensorProto``.

    The inverse of :func:`encode_tensor`, as ``tf.io.parse_tensor`` is of
    ``tf.io.serialize_tensor``.

    Parameters
    ----------
    dtype : str
        The expected dtype, of :data:`DTYPES`.

    Returns
    -------
    numpy.ndarray
        A new array. String tensors become object arrays of ``bytes``.

    Raises
    ------
    ValueError
        If the data are not a TensorProto of this dtype, or have too few or too many
        bytes for its shape.
    """
    number, shape, content, texts = 0, list[int](), b"", list[bytes]()
    for field, value in read_fields(data):
        if field == _DTYPE and isinstance(value, int):
            number = value
        elif field == _SHAPE:
            shape += _read_shape(message(value))
        elif field == _CONTENT:
            content = bytes(message(value))
        elif field == _STRINGS:
            texts.append(bytes(message(value)))
    if number != _NUMBERS[dtype]:
        named = [name for name, of in _NUMBERS.items() if of == number]
        found = named[0] if named else f"of the unknown number {number}"
        raise ValueError(f"the tensor has the dtype {found}, not {dtype}")
    size, kind = math.prod(shape), numpy_dtype(dtype)
    held, wanted, what = len(content), size * kind.itemsize, "bytes"
    if dtype == "string":
        held, wanted, what = len(texts), size, "texts"
    if held != wanted:
        raise ValueError(
            f"a tensor of dtype {dtype} and shape {tuple(shape)} has {held} {what} "
            f"instead of {wanted}"
        )
    if dtype != "string":
        return np.frombuffer(content, kind).reshape(shape).copy()
    return object_array(texts).reshape(shape)


def _text_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes):
        raise TypeError(
            f"an object array must hold bytes or str to be a tensor; got {value!r}"
        )
    return value


def _read_shape(shape: memoryview) -> Iterator[int]:
    for field, dimension in read_fields(shape):
        if field != _DIMENSION:
            raise ValueError("the tensor's shape is unknown")
        length = dict(read_fields(message(dimension))).get(1, 0)
        yield length if isinstance(length, int) else -1
