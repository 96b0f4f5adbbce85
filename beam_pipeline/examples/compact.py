"""float32 arrays in fewer bytes: as half precision, or as int8 with a scale.

::

    encoding    bytes for n values    value that is read
    float16     2n                    nearest float16
    bfloat16    2n                    nearest bfloat16
    int8        n + 4                 q * scale, with q from -127 to 127

Readers give float32 again. What they give can be encoded again without any change.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import InputError

_LEVELS = 127
_SCALE_BYTES = 4
_LEAST_SCALE = 2.0**-126  # float32 has fewer digits below
# Of a float64: sign, exponent and 15 bits of the mantissa.
_KEPT_BITS = np.uint64(2**64 - 2 ** (52 - 15))


def round_to_half(
    name: str, values: npt.NDArray[Any], dtype: np.dtype[Any]
) -> npt.NDArray[Any]:
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
        rounded: npt.NDArray[Any] = exact.astype(dtype)
    beyond = np.isfinite(exact) & ~np.isfinite(rounded.astype(np.float32))
    if beyond.any():
        raise InputError(
            f"Feature {name} has the value {exact[beyond].flat[0]:g}, which {dtype} "
            "cannot hold. Use another encoding, for example raw."
        )
    return rounded


def pack_int8(name: str, values: npt.NDArray[Any]) -> bytes:
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


def unpack_int8(packed: bytes) -> npt.NDArray[np.float32]:
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
    values: npt.NDArray[np.float32] = levels.astype(np.float32) * scale
    return values
