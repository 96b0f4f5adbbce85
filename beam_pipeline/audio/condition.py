"""Finds damage in files whose decoders do not report it."""

from __future__ import annotations

from typing import BinaryIO

from beam_pipeline.audio.alac import check_alac
from beam_pipeline.audio.containers import Condition, check_wave
from beam_pipeline.audio.mpeg import check_mpeg
from beam_pipeline.audio.ogg import check_ogg
from beam_pipeline.audio.old_containers import check_sds, check_sphere

_CHECKS = (check_mpeg, check_ogg, check_alac, check_sphere, check_sds, check_wave)


def check_stream(file: BinaryIO, file_bytes: int) -> Condition:
    """Reads an MP3, Ogg or SDS file from its start to its end.

    Of other files, it reads headers. FLAC is checked while it is decoded.

    Parameters
    ----------
    file
        Open, seekable and binary. The position changes.
    file_bytes
        Size of the file.
    """
    for check in _CHECKS:
        condition = check(file, file_bytes)
        if condition is not None:
            return condition
    return Condition()
