"""Arrays as the bytes of one entry: images, signals, half precision, int8.

::

    encoding    holds                             bytes for n values
    png         uint8, uint16 of one channel      lossless
    jpeg        uint8                             not lossless
    flac        int16; float32 of whole samples   lossless, half of 16-bit PCM
    opus        int16, float32 of a few rates     not lossless, an eighth
    vorbis      int16, float32                    not lossless, an eighth, and 4 KB
    original    int16, float32 of whole clips     the bytes of the clip's file
    float16     float32                           2n, nearest float16
    bfloat16    float32                           2n, nearest bfloat16
    int8        float32                           n + 4, q * scale with |q| <= 127

``tf.io.decode_png`` and ``tf.io.decode_jpeg`` read the same images; nothing here needs
TensorFlow. float32 that readers get can be encoded again without any change, except by
JPEG, Opus and Vorbis.
"""

from __future__ import annotations

import io
import math
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_pipeline.arrays import Array, DoubleArray, FloatArray
from beam_pipeline.errors import ClipError, InputError, RecipeError
from beam_pipeline.storage.tfrecord import too_long

Shape = Sequence[int | None]

IMAGE_KINDS = ("png", "jpeg")

# Pillow's names for pixels of 8 bits -> their channels.
_CHANNELS_OF = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4}
_MODE_OF_UINT16 = "I;16"
_CHANNELS = {"png": (1, 2, 3, 4), "jpeg": (1, 3)}
_SHAPES = {
    "png": "(h, w), or (h, w, c) with 1 to 4 channels",
    "jpeg": "(h, w), (h, w, 1) or (h, w, 3)",
}
_OPTIONS_OF: dict[str, dict[str, Any]] = {
    "png": {"compress_level": 6},
    "jpeg": {"quality": 95, "subsampling": "4:2:0"},
}
# The format of PNG has 31 bits for a side, libjpeg allows 65500. Pillow warns of more
# than 89 million pixels.
_MOST_SIDE = {"png": 2**31 - 1, "jpeg": 65500}
MOST_PIXELS = 2**26


def fits_shape(found: Sequence[int], shape: Shape) -> bool:
    """Whether an array has a shape, of which a size that is None may be any."""
    return len(found) == len(shape) and all(
        wanted in (None, size) for wanted, size in zip(shape, found, strict=True)
    )


def object_array(values: Sequence[Any]) -> Array:
    """Returns values as an array of one axis, whatever they are."""
    found = np.empty(len(values), object)
    found[:] = values
    return found


def image_problem(dtype: Any, shape: Shape | None, kind: str) -> str | None:
    """Says why an image of a kind cannot hold arrays; None if it can.

    ::

        png     uint8     (h, w)    (h, w, 1)    (h, w, 2)    (h, w, 3)    (h, w, 4)
                uint16    (h, w)    (h, w, 1)
        jpeg    uint8     (h, w)    (h, w, 1)                 (h, w, 3)

    Two and four channels are grey and RGB with an alpha channel.

    Parameters
    ----------
    dtype : numpy.dtype, type or str
    shape : sequence of int or None
        Rows, columns, and channels if there are several. None for a size that is not
        the same in all arrays, or for all of the shape.
    kind : str
        ``png`` or ``jpeg``.

    Examples
    --------
    >>> image_problem("uint8", (59, 64), "png")
    >>> image_problem("float32", (59, 64), "png")
    'must be uint8 for png, or uint16 of one channel; for a feature, add |as_image()'
    """
    if kind not in IMAGE_KINDS:
        return f"must be encoded as one of {', '.join(IMAGE_KINDS)}, not {kind}"
    try:
        name = np.dtype(dtype).name
    except TypeError:  # string, bfloat16 and others that numpy does not know
        name = str(dtype)
    if name != "uint8" and (kind, name) != ("png", "uint16"):
        more = ", or uint16 of one channel" if kind == "png" else ""
        return f"must be uint8 for {kind}{more}; for a feature, add |as_image()"
    if shape is None or len(shape) not in (2, 3):
        return f"must have the shape {_SHAPES[kind]} for {kind}"
    channels = shape[2] if len(shape) == 3 else 1
    if channels is not None and channels not in _CHANNELS[kind]:
        return f"must have the shape {_SHAPES[kind]} for {kind}"
    if name == "uint16" and channels != 1:
        return "must be uint8 for png with several channels"
    sides = [side for side in shape[:2] if side is not None]
    if min(sides, default=1) < 1:
        return "must have at least one row and one column"
    if max(sides, default=1) > _MOST_SIDE[kind]:
        return f"must have at most {_MOST_SIDE[kind]} rows and columns for {kind}"
    if math.prod(sides) > MOST_PIXELS:
        return f"must have at most {MOST_PIXELS} pixels"
    return None


def encode_image(array: Array, kind: str) -> bytes:
    """Encodes an array as an image; equal arrays give equal bytes.

    The bytes also depend on the version of Pillow and of the codec in it.

    Parameters
    ----------
    array : numpy.ndarray, shape (h, w) or (h, w, channels), uint8 or uint16
        The pixels; :func:`image_problem` lists what an image can hold.
    kind : str
        ``png``, which is lossless, or ``jpeg``, of quality 95 from 1 to 100. JPEG also
        halves the resolution of colours.

    Raises
    ------
    RecipeError
        If the image cannot hold the array.

    Examples
    --------
    >>> encode_image(np.zeros((2, 3), np.uint8), "png")[:4]
    b'\\x89PNG'
    """
    array = np.asarray(array)
    problem = image_problem(array.dtype, array.shape, kind)
    if problem is not None:
        raise RecipeError("image", problem, f"{array.dtype} {array.shape}")
    from PIL import Image

    pixels = array[..., 0] if array.shape[2:] == (1,) else array
    native = np.ascontiguousarray(pixels, array.dtype.newbyteorder("="))
    into = io.BytesIO()
    Image.fromarray(native).save(into, kind, **_OPTIONS_OF[kind])
    return into.getvalue()


def decode_image(data: bytes, kind: str, dtype: Any, shape: Shape | None) -> Array:
    """Decodes an image that holds an array of a known type and number of axes.

    Parameters
    ----------
    data : bytes
        A whole file, as :func:`encode_image` returns it.
    kind : str
        ``png`` or ``jpeg``.
    dtype : numpy.dtype, type or str
        ``uint8``, or ``uint16`` for a PNG with 16 bits.
    shape : sequence of int or None
        ``(h, w)`` and ``(h, w, 1)`` are both grey. None for a size that the image
        decides.

    Returns
    -------
    numpy.ndarray, of this dtype and shape

    Raises
    ------
    RecipeError
        If an image cannot hold such an array.
    InputError
        If the data are no such image, are damaged, or have another size or type.
    """
    problem = image_problem(dtype, shape, kind)
    if shape is None or problem is not None:
        raise RecipeError("image", problem, f"{dtype} {shape}")
    from PIL import Image

    is_uint16 = np.dtype(dtype) == np.uint16
    modes = {_MODE_OF_UINT16: 1} if is_uint16 else _CHANNELS_OF
    try:
        with Image.open(io.BytesIO(data), formats=[kind]) as image:
            sizes: tuple[int, ...] = (image.height, image.width)
            if len(shape) == 3 or modes.get(image.mode) != 1:
                sizes = (*sizes, modes.get(image.mode, 0))
            fits = fits_shape(sizes, shape) and 0 not in sizes
            # Checked first: a damaged header must not request gigabytes.
            if not fits or sizes[0] * sizes[1] > MOST_PIXELS:
                raise InputError(
                    f"A {kind} image of {image.height} rows, {image.width} columns and "
                    f"mode {image.mode} was found, but {np.dtype(dtype)} of shape "
                    f"{tuple(shape)} was expected. Check the shape and the type."
                )
            pixels = np.array(image)
    except _damages(Image) as error:
        raise InputError(
            f"{len(data)} bytes cannot be decoded as {kind}: {error}. Check the kind "
            "and that the data are whole."
        ) from error
    return pixels.astype(dtype, copy=False).reshape(sizes)


def _damages(pillow: Any) -> tuple[type[Exception], ...]:
    """What Pillow raises for damaged images."""
    return (
        OSError, SyntaxError, ValueError, EOFError, struct.error, IndexError,
        pillow.DecompressionBombError, pillow.DecompressionBombWarning,
    )  # fmt: skip


# FLAC holds int16, and float32 whose samples are all whole multiples of 2**-15 or of
# 2**-23 in [-1, 1). More than two channels are those of loudspeakers for the others: of
# six or eight, one is for low frequencies alone.
MOST_CHANNELS = {"flac": 8, "opus": 2, "vorbis": 2}
_BITS = {16: np.int16, 24: np.int32}
# Encoding -> format and subtype of libsndfile; the subtype of FLAC are the bits.
_FORMATS = {"flac": ("FLAC", ""), "opus": ("OGG", "OPUS"), "vorbis": ("OGG", "VORBIS")}


def signal_problem(
    dtype: str, shape: Shape | None, rate_hz: int | None, encoding: str
) -> str | None:
    """Says why a file of sound cannot hold a feature, apart from its values, or None.

    ``encoding`` is ``flac``, ``opus`` or ``vorbis``.
    """
    rank = None if shape is None else len(shape)
    if shape is None or dtype not in ("float32", "int16") or rank not in (1, 2):
        return (
            f"must be a signal for {encoding}: float32 or int16 of shape (frames,) or "
            "(channels, frames)"
        )
    channels = 1 if rank == 1 else shape[0] or 0
    if not 1 <= channels <= MOST_CHANNELS[encoding]:
        return f"must have 1 to {MOST_CHANNELS[encoding]} channels for {encoding}"
    if rate_hz is None:
        return (
            f"must have one known sample rate for {encoding}, so only `record` stores "
            "it"
        )
    try:
        encode_signal("", np.zeros((channels, 16), np.int16), rate_hz, encoding)
    except ValueError:
        rates = " (8, 12, 16, 24 or 48 kHz)" if encoding == "opus" else ""
        return f"must have a sample rate that {encoding} has{rates}, not {rate_hz} Hz"
    return None


def encode_signal(name: str, values: Array, rate_hz: int, encoding: str) -> bytes:
    """Returns a signal as a file of FLAC, of Opus in Ogg, or of Vorbis in Ogg.

    Opus has 2 bits a sample, and at least 24 kbit/s, for each channel; Vorbis has the
    quality 5 of 10. Equal signals give equal bytes, with the same libraries and
    processor.

    Parameters
    ----------
    name : str
        The feature, for errors.
    values : numpy.ndarray, shape (frames,) or (channels, frames), int16 or float32
    encoding : str
        ``flac``, ``opus`` or ``vorbis``.

    Raises
    ------
    InputError
        If float32 samples are not those of 16-bit or 24-bit audio, for FLAC; or not
        finite.
    ValueError
        If the format has no such sample rate.
    """
    frames = np.asarray(values).T
    if encoding == "flac":
        return _encode_flac(name, frames, rate_hz)
    if not np.isfinite(frames).all():
        raise InputError(
            f"Feature {name} has the value {frames[~np.isfinite(frames)][0]}, which "
            f"{encoding} cannot hold. Use another encoding, for example raw."
        )
    # libsndfile: levels from 0 to 1 are 256 to 6 kbit/s for Opus, quality 10 to 0 for
    # Vorbis.
    kbits = min(max(24.0, 2 * rate_hz / 1000), 256.0)
    level = (256 - kbits) / 250 if encoding == "opus" else 0.5
    return _without_serial(_write(frames, rate_hz, *_FORMATS[encoding], level))


def _encode_flac(name: str, frames: Array, rate_hz: int) -> bytes:
    if frames.dtype == np.int16:
        return _write(frames, rate_hz, "FLAC", "PCM_16")
    exact = frames.astype(np.float64)
    for bits, dtype in _BITS.items():
        scaled = exact * 2 ** (bits - 1)
        if _are_integers(scaled, bits):
            # libsndfile takes the upper bits of an integer.
            unused = 8 * np.dtype(dtype).itemsize - bits
            whole = scaled.astype(dtype) << unused
            return _write(whole.astype(dtype), rate_hz, "FLAC", f"PCM_{bits}")
    raise InputError(
        f"Feature {name} has samples that are not those of 16-bit or 24-bit audio "
        "(resampled, mixed or changed ones are not), so flac cannot hold them exactly. "
        "Use identity(dtype='int16'), or another encoding, for example raw."
    )


def _are_integers(scaled: DoubleArray, bits: int) -> bool:
    within = (scaled >= -(2 ** (bits - 1))) & (scaled < 2 ** (bits - 1))
    return bool((within & (scaled == np.rint(scaled))).all())


def _write(
    frames: Array,
    rate_hz: int,
    kind: str,
    subtype: str,
    level: float | None = None,
) -> bytes:
    import soundfile

    into = io.BytesIO()
    try:
        soundfile.write(
            into, frames, rate_hz, subtype, format=kind, compression_level=level
        )
    except soundfile.SoundFileError as error:
        raise ValueError(str(error)) from error
    return into.getvalue()


# An Ogg page: a head of 27 bytes with the serial number of its stream, the checksum of
# the page, and the number of segments; the sizes of the segments; the segments.
_SERIAL, _CHECKSUM, _SEGMENTS, _HEAD = slice(14, 18), slice(22, 26), 26, 27
_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def _without_serial(ogg: bytes) -> bytes:
    """Returns an Ogg file with the serial number 0; libsndfile gives a random one."""
    pages, at = [], 0
    while at < len(ogg):
        sizes = at + _HEAD
        stop = sizes + ogg[at + _SEGMENTS]
        end = stop + sum(ogg[sizes:stop])
        page = bytearray(ogg[at:end])
        page[_SERIAL] = page[_CHECKSUM] = bytes(4)
        page[_CHECKSUM] = _ogg_checksum(page)
        pages.append(page)
        at = end
    return b"".join(pages)


def _ogg_checksum(page: bytearray) -> bytes:
    """Returns the CRC of a page: zlib's, but of reversed bits, and from 0 on."""
    crc = zlib.crc32(page.translate(_REVERSED), 2**32 - 1) ^ (2**32 - 1)
    return crc.to_bytes(4, "little").translate(_REVERSED)[::-1]


def check_original(name: str, signal: Array, file: bytes) -> None:
    """Raises InputError unless readers decode a file to a signal."""
    try:
        found = _decode_file(file, signal.dtype.name, signal.shape)
        if np.array_equal(found, signal, equal_nan=True):
            return
        problem = "it holds other samples"
    except ValueError as error:
        problem = str(error)
    raise InputError(
        f"The file cannot stand for the feature {name}: {problem}. It must be read "
        "whole, at its own sample rate, with all channels kept or mixed. Use another "
        "encoding, for example flac."
    )


def decode_signal(data: bytes, encoding: str, dtype: str, shape: Shape) -> Array:
    """Returns the signal of an example.

    Parameters
    ----------
    data : bytes
        What :func:`encode_signal` returned, or a file of any format.
    encoding : str
        ``flac``, ``opus``, ``vorbis`` or ``original``.
    dtype : str
        ``float32`` or ``int16``.
    shape : tuple of int or None
        (frames,) or (channels, frames); None stands for any number. For ``original``,
        the channels are mixed if it has one axis.

    Raises
    ------
    ValueError
        If the bytes are no such file, it breaks off, or its shape is another one.
    """
    if encoding == "original":
        return _decode_file(data, dtype, shape)
    import soundfile

    kind = _FORMATS[encoding][0]
    try:
        with soundfile.SoundFile(io.BytesIO(data)) as file:
            declared, channels = file.frames, file.channels
            if file.format != kind:
                raise ValueError(f"it is a file of {file.format}, not of {kind}")
            problem = too_long(4 * declared * channels, len(data))
            if problem is not None:
                raise ValueError(problem)
            frames = file.read(dtype=dtype, always_2d=True)
    except soundfile.SoundFileError as error:
        raise ValueError(f"its {kind} cannot be decoded: {error}") from error
    if len(frames) != declared:
        raise ValueError(f"its {kind} has {len(frames)} frames of {declared}")
    signal = np.ascontiguousarray(frames.T)
    found = signal[0] if len(shape) == 1 and channels == 1 else signal
    if not fits_shape(found.shape, shape):
        raise ValueError(f"it has the shape {signal.shape} instead of {shape}")
    return found


def _decode_file(data: bytes, dtype: str, shape: Shape) -> Array:
    """Returns the samples of a whole file, as ``record`` decodes it."""
    from beam_pipeline.audio.clip_reader import ClipReader
    from beam_pipeline.audio.probe import probe_audio

    source, name = io.BytesIO(data), "the file of the example"
    try:
        info = probe_audio(source, name=name, allow_nonfinite=True)
        problem = too_long(4 * info.frames * info.channels, len(data))
        if problem is not None:
            raise ValueError(problem)
        channels = "mix" if len(shape) == 1 else "keep"
        with ClipReader(source, info, name=name, channels=channels) as reader:
            found: Array = reader.read(0, info.frames)
    except ClipError as error:
        raise ValueError(str(error)) from error
    if not fits_shape(found.shape, shape):
        raise ValueError(f"it has the shape {found.shape} instead of {shape}")
    if dtype == "int16":
        from beam_pipeline.transforms.base import Identity  # it needs SciPy

        (found,) = Identity(dtype)(found[None])
    return found


_LEVELS = 127
_SCALE_BYTES = 4
_LEAST_SCALE = 2.0**-126  # float32 has fewer digits below
# Of a float64: sign, exponent and 15 bits of the mantissa.
_KEPT_BITS = np.uint64(2**64 - 2 ** (52 - 15))


def round_to_half(name: str, values: Array, dtype: np.dtype[Any]) -> Array:
    """Returns float32 values as float16 or bfloat16; halves round to even.

    ::

        float16     |y - x| <= 2**-11 |x|,  or 2**-25 where |x| < 2**-14
        bfloat16    |y - x| <= 2**-8 |x|,   for normal numbers

    NaN and infinity stay what they are.

    Parameters
    ----------
    name : str
        The feature, for errors.

    Raises
    ------
    InputError
        If a finite value is too large: float16 ends at 65504.
    """
    exact = np.asarray(values, np.float32)
    with np.errstate(over="ignore"):
        rounded: Array = exact.astype(dtype)
    beyond = np.isfinite(exact) & ~np.isfinite(rounded.astype(np.float32))
    if beyond.any():
        raise InputError(
            f"Feature {name} has the value {exact[beyond].flat[0]:g}, which {dtype} "
            "cannot hold. Use another encoding, for example raw."
        )
    return rounded


def pack_int8(name: str, values: Array) -> bytes:
    """Returns an array as a scale of its own and an int8 for each value.

    ::

        scale = max(|x|) / 127, cut to 16 significant bits, and at least 2**-126
        q     = rint(x / scale)                        from -127 to 127
        |q scale - x| <= scale / 2 <= max(|x|) / 254

    The last bound holds from ``max(|x|) = 127 * 2**-126`` on. Zero stays zero. The
    product ``q scale`` has at most 23 significant bits, so it is exact as float32.

    Returns
    -------
    bytes
        ``scale`` as little-endian float32, then the int8 values in C order.

    Raises
    ------
    InputError
        If a value is NaN or infinite.

    Examples
    --------
    >>> unpack_int8(pack_int8("x", np.array([-127.0, 0.4, 63.5, 100.0]))).tolist()
    [-127.0, 0.0, 64.0, 100.0]
    """
    exact = np.asarray(values, np.float64)
    if not np.isfinite(exact).all():
        raise InputError(
            f"Feature {name} has the value {exact[~np.isfinite(exact)].flat[0]}, which "
            "int8 cannot hold. Use another encoding, for example raw."
        )
    widest = np.abs(exact).max(initial=0.0) / _LEVELS
    cut = (np.float64(widest).view(np.uint64) & _KEPT_BITS).view(np.float64)
    scale = max(float(cut), _LEAST_SCALE)
    levels = np.rint(exact / scale).astype(np.int8)
    return np.array(scale, "<f4").tobytes() + levels.tobytes()


def unpack_int8(packed: bytes) -> FloatArray:
    """Returns the flat array that :func:`pack_int8` packed.

    Raises
    ------
    ValueError
        If the scale is not there, or is no positive number.
    """
    if len(packed) < _SCALE_BYTES:
        raise ValueError(f"it has {len(packed)} bytes, fewer than the scale of int8")
    scale = np.frombuffer(packed, "<f4", 1)[0].astype(np.float32)
    if not 0 < scale < np.inf:
        raise ValueError(f"the scale of its int8 values is {scale}")
    levels = np.frombuffer(packed, np.int8, offset=_SCALE_BYTES)
    return np.asarray(levels.astype(np.float32) * scale)
