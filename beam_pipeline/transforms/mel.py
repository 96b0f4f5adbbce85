"""Mel filter banks, and their products with the spectra of many frames."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy  # loads its packages when they are used

from beam_pipeline.errors import RecipeError

FloatArray = npt.NDArray[np.float32]
DoubleArray = npt.NDArray[np.float64]

# Framed samples in a block. Its frames and their spectrum, 1 MiB each, stay in the
# cache. Blocks four times as large are much slower: arrays of that size go
# back to the operating system after each block, and each page must be mapped again.
BLOCK_SAMPLES = 2**18

MAX_MELS = 4096
# The most weights of a bank before it becomes sparse. Each step of building it needs
# 80 MB for this number.
MAX_WEIGHTS = 10**7


def mel_filter_bank(
    sample_rate_hz: int,
    n_fft: int,
    n_mels: int,
    f_min: float,
    f_max: float,
    scale: str = "slaney",
    norm: str = "slaney",
) -> FloatArray:
    """Triangular mel filters over the bins of a real FFT.

    ::

        slaney    mel(f) = 3 f / 200                          below 1000 Hz
                  mel(f) = 15 + 27 log(f / 1000) / log(6.4)   from 1000 Hz
        htk       mel(f) = 2595 log10(1 + f / 700)

    Edges ``e[0 .. n_mels + 1]`` are evenly spaced in mel from ``f_min`` to ``f_max``.
    Filter ``m`` rises linearly in Hz from ``e[m]`` to ``e[m + 1]`` and falls to
    ``e[m + 2]``. Its peak is ``2 / (e[m + 2] - e[m])``, so that all filters have the
    same area; with ``norm="none"`` it is 1.

    Parameters
    ----------
    sample_rate_hz : int
    n_fft, n_mels : int
        Length of the FFT; number of filters.
    f_min, f_max : float
        First and last edge in Hz.
    scale, norm : str
        ``slaney`` or ``htk``; ``slaney`` or ``none``.

    Returns
    -------
    numpy.ndarray, shape (n_mels, n_fft // 2 + 1), float32
        Weights, with Slaney's norm in 1/Hz.

    Raises
    ------
    RecipeError
        If the edges are not in order between 0 and half the rate, the bank has too many
        weights, or a filter is between two bins: its feature would be constant.

    References
    ----------
    M. Slaney, Auditory Toolbox, version 2, Interval Research Corporation, Technical
    Report 1998-010, 1998. S. Young et al., The HTK Book, 2006.

    Examples
    --------
    >>> mel_filter_bank(8000, 8, 2, 0.0, 4000.0).shape
    (2, 5)
    """
    nyquist = sample_rate_hz / 2
    if f_max > nyquist:
        raise RecipeError(
            "f_max",
            f"must not exceed {nyquist:g} Hz, half the sample rate of "
            f"{sample_rate_hz} Hz",
            f_max,
        )
    if not 0 <= f_min < f_max:
        raise RecipeError("f_min", f"must be at least 0 and below {f_max:g} Hz", f_min)
    check_bank_size(n_mels, n_fft)
    bins = np.arange(n_fft // 2 + 1, dtype=np.float64) * (sample_rate_hz / n_fft)
    edges = mel_edges(n_mels, f_min, f_max, scale)
    weights = triangles(bins, edges)
    check_no_band_is_empty(weights, edges, sample_rate_hz, n_fft, "a larger n_fft")
    if norm == "slaney":
        weights *= 2 / (edges[2:] - edges[:-2])[:, np.newaxis]
    return weights.astype(np.float32)


def triangles(bins: DoubleArray, edges: DoubleArray) -> DoubleArray:
    """Filters (n_mels, bins) with a peak of 1, linear in the unit of bins and edges."""
    column = edges[:, np.newaxis]
    low, centre, high = column[:-2], column[1:-1], column[2:]
    rise = (bins - low) / (centre - low)
    fall = (high - bins) / (high - centre)
    weights: DoubleArray = np.maximum(0, np.minimum(rise, fall))
    return weights


def check_bands(n_mels: int) -> None:
    """Limits the number of bands: a typo must not request gigabytes of features."""
    if n_mels > MAX_MELS:
        raise RecipeError("n_mels", f"must be at most {MAX_MELS}", n_mels)


def check_bank_size(n_mels: int, n_fft: int) -> None:
    """Limits the weights of a bank: a typo must not request gigabytes."""
    if n_mels * (n_fft // 2 + 1) > MAX_WEIGHTS:
        raise RecipeError(
            "n_mels",
            f"needs more than {MAX_WEIGHTS} weights in its filter bank with an FFT of "
            f"length {n_fft}; use fewer bands or a shorter FFT",
            n_mels,
        )


def check_no_band_is_empty(
    weights: DoubleArray,
    edges: DoubleArray,
    sample_rate_hz: int,
    n_fft: int,
    remedy: str,
) -> None:
    """Checks that each filter has a bin; the message names ``edges``, in Hz."""
    # The weight of a bin on an edge is 0, apart from rounding.
    empty = np.flatnonzero(weights.max(axis=1) < 1e-9)
    if empty.size:
        band = int(empty[0])
        raise RecipeError(
            "n_mels",
            f"leaves {empty.size} bands without an FFT bin; the first such band is "
            f"from {edges[band]:.1f} to {edges[band + 2]:.1f} Hz; n_fft={n_fft} at "
            f"{sample_rate_hz} Hz gives a bin every {sample_rate_hz / n_fft:.1f} Hz; "
            f"use fewer bands or {remedy}",
            len(weights),
        )


def mel_edges(
    n_mels: int, f_min: float, f_max: float, scale: str = "slaney"
) -> DoubleArray:
    """The edges of the bands in Hz; band m has edges m to m + 2."""
    if scale == "htk":
        low, high = (math.log1p(hz / 700) for hz in (f_min, f_max))
        edges: DoubleArray = 700 * np.expm1(np.linspace(low, high, n_mels + 2))
        return edges
    mels = np.linspace(_mel(f_min), _mel(f_max), n_mels + 2)
    logarithmic = 1000 * np.exp(np.maximum(mels - 15, 0) * (math.log(6.4) / 27))
    return np.where(mels < 15, mels * (200 / 3), logarithmic)


def _mel(hz: float) -> float:
    return 3 * hz / 200 if hz < 1000 else 15 + 27 * math.log(hz / 1000, 6.4)


@functools.lru_cache(maxsize=32)
def sparse_filter_bank(
    sample_rate_hz: int,
    n_fft: int,
    n_mels: int,
    f_min: float,
    f_max: float,
    scale: str = "slaney",
    norm: str = "slaney",
) -> Any:
    return scipy.sparse.csr_array(
        mel_filter_bank(sample_rate_hz, n_fft, n_mels, f_min, f_max, scale, norm)
    )


@functools.lru_cache(maxsize=32)
def exact_hann(n_fft: int) -> DoubleArray:
    hann: DoubleArray = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(n_fft) / n_fft)
    return hann


@functools.lru_cache(maxsize=32)
def hann_window(n_fft: int) -> FloatArray:
    return exact_hann(n_fft).astype(np.float32)


def mel_power(tapered: FloatArray, bank: Any) -> FloatArray:
    """Mel power of frames (f, n_fft), as (n_mels, f).

    The bank is banded: a bin belongs to two bands at most. So a sparse product needs a
    few per cent of the multiplications of a dense one. It is fast if each row contains
    one bin of all frames, and the FFT can write its result in this order at no cost.
    Unlike BLAS, whose kernels depend on the shape, it sums the bins of a frame in the
    same order for any number of frames. The squares of real and imaginary parts are
    added after the product, when there are fewer of them.
    """
    spectrum = scipy.fft.rfft(tapered.T, axis=0)
    squares = spectrum.view(np.float32)
    np.square(squares, out=squares)
    parts = bank @ squares
    power: FloatArray = parts[:, 0::2] + parts[:, 1::2]
    return power


def cache_blocks(
    windows: int, count: int, n_fft: int, samples: int | None = None
) -> Iterator[tuple[slice, slice]]:
    """Slices over windows and their ``count`` frames, for blocks of ``samples``.

    The default is ``BLOCK_SAMPLES``.
    """
    frames = max(1, (samples or BLOCK_SAMPLES) // n_fft)
    several = max(1, frames // count)
    for window in range(0, windows, several):
        for frame in range(0, count, frames):
            yield slice(window, window + several), slice(frame, frame + frames)
