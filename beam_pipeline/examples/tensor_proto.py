"""Tensors as serialised ``tensorflow.TensorProto`` messages, without TensorFlow.

The bytes are those of ``tf.io.serialize_tensor``: numbers are the bytes of the array,
and texts are a list. The message of a float32 array of shape (2, 3) is::

    08 01                               dtype: the number of float32
    12 08  12 02 08 02  12 02 08 03     shape: a dimension of 2, a dimension of 3
    22 18  ...                          24 bytes, little-endian and in C order

``tf.make_tensor_proto`` may store numbers as a list instead, which is not read.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.examples.spec import numpy_dtype
from beam_pipeline.examples.wire import BYTES, FieldValue, read_fields, varint

_DTYPE, _SHAPE, _CONTENT, _STRINGS = 1, 2, 4, 8
# dtype -> its number in TensorFlow.
_NUMBERS = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "string": 7,
    "complex64": 8,
    "int64": 9,
    "bool": 10,
    "bfloat16": 14,
    "uint16": 17,
    "complex128": 18,
    "float16": 19,
    "uint32": 22,
    "uint64": 23,
}
_NAMES = {number: name for name, number in _NUMBERS.items()}

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
    shape = b"".join(map(_dimension, array.shape))
    head = b"\x08" + varint(_NUMBERS[name]) + _field(_SHAPE, shape)
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
    number, shape, content, texts = 0, list[int](), b"", list[bytes]()
    for field, value in read_fields(data):
        if field == _DTYPE and isinstance(value, int):
            number = value
        elif field == _SHAPE:
            shape += _read_shape(_as_bytes(value))
        elif field == _CONTENT:
            content = bytes(_as_bytes(value))
        elif field == _STRINGS:
            texts.append(bytes(_as_bytes(value)))
    name = _NAMES.get(number)
    if name is None:
        raise ValueError(f"the data are not a tensor of a known dtype: number {number}")
    if dtype is not None and name != dtype:
        raise ValueError(f"the tensor has the dtype {name}, not {dtype}")
    size = math.prod(shape)
    if name == "string":
        if len(texts) != size:
            raise ValueError(f"a tensor of {size} texts has {len(texts)}")
        strings = np.empty(size, object)
        strings[:] = texts
        return strings.reshape(shape)
    in_memory = numpy_dtype(name)
    if len(content) != size * in_memory.itemsize:
        raise ValueError(
            f"a tensor of dtype {name} and shape {tuple(shape)} has {len(content)} "
            f"bytes instead of {size * in_memory.itemsize}"
        )
    if name == "bool" and max(content, default=0) > 1:
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
    """Returns a new array of this dtype, in the order of bytes of this machine."""
    # As unsigned integers first: dtypes of ml_dtypes have no byte order to choose.
    width = min(dtype.itemsize, 8)
    if dtype.kind == "c":
        width = dtype.itemsize // 2
    return np.frombuffer(content, f"<u{width}").astype(f"u{width}").view(dtype)


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
