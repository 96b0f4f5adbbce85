"""Signals as the bytes of a FLAC file: lossless, and about half of 16-bit PCM.

::

    int16                                    16-bit FLAC
    float32, each sample a whole n / 2**15   16-bit FLAC      in [-1, 1)
    float32, each sample a whole n / 2**23   24-bit FLAC      in [-1, 1)

libsndfile writes Vorbis and Opus with a random serial number, so that equal signals
give other bytes each time. This is why there are no such encodings.
"""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import InputError
from beam_pipeline.storage.gzip_members import too_long

Shape = tuple[int | None, ...]

MOST_CHANNELS = 8
_BITS = {16: np.int16, 24: np.int32}


def flac_problem(dtype: str, shape: Shape | None, rate_hz: int | None) -> str | None:
    """Says why FLAC cannot hold a feature, apart from its values; None if it can."""
    rank = None if shape is None else len(shape)
    if shape is None or dtype not in ("float32", "int16") or rank not in (1, 2):
        return (
            "must be a signal for flac: float32 or int16 of shape (frames,) or "
            "(channels, frames)"
        )
    if rank == 2 and not 1 <= (shape[0] or 0) <= MOST_CHANNELS:
        return f"must have 1 to {MOST_CHANNELS} channels for flac"
    if rate_hz is None:
        return "must have one known sample rate for flac, so only `record` stores it"
    try:
        _write(np.zeros(16, np.int16), rate_hz, 16)
    except ValueError:
        return f"must have a sample rate that FLAC supports, not {rate_hz} Hz"
    return None


def encode_flac(name: str, values: npt.NDArray[Any], rate_hz: int) -> bytes:
    """Returns a signal of shape (frames,) or (channels, frames) as a FLAC file.

    Parameters
    ----------
    name : str
        The feature, for errors.

    Raises
    ------
    InputError
        If float32 samples are not those of 16-bit or 24-bit audio.
    """
    frames = np.asarray(values).T
    if frames.dtype == np.int16:
        return _write(frames, rate_hz, 16)
    exact = frames.astype(np.float64)
    for bits, dtype in _BITS.items():
        scaled = exact * 2 ** (bits - 1)
        if _are_integers(scaled, bits):
            # libsndfile takes the upper bits of an integer.
            unused = 8 * np.dtype(dtype).itemsize - bits
            whole = scaled.astype(dtype) << unused
            return _write(whole.astype(dtype), rate_hz, bits)
    raise InputError(
        f"Feature {name} has samples that are not those of 16-bit or 24-bit audio "
        "(resampled, mixed or changed ones are not), so flac cannot hold them exactly. "
        "Use identity(dtype='int16'), or another encoding, for example raw."
    )


def _are_integers(scaled: npt.NDArray[np.float64], bits: int) -> bool:
    within = (scaled >= -(2 ** (bits - 1))) & (scaled < 2 ** (bits - 1))
    return bool((within & (scaled == np.rint(scaled))).all())


def _write(frames: npt.NDArray[Any], rate_hz: int, bits: int) -> bytes:
    import soundfile

    into = io.BytesIO()
    try:
        soundfile.write(into, frames, rate_hz, f"PCM_{bits}", format="FLAC")
    except soundfile.SoundFileError as error:
        raise ValueError(str(error)) from error
    return into.getvalue()


def decode_flac(data: bytes, dtype: str, shape: Shape) -> npt.NDArray[Any]:
    """Returns the signal that :func:`encode_flac` encoded.

    Parameters
    ----------
    dtype : str
        ``float32`` or ``int16``.
    shape : tuple of int or None
        (frames,) or (channels, frames); None stands for any number.

    Raises
    ------
    ValueError
        If the bytes are no FLAC file, it breaks off, or its shape is another one.
    """
    import soundfile

    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            declared, channels = file.frames, file.channels
            if file.format != "FLAC":
                raise ValueError(f"it is a file of {file.format}, not of FLAC")
            problem = too_long(4 * declared * channels, len(data))
            if problem is not None:
                raise ValueError(problem)
            frames = file.read(dtype=dtype, always_2d=True)
    except soundfile.SoundFileError as error:
        raise ValueError(f"its FLAC cannot be decoded: {error}") from error
    if len(frames) != declared:
        raise ValueError(f"its FLAC has {len(frames)} frames of {declared}")
    signal = np.ascontiguousarray(frames.T)
    found = signal if len(shape) == 2 else signal.reshape(-1)
    fits = (channels == 1 or len(shape) == 2) and all(
        size in (None, n) for size, n in zip(shape, found.shape, strict=True)
    )
    if not fits:
        raise ValueError(f"it has the shape {signal.shape} instead of {shape}")
    return found
