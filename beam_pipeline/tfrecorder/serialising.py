"""Serialises examples of a class, fast.

Records of one class differ in little more than the bytes of their arrays. What comes
before them in the record depends on their shapes alone, and is kept for the shapes that
occurred last. The chunks of one example mostly have equal shapes and equal numbers:
then their records are the rows of one array of bytes.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from beam_pipeline.errors import UnstorableAttribute
from beam_pipeline.examples.encoding import array_prefix, encode_entry
from beam_pipeline.examples.protobuf import varint
from beam_pipeline.examples.spec import INT64_LIST, FeatureSpec
from beam_pipeline.storage.tfrecord import FramedRecords, frame_rows
from beam_pipeline.tfrecorder.fields import Field, UnstorableValue

# Pieces of an entry, and their length in bytes.
Entry = tuple[Sequence[Any], int]
Encode = Callable[[Any], Entry]

# Some records, and the values of their numeric features.
Encodings = tuple[Sequence[bytes] | FramedRecords, dict[str, Any]]

_KEPT = 1024
# From this number of equal records on, they are made together.
_FEW = 4


class RecordEncoder:
    """Serialises objects with the attributes that a class declares."""

    def __init__(self, declared: Mapping[str, Field]):
        self._declared = declared
        self._encoders = [
            (name, _encoder(declared[name], declared[name].specs(name)))
            for name in sorted(declared, key=str.encode)
        ]
        self._get = operator.attrgetter(*declared)
        specs = {name: field.specs(name)[0] for name, field in declared.items()}
        self._numeric = [name for name, s in specs.items() if s.dtype != "string"]
        self._shape_features = {
            name: s.shape_in for name, s in specs.items() if s.shape_in is not None
        }

    def _values(self, example: object) -> tuple[Any, ...]:
        found: Any = self._get(example)
        return found if len(self._declared) > 1 else (found,)

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

    def encode_all(self, examples: Sequence[object]) -> Iterator[Encodings]:
        """Yields the records of examples in their order, with their values.

        The values have a first axis for the examples. The bytes are those of
        :meth:`encode`.
        """
        if not examples:
            return
        several = len(self._declared) > 1
        rows = list(map(self._get if several else self._values, examples))
        columns = dict(zip(self._declared, zip(*rows, strict=True), strict=True))
        start = 0
        for length in self._equal_runs(columns) if len(rows) >= _FEW else ():
            stop = start + length
            if length >= _FEW:
                some = {name: of_all[start:stop] for name, of_all in columns.items()}
                yield self._rows(some)
            else:
                yield from map(self._one, examples[start:stop])
            start = stop
        yield from map(self._one, examples[start:])

    def _one(self, example: object) -> Encodings:
        record = self.encode(example)
        values = dict(zip(self._declared, self._values(example), strict=True))
        # Copies: a view would keep the array that it is part of.
        arrays = {
            name: np.array(values[name], self._declared[name].dtype)[np.newaxis]
            for name in self._numeric
            if values[name] is not None
        }
        return [record], self._with_shapes(arrays)

    def _with_shapes(self, arrays: dict[str, Any]) -> dict[str, Any]:
        for name, shape_in in self._shape_features.items():
            if name in arrays:
                arrays[shape_in] = np.array([arrays[name].shape[1:]], np.int64)
        return arrays

    def _equal_runs(self, columns: Mapping[str, Sequence[Any]]) -> Iterator[int]:
        """Yields how many neighbours differ only in the values of their arrays.

        Yields nothing if some values need a conversion, or if a number differs.
        """
        shapes = []
        for name, column in columns.items():
            field = self._declared[name]
            types = set(map(type, column))
            if len(types) > 1 or type(None) in types:
                return
            if field.shape == ():
                if types != {float} and any(value != column[0] for value in column):
                    return
                if types == {float} and len(set(column)) > 1:
                    return
                continue
            if types != {np.ndarray} or field.shape is not None:
                return
            dtypes = {array.dtype for array in column}
            if dtypes != {np.dtype(field.dtype)}:
                return
            shapes.append([array.shape for array in column])
        if any(() in of_field for of_field in shapes):
            return
        for _, group in itertools.groupby(zip(*shapes, strict=True)):
            yield sum(1 for _ in group)

    def _rows(self, columns: Mapping[str, Sequence[Any]]) -> Encodings:
        count = len(next(iter(columns.values())))
        arrays: dict[str, Any] = {}
        pieces: list[Any] = []
        length = 0
        for name, encode in self._encoders:
            column = columns[name]
            (before, *rest), size = encode(column[0])
            length += size
            if self._declared[name].shape == ():
                pieces += [before, *rest]
                if name in self._numeric:
                    value = np.asarray(column[0], self._declared[name].dtype)
                    arrays[name] = np.broadcast_to(value, (count,))
                continue
            stacked = np.concatenate(column).reshape(count, *column[0].shape)
            arrays[name] = stacked
            little = stacked.astype(stacked.dtype.newbyteorder("<"), copy=False)
            pieces += [before, little.reshape(count, -1).view(np.uint8), *rest[1:]]
        pieces.insert(0, b"\x0a" + varint(length))
        rows = np.empty((count, length + len(pieces[0])), np.uint8)
        at = 0
        for piece in pieces:
            is_shared = isinstance(piece, bytes)
            values = np.frombuffer(piece, np.uint8) if is_shared else piece
            rows[:, at : at + values.shape[-1]] = values
            at += values.shape[-1]
        return frame_rows(rows), self._with_shapes(arrays)


def _problem(field: Field, value: Any, error: UnstorableValue) -> str:
    problem = f"{error}, but it is declared as {field}"
    if value is None:
        return f"{problem}. Assign it in load(), or declare it with optional=True."
    may_convert = getattr(value, "ndim", 0) and "array of shape" not in str(error)
    if may_convert and "does not fit" not in str(error):
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
