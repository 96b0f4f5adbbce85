"""One whole audio file as an array, with every check that recording makes."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.audio.decoder import SAMPLE_BYTES, AudioInfo, opened
from beam_pipeline.audio.opening import open_decoder
from beam_pipeline.audio.probe import check_channel, probe_audio
from beam_pipeline.errors import UnreadableAudio
from beam_pipeline.storage import files

DTYPES = ("float32", "float64", "int16", "int32")

# Samples of all other subtypes are floats, or become floats when they are decoded.
_INTEGERS = SAMPLE_BYTES.keys() - {"FLOAT", "DOUBLE"}

Samples = npt.NDArray[Any]


def probe_file(path: str) -> AudioInfo:
    """Returns what an audio file holds; raises ClipError if it cannot be used."""
    with files.closing(files.begin_read(path)) as source:
        return probe_audio(source, name=path)


def read_file(
    path: str, dtype: str = "float32", channels: str | int = "keep"
) -> tuple[Samples, int]:
    """Decodes a whole audio file.

    Parameters
    ----------
    path : str
        A local file, or one on any file system of Beam.
    dtype : str
        ``float32`` or ``float64``: samples in [-1, 1]. ``int16`` or ``int32``: full
        scale, so that 1.0 is ``2**15`` or ``2**31``. Integers in the file become
        integers as libsndfile makes them: 16-bit samples are the upper half of an
        int32. Floats become ``clip(round(x * 2**31))``.
    channels : str or int
        ``"keep"``: all; ``"mix"``: their mean, which is rounded for integers; ``k``:
        channel k, from 0.

    Returns
    -------
    samples : numpy.ndarray, shape (frames,) or (frames, channels)
        Two dimensions if several channels are kept.
    sample_rate_hz : int

    Raises
    ------
    ClipError
        If the file cannot be read or decoded, ends early, is empty, or holds NaN or
        infinity. Names the file.
    """
    with files.closing(files.begin_read(path)) as source:
        info = probe_audio(source, name=path)
        check_channel(info, channels, name=path)
        integers = np.dtype(dtype).kind == "i"
        scaled = integers and info.subtype not in _INTEGERS
        shape = info.frames, info.channels
        samples = np.empty(shape, "float64" if scaled else dtype)
        with opened(source, path) as file, open_decoder(file, path, info) as decoder:
            decoder.fill(samples[:, 0] if info.channels == 1 else samples)
    if scaled:
        samples = _to_integers(samples, dtype)
    return _choose(samples, channels), info.sample_rate_hz


def _to_integers(samples: Samples, dtype: str) -> Samples:
    limits = np.iinfo(dtype)
    samples = np.rint(samples * -float(limits.min))
    return np.clip(samples, limits.min, limits.max).astype(dtype)


def _choose(samples: Samples, channels: str | int) -> Samples:
    """Returns the channels to keep; one of them without an axis."""
    if samples.shape[1] == 1:
        return samples[:, 0]
    if channels == "keep":
        return samples
    if channels != "mix":
        return np.ascontiguousarray(samples[:, int(channels)])
    # In the order in which recording adds channels, so that both round alike.
    mean = samples[:, 0].astype("f8" if samples.dtype.kind == "i" else samples.dtype)
    for channel in samples.T[1:]:
        mean += channel
    mean /= mean.dtype.type(samples.shape[1])
    whole = samples.dtype.kind == "i"
    return np.rint(mean).astype(samples.dtype) if whole else mean


def as_complex_signal(samples: Samples, path: str) -> Samples:
    """Returns ``channel 0 + i * channel 1``; raises UnreadableAudio without two."""
    if samples.ndim != 2 or samples.shape[1] != 2:
        found = 1 if samples.ndim == 1 else samples.shape[1]
        raise UnreadableAudio(path, f"has {found} channels, but `as_complex` needs two")
    dtype = np.complex128 if samples.dtype == np.float64 else np.complex64
    out = np.empty(len(samples), dtype)
    out.real, out.imag = samples.T
    return out
