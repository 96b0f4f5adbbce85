"""Chooses the decoder of a file by its content, and by what the recipe prefers.

By default, libsndfile decodes all that it opens. ffmpeg is asked only for containers
that it has been tested with, and only if libsndfile does not open the file. A recipe
may prefer ffmpeg, or allow only one of them. Never does what is installed decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import BinaryIO

from beam_pipeline.audio.av_containers import COMMON, DEMUXERS, find_container
from beam_pipeline.audio.av_decoder import AvDecoder
from beam_pipeline.audio.av_library import DECODERS, PYAV, SOUNDFILE, is_installed
from beam_pipeline.audio.common_containers import find_common
from beam_pipeline.audio.decoder import (
    AudioInfo,
    Decoder,
    DecodingError,
    ForwardDecoder,
)
from beam_pipeline.errors import UnreadableAudio, read_error


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
        The file cannot be read, or only ffmpeg may be used, and it has not been tested
        with this container.
    """
    if PYAV not in decoders:
        return None
    if decoders[0] == SOUNDFILE:
        return foreign_container(file, name)
    container = _find_any(file, name)
    if SOUNDFILE not in decoders:
        if container is None:
            raise UnreadableAudio(
                name,
                "not readable as audio: its container is none that `decoder` pyav "
                f"reads ({', '.join(DEMUXERS)}); add soundfile",
            )
        return container
    if container is None or not is_installed():
        return container  # what is installed does not choose: it is rejected
    try:
        AvDecoder(file, name, container).close()
    except UnreadableAudio:
        if container in COMMON:
            return None
    return container


def foreign_container(file: BinaryIO, name: str) -> str | None:
    """Returns the container of a file that only ffmpeg may open; None: of any other.

    Parameters
    ----------
    file
        Open, seekable and binary. The position changes.
    name
        Name of the file in errors.

    Raises
    ------
    UnreadableAudio
        The file cannot be read.
    """
    container = _find_container(file, name)
    if container is None:
        return None
    try:
        Decoder(file, name).close()
    except UnreadableAudio as error:
        if not isinstance(error.__cause__, DecodingError):
            raise
        return container
    return None


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
    if probed is not None and probed.format:
        container = probed.format if probed.format in DEMUXERS else None
        if container is not None and _find_any(file, name) != container:
            raise UnreadableAudio(
                name, f"changed after its header was read: it was {probed}"
            )
    else:
        container = ffmpeg_container(file, name, decoders)
    if container is None:
        return Decoder(file, name, probed)
    return AvDecoder(file, name, container, probed)


def _find_any(file: BinaryIO, name: str) -> str | None:
    return _find_container(file, name) or _find_container(file, name, find_common)


def _find_container(
    file: BinaryIO,
    name: str,
    find: Callable[[BinaryIO], str | None] = find_container,
) -> str | None:
    try:
        return find(file)
    except OSError as error:
        raise read_error(name, "cannot be read", error) from error
