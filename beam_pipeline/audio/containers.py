"""Reads from a file's header how many bytes of samples it declares.

libsndfile silently shortens a truncated file to the samples that are present, and reads
others beyond the end of their samples. So this module reads the declared size itself.
It does not decode. For a format that it does not know, the result is ``None``, and only
libsndfile judges the file.
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

_HEAD_BYTES = 1024
# Kind, channels, frames and bytes of a second, bytes of a frame, bits of a sample.
_WAVE_FORMAT = "HHIIHH"
_WAVE_SAMPLES = (1, 3, 0xFFFE)  # whole numbers, floats; either, with more fields


@dataclass(frozen=True, slots=True)
class DataSize:
    """Bytes of sample data that the header declares, and that the file holds."""

    declared: int
    present: int


@dataclass(frozen=True, slots=True)
class ChunkFormat:
    """How a family of containers writes the header of a chunk."""

    header: struct.Struct
    data: bytes  # id of the chunk that holds the samples
    first: int = 12  # offset of the first chunk
    align: int = 2  # chunks start at multiples of it, counted from ``first``
    size_counts_header: bool = False
    lead: int = 0  # bytes of the data chunk before the samples
    streamed: tuple[tuple[int, int], ...] = _STREAMED_32


_RIFF = ChunkFormat(struct.Struct("<4sI"), b"data")
_RIFX = ChunkFormat(struct.Struct(">4sI"), b"data")
_AIFF = ChunkFormat(struct.Struct(">4sI"), b"SSND", lead=8)
SVX = ChunkFormat(struct.Struct(">4sI"), b"BODY")
_CAF = ChunkFormat(struct.Struct(">4sQ"), b"data", 8, 1, lead=4, streamed=_STREAMED_64)
_W64 = ChunkFormat(
    struct.Struct("<16sQ"),
    b"data\xf3\xac\xd3\x11\x8c\xd1\x00\xc0\x4f\x8e\xdb\x8a",
    40,
    8,
    size_counts_header=True,
    streamed=_STREAMED_64,
)
_ASF = ChunkFormat(
    struct.Struct("<16sQ"),
    b"\x36\x26\xb2\x75\x8e\x66\xcf\x11\xa6\xd9\x00\xaa\x00\x62\xce\x6c",
    0,
    1,
    size_counts_header=True,
)
_FAMILIES = {
    (b"RIFF", b"WAVE"): _RIFF,
    (b"RF64", b"WAVE"): _RIFF,
    (b"BW64", b"WAVE"): _RIFF,
    (b"RIFX", b"WAVE"): _RIFX,
    (b"FORM", b"AIFF"): _AIFF,
    (b"FORM", b"AIFC"): _AIFF,
    (b"FORM", b"8SVX"): SVX,
    (b"FORM", b"16SV"): SVX,
}


def find_data_size(file: BinaryIO, file_bytes: int) -> DataSize | None:
    """Returns the declared and the present size of a container's samples.

    Parameters
    ----------
    file
        Open, seekable and binary. The position changes.
    file_bytes
        Size of the file.

    Returns
    -------
    DataSize or None
        ``None`` if the container is none of WAV (RIFF, RIFX, RF64, BW64), AIFF,
        AIFC, CAF, W64, SVX, ASF, AU, NIST SPHERE, AVR, MPC 2000 and WVE, if it has no
        data chunk, or if its size is the placeholder of a streaming writer.
    """
    head = read_at(file, 0, _HEAD_BYTES)
    chunks = _chunk_format(head)
    if chunks is None:
        try:
            found = _declared_after_header(head)
        except struct.error:
            return None  # the header ends early
        if found is None:
            return None
        start, declared = found
        return DataSize(declared, max(0, file_bytes - start))
    size_in_ds64: int | None = None
    for chunk_id, body, size in _walk(file, file_bytes, chunks):
        if chunk_id == b"ds64":
            ds64 = read_at(file, body + 8, 8)
            size_in_ds64 = int.from_bytes(ds64, "little")
        elif chunk_id == chunks.data:
            if size == 0xFFFFFFFF and size_in_ds64 is not None:
                size = size_in_ds64
            elif _is_streamed(size, chunks.streamed):
                return None
            present = max(0, file_bytes - body - chunks.lead)
            return DataSize(max(0, size - chunks.lead), present)
    return None


def _declared_after_header(head: bytes) -> tuple[int, int] | None:
    """Returns where samples after one header begin, and how many bytes it declares."""
    if head[:4] == b".snd":
        start, size = struct.unpack_from(">II", head, 4)
        return None if _is_streamed(size, _STREAMED_32) else (start, size)
    if head[:7] == b"NIST_1A":
        return _sphere_size(head)
    if head[:4] == b"2BIT":  # AVR
        stereo, bits = struct.unpack_from(">HH", head, 12)
        (frames,) = struct.unpack_from(">I", head, 26)
        return 128, frames * (2 if stereo else 1) * (bits // 8)
    if head[:15] == b"ALawSoundFile**":  # WVE
        return 32, int.from_bytes(head[18:22], "big")
    if head[:2] == b"\x01\x04":  # MPC 2000
        (frames,) = struct.unpack_from("<I", head, 30)
        return 42, frames * (2 if head[21] else 1) * 2
    return None


def _sphere_size(head: bytes) -> tuple[int, int] | None:
    start = re.match(rb"NIST_1A\s+(\d+)\s", head)
    size = 1
    for field in (rb"sample_count", rb"channel_count", rb"sample_n_bytes"):
        value = re.search(rb"\n" + field + rb" -i (\d+)\s", head)
        if value is None:
            return None
        size *= int(value[1])
    return None if start is None else (int(start[1]), size)


def _is_streamed(size: int, streamed: tuple[tuple[int, int], ...]) -> bool:
    return any(low <= size <= high for low, high in streamed)


def _chunk_format(head: bytes) -> ChunkFormat | None:
    """Returns the chunk format for a file's first bytes; None if it is unknown."""
    if head[:4] == b"caff":
        return _CAF
    if head[:8] == b"riff\x2e\x91\xcf\x11":
        return _W64
    if head[:8] == b"\x30\x26\xb2\x75\x8e\x66\xcf\x11":
        return _ASF
    return _FAMILIES.get((head[:4], head[8:12]))


def wave_problem(file: BinaryIO, file_bytes: int) -> str | None:
    """Says why a WAV or W64 file has no certain size of a sample; None if it has.

    libsndfile believes the bits, and reads noise if they are wrong. So they are
    compared with the bytes of a frame, if the bytes of a second confirm these. Some
    programs write the bytes of a sample in place of those of a frame.
    """
    chunks = _chunk_format(read_at(file, 0, 16))
    if chunks not in (_RIFF, _RIFX, _W64):
        return None
    for chunk_id, body, _ in _walk(file, file_bytes, chunks):
        if chunk_id[:4] == b"fmt ":
            return _samples_problem(read_at(file, body, 16), chunks.header.format[0])
    return None


def _samples_problem(fields: bytes, order: str) -> str | None:
    """Compares the fields of a WAV file's format, in the given order of bytes."""
    if len(fields) < 16:
        return None  # the file ends early
    values = struct.unpack(f"{order}{_WAVE_FORMAT}", fields)
    kind, channels, rate, second_bytes, frame_bytes, bits = values
    if kind not in _WAVE_SAMPLES or 0 in (channels, frame_bytes, bits):
        return None
    needed = -(-bits // 8)
    confirmed = second_bytes == rate * frame_bytes
    if not confirmed or frame_bytes in (needed * channels, needed):
        return None
    return (
        f"is damaged: its header declares samples of {bits} bits in {channels} "
        f"channels, but {frame_bytes} bytes for a frame"
    )


def chunks_of(file: BinaryIO, chunks: ChunkFormat) -> dict[bytes, tuple[int, int]]:
    """Returns the offset and the size of each chunk of a file, by its id."""
    file_bytes = file.seek(0, 2)
    return {name: (at, size) for name, at, size in _walk(file, file_bytes, chunks)}


def _walk(
    file: BinaryIO, file_bytes: int, chunks: ChunkFormat
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


def after_id3(file: BinaryIO) -> int:
    """Returns where the ID3 tags at the start of a file end."""
    start = 0
    while (tag := read_at(file, start, 10))[:3] == b"ID3" and len(tag) == 10:
        size = 0
        for byte in tag[6:]:
            size = size << 7 | byte & 0x7F
        start += 10 + size + (10 if tag[5] & 0x10 else 0)
    return start


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
