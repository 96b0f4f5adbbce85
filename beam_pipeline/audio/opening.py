"""Chooses the decoder of a file by its content, and by what the recipe prefers.

By default, libsndfile decodes all that it reads right, and ffmpeg the rest. A recipe
may prefer ffmpeg, or allow only one of them. Never does what is installed decide.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import BinaryIO

from beam_pipeline.audio.av_decoder import AvDecoder
from beam_pipeline.audio.decoder import AudioInfo, Decoder, ForwardDecoder
from beam_pipeline.audio.formats import (
    COMMON,
    DECODERS,
    DEMUXERS,
    MISREAD,
    PYAV,
    SOUNDFILE,
    find_common,
    find_foreign,
    is_installed,
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
        The file cannot be read; only ffmpeg may be used, and it has not been tested
        with this container; or only libsndfile may be used, and it would read noise.
    """
    foreign = _found(find_foreign, file, name)
    if PYAV not in decoders:
        if foreign in MISREAD:
            raise UnreadableAudio(
                name,
                f"libsndfile reads {MISREAD[foreign]} wrongly; add pyav to `decoder`",
            )
        return None
    if decoders[0] == SOUNDFILE:
        return foreign
    container = foreign or _found(find_common, file, name)
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
        if container not in (
            None,
            _found(find_foreign, file, name),
            _found(find_common, file, name),
        ):
            raise UnreadableAudio(
                name, f"changed after its header was read: it was {probed}"
            )
    if container is None:
        return Decoder(file, name, probed)
    return AvDecoder(file, name, container, probed)


def _found(
    find: Callable[[BinaryIO], str | None], file: BinaryIO, name: str
) -> str | None:
    try:
        return find(file)
    except OSError as error:
        raise read_error(name, "cannot be read", error) from error
