"""Reads from a file's bytes how much audio it declares, and how much is present.

libsndfile silently shortens a truncated file to the samples that are present, so this
module reads the declared size itself. It does not decode. For a format that it does not
know, the result is ``None``, and only libsndfile judges the file.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

# Programs that write to a pipe cannot go back to fill in the size. They leave the
# largest number, signed or unsigned, or a slightly smaller one (sox: 0x7FFFF000).
_STREAMED_32 = ((0x7FFFE000, 0x80000000 + 0x1000), (0xFFFFE000, 0xFFFFFFFF))
_STREAMED_64 = ((2**63 - 0x2000, 2**64 - 1),)

# Kind, channels, frames and bytes of a second, bytes of a frame, bits of a sample.
_WAVE_FORMAT = "HHIIHH"
_WAVE_SAMPLES = (1, 3, 0xFFFE)  # whole numbers, floats; either, with more fields


@dataclass(frozen=True, slots=True)
class DataSize:
    """Bytes of sample data that the header declares, and that the file holds."""

    declared: int
    present: int


@dataclass(frozen=True, slots=True)
class Condition:
    """What is wrong with a compressed stream, as ends of "The file ..."; or ``None``.

    A file that is only ``cut`` is good up to its end. ``frames`` is how many the file
    holds, if that is known and the decoder may give more.
    """

    damage: str | None = None
    cut: str | None = None
    frames: int | None = None


@dataclass(frozen=True, slots=True)
class _ChunkFormat:
    """How a family of containers writes the header of a chunk."""

    header: struct.Struct
    first: int  # offset of the first chunk
    align: int  # chunks start at multiples of it, counted from ``first``
    data: bytes  # id of the chunk that holds the samples
    size_counts_header: bool = False
    lead: int = 0  # bytes of the data chunk before the samples
    streamed: tuple[tuple[int, int], ...] = _STREAMED_32


_RIFF = _ChunkFormat(struct.Struct("<4sI"), 12, 2, b"data")
_RIFX = _ChunkFormat(struct.Struct(">4sI"), 12, 2, b"data")
_AIFF = _ChunkFormat(struct.Struct(">4sI"), 12, 2, b"SSND", lead=8)
_SVX = _ChunkFormat(struct.Struct(">4sI"), 12, 2, b"BODY")
_CAF = _ChunkFormat(struct.Struct(">4sQ"), 8, 1, b"data", lead=4, streamed=_STREAMED_64)
_W64 = _ChunkFormat(
    struct.Struct("<16sQ"),
    40,
    8,
    b"data\xf3\xac\xd3\x11\x8c\xd1\x00\xc0\x4f\x8e\xdb\x8a",
    size_counts_header=True,
    streamed=_STREAMED_64,
)


def find_data_size(file: BinaryIO, file_bytes: int) -> DataSize | None:
    """Returns the declared and the present size of a PCM container's samples.

    Parameters
    ----------
    file
        Open, seekable and binary. The position changes.
    file_bytes
        Size of the file.

    Returns
    -------
    DataSize or None
        ``None`` if the container is not one of WAV (RIFF, RIFX, RF64, BW64), AIFF,
        AIFC, CAF, W64, SVX, AU and NIST SPHERE, if it has no data chunk, or if its size
        is the placeholder of a streaming writer.
    """
    magic = read_at(file, 0, 16)
    if magic[:4] == b".snd":
        return _find_au_data(magic, file_bytes)
    if magic[:7] == b"NIST_1A":
        return _find_sphere_data(file, file_bytes)
    chunks = _chunk_format(magic)
    if chunks is None:
        return None
    size_in_ds64: int | None = None
    for chunk_id, body, size in _walk(file, file_bytes, chunks):
        if chunk_id == b"ds64":
            ds64 = read_at(file, body + 8, 8)
            size_in_ds64 = int.from_bytes(ds64, "little")
        elif chunk_id == chunks.data:
            if size == 0xFFFFFFFF and size_in_ds64 is not None:
                size = size_in_ds64
            elif any(low <= size <= high for low, high in chunks.streamed):
                return None
            present = max(0, file_bytes - body - chunks.lead)
            return DataSize(max(0, size - chunks.lead), present)
    return None


def _chunk_format(magic: bytes) -> _ChunkFormat | None:
    """Returns the chunk format for a file's first bytes; None if it is unknown."""
    family, kind = magic[:4], magic[8:12]
    if kind == b"WAVE" and family in (b"RIFF", b"RF64", b"BW64"):
        return _RIFF
    if kind == b"WAVE" and family == b"RIFX":
        return _RIFX
    if family == b"FORM" and kind in (b"AIFF", b"AIFC"):
        return _AIFF
    if family == b"FORM" and kind in (b"8SVX", b"16SV"):
        return _SVX
    if family == b"caff":
        return _CAF
    if magic[:8] == b"riff\x2e\x91\xcf\x11":
        return _W64
    return None


def check_wave(file: BinaryIO, file_bytes: int) -> Condition | None:
    """Checks that a WAV or W64 file declares one size of its samples.

    libsndfile believes the bits, and reads noise if they are wrong. So they are
    compared with the bytes of a frame, if the bytes of a second confirm these. Some
    programs write the bytes of a sample in place of those of a frame.

    Returns
    -------
    Condition or None
        ``None`` for other formats.
    """
    chunks = _chunk_format(read_at(file, 0, 16))
    if chunks not in (_RIFF, _RIFX, _W64):
        return None
    for chunk_id, body, _ in _walk(file, file_bytes, chunks):
        if chunk_id[:4] == b"fmt ":
            return _check_samples(read_at(file, body, 16), chunks.header.format[0])
    return Condition()


def _check_samples(fields: bytes, order: str) -> Condition:
    """Checks the fields of a WAV file's format, in the given order of bytes."""
    try:
        values = struct.unpack(f"{order}{_WAVE_FORMAT}", fields)
    except struct.error:
        return Condition()  # the file ends early
    kind, channels, rate, second_bytes, frame_bytes, bits = values
    if kind not in _WAVE_SAMPLES or 0 in (channels, frame_bytes, bits):
        return Condition()
    needed = -(-bits // 8)
    confirmed = second_bytes == rate * frame_bytes
    if not confirmed or frame_bytes in (needed * channels, needed):
        return Condition()
    return Condition(
        f"is damaged: its header declares samples of {bits} bits, but "
        f"{frame_bytes} bytes for {channels} of them"
    )


def caf_chunks(file: BinaryIO, file_bytes: int) -> Iterator[tuple[bytes, int, int]]:
    """Yields id, offset and size of each chunk of a CAF file; none of other formats."""
    if read_at(file, 0, 4) == b"caff":
        yield from _walk(file, file_bytes, _CAF)


def _walk(
    file: BinaryIO, file_bytes: int, chunks: _ChunkFormat
) -> Iterator[tuple[bytes, int, int]]:
    """Yields each chunk's id, the offset of its body, and the body's declared size."""
    header_bytes = chunks.header.size
    position = chunks.first
    while position + header_bytes <= file_bytes:
        chunk_id, size = chunks.header.unpack(read_at(file, position, header_bytes))
        body = position + header_bytes
        if chunks.size_counts_header:
            size = max(0, size - header_bytes)
        yield chunk_id, body, size
        position = body + size + -size % chunks.align


def _find_au_data(magic: bytes, file_bytes: int) -> DataSize | None:
    if len(magic) < 12:
        return None
    start, size = struct.unpack(">II", magic[4:12])
    if any(low <= size <= high for low, high in _STREAMED_32):
        return None
    return DataSize(size, max(0, file_bytes - start))


def _find_sphere_data(file: BinaryIO, file_bytes: int) -> DataSize | None:
    header = read_at(file, 0, 1024)
    start = re.match(rb"NIST_1A\s+(\d+)\s", header)
    size = 1
    for field in (rb"sample_count", rb"channel_count", rb"sample_n_bytes"):
        value = re.search(rb"\n" + field + rb" -i (\d+)\s", header)
        if value is None:
            return None
        size *= int(value[1])
    if start is None:
        return None
    return DataSize(size, max(0, file_bytes - int(start[1])))


def read_at(file: BinaryIO, position: int, count: int) -> bytes:
    """Reads ``count`` bytes from ``position``; fewer only at the end of the file."""
    file.seek(position)
    data = file.read(count)
    while len(data) < count:  # an unbuffered file may return fewer bytes than it has
        more = file.read(count - len(data))
        if not more:
            break
        data += more
    return data
