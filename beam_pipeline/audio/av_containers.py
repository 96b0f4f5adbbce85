"""Recognises the containers that only ffmpeg reads, and finds out if they end early.

A container is a chain of elements, each of which declares its size. ffmpeg decodes what
is left of a cut chain without an error, so this module follows the chain itself. It
does not decode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from beam_pipeline.audio.containers import Condition, read_at

# Containers that libsndfile opens, too; see common_containers.
COMMON = frozenset({"wav", "aiff", "flac", "mp3", "ogg"})
# Name of a container -> ffmpeg's name of its demuxer. No other demuxers are used: some
# of them open further files that the first one names.
DEMUXERS = {
    **{container: container for container in sorted(COMMON)},
    "mp4": "mov",
    "matroska": "matroska",
    "asf": "asf",
    "adts": "aac",
    "amr": "amr",
    "wavpack": "wv",
    "tta": "tta",
}
# Containers that declare the length of each stream.
DECLARE_LENGTH = frozenset({"mp4", "asf", "wavpack", "tta", "flac"})

_MAGIC = (
    (0, b"\x1a\x45\xdf\xa3", "matroska"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11\xa6\xd9\x00\xaa\x00\x62\xce\x6c", "asf"),
    (0, b"#!AMR\n", "amr"),
    (0, b"#!AMR-WB\n", "amr"),
    (0, b"wvpk", "wavpack"),
    (0, b"TTA1", "tta"),
    (4, b"ftyp", "mp4"),
    (4, b"moov", "mp4"),  # QuickTime files may begin with any of these
    (4, b"mdat", "mp4"),
    (4, b"wide", "mp4"),
)
# Bytes of a frame, with its header, by the type in the header.
_AMR_NB = (13, 14, 16, 18, 20, 21, 27, 32, 6, 1, 1, 1, 1, 1, 1, 1)
_AMR_WB = (18, 24, 33, 37, 41, 47, 51, 59, 61, 6, 1, 1, 1, 1, 1, 1)
_ASF_DATA = b"\x36\x26\xb2\x75\x8e\x66\xcf\x11\xa6\xd9\x00\xaa\x00\x62\xce\x6c"
_HEAD = 24  # bytes; no header of an element has more
_SEGMENT, _CLUSTER = b"\x18\x53\x80\x67", b"\x1f\x43\xb6\x75"
# All that may follow each other in a file: the children of a segment, and of a cluster.
_MATROSKA = frozenset(
    bytes.fromhex(kind)
    for kind in (
        *("1A45DFA3", "18538067", "1F43B675", "114D9B74", "1549A966", "1654AE6B"),
        *("1C53BB6B", "1941A469", "1043A770", "1254C367", "EC", "BF"),
        *("E7", "5854", "A7", "AB", "A3", "A0", "AF"),
    )
)
_TAGS = (b"TAG", b"APETAGEX", b"ID3", b"LYRICSBEGIN")


def find_container(file: BinaryIO) -> str | None:
    """Returns the container of a file by its first bytes, a key of ``DEMUXERS``.

    It does not find those in ``COMMON``.

    Parameters
    ----------
    file
        Open, seekable and binary. The position changes.
    """
    start = _after_id3(file)
    head = read_at(file, start, 16)
    for offset, magic, container in _MAGIC:
        if head[offset : offset + len(magic)] == magic:
            return container
    # A header of ADTS has few fixed bits, so a second one must follow the first.
    length = _adts_length(head)
    if length and _adts_length(read_at(file, start + length, 7)):
        return "adts"
    return None


def check_container(container: str, file: BinaryIO, file_bytes: int) -> Condition:
    """Follows the chain of a container's elements to the end of the file.

    Parameters
    ----------
    container
        A key of ``DEMUXERS``.
    file
        Open, seekable and binary. The position changes.
    file_bytes
        Size of the file.
    """
    chain = _CHAINS.get(container)
    return Condition() if chain is None else chain(file, file_bytes)


@dataclass(frozen=True, slots=True)
class _Element:
    """A link of a chain; ``size`` is None if it goes on to the end of the file."""

    name: str
    size: int | None


_Parse = Callable[[bytes, int], _Element | None]


def _follow(
    file: BinaryIO, file_bytes: int, start: int, least: int, parse: _Parse
) -> Condition:
    """Follows elements from ``start``.

    ``parse`` gets some bytes and their offset. It returns the element that begins with
    them, or None if none does. A header has at least ``least`` bytes.
    """
    at = start
    while at < file_bytes:
        head = read_at(file, at, _HEAD)
        element = parse(head, at)
        if element is None:
            if head.startswith(_TAGS):
                break
            if len(head) < least:
                return Condition(
                    cut=f"its last element, at byte {at}, has only {len(head)} bytes"
                )
            return Condition(f"is damaged: no element begins at byte {at}")
        if element.size is None:
            break
        if at + element.size > file_bytes:
            return Condition(
                cut=f"its {element.name} at byte {at} has {element.size} bytes, but "
                f"the file holds only {file_bytes - at} of them"
            )
        at += element.size
    return Condition()


def _check_mp4(file: BinaryIO, file_bytes: int) -> Condition:
    seen: set[bytes] = set()

    def parse(head: bytes, _: int) -> _Element | None:
        kind = head[4:8]
        if {b"moov", b"mdat"} <= seen and not kind.isalnum():
            return _Element("padding", None)
        if len(kind) < 4 or not all(32 <= byte < 127 for byte in kind):
            return None
        seen.add(kind)
        name = f"box {kind.decode()!r}"
        size, least = int.from_bytes(head[:4], "big"), 8
        if size == 0:
            return _Element(name, None)
        if size == 1:
            size, least = int.from_bytes(head[8:16], "big"), 16
        return _Element(name, size) if least <= min(size, len(head)) else None

    condition = _follow(file, file_bytes, 0, 8, parse)
    if condition == Condition() and b"moov" not in seen:
        return Condition("is damaged: it has no box 'moov', which describes its sound")
    return condition


def _check_matroska(file: BinaryIO, file_bytes: int) -> Condition:
    def parse(head: bytes, at: int) -> _Element | None:
        width = _vint_bytes(head)
        kind, rest = head[:width], head[width:]
        size_width = _vint_bytes(rest)
        if kind not in _MATROSKA or not 0 < size_width <= len(rest):
            return None
        ones = (1 << 7 * size_width) - 1
        size = int.from_bytes(rest[:size_width], "big") & ones
        header = width + size_width
        is_whole = at + header + size <= file_bytes
        if kind in (_SEGMENT, _CLUSTER) and size == ones:
            return _Element("element", header)  # its children follow
        if kind == _SEGMENT and is_whole:
            return _Element("segment", header)
        return None if size == ones else _Element("element", header + size)

    return _follow(file, file_bytes, 0, 12, parse)


def _vint_bytes(head: bytes) -> int:
    """Returns how many bytes a number of EBML has; 0 if none begins here."""
    return 9 - head[0].bit_length() if head and head[0] else 0


def _check_asf(file: BinaryIO, file_bytes: int) -> Condition:
    def parse(head: bytes, _: int) -> _Element | None:
        size = int.from_bytes(head[16:24], "little")
        if head[:16] == _ASF_DATA and size == 0:
            return _Element("data", None)  # of a live stream
        return _Element("object", size) if len(head) == 24 <= size else None

    return _follow(file, file_bytes, 0, 24, parse)


def _check_adts(file: BinaryIO, file_bytes: int) -> Condition:
    def parse(head: bytes, _: int) -> _Element | None:
        length = _adts_length(head)
        return _Element("frame", length) if length else None

    return _follow(file, file_bytes, _after_id3(file), 7, parse)


def _adts_length(head: bytes) -> int:
    """Returns the length of the frame that begins with ``head``; 0 if none does."""
    if len(head) < 7 or head[0] != 0xFF or head[1] & 0xF6 != 0xF0:
        return 0
    length = (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5
    return length if length >= 7 and (head[2] >> 2 & 15) < 13 else 0


def _check_amr(file: BinaryIO, file_bytes: int) -> Condition:
    wide = read_at(file, 0, 9) == b"#!AMR-WB\n"
    lengths = _AMR_WB if wide else _AMR_NB

    def parse(head: bytes, _: int) -> _Element | None:
        if head[0] & 0x83:  # bits that are always 0
            return None
        return _Element("frame", lengths[head[0] >> 3 & 15])

    return _follow(file, file_bytes, 9 if wide else 6, 1, parse)


def _check_wavpack(file: BinaryIO, file_bytes: int) -> Condition:
    def parse(head: bytes, _: int) -> _Element | None:
        if head[:4] != b"wvpk" or len(head) < 8:
            return None
        return _Element("block", int.from_bytes(head[4:8], "little") + 8)

    return _follow(file, file_bytes, _after_id3(file), 8, parse)


def _after_id3(file: BinaryIO) -> int:
    """Returns where the tags at the start of a file end."""
    start = 0
    while (tag := read_at(file, start, 10))[:3] == b"ID3" and len(tag) == 10:
        size = 0
        for byte in tag[6:]:
            size = size << 7 | byte & 0x7F
        start += 10 + size + (10 if tag[5] & 0x10 else 0)
    return start


_CHAINS: dict[str, Callable[[BinaryIO, int], Condition]] = {
    "mp4": _check_mp4,
    "matroska": _check_matroska,
    "asf": _check_asf,
    "adts": _check_adts,
    "amr": _check_amr,
    "wavpack": _check_wavpack,
}
