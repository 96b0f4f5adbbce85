"""GZIP streams and their members; columns of integers as compressed text.

Members that follow each other in a file are one stream to every reader of GZIP.
"""

from __future__ import annotations

import base64
import hashlib
import os
import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
from isal import igzip_lib, isal_zlib

Integers = npt.NDArray[Any]

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
    ended : bool
        Whether it is the last of its member.
    """

    start: int
    read: int
    content: bytes
    ended: bool


class MemberWriter:
    """Writes members that are complete, and counts and hashes their bytes.

    The bytes of a GZIP member depend only on its content: its header holds no time and
    no name.

    Parameters
    ----------
    file : binary file
        Closed with the writer.
    compression : str
        See :func:`compress_member`.
    """

    def __init__(self, file: BinaryIO, compression: str = "gzip"):
        self._file = file
        self._compression = compression
        self._waiting = bytearray()
        self._sha256 = hashlib.sha256()
        self.bytes_written = 0

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

    def write(self, data: bytes) -> int:
        """Adds ``data`` to a member of up to 1 MiB; returns its length."""
        if self._waiting and len(self._waiting) + len(data) > _BLOCK:
            self._end_member()
        self._waiting += data
        return len(data)

    def _end_member(self) -> None:
        self.write_member(self._waiting)
        self._waiting = bytearray()

    def flush(self) -> None:
        """Does nothing, because a flush before the end would change the bytes."""

    def close(self) -> None:
        """Ends the last member and closes ``file``."""
        # A file without any bytes would not be GZIP.
        if self._waiting or not self.bytes_written:
            self._end_member()
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
                member, start = (
                    isal_zlib.decompressobj(_GZIP_WBITS),
                    position - len(block),
                )
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
            if piece or ended:
                yield Piece(start, position, piece, ended)
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
        raise ValueError(f"they cannot be read as GZIP: {error}") from error
    if not fits:
        raise ValueError(f"they do not hold the {length} bytes that they state")
    return b"".join(parts)


def inflate_member(data: Any, length: int = -1) -> bytes:
    """Returns the content of the GZIP member that ``data`` begins with.

    Parameters
    ----------
    data : bytes-like
    length : int
        The length of the content; a longer one is an error, and memory holds no more of
        it. Default: any.

    Raises
    ------
    ValueError
        It is not GZIP, has a wrong checksum, is longer, or ends early.
    """
    member = igzip_lib.IgzipDecompressor(flag=igzip_lib.DECOMP_GZIP)
    try:
        content: bytes = member.decompress(data, length)
        # A limit that is reached leaves the checksum, and what is too much.
        if not member.eof and member.decompress(b"", 1):
            raise ValueError(f"it is longer than the {length} bytes that it states")
    except (_IsalError, EOFError, ValueError) as error:
        raise ValueError(f"it cannot be read as GZIP: {error}") from error
    if not member.eof:
        raise ValueError("it cannot be read as GZIP: it ends early")
    return content


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
    planes = np.frombuffer(inflate_member(packed, most_bytes(len(packed))), np.uint8)
    table = np.ascontiguousarray(planes.reshape(8, -1).T).view("<i8")
    return list(table.reshape(columns, -1).astype(np.int64))
