"""The TFRecord format and its GZIP stream, without Beam or TensorFlow.

A record is ``length u64le | crc(length) u32le | data | crc(data) u32le``. Here, crc is
CRC-32C, rotated right by 15 bits plus a constant, as TensorFlow defines it.
"""

from __future__ import annotations

import hashlib
import struct
import warnings
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, BinaryIO, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt
from isal import igzip_lib, isal_zlib

SUFFIX = ".tfrecord.gz"

# This level of ISA-L compresses float audio and spectra as well as the other levels,
# within 1-4 %, and up to twice as fast. Its bytes are the same on processors with and
# without AVX-512; those of level 3 differ.
GZIP_LEVEL = 1
_GZIP_WBITS = 31
_MEMORY_LEVEL = 9
_BLOCK = 1 << 20
_MASK_DELTA = 0xA282EAD8
FRAME_BYTES = 16  # what a record has besides its data
_HEADER_BYTES = 12  # a length and its checksum
_GZIP_MAGIC = b"\x1f\x8b"
# The stubs of isal call this class an instance.
_IsalError: Any = igzip_lib.IsalError

if google_crc32c.implementation != "c":
    warnings.warn(
        "google-crc32c runs as pure Python here, which makes writing records hundreds "
        "of times slower. Install a build with its C extension "
        "(pip install --force-reinstall google-crc32c).",
        RuntimeWarning,
        stacklevel=2,
    )


def masked_crc32c(data: bytes) -> int:
    """Returns the checksum that TFRecord stores for ``data``."""
    crc: int = google_crc32c.value(data)
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def frame_record(data: bytes) -> bytes:
    """Returns ``data`` as one record, framed with its length and checksums."""
    return b"".join(frame_parts(data))


def frame_parts(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Returns the pieces of a framed record: what is before the data, they, a checksum.

    For those who put them into a buffer, which saves a copy.
    """
    return _frame_header(len(data)), data, struct.pack("<I", masked_crc32c(data))


class FramedRecords(NamedTuple):
    """Framed records of equal length, one after the other.

    ``size`` is the length of one with its frame, ``records`` their number.
    """

    data: bytes
    size: int
    records: int


def frame_rows(rows: npt.NDArray[np.uint8]) -> FramedRecords:
    """Returns each row of bytes as a framed record; ten times as fast as one by one.

    Parameters
    ----------
    rows : numpy.ndarray, shape (n, length), uint8
    """
    count, length = rows.shape
    data, value = rows.tobytes(), google_crc32c.value
    crcs = [value(data[i : i + length]) for i in range(0, len(data), length)]
    crc = np.array(crcs, np.uint32)
    masked = (crc >> np.uint32(15) | crc << np.uint32(17)) + np.uint32(_MASK_DELTA)
    header = np.frombuffer(_frame_header(length), np.uint8)
    framed = np.empty((count, length + FRAME_BYTES), np.uint8)
    framed[:, : len(header)] = header
    framed[:, len(header) : -4] = rows
    framed[:, -4:] = masked.astype("<u4")[:, np.newaxis].view(np.uint8)
    return FramedRecords(framed.tobytes(), length + FRAME_BYTES, count)


@lru_cache(maxsize=1024)
def _frame_header(length: int) -> bytes:
    """Returns the part before the data; the records of a file are of few lengths."""
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", masked_crc32c(packed))


class GzipWriter:
    """Writes a GZIP member whose bytes depend only on its content.

    The header holds no time and no name. The writer counts and hashes the bytes
    that it writes to ``file``. Closing it finishes the member and closes ``file``.
    """

    def __init__(self, file: BinaryIO, level: int = GZIP_LEVEL):
        self._file = file
        self._deflate = isal_zlib.compressobj(
            level, zlib.DEFLATED, _GZIP_WBITS, _MEMORY_LEVEL
        )
        self._sha256 = hashlib.sha256()
        self.bytes_written = 0

    def write(self, data: bytes) -> int:
        """Compresses ``data``; returns its length."""
        self._put(self._deflate.compress(data))
        return len(data)

    def flush(self) -> None:
        """Does nothing, because a flush before the end would change the bytes."""

    def close(self) -> None:
        """Finishes the member and closes ``file``."""
        self._put(self._deflate.flush())
        self._file.close()

    def sha256(self) -> str:
        """Returns the SHA-256 of the bytes written to ``file``, in hexadecimal."""
        return self._sha256.hexdigest()

    def _put(self, compressed: bytes) -> None:
        if compressed:
            self._file.write(compressed)
            self._sha256.update(compressed)
            self.bytes_written += len(compressed)


def compress_member(data: bytes | bytearray) -> bytes:
    """Returns ``data`` as one whole GZIP member, whose bytes depend only on it.

    Members that follow each other in a file are one stream to every reader of GZIP.
    """
    deflate = isal_zlib.compressobj(
        GZIP_LEVEL, zlib.DEFLATED, _GZIP_WBITS, _MEMORY_LEVEL
    )
    compressed: bytes = deflate.compress(data) + deflate.flush()
    return compressed


def record_bounds(data: bytes) -> list[int]:
    """Returns where each record of an uncompressed TFRecord begins, and where it ends.

    Reads only the lengths: the checksums are not compared.
    """
    bounds = [0]
    while bounds[-1] < len(data):
        (length,) = struct.unpack_from("<Q", data, bounds[-1])
        bounds.append(bounds[-1] + FRAME_BYTES + length)
    return bounds


def inflate(file: BinaryIO, sha256: hashlib._Hash | None = None) -> Iterator[bytes]:
    """Yields the decompressed content of a GZIP file with any number of members.

    Parameters
    ----------
    sha256 : hash object, optional
        Updated with the compressed bytes of the file.

    Raises
    ------
    ValueError
        The file is not GZIP, has a wrong checksum, or ends early.
    """
    member = None
    while block := file.read(_BLOCK):
        if sha256 is not None:
            sha256.update(block)
        while block:
            member = member or isal_zlib.decompressobj(_GZIP_WBITS)
            try:
                piece = member.decompress(block)
            except _IsalError as error:
                raise ValueError(f"the file cannot be read as GZIP: {error}") from error
            if piece:
                yield piece
            block = b""
            if member.eof:
                block, member = member.unused_data, None
    if member is not None:
        raise ValueError("the file cannot be read as GZIP: it ends early")


def read_records(
    file: BinaryIO, sha256: hashlib._Hash | None = None
) -> Iterator[bytes]:
    """Yields the records of a GZIP TFRecord file and checks both checksums of each.

    Parameters
    ----------
    sha256 : hash object, optional
        Updated with the compressed bytes of the file.

    Raises
    ------
    ValueError
        The file is not GZIP, or a record is damaged; the message then names it.
    """
    return _unframe(inflate(file, sha256))


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
        return _unframe(inflate(file, sha256))
    start = file.read(_HEADER_BYTES)
    file.seek(0)
    if len(start) == _HEADER_BYTES and not _is_header(start):
        raise ValueError(
            "record 0: the file is not GZIP, and the checksum of its first length is "
            "wrong"
        )
    return _unframe(_blocks(file, sha256))


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


def _blocks(file: BinaryIO, sha256: hashlib._Hash | None) -> Iterator[bytes]:
    while block := file.read(_BLOCK):
        if sha256 is not None:
            sha256.update(block)
        yield block


def _unframe(pieces: Iterator[bytes]) -> Iterator[bytes]:
    """Yields the records in the uncompressed content of a file."""
    buffer = bytearray()
    number = 0

    def have(size: int) -> bool:
        """Fills the buffer to ``size`` bytes; False if the file ends before."""
        while len(buffer) < size:
            piece = next(pieces, None)
            if piece is None:
                return False
            buffer.extend(piece)
        return True

    while have(1):
        if not have(_HEADER_BYTES):
            raise ValueError(f"record {number}: the file ends inside the header")
        length, length_crc = struct.unpack_from("<QI", buffer)
        if masked_crc32c(bytes(buffer[:8])) != length_crc:
            raise ValueError(f"record {number}: the checksum of the length is wrong")
        if not have(12 + length + 4):
            raise ValueError(f"record {number}: the file ends inside the data")
        data = bytes(memoryview(buffer)[12 : 12 + length])
        (data_crc,) = struct.unpack_from("<I", buffer, 12 + length)
        if masked_crc32c(data) != data_crc:
            raise ValueError(f"record {number}: the checksum of the data is wrong")
        del buffer[: 12 + length + 4]
        number += 1
        yield data
