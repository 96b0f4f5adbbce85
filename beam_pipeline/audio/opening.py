"""Chooses the decoder of a file by its content.

libsndfile decodes all that it opens. ffmpeg is asked only for containers that it has
been tested with, and only if libsndfile does not open the file.
"""

from __future__ import annotations

from typing import BinaryIO

from beam_pipeline.audio.av_containers import DEMUXERS, find_container
from beam_pipeline.audio.av_decoder import AvDecoder
from beam_pipeline.audio.decoder import (
    AudioInfo,
    Decoder,
    DecodingError,
    ForwardDecoder,
)
from beam_pipeline.errors import UnreadableAudio


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
    file: BinaryIO, name: str, probed: AudioInfo | None = None
) -> ForwardDecoder:
    """Returns the decoder of an open file, which stays open.

    Parameters
    ----------
    probed
        What a probe found, or what a table lists, which has no format.

    Raises
    ------
    UnreadableAudio
        No decoder opens the file, or it is not what was probed or listed.
    """
    if probed is not None and probed.format:
        container = probed.format if probed.format in DEMUXERS else None
        if container is not None and _find_container(file, name) != container:
            raise UnreadableAudio(
                name, f"changed after its header was read: it was {probed}"
            )
    else:
        container = foreign_container(file, name)
    if container is None:
        return Decoder(file, name, probed)
    return AvDecoder(file, name, container, probed)


def _find_container(file: BinaryIO, name: str) -> str | None:
    try:
        return find_container(file)
    except OSError as error:
        raise UnreadableAudio(name, f"cannot be read: {error}") from error
