"""Converts features to serialised ``tf.train.Example`` messages, and back.

The encoder writes protobuf itself. Most of an example is one array, whose protobuf form
is a constant prefix and the array's own bytes, so it costs one copy for each window.
Entries are in key order, so equal values give equal bytes in any process.
An ``Example { features { feature { key: "fs" value { int64_list {...} } } } }`` is::

    0A len Features                     0A len entry, for each feature, by key
           entry                        0A len key, 12 len Feature
           Feature                      0A BytesList | 12 FloatList | 1A Int64List, len
           FloatList, Int64List         0A len packed values
           BytesList                    0A len bytes, for each value
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.examples.features import FeatureSet
from beam_pipeline.examples.spec import (
    BYTES_LIST,
    FLOAT_LIST,
    INT64_LIST,
    RAW,
    FeatureSpec,
)


class ExampleEncoder:
    """Serialises ``tf.train.Example`` messages with the given specs."""

    def __init__(self, specs: Iterable[FeatureSpec]):
        self._specs = sorted(specs, key=lambda spec: spec.name.encode())

    def encode(self, count: int, columns: Mapping[str, Any]) -> list[bytes]:
        """Serialises ``count`` examples.

        Parameters
        ----------
        columns : mapping
            For each feature, either an array of shape ``(count, *spec.shape)``, or one
            number, text or array of shape ``spec.shape`` that all examples share.

        Returns
        -------
        list of bytes
            Equal values give equal bytes.
        """
        if count == 0:
            return []
        constant = bytearray()
        parts: list[bytes | list[bytes] | list[memoryview]] = []
        length = [0] * count
        total = 0
        for spec in self._specs:
            value = columns[spec.name]
            if not isinstance(value, np.ndarray) or value.shape == spec.shape != ():
                constant += _shared_entry(spec, value)
                continue
            if spec.encoding in (FLOAT_LIST, RAW):
                arrays = _rows(value, count)
                payload = arrays[0].nbytes
                constant += _array_prefix(spec, payload)
                parts += [bytes(constant), arrays]
                total += len(constant) + payload
                constant.clear()
                continue
            rows = np.asarray(value).reshape(count, -1).tolist()
            entries = [_entry(spec, row) for row in rows]
            parts += [bytes(constant), entries]
            total += len(constant)
            constant.clear()
            length = [n + len(entry) for n, entry in zip(length, entries, strict=True)]
        parts.append(bytes(constant))
        total += len(constant)
        return [
            b"".join(
                [
                    b"\x0a" + varint(total + length[i]),
                    *(p if isinstance(p, bytes) else p[i] for p in parts),
                ]
            )
            for i in range(count)
        ]


def _shared_entry(spec: FeatureSpec, value: Any) -> bytes:
    """Returns the entry of a value that all examples share."""
    if spec.encoding == FLOAT_LIST:
        payload = np.asarray(value, "<f4").tobytes()
        return _array_prefix(spec, len(payload)) + payload
    values = value.tolist() if isinstance(value, np.ndarray) else [value]
    return _entry(spec, values)


def example_bytes(features: FeatureSet) -> int:
    """Returns the length of a serialised example whose texts are 64 bytes long."""
    columns: dict[str, Any] = {}
    for spec in features.specs.values():
        if spec.dtype == "string":
            columns[spec.name] = "x" * 64
        elif spec.name in features.transforms or spec.shape:
            columns[spec.name] = np.zeros((1, *spec.shape), spec.dtype)
        else:
            columns[spec.name] = 1 << 20
    return len(ExampleEncoder(features.specs.values()).encode(1, columns)[0])


def _rows(values: npt.NDArray[Any], count: int) -> list[memoryview]:
    """Returns each example's array as little-endian bytes, if possible uncopied."""
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    if little.ndim == 2 and little.strides[1] == little.itemsize:
        # Overlapping windows are rows of a view; each row is contiguous.
        return [little[i].view(np.uint8).data for i in range(count)]
    flat = np.ascontiguousarray(little).reshape(count, -1).view(np.uint8)
    return [flat[i].data for i in range(count)]


_FIELD = {BYTES_LIST: b"\x0a", RAW: b"\x0a", FLOAT_LIST: b"\x12", INT64_LIST: b"\x1a"}


def _array_prefix(spec: FeatureSpec, payload: int) -> bytes:
    """Returns the part of an entry before the bytes of its array."""
    values = b"\x0a" + varint(payload)
    return _open_entry(spec.name, spec.encoding, len(values) + payload) + values


@lru_cache(maxsize=4096)
def _open_entry(name: str, encoding: str, list_length: int) -> bytes:
    """Returns the beginning of an entry, the length of its list included."""
    key = name.encode()
    feature = _FIELD[encoding] + varint(list_length)
    value = b"\x12" + varint(len(feature) + list_length) + feature
    body = b"\x0a" + varint(len(key)) + key
    entry_length = len(body) + len(value) + list_length
    return b"\x0a" + varint(entry_length) + body + value


def _entry(spec: FeatureSpec, values: Sequence[Any]) -> bytes:
    """Returns a whole entry with a few values."""
    if spec.encoding == INT64_LIST:
        # Two's complement in 64 bits, as protobuf writes negative numbers.
        packed = b"".join([varint(int(v) & 0xFFFFFFFFFFFFFFFF) for v in values])
        content = b"\x0a" + varint(len(packed)) + packed
    else:
        texts = [v.encode() if isinstance(v, str) else v for v in values]
        content = b"".join([b"\x0a" + varint(len(t)) + t for t in texts])
    return _open_entry(spec.name, spec.encoding, len(content)) + content


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


def decode_examples(
    records: Sequence[bytes], specs: Mapping[str, FeatureSpec]
) -> list[dict[str, Any]]:
    """Returns examples as dicts of numpy arrays and texts, without TensorFlow.

    The inverse of :meth:`ExampleEncoder.encode`. tfx-bsl parses the records.

    Raises
    ------
    ValueError
        If a record is not a ``tf.train.Example``, lacks a feature, or holds a feature
        with another type or shape than its spec has.
    """
    from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

    if not records:
        return []
    try:
        batch = ExamplesToRecordBatchDecoder().DecodeBatch(list(records))
    except RuntimeError as error:
        raise ValueError(f"records are not tf.train.Examples: {error}") from error
    columns = {name: batch.column(i) for i, name in enumerate(batch.schema.names)}
    for name, spec in specs.items():
        column = columns.get(name)
        if column is None or column.null_count:
            raise ValueError(f"a record lacks feature {name}")
        found = str(column.type.value_type)
        if not found.endswith(_ARROW_TYPES[spec.encoding]):
            raise ValueError(
                f"feature {name} is stored as {found}, but its spec says "
                f"{spec.encoding}"
            )
    decoders = {name: _DECODERS[spec.encoding] for name, spec in specs.items()}
    return [
        {name: decoders[name](specs[name], columns[name], i) for name in specs}
        for i in range(len(records))
    ]


def _decode_numbers(spec: FeatureSpec, column: Any, i: int) -> Any:
    values = column[i].values.to_numpy(zero_copy_only=False)
    return values.astype(spec.dtype, copy=False).reshape(spec.shape)[()]


def _decode_text(spec: FeatureSpec, column: Any, i: int) -> str:
    (value,) = column[i].as_py()
    return str(value.decode(errors="backslashreplace"))


def _decode_raw(spec: FeatureSpec, column: Any, i: int) -> npt.NDArray[Any]:
    (value,) = column[i].as_py()
    little = np.dtype(spec.dtype).newbyteorder("<")
    return np.frombuffer(value, little).astype(spec.dtype).reshape(spec.shape)


# The ends of the type names of tfx-bsl's columns; some versions say large_binary.
_ARROW_TYPES = {
    FLOAT_LIST: "float",
    INT64_LIST: "int64",
    BYTES_LIST: "binary",
    RAW: "binary",
}
_DECODERS: Mapping[str, Callable[[FeatureSpec, Any, int], Any]] = {
    FLOAT_LIST: _decode_numbers,
    INT64_LIST: _decode_numbers,
    BYTES_LIST: _decode_text,
    RAW: _decode_raw,
}
