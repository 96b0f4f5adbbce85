"""Which files are audio, and which library decodes them, by names and first bytes.

libsndfile decodes what it reads right. ffmpeg, which PyAV brings, decodes containers
that libsndfile does not know, and a few files that it refuses or reads as noise. This
module imports neither.
"""

from __future__ import annotations

import importlib.util
import os
from typing import BinaryIO

from beam_pipeline.audio.integrity import (
    after_id3,
    find_mpeg,
    read_at,
    read_flac_header,
)

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

_MAGIC = (
    (0, b"\x1a\x45\xdf\xa3", "matroska"),
    (0, b"\x30\x26\xb2\x75\x8e\x66\xcf\x11\xa6\xd9\x00\xaa\x00\x62\xce\x6c", "asf"),
    (0, b"#!AMR\n", "amr"),
    (0, b"#!AMR-WB\n", "amr"),
    (0, b"wvpk", "wavpack"),
    (0, b"TTA1", "tta"),
    # libsndfile reads the headers of a file's later blocks as sound.
    (0, b"Creative Voice File\x1a", "voc"),
    (4, b"ftyp", "mp4"),
    (4, b"moov", "mp4"),  # QuickTime files may begin with any of these
    (4, b"mdat", "mp4"),
    (4, b"wide", "mp4"),
)
_COMMON_MAGIC = {
    (b"RIFF", b"WAVE"): "wav",
    (b"RF64", b"WAVE"): "wav",
    (b"FORM", b"AIFF"): "aiff",
    (b"FORM", b"AIFC"): "aiff",
}
_OGG_PAGE = 27  # bytes of a header, before the lengths of its parts
_FLAC_BITS = (8, 16, 24)  # that libsndfile decodes
# Numbers of 16 and 24 bits. libsndfile may read those of 20 and 32 bits as noise, and
# refuses files that do not declare the bits.
_ALAC_BITS = (1, 3)


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

    numbers = av.library_versions
    parts = {name: numbers[name] for name in ("libavcodec", "libavformat")}
    return {
        LIBRARY: av.__version__,
        **{name: ".".join(map(str, number)) for name, number in parts.items()},
    }


def find_foreign(file: BinaryIO) -> str | None:
    """Returns the container of a file that only ffmpeg decodes right; None: of others.

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
    str or None
        A key of ``DEMUXERS``.
    """
    start = after_id3(file)
    head = read_at(file, start, 64)
    for offset, magic, container in _MAGIC:
        if head[offset : offset + len(magic)] == magic:
            return container
    # A header of ADTS has few fixed bits, so a second one must follow the first.
    length = _adts_length(head)
    if length and _adts_length(read_at(file, start + length, 7)):
        return "adts"
    if head[:4] == b"OggS":
        packet = head[_OGG_PAGE + head[_OGG_PAGE - 1] :]
        return "ogg" if packet.startswith((b"\x7fFLAC", b"Speex   ")) else None
    if head[:4] == b"fLaC":
        header = read_flac_header(file)
        return "flac" if header is not None and header.bits not in _FLAC_BITS else None
    if head[:4] == b"caff":
        is_other = head[28:32] == b"alac" and head[35] not in _ALAC_BITS
        return "caf" if is_other else None
    return None


def find_common(file: BinaryIO) -> str | None:
    """Returns the container of a file that both libraries know; None: of any other.

    Parameters
    ----------
    file
        Open, seekable and binary. The position changes.
    """
    head = read_at(file, 0, 12)
    if head[:4] == b"fLaC":
        return "flac"
    if head[:4] == b"OggS":
        return "ogg"
    if (head[:4], head[8:12]) in _COMMON_MAGIC:
        return _COMMON_MAGIC[head[:4], head[8:12]]
    return "mp3" if find_mpeg(file) is not None else None


def _adts_length(head: bytes) -> int:
    """Returns the length of the frame that begins with ``head``; 0 if none does."""
    if len(head) < 7 or head[0] != 0xFF or head[1] & 0xF6 != 0xF0:
        return 0
    length = (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5
    return length if length >= 7 and (head[2] >> 2 & 15) < 13 else 0
