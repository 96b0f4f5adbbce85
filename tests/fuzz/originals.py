"""Undamaged files of every format, whose sound never repeats."""

import io
from dataclasses import dataclass
from functools import cache

import numpy as np
import soundfile

from tests.audio import files

RATE = 16000
# Format, subtype, and how far another decoder may differ.
KINDS = (
    ("WAV", "PCM_16", 0.0),
    ("WAV", "PCM_24", 0.0),
    ("WAV", "FLOAT", 0.0),
    ("WAV", "ULAW", 0.0),
    ("WAV", "IMA_ADPCM", 2e-3),
    ("WAV", "MS_ADPCM", 2e-3),
    ("WAVEX", "PCM_16", 0.0),
    ("RF64", "PCM_16", 0.0),
    ("W64", "PCM_16", 0.0),
    ("AIFF", "PCM_16", 0.0),
    ("AIFF", "FLOAT", 0.0),
    ("AU", "PCM_16", 0.0),
    ("CAF", "PCM_16", 0.0),
    ("NIST", "PCM_16", 0.0),
    ("FLAC", "PCM_16", 0.0),
    ("FLAC", "PCM_24", 0.0),
    ("OGG", "VORBIS", 1e-3),
    ("OGG", "OPUS", 1e-3),
    ("MP3", "MPEG_LAYER_III", 1e-3),
    ("HTK", "PCM_16", 0.0),
    ("PAF", "PCM_16", 0.0),
    ("PVF", "PCM_16", 0.0),
    ("IRCAM", "PCM_16", 0.0),
    ("XI", "DPCM_16", 0.0),
)
# ffmpeg does not stop at their declared end.
LONGER = ("AU", "NIST", "FLAC", "W64", "WAV")
# Their headers declare no length: they are read to the end of the file.
UNSIZED = ("PAF", "PVF", "IRCAM", "XI")
# Their frames have a checksum, so damage in them must be found.
CHECKED = ("FLAC", "OGG")
_MONO = {"HTK", "XI"}


@dataclass(frozen=True)
class Original:
    """A file, what it decodes to, and how far another decoder may differ."""

    kind: str
    data: bytes
    samples: np.ndarray  # (frames, channels), float32
    rate: int
    tolerance: float


def encode(fmt, subtype, frames, channels, seed):
    """Returns the bytes of a file that libsndfile writes."""
    rate = 48000 if subtype == "OPUS" else RATE
    # Of an MP3 without a header, libsndfile knows the length only if this is constant.
    constant = {"bitrate_mode": "CONSTANT", "compression_level": 0.6}
    mode = constant if fmt == "MP3" else {}
    sound = files.chirp(frames, channels, seed)
    return files.encode(sound, rate, format=fmt, subtype=subtype, **mode)


class _Forward(soundfile.SoundFile):
    """Never seeks: after a seek, MP3 decodes to other samples."""

    def seekable(self):
        return False


def decode(data):
    """Returns all frames that libsndfile decodes, and their rate."""
    with _Forward(io.BytesIO(data)) as sound:
        blocks = []
        while len(block := sound.read(1 << 14, "float32", always_2d=True)):
            blocks.append(block)
        return np.concatenate(blocks), sound.samplerate


@cache
def originals():
    """Returns a mono and a stereo file of each kind, where the format allows it."""
    found = []
    for number, (fmt, subtype, tolerance) in enumerate(KINDS):
        for channels in (1,) if fmt in _MONO else (1, 2):
            frames = 12_000 + 1571 * (number % 5)
            data = encode(fmt, subtype, frames, channels, number)
            found.append(_original(f"{fmt}/{subtype}", data, tolerance))
            if fmt == "MP3":
                bare = data[_first_frame_bytes(data) :]
                found.append(_original("MP3/no header", bare, tolerance))
    return tuple(found)


def _original(kind, data, tolerance):
    return Original(kind, data, *decode(data), tolerance)


def _first_frame_bytes(data):
    """Returns where the second MP3 frame begins: the first one is the encoder's."""
    return data.index(data[:2], 4)
