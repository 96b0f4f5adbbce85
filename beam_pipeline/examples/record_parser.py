"""Parses serialised examples into numpy arrays, one after another, and fast.

The writer's entries are in key order (see :mod:`.encoding`), so the parser knows what
comes next. Before an array of a known size, all bytes are known, too: they are found
and compared at once. The entries between such arrays, texts and few numbers, often
repeat as a whole, and each of them more often, so what was parsed once is looked up
after that. Images and tensors are not: their arrays are given out as they are. Records
of other writers, in any order, are walked entry by entry. ::

    0A len Features | 0A len entry "class" ... | 0A len entry "signal" .......... | ...
                      a run: looked up         found     the array, in its place
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np

from beam_pipeline.arrays import BYTES, Array, Keys, numpy_dtype, object_array
from beam_pipeline.codecs import BYTES_LIST, FLOAT_LIST, INT64_LIST, LISTS
from beam_pipeline.errors import AudioTFRecordsError
from beam_pipeline.examples.encoding import array_prefix
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.storage.wire import (
    FieldValue,
    example_features,
    feature_lists,
    length_delimited,
    message,
    read_fields,
    read_varint,
)
from beam_pipeline.text import shown

NO_ENTRY: Any = object()

# Arrays of at most so many bytes are cut out of a record; larger ones are views of it.
SMALL_BYTES = 64

_LISTS = {each.field: name for name, each in LISTS.items()}


class EntryParser:
    """Reads one feature of an example.

    The stored form of a value, which ``single`` turns into the value, is:

    - ``float_list``, ``raw`` and half precision: a flat array that is a view of the
      record; bytes if the array has a fixed shape and at most 64 bytes (``is_small``);
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
        self.prefix = array_prefix(spec, self.payload) if is_known else b""
        self.is_small = is_known and self.payload <= SMALL_BYTES
        is_text = spec.encoding == BYTES_LIST and spec.shape == ()
        self.is_value = spec.sequence or self.is_decoded or is_text
        is_list = spec.encoding in (INT64_LIST, BYTES_LIST)
        is_flat = not (is_list or self.is_decoded or spec.sequence)
        is_stacked = spec.has_fixed_shape and not spec.optional
        self.is_row = is_flat and is_stacked and not self.is_small

    def parse(self, entry: bytes) -> Any:
        """Returns the stored value of an entry; NO_ENTRY if there is no value."""
        feature = None
        for field, value in read_fields(entry):
            if field == 2:
                feature = value
        return NO_ENTRY if feature is None else self.value(message(feature), NO_ENTRY)

    def value(self, feature: memoryview, missing: Any = None) -> Any:
        """Returns the stored value in a ``Feature``; ``missing`` if there is none.

        Raises
        ------
        ValueError
            If the feature has another type or number of values than its spec says.
        """
        kind, contents = list_in(feature)
        if kind is None:
            return missing
        if kind != self.spec.stored_in:
            raise ValueError(
                f"feature {self.spec.name} is stored as {kind}, but its spec says "
                f"{self.spec.encoding}"
            )
        values = [v for c in contents for field, v in read_fields(c) if field == 1]
        if self.spec.optional and self.count > 0 and not self._any(values):
            return missing
        try:
            return self._stored(values)
        except (ValueError, TypeError, AudioTFRecordsError) as error:
            raise ValueError(f"feature {self.spec.name}: {error}") from error

    def _any(self, values: Sequence[FieldValue]) -> bool:
        is_list = self.spec.encoding in (FLOAT_LIST, INT64_LIST)
        return any(not is_list or isinstance(v, int) or len(v) for v in values)

    def _stored(self, values: Sequence[FieldValue]) -> Any:
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
        return self._exact(wide)

    def _exact(self, wide: Array) -> Array:
        """Returns integers of 64 bits as the dtype; ValueError if it holds one not."""
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
        return content if self.is_small else np.frombuffer(content, self.little)

    def _check_count(self, count: int) -> None:
        """Raises ValueError if the shape is fixed and has another number of values."""
        if self.count >= 0 and count != self.count and not self.spec.sequence:
            raise ValueError(
                f"it has {count} values, but its shape is {self.spec.shape}"
            )

    def steps(self, features: Sequence[memoryview]) -> Any:
        """Returns the array of a sequence, from the ``Feature`` of each step."""
        found = [self.value(feature) for feature in features]
        if any(value is None for value in found):
            raise ValueError(f"feature {self.spec.name}: a step has no values")
        sizes = [-1 if n is None else n for n in (self.spec.shape or (None,))[1:]]
        if not found:
            return np.zeros((0, *(max(n, 0) for n in sizes)), self.dtype)
        try:
            return np.stack([np.reshape(v, sizes) for v in found]).astype(self.dtype)
        except ValueError as error:
            raise ValueError(f"feature {self.spec.name}: {error}") from error

    def without_values(self) -> Any:
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
            return self.steps(())
        return b"" if self.is_small else np.zeros(0, self.little)

    def single(self, stored: Any, shape: Any = None) -> Any:
        """Returns the value of one example, from its stored form.

        Arrays are copies that may be changed; numbers are numpy scalars. ``shape`` is
        the stored form of the feature ``shape_in``, if there is one.
        """
        spec = self.spec
        if self.is_value:
            return stored[()] if isinstance(stored, np.ndarray) else stored
        if self.is_small:
            stored = np.frombuffer(stored, self.little)
        values = np.array(stored, self.dtype)
        if spec.shape == ():
            return values.ravel()[0]
        if self.payload:
            return values.reshape(spec.sizes)
        try:
            return spec.restore_shape(values, shape)
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


class _Run:
    """Features in the writer's order, up to an array of a known size, if any."""

    __slots__ = ("array", "steps", "table")

    def __init__(self, steps: Sequence[EntryParser], array: EntryParser | None):
        self.steps = steps
        self.array = array
        is_decoded = any(step.is_wanted and step.is_decoded for step in steps)
        self.table: dict[bytes, Stored] | None = None if is_decoded else {}


def _keep(table: dict[bytes, Any], content: bytes, stored: Any) -> None:
    """Keeps what is stored for these bytes; empties the table if it is full."""
    if len(table) >= _MOST_ENTRIES:
        table.clear()
    table[content] = stored


def _cut_runs(steps: Sequence[EntryParser]) -> list[_Run]:
    runs: list[_Run] = []
    before: list[EntryParser] = []
    for step in steps:
        if step.prefix and not step.is_small and not step.is_optional:
            runs.append(_Run(before, step))
            before = []
        else:
            before.append(step)
    return [*runs, _Run(before, None)]


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
        self._numbers = {e.spec.name.encode(): k for k, e in enumerate(self.entries)}
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
                is_known = run.table is not None and end - at <= _LONG_RUN
                content = data[at:end] if is_known else b""
                values = run.table.get(content) if run.table and content else None
                if values is None:
                    values = _parse_run(run.steps, data, at, end)
                    if values is None:
                        return None
                    if content and run.table is not None:
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
        except (IndexError, ValueError):
            return None  # the walk in any order finds out what is wrong, if anything

    def _in_any_order(self, record: bytes) -> Stored:
        stored: Stored = [None] * len(self.entries)
        if self._only_these:
            check_names(record, self._known)
        for key, feature in example_features(record):
            number = self._numbers.get(key)
            if number is not None and not self.entries[number].spec.sequence:
                stored[number] = self.entries[number].value(feature)
        if self._sequences:
            for key, steps in feature_lists(record):
                number = self._numbers.get(key)
                if number is not None and self.entries[number].spec.sequence:
                    stored[number] = self.entries[number].steps(steps)
        for number, entry in enumerate(self.entries):
            if stored[number] is None and not entry.spec.optional:
                stored[number] = entry.without_values()
        return stored


def _parse_run(
    steps: Sequence[EntryParser], data: bytes, at: int, stop: int
) -> Stored | None:
    """Returns the features in ``data[at:stop]``; None if others are there."""
    stored: Stored = []
    for step in steps:
        prefix, is_wanted = step.prefix, step.is_wanted
        if prefix and data.startswith(prefix, at):
            at += len(prefix)
            end = at + step.payload
            if is_wanted:
                stored.append(
                    data[at:end]
                    if step.is_small
                    else np.frombuffer(data, step.little, step.count, at)
                )
            at = end
            continue
        if at >= stop:
            if not step.is_optional:
                return None
            if is_wanted:
                stored.append(None)
            continue
        length = data[at + 1]
        body = at + 2
        if length >= 0x80:
            length, body = read_varint(data, at + 1)
        end = body + length
        if data[at] != 10 or not data.startswith(step.key, body):
            if not step.is_optional:
                return None
            if is_wanted:
                stored.append(None)
            continue
        if is_wanted:
            entry = data[body:end]
            value = step.table.get(entry, NO_ENTRY)
            if value is NO_ENTRY:
                value = step.parse(entry)
                if value is NO_ENTRY:
                    return None
                looks_up = not (step.is_small or step.is_decoded)
                if looks_up and end - at <= _LONG_ENTRY:
                    _keep(step.table, entry, value)
            stored.append(value)
        at = end
    return stored if at == stop else None


class ExampleMaker:
    """Makes a dict of each example, with arrays and scalars of its own."""

    def __init__(self, parser: RecordParser, names: Iterable[str]):
        numbers = {e.spec.name: k for k, e in enumerate(parser.entries)}
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
        self._entries = {entry.spec.name: entry for entry in parser.entries}
        self._size = size
        self._numbers = {e.spec.name: k for k, e in enumerate(parser.entries)}
        self._stored: list[Stored] = [[]] * size
        self._rows: list[Any] = [None] * len(parser.entries)
        self._puts: list[tuple[int, Callable[[int, Any], None]]] | None = None

    def _make_rows(self) -> list[tuple[int, Callable[[int, Any], None]]]:
        """Makes the arrays; not before an example shows that it has their shapes."""
        puts: list[tuple[int, Callable[[int, Any], None]]] = []
        for k, entry in enumerate(self._entries.values()):
            if entry.is_row:
                rows = np.empty((self._size, *entry.spec.sizes), entry.dtype)
                self._rows[k] = rows
                puts.append((k, rows.reshape(self._size, entry.count).__setitem__))
        return puts

    def put(self, place: int, stored: Stored) -> None:
        """Puts an example at a place of the batch."""
        # Arrays are copied at once: a record is best read while it is in the cache.
        if self._puts is None:
            self._puts = self._make_rows()
        for number, put in self._puts:
            put(place, stored[number])
            stored[number] = None  # the record may be freed
        self._stored[place] = stored

    def finish(self) -> dict[str, Any]:
        """Returns the batch."""
        if self._puts is None:  # it has no examples
            self._make_rows()
        columns = list(zip(*self._stored, strict=True))
        return {name: self._finished(name, columns) for name in self._names}

    def _finished(self, name: str, columns: Sequence[Sequence[Any]]) -> Any:
        entry, number = self._entries[name], self._numbers[name]
        spec, rows = entry.spec, self._rows[number]
        if rows is not None:
            return rows
        column = columns[number] if columns else ()
        if spec.encoding == BYTES_LIST and spec.shape == () and not spec.sequence:
            return object_array(column)
        stacked = spec.has_fixed_shape and not spec.optional and not spec.sequence
        if entry.is_small and stacked:
            flat = np.frombuffer(bytearray().join(column), entry.little)
            return flat.astype(entry.dtype, copy=False).reshape(self._size, *spec.sizes)
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
