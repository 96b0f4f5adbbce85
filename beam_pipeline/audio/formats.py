"""The formats of audio files: their names, containers and headers; decodes nothing.

libsndfile decodes what it reads right. ffmpeg, which PyAV brings, decodes containers
that libsndfile does not know, and a few files that it refuses or reads as noise. This
module imports neither.

For all formats, the frames that a header declares are compared with those that are
decoded, by the probe of :mod:`.clip_reader`. :func:`inspect` finds what people meet
beyond that rule:

- WAV and other containers of PCM: how many bytes of samples the header declares.
  libsndfile silently shortens a truncated file to the samples that are present, and
  reads others beyond the end of their samples.
- WAV: whether the bits of a sample fit the bytes of a frame.
- MP3: whether frames follow each other without a gap, and as many as the encoder's
  header declares. Without that header, libsndfile estimates the length.
- Ogg: whether the last page is marked as the last one of the first stream.
- FLAC: the header's number of frames, which may be wrong, and a second stream.

The probe rejects what is cut off, or takes it with ``allow_truncated``.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import BinaryIO, TypeVar

from beam_pipeline.errors import UnreadableAudio, read_error

# The names of the decoders, libsndfile and ffmpeg; by default the first is preferred.
SOUNDFILE, PYAV = "soundfile", "pyav"
DECODERS = (SOUNDFILE, PYAV)

LIBRARY = "av"

# Suffixes that libsndfile may decode, and suffixes of other audio formats: files in
# those become rejects with a reason, instead of being ignored.
_AUDIO_NAMES = """
    wav wave bwf rf64 w64 flac ogg oga opus mp3 mp2 mpga aif aiff aifc au snd caf sph
    nist voc paf svx ircam wve sds m4a m4b mp4 aac ac3 alac amr ape awb dsf dff dts mka
    mpc ra shn spx tak tta webm weba wma wv 3gp
"""
AUDIO_SUFFIXES = frozenset(f".{name}" for name in _AUDIO_NAMES.split())

# Containers that libsndfile opens, too.
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
    "caf": "caf",
    "voc": "voc",
}
# Formats of old computers that libsndfile opens, but of which it does not tell a whole
# file from a cut one, or reads noise; by its names.
REFUSED = frozenset({"SVX", "AVR", "MPC2K", "WVE"})


def is_audio_name(name: str) -> bool:
    """Whether a folder's file is a clip: it has an audio suffix and is not hidden."""
    if is_hidden(name):
        return False
    return os.path.splitext(name)[1].lower() in AUDIO_SUFFIXES


def is_hidden(name: str) -> bool:
    """Whether a file, or a folder that it is in, is hidden."""
    return name.startswith(".") or "/." in name


def is_installed() -> bool:
    """Whether there is a PyAV to import."""
    return importlib.util.find_spec(LIBRARY) is not None


def library_versions() -> dict[str, str]:
    """Returns the versions of PyAV and of the parts of ffmpeg that decide samples."""
    if not is_installed():
        return {LIBRARY: "unknown"}
    import av

    versions = {LIBRARY: av.__version__}
    for part in ("libavcodec", "libavformat"):
        versions[part] = ".".join(map(str, av.library_versions[part]))
    return versions


_T = TypeVar("_T")

_CHUNK = 1 << 20

# PCM. Programs that write to a pipe cannot go back to fill in the size. They leave the
# largest number, signed or unsigned, or a slightly smaller one (sox: 0x7FFFF000).
_STREAMED_32 = ((0x7FFFE000, 0x80000000 + 0x1000), (0xFFFFE000, 0xFFFFFFFF))
_STREAMED_64 = ((2**63 - 0x2000, 2**64 - 1),)
_HEAD_BYTES = 1024
_AU_ORDERS = {b".snd": ">", b"dns.": "<"}
# Kind, channels, frames and bytes of a second, bytes of a frame, bits of a sample.
_WAVE_FORMAT = "HHIIHH"
_WAVE_SAMPLES = (1, 3, 0xFFFE)  # whole numbers, floats; either, with more fields

# MP3
_LARGEST_FRAME = 2881
_RATES_HZ = {
    3: (44100, 48000, 32000),
    2: (22050, 24000, 16000),
    0: (11025, 12000, 8000),
}
# Thousands of bits a second, by (MPEG 1, layer).
_KILOBITS = {
    (True, 2): (32, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320, 384),
    (True, 3): (32, 40, 48, 56, 64, 80, 96, 112, 128, 160, 192, 224, 256, 320),
    (False, 2): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
    (False, 3): (8, 16, 24, 32, 40, 48, 56, 64, 80, 96, 112, 128, 144, 160),
}

# Ogg
_OGG_MAGIC = b"OggS\0"
_OGG_LAST = 0x04  # flag of a page
_LARGEST_PAGE = 27 + 255 + 255 * 255

# FLAC: the header of a stream begins with its metadata block of 34 bytes.
_FLAC_STREAM = re.compile(rb"fLaC[\0\x80]\0\0\x22")


@contextlib.contextmanager
def naming_reads(name: str) -> Iterator[None]:
    """Turns an OSError of the ``with`` block into an error that names the file."""
    try:
        yield
    except OSError as error:
        raise read_error(name, "cannot be read", error) from error


@dataclass(frozen=True, slots=True)
class DataSize:
    """Bytes of sample data that the header declares, and that the file holds."""

    declared: int
    present: int

    @property
    def lack(self) -> str:
        """What is missing, as :func:`inspect` says it."""
        return (
            f"its header declares {self.declared} bytes of samples, but the file holds "
            f"only {self.present}"
        )


def inspect(file: BinaryIO, name: str) -> tuple[str | None, DataSize | None]:
    """Returns how a file is cut, if it is, and the sizes of its samples, if declared.

    Reads an MP3 file from its start to its end, the end of an Ogg file, and headers.

    Parameters
    ----------
    file
        Open, seekable and binary. The position changes.
    name
        Name of the file in errors.

    Returns
    -------
    cut : str or None
        What is missing, as the end of "The file ends early: ...".
    data : DataSize or None
        None if the container is none of WAV (RIFF, RIFX, RF64, BW64), AIFF, AIFC, CAF,
        W64, ASF, AU and NIST SPHERE, if it has no samples, or if their size is the
        placeholder of a streaming writer.

    Raises
    ------
    UnreadableAudio
        The file is damaged, or cannot be read.
    """
    with naming_reads(name):
        file_bytes = file.seek(0, os.SEEK_END)
        stream = find_mpeg(file)
        if stream is not None:
            return _check_mpeg(file, name, stream), None
        head = read_at(file, 0, _HEAD_BYTES)
        if head.startswith(_OGG_MAGIC):
            return _check_ogg(file, name, file_bytes), None
        return None, _data_size(file, name, head, file_bytes)


@dataclass(frozen=True, slots=True)
class _Chunks:
    """How a family of containers writes the header of a chunk."""

    header: struct.Struct
    data: bytes = b"data"  # the first bytes of the id of the chunk with the samples
    first: int = 12  # offset of the first chunk
    align: int = 2  # chunks start at multiples of it, counted from ``first``
    size_counts_header: bool = False
    lead: int = 0  # bytes of the data chunk before the samples
    streamed: tuple[tuple[int, int], ...] = _STREAMED_32
    is_wave: bool = False


# By the first bytes of a file, where a dot is any byte.
_FAMILIES = {
    rb"R(IFF|F64)....WAVE|BW64....WAVE": _Chunks(struct.Struct("<4sI"), is_wave=True),
    rb"RIFX....WAVE": _Chunks(struct.Struct(">4sI"), is_wave=True),
    rb"FORM....AIF[FC]": _Chunks(struct.Struct(">4sI"), b"SSND", lead=8),
    rb"caff": _Chunks(
        struct.Struct(">4sQ"), first=8, align=1, lead=4, streamed=_STREAMED_64
    ),
    rb"riff\x2e\x91\xcf\x11": _Chunks(
        struct.Struct("<16sQ"),
        first=40,
        align=8,
        size_counts_header=True,
        streamed=_STREAMED_64,
        is_wave=True,
    ),
    rb"\x30\x26\xb2\x75\x8e\x66\xcf\x11": _Chunks(
        struct.Struct("<16sQ"),
        b"\x36\x26\xb2\x75",
        first=0,
        align=1,
        size_counts_header=True,
    ),
}


def by_magic(head: bytes, known: Mapping[bytes, _T]) -> _T | None:
    """Returns what is known of files whose first bytes match an expression."""
    found = (what for magic, what in known.items() if re.match(magic, head, re.S))
    return next(found, None)


# The containers of files, by their first bytes, see :func:`by_magic`.
_FOREIGN = {
    rb"\x1a\x45\xdf\xa3": "matroska",
    rb"\x30\x26\xb2\x75\x8e\x66\xcf\x11\xa6\xd9\x00\xaa\x00\x62\xce\x6c": "asf",
    rb"#!AMR(-WB)?\n": "amr",
    rb"wvpk": "wavpack",
    rb"TTA1": "tta",
    # libsndfile reads the headers of a file's later blocks as sound.
    rb"Creative Voice File\x1a": "voc",
    # QuickTime files may begin with any of these.
    rb"....(ftyp|moov|mdat|wide)": "mp4",
}
_COMMON = {
    rb"R(IFF|F64)....WAVE": "wav",
    rb"FORM....AIF[FC]": "aiff",
    rb"fLaC": "flac",
    rb"OggS": "ogg",
}
_OGG_PAGE = 27  # bytes of a header, before the lengths of its parts
_FLAC_BITS = (8, 16, 24)  # that libsndfile decodes
# Numbers of 16 and 24 bits. libsndfile may read those of 20 and 32 bits as noise, and
# refuses files that do not declare the bits.
_ALAC_BITS = (1, 3)


def find_container(file: BinaryIO) -> tuple[str | None, bool]:
    """Returns the container of a file, and whether only ffmpeg decodes it right.

    ::

        a container that libsndfile does not know     mp4, matroska, asf ...
        FLAC and Speex in Ogg                         ogg
        FLAC of other than 8, 16 and 24 bits          flac
        Apple Lossless in CAF, not of 16 or 24 bits   caf

    Parameters
    ----------
    file
        Open, seekable and binary. The position changes.

    Returns
    -------
    container : str or None
        A key of ``DEMUXERS``; None for all that ffmpeg is not asked for.
    is_foreign : bool
    """
    start = after_id3(file)
    head = read_at(file, start, 64).ljust(64, b"\0")  # a file may be shorter
    if container := by_magic(head, _FOREIGN):
        return container, True
    # A header of ADTS has few fixed bits, so a second one must follow the first.
    length = _adts_length(head)
    if length and _adts_length(read_at(file, start + length, 7)):
        return "adts", True
    if head[:4] == b"caff" and head[28:32] == b"alac" and head[35] not in _ALAC_BITS:
        return "caf", True
    container = by_magic(head, _COMMON)
    if container is None:
        return ("mp3" if find_mpeg(file) is not None else None), False
    if container == "flac":
        header = read_flac_header(file)
        return container, header is not None and header.bits not in _FLAC_BITS
    packet = head[_OGG_PAGE + head[_OGG_PAGE - 1] :]
    is_other = packet.startswith((b"\x7fFLAC", b"Speex   "))
    return container, container == "ogg" and is_other


def _adts_length(head: bytes) -> int:
    """Returns the length of the frame that begins with ``head``; 0 if none does."""
    if len(head) < 7 or head[0] != 0xFF or head[1] & 0xF6 != 0xF0:
        return 0
    length = (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5
    return length if length >= 7 and (head[2] >> 2 & 15) < 13 else 0


def _data_size(
    file: BinaryIO, name: str, head: bytes, file_bytes: int
) -> DataSize | None:
    """Returns the declared and the present size of a container's samples."""
    family = by_magic(head, _FAMILIES)
    streamed: tuple[tuple[int, int], ...] = _STREAMED_32
    if family is None:
        start, size = _after_header(head)
    else:
        chunks = _chunks_of(file, file_bytes, family)
        if family.is_wave and b"fmt " in chunks:
            fields = read_at(file, chunks[b"fmt "][0], 16)
            _check_wave(name, fields, family.header.format[0])
        start, size = chunks.get(family.data, (0, None))
        if size == 0xFFFFFFFF and b"ds64" in chunks:
            ds64 = read_at(file, chunks[b"ds64"][0] + 8, 8)
            size, streamed = int.from_bytes(ds64, "little"), ()
        else:
            streamed = family.streamed
        start += family.lead
        size = None if size is None else max(0, size - family.lead)
    if size is None or any(low <= size <= high for low, high in streamed):
        return None
    return DataSize(size, max(0, file_bytes - start))


def _chunks_of(
    file: BinaryIO, file_bytes: int, family: _Chunks
) -> dict[bytes, tuple[int, int]]:
    """Returns where each chunk up to the samples begins, and its declared size."""
    chunks: dict[bytes, tuple[int, int]] = {}
    header_bytes, at = family.header.size, family.first
    while family.data not in chunks and at + header_bytes <= file_bytes:
        chunk_id, size = family.header.unpack(read_at(file, at, header_bytes))
        at += header_bytes
        if family.size_counts_header:
            size = max(0, size - header_bytes)
        chunks.setdefault(chunk_id[:4], (at, size))
        at += size + -size % family.align
    return chunks


def _after_header(head: bytes) -> tuple[int, int | None]:
    """Returns where samples after one header begin, and how many bytes it declares."""
    order = _AU_ORDERS.get(head[:4])
    if order is not None and len(head) >= 12:
        start, size = struct.unpack_from(f"{order}II", head, 4)
        return start, size
    begin = re.match(rb"NIST_1A\s+(\d+)\s", head)
    if begin is None:
        return 0, None
    size = 1
    for field in (rb"sample_count", rb"channel_count", rb"sample_n_bytes"):
        # Some programs, as libsndfile, write the bytes of mu-law as a text: -s1 1.
        value = re.search(rb"\n" + field + rb" -(?:i|s\d+) (\d+)\s", head)
        if value is None:
            return 0, None
        size *= int(value[1])
    return int(begin[1]), size


def _check_wave(name: str, fields: bytes, order: str) -> None:
    """Raises UnreadableAudio if a WAV or W64 file has no certain size of a sample.

    libsndfile believes the bits, and reads noise if they are wrong. So they are
    compared with the bytes of a frame, if the bytes of a second confirm these. Some
    programs write the bytes of a sample in place of those of a frame.
    """
    if len(fields) < 16:
        return  # the file ends early
    values = struct.unpack(f"{order}{_WAVE_FORMAT}", fields)
    kind, channels, rate, second_bytes, frame_bytes, bits = values
    if kind not in _WAVE_SAMPLES or 0 in (channels, frame_bytes, bits):
        return
    needed = -(-bits // 8)
    is_confirmed = second_bytes == rate * frame_bytes
    if is_confirmed and frame_bytes not in (needed * channels, needed):
        raise UnreadableAudio(
            name,
            f"is damaged: its header declares samples of {bits} bits in {channels} "
            f"channels, but {frame_bytes} bytes for a frame",
        )


@dataclass(frozen=True, slots=True)
class MpegStream:
    """Where the frames of an MP3 file are, between its tags, and how they look.

    ``lengths`` has a frame's length for each third byte of a header; 0 if that byte
    cannot be of this stream. The numbers that the encoder's header declares are None
    without one.
    """

    start: int
    stop: int
    second: int  # byte of all headers, with the bit of the checksum set
    mono: bool
    lengths: tuple[int, ...]
    declared: int | None = None  # frames
    declared_bytes: int | None = None

    def frame_length(self, data: bytes, at: int) -> int:
        """Returns the length of the frame that begins at ``at``; 0 if none does."""
        if data[at] != 0xFF or data[at + 1] | 1 != self.second:
            return 0
        if (data[at + 3] >> 6 == 3) != self.mono:
            return 0
        return self.lengths[data[at + 2]]


def find_mpeg(file: BinaryIO) -> MpegStream | None:
    """Returns where the frames of an MP3 file are; ``None`` for other formats.

    It knows the layers II and III of MPEG 1, 2 and 2.5.

    Parameters
    ----------
    file
        Open, seekable and binary. The position changes.
    """
    start = after_id3(file)
    head = read_at(file, start, 256)
    if len(head) < 4 or head[0] != 0xFF or head[1] & 0xE0 != 0xE0:
        return None
    version, layer, rate = head[1] >> 3 & 3, 4 - (head[1] >> 1 & 3), head[2] >> 2 & 3
    if version == 1 or layer not in (2, 3) or rate == 3:
        return None
    mono = head[3] >> 6 == 3
    # Bytes before the encoder's header, which is where the sound of a frame would be.
    side = (17 if mono else 32) if version == 3 else (9 if mono else 17)
    frames, count_bytes = _encoders_header(head, 4 + side) if layer == 3 else (0, 0)
    return MpegStream(
        start=start,
        stop=_before_tags(file, start, file.seek(0, os.SEEK_END)),
        second=head[1] | 1,
        mono=mono,
        lengths=_frame_lengths(version, layer, rate),
        declared=frames or None,
        declared_bytes=count_bytes or None,
    )


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
        half = layer == 3 and version != 3
        lengths[byte] = (72 if half else 144) * bits // hz + padding
    return tuple(lengths)


def _before_tags(file: BinaryIO, start: int, stop: int) -> int:
    """Returns where the tags at the end of the file begin: ID3, APE and Lyrics3."""
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
        if not 0 < size <= stop - start:
            return stop
        stop -= size


def _encoders_header(head: bytes, at: int) -> tuple[int, int]:
    """Returns the frames and the bytes that the encoder's header declares, or 0."""
    for place in (at, at + 2):  # some encoders leave room for a checksum
        if head[place : place + 4] in (b"Xing", b"Info"):
            flags = head[place + 7]
            numbers = place + 8
            frames = int.from_bytes(head[numbers : numbers + 4], "big")
            numbers += 4 * (flags & 1)
            count = int.from_bytes(head[numbers : numbers + 4], "big")
            # The header is a frame, too.
            return frames * (flags & 1), count * (flags >> 1 & 1)
    if head[36:40] == b"VBRI":
        return int.from_bytes(head[50:54], "big"), int.from_bytes(head[46:50], "big")
    return 0, 0


def _check_mpeg(file: BinaryIO, name: str, stream: MpegStream) -> str | None:
    """Compares the frames of an MP3 file with what its header declares."""
    count, at = _count_frames(file, stream)
    declared = stream.declared
    count -= declared is not None  # the first one is the header
    rest = read_at(file, at, min(stream.stop - at, _LARGEST_FRAME + 1))
    is_complete = declared is not None and count >= declared
    if declared is not None and count == declared - 1:
        # Some encoders count their header as a frame.
        is_complete = stream.declared_bytes == at - stream.start
    is_padding = len(rest) <= _LARGEST_FRAME and not any(rest)
    length = stream.frame_length(rest, 0) if len(rest) >= 4 else 0
    is_begun = length > len(rest) or (len(rest) < 4 and rest[:1] == b"\xff")
    if rest and not (is_complete or is_padding or is_begun):
        raise UnreadableAudio(
            name, f"is damaged: no MP3 frame begins at byte {at}, where one ends"
        )
    if declared is not None and count > declared:
        raise UnreadableAudio(
            name,
            f"holds {count} MP3 frames, but its header declares {declared}; if other "
            "MP3 files follow the first, split the file",
        )
    if declared is not None and not is_complete:
        return (
            f"its header declares {declared} MP3 frames, but the file holds only "
            f"{count}"
        )
    if not is_begun or is_complete:
        return None
    whole = f" of {length}" if length else ""
    return f"its last MP3 frame, number {count + 1}, has only {len(rest)}{whole} bytes"


def _count_frames(file: BinaryIO, stream: MpegStream) -> tuple[int, int]:
    """Returns how many whole frames follow each other, and where the last one ends."""
    count, start = 0, stream.start
    while start < stream.stop:
        data = read_at(file, start, min(_CHUNK, stream.stop - start))
        at = 0
        while at + 4 <= len(data):
            length = stream.frame_length(data, at)
            if not length or at + length > len(data):
                break
            count, at = count + 1, at + length
        if not at:
            break
        start += at
    return count, start


def _check_ogg(file: BinaryIO, name: str, file_bytes: int) -> str | None:
    """Finds the last page, and checks that it ends one of the streams at the start.

    Bytes after it do not matter, if they are fewer than a page may have.
    """
    serials, at = set(), 0
    while (page := read_at(file, at, 27 + 255))[:6] == _OGG_MAGIC + b"\2":
        serials.add(page[14:18])
        at += 27 + page[26] + sum(page[27 : 27 + page[26]])
    start = max(0, file_bytes - 2 * _LARGEST_PAGE)
    tail = read_at(file, start, file_bytes - start)
    offset = tail.rfind(_OGG_MAGIC)
    last = tail[offset:] if offset >= 0 else b""
    if len(last) >= 27 and last[14:18] not in serials:
        raise UnreadableAudio(
            name,
            "holds several Ogg streams in sequence, but only the first would be read; "
            f"the last page, at byte {start + offset}, is of another one; split the "
            "file",
        )
    body = 27 + last[26] if len(last) > 26 else 1
    is_whole = len(last) >= body + sum(last[27:body]) > 27
    if is_whole and last[5] & _OGG_LAST:
        return None
    return (
        f"no Ogg page is marked as the last; the file ends at byte {file_bytes}, and "
        f"its last page begins at byte {start + offset}"
    )


@dataclass(frozen=True, slots=True)
class FlacHeader:
    """The numbers in the header of a FLAC file, and the offset of their 8 bytes."""

    at: int
    packed: int

    @property
    def frames(self) -> int:
        """The declared number of frames; 0: unknown."""
        return self.packed & (1 << 36) - 1

    @property
    def bits(self) -> int:
        """The bits of a sample."""
        return (self.packed >> 36 & 31) + 1

    def with_frames(self, frames: int) -> bytes:
        """Returns the 8 bytes with another number of frames."""
        return (self.packed >> 36 << 36 | frames).to_bytes(8, "big")


def read_flac_header(file: BinaryIO) -> FlacHeader | None:
    """Returns the header of a FLAC file; ``None`` for other formats.

    Parameters
    ----------
    file
        Open, seekable and binary. The position changes.
    """
    start = after_id3(file)
    head = read_at(file, start, 26)
    if len(head) < 26 or not _FLAC_STREAM.match(head):
        return None
    return FlacHeader(start + 18, int.from_bytes(head[18:], "big"))


def find_second_flac(file: BinaryIO) -> int | None:
    """Returns where a second FLAC stream begins in a file; None if there is none."""
    start = after_id3(file) + 1
    while len(data := read_at(file, start, _CHUNK)) >= 8:
        found = _FLAC_STREAM.search(data)
        if found is not None:
            return start + found.start()
        start += len(data) - 7
    return None


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
    return read_whole(file, count)


def read_whole(file: BinaryIO, count: int) -> bytes:
    """Reads ``count`` bytes, also of a raw file, which may return fewer than it has."""
    data = file.read(count)
    while 0 < len(data) < count and (more := file.read(count - len(data))):
        data += more
    return data
