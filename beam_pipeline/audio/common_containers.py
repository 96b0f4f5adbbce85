"""Containers that libsndfile opens, for a recipe that prefers ffmpeg.

What the probe checks of them without a decoder is the same for both decoders.
"""

from __future__ import annotations

import os
from typing import BinaryIO

from beam_pipeline.audio.condition import check_stream
from beam_pipeline.audio.containers import Condition, find_data_size, read_at
from beam_pipeline.audio.mpeg import find_stream

_MAGIC = {
    (b"RIFF", b"WAVE"): "wav",
    (b"RF64", b"WAVE"): "wav",
    (b"FORM", b"AIFF"): "aiff",
    (b"FORM", b"AIFC"): "aiff",
}


def find_common(file: BinaryIO) -> str | None:
    """Returns the container of a file that both decoders know; None: of any other.

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
    if (head[:4], head[8:12]) in _MAGIC:
        return _MAGIC[head[:4], head[8:12]]
    is_mpeg = find_stream(file, file.seek(0, os.SEEK_END)) is not None
    return "mp3" if is_mpeg else None


def check_common(file: BinaryIO, file_bytes: int) -> Condition:
    """Follows the pages or frames of a file, or compares its size with its header."""
    condition = check_stream(file, file_bytes)
    data = find_data_size(file, file_bytes)
    if condition == Condition() and data is not None and data.declared > data.present:
        return Condition(
            cut=f"its header declares {data.declared} bytes of samples, but the file "
            f"holds only {data.present}"
        )
    return condition
