"""Checks that an Ogg file is an unbroken sequence of pages.

libogg leaves out pages that are damaged, and its users continue with the next one. Each
page has a checksum, the number of its stream and its own number, so that damage and
missing pages can be found. This module does not decode.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from beam_pipeline.audio.containers import Condition, read_at

_MAGIC = b"OggS\0"
_HEADER = struct.Struct("<5sBqIIIB")
_LARGEST_PAGE = _HEADER.size + 255 + 255 * 255
_CHUNK = 1 << 20
_FIRST, _LAST = 0x02, 0x04  # flags of a page
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


@dataclass(frozen=True, slots=True)
class _Page:
    offset: int
    length: int
    flags: int
    serial: int
    number: int


def check_ogg(file: BinaryIO, file_bytes: int) -> Condition | None:
    """Walks over all pages of an Ogg file; returns ``None`` for other formats.

    Bytes after the last page of all streams do not matter.

    Parameters
    ----------
    file
        Open, seekable and binary. The position changes.
    file_bytes
        Size of the file.
    """
    if read_at(file, 0, 5) != _MAGIC:
        return None
    numbers: dict[int, int] = {}
    ended: set[int] = set()
    end = 0
    for page in _pages(file, file_bytes):
        end = page.offset + page.length
        if page.flags & _FIRST and len(numbers) == len(ended) > 0:
            return Condition(
                "holds several Ogg streams in sequence, but only the first would be "
                f"read; the second begins at byte {page.offset}; split the file"
            )
        if page.flags & _FIRST and page.serial not in numbers:
            expected = page.number
        else:
            expected = numbers.get(page.serial, -2) + 1
        if page.number != expected or page.serial in ended:
            return Condition(
                f"is damaged: the Ogg page at byte {page.offset} has number "
                f"{page.number}, where {max(0, expected)} should follow"
            )
        numbers[page.serial] = page.number
        if page.flags & _LAST:
            ended.add(page.serial)
    if numbers and len(ended) == len(numbers):
        return Condition()
    if _is_begun_page(read_at(file, end, _LARGEST_PAGE)):
        return Condition(
            cut="no Ogg page is marked as the last; the file ends at byte "
            f"{file_bytes}, and its last whole page at byte {end}"
        )
    return Condition(
        f"is damaged: no Ogg page with a right checksum begins at byte {end}"
    )


def _pages(file: BinaryIO, file_bytes: int) -> Iterator[_Page]:
    """Yields pages from the start of the file, up to the first that is not whole."""
    start = 0
    while start < file_bytes:
        data = read_at(file, start, _CHUNK)
        at = 0
        while (page := _parse_page(data, at, start)) is not None:
            yield page
            at += page.length
        if not at:
            return
        start += at


def _parse_page(data: bytes, at: int, start: int) -> _Page | None:
    """Parses the page at ``at``; ``None`` if it is not whole, or its checksum wrong."""
    if len(data) < at + _HEADER.size:
        return None
    magic, flags, _, serial, number, crc, count = _HEADER.unpack_from(data, at)
    body = at + _HEADER.size + count
    end = body + sum(data[at + _HEADER.size : body])
    if magic != _MAGIC or end > len(data):
        return None
    if crc != _crc_32(data[at : at + 22] + bytes(4) + data[at + 26 : end]):
        return None
    return _Page(start + at, end - at, flags, serial, number)


def _is_begun_page(rest: bytes) -> bool:
    """Whether the last bytes of a file are nothing, or the beginning of a page."""
    if len(rest) < _HEADER.size:
        return rest[:5] == _MAGIC[: len(rest)]
    count = rest[_HEADER.size - 1]
    lacing = rest[_HEADER.size : _HEADER.size + count]
    whole = _HEADER.size + count + sum(lacing)
    return rest[:5] == _MAGIC and (len(lacing) < count or len(rest) < whole)


def _crc_32(data: bytes) -> int:
    """Returns Ogg's CRC: that of zlib on reversed bits, without its two inversions."""
    crc = zlib.crc32(data.translate(_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
    return int(f"{crc:032b}"[::-1], 2)
