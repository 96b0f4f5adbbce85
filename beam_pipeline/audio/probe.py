"""Finds out what a file holds, from its header if the header can be trusted."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import BinaryIO

import numpy as np

from beam_pipeline.audio.alac import PACKET_FRAMES, repeats
from beam_pipeline.audio.av_library import DECODERS
from beam_pipeline.audio.av_probe import probe_with_ffmpeg
from beam_pipeline.audio.condition import check_stream
from beam_pipeline.audio.containers import DataSize, find_data_size
from beam_pipeline.audio.decoder import (
    SAMPLE_BYTES,
    UNKNOWN_FRAMES,
    AudioInfo,
    Decoder,
    DecodingError,
    Source,
    has_exact_length,
    opened,
)
from beam_pipeline.audio.old_containers import find_old_data_size
from beam_pipeline.audio.opening import ffmpeg_container
from beam_pipeline.errors import (
    ClipError,
    EmptyAudio,
    NonFiniteAudio,
    TruncatedAudio,
    UnreadableAudio,
    read_error,
)

# No codec packs more frames into one byte of a file (digital silence in FLAC has 5
# thousand). A header that claims more is not trusted; for an unknown length, it claims
# 2**63 - 1.
_FRAMES_PER_BYTE = 1 << 16
# Frames; precision with which the end of a cut file is found. MP3 frames have once or
# twice as many.
_CUT_BLOCK = 1 << 12
_MP3_BLOCK = 576


def probe_audio(
    source: Source,
    *,
    name: str,
    allow_truncated: bool = False,
    allow_nonfinite: bool = False,
    decoders: Sequence[str] = DECODERS,
) -> AudioInfo:
    """Finds out what a file holds, from its header if the header can be trusted.

    - PCM containers: the declared size is compared with the bytes present.
    - FLAC: the last frame is decoded. It must have the sample rate, channels and bit
      depth of the header, and so must all frames that are decoded later.
    - Ogg: the last page must be flagged as the last one, and must belong to a stream
      that begins at the start of the file.
    - Other files (MP3, whose header is an estimate; ADPCM; unknown lengths) are decoded
      once to count their frames.
    - Files that ffmpeg decodes are decoded once, too. Their container's elements
      must not end beyond the end of the file.

    Samples stored as floats are searched for NaN and infinity. The probe does not find
    damage in the middle of a file; decoding does.

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
        See :func:`.opening.ffmpeg_container`.

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
        if container is None:
            info = _probe_opened(file, name, allow_truncated, allow_nonfinite)
        else:
            info = probe_with_ffmpeg(
                file,
                container,
                name=name,
                allow_truncated=allow_truncated,
                allow_nonfinite=allow_nonfinite,
            )
    with telling_length(info):
        if info.frames == 0:
            raise EmptyAudio(name, "holds no frames")
    return info


@contextlib.contextmanager
def telling_length(info: AudioInfo) -> Iterator[None]:
    """Adds the length of a file to a ClipError from the ``with`` block."""
    try:
        yield
    except ClipError as error:
        if error.seconds is None and info.frames < UNKNOWN_FRAMES:
            error.seconds = info.frames / max(info.sample_rate_hz, 1)
        raise


def check_channel(info: AudioInfo, channels: str | int, *, name: str) -> None:
    """Checks that the file has the channel that ``channels`` names.

    Raises
    ------
    ValueError
        ``channels`` is not ``"mix"``, ``"keep"`` or an integer from 0.
    UnreadableAudio
        ``channels`` is the number of a channel that the file does not have.
    """
    if channels in ("mix", "keep"):
        return
    if not isinstance(channels, int) or channels < 0:
        raise ValueError(
            "channels must be 'mix', 'keep' or an integer of 0 or more; got "
            f"{channels!r}"
        )
    if channels >= info.channels:
        raise UnreadableAudio(
            name,
            f"has {info.channels} channels, and no channel {channels} (the first "
            "channel is 0)",
        )


@dataclass(frozen=True, slots=True)
class _Header:
    """A header's values, the file's sizes, and how the file is cut, if it is."""

    info: AudioInfo
    file_bytes: int
    data: DataSize | None
    cut: str | None
    listed_frames: int | None

    def most_frames(self) -> int:
        """Returns how many frames the file declares; a large number: unknown."""
        if self.listed_frames is not None:
            return self.listed_frames
        sample_bytes = SAMPLE_BYTES.get(self.info.subtype)
        if self.data is None or sample_bytes is None:
            return 2 * UNKNOWN_FRAMES
        return self.data.declared // (sample_bytes * self.info.channels)


def _probe_opened(
    file: BinaryIO, name: str, allow_truncated: bool, allow_nonfinite: bool
) -> AudioInfo:
    """Returns what a file holds that libsndfile opens, or that no decoder knows."""
    header = _read_header(file, name)
    with telling_length(header.info):
        return _checked(file, name, header, allow_truncated, allow_nonfinite)


def _checked(
    file: BinaryIO,
    name: str,
    header: _Header,
    allow_truncated: bool,
    allow_nonfinite: bool,
) -> AudioInfo:
    info = header.info
    if header.cut is not None and not allow_truncated:
        raise TruncatedAudio(
            name,
            f"ends early: {header.cut}; `allow_truncated` accepts such files",
        )
    floats = info.subtype in ("FLOAT", "DOUBLE") and not allow_nonfinite
    counted = header.cut is not None and info.format == "MP3"
    if floats or not (counted or _has_known_length(info, header.file_bytes)):
        with Decoder(file, name) as decoder:
            info = replace(info, frames=_count_frames(decoder, finite=floats))
    if header.cut is None and header.listed_frames not in (None, info.frames):
        raise UnreadableAudio(
            name,
            f"is damaged: it declares {header.listed_frames} frames, but "
            f"{info.frames} are decoded",
        )
    # libsndfile reads some files beyond the end of their samples.
    return replace(info, frames=min(info.frames, header.most_frames()))


def _read_header(file: BinaryIO, name: str) -> _Header:
    with _reading(name):
        file_bytes = file.seek(0, os.SEEK_END)
        data = find_data_size(file, file_bytes) or find_old_data_size(file, file_bytes)
        condition = check_stream(file, file_bytes)
    if condition.damage is not None:
        raise UnreadableAudio(name, condition.damage)
    with Decoder(file, name) as decoder:
        info = decoder.info
        lacks_last_frame = (
            info.format == "FLAC"
            and 0 < info.frames < UNKNOWN_FRAMES
            and not decoder.holds_frame(info.frames - 1)
        )
    cut = condition.cut
    if data is not None and _lacks_frames(data, info):
        cut = (
            f"its header declares {data.declared} bytes of samples, but the file holds "
            f"only {data.present} ({info.frames} frames)"
        )
    elif cut is not None and info.format == "MP3":
        with Decoder(file, name) as decoder:
            info = replace(info, frames=_count_until_error(decoder, _MP3_BLOCK))
    elif lacks_last_frame:
        with Decoder(file, name) as decoder:
            frames = _count_until_error(decoder, _CUT_BLOCK)
        if frames < info.frames:
            cut = (
                f"its header declares {info.frames} frames, but {frames} can be decoded"
            )
            info = replace(info, frames=frames)
    elif info.frames == 0 and data is not None and data.present > 0:
        # A recorder that was killed leaves this. So does one that recorded no
        # samples and appended its notes, which is what libsndfile assumes.
        raise EmptyAudio(
            name,
            f"holds no frames: its header declares no samples. {data.present} bytes "
            "follow the header; if these are samples, repair the header",
        )
    return _Header(info, file_bytes, data, cut, condition.frames)


@contextlib.contextmanager
def _reading(name: str) -> Iterator[None]:
    """Turns OSError into a ClipError."""
    try:
        yield
    except OSError as error:
        raise read_error(name, "cannot be read", error) from error


def _has_known_length(info: AudioInfo, file_bytes: int) -> bool:
    """Whether the header's number of frames is exact and plausible."""
    return has_exact_length(info) and info.frames <= file_bytes * _FRAMES_PER_BYTE


def _lacks_frames(data: DataSize, info: AudioInfo) -> bool:
    """Whether a frame, or a byte of a codec's data, is missing."""
    sample_bytes = SAMPLE_BYTES.get(info.subtype)
    if sample_bytes is None:
        return data.declared > data.present
    frame_bytes = sample_bytes * info.channels
    return data.declared // frame_bytes > data.present // frame_bytes


def _count_frames(decoder: Decoder, *, finite: bool) -> int:
    """Counts the frames; if ``finite``, raises ``NonFiniteAudio`` for other samples."""
    if decoder.info.subtype.startswith("ALAC"):
        return _count_packets(decoder)
    while True:
        frames = decoder.read_into(decoder.scratch)
        block = decoder.scratch[:frames]
        if finite and not np.isfinite(block).all():
            bad = int(np.argmin(np.isfinite(block).all(axis=1)))
            raise NonFiniteAudio(
                decoder.name,
                "has a sample that is NaN or infinite at frame "
                f"{decoder.position - frames + bad}",
            )
        if frames < len(decoder.scratch):
            return decoder.position


def _count_packets(decoder: Decoder) -> int:
    """Counts frames of Apple Lossless; raises for a packet that cannot be decoded."""
    block, before = (np.empty_like(decoder.scratch[:PACKET_FRAMES]) for _ in range(2))
    while frames := decoder.read_into(block):
        start = decoder.position - frames
        if start and repeats(block[:frames], before[:frames]):
            raise UnreadableAudio(
                decoder.name,
                f"is damaged: the packet at frame {start} cannot be decoded, and the "
                "decoder repeats the one before",
            )
        block, before = before, block
    return decoder.position


def _count_until_error(decoder: Decoder, block_frames: int) -> int:
    """Counts the frames that decode before the first error, in whole blocks."""
    block = decoder.scratch[:block_frames]
    try:
        while decoder.position < decoder.info.frames:
            wanted = block[: decoder.info.frames - decoder.position]
            if decoder.read_into(wanted) < len(wanted):
                break
    except UnreadableAudio as error:
        if not isinstance(error.__cause__, DecodingError):
            raise
    return decoder.position
