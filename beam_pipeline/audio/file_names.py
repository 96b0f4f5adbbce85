"""Which files of a folder are audio, by their names."""

from __future__ import annotations

import os

# Suffixes that libsndfile may decode, and suffixes of other audio formats: files in
# those become rejects with a reason, instead of being ignored.
_AUDIO_NAMES = """
    wav wave bwf rf64 w64 flac ogg oga opus mp3 mp2 mpga aif aiff aifc au snd caf sph
    nist voc paf svx ircam wve sds m4a m4b mp4 aac ac3 alac amr ape awb dsf dff dts mka
    mpc ra shn spx tak tta webm weba wma wv 3gp
"""
AUDIO_SUFFIXES = frozenset(f".{name}" for name in _AUDIO_NAMES.split())


def is_audio_name(name: str) -> bool:
    """Whether a folder's file is a clip: it has an audio suffix and is not hidden."""
    if is_hidden(name):
        return False
    return os.path.splitext(name)[1].lower() in AUDIO_SUFFIXES


def is_hidden(name: str) -> bool:
    """Whether a file, or a folder that it is in, is hidden."""
    return name.startswith(".") or "/." in name
