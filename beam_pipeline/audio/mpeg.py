"""Checks that an MP3 file is an unbroken sequence of frames.

libsndfile does not report damage in MP3: its decoder searches for the next frame, fills
gaps with zeros or with samples that it gave before, and continues. An MP3 frame has no
checksum, but it declares its length, and the bytes of its sound may lie in earlier
frames (the bit reservoir). In an undamaged file, a frame begins where the one before
ends, and the stretches of sound data follow each other without overlap. This module
does not decode. It reads layers I to III of MPEG 1, 2 and 2.5.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from beam_pipeline.audio.containers import Condition, read_at

_CHUNK = 1 << 20
_HEAD = 44  # bytes: the longest header, checksum and side information, and some more
_LARGEST_FRAME = 2881
_RATES_HZ = {
    3: (44100, 48000, 32000),
    2: (22050, 24000, 16000),
    0: (11025, 12000, 8000),
}
# Thousands of bits a second, by (MPEG 1, layer).
_KILOBITS = {
    (True, 1): (32, 64, 96, 128, 160, 192, 224, 256, 288, 320, 352, 384, 416, 448),
    (True, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 3): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 1): (32, 48, 56, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
    (False, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 3): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}

_Bytes = npt.NDArray[np.uint8]
_Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class MpegStream:
    """Where the frames of an MP3 file are, between its tags, and how they look.

    ``lengths`` has a frame's length for each third byte of a header; 0 if that byte
    cannot be of this stream.
    """

    start: int
    stop: int
    layer: int
    mpeg_1: bool
    mono: bool
    second: int  # byte of all headers, with the bit of the checksum set
    lengths: tuple[int, ...]
    declared: int | None  # frames, by the encoder's header
    declared_bytes: int | None
    info_frames: int  # 1 if the first frame is the encoder's header

    @property
    def side_bytes(self) -> int:
        """Bytes of side information in a frame of layer III."""
        if self.mpeg_1:
            return 17 if self.mono else 32
        return 9 if self.mono else 17


def find_stream(file: BinaryIO, file_bytes: int) -> MpegStream | None:
    """Returns where the frames of an MP3 file are; ``None`` for other formats.

    Parameters
    ----------
    file
        Open, seekable and binary. The position changes.
    file_bytes
        Size of the file.
    """
    start = 0
    while (tag := read_at(file, start, 10))[:3] == b"ID3" and len(tag) == 10:
        size = 0
        for byte in tag[6:]:
            size = size << 7 | byte & 0x7F
        start += 10 + size + (10 if tag[5] & 0x10 else 0)
    head = read_at(file, start, 4)
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return None
    version, layer, rate = head[1] >> 3 & 3, 4 - (head[1] >> 1 & 3), head[2] >> 2 & 3
    if version == 1 or layer == 4 or rate == 3:
        return None
    lengths = _frame_lengths(version, layer, rate)
    stream = MpegStream(
        start=start,
        stop=_before_tags(file, start, file_bytes),
        layer=layer,
        mpeg_1=version == 3,
        mono=head[3] >> 6 == 3,
        second=head[1] | 1,
        lengths=lengths,
        declared=None,
        declared_bytes=None,
        info_frames=0,
    )
    return _with_declared(stream, read_at(file, start, 256))


def check_mpeg(file: BinaryIO, file_bytes: int) -> Condition | None:
    """Walks over the frames of an MP3 file; returns ``None`` for other formats.

    Parameters
    ----------
    file
        Open, seekable and binary. The position changes.
    file_bytes
        Size of the file.
    """
    stream = find_stream(file, file_bytes)
    if stream is None:
        return None
    head = read_at(file, stream.start, 4 + stream.side_bytes)
    if head[2] >> 4 == 0:
        return Condition("is in MP3's free format, which is not supported")
    if stream.info_frames and any(head[4:]):
        # libmpg123 then takes it for sound, and does not trust its numbers.
        return Condition(
            "is damaged: the encoder's header in its first MP3 frame is not silent"
        )
    count, end = 0, stream.start
    reservoir = _Reservoir(stream)
    for offset, offsets, data, stop in _chunks(file, stream):
        count, end = count + len(offsets), stop
        broken = reservoir.add(data, offsets)
        if broken is not None:
            return Condition(
                f"is damaged: the MP3 frame at byte {offset + broken} refers to sound "
                "data that earlier frames do not hold",
            )
    return _judged(file, stream, count - stream.info_frames, end)


def _judged(file: BinaryIO, stream: MpegStream, count: int, at: int) -> Condition:
    """Returns the result for ``count`` frames that end at byte ``at``."""
    rest = read_at(file, at, min(stream.stop - at, _LARGEST_FRAME + 1))
    declared = stream.declared
    is_complete = declared is not None and count >= declared
    if declared is not None and count == declared - 1:
        # Some encoders count their header as a frame.
        is_complete = stream.declared_bytes == at - stream.start
    is_padding = len(rest) <= _LARGEST_FRAME and not any(rest)
    length = _frame_length(stream, rest)
    begun = length > len(rest) or (len(rest) < 4 and rest[:1] == b"\xff")
    if rest and not (is_complete or is_padding or begun):
        return Condition(
            f"is damaged: no MP3 frame begins at byte {at}, where one ends"
        )
    if declared is not None and count > declared:
        return Condition(
            f"holds {count} MP3 frames, but its header declares {declared}; if other "
            "MP3 files follow the first, split the file",
        )
    if declared is not None and not is_complete:
        return Condition(
            cut=f"its header declares {declared} MP3 frames, but the file holds only "
            f"{count}",
        )
    if begun and not is_complete:
        whole = f" of {length}" if length else ""
        return Condition(
            cut=f"its last MP3 frame, number {count + 1}, has only {len(rest)}{whole} "
            "bytes"
        )
    return Condition()


def _frame_lengths(version: int, layer: int, rate: int) -> tuple[int, ...]:
    """Returns the length of a frame for each third byte of its header."""
    hz = _RATES_HZ[version][rate]
    kilobits = _KILOBITS[version == 3, layer]
    lengths = [0] * 256
    for byte in range(256):
        code, padding = byte >> 4, byte >> 1 & 1
        if byte >> 2 & 3 != rate or not 1 <= code <= len(kilobits):
            continue
        bits = kilobits[code - 1] * 1000
        if layer == 1:
            lengths[byte] = (12 * bits // hz + padding) * 4
        else:
            half = layer == 3 and version != 3
            lengths[byte] = (72 if half else 144) * bits // hz + padding
    return tuple(lengths)


def _before_tags(file: BinaryIO, start: int, stop: int) -> int:
    """Returns where the tags at the end of the file begin."""
    while True:
        tail_start = max(start, stop - 160)
        tail = read_at(file, tail_start, stop - tail_start)
        size = 0
        if tail[-128:-125] == b"TAG":
            size = 128
        elif tail[-32:-24] == b"APETAGEX" and len(tail) >= 32:
            size = int.from_bytes(tail[-20:-16], "little")
            size += 32 if tail[-9] & 0x80 else 0  # a header, too
        elif tail[-9:] == b"LYRICS200" and tail[-15:-9].isdigit():
            size = int(tail[-15:-9]) + 15
        elif tail[-10:-7] == b"3DI" and len(tail) >= 10:
            for byte in tail[-4:]:
                size = size << 7 | byte & 0x7F
            size += 20
        if not 0 < size <= stop - start:
            return stop
        stop -= size


def _with_declared(stream: MpegStream, head: bytes) -> MpegStream:
    """Returns the stream with what the encoder's header declares, if there is one."""
    declared = declared_bytes = None
    at = 4 + stream.side_bytes
    found = 0
    if stream.layer == 3:
        for place in (at, at + 2):  # some encoders leave room for a checksum
            if head[place : place + 4] in (b"Xing", b"Info"):
                found, flags = 1, head[place + 7]
                place += 8
                if flags & 1:
                    declared = int.from_bytes(head[place : place + 4], "big")
                    place += 4
                if flags & 2:
                    declared_bytes = int.from_bytes(head[place : place + 4], "big")
                break
        if head[36:40] == b"VBRI":
            found = 1
            declared_bytes = int.from_bytes(head[46:50], "big")
            declared = int.from_bytes(head[50:54], "big")
    return replace(
        stream,
        declared=declared or None,
        declared_bytes=declared_bytes or None,
        info_frames=found,
    )


def _frame_length(stream: MpegStream, head: bytes) -> int:
    """Returns the length of the frame that begins with ``head``; 0 if none does."""
    if len(head) < 4 or head[0] != 0xFF or head[1] | 1 != stream.second:
        return 0
    if (head[3] >> 6 == 3) != stream.mono:
        return 0
    return stream.lengths[head[2]]


def _chunks(
    file: BinaryIO, stream: MpegStream
) -> Iterator[tuple[int, list[int], bytes, int]]:
    """Yields stretches of the file with whole frames.

    Each has its offset, the offsets of the frames in it, its bytes, and the offset in
    the file where its last frame ends.
    """
    second, mono, lengths = stream.second, stream.mono, stream.lengths
    start = stream.start
    while True:
        data = read_at(file, start, min(_CHUNK, stream.stop - start))
        offsets = []
        at, stop = 0, len(data) - 4
        while at <= stop:
            length = lengths[data[at + 2]]
            if (
                data[at] != 0xFF
                or data[at + 1] | 1 != second
                or not length
                or (data[at + 3] >> 6 == 3) != mono
                or at + length > len(data)
            ):
                break
            offsets.append(at)
            at += length
        yield start, offsets, data, start + at
        if not offsets or start + len(data) >= stream.stop:
            return
        start += at


class _Reservoir:
    """Follows the stretches of sound data of the frames of layer III."""

    def __init__(self, stream: MpegStream) -> None:
        self._stream = stream
        self._held = 0  # bytes of sound data in the frames so far
        self._used = 0  # of these, up to the end of the last frame's stretch
        self._first = stream.info_frames

    def add(self, data: bytes, offsets: list[int]) -> int | None:
        """Adds frames; returns the offset of the first that is broken."""
        at = np.array(offsets[self._first :], np.int64)
        self._first = max(0, self._first - len(offsets))
        if self._stream.layer != 3 or not len(at):
            return None
        values = np.frombuffer(data + bytes(_HEAD), np.uint8)
        side = at + 4 + np.where(values[at + 1] & 1, 0, 2)
        lengths = np.array(self._stream.lengths)[values[at + 2]]
        room = lengths - (side - at) - self._stream.side_bytes
        before = self._held + np.concatenate([[0], np.cumsum(room)[:-1]])
        back = _bits(values, side, 0, 9 if self._stream.mpeg_1 else 8)
        begins = before - back
        ends = begins + -(-self._sound_bits(values, side) // 8)
        used = np.concatenate([[self._used], ends[:-1]])
        # A file that was cut out of another one begins with frames that refer to sound
        # data before it.
        broken = ((begins < used) & (begins >= 0)) | (ends > before + room)
        self._held = int(before[-1] + room[-1])
        self._used = int(ends[-1])
        return int(at[np.argmax(broken)]) if broken.any() else None

    def _sound_bits(self, values: _Bytes, side: _Integers) -> _Integers:
        """Returns how many bits of sound data each frame has."""
        channels = 1 if self._stream.mono else 2
        if self._stream.mpeg_1:
            first, step, count = (18 if channels == 1 else 20), 59, 2 * channels
        else:
            first, step, count = (9 if channels == 1 else 10), 63, channels
        sizes = [_bits(values, side, first + k * step, 12) for k in range(count)]
        total: _Integers = np.sum(sizes, axis=0)
        return total


def _bits(values: _Bytes, at: _Integers, first: int, count: int) -> _Integers:
    """Returns ``count`` bits from bit ``first`` after each of the offsets."""
    start = at + first // 8
    word = values[start].astype(np.int64) << 16
    word |= values[start + 1].astype(np.int64) << 8
    word |= values[start + 2]
    return word >> (24 - first % 8 - count) & (1 << count) - 1
