"""The wire format of protobuf: integers of variable length, and fields of messages."""

from __future__ import annotations

from collections.abc import Iterator

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


def read_varint(view: memoryview, at: int) -> tuple[int, int]:
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
