"""Encodings: how an example holds the array of a feature.

::

    encoding    holds                             as
    float_list  float32                           a list of the example
    int64_list  integers up to int64, bool        a list of the example
    bytes_list  texts                             a list of the example
    raw         numbers of any dtype              the bytes of the values
    tensor      any dtype                         tf.io.serialize_tensor
    png         uint8, uint16 of one channel      lossless
    jpeg        uint8                             not lossless
    float16     float32                           2n bytes, nearest float16
    bfloat16    float32                           2n bytes, nearest bfloat16
    int8        float32                           n + 4 bytes, q * scale, |q| <= 127
    flac        int16; float32 of whole samples   lossless, half of 16-bit PCM
    opus        int16, float32 of a few rates     not lossless, an eighth
    vorbis      int16, float32                    not lossless, an eighth, and 4 KB
    original    int16, float32 of whole clips     the bytes of the clip's file

A new encoding is a codec in ``CODECS``: recipes, writers and readers take it from
there. ``tf.io.decode_png`` and ``tf.io.decode_jpeg`` read the same images; nothing here
needs TensorFlow. float32 that readers get can be encoded again without any change,
except by JPEG, Opus and Vorbis.
"""

from __future__ import annotations

import io
import math
import struct
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from beam_pipeline.arrays import TEXTS, Array, Booleans, FloatArray, numpy_dtype
from beam_pipeline.errors import ClipError, InputError, RecipeError
from beam_pipeline.storage.protobuf import decode_tensor, encode_tensor
from beam_pipeline.storage.tfrecord import too_long

# None for a size that is not the same in all arrays, or for all of the shape.
Shape = Sequence[int | None] | None

# The names that other modules use.
FLOAT_LIST, INT64_LIST, BYTES_LIST = "float_list", "int64_list", "bytes_list"
RAW, TENSOR, INT8, ORIGINAL = "raw", "tensor", "int8", "original"
PNG, JPEG = "png", "jpeg"


class ExampleList(NamedTuple):
    """One of the lists that a ``Feature`` of an example may be.

    Attributes
    ----------
    field : int
        The number of its field in a ``Feature``.
    dtype : str
        What its values are, if nothing says more.
    schema_type, arrow_type : str
        Its type in a schema of TensorFlow Metadata, and the end of its type in Arrow.
    """

    field: int
    dtype: str
    schema_type: str
    arrow_type: str


LISTS = {
    BYTES_LIST: ExampleList(1, "string", "BYTES", "binary"),
    FLOAT_LIST: ExampleList(2, "float32", "FLOAT", "float"),
    INT64_LIST: ExampleList(3, "int64", "INT", "int64"),
}

# Pillow warns of more than 89 million pixels.
MOST_PIXELS = 2**26


def fits_shape(found: Sequence[int], shape: Sequence[int | None]) -> bool:
    """Whether an array has a shape, of which a size that is None may be any."""
    return len(found) == len(shape) and all(
        wanted in (None, size) for wanted, size in zip(shape, found, strict=True)
    )


@dataclass(frozen=True)
class Codec:
    """An encoding that stores the values of an array one after another.

    Attributes
    ----------
    name : str
    dtypes : tuple of str
        Those of the features that it holds. Empty: all numbers.
    stored_in : str
        Which of the ``LISTS`` of an example it uses. A ``bytes_list`` has one entry for
        the whole array, except that of texts, with one for each.
    stored_dtype : str
        The dtype of the values in a file, if it is another one than the feature's.
    is_array : bool
        Whether a file holds the bytes of the values: little-endian, in C order.
    holds_shape : bool
        Whether what is stored shows the shape of the array.
    is_file : bool
        Whether it is a file, whose length depends on the values.
    needs_rate : bool
        Whether the feature must be a signal of one sample rate.
    library : str
        The library whose version decides the bytes, if others do not need it.
    """

    name: str
    dtypes: tuple[str, ...] = ()
    stored_in: str = BYTES_LIST
    stored_dtype: str = ""
    is_array: bool = False

    holds_shape: ClassVar[bool] = False
    is_file: ClassVar[bool] = False
    needs_rate: ClassVar[bool] = False
    library: ClassVar[str] = ""

    def problem(self, dtype: str, shape: Shape, rate_hz: int | None) -> str | None:
        """Says why examples cannot hold a feature, apart from its values, or None.

        Parameters
        ----------
        rate_hz : int or None
            The sample rate of a signal; None if it is not known.
        """
        if not self.dtypes and dtype in TEXTS:
            return f"must be numbers, not texts, for {self.name}"
        if self.dtypes and dtype not in self.dtypes:
            return f"must be {' or '.join(self.dtypes)} for {self.name}"
        return None

    def encode(self, name: str, array: Array, rate_hz: int | None) -> bytes:
        """Returns an array as the bytes of one entry, unless ``is_array``.

        Equal arrays give equal bytes, with the same libraries.

        Parameters
        ----------
        name : str
            The feature, for errors.

        Raises
        ------
        InputError
            If the encoding cannot hold the values.
        """
        raise NotImplementedError

    def decode(self, data: bytes, dtype: str, shape: Shape) -> Array:
        """Returns the array that :meth:`encode` encoded; flat unless ``holds_shape``.

        Raises
        ------
        ValueError, InputError
            If the bytes hold no such array.
        """
        raise NotImplementedError


@dataclass(frozen=True)
class Tensor(Codec):
    """Any array as a ``TensorProto``, the bytes of ``tf.io.serialize_tensor``."""

    holds_shape: ClassVar[bool] = True

    def problem(self, dtype: str, shape: Shape, rate_hz: int | None) -> str | None:
        """Returns None: it holds any feature."""
        return None

    def encode(self, name: str, array: Array, rate_hz: int | None) -> bytes:
        """Returns the serialised tensor; see :meth:`Codec.encode`."""
        return encode_tensor(array)

    def decode(self, data: bytes, dtype: str, shape: Shape) -> Array:
        """Returns the array; texts are bytes. See :meth:`Codec.decode`."""
        found = decode_tensor(data, dtype)
        if shape is not None and not fits_shape(found.shape, shape):
            raise ValueError(f"it has the shape {found.shape} instead of {shape}")
        return found


# Pillow's names for pixels of 8 bits -> their channels.
_CHANNELS_OF = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4}
_MODE_OF_UINT16 = "I;16"


@dataclass(frozen=True)
class File(Codec):
    """An array as a file."""

    holds_shape: ClassVar[bool] = True
    is_file: ClassVar[bool] = True


@dataclass(frozen=True)
class Image(File):
    """An image, which holds arrays of these shapes::

        png     uint8     (h, w)    (h, w, 1)    (h, w, 2)    (h, w, 3)    (h, w, 4)
                uint16    (h, w)    (h, w, 1)
        jpeg    uint8     (h, w)    (h, w, 1)                 (h, w, 3)

    Two and four channels are grey and RGB with an alpha channel. JPEG has the quality
    95 from 1 to 100, and halves the resolution of colours.

    Attributes
    ----------
    channels : tuple of int
        How many channels it may have.
    shapes : str
        Its shapes, for errors.
    most_side : int
        The most rows and columns.
    options : mapping
        Those of Pillow.
    """

    channels: tuple[int, ...] = ()
    shapes: str = ""
    most_side: int = MOST_PIXELS
    options: Mapping[str, Any] = field(default_factory=dict)

    library: ClassVar[str] = "pillow"

    def problem(self, dtype: str, shape: Shape, rate_hz: int | None) -> str | None:
        """Says why an image cannot hold arrays; None if it can.

        Examples
        --------
        >>> CODECS["png"].problem("uint8", (59, 64), None)
        >>> CODECS["jpeg"].problem("float32", (59, 64), None)
        'must be uint8 for jpeg; for a feature, add |as_image()'
        """
        found, sizes = numpy_dtype(dtype).name, tuple(shape or ())
        if found not in self.dtypes:
            kinds = " or ".join(self.dtypes)
            return f"must be {kinds} for {self.name}; for a feature, add |as_image()"
        channels = sizes[2] if len(sizes) == 3 else 1
        sides = [side for side in sizes[:2] if side is not None]
        if (
            len(sizes) not in (2, 3)
            or channels not in ((1,) if found == "uint16" else (None, *self.channels))
            or not all(1 <= side <= self.most_side for side in sides)
            or math.prod(sides) > MOST_PIXELS
        ):
            return (
                f"must have the shape {self.shapes} for {self.name}, with 1 to "
                f"{self.most_side} rows and columns, and at most {MOST_PIXELS} pixels"
            )
        return None

    def encode(self, name: str, array: Array, rate_hz: int | None) -> bytes:
        """Returns the pixels as a whole file; RecipeError if no image holds them.

        The bytes also depend on the version of Pillow and of the codec in it.

        Examples
        --------
        >>> CODECS["png"].encode("x", np.zeros((2, 3), np.uint8), None)[:4]
        b'\\x89PNG'
        """
        problem = self.problem(array.dtype.name, array.shape, rate_hz)
        if problem is not None:
            raise RecipeError("image", problem, f"{array.dtype} {array.shape}")
        import PIL.Image

        pixels = array[..., 0] if array.shape[2:] == (1,) else array
        native = np.ascontiguousarray(pixels, array.dtype.newbyteorder("="))
        into = io.BytesIO()
        PIL.Image.fromarray(native).save(into, self.name, **self.options)
        return into.getvalue()

    def decode(self, data: bytes, dtype: str, shape: Shape) -> Array:
        """Returns the pixels of a file, of a known type and number of axes.

        ``(h, w)`` and ``(h, w, 1)`` are both grey.

        Raises
        ------
        RecipeError
            If an image cannot hold such an array.
        InputError
            If the data are no such image, are damaged, or have another size or type.
        """
        problem = self.problem(dtype, shape, None)
        if shape is None or problem is not None:
            raise RecipeError("image", problem, f"{dtype} {shape}")
        import PIL.Image

        is_uint16 = np.dtype(dtype) == np.uint16
        modes = {_MODE_OF_UINT16: 1} if is_uint16 else _CHANNELS_OF
        try:
            with PIL.Image.open(io.BytesIO(data), formats=[self.name]) as image:
                sizes: tuple[int, ...] = (image.height, image.width)
                if len(shape) == 3 or modes.get(image.mode) != 1:
                    sizes = (*sizes, modes.get(image.mode, 0))
                fits = fits_shape(sizes, shape) and 0 not in sizes
                # Checked first: a damaged header must not request gigabytes.
                if not fits or sizes[0] * sizes[1] > MOST_PIXELS:
                    raise InputError(
                        f"A {self.name} image of {image.height} rows, {image.width} "
                        f"columns and mode {image.mode} was found, but "
                        f"{np.dtype(dtype)} of shape {tuple(shape)} was expected. "
                        "Check the shape and the type."
                    )
                pixels = np.array(image)
        except _damages(PIL.Image) as error:
            raise InputError(
                f"{len(data)} bytes cannot be decoded as {self.name}: {error}. Check "
                "the kind and that the data are whole."
            ) from error
        return pixels.astype(dtype, copy=False).reshape(sizes)


def _damages(pillow: Any) -> tuple[type[Exception], ...]:
    """What Pillow raises for damaged images."""
    return (
        OSError, SyntaxError, ValueError, EOFError, struct.error, IndexError,
        pillow.DecompressionBombError, pillow.DecompressionBombWarning,
    )  # fmt: skip


@dataclass(frozen=True)
class Signal(File):
    """A file of sound, in Ogg or FLAC, that libsndfile writes and reads.

    It holds float32 and int16 of the shapes (frames,) and (channels, frames).

    Attributes
    ----------
    most_channels : int
        The format takes six or eight channels for those of loudspeakers, of which one
        has low frequencies alone, so no more than these are stored.
    file_format, subtype : str
        Those of libsndfile.
    rates : str
        The sample rates that it has, for errors, if they are few.
    """

    dtypes: tuple[str, ...] = ("float32", "int16")
    most_channels: int = 2
    file_format: str = "OGG"
    subtype: str = ""
    rates: str = ""

    needs_rate: ClassVar[bool] = True

    def problem(self, dtype: str, shape: Shape, rate_hz: int | None) -> str | None:
        """Says why a file cannot hold a feature; see :meth:`Codec.problem`."""
        sizes = tuple(shape or ())
        channels = 1 if len(sizes) == 1 else (sizes or (0,))[0] or 0
        is_signal = dtype in self.dtypes and len(sizes) in (1, 2)
        if not (is_signal and 1 <= channels <= self.most_channels):
            return (
                f"must be a signal for {self.name}: float32 or int16 of shape "
                f"(frames,) or (channels, frames) with 1 to {self.most_channels} "
                "channels"
            )
        if rate_hz is None:
            return (
                f"must have one known sample rate for {self.name}, so only `record` "
                "stores it"
            )
        try:
            self.encode("", np.zeros((channels, 16), np.int16), rate_hz)
        except ValueError:
            return (
                f"must have a sample rate that {self.name} has{self.rates}, not "
                f"{rate_hz} Hz"
            )
        return None

    def encode(self, name: str, array: Array, rate_hz: int | None) -> bytes:
        """Returns a signal as a file. Equal signals give equal bytes on one processor.

        Opus has 2 bits a sample, and at least 24 kbit/s, for each channel; Vorbis has
        the quality 5 of 10.

        Raises
        ------
        InputError
            If float32 samples are not those of 16-bit or 24-bit audio, for FLAC; or not
            finite.
        ValueError
            If the format has no such sample rate.
        """
        assert rate_hz is not None
        frames = np.asarray(array).T
        _refuse(name, self.name, frames, ~np.isfinite(frames))
        # libsndfile: levels from 0 to 1 are 256 to 6 kbit/s for Opus, quality 10 to 0
        # for Vorbis.
        kbits = min(max(24.0, 2 * rate_hz / 1000), 256.0)
        level = (256 - kbits) / 250 if self.subtype == "OPUS" else 0.5
        written = _write(frames, rate_hz, self.file_format, self.subtype, level)
        return _without_serial(written)

    def decode(self, data: bytes, dtype: str, shape: Shape) -> Array:
        """Returns the signal of an example.

        Raises
        ------
        ValueError
            If the bytes are no such file, it breaks off, or its shape is another one.
        """
        import soundfile

        kind, shape = self.file_format, shape or ()
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


@dataclass(frozen=True)
class Flac(Signal):
    """FLAC: int16, and float32 of whole multiples of 2**-15 or of 2**-23 in [-1, 1)."""

    most_channels: int = 8
    file_format: str = "FLAC"

    def encode(self, name: str, array: Array, rate_hz: int | None) -> bytes:
        """Returns a signal as a file; see :meth:`Signal.encode`."""
        assert rate_hz is not None
        frames = np.asarray(array).T
        if frames.dtype == np.int16:
            return _write(frames, rate_hz, "FLAC", "PCM_16")
        exact = frames.astype(np.float64)
        for bits, dtype in _BITS.items():
            scaled = exact * 2 ** (bits - 1)
            within = (scaled >= -(2 ** (bits - 1))) & (scaled < 2 ** (bits - 1))
            if (within & (scaled == np.rint(scaled))).all():
                # libsndfile takes the upper bits of an integer.
                unused = 8 * np.dtype(dtype).itemsize - bits
                whole = scaled.astype(dtype) << unused
                return _write(whole.astype(dtype), rate_hz, "FLAC", f"PCM_{bits}")
        raise InputError(
            f"Feature {name} has samples that are not those of 16-bit or 24-bit audio "
            "(resampled, mixed or changed ones are not), so flac cannot hold them "
            "exactly. Use identity(dtype='int16'), or another encoding, for example "
            "raw."
        )


_BITS = {16: np.int16, 24: np.int32}


def _write(
    frames: Array, rate_hz: int, kind: str, subtype: str, level: float | None = None
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


@dataclass(frozen=True)
class Original(File):
    """The file of a whole clip, which readers decode as ``record`` does.

    Only ``record`` has such files, so it puts them into examples itself.
    """

    def problem(self, dtype: str, shape: Shape, rate_hz: int | None) -> str | None:
        """Says that other features than those of ``record`` have no file."""
        return "must be the signals of clips, whose files only `record` stores"

    def decode(self, data: bytes, dtype: str, shape: Shape) -> Array:
        """Returns the samples of a file; the channels are mixed into one axis.

        Raises
        ------
        ValueError
            If the bytes are no file of sound, or its shape is another one.
        """
        from beam_pipeline.audio.clip_reader import ClipReader, probe_audio

        source, name, shape = io.BytesIO(data), "the file of the example", shape or ()
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


def check_original(name: str, signal: Array, file: bytes) -> None:
    """Raises InputError unless readers decode a file to a signal."""
    try:
        found = CODECS[ORIGINAL].decode(file, signal.dtype.name, signal.shape)
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


def _refuse(name: str, encoding: str, values: Array, refused: Booleans) -> None:
    """Raises InputError if an encoding cannot hold some values of a feature."""
    if refused.any():
        raise InputError(
            f"Feature {name} has the value {values[refused][0]:g}, which {encoding} "
            "cannot hold. Use another encoding, for example raw."
        )


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
    is_lost = np.isfinite(exact) & ~np.isfinite(rounded.astype(np.float32))
    _refuse(name, str(dtype), exact, is_lost)
    return rounded


@dataclass(frozen=True)
class Int8(Codec):
    """A scale of its own for each array, and an int8 for each value.

    ::

        scale = max(|x|) / 127, cut to 16 significant bits, and at least 2**-126
        q     = rint(x / scale)                        from -127 to 127
        |q scale - x| <= scale / 2 <= max(|x|) / 254

    The last bound holds from ``max(|x|) = 127 * 2**-126`` on. Zero stays zero. The
    product ``q scale`` has at most 23 significant bits, so it is exact as float32. The
    bytes are ``scale`` as little-endian float32, then the int8 values in C order.
    """

    def encode(self, name: str, array: Array, rate_hz: int | None) -> bytes:
        """Returns the scale and the values; InputError if one is not finite.

        Examples
        --------
        >>> packed = CODECS["int8"].encode("x", np.array([-127.0, 0.4, 63.5]), None)
        >>> CODECS["int8"].decode(packed, "float32", None).tolist()
        [-127.0, 0.0, 64.0]
        """
        exact = np.asarray(array, np.float64)
        _refuse(name, self.name, exact, ~np.isfinite(exact))
        widest = np.abs(exact).max(initial=0.0) / _LEVELS
        cut = (np.float64(widest).view(np.uint64) & _KEPT_BITS).view(np.float64)
        scale = max(float(cut), _LEAST_SCALE)
        levels = np.rint(exact / scale).astype(np.int8)
        return np.array(scale, "<f4").tobytes() + levels.tobytes()

    def decode(self, data: bytes, dtype: str, shape: Shape) -> FloatArray:
        """Returns the flat array; ValueError if the scale is no positive number."""
        if len(data) < _SCALE_BYTES:
            raise ValueError(f"it has {len(data)} bytes, fewer than the scale of int8")
        scale = np.frombuffer(data, "<f4", 1)[0].astype(np.float32)
        if not 0 < scale < np.inf:
            raise ValueError(f"the scale of its int8 values is {scale}")
        levels = np.frombuffer(data, np.int8, offset=_SCALE_BYTES)
        return np.asarray(levels.astype(np.float32) * scale)


# In the order in which errors list them.
CODECS: Mapping[str, Codec] = {
    codec.name: codec
    for codec in (
        Codec(FLOAT_LIST, ("float32",), FLOAT_LIST, is_array=True),
        Codec(
            INT64_LIST,
            ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"),
            INT64_LIST,
        ),
        Codec(BYTES_LIST, TEXTS),
        Codec(RAW, is_array=True),
        Tensor(TENSOR),
        Image(
            PNG,
            ("uint8", "uint16"),
            channels=(1, 2, 3, 4),
            shapes="(h, w), or (h, w, c) with 1 to 4 channels, of uint16 with 1,",
            options={"compress_level": 6},
        ),
        Image(
            JPEG,
            ("uint8",),
            channels=(1, 3),
            shapes="(h, w), (h, w, 1) or (h, w, 3)",
            most_side=65500,  # of libjpeg
            options={"quality": 95, "subsampling": "4:2:0"},
        ),
        Codec("float16", ("float32",), stored_dtype="float16", is_array=True),
        Codec("bfloat16", ("float32",), stored_dtype="bfloat16", is_array=True),
        Int8(INT8, ("float32",)),
        Flac("flac"),
        Signal("opus", subtype="OPUS", rates=" (8, 12, 16, 24 or 48 kHz)"),
        Signal("vorbis", subtype="VORBIS"),
        Original(ORIGINAL),
    )
}
ENCODINGS = tuple(CODECS)
