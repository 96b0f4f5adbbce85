"""The wire format of protobuf, and features taken out of examples without decoding.

An example is a map of features on the wire, an entry for each::

    Example            1: Features
    SequenceExample    1: Features, the context    2: FeatureLists
    Features           1: entry, for each feature
    FeatureLists       1: entry, for each feature
    entry              1: key                      2: value
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

# The wire types: how long the value of a field is.
VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
_WIDTHS = {FIXED64: 8, FIXED32: 4}

# An integer for VARINT, or the bytes of any other wire type.
FieldValue = int | memoryview


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


def length_delimited(number: int, content: bytes | memoryview) -> bytes:
    """Returns a field that holds bytes: its tag, their length, and them."""
    return b"".join((bytes((number << 3 | BYTES,)), varint(len(content)), content))


def read_fields(data: bytes | memoryview) -> Iterator[tuple[int, FieldValue]]:
    """Yields the number and the value of each field of a message.

    Raises
    ------
    ValueError
        If the data are not a message, or end inside a field.
    """
    view, at = memoryview(data), 0
    while at < len(view):
        tag, at = read_varint(view, at)
        wire = tag & 7
        if wire == VARINT:
            number, at = read_varint(view, at)
            yield tag >> 3, number
            continue
        if wire == BYTES:
            width, at = read_varint(view, at)
        elif wire in _WIDTHS:
            width = _WIDTHS[wire]
        else:
            raise ValueError(f"not a protobuf message: wire type {wire}")
        if at + width > len(view):
            raise ValueError("the protobuf message ends early")
        yield tag >> 3, view[at : at + width]
        at += width


def read_varint(view: bytes | memoryview, at: int) -> tuple[int, int]:
    """Returns the integer at a position, unsigned of 64 bits, and the position after.

    Raises
    ------
    ValueError
        If there is none.
    """
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(view):
            raise ValueError("the protobuf message ends early")
        byte = view[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, at
    raise ValueError("not a protobuf message: a number has more than 10 bytes")


_FEATURES, _FEATURE_LISTS = 1, 2
_ENTRY, _KEY, _VALUE = 1, 1, 2


def message(value: FieldValue) -> memoryview:
    """Returns the bytes of a field; a ValueError if it is a number."""
    if isinstance(value, int):
        raise ValueError("not a tf.train.Example: a number instead of a message")
    return value


def entry_parts(entry: memoryview) -> tuple[bytes, memoryview]:
    """Returns the key and the value of an entry; without them, they are empty."""
    parts = dict(read_fields(entry))  # of several, the last one counts
    key, value = (parts.get(field, memoryview(b"")) for field in (_KEY, _VALUE))
    return bytes(message(key)), message(value)


def example_features(record: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Yields (key, ``Feature``) of an example, or of the context of a sequence."""
    return _entries_of(record, _FEATURES)


def feature_lists(record: bytes) -> Iterator[tuple[bytes, list[memoryview]]]:
    """Yields (key, the ``Feature`` of each step) of a ``SequenceExample``."""
    for key, steps in _entries_of(record, _FEATURE_LISTS):
        yield key, [message(v) for f, v in read_fields(steps) if f == _ENTRY]


def _entries_of(record: bytes, wanted: int) -> Iterator[tuple[bytes, memoryview]]:
    for field, features in read_fields(record):
        if field == wanted:
            for number, entry in read_fields(message(features)):
                if number == _ENTRY:
                    yield entry_parts(message(entry))


def keep_features(record: bytes, names: Collection[bytes]) -> bytes:
    """Returns an example with only the features that have these names.

    Parameters
    ----------
    record : bytes
        A serialised ``tf.train.Example`` or ``tf.train.SequenceExample``.
    names : collection of bytes
        The names, as UTF-8. The record may lack them.

    Raises
    ------
    ValueError
        If the record is no such message.
    """
    return _rewritten(record, lambda name, entry: entry if name in names else b"")


def replace_features(record: bytes, entries: Mapping[bytes, bytes]) -> bytes:
    """Returns an example with other values of some features.

    All other features keep their bytes. A feature that the example lacks is not added.

    Parameters
    ----------
    record : bytes
        See :func:`keep_features`.
    entries : mapping
        Names, as UTF-8, to entries as of :func:`.encoding.encode_entry`.

    Raises
    ------
    ValueError
        If the record is no such message.
    """
    return _rewritten(record, lambda name, entry: entries.get(name, entry))


def _rewritten(record: bytes, rewrite: Callable[[bytes, bytes], bytes]) -> bytes:
    """Returns an example with what a function gives for the name and entry of each."""
    made: list[bytes] = []
    for field, value in read_fields(record):
        if field not in (_FEATURES, _FEATURE_LISTS):
            continue
        entries = []
        for number, found in read_fields(message(value)):
            if number == _ENTRY:
                entry = message(found)
                whole = length_delimited(_ENTRY, entry)
                entries.append(rewrite(entry_parts(entry)[0], whole))
        made.append(length_delimited(field, b"".join(entries)))
    return b"".join(made)


def is_sequence_example(record: bytes) -> bool:
    """Whether a record is a ``SequenceExample``, because it has lists of features.

    Raises
    ------
    ValueError
        If the record is no message of protobuf.
    """
    return any(field == _FEATURE_LISTS for field, _ in read_fields(record))
