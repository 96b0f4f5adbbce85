"""Tensors as serialised ``tensorflow.TensorProto`` messages, without TensorFlow.

The encoder writes the bytes of ``tf.io.serialize_tensor``. The decoder reads what any
program may write: values of numbers are either the bytes of the array, or a list of
values for each dtype. A list that is too short repeats its last value. The message of
a float32 array of shape (2, 3) is::

    08 01                               dtype: the number of float32
    12 08  12 02 08 02  12 02 08 03     shape: a dimension of 2, a dimension of 3
    22 18  ...                          24 bytes, little-endian and in C order
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.examples.spec import numpy_dtype
from beam_pipeline.examples.wire import (
    BYTES,
    FIXED32,
    FIXED64,
    VARINT,
    FieldValue,
    read_fields,
    read_varint,
    varint,
)
from beam_pipeline.storage.gzip_members import too_long

_SHAPE, _CONTENT, _STRINGS = 2, 4, 8


class _Kind(NamedTuple):
    """A dtype's number in TensorFlow, and the field and wire type of its values."""

    number: int
    values: int
    wire: int


_KINDS = {
    "float32": _Kind(1, 5, FIXED32),
    "float64": _Kind(2, 6, FIXED64),
    "int32": _Kind(3, 7, VARINT),
    "uint8": _Kind(4, 7, VARINT),
    "int16": _Kind(5, 7, VARINT),
    "int8": _Kind(6, 7, VARINT),
    "string": _Kind(7, _STRINGS, BYTES),
    "complex64": _Kind(8, 9, FIXED32),
    "int64": _Kind(9, 10, VARINT),
    "bool": _Kind(10, 11, VARINT),
    "bfloat16": _Kind(14, 13, VARINT),
    "uint16": _Kind(17, 7, VARINT),
    "complex128": _Kind(18, 12, FIXED64),
    "float16": _Kind(19, 13, VARINT),
    "uint32": _Kind(22, 16, VARINT),
    "uint64": _Kind(23, 17, VARINT),
}
_NAMES = {kind.number: name for name, kind in _KINDS.items()}

DTYPES = tuple(_KINDS)


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
    if name not in _KINDS:
        raise TypeError(
            f"an array of dtype {array.dtype} cannot be a tensor; the dtypes are "
            f"{', '.join(DTYPES)}"
        )
    shape = b"".join(map(_dimension, array.shape))
    head = b"\x08" + varint(_KINDS[name].number) + _field(_SHAPE, shape)
    if array.size == 0:
        return head
    if name == "string":
        texts = map(_text_bytes, array.ravel().tolist())
        return head + b"".join([_field(_STRINGS, text) for text in texts])
    if array.dtype.byteorder == ">":
        array = array.astype(array.dtype.newbyteorder("<"))
    content = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
    return b"".join((head, _tag(_CONTENT), varint(len(content)), content))


def decode_tensor(data: bytes, dtype: str | None = None) -> npt.NDArray[Any]:
    """Returns the array in a serialised ``tensorflow.TensorProto``.

    The inverse of :func:`encode_tensor`, as ``tf.io.parse_tensor`` is of
    ``tf.io.serialize_tensor``.

    Parameters
    ----------
    dtype : str, optional
        The expected dtype, of :data:`DTYPES`. Default: any of them.

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
    number, shape, lists = 0, list[int](), dict[int, list[FieldValue]]()
    for field, value in read_fields(data):
        if field == 1 and isinstance(value, int):
            number = value
        elif field == _SHAPE and not isinstance(value, int):
            shape += _read_shape(value)
        else:
            lists.setdefault(field, []).append(value)
    name = _NAMES.get(number)
    if name is None:
        raise ValueError(f"the data are not a tensor of a known dtype: number {number}")
    if dtype is not None and name != dtype:
        raise ValueError(f"the tensor has the dtype {name}, not {dtype}")
    size = math.prod(shape)
    content = bytes(_last_bytes(lists.get(_CONTENT, [])))
    if name == "string":
        return _string_array(content, lists.get(_STRINGS, []), size).reshape(shape)
    in_memory = numpy_dtype(name)
    if not content:
        values = _read_values(name, lists.get(_KINDS[name].values, []), in_memory)
        return _repeat_last(values, size).reshape(shape)
    if len(content) != size * in_memory.itemsize:
        raise ValueError(
            f"a tensor of dtype {name} and shape {tuple(shape)} has {len(content)} "
            f"bytes instead of {size * in_memory.itemsize}"
        )
    if name == "bool" and max(content) > 1:
        raise ValueError("a tensor of dtype bool holds a byte that is neither 0 nor 1")
    return _from_little_endian(content, in_memory).reshape(shape)


def _tag(field: int) -> bytes:
    return varint(field << 3 | BYTES)


def _field(field: int, content: bytes) -> bytes:
    return _tag(field) + varint(len(content)) + content


def _dimension(length: int) -> bytes:
    # Protobuf leaves out a number that is 0.
    return _field(2, b"\x08" + varint(length) if length else b"")


def _text_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes):
        raise TypeError(
            f"an object array must hold bytes or str to be a tensor; got {value!r}"
        )
    return value


def _from_little_endian(content: bytes, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    # As unsigned integers first: dtypes of ml_dtypes have no byte order to choose.
    width = min(dtype.itemsize, 8)
    if dtype.kind == "c":
        width = dtype.itemsize // 2
    return np.frombuffer(content, f"<u{width}").astype(f"u{width}").view(dtype)


def _read_values(
    name: str, chunks: Sequence[FieldValue], dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
    """Returns the values in the list of a dtype, packed by the writer or not."""
    if _KINDS[name].wire != VARINT:
        content = b"".join([bytes(_as_bytes(chunk)) for chunk in chunks])
        if len(content) % dtype.itemsize:
            raise ValueError(f"{len(content)} bytes are no whole values of {name}")
        return _from_little_endian(content, dtype)
    numbers = list[int]()
    for chunk in chunks:
        if isinstance(chunk, int):
            numbers.append(chunk)
            continue
        at = 0
        while at < len(chunk):
            number, at = read_varint(chunk, at)
            numbers.append(number)
    words: npt.NDArray[Any] = np.array(numbers, np.uint64)
    if name == "bool":
        words = words != 0
    return words.astype(f"u{dtype.itemsize}").view(dtype)


def _string_array(
    content: bytes, chunks: Sequence[FieldValue], size: int
) -> npt.NDArray[np.object_]:
    texts = [bytes(_as_bytes(chunk)) for chunk in chunks]
    if content:  # the lengths of all texts, then all texts
        view, at, lengths = memoryview(content), 0, list[int]()
        for _ in range(size):  # each takes a byte at least, so this ends soon
            length, at = read_varint(view, at)
            lengths.append(length)
        if at + sum(lengths) != len(content):
            raise ValueError(f"{size} texts do not fill {len(content)} bytes")
        texts = []
        for length in lengths:
            texts.append(content[at : at + length])
            at += length
    values = np.empty(len(texts), object)
    values[:] = texts
    return _repeat_last(values, size)


def _repeat_last(values: npt.NDArray[Any], size: int) -> npt.NDArray[Any]:
    """Returns ``size`` values: the given ones, and the last of them repeated."""
    if len(values) > size:
        raise ValueError(f"a tensor of {size} values has {len(values)}")
    if len(values) == size:
        return values
    # One value may stand for an array of any size.
    problem = too_long(size * values.dtype.itemsize, values.nbytes)
    if problem is not None:
        raise ValueError(f"a tensor of {size} values has {len(values)}: {problem}")
    last: Any = b"" if values.dtype == object else values.dtype.type(0)
    filled = np.full(size, values[-1] if len(values) else last, values.dtype)
    filled[: len(values)] = values
    return filled


def _last_bytes(chunks: Sequence[FieldValue]) -> memoryview:
    return _as_bytes(chunks[-1]) if chunks else memoryview(b"")


def _as_bytes(value: FieldValue) -> memoryview:
    if isinstance(value, int):
        raise ValueError("a field of the tensor holds a number instead of bytes")
    return value


def _read_shape(message: memoryview) -> Iterator[int]:
    for field, dimension in read_fields(message):
        if field != 2:
            raise ValueError("the tensor's shape is unknown")
        length = 0
        for number, value in read_fields(_as_bytes(dimension)):
            if number == 1 and isinstance(value, int):
                length = value
        if length >> 63:
            raise ValueError(f"the tensor has a dimension of {length - (1 << 64)}")
        yield length
