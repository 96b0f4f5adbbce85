"""Finds where a FLAC stream changes its sample rate, channels or bit depth.

libsndfile does not report these changes. Each FLAC frame repeats the values of the
stream's header, so this module reads the frames' headers itself. A FLAC frame does not
store its length: it ends where the next header begins, and only checksums distinguish a
header from samples that look like one. This module does not decode.

Here, "block" means a FLAC frame; a frame is one sample of all channels.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from beam_pipeline.audio.containers import read_at

HEADER_BYTES = 16  # of the longest block header
_SCAN_BYTES = 1 << 20
_RATES_HZ = (
    *(0, 88200, 176400, 192000, 8000, 16000, 22050),
    *(24000, 32000, 44100, 48000, 96000),
)
_BITS = {1: 8, 2: 12, 4: 16, 5: 20, 6: 24, 7: 32}
_NEIGHBOURS = 3  # headers before a change, of which one may be samples


@dataclass(frozen=True, slots=True)
class StreamInfo:
    """The values in the header of a stream, and where its blocks begin."""

    sample_rate_hz: int
    channels: int
    bits: int
    frames: int  # 0: unknown
    first_block: int  # in bytes from the start of the file


@dataclass(frozen=True, slots=True)
class BlockHeader:
    """The values in the header of a block."""

    sample_rate_hz: int
    channels: int
    bits: int
    frames: int
    number: int
    next_number: int  # of the block that follows it in an uncut stream


def read_stream_info(file: BinaryIO) -> StreamInfo | None:
    """Returns the stream header of a FLAC file; ``None`` for other formats.

    Parameters
    ----------
    file
        Open, seekable and binary. The position changes.
    """
    position = 0
    magic = read_at(file, position, 10)
    while magic[:3] == b"ID3" and len(magic) == 10:
        size = 0
        for byte in magic[6:]:
            size = size << 7 | byte & 0x7F
        position += 10 + size
        magic = read_at(file, position, 10)
    if magic[:4] != b"fLaC":
        return None
    position += 4
    fields = b""
    last = False
    while not last:
        block = read_at(file, position, 4)
        if len(block) < 4:
            return None
        last = bool(block[0] & 0x80)
        if block[0] & 0x7F == 0 and not fields:
            fields = read_at(file, position + 4, 18)
        position += 4 + int.from_bytes(block[1:], "big")
    if len(fields) < 18:
        return None
    packed = int.from_bytes(fields[10:], "big")
    return StreamInfo(
        sample_rate_hz=packed >> 44,
        channels=(packed >> 41 & 7) + 1,
        bits=(packed >> 36 & 31) + 1,
        frames=packed & (1 << 36) - 1,
        first_block=position,
    )


def parse_block_header(data: bytes, stream: StreamInfo) -> BlockHeader | None:
    """Parses the header that ``data`` starts with; ``None`` if it is not complete."""
    if len(data) < 6 or data[0] != 0xFF or data[1] & 0xFE != 0xF8:
        return None
    size_code, rate_code = data[2] >> 4, data[2] & 15
    assignment, bits_code = data[3] >> 4, data[3] >> 1 & 7
    if size_code == 0 or rate_code == 15 or assignment > 10 or bits_code == 3:
        return None
    if data[3] & 1:
        return None
    number, end = _coded_number(data)
    if end == 0:
        return None
    if size_code < 6:
        frames = 192 if size_code == 1 else 576 << size_code - 2
    elif size_code < 8:
        count = size_code - 5
        frames = int.from_bytes(data[end : end + count], "big") + 1
        end += count
    else:
        frames = 256 << size_code - 8
    rate = stream.sample_rate_hz
    if rate_code >= 12:
        count = 1 if rate_code == 12 else 2
        rate = int.from_bytes(data[end : end + count], "big")
        rate *= {12: 1000, 13: 1, 14: 10}[rate_code]
        end += count
    elif rate_code:
        rate = _RATES_HZ[rate_code]
    if len(data) <= end or _crc_8(data[:end]) != data[end]:
        return None
    return BlockHeader(
        sample_rate_hz=rate,
        channels=assignment + 1 if assignment < 8 else 2,
        bits=_BITS.get(bits_code, stream.bits),
        frames=frames,
        number=number,
        next_number=number + (frames if data[1] & 1 else 1),
    )


def agrees(header: BlockHeader, stream: StreamInfo) -> bool:
    """Whether a block has the rate, channels and bit depth of its stream."""
    return (header.sample_rate_hz, header.channels, header.bits) == (
        stream.sample_rate_hz,
        stream.channels,
        stream.bits,
    )


def find_blocks(data: bytes, stream: StreamInfo) -> Iterator[tuple[int, BlockHeader]]:
    """Yields offset and header of each apparent block.

    Samples look like one about once in 30 million bytes.
    """
    for offset in _find_syncs(data)[1].tolist():
        header = parse_block_header(data[offset : offset + HEADER_BYTES], stream)
        if header is not None:
            yield offset, header


@dataclass(frozen=True, slots=True)
class Jump:
    """Two apparent blocks in sequence whose numbers are not."""

    start: int  # of the first block, in the file
    stop: int  # where the second begins
    expected: int
    number: int


class BlockSearch:
    """Searches the bytes that a decoder reads for blocks that do not belong there.

    These are blocks that differ from the stream, and those whose number does not follow
    that of the block before: libFLAC fills the gap with silence. Holds only the most
    recent bytes, for any size of reads.
    """

    def __init__(self, stream: StreamInfo) -> None:
        self._stream = stream
        self._found: list[tuple[int, BlockHeader]] = []
        self._jumps: list[Jump] = []
        self._last: tuple[int, BlockHeader] | None = None
        self._parts: list[bytes] = []
        self._start = 0  # of the parts, in the file
        self._stop = 0

    def add(self, position: int, data: bytes) -> None:
        """Adds the bytes that were read at a position of the file."""
        if position != self._stop:
            self._search()
            self._parts, self._start = [], position
            self._last = None
        self._parts.append(data)
        self._stop = position + len(data)
        if self._stop - self._start > _SCAN_BYTES:
            self._search()

    def take(self) -> list[tuple[int, BlockHeader]]:
        """Returns offset and header of each apparent block since the last call."""
        self._search()
        found, self._found = self._found, []
        return found

    def take_jumps(self) -> list[Jump]:
        """Returns what `take` found besides, since the last call."""
        jumps, self._jumps = self._jumps, []
        return jumps

    def _search(self) -> None:
        data = b"".join(self._parts)
        skipped = max(0, self._stream.first_block - self._start)
        for offset, header in find_blocks(data[skipped:], self._stream):
            self._add_block(self._start + skipped + offset, header)
        # A header may begin in the last bytes and end in the next ones.
        tail = data[1 - HEADER_BYTES :]
        self._parts, self._start = [tail], self._stop - len(tail)

    def _add_block(self, offset: int, header: BlockHeader) -> None:
        if not agrees(header, self._stream):
            self._found.append((offset, header))
            return
        last = self._last
        if last is None:
            self._last = offset, header
        elif offset > last[0]:  # not one of the bytes that are searched twice
            expected = last[1].next_number
            if header.number != expected:
                self._jumps.append(Jump(last[0], offset, expected, header.number))
            self._last = offset, header


def is_jump(file: BinaryIO, jump: Jump) -> bool:
    """Whether a block really ends where the second one begins, by its checksum."""
    return _crc_16(read_at(file, jump.start, jump.stop - jump.start)) == 0


def lone_block(
    file: BinaryIO, offset: int, header: BlockHeader, stream: StreamInfo
) -> bytes:
    """Returns a FLAC file that holds only the block at ``offset``.

    A decoder reads all ``header.frames`` of it only if the block's checksum is right.
    Samples that look like a header fail this test.
    """
    # The rate does not matter. The depth matters only if the block does not store it.
    packed = 44100 << 44 | header.channels - 1 << 41
    packed |= stream.bits - 1 << 36 | header.frames
    info = bytes.fromhex("0010ffff") + bytes(6) + packed.to_bytes(8, "big") + bytes(16)
    start = b"fLaC" + (0x80000000 | len(info)).to_bytes(4, "big") + info
    # Twice the size of the uncompressed samples, which no encoder reaches.
    size = header.channels * (header.frames * (header.bits + 1) // 8 + 64)
    return start + read_at(file, offset, 2 * size)


def find_change(
    file: BinaryIO, stream: StreamInfo, decodes: Callable[[bytes, int], bool]
) -> str | None:
    """Reads a whole FLAC stream and describes its first change.

    Parameters
    ----------
    file
        Open, seekable and binary. The position changes.
    stream
        Result of `read_stream_info` for the file.
    decodes
        Whether the bytes of a file decode to a given number of frames.

    Returns
    -------
    str or None
        The end of a sentence that starts with "The file ..."; ``None`` without a
        change.

    Notes
    -----
    A differing header counts as a change if its checksum is right, if its block decodes
    alone, and if it starts where, by checksum, an earlier block ends. Samples pass
    these three tests once in 10^16 bytes.
    """
    before: deque[tuple[int, BlockHeader]] = deque(maxlen=_NEIGHBOURS)
    frames = 0
    for offset, header in _block_headers(file, stream):
        if agrees(header, stream):
            if _was_samples(before, header):
                frames -= before.pop()[1].frames
            before.append((offset, header))
            frames += header.frames
            continue
        starts = [start for start, _ in before]
        if (decodes(lone_block(file, offset, header, stream), header.frames)) and (
            offset == stream.first_block
            or any(_crc_16(read_at(file, at, offset - at)) == 0 for at in starts)
        ):
            return _describe(stream, header, frames)
    return None


def _was_samples(before: Sequence[tuple[int, BlockHeader]], next_: BlockHeader) -> bool:
    """Whether the last header in ``before`` was samples within a block."""
    if len(before) < 2:
        return False
    expected = before[-2][1].next_number
    return next_.number == expected != before[-1][1].number


def _describe(stream: StreamInfo, header: BlockHeader, frame: int) -> str:
    changes = [
        f"{name} from {declared} to {found}{unit}"
        for name, declared, found, unit in (
            ("sample rate", stream.sample_rate_hz, header.sample_rate_hz, " Hz"),
            ("number of channels", stream.channels, header.channels, ""),
            ("bit depth", stream.bits, header.bits, ""),
        )
        if declared != found
    ]
    since = "" if frame else ", where its samples begin"
    return f"changes its {' and its '.join(changes)} at frame {frame}{since}"


def _block_headers(
    file: BinaryIO, stream: StreamInfo
) -> Iterator[tuple[int, BlockHeader]]:
    """Yields offset in the file and values of each apparent block header."""
    position = stream.first_block
    while True:
        data = read_at(file, position, _SCAN_BYTES + HEADER_BYTES)
        for offset in _find_syncs(data)[1].tolist():
            if offset >= _SCAN_BYTES:
                break
            header = parse_block_header(data[offset : offset + HEADER_BYTES], stream)
            if header is not None:
                yield position + offset, header
        if len(data) < _SCAN_BYTES + HEADER_BYTES:
            return
        position += _SCAN_BYTES


def _find_syncs(data: bytes) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.intp]]:
    """Returns the bytes as an array, and the offsets where a header may begin."""
    values = np.frombuffer(data, np.uint8)
    offsets = np.flatnonzero(values[:-3] == 0xFF)
    return values, offsets[values[offsets + 1] & 0xFE == 0xF8]


def _coded_number(data: bytes) -> tuple[int, int]:
    """Returns a block's number, coded as in UTF-8, and its end; (0, 0) if invalid."""
    first = data[4]
    if first < 0x80:
        return first, 5
    more = _LEADING_ONES[first] - 1
    if not 1 <= more <= 6 or len(data) < 5 + more:
        return 0, 0
    number = first & (0x3F >> more)
    for byte in data[5 : 5 + more]:
        if byte & 0xC0 != 0x80:
            return 0, 0
        number = number << 6 | byte & 0x3F
    return number, 5 + more


def _crc_table(polynomial: int, bits: int) -> tuple[int, ...]:
    table = []
    for byte in range(256):
        crc = byte << bits - 8
        for _ in range(8):
            crc <<= 1
            if crc >> bits:
                crc ^= polynomial | 1 << bits
        table.append(crc)
    return tuple(table)


def _crc_8(data: bytes) -> int:
    crc = 0
    for byte in data:
        crc = _CRC_8[crc ^ byte]
    return crc


def _crc_16(data: bytes) -> int:
    """Returns the CRC-16, which is 0 for whole blocks: each ends with its checksum."""
    crc = 0
    for byte in data:
        crc = (crc << 8 & 0xFFFF) ^ _CRC_16[crc >> 8 ^ byte]
    return crc


_CRC_8 = _crc_table(0x07, 8)
_CRC_16 = _crc_table(0x8005, 16)
_LEADING_ONES = tuple(8 - (byte ^ 0xFF).bit_length() for byte in range(256))
