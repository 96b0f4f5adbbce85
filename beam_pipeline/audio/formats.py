"""The names of audio files, of the decoders, and of the containers that ffmpeg decodes.

libsndfile decodes what it reads right. ffmpeg, which PyAV brings, decodes containers
that libsndfile does not know, and a few files that it refuses or reads as noise. This
module imports neither.
"""

from __future__ import annotations

import importlib.util
import os

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
