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

from beam_pipeline.examples.array_bytes import object_array
from beam_pipeline.examples.spec import numpy_dtype
from beam_pipeline.examples.wire import length_delimited, message, read_fields, varint

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


def decode_tensor(data: bytes, dtype: str) -> npt.NDArray[Any]:
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
