"""Serialises examples of a class, fast.

Records of one class differ in little more than the bytes of their arrays. What comes
before them in the record depends on their shapes alone, and is kept for the shapes that
occurred last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from beam_pipeline.errors import UnstorableAttribute
from beam_pipeline.examples.encoding import array_prefix, encode_entry
from beam_pipeline.examples.protobuf import varint
from beam_pipeline.examples.spec import INT64_LIST, FeatureSpec
from beam_pipeline.tfrecorder.fields import Field, UnstorableValue

# Pieces of an entry, and their length in bytes.
Entry = tuple[Sequence[Any], int]
Encode = Callable[[Any], Entry]

_KEPT = 1024


class RecordEncoder:
    """Serialises objects with the attributes that a class declares."""

    def __init__(self, declared: Mapping[str, Field]):
        self._declared = declared
        self._encoders = [
            (name, _encoder(declared[name], declared[name].specs(name)))
            for name in sorted(declared, key=str.encode)
        ]

    def encode(self, example: object) -> bytes:
        """Returns the ``tf.train.Example`` of an example, serialised.

        Equal values give equal bytes; features are in the order of their names.

        Raises
        ------
        UnstorableAttribute
            If a value is not of its declared type; it names class, attribute and both.
        """
        pieces: list[Any] = [b""]
        length = 0
        for name, encode in self._encoders:
            value = getattr(example, name)
            try:
                entry, size = encode(value)
            except UnstorableValue as error:
                where = f"{type(example).__name__}.{name}"
                problem = _problem(self._declared[name], value, error)
                raise UnstorableAttribute(where, problem) from error
            pieces += entry
            length += size
        pieces[0] = b"\x0a" + varint(length)
        return b"".join(pieces)


def _problem(field: Field, value: Any, error: UnstorableValue) -> str:
    problem = f"{error}, but it is declared as {field}"
    if value is None:
        return f"{problem}. Assign it in load(), or declare it with optional=True."
    if hasattr(value, "astype"):
        return f'{problem}. Convert it, for example with .astype("{field.dtype}").'
    return f"{problem}."


def _encoder(field: Field, specs: tuple[FeatureSpec, ...]) -> Encode:
    spec = specs[0]
    if spec.encoding == INT64_LIST:
        encode = _integer_encoder(field, spec)
    elif spec.shape == ():
        encode = _bytes_encoder(field, spec)
    else:
        encode = _array_encoder(field, specs)
    if not field.optional:
        return encode
    nothing: Entry = ((), 0)
    return lambda value: nothing if value is None else encode(value)


def _integer_encoder(field: Field, spec: FeatureSpec) -> Encode:
    # True and 1 are equal keys, but have the same entry, too.
    @lru_cache(maxsize=_KEPT)
    def known(value: int) -> Entry:
        entry = encode_entry(spec, int(field.encodable(value)))
        return (entry,), len(entry)

    def encode(value: Any) -> Entry:
        # 1.0 would be an equal key, and is not an integer.
        return known(value if type(value) is int else int(field.encodable(value)))

    return encode


def _bytes_encoder(field: Field, spec: FeatureSpec) -> Encode:
    """Encodes text, and numbers whose bytes are stored."""

    @lru_cache(maxsize=_KEPT)
    def prefix(payload: int) -> bytes:
        return array_prefix(spec, payload)

    def encode(value: Any) -> Entry:
        stored = field.encodable(value)
        content = stored if isinstance(stored, bytes) else stored.tobytes()
        before = prefix(len(content))
        return (before, content), len(before) + len(content)

    return encode


def _array_encoder(field: Field, specs: tuple[FeatureSpec, ...]) -> Encode:
    # No name of an attribute is between "a" and "a/shape": the entries are neighbours.
    @lru_cache(maxsize=_KEPT)
    def around(shape: tuple[int, ...], payload: int) -> tuple[bytes, bytes, int]:
        before = array_prefix(specs[0], payload)
        after = b"".join(encode_entry(spec, list(shape)) for spec in specs[1:])
        return before, after, len(before) + payload + len(after)

    stored = np.dtype(field.dtype).newbyteorder("<")

    def encode(value: Any) -> Entry:
        array = value
        if not (
            field.shape is None
            and type(value) is np.ndarray
            and value.dtype == stored
            and value.ndim
            and value.flags.c_contiguous
        ):
            array = field.encodable(value)
        before, after, length = around(array.shape, array.nbytes)
        return (before, array.data, after), length

    return encode
