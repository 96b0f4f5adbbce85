"""The TFRecord format and its GZIP stream, without Beam or TensorFlow.

A record is ``length u64le | crc(length) u32le | data | crc(data) u32le``. Here, crc is
CRC-32C, rotated right by 15 bits plus a constant, as TensorFlow defines it.
"""

from __future__ import annotations

import hashlib
import struct
import warnings
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, BinaryIO, NamedTuple

import google_crc32c
import numpy as np

from beam_pipeline.storage.gzip_members import (
    DamagedStream,
    Piece,
    inflate_by_member,
    too_long,
)

SUFFIX = ".tfrecord.gz"
PLAIN_SUFFIX = ".tfrecord"  # without GZIP

# No protobuf message is longer.
LONGEST_RECORD = 1 << 31

_crc32c, _pack_crc = google_crc32c.value, struct.Struct("<I").pack
_BLOCK = 1 << 20
_MASK_DELTA = 0xA282EAD8
FRAME_BYTES = 16  # what a record has besides its data
_HEADER_BYTES = 12  # a length and its checksum
_GZIP_MAGIC = b"\x1f\x8b"
if google_crc32c.implementation != "c":
    warnings.warn(
        "google-crc32c runs as pure Python here, which makes writing records hundreds "
        "of times slower. Install a build with its C extension "
        "(pip install --force-reinstall google-crc32c).",
        RuntimeWarning,
        stacklevel=2,
    )


def suffix_for(compression: str) -> str:
    """Returns the end of the name of a shard; see :func:`.compress_member`."""
    return PLAIN_SUFFIX if compression == "none" else SUFFIX


def is_compressed(file: str) -> bool:
    """Whether a shard is compressed, by its name."""
    return file.endswith(SUFFIX)


def masked_crc32c(data: bytes) -> int:
    """Returns the checksum that TFRecord stores for ``data``."""
    return int(_mask(google_crc32c.value(data)))


def _mask(crc: Any) -> Any:
    """Returns a checksum, or an array of them (uint32), as TFRecord stores it."""
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def frame_record(data: bytes) -> bytes:
    """Returns ``data`` as one record, framed with its length and checksums."""
    return b"".join(frame_parts(data))


def frame_parts(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Returns the pieces of a framed record: what is before the data, they, a checksum.

    For those who put them into a buffer, which saves a copy.
    """
    return _frame_header(len(data)), data, _pack_crc(_mask(_crc32c(data)))


@lru_cache(maxsize=1024)
def _frame_header(length: int) -> bytes:
    """Returns the part before the data; the records of a file are of few lengths."""
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", masked_crc32c(packed))


def record_data(buffer: bytes, start: int) -> tuple[int, int]:
    """Returns where the data of the record at ``start`` begin and end.

    Raises
    ------
    ValueError
        If a checksum is wrong, or the record does not end in the buffer.
    """
    at = start + _HEADER_BYTES
    length = int.from_bytes(buffer[start : start + 8], "little")
    if len(buffer) < at or not buffer.startswith(_frame_header(length), start):
        raise ValueError("the checksum of the length is wrong")
    end = at + length
    if end + 4 > len(buffer):
        raise ValueError("the record ends early")
    # The checksum takes no memoryview, and a slice would be a copy.
    crc = int(google_crc32c.value(np.frombuffer(buffer, np.uint8, length, at)))
    if int.from_bytes(buffer[end : end + 4], "little") != _mask(crc):
        raise ValueError("the checksum of the data is wrong")
    return at, end


def record_bounds(data: bytes) -> list[int]:
    """Returns where each record of an uncompressed TFRecord begins, and where it ends.

    Reads only the lengths: the checksums are not compared.
    """
    bounds = [0]
    while bounds[-1] < len(data):
        (length,) = struct.unpack_from("<Q", data, bounds[-1])
        bounds.append(bounds[-1] + FRAME_BYTES + length)
    return bounds


def read_any_records(
    file: BinaryIO, sha256: hashlib._Hash | None = None
) -> Iterator[bytes]:
    """Yields the records of a TFRecord file that is compressed with GZIP or not at all.

    The content decides, and not the name. The length of an uncompressed first record
    may look like the beginning of a GZIP file, but its checksum shows what it is.

    Parameters
    ----------
    file : binary file
        At its beginning; seekable.
    sha256 : hash object, optional
        Updated with the bytes of the file.

    Raises
    ------
    ValueError
        The file is neither, or a record is damaged; the message then names it.
    """
    if is_gzip(file):
        return (record.data for record in placed_records(file, sha256))
    start = file.read(_HEADER_BYTES)
    file.seek(0)
    if len(start) == _HEADER_BYTES and not _is_header(start):
        raise ValueError(
            "record 0: the file is not GZIP, and the checksum of its first length is "
            "wrong"
        )
    records = placed_records(file, sha256, compressed=False)
    return (record.data for record in records)


def is_gzip(file: BinaryIO) -> bool:
    """Whether a TFRecord file is compressed; leaves the file at its beginning."""
    start = file.read(_HEADER_BYTES)
    file.seek(0)
    return start[:2] == _GZIP_MAGIC and not _is_header(start)


def _is_header(data: bytes) -> bool:
    """Whether 12 bytes are a length and its checksum."""
    if len(data) < _HEADER_BYTES:
        return False
    (crc,) = struct.unpack_from("<I", data, 8)
    return masked_crc32c(data[:8]) == int(crc)


class PlacedRecord(NamedTuple):
    """A record, and where its member begins in the file; without GZIP, the record."""

    start: int
    data: bytes


def placed_records(
    file: BinaryIO, sha256: hashlib._Hash | None = None, *, compressed: bool = True
) -> Iterator[PlacedRecord]:
    """Yields the records of a TFRecord file to its end, see :func:`read_any_records`.

    Raises
    ------
    ValueError
        If it is damaged.
    """
    unframer = _Unframer(compressed)
    for piece in _pieces(file, sha256, compressed):
        yield from unframer.feed(piece)
    unframer.close()


def _pieces(
    file: BinaryIO, sha256: hashlib._Hash | None, compressed: bool
) -> Iterator[Piece]:
    """Yields the uncompressed content of a file; no piece of a plain one is ended."""
    if compressed:
        yield from inflate_by_member(file, sha256)
        return
    read = 0
    while block := file.read(_BLOCK):
        if sha256 is not None:
            sha256.update(block)
        start, read = read, read + len(block)
        yield Piece(start, read, block, False)


class _Unframer:
    """Takes records out of the pieces of a file."""

    def __init__(self, compressed: bool) -> None:
        self._compressed = compressed
        self._buffer = bytearray()
        self._number = 0
        self._start = 0  # of the member of the first record in the buffer

    def feed(self, piece: Piece) -> Iterator[PlacedRecord]:
        """Yields the records that are complete with this piece.

        Raises
        ------
        DamagedStream
            If a checksum is wrong, or a record is too long.
        """
        if not self._buffer:
            self._start = piece.start
        self._buffer += piece.content
        buffer, start = self._buffer, 0
        while len(buffer) - start >= _HEADER_BYTES:
            length = self._length(start)
            end = start + FRAME_BYTES + length
            if len(buffer) < end:
                problem = too_long(len(buffer) - start, piece.read)
                if problem is not None or length > LONGEST_RECORD:
                    raise self._damaged(problem or f"it cannot have {length} bytes")
                break
            data = bytes(memoryview(buffer)[start + _HEADER_BYTES : end - 4])
            (crc,) = struct.unpack_from("<I", buffer, end - 4)
            if masked_crc32c(data) != crc:
                raise self._damaged("the checksum of the data is wrong")
            yield PlacedRecord(self._start, data)
            # Without GZIP, a record is its own member.
            after = self._start + end - start
            self._start = piece.start if self._compressed else after
            self._number += 1
            start = end
        del buffer[:start]

    def _length(self, start: int) -> int:
        length, crc = struct.unpack_from("<QI", self._buffer, start)
        if masked_crc32c(bytes(self._buffer[start : start + 8])) != crc:
            raise self._damaged("the checksum of the length is wrong")
        return int(length)

    def close(self) -> None:
        """Raises DamagedStream if the last record is not complete."""
        if self._buffer:
            where = "header" if len(self._buffer) < _HEADER_BYTES else "data"
            raise self._damaged(f"the file ends inside the {where}")

    def _damaged(self, problem: str) -> DamagedStream:
        return DamagedStream(self._start, f"record {self._number}: {problem}")
