"""Exact sums of floats; the result does not depend on the order of addition."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.exact_numbers import LEAST_EXPONENT
from beam_pipeline.storage.gzip_members import compress_member

Array = npt.NDArray[Any]

# The columns of a reduction, because narrow arrays are much slower to reduce; and its
# values, whose float64 copy stays in the cache.
_WIDE = 1024
PIECE = 1 << 16

# In float64, a variance of this share of the mean square keeps about 25 bits. For up to
# _EXACT_ROWS float32 values, the sums of values and squares are exact.
_LEAST_SPREAD = 2.0**-20
_EXACT_ROWS = 32

# The number of significant bits of a float64.
_DIGITS = 53
_CHUNK_BITS = 32
_CHUNKS = 2 + (1024 - LEAST_EXPONENT + _DIGITS) // _CHUNK_BITS
_WAITING = 64
_LOW = (1 << _CHUNK_BITS) - 1

# For zlib: either form; data sets of earlier versions hold zlib's.
_GZIP_OR_ZLIB = zlib.MAX_WBITS | 32


class ExactSums:
    """Sums of float64 without rounding, one for each column.

    A float64 is an integer times a power of two. The integer is added to the 32-bit
    chunks of a number that is wide enough for every float64. Each chunk has room for
    the carries of 2**30 additions: the small superaccumulator of R. M. Neal, Fast Exact
    Summation Using Small and Large Superaccumulators, 2015.
    """

    def __init__(self, columns: int):
        self._chunks = np.zeros(columns * _CHUNKS, np.int64)
        self._first = np.tile(np.arange(columns) * _CHUNKS, _WAITING)
        # Adding _WAITING rows together costs hardly more than adding one.
        self._waiting = np.zeros((_WAITING, columns))
        self._filled = 0
        # The totals of other sums, in units of 2**LEAST_EXPONENT.
        self._merged = [0] * columns

    def add(self, values: npt.NDArray[np.float64]) -> None:
        """Adds one finite number to each column."""
        self._waiting[self._filled] = values
        self._filled += 1
        if self._filled == _WAITING:
            self._flush()

    def _flush(self) -> None:
        mantissa, exponent = np.frexp(self._waiting[: self._filled].reshape(-1))
        whole = np.ldexp(mantissa, _DIGITS).astype(np.int64)
        shift = exponent.astype(np.int64) - _DIGITS - LEAST_EXPONENT
        # The bits shifted out of subnormal numbers are zeros.
        whole >>= np.maximum(-shift, 0)
        chunk, shift = np.divmod(np.maximum(shift, 0), _CHUNK_BITS)
        low = (whole & _LOW) << shift
        high = (whole >> _CHUNK_BITS) << shift
        at = self._first[: len(whole)] + chunk
        np.add.at(self._chunks, at, low & _LOW)
        np.add.at(self._chunks, at + 1, (low >> _CHUNK_BITS & _LOW) + (high & _LOW))
        np.add.at(self._chunks, at + 2, high >> _CHUNK_BITS)
        self._filled = 0

    def totals(self) -> list[int]:
        """Returns the sums, in units of the least float64, ``2**-1074``."""
        self._flush()
        chunks = self._chunks.reshape(-1, _CHUNKS)
        totals = list(self._merged)
        for k in np.flatnonzero(chunks.any(axis=0)).tolist():
            for row, part in enumerate(chunks[:, k].tolist()):
                totals[row] += part << (_CHUNK_BITS * k)
        return totals

    def merge(self, totals: Iterable[int]) -> None:
        """Adds the totals of other sums."""
        self._merged = [a + b for a, b in zip(self._merged, totals, strict=True)]


def _side_by_side(rows: Array) -> tuple[Array, Array]:
    """Returns fewer, wider rows, each of several rows, and the rows that remain."""
    count, columns = rows.shape
    several = max(1, min(_WIDE // columns, math.isqrt(count)))
    whole = count // several * several
    return rows[:whole].reshape(-1, several * columns), rows[whole:]


def column_sums(rows: Array) -> npt.NDArray[np.float64]:
    """Returns the sums of the columns, then the sums of their squares."""
    columns = rows.shape[1]
    wide, rest = _side_by_side(rows)
    step = -(-PIECE // wide.shape[1])
    sums = np.zeros((2, wide.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):
        for at in range(0, len(wide), step):
            exact = wide[at : at + step].astype(np.float64)
            sums[0] += exact.sum(axis=0)
            sums[1] += np.square(exact, out=exact).sum(axis=0)
        total: npt.NDArray[np.float64] = sums.reshape(2, -1, columns).sum(axis=1)
        if len(rest):
            exact = rest.astype(np.float64)
            total += exact.sum(axis=0), np.square(exact, out=exact).sum(axis=0)
    return total.reshape(-1)


def column_ranges(rows: Array) -> tuple[Array, Array]:
    """Returns the minima and the maxima of the columns."""
    columns = rows.shape[1]
    wide, rest = _side_by_side(rows)
    least, most = wide.min(axis=0), wide.max(axis=0)
    least, most = least.reshape(-1, columns), most.reshape(-1, columns)
    if len(rest):
        least, most = np.concatenate([least, rest]), np.concatenate([most, rest])
    return least.min(axis=0), most.max(axis=0)


def lose_digits(rows: Array, sums: Array, squares: Array, counts: Array) -> Array:
    """Returns which columns' sums lose too many digits of the variance.

    A column loses them if ``n sum x**2 - (sum x)**2`` is a small share of its first
    term. ``counts`` is ``n``.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        whole = counts * squares
        lost: Array = whole - sums**2 < _LEAST_SPREAD * whole
    return lost & (counts > _EXACT_ROWS) if rows.dtype == np.float32 else lost


def packed(values: Array) -> str:
    """Returns the bytes of an array as compressed text, which depends only on them."""
    return base64.b64encode(compress_member(values.tobytes())).decode()


def unpacked(text: str, dtype: str, most: int) -> Array:
    """Returns the array that :func:`packed` compressed.

    Parameters
    ----------
    most : int
        How many values it has at most; memory holds no more of them.

    Raises
    ------
    ValueError
        If the text is damaged, or has more values.
    """
    stream = zlib.decompressobj(_GZIP_OR_ZLIB)
    try:
        content = stream.decompress(
            base64.b64decode(text, validate=True), most * np.dtype(dtype).itemsize + 1
        )
    except zlib.error as error:
        raise ValueError(f"its numbers cannot be read: {error}") from error
    if not stream.eof:
        raise ValueError("its numbers end early, or are too many")
    return np.frombuffer(content, dtype)
