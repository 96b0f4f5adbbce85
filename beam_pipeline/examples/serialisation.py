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

The parser knows what comes next, because entries are in key order. Before an array of a
known size, all bytes are known, too: they are found and compared at once. The entries
between such arrays, texts and few numbers, often repeat as a whole, and each of them
more often, so what was parsed once is looked up after that. Images and tensors are not:
their arrays are given out as they are. Records of other writers, in any order, are
walked entry by entry. ::

    0A len Features | 0A len entry "class" ... | 0A len entry "signal" .......... | ...
                      a run: looked up         found     the array, in its place
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, lru_cache
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from beam_pipeline.arrays import BYTES, Array, Keys, numpy_dtype, object_array
from beam_pipeline.encodings import (
    BYTES_LIST,
    FLOAT_LIST,
    INT64_LIST,
    LISTS,
    ORIGINAL,
    RAW,
    round_to_half,
)
from beam_pipeline.errors import AudioTFRecordsError, InputError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.storage.protobuf import (
    LENGTH_DELIMITED,
    FieldValue,
    entry_parts,
    example_features,
    feature_lists,
    length_delimited,
    message,
    read_fields,
    read_varint,
    varint,
)
from beam_pipeline.storage.tfrecord import LONGEST_RECORD
from beam_pipeline.text import shown

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
            :mod:`beam_pipeline.encodings`.
        """
        if count == 0:
            return []
        parts: list[Iterable[bytes | memoryview]] = []
        length = [0] * count
        total = 0
        for spec in self._specs:
            value = columns[spec.name]
            if not isinstance(value, np.ndarray | list) or (
                isinstance(value, np.ndarray) and value.shape == spec.shape != ()
            ):
                entry = encode_entry(spec, value)
                parts.append(repeat(entry))
                total += len(entry)
                continue
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
        heads = [b"\x0a" + varint(total + n) for n in length]
        records = list(map(b"".join, zip(heads, *parts, strict=False)))
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
    kind = LISTS[stored_in].field << 3 | LENGTH_DELIMITED
    feature = varint(kind) + varint(list_length)
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


# What is raised for values that do not fit their spec.
UNFIT = (ValueError, TypeError, AudioTFRecordsError)

_LISTS = {each.field: name for name, each in LISTS.items()}


class EntryParser:
    """Reads one feature of an example.

    The stored form of a value, which ``single`` turns into the value, is:

    - ``float_list``, ``raw`` and half precision: a flat array that is a view of the
      record;
    - ``int8`` and other codecs that do not hold the shape: a flat array;
    - ``int64_list``: an int if the shape is (), otherwise a flat array;
    - ``bytes_list``: a text if the shape is (), otherwise a flat object array;
    - ``tensor`` and files (``is_decoded``) and the steps of a sequence: the value
      itself, which the caller gets, so that it must not be kept.

    Attributes
    ----------
    count : int
        The number of values, if the shape is fixed.
    dtype, little : numpy.dtype
        In memory, and as stored: in little-endian order.
    is_row : bool
        Whether the values go into the rows of a batch as they are.
    is_value : bool
        Whether the stored form is the value.
    is_wanted : bool
        Whether a parser gives the feature out.
    key, prefix : bytes
        How its entry begins, after the length of the entry; and all of an entry before
        an array of a known size, which is empty for others.
    payload : int
        The bytes of that array.
    table : dict
        The stored form of short entries, by their bytes.
    """

    def __init__(self, spec: FeatureSpec, is_wanted: bool = True):
        self.spec = spec
        self.is_wanted, self.is_optional = is_wanted, spec.optional
        self.key = length_delimited(1, spec.name.encode())
        self.table: dict[bytes, Any] = {}
        self.dtype = numpy_dtype(spec.dtype)
        self.little = numpy_dtype(spec.stored_dtype)
        self.count = math.prod(spec.sizes) if spec.has_fixed_shape else -1
        self.is_decoded = spec.codec.holds_shape
        is_array = spec.codec.is_array and not spec.sequence
        is_known = is_array and spec.has_fixed_shape
        self.payload = self.count * self.little.itemsize if is_known else 0
        self.prefix = array_prefix(spec, self.payload) if self.payload else b""
        is_text = spec.encoding == BYTES_LIST and spec.shape == ()
        self.is_value = spec.sequence or self.is_decoded or is_text
        is_list = spec.encoding in (INT64_LIST, BYTES_LIST)
        is_flat = not (is_list or self.is_decoded or spec.sequence)
        is_stacked = spec.has_fixed_shape and not spec.optional
        self.is_row = is_flat and is_stacked

    def read(self, found: Mapping[bytes, Any]) -> Any:
        """Returns the stored value in a record; None if an optional one is not there.

        Parameters
        ----------
        found : mapping
            The ``Feature`` of each key in the record; a list of them of a sequence.

        Raises
        ------
        ValueError
            If the feature is not there, or :meth:`value` raises.
        """
        name, value = self.spec.name, None
        feature = found.get(name.encode())
        if feature is not None:
            read = self._steps if self.spec.sequence else self.value
            try:
                value = read(feature)
            except UNFIT as error:
                raise ValueError(f"feature {name}: {error}") from error
        if value is None and not self.is_optional:
            return self._without_values()
        return value

    def value(self, feature: memoryview) -> Any:
        """Returns the stored value in a ``Feature``; None if there is none.

        Raises
        ------
        ValueError, TypeError, AudioTFRecordsError
            If the feature has another type or number of values than its spec says.
        """
        kind, contents = list_in(feature)
        if kind is None:
            return None
        if kind != self.spec.stored_in:
            raise ValueError(
                f"it is stored as {kind}, but its spec says {self.spec.encoding}"
            )
        values = [v for c in contents for field, v in read_fields(c) if field == 1]
        # Of a list of numbers, an empty part has no values.
        if kind != BYTES_LIST:
            values = [v for v in values if isinstance(v, int) or len(v)]
        if self.spec.optional and self.count > 0 and not values:
            return None
        spec = self.spec
        if spec.encoding == INT64_LIST:
            numbers = self._integers(values)
            return int(numbers[0]) if spec.shape == () else numbers
        if spec.encoding == FLOAT_LIST:
            return self._array(b"".join([message(v) for v in values]))
        return self._of_texts([bytes(message(value)) for value in values])

    def _of_texts(self, texts: Sequence[bytes]) -> Any:
        """Returns the stored form of the entries of a ``bytes_list``.

        Raises
        ------
        ValueError
            If their number is wrong, or they are not encoded as the spec says.
        """
        spec = self.spec
        if spec.encoding == BYTES_LIST:
            self._check_count(len(texts))
            found = object_array(texts) if spec.dtype == BYTES else _texts(texts)
            return found[0] if spec.shape == () else found
        if len(texts) != 1:
            if spec.optional and not texts:
                return None
            raise ValueError(
                f"it has {len(texts)} values instead of the bytes of one array"
            )
        if spec.codec.is_array:
            return self._array(texts[0])
        found = spec.codec.decode(texts[0], spec.dtype, spec.entry_shape)
        if not self.is_decoded:
            self._check_count(len(found))
        if found.dtype == object:
            return _texts(found.ravel().tolist()).reshape(found.shape)
        return found

    def _integers(self, values: Sequence[FieldValue]) -> Array:
        parts = [
            np.array([v], np.uint64) if isinstance(v, int) else unpack_varints(v)
            for v in values
        ]
        wide = np.concatenate([np.zeros(0, np.uint64), *parts]).view(np.int64)
        self._check_count(len(wide))
        with np.errstate(invalid="ignore"):
            numbers = wide.astype(self.dtype, copy=False)
        if np.any(numbers != wide):
            (first,) = wide[numbers != wide][:1]
            raise ValueError(f"{self.spec.dtype} cannot hold the value {first}")
        return numbers

    def _array(self, content: bytes) -> Any:
        if len(content) % self.little.itemsize:
            raise ValueError(
                f"{len(content)} bytes are not a whole number of {self.little.name} "
                "values"
            )
        self._check_count(len(content) // self.little.itemsize)
        return np.frombuffer(content, self.little)

    def _check_count(self, count: int) -> None:
        """Raises ValueError if the shape is fixed and has another number of values."""
        if self.count >= 0 and count != self.count and not self.spec.sequence:
            raise ValueError(
                f"it has {count} values, but its shape is {self.spec.shape}"
            )

    def _steps(self, features: Sequence[memoryview]) -> Any:
        """Returns the array of a sequence, from the ``Feature`` of each step."""
        found = [self.value(feature) for feature in features]
        if any(value is None for value in found):
            raise ValueError("a step has no values")
        sizes = [-1 if n is None else n for n in (self.spec.shape or (None,))[1:]]
        if not found:
            return np.zeros((0, *(max(n, 0) for n in sizes)), self.dtype)
        return np.stack([np.reshape(v, sizes) for v in found]).astype(self.dtype)

    def _without_values(self) -> Any:
        """Returns the stored form of a feature that is not in the record.

        Raises
        ------
        ValueError
            Unless the feature may have no values: other writers leave it out then.
        """
        spec = self.spec
        may_be_empty = spec.shape is None or None in spec.shape or 0 in spec.shape
        if not may_be_empty or self.is_decoded:
            raise ValueError(f"the record lacks feature {spec.name}")
        if spec.sequence:
            return self._steps(())
        return np.zeros(0, self.little)

    def single(self, stored: Any, shape: Any = None) -> Any:
        """Returns the value of one example, from its stored form.

        Arrays are copies that may be changed; numbers are numpy scalars. ``shape`` is
        the stored form of the feature ``shape_in``, if there is one.
        """
        spec = self.spec
        if self.is_value:
            return stored[()] if isinstance(stored, np.ndarray) else stored
        values = np.array(stored, self.dtype)
        if spec.shape == ():
            return values.ravel()[0]
        if self.payload:
            return values.reshape(spec.sizes)
        if shape is None:
            shape = [-1 if size is None else size for size in spec.shape or (None,)]
        try:
            return values.reshape([int(size) for size in shape])
        except ValueError as error:
            raise ValueError(f"feature {spec.name}: {error}") from error


def list_in(feature: memoryview) -> tuple[str | None, list[memoryview]]:
    """Returns which of the ``LISTS`` a ``Feature`` has, if any, and its contents."""
    kind, contents = 0, list[memoryview]()
    for field, content in read_fields(feature):
        if field in _LISTS:
            contents = [*(contents if field == kind else ()), message(content)]
            kind = field
    return _LISTS.get(kind), contents


def check_names(record: bytes, known: Collection[bytes]) -> None:
    """Raises ValueError if a record has an unknown feature, or a feature twice.

    A feature without a value may have any name.
    """
    names = [
        key for key, feature in example_features(record) if key in known or feature
    ]
    names += [key for key, _ in feature_lists(record)]
    for name, count in Counter(names).items():
        text = shown(name.decode(errors="backslashreplace"))
        if name not in known:
            raise ValueError(f"feature {text} is not among the known features")
        if count > 1:
            raise ValueError(f"feature {text} is there {count} times")


def _texts(values: Sequence[bytes]) -> Any:
    """Returns texts as an object array; what is not UTF-8 stays bytes."""
    found = object_array(values)
    for k, value in enumerate(values):
        with suppress(UnicodeDecodeError):
            found[k] = value.decode()
    return found


def unpack_varints(packed: Any) -> Keys:
    """Returns the integers in packed protobuf, the inverse of ``pack_varints``.

    Raises
    ------
    ValueError
        If the last one has no end, or one has more than 10 bytes.
    """
    if len(packed) < 16:
        numbers, at, view = [], 0, memoryview(packed)
        while at < len(view):
            number, at = read_varint(view, at)
            numbers.append(number)
        return np.array(numbers, np.uint64)
    data = np.frombuffer(packed, np.uint8)
    ends = np.flatnonzero(data < 0x80)
    if data[-1] >= 0x80:
        raise ValueError("a packed integer has no end")
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if lengths.max() > 10:
        raise ValueError("a packed integer has more than 10 bytes")
    shifts = 7 * (np.arange(len(data)) - np.repeat(starts, lengths))
    low = (data & np.uint8(0x7F)).astype(np.uint64) << shifts.astype(np.uint64)
    return np.bitwise_or.reduceat(low, starts)


# Longer entries and runs are parsed each time; a full table of them is emptied.
_LONG_ENTRY = 512
_LONG_RUN = 2048
_MOST_ENTRIES = 1 << 14

# What an example stores of each wanted feature, see EntryParser; None: nothing.
Stored = list[Any]


class _Run(NamedTuple):
    """Features in the writer's order, up to an array of a known size, if any.

    ``table`` has what is stored in runs of at most ``longest`` bytes.
    """

    steps: Sequence[EntryParser]
    array: EntryParser | None
    longest: int
    table: dict[bytes, Stored]


def _keep(table: dict[bytes, Any], content: bytes, stored: Any) -> None:
    """Keeps what is stored for these bytes; empties the table if it is full."""
    if len(table) >= _MOST_ENTRIES:
        table.clear()
    table[content] = stored


def _cut_runs(steps: Sequence[EntryParser]) -> list[_Run]:
    runs: list[_Run] = []
    before: list[EntryParser] = []
    for step in (*steps, None):
        if step is None or (step.prefix and not step.is_optional):
            is_decoded = any(each.is_wanted and each.is_decoded for each in before)
            runs.append(_Run(before, step, 0 if is_decoded else _LONG_RUN, {}))
            before = []
        else:
            before.append(step)
    return runs


class RecordParser:
    """Parses examples with some features of a data set.

    Parameters
    ----------
    specs : mapping
        All features of the data set.
    wanted : iterable of str
        The features to parse; the others may be anything.
    only_these : bool, optional
        Whether an example must not have features besides ``specs``, or one twice.
        Default: what is not wanted is not looked at.
    """

    def __init__(
        self,
        specs: Mapping[str, FeatureSpec],
        wanted: Iterable[str],
        only_these: bool = False,
    ):
        chosen = set(wanted)
        self._only_these = only_these
        self._known = {name.encode() for name in specs}
        ordered = sorted(specs.values(), key=lambda spec: spec.name.encode())
        steps = [EntryParser(spec, spec.name in chosen) for spec in ordered]
        self.entries = [entry for entry in steps if entry.is_wanted]
        self.numbers = {entry.spec.name: k for k, entry in enumerate(self.entries)}
        self._runs = _cut_runs(steps)
        self._sequences = any(spec.sequence for spec in specs.values())

    def stored(self, data: bytes, start: int, stop: int) -> Stored:
        """Returns the wanted features of the example in ``data[start:stop]``.

        Raises
        ------
        ValueError
            If it is no example, lacks a feature, or a feature has another type or
            number of values than its spec says.
        """
        if not self._sequences:
            found = self._in_order(data, start, stop)
            if found is not None:
                return found
        return self._in_any_order(data[start:stop])

    def _in_order(self, data: bytes, at: int, stop: int) -> Stored | None:
        """Returns the features of our own writer's example; None if it is another's.

        After the example, ``data`` has at least 4 bytes more: its checksum.
        """
        try:
            if data[at] != 10:
                return None
            length, at = read_varint(data, at + 1)
            if at + length != stop:
                return None
            stored: Stored = []
            for run in self._runs:
                array, end = run.array, stop
                if array is not None:
                    end = data.find(array.prefix, at, stop)
                    if end < 0:
                        return None
                content = data[at:end] if end - at <= run.longest else b""
                values = run.table.get(content) if content else None
                if values is None:
                    values = _parse_run(run.steps, data, at, end)
                    if values is None:
                        return None
                    if content:
                        _keep(run.table, content, values)
                stored += values
                at = end
                if array is not None:
                    at += len(array.prefix)
                    if array.is_wanted:
                        found = np.frombuffer(data, array.little, array.count, at)
                        stored.append(found)
                    at += array.payload
            return stored if at == stop else None
        except (IndexError, *UNFIT):
            return None  # the walk in any order finds out what is wrong, if anything

    def _in_any_order(self, record: bytes) -> Stored:
        if self._only_these:
            check_names(record, self._known)
        # Of equal keys, the last one counts.
        context = dict(example_features(record))
        steps = dict(feature_lists(record)) if self._sequences else {}
        return [
            entry.read(steps if entry.spec.sequence else context)
            for entry in self.entries
        ]


def _parse_run(
    steps: Sequence[EntryParser], data: bytes, at: int, stop: int
) -> Stored | None:
    """Returns the features in ``data[at:stop]``; None if others are there."""
    stored: Stored = []
    for step in steps:
        is_there = at < stop
        if is_there:
            length, body = data[at + 1], at + 2
            if length >= 0x80:
                length, body = read_varint(data, at + 1)
            end = body + length
            is_there = data[at] == 10 and data.startswith(step.key, body)
        if not is_there:
            if not step.is_optional:
                return None
            if step.is_wanted:
                stored.append(None)
            continue
        if step.is_wanted:
            entry = data[body:end]
            value = step.table.get(entry)
            if value is None:
                value = step.value(entry_parts(memoryview(entry))[1])
                if value is None:
                    return None
                if end - at <= _LONG_ENTRY and not step.is_decoded:
                    _keep(step.table, entry, value)
            stored.append(value)
        at = end
    return stored if at == stop else None


class ExampleMaker:
    """Makes a dict of each example, with arrays and scalars of its own."""

    def __init__(self, parser: RecordParser, names: Iterable[str]):
        numbers = parser.numbers
        self._features: list[tuple[str, int, Callable[..., Any], int | None]] = []
        for name in names:
            entry = parser.entries[numbers[name]]
            shape = numbers.get(entry.spec.shape_in or "")
            is_number = entry.spec.encoding == INT64_LIST and entry.spec.shape == ()
            # The type itself is faster than a function around it.
            make = entry.dtype.type if is_number else entry.single
            self._features.append((name, numbers[name], make, shape))

    def make(self, stored: Stored, into: Callable[[], dict[str, Any]]) -> Any:
        """Returns the features of an example; those that it lacks are left out."""
        example = into()
        for name, number, single, shape in self._features:
            value = stored[number]
            if value is not None:
                example[name] = (
                    single(value) if shape is None else single(value, stored[shape])
                )
        return example


class BatchMaker:
    """Puts examples into arrays for a whole batch.

    A feature becomes an array of shape ``(size, *shape)``. A text becomes an object
    array. Other features whose shape differs, or that an example may lack, become a
    list, with None for the examples that lack them.
    """

    def __init__(self, parser: RecordParser, names: Iterable[str], size: int):
        self._names = list(names)
        self._entries, self._numbers = parser.entries, parser.numbers
        self._size = size
        self._stored: list[Stored] = [[]] * size

    @cached_property
    def _rows(self) -> dict[int, Array]:
        """The arrays of shape (size, values), by number of the feature.

        They are not made before an example shows that it has their shapes.
        """
        return {
            number: np.empty((self._size, entry.count), entry.dtype)
            for number, entry in enumerate(self._entries)
            if entry.is_row
        }

    def put(self, place: int, stored: Stored) -> None:
        """Puts an example at a place of the batch."""
        # Arrays are copied at once: a record is best read while it is in the cache.
        for number, rows in self._rows.items():
            rows[place] = stored[number]
            stored[number] = None  # the record may be freed
        self._stored[place] = stored

    def finish(self) -> dict[str, Any]:
        """Returns the batch."""
        columns = list(zip(*self._stored, strict=True))
        return {name: self._finished(name, columns) for name in self._names}

    def _finished(self, name: str, columns: Sequence[Sequence[Any]]) -> Any:
        number = self._numbers[name]
        entry, spec = self._entries[number], self._entries[number].spec
        if entry.is_row:
            return self._rows[number].reshape(self._size, *spec.sizes)
        column = columns[number] if columns else ()
        if spec.encoding == BYTES_LIST and spec.shape == () and not spec.sequence:
            return object_array(column)
        stacked = spec.has_fixed_shape and not spec.optional and not spec.sequence
        if spec.encoding == INT64_LIST and spec.shape == () and stacked:
            return np.array(column, entry.dtype)
        shapes: Sequence[Any] = [None] * self._size
        if spec.shape_in is not None and columns:
            shapes = columns[self._numbers[spec.shape_in]]
        values: list[Any] = [
            None if value is None else entry.single(value, shape)
            for value, shape in zip(column, shapes, strict=True)
        ]
        if not stacked:
            return values
        if not values:
            return np.empty((0, *spec.sizes), entry.dtype)
        return np.stack(values)


def decode_columns(
    records: Sequence[bytes], specs: Mapping[str, FeatureSpec]
) -> dict[str, Any]:
    """Returns the features of some examples as columns, as the encoder takes them.

    Returns
    -------
    dict
        See :class:`BatchMaker`; None stands for a feature that an example lacks.

    Raises
    ------
    ValueError
        If a record lacks a feature, has one that no spec names, or holds one with
        another type or shape than its spec has.
    """
    parser = RecordParser(specs, specs, only_these=True)
    batch = BatchMaker(parser, specs, len(records))
    for place, record in enumerate(records):
        batch.put(place, parser.stored(record, 0, len(record)))
    return batch.finish()


def loose_specs(records: Iterable[bytes]) -> dict[str, FeatureSpec]:
    """Returns the features of examples of any writer, as optional lists of any length.

    Raises
    ------
    ValueError
        If a record is no example, or the values of one feature do not fit each other.
    """
    specs: dict[str, FeatureSpec] = {}
    for record in records:
        found = [(key, [value], False) for key, value in example_features(record)]
        found += [(key, steps, True) for key, steps in feature_lists(record)]
        for key, features, is_sequence in found:
            for feature in features:
                kind, _ = list_in(feature)
                if kind is not None:  # without a value, a feature has no type
                    name = key.decode()
                    spec = _loose_spec(name, kind, is_sequence, feature)
                    if specs.setdefault(name, spec) != spec:
                        raise ValueError(
                            f"feature {name} has values of several types, or steps of "
                            "several lengths"
                        )
    return dict(sorted(specs.items()))


def _loose_spec(
    name: str, kind: str, is_sequence: bool, feature: memoryview
) -> FeatureSpec:
    spec = FeatureSpec(name, LISTS[kind].dtype, (None,), kind, optional=True)
    if not is_sequence:
        return spec
    width = len(EntryParser(spec).value(feature))
    shape = (None,) if width == 1 else (None, width)
    return replace(spec, shape=shape, sequence=True)
