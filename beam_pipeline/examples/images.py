"""PNG and JPEG images: which arrays they hold, encoding, and decoding.

The bytes are those that ``tf.io.decode_png`` and ``tf.io.decode_jpeg`` read; neither
direction needs TensorFlow.
"""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import InputError, RecipeError

IMAGE_KINDS = ("png", "jpeg")

# Pillow's names for pixels of 8 bits -> their channels.
_CHANNELS_OF = {"L": 1, "LA": 2, "RGB": 3, "RGBA": 4}
_MODE_OF_UINT16 = "I;16"
_CHANNELS = {"png": (1, 2, 3, 4), "jpeg": (1, 3)}
_SHAPES = {
    "png": "(h, w), or (h, w, c) with 1 to 4 channels",
    "jpeg": "(h, w), (h, w, 1) or (h, w, 3)",
}
# The format of PNG has 31 bits for a side, libjpeg allows 65500. Pillow warns of more
# than 89 million pixels.
_MOST_SIDE = {"png": 2**31 - 1, "jpeg": 65500}
MOST_PIXELS = 2**26


def image_problem(
    dtype: Any, shape: Sequence[int | None] | None, kind: str
) -> str | None:
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


def encode_image(array: npt.NDArray[Any], kind: str, *, quality: int = 95) -> bytes:
    """Encodes an array as an image; equal arrays give equal bytes.

    The bytes also depend on the version of Pillow and of the codec in it.

    Parameters
    ----------
    array : numpy.ndarray, shape (h, w) or (h, w, channels), uint8 or uint16
        The pixels; :func:`image_problem` lists what an image can hold.
    kind : str
        ``png``, which is lossless, or ``jpeg``.
    quality : int
        Of JPEG, from 1 to 100. JPEG also halves the resolution of colours.

    Raises
    ------
    RecipeError
        If the image cannot hold the array, or the quality is out of its range.

    Examples
    --------
    >>> encode_image(np.zeros((2, 3), np.uint8), "png")[:4]
    b'\\x89PNG'
    """
    array = np.asarray(array)
    problem = image_problem(array.dtype, array.shape, kind)
    if problem is not None:
        raise RecipeError("image", problem, f"{array.dtype} {array.shape}")
    if isinstance(quality, bool) or quality not in range(1, 101):
        raise RecipeError("quality", "must be a whole number from 1 to 100", quality)
    from PIL import Image

    pixels = array[..., 0] if array.shape[2:] == (1,) else array
    native = np.ascontiguousarray(pixels, array.dtype.newbyteorder("="))
    options: dict[str, Any] = {"compress_level": 6}
    if kind == "jpeg":
        options = {"quality": int(quality), "subsampling": "4:2:0"}
    into = io.BytesIO()
    Image.fromarray(native).save(into, kind, **options)
    return into.getvalue()


def decode_image(
    data: bytes, kind: str, dtype: Any, shape: Sequence[int | None] | None
) -> npt.NDArray[Any]:
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
            fits = len(sizes) == len(shape) and all(
                wanted in (None, size)
                for wanted, size in zip(shape, sizes, strict=True)
            )
            # Checked first: a damaged header must not request gigabytes.
            if 0 in sizes or not fits or sizes[0] * sizes[1] > MOST_PIXELS:
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
