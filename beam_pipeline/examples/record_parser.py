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

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipeline.examples.entry_values import (
    NO_ENTRY,
    EntryParser,
    check_names,
    example_features,
    feature_lists,
)
from beam_pipeline.examples.protobuf import read_varint, varint
from beam_pipeline.examples.spec import (
    ARRAYS,
    BYTES_LIST,
    FLOAT_LIST,
    INT64_LIST,
    FeatureSpec,
)

# Longer entries and runs are parsed each time; a full table of them is emptied.
_LONG_ENTRY = 512
_LONG_RUN = 2048
_MOST_ENTRIES = 1 << 14
# After so many runs, a table is given up if it knew fewer than a quarter of them.
_TRIAL_RUNS = 4096

# What an example stores of each wanted feature, see EntryParser; None: nothing.
Stored = list[Any]


class _Step:
    """One feature in the writer's order, and how its entry is read."""

    __slots__ = (
        "count", "dtype", "is_decoded", "key", "optional", "parse", "payload",
        "prefix", "skip", "small", "table", "wanted",
    )  # fmt: skip

    def __init__(self, spec: FeatureSpec, entry: EntryParser, wanted: bool):
        key = spec.name.encode()
        self.key = b"\x0a" + varint(len(key)) + key
        self.optional = spec.optional
        self.wanted = wanted
        self.parse = entry.parse
        self.table: dict[bytes, Any] = {}
        self.dtype, self.small = entry.little, entry.is_small
        self.is_decoded = entry.is_decoded
        self.prefix: bytes | None = None
        self.count = self.payload = self.skip = 0
        is_array = spec.encoding in (FLOAT_LIST, *ARRAYS) and not spec.sequence
        if is_array and spec.has_fixed_shape:
            self.count = entry.count
            self.payload = entry.count * entry.little.itemsize
            from beam_pipeline.examples.encoding import array_prefix

            self.prefix = array_prefix(spec, self.payload)
            self.skip = len(self.prefix)


class _Run:
    """Features in the writer's order, up to an array of a known size, if any."""

    __slots__ = ("array", "known", "steps", "table", "tried")

    def __init__(self, steps: Sequence[_Step], array: _Step | None):
        self.steps = steps
        self.array = array
        is_decoded = any(step.wanted and step.is_decoded for step in steps)
        self.table: dict[bytes, Stored] | None = None if is_decoded else {}
        self.tried = self.known = 0

    def look_up(self, content: bytes) -> Stored | None:
        """Returns what was stored for the same bytes."""
        if self.table is None:
            return None
        found = self.table.get(content)
        self.tried += 1
        self.known += found is not None
        if self.tried == _TRIAL_RUNS:
            if 4 * self.known < self.tried:
                self.table = None
            self.tried = self.known = 0
        return found

    def keep(self, content: bytes, stored: Stored) -> None:
        """Keeps what is stored for these bytes."""
        if self.table is not None and len(content) <= _LONG_RUN:
            if len(self.table) >= _MOST_ENTRIES:
                self.table.clear()
            self.table[content] = stored


def _cut_runs(steps: Sequence[_Step]) -> list[_Run]:
    runs: list[_Run] = []
    before: list[_Step] = []
    for step in steps:
        if step.prefix is not None and not step.small and not step.optional:
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
        self.entries = [EntryParser(s) for s in ordered if s.name in chosen]
        self._numbers = {e.spec.name.encode(): k for k, e in enumerate(self.entries)}
        parsers = {entry.spec.name: entry for entry in self.entries}
        steps = [
            _Step(
                spec, parsers.get(spec.name) or EntryParser(spec), spec.name in chosen
            )
            for spec in ordered
        ]
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
            length, at = _varint(data, at + 1)
            if at + length != stop:
                return None
            stored: Stored = []
            for run in self._runs:
                array, end = run.array, stop
                if array is not None:
                    end = data.find(array.prefix or b"", at, stop)
                    if end < 0:
                        return None
                content = data[at:end] if end - at <= _LONG_RUN else b""
                values = run.look_up(content) if content else None
                if values is None:
                    values = _parse_run(run.steps, data, at, end)
                    if values is None:
                        return None
                    if content:
                        run.keep(content, values)
                stored += values
                at = end
                if array is not None:
                    at += array.skip
                    if array.wanted:
                        stored.append(np.frombuffer(data, array.dtype, array.count, at))
                    at += array.payload
            return stored if at == stop else None
        except (IndexError, ValueError):
            return None  # the walk in any order finds out what is wrong, if anything

    def _in_any_order(self, record: bytes) -> Stored:
        stored: Stored = [None] * len(self.entries)
        if self._only_these:
            check_names(record, self._known, self._sequences)
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
    steps: Sequence[_Step], data: bytes, at: int, stop: int
) -> Stored | None:
    """Returns the features in ``data[at:stop]``; None if others are there."""
    stored: Stored = []
    for step in steps:
        prefix = step.prefix
        if prefix is not None and data.startswith(prefix, at):
            at += step.skip
            end = at + step.payload
            if step.wanted:
                stored.append(
                    data[at:end]
                    if step.small
                    else np.frombuffer(data, step.dtype, step.count, at)
                )
            at = end
            continue
        if at >= stop:
            if not step.optional:
                return None
            if step.wanted:
                stored.append(None)
            continue
        length = data[at + 1]
        body = at + 2
        if length >= 0x80:
            length, body = _varint(data, at + 1)
        end = body + length
        if data[at] != 10 or not data.startswith(step.key, body):
            if not step.optional:
                return None
            if step.wanted:
                stored.append(None)
            continue
        if step.wanted:
            entry = data[body:end]
            value = step.table.get(entry, NO_ENTRY)
            if value is NO_ENTRY:
                value = step.parse(entry)
                if value is NO_ENTRY:
                    return None
                looks_up = not (step.small or step.is_decoded)
                if looks_up and end - at <= _LONG_ENTRY:
                    if len(step.table) >= _MOST_ENTRIES:
                        step.table.clear()
                    step.table[entry] = value
            stored.append(value)
        at = end
    return stored if at == stop else None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns a length, and the position after it."""
    byte = data[at]
    if byte < 0x80:
        return byte, at + 1
    second = data[at + 1]
    if second < 0x80:
        return byte & 0x7F | second << 7, at + 2
    third = data[at + 2]
    if third < 0x80:
        return byte & 0x7F | (second & 0x7F) << 7 | third << 14, at + 3
    return read_varint(memoryview(data), at)


class ExampleMaker:
    """Makes a dict of each example, with arrays and scalars of its own."""

    def __init__(self, parser: RecordParser, names: Iterable[str]):
        numbers = {e.spec.name: k for k, e in enumerate(parser.entries)}
        self._made: list[tuple[str, int, Callable[[Any], Any]]] = []
        self._shaped: list[tuple[str, int, EntryParser, int]] = []
        for name in names:
            number = numbers[name]
            entry = parser.entries[number]
            if entry.spec.shape_in is None:
                self._made.append((name, number, entry.make_single()))
            else:
                shape = numbers[entry.spec.shape_in]
                self._shaped.append((name, number, entry, shape))
        self._names = list(names)

    def make(self, stored: Stored, into: Callable[[], dict[str, Any]]) -> Any:
        """Returns the features of an example; those that it lacks are left out."""
        example = into()
        for name, number, make in self._made:
            value = stored[number]
            if value is not None:
                example[name] = make(value)
        for name, number, entry, shape in self._shaped:
            if stored[number] is not None:
                example[name] = entry.single(stored[number], stored[shape])
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
            texts = np.empty(self._size, object)
            texts[:] = column
            return texts
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
