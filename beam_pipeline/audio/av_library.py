"""The decoders, and PyAV, which brings ffmpeg: whether it is there, and which."""

from __future__ import annotations

import importlib.util

# The names of the decoders, libsndfile and ffmpeg; by default the first is preferred.
SOUNDFILE, PYAV = "soundfile", "pyav"
DECODERS = (SOUNDFILE, PYAV)

LIBRARY = "av"
EXTRA = "audio-tfrecords[formats]"


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
