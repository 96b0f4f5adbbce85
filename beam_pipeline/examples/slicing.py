"""Some features of serialised examples, taken without decoding any value.

An example is a map of features on the wire, an entry for each::

    Example            1: Features
    SequenceExample    1: Features, the context    2: FeatureLists
    Features           1: entry, for each feature
    FeatureLists       1: entry, for each feature
    entry              1: key                      2: value

Entries are copied as they are, in their order. So the values that protobuf reads are
the same, whichever program wrote the message.
"""

from __future__ import annotations

from collections.abc import Collection

from beam_pipeline.examples.protobuf import read_fields, varint

_FEATURES, _FEATURE_LISTS = 1, 2
_ENTRY, _KEY = 1, 1


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
    kept: list[bytes] = []
    for field, value in read_fields(record):
        if field not in (_FEATURES, _FEATURE_LISTS):
            continue
        entries = []
        for number, found in read_fields(_message(value)):
            if number == _ENTRY and _key_of(entry := _message(found)) in names:
                entries += [b"\x0a", varint(len(entry)), bytes(entry)]
        body = b"".join(entries)
        kept += [bytes((field << 3 | 2,)), varint(len(body)), body]
    return b"".join(kept)


def is_sequence_example(record: bytes) -> bool:
    """Whether a record is a ``SequenceExample``, because it has lists of features.

    Raises
    ------
    ValueError
        If the record is no message of protobuf.
    """
    return any(field == _FEATURE_LISTS for field, _ in read_fields(record))


def _key_of(entry: memoryview) -> bytes:
    """Returns the key of an entry; the last one counts, and none is the empty key."""
    key = b""
    for field, value in read_fields(entry):
        if field == _KEY:
            key = bytes(_message(value))
    return key


def _message(value: int | memoryview) -> memoryview:
    if isinstance(value, int):
        raise ValueError("not an example: a number is in the place of a message")
    return value
