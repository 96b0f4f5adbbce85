"""Finds out what a file holds that ffmpeg decodes, by decoding it."""

from __future__ import annotations

from dataclasses import replace
from typing import BinaryIO

import numpy as np

from beam_pipeline.audio.av_containers import COMMON
from beam_pipeline.audio.av_decoder import AvDecoder, condition_of
from beam_pipeline.audio.decoder import AudioInfo
from beam_pipeline.errors import NonFiniteAudio, TruncatedAudio, UnreadableAudio

# Encoders count their delay, and decoders of WMA leave out the last block (128 ms).
LENGTH_TOLERANCE_S = 0.25


def probe_with_ffmpeg(
    file: BinaryIO,
    container: str,
    *,
    name: str,
    allow_truncated: bool,
    allow_nonfinite: bool,
) -> AudioInfo:
    """Decodes an open file once, as :func:`.probe.probe_audio` does, and counts.

    Raises
    ------
    UnreadableAudio, TruncatedAudio, NonFiniteAudio
        As there. A file ends early, too, if it lacks more than 0.25 s of the length
        that its container declares.
    """
    condition = condition_of(file, name, container)
    if condition.damage is not None:
        raise UnreadableAudio(name, condition.damage)
    cut = condition.cut
    if cut is None or allow_truncated:
        with AvDecoder(file, name, container) as decoder:
            frames = _count(decoder, until_error=bool(cut), finite=not allow_nonfinite)
            info = replace(decoder.info, frames=frames)
            cut = cut or _lacks_seconds(info, decoder.declared_s)
    if cut is not None and not allow_truncated:
        raise TruncatedAudio(
            name, f"ends early: {cut}; `allow_truncated` accepts such files"
        )
    return info


def _count(decoder: AvDecoder, *, until_error: bool, finite: bool) -> int:
    """Counts the frames; to the first that cannot be decoded, if ``until_error``."""
    frames = 0
    try:
        for block in decoder.blocks():
            if finite and not np.isfinite(block).all():
                bad = int(np.argmin(np.isfinite(block).all(axis=1)))
                raise NonFiniteAudio(
                    decoder.name,
                    f"has a sample that is NaN or infinite at frame {frames + bad}",
                )
            frames += len(block)
    except UnreadableAudio:
        if not (until_error and decoder.broke):
            raise
    return frames


def _lacks_seconds(info: AudioInfo, declared_s: float | None) -> str | None:
    seconds = info.frames / info.sample_rate_hz
    # FLAC declares its frames, and half of one is for the rounding of seconds.
    tolerance_s = LENGTH_TOLERANCE_S
    if info.format in COMMON:
        tolerance_s = 0.5 / info.sample_rate_hz
    if declared_s is None or seconds >= declared_s - tolerance_s:
        return None
    return f"it declares {declared_s:g} s of sound, but {seconds:g} s are decoded"
