"""Chooses the decoder of a file, and finds out what the file holds.

By default, libsndfile decodes all that it reads right, and ffmpeg the rest. A recipe
may prefer ffmpeg, or allow only one of them. Never does what is installed decide. The
length of a file is that of its header if the header can be trusted.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

from beam_pipeline.audio.decoder import (
    SAMPLE_BYTES,
    UNKNOWN_FRAMES,
    AudioInfo,
    AvDecoder,
    Decoder,
    DecodingError,
    ForwardDecoder,
    Source,
    check_finite,
    has_exact_length,
    opened,
)
from beam_pipeline.audio.formats import (
    COMMON,
    DECODERS,
    DEMUXERS,
    PYAV,
    SOUNDFILE,
    is_installed,
)
from beam_pipeline.audio.integrity import (
    DataSize,
    after_id3,
    by_magic,
    find_mpeg,
    find_second_flac,
    inspect,
    naming_reads,
    read_at,
    read_flac_header,
)
from beam_pipeline.errors import (
    ClipError,
    EmptyAudio,
    TruncatedAudio,
    UnreadableAudio,
)

# No codec packs more frames into one byte of a file (digital silence in FLAC has 5
# thousand). A header that claims more is not trusted; for an unknown length, it claims
# 2**63 - 1.
_FRAMES_PER_BYTE = 1 << 16
# Frames; precision with which the end of a cut file is found. MP3 frames have once or
# twice as many.
_CUT_BLOCK = {"MP3": 576, "FLAC": 1 << 12}
# Bytes and frames. libsndfile decodes the byte that fills up an odd number of bytes as
# one block more, of noise.
_GSM_BLOCK = (65, 320)
# Encoders count their delay, and decoders of WMA leave out the last block (128 ms).
_LENGTH_TOLERANCE_S = 0.25
_LONGEST_FLAC_BLOCK = (1 << 16) - 1  # frames
# Of two rates: for a thousand times more, the filter of soxr takes hours.
_MOST_RATIO = 1 << 16

# The containers of files, by their first bytes, see :func:`.integrity.by_magic`.
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
    if container := by_magic(head, _FOREIGN):
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
    if container := by_magic(read_at(file, 0, 12), _COMMON):
        return container
    return "mp3" if find_mpeg(file) is not None else None


def _adts_length(head: bytes) -> int:
    """Returns the length of the frame that begins with ``head``; 0 if none does."""
    if len(head) < 7 or head[0] != 0xFF or head[1] & 0xF6 != 0xF0:
        return 0
    length = (head[3] & 3) << 11 | head[4] << 3 | head[5] >> 5
    return length if length >= 7 and (head[2] >> 2 & 15) < 13 else 0


def ffmpeg_container(
    file: BinaryIO, name: str, decoders: Sequence[str] = DECODERS
) -> str | None:
    """Returns the container of a file that ffmpeg decodes; None: libsndfile does.

    Parameters
    ----------
    file
        Open, seekable and binary. The position changes.
    name
        Name of the file in errors.
    decoders
        The decoders that may be used, the preferred one first.

    Raises
    ------
    UnreadableAudio
        The file cannot be read; only ffmpeg may be used, and it has not been tested
        with this container; or only libsndfile may be used, and it would read noise.
    """
    with naming_reads(name):
        foreign = find_foreign(file)
        container = foreign or find_common(file)
    if PYAV not in decoders:
        if foreign == "caf":
            raise UnreadableAudio(
                name,
                "libsndfile reads Apple Lossless of 20 or 32 bits wrongly; add pyav to "
                "`decoder`",
            )
        return None
    if decoders[0] == SOUNDFILE:
        return foreign
    if SOUNDFILE not in decoders:
        if container is None:
            raise UnreadableAudio(
                name,
                "not readable as audio: `decoder` pyav does not read its container, "
                f"only {', '.join(DEMUXERS)}; add soundfile",
            )
        return container
    if container is None or not is_installed():
        return container  # what is installed does not choose: it is rejected
    try:
        AvDecoder(file, name, container).close()
    except UnreadableAudio:
        if foreign is None and container in COMMON:
            return None
    return container


def open_decoder(
    file: BinaryIO,
    name: str,
    probed: AudioInfo | None = None,
    decoders: Sequence[str] = DECODERS,
) -> ForwardDecoder:
    """Returns the decoder of an open file, which stays open.

    Parameters
    ----------
    probed
        What a probe found, or what a table lists, which has no format.
    decoders
        See :func:`ffmpeg_container`. A probe has chosen already.

    Raises
    ------
    UnreadableAudio
        No decoder opens the file, or it is not what was probed or listed.
    """
    if probed is None or not probed.format:
        container = ffmpeg_container(file, name, decoders)
    else:
        container = probed.format if probed.format in DEMUXERS else None
        with naming_reads(name):
            found = find_foreign(file), find_common(file)
        if container not in (None, *found):
            raise UnreadableAudio(
                name, f"changed after its header was read: it was {probed}"
            )
    if probed is not None and not probed.format:
        inspect(file, name)  # no probe has read the file
    if container is None:
        return Decoder(file, name, probed)
    return AvDecoder(file, name, container, probed)


def probe_audio(
    source: Source,
    *,
    name: str,
    allow_truncated: bool = False,
    allow_nonfinite: bool = False,
    decoders: Sequence[str] = DECODERS,
) -> AudioInfo:
    """Finds out what a file holds, from its header if the header can be trusted.

    What the header declares is compared with what is there:

    - PCM containers: the declared bytes, and those that are present.
    - FLAC: the last declared frame is decoded, and what follows it. A file that holds
      more than it declares is as long as what it holds.
    - Ogg: the last page must be flagged as the last one, and must belong to a stream
      that begins at the start of the file.
    - Other files (MP3, whose header is an estimate; ADPCM; unknown lengths) are decoded
      once to count their frames.
    - Files that ffmpeg decodes are decoded once, too.

    Samples stored as floats are searched for NaN and infinity. The probe does not find
    damage in the middle of a file; decoding does, as far as the format allows.

    Parameters
    ----------
    source
        Local path, or open seekable binary file, which stays open.
    name
        Name of the file in errors.
    allow_truncated
        Whether to accept a file that ends early, with the frames that are present.
    allow_nonfinite
        Whether to accept NaN and infinite samples.
    decoders
        See :func:`ffmpeg_container`.

    Raises
    ------
    UnreadableAudio
        The file cannot be read, is not audio, or cannot be decoded.
    EmptyAudio
        The file holds no frames.
    TruncatedAudio
        The file declares more frames than it holds.
    NonFiniteAudio
        The file holds samples that are NaN or infinite as float32.
    """
    with opened(source, name) as file:
        container = ffmpeg_container(file, name, decoders)
        probe = _Probe(file, name, allow_truncated, allow_nonfinite)
        if container is None:
            info = probe.with_libsndfile()
        else:
            info = probe.with_ffmpeg(container)
    with adding_length(info):
        if info.frames == 0:
            raise EmptyAudio(name, "holds no frames")
    return info


@contextlib.contextmanager
def adding_length(info: AudioInfo, is_known: bool = True) -> Iterator[None]:
    """Adds the length of a file to a ClipError from the ``with`` block."""
    try:
        yield
    except ClipError as error:
        if is_known and error.seconds is None and info.frames < UNKNOWN_FRAMES:
            error.seconds = info.frames / max(info.sample_rate_hz, 1)
        raise


def check_output(
    info: AudioInfo, channels: str | int, to_hz: int | None = None, *, name: str
) -> None:
    """Checks that a file has a channel, and can be resampled to a rate.

    Raises
    ------
    ValueError
        ``channels`` is not ``"mix"``, ``"keep"`` or an integer from 0.
    UnreadableAudio
        ``channels`` is the number of a channel that the file does not have, or the
        rates differ so much that soxr would take hours.
    """
    rates = info.sample_rate_hz, to_hz or info.sample_rate_hz
    if max(rates) > _MOST_RATIO * min(rates):
        raise UnreadableAudio(
            name,
            f"cannot be resampled from {rates[0]} to {rates[1]} Hz: one rate may be at "
            f"most {_MOST_RATIO} times the other; give another `sample_rate`",
        )
    if isinstance(channels, int) and channels >= info.channels:
        raise UnreadableAudio(
            name,
            f"has {info.channels} channels, and no channel {channels} (the first "
            "channel is 0)",
        )


@dataclass
class _Probe:
    """A file that is probed, and what is accepted of it.

    ``cut`` says how it ends early, if it does.
    """

    file: BinaryIO
    name: str
    allow_truncated: bool
    allow_nonfinite: bool

    def __post_init__(self) -> None:
        self.cut, self.data = inspect(self.file, self.name)

    def check_whole(self) -> None:
        if self.cut is not None and not self.allow_truncated:
            raise TruncatedAudio(
                self.name,
                f"ends early: {self.cut}; `allow_truncated` accepts such files",
            )

    def with_ffmpeg(self, container: str) -> AudioInfo:
        """Returns what the file holds; decodes it once.

        It ends early if its last packet is not complete, or if it lacks more than
        0.25 s of the length that its container declares.
        """
        data, cut = self.data, self.cut
        if cut is None and data is not None and data.declared > data.present:
            cut = data.lack
        with AvDecoder(self.file, self.name, container) as decoder:
            try:
                _count_frames(decoder, finite=not self.allow_nonfinite)
            except UnreadableAudio as error:
                if not decoder.is_cut:
                    raise
                cut = cut or error.reason
            info = replace(decoder.info, frames=decoder.position)
            declared_s = decoder.declared_s
        seconds = info.frames / info.sample_rate_hz
        # FLAC declares its frames, and half of one is for the rounding of seconds.
        tolerance_s = _LENGTH_TOLERANCE_S
        if info.format in COMMON:
            tolerance_s = 0.5 / info.sample_rate_hz
        if declared_s is not None and seconds < declared_s - tolerance_s:
            cut = cut or (
                f"it declares {declared_s:g} s of sound, but {seconds:g} s are decoded"
            )
        self.cut = cut
        self.check_whole()
        return info

    def with_libsndfile(self) -> AudioInfo:
        """Returns what the file holds, if libsndfile opens it."""
        with self._decoder() as decoder:
            info = decoder.info
        most = self.file.seek(0, os.SEEK_END) * _FRAMES_PER_BYTE
        is_known = has_exact_length(info) and info.frames <= most
        data = self.data
        if data is not None and _lacks_frames(data, info):
            self.cut = f"{data.lack} ({info.frames} frames)"
        elif self.cut is not None and info.format == "MP3":
            info, is_known = self._counted_until_error(info), True
        elif info.format == "FLAC" and 0 < info.frames < UNKNOWN_FRAMES:
            declared, info = info.frames, self._end_of_flac(info)
            is_known = True
            if info.frames < declared:
                self.cut = (
                    f"its header declares {declared} frames, but {info.frames} can be "
                    "decoded"
                )
        with adding_length(info, is_known):
            self.check_whole()
            floats = info.subtype in ("FLOAT", "DOUBLE") and not self.allow_nonfinite
            if floats or not is_known:
                with self._decoder() as decoder:
                    info = replace(info, frames=_count_frames(decoder, finite=floats))
        return info if data is None else _without_more(data, info)

    def _decoder(self, flac_frames: int | None = None) -> Decoder:
        return Decoder(self.file, self.name, flac_frames=flac_frames)

    def _end_of_flac(self, info: AudioInfo) -> AudioInfo:
        """Returns what a FLAC file holds that declares a number of frames.

        Raises ``UnreadableAudio`` if a second stream follows the first.
        """
        with self._decoder(info.frames + _LONGEST_FLAC_BLOCK) as decoder:
            count = decoder.count_from(info.frames - 1)
        if count == 1:
            return info
        if count > 1:
            with self._decoder(0) as decoder:
                return replace(info, frames=_count_frames(decoder, finite=False))
        header = read_flac_header(self.file)
        second = None if header is None else find_second_flac(self.file, header)
        if second is not None:
            raise UnreadableAudio(
                self.name,
                "holds several FLAC streams in sequence, but only the first would be "
                f"read; the second begins at byte {second}; split the file",
            )
        return self._counted_until_error(info)

    def _counted_until_error(self, info: AudioInfo) -> AudioInfo:
        """Returns the frames that decode before the first error, in whole blocks."""
        with self._decoder() as decoder:
            block = decoder.scratch[: _CUT_BLOCK[info.format]]
            try:
                while decoder.position < info.frames:
                    wanted = block[: info.frames - decoder.position]
                    if decoder.read_into(wanted) < len(wanted):
                        break
            except UnreadableAudio as error:
                if not isinstance(error.__cause__, DecodingError):
                    raise
            return replace(info, frames=decoder.position)


def _lacks_frames(data: DataSize, info: AudioInfo) -> bool:
    """Whether a frame, or a byte of a codec's data, is missing."""
    frame_bytes = SAMPLE_BYTES.get(info.subtype, 0) * info.channels or 1
    return data.declared // frame_bytes > data.present // frame_bytes


def _without_more(data: DataSize, info: AudioInfo) -> AudioInfo:
    """Leaves out frames that libsndfile reads beyond the end of the samples."""
    if (info.format, info.subtype) == ("WAV", "GSM610"):
        block_bytes, block_frames = _GSM_BLOCK
    elif info.subtype in SAMPLE_BYTES:
        block_bytes, block_frames = SAMPLE_BYTES[info.subtype] * info.channels, 1
    else:
        return info
    most = data.declared // block_bytes * block_frames
    return replace(info, frames=min(info.frames, most))


def _count_frames(decoder: ForwardDecoder, *, finite: bool) -> int:
    """Counts the frames; if ``finite``, raises ``NonFiniteAudio`` for other samples."""
    for block in decoder.blocks():
        if finite:
            check_finite(block, decoder.position - len(block), decoder.name)
    return decoder.position
