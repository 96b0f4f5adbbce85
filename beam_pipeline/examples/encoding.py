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

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_pipeline.arrays import Array, numpy_dtype
from beam_pipeline.codecs import (
    BYTES_LIST,
    FLOAT_LIST,
    INT64_LIST,
    LISTS,
    ORIGINAL,
    RAW,
    round_to_half,
)
from beam_pipeline.errors import InputError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.storage.tfrecord import LONGEST_RECORD
from beam_pipeline.storage.wire import BYTES, length_delimited, varint

if TYPE_CHECKING:
    from beam_pipeline.examples.features import FeatureSet

# Of texts, and of lists without a known length: bytes and entries.
_TYPICAL = 64

# From this length on, numpy packs integers faster than a loop does.
_LONG_LIST = 48


class ExampleEncoder:
    """Serialises ``tf.train.Example`` messages with the given specs.

    With a sequence among the features, they are ``tf.train.SequenceExample``: a
    sequence is a list with one ``Feature`` for each step of its first axis; the other
    features are the context. ::

        SequenceExample   0A len Features, the context    12 len FeatureLists
        FeatureLists      0A len entry, for each feature, by key
        entry             0A len key, 12 len FeatureList
        FeatureList       0A len Feature, for each step
    """

    def __init__(self, specs: Iterable[FeatureSpec]):
        ordered = sorted(specs, key=lambda spec: spec.name.encode())
        self._specs = [spec for spec in ordered if not spec.sequence]
        self._steps = [spec for spec in ordered if spec.sequence]

    def encode(self, count: int, columns: Mapping[str, Any]) -> list[bytes]:
        """Serialises ``count`` examples.

        Parameters
        ----------
        columns : mapping
            For each feature, an array of shape ``(count, *spec.shape)``; or one number,
            text, tuple of them, or array of shape ``spec.shape`` that all examples
            share; or a list with one array for each example, where None leaves the
            feature out.

        Returns
        -------
        list of bytes
            Equal values give equal bytes.

        Raises
        ------
        InputError
            If an encoding cannot hold a value; see
            :mod:`beam_pipeline.codecs`.
        """
        if count == 0:
            return []
        constant = bytearray()
        parts: list[Iterable[bytes | memoryview]] = []
        length = [0] * count
        total = 0
        for spec in self._specs:
            value = columns[spec.name]
            if not isinstance(value, np.ndarray | list) or (
                isinstance(value, np.ndarray) and value.shape == spec.shape != ()
            ):
                constant += encode_entry(spec, value)
                continue
            parts.append(repeat(bytes(constant)))
            total += len(constant)
            constant.clear()
            if isinstance(value, np.ndarray) and spec.codec.is_array:
                arrays = _rows(_as_stored(spec, value), count)
                payload = arrays[0].nbytes
                prefix = array_prefix(spec, payload)
                parts += [repeat(prefix), arrays]
                total += len(prefix) + payload
                continue
            rows = value if isinstance(value, list) else list(value)
            entries = [b"" if row is None else encode_entry(spec, row) for row in rows]
            parts.append(entries)
            length = [n + len(entry) for n, entry in zip(length, entries, strict=True)]
        total += len(constant)
        heads = [b"\x0a" + varint(total + n) for n in length]
        records = list(map(b"".join, zip(heads, *parts, repeat(bytes(constant)))))
        for k in range(count if self._steps else 0):
            records[k] += self._feature_lists(columns, k)
        return records

    def _feature_lists(self, columns: Mapping[str, Any], number: int) -> bytes:
        """Returns the sequences of one example, which follow its context."""
        entries = [
            _steps_entry(spec, values)
            for spec in self._steps
            if (values := columns[spec.name][number]) is not None
        ]
        return length_delimited(2, b"".join(entries))


def encode_entry(spec: FeatureSpec, value: Any) -> bytes:
    """Returns the entry of one feature of one example.

    ``value`` is a number, a text, an array, or a list or a tuple of numbers or texts.
    """
    if isinstance(value, tuple):
        value = list(value)
    content = _list_content(spec, value)
    return _open_entry(spec.name, spec.stored_in, len(content)) + content


def _list_content(spec: FeatureSpec, value: Any) -> bytes:
    """Returns the content of the list of a feature, after its length."""
    if spec.encoding == INT64_LIST:
        return length_delimited(1, pack_varints(value))
    if spec.encoding == FLOAT_LIST:
        return length_delimited(1, np.asarray(value, np.float32).tobytes())
    texts: Sequence[Any]
    if spec.encoding in (BYTES_LIST, ORIGINAL):
        texts = value.ravel().tolist() if isinstance(value, np.ndarray) else value
        texts = texts if isinstance(texts, list) else [texts]
    else:
        array = np.asarray(value, numpy_dtype(spec.dtype))
        if spec.codec.is_array:
            texts = [_as_stored(spec, array).tobytes()]
        else:
            texts = [spec.codec.encode(spec.name, array, spec.rate_hz)]
    encoded = [t.encode() if isinstance(t, str) else t for t in texts]
    return b"".join([length_delimited(1, text) for text in encoded])


def check_lengths(records: Iterable[bytes]) -> None:
    """Raises InputError if an example is longer than a message of protobuf may be."""
    longest = max(map(len, records), default=0)
    if longest >= LONGEST_RECORD:
        raise InputError(
            f"An example has {longest} bytes, but must have less than "
            f"{LONGEST_RECORD}. Record shorter windows, or fewer features."
        )


def _steps_entry(spec: FeatureSpec, values: Any) -> bytes:
    kind = LISTS[spec.stored_in].field
    features = b"".join(
        length_delimited(1, length_delimited(kind, _list_content(spec, step)))
        for step in values
    )
    key = length_delimited(1, spec.name.encode())
    return length_delimited(1, key + length_delimited(2, features))


def example_bytes(features: FeatureSet) -> int:
    """Returns the length of a serialised example whose texts are 64 bytes long.

    Lists of any length that a table brings count as lists of 64 values.
    An image counts as its pixels and FLAC as its samples, uncompressed: how far they
    are compressed depends on their content. An example that is a whole clip counts as
    a typical clip.
    """
    columns: dict[str, Any] = {}
    specs = [
        replace(spec, encoding=RAW) if spec.codec.is_file else spec
        for spec in features.specs.values()
    ]
    for spec in specs:
        typical = [_TYPICAL if n is None else n for n in spec.shape or ()]
        sizes = features.typical.get(spec.name, typical)
        if spec.is_text:
            columns[spec.name] = np.full((1, *sizes), "x" * _TYPICAL, object)
        elif spec.name in features.made or spec.shape:
            columns[spec.name] = np.zeros((1, *sizes), spec.dtype)
        else:
            columns[spec.name] = 1 << 20
    return len(ExampleEncoder(specs).encode(1, columns)[0])


def _as_stored(spec: FeatureSpec, values: Array) -> Array:
    """Returns values with the dtype that they have in a file.

    Their bytes are in the order of this machine: little-endian, as TensorFlow's.
    """
    dtype = numpy_dtype(spec.stored_dtype)
    if spec.codec.stored_dtype:
        return round_to_half(spec.name, values, dtype)
    return values.astype(dtype, copy=False)


def _rows(values: Array, count: int) -> list[memoryview]:
    """Returns each example's array as bytes, if possible uncopied."""
    if values.ndim == 2 and values.strides[1] == values.itemsize:
        # Overlapping windows are rows of a view; each row is contiguous.
        return [values[i].view(np.uint8).data for i in range(count)]
    flat = np.ascontiguousarray(values).reshape(count, -1).view(np.uint8)
    view, size = flat.reshape(-1).data, flat.shape[1]
    return [view[i * size : (i + 1) * size] for i in range(count)]


def array_prefix(spec: FeatureSpec, payload: int) -> bytes:
    """Returns the part of an entry before the bytes of its array."""
    values = b"\x0a" + varint(payload)
    return _open_entry(spec.name, spec.stored_in, len(values) + payload) + values


@lru_cache(maxsize=4096)
def _open_entry(name: str, stored_in: str, list_length: int) -> bytes:
    """Returns the beginning of an entry, the length of its list included."""
    feature = bytes((LISTS[stored_in].field << 3 | BYTES,)) + varint(list_length)
    value = b"\x12" + varint(len(feature) + list_length) + feature
    body = length_delimited(1, name.encode())
    entry_length = len(body) + len(value) + list_length
    return b"\x0a" + varint(entry_length) + body + value


def pack_varints(values: Any) -> bytes:
    """Returns integers as protobuf packs them: in two's complement of 64 bits.

    Parameters
    ----------
    values : int, bool, list of them, or numpy.ndarray
    """
    if not isinstance(values, np.ndarray):
        numbers = values if isinstance(values, list) else [values]
        return b"".join([varint(int(v) & 0xFFFFFFFFFFFFFFFF) for v in numbers])
    if values.size < _LONG_LIST:
        return pack_varints(values.ravel().tolist())
    wide = values.ravel().astype(np.int64).view(np.uint64)
    # Seven bits a byte, from the lowest on; all but the last have the eighth bit.
    sevens = wide[:, np.newaxis] >> np.arange(0, 64, 7, dtype=np.uint64)
    is_kept, is_followed = (sevens[:, k:] > 0 for k in (0, 1))
    is_kept[:, 0] = True
    packed = (sevens & np.uint64(0x7F)).astype(np.uint8)
    packed[:, :-1] |= is_followed.astype(np.uint8) << 7
    return packed[is_kept].tobytes()
