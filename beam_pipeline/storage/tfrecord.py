"""The TFRecord format and its GZIP stream, without Beam or TensorFlow.

A record is ``length u64le | crc(length) u32le | data | crc(data) u32le``. Here, crc is
CRC-32C, rotated right by 15 bits plus a constant, as TensorFlow defines it.

A GZIP file consists of members, which are one stream to every reader. Columns of
integers are texts of one member.
"""

from __future__ import annotations

import base64
import hashlib
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import lru_cache
from typing import Any, BinaryIO, NamedTuple

import google_crc32c
import numpy as np
from isal import igzip_lib, isal_zlib

from beam_pipeline.arrays import Integers
from beam_pipeline.errors import InputError
from beam_pipeline.storage import files

# This level of ISA-L compresses float audio and spectra as well as the other levels,
# within 1-4 %, and up to twice as fast. Its bytes are the same on processors with and
# without AVX-512; those of level 3 differ.
GZIP_LEVEL = 1
_GZIP_WBITS = 31
_DEFLATE_WBITS = -15  # neither a header nor a trailer
_MEMORY_LEVEL = 9
# DEFLATE; no name, no time, an unknown system (RFC 1952).
_HEADER = b"\x1f\x8b\x08\0\0\0\0\0\0\xff"
# A member begins with so many bytes that are stored as they are.
_STORED = 8
_BLOCK = 1 << 20
# How much of a file's content is inflated at once, however small its bytes are.
_PIECE = 4 << 20
# The stubs of isal call this class an instance.
_IsalError: Any = igzip_lib.IsalError
# What isal.igzip.decompress uses; the stubs lack it.
_GzipReader: Any = isal_zlib._GzipReader

_NO_GZIP = "the file cannot be read as GZIP"

SUFFIX = ".tfrecord.gz"
PLAIN_SUFFIX = ".tfrecord"  # without GZIP
# No protobuf message is longer.
LONGEST_RECORD = 1 << 31
_MASK_DELTA = 0xA282EAD8
FRAME_BYTES = 16  # what a record has besides its data
_HEADER_BYTES = 12  # a length and its checksum
_GZIP_MAGIC = b"\x1f\x8b"

# A record, or a member, may take so many bytes of memory, or so many times the bytes of
# its file: a crafted one must not request it all.
MOST_BYTES = 256 << 20
MOST_TIMES = 16
# For those who trust a data set whose records are larger.
VARIABLE = "AUDIO_TFRECORDS_MOST_BYTES"


def most_bytes(on_disk: int) -> int:
    """Returns the most memory that the content of a file may take at once, in bytes.

    256 MiB, or 16 times the bytes on disk if that is more. Silence is compressed a
    thousandfold, so the variable ``AUDIO_TFRECORDS_MOST_BYTES`` raises the first limit.

    Parameters
    ----------
    on_disk : int
        The bytes of the file, or of the part of it that was read.
    """
    given = os.environ.get(VARIABLE, "")
    is_number = given.isascii() and given.isdigit() and len(given) < 20
    return max(MOST_BYTES, int(given) if is_number else 0, MOST_TIMES * on_disk)


def too_long(length: int, on_disk: int) -> str | None:
    """Says why something of this length is not read; None if it may be read."""
    most = most_bytes(on_disk)
    if length <= most:
        return None
    return (
        f"it takes {length} bytes of memory, but at most {most} are allowed for "
        f"{on_disk} bytes on disk; if you trust the data set, set {VARIABLE}"
    )


class DamagedStream(ValueError):
    """``DamagedStream(offset, problem)``: where a file is damaged, and how.

    The offset is where the damaged member, or record, begins in the file.
    """

    def __str__(self) -> str:
        offset, problem = self.args
        return f"byte {offset}: {problem}"


class Piece(NamedTuple):
    """Some content of a file.

    Attributes
    ----------
    start : int
        Where its member, or the piece itself without GZIP, begins in the file.
    read : int
        How many bytes of the file were read up to here.
    content : bytes
    """

    start: int
    read: int
    content: bytes


class MemberWriter:
    """Writes members, and counts and hashes their bytes.

    The bytes of a GZIP member depend only on its content: its header holds no time and
    no name.

    Parameters
    ----------
    file : binary file
        Closed with the writer.
    compression : str
        See :func:`compress_member`.

    Attributes
    ----------
    members : list of (int, int)
        The bytes and the records of each member that was ended.
    """

    def __init__(self, file: BinaryIO, compression: str = "gzip"):
        self._file = file
        self._compression = compression
        # Of the member that is not complete.
        self._waiting, self._length, self._records = list[bytes](), 0, 0
        self._sha256 = hashlib.sha256()
        self.members: list[tuple[int, int]] = []
        self.bytes_written = 0

    @classmethod
    def create(cls, path: str, compression: str = "none") -> MemberWriter:
        """Returns the writer of a new local file."""
        with files.writing(path):
            return cls(open(path, "wb"), compression)

    def sha256(self) -> str:
        """Returns the SHA-256 of the bytes written to ``file``, in hexadecimal."""
        return self._sha256.hexdigest()

    def write_member(self, data: bytes | bytearray) -> int:
        """Writes a member; returns its bytes in the file."""
        content = compress_member(data, self._compression)
        self._file.write(content)
        self._sha256.update(content)
        self.bytes_written += len(content)
        return len(content)

    def add(self, parts: Iterable[bytes]) -> None:
        """Adds a framed record, in parts, to the member that is not complete."""
        self._waiting += parts
        self._records += 1

    def end_member(self) -> None:
        """Writes the member that is not complete, if it has records."""
        if self._records:
            size = self.write_member(b"".join(self._waiting))
            self.members.append((size, self._records))
            self._waiting, self._length, self._records = [], 0, 0

    def write(self, data: bytes) -> int:
        """Adds a framed record to a member of up to 1 MiB; returns its length."""
        if self._length + len(data) > _BLOCK:
            self.end_member()
        self._length += len(data)
        self.add([data])
        return len(data)

    def flush(self) -> None:
        """Does nothing, because a flush before the end would change the bytes."""

    def close(self) -> None:
        """Ends the last member and closes ``file``."""
        self.end_member()
        if not self.bytes_written:  # a file without any bytes would not be GZIP
            self.write_member(b"")
        self._file.close()


def compress_member(
    data: bytes | bytearray | memoryview, compression: str = "gzip"
) -> bytes:
    """Returns ``data`` as one whole GZIP member, whose bytes depend only on it.

    Parameters
    ----------
    compression : str
        ``gzip``: by ISA-L. ``gzip:1`` to ``gzip:9``: by zlib at that level; the bytes
        also depend on its version. ``none``: the data as they are.
    """
    content = memoryview(data)
    name, _, level = compression.partition(":")
    if name == "none":
        return bytes(content)
    deflated = _deflate(content, int(level)) if level else _deflate_fast(content)
    trailer = struct.pack("<II", isal_zlib.crc32(content), len(content) & 0xFFFFFFFF)
    return b"".join((_HEADER, *deflated, trailer))


def _deflate(content: memoryview, level: int) -> tuple[bytes, ...]:
    deflate = zlib.compressobj(level, zlib.DEFLATED, _DEFLATE_WBITS, _MEMORY_LEVEL)
    return deflate.compress(content), deflate.flush()


def _deflate_fast(content: memoryview) -> tuple[bytes, ...]:
    """Returns the content as ISA-L compresses it.

    The first bytes are stored as they are, and ISA-L compresses the others with these
    as its dictionary. Otherwise the same content would have other bytes at some
    addresses of the compressor: without a dictionary, ISA-L (2.32) enters the third
    byte into its table under a hash of the address of its own state, because
    ``.write_first_byte`` in ``igzip_icf_body_h1_gr_bt.asm`` hashes a register that
    still holds it.
    """
    head = bytes(content[:_STORED])
    deflate = isal_zlib.compressobj(
        GZIP_LEVEL,
        zlib.DEFLATED,
        _DEFLATE_WBITS,
        _MEMORY_LEVEL,
        zlib.Z_DEFAULT_STRATEGY,
        head,
    )
    stored = struct.pack("<BHH", 0, len(head), len(head) ^ 0xFFFF)  # not the last block
    return stored, head, deflate.compress(content[_STORED:]), deflate.flush()


def inflate_by_member(
    file: BinaryIO, sha256: hashlib._Hash | None = None
) -> Iterator[Piece]:
    """Yields the decompressed content of a GZIP file, in pieces of its members.

    A piece has at most 4 MiB, however well it was compressed.

    Parameters
    ----------
    sha256 : hash object, optional
        Updated with the compressed bytes of the file.

    Raises
    ------
    DamagedStream
        The file is not GZIP, has a wrong checksum, or ends early.
    """
    member, start, position = None, 0, 0
    while block := file.read(_BLOCK):
        if sha256 is not None:
            sha256.update(block)
        position += len(block)
        more = True
        while more:
            if member is None:
                member = isal_zlib.decompressobj(_GZIP_WBITS)
                start = position - len(block)
            try:
                piece = member.decompress(block, _PIECE)
            except _IsalError as error:
                raise DamagedStream(start, f"{_NO_GZIP}: {error}") from error
            ended = member.eof
            # A full piece may leave content that needs no more of the file's bytes.
            more = not ended and len(piece) == _PIECE
            block = member.unused_data if ended else member.unconsumed_tail
            if ended:
                member = None
            more = more or bool(block)
            if piece:
                yield Piece(start, position, piece)
    if member is not None:
        raise DamagedStream(start, f"{_NO_GZIP}: it ends early")


def inflate_members(data: Any, length: int) -> bytes:
    """Returns the content of GZIP members that follow each other, in one call.

    Threads wait for each other less than with a call for each member.

    Parameters
    ----------
    data : bytes-like
    length : int
        The length of the content. Memory holds no more of it.

    Raises
    ------
    ValueError
        One of them is not GZIP, has a wrong checksum, or ends early; or the content has
        another length.
    """
    reader, parts, lacking = _GzipReader(data), list[bytes](), length
    try:
        while lacking > 0 and (part := reader.read(lacking)):
            parts.append(part)
            lacking -= len(part)
        # Reading on compares the last checksum.
        fits = lacking == 0 and not reader.read(1)
    except (_IsalError, OSError, EOFError, ValueError) as error:
        raise ValueError(f"it cannot be read as GZIP: {error}") from error
    if not fits:
        raise ValueError(f"it does not hold the {length} bytes that it states")
    return b"".join(parts)


def content_length(member: Any) -> int:
    """Returns how long the content of a GZIP member is, from its last 4 bytes."""
    return int.from_bytes(member[-4:], "little")


class Members(NamedTuple):
    """The members of a file, in its order: their bytes, and their records.

    Both have shape (members,), int64.
    """

    sizes: Integers
    counts: Integers

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> Members:
        """Returns members from pairs of bytes and records."""
        table = np.array(list(pairs), np.int64).reshape(-1, 2)
        return cls(table[:, 0], table[:, 1])

    def pack(self) -> str:
        """Returns the members as a short text, which a receipt in JSON can hold."""
        return pack_columns(self)

    @classmethod
    def unpack(cls, text: str) -> Members:
        """Returns the members that :meth:`pack` packed."""
        return cls(*unpack_columns(text, 2))


def pack_columns(columns: Iterable[Integers]) -> str:
    """Returns integer columns of equal length as a short text."""
    table = np.stack([np.asarray(column, "<i8") for column in columns])
    # The bytes of a significance together: those of high significance are mostly 0.
    planes = np.ascontiguousarray(table.view(np.uint8).reshape(-1, 8).T)
    return base64.b64encode(compress_member(planes.tobytes())).decode()


def unpack_columns(text: str, columns: int) -> list[Integers]:
    """Returns the columns that :func:`pack_columns` packed, as int64."""
    packed = base64.b64decode(text)
    length = content_length(packed)
    if problem := too_long(length, len(packed)):
        raise ValueError(problem)
    planes = np.frombuffer(inflate_members(packed, length), np.uint8)
    table = np.ascontiguousarray(planes.reshape(8, -1).T).view("<i8")
    return list(table.reshape(columns, -1).astype(np.int64))


def suffix_for(compression: str) -> str:
    """Returns the end of the name of a shard; see :func:`.compress_member`."""
    return PLAIN_SUFFIX if compression == "none" else SUFFIX


def is_compressed(file: str) -> bool:
    """Whether a shard is compressed, by its name."""
    return file.endswith(SUFFIX)


def masked_crc32c(data: Any) -> int:
    """Returns the checksum that TFRecord stores for ``data``, bytes or an array."""
    crc = int(google_crc32c.value(data))
    return ((crc >> 15 | crc << 17) + _MASK_DELTA) & 0xFFFFFFFF


def frame_record(data: bytes) -> bytes:
    """Returns ``data`` as one record, framed with its length and checksums."""
    return b"".join(frame_parts(data))


def frame_parts(data: bytes) -> tuple[bytes, bytes, bytes]:
    """Returns the pieces of a framed record: what is before the data, they, a checksum.

    For those who put them into a buffer, which saves a copy.
    """
    return _frame_header(len(data)), data, struct.pack("<I", masked_crc32c(data))


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
    crc = masked_crc32c(np.frombuffer(buffer, np.uint8, length, at))
    if int.from_bytes(buffer[end : end + 4], "little") != crc:
        raise ValueError("the checksum of the data is wrong")
    return at, end


def record_bounds(data: bytes) -> list[int]:
    """Returns where each record of an uncompressed TFRecord begins, and where it ends.

    Reads only the lengths: the checksums are not compared.
    """
    bounds = [0]
    while bounds[-1] < len(data):
        length = int.from_bytes(data[bounds[-1] : bounds[-1] + 8], "little")
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
    records = placed_records(file, sha256, compressed=is_gzip(file))
    return (record.data for record in records)


def is_gzip(file: BinaryIO) -> bool:
    """Whether a TFRecord file is compressed; leaves the file at its beginning."""
    start = file.read(_HEADER_BYTES)
    file.seek(0)
    length = int.from_bytes(start[:8], "little")
    return start[:2] == _GZIP_MAGIC and start != _frame_header(length)


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
    buffer, number, start = bytearray(), 0, 0  # of the first record in the buffer

    def damaged(problem: str) -> DamagedStream:
        return DamagedStream(start, f"record {number}: {problem}")

    for piece in _pieces(file, sha256, compressed):
        if not buffer:
            start = piece.start
        buffer += piece.content
        at = 0
        while len(buffer) - at >= _HEADER_BYTES:
            length, crc = struct.unpack_from("<QI", buffer, at)
            if masked_crc32c(bytes(buffer[at : at + 8])) != crc:
                raise damaged("the checksum of the length is wrong")
            end = at + FRAME_BYTES + length
            if len(buffer) < end:
                problem = too_long(len(buffer) - at, piece.read)
                if problem is not None or length > LONGEST_RECORD:
                    raise damaged(problem or f"it cannot have {length} bytes")
                break
            data = bytes(memoryview(buffer)[at + _HEADER_BYTES : end - 4])
            (crc,) = struct.unpack_from("<I", buffer, end - 4)
            if masked_crc32c(data) != crc:
                raise damaged("the checksum of the data is wrong")
            yield PlacedRecord(start, data)
            # Without GZIP, a record is its own member.
            start = piece.start if compressed else start + end - at
            number += 1
            at = end
        del buffer[:at]
    if buffer:
        where = "header" if len(buffer) < _HEADER_BYTES else "data"
        raise damaged(f"the file ends inside the {where}")


def _pieces(
    file: BinaryIO, sha256: hashlib._Hash | None, compressed: bool
) -> Iterator[Piece]:
    """Yields the uncompressed content of a file."""
    if compressed:
        yield from inflate_by_member(file, sha256)
        return
    read = 0
    while block := file.read(_BLOCK):
        if sha256 is not None:
            sha256.update(block)
        start, read = read, read + len(block)
        yield Piece(start, read, block)


GZIP_SUFFIX = ".gz"


def write_records(path: str | os.PathLike[str], records: Iterable[bytes]) -> int:
    """Writes records into one TFRecord file, without Beam and without TensorFlow.

    ::

        write_records("data.tfrecord", [b"123", b"xyz314"])

    The file appears once it is whole, and replaces one of the same name. Memory holds
    one record. Equal records give equal bytes.

    Parameters
    ----------
    path : path
        On any file system of this package. If it ends in ``.gz``, the file is
        compressed with GZIP; otherwise it is not compressed.
    records : iterable of bytes
        For example serialised examples of :func:`encode_example`.

    Returns
    -------
    int
        The number of records.

    Raises
    ------
    InputError
        If a record is not bytes; no file is written then.
    """
    target = files.given_path("path", path)
    count = 0
    with files.replacing(target) as file:
        is_gzip = target.lower().endswith(GZIP_SUFFIX)
        with closing(MemberWriter(file) if is_gzip else file) as writer:
            for record in records:
                if not isinstance(record, bytes):
                    raise InputError(
                        f"Record {count} is a {type(record).__name__}, but must be "
                        "bytes. `encode_example` makes bytes of a dict of values."
                    )
                writer.write(frame_record(record))
                count += 1
    return count


def read_records(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Yields the records of a TFRecord file, without Beam and without TensorFlow.

    The content of the file shows whether it is compressed with GZIP. Both checksums of
    each record are compared.

    Parameters
    ----------
    path : path
        On any file system of this package.

    Raises
    ------
    InputError
        If there is no such file, or when it comes to a damaged record. The error names
        both.
    """
    source = files.given_path("path", path)
    if files.size(source) < 0:
        raise InputError(f"{source} does not exist. Check the path.")
    return _read(source)


def _read(source: str) -> Iterator[bytes]:
    with files.open_read(source) as file:
        try:
            yield from read_any_records(file)
        except ValueError as error:
            raise InputError(
                f"{source} is not a whole TFRecord file: {error}. Restore the file."
            ) from error
