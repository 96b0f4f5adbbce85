"""Sketches, by which audio is found again, and hashes of windows.

A *sketch* says how the spectrum of the first two seconds of a clip changes::

    samples -> a rate of 7 to 14 kHz -> energies of 17 bands (mel, 200 to 3000 Hz) of
               frames of 64 ms, every 24 ms
            -> differences of their logarithms, over bands and over time
            -> the signs of these 16 differences are one *word*

Most bits stay if a recording is encoded again, resampled, made louder, or if a little
noise is added. If its start is cut off, the words move. Words of frames that are silent
or do not change are zero, and nothing is compared with them.

References
----------
Haitsma, Kalker: A highly robust audio fingerprinting system, ISMIR 2002.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np
import scipy  # loads its packages when they are used
from isal import isal_zlib

from beam_pipeline.arrays import FloatArray, Integers

SKETCH_SECONDS = 2.0
WORD = np.dtype(">u2")
LEAST_WORDS = 5  # fewer are alike by chance

_BANDS = 17
_LOW_HZ, _HIGH_HZ = 200.0, 3000.0
_FRAME_SECONDS, _HOP_SECONDS = 0.064, 0.024
_LEAST_RATE_HZ = 7000  # twice the highest frequency, and a little more
_FILTER_FRAMES = 8  # of the lower rate: the length of the filter before it
# Of the loudest frame: frames with less are silent.
_SILENT = 10**-3.5
_LEAST_POWER = 1e-9  # -90 dB of full scale: only rounding errors
_FLOOR = 1e-9  # of the loudest frame: it is added to each band
MOST_DIFFERENT = 0.3  # of the bits of two sketches; of two sounds, half differ
_LEAST_CHANGE = 0.2  # of a band against its neighbour, as a natural logarithm


def sketch_audio(frames: FloatArray, sample_rate_hz: int) -> bytes:
    """Returns the sketch of the first frames of a clip.

    Parameters
    ----------
    frames : numpy.ndarray, shape (n,) or (channels, n), float32
        Those of at most ``SKETCH_SECONDS``; of channels, the mean.

    Returns
    -------
    bytes
        A word of ``WORD`` every 24 ms, up to the last one that is not zero; empty if
        fewer than five are not zero, or if samples are not finite.
    """
    step = max(1, sample_rate_hz // _LEAST_RATE_HZ)
    rate_hz = sample_rate_hz / step
    size, hop = round(_FRAME_SECONDS * rate_hz), max(1, round(_HOP_SECONDS * rate_hz))
    with np.errstate(all="ignore"):
        mono = frames if frames.ndim == 1 else frames.mean(axis=0)
        samples = mono if step == 1 else _decimated(mono, step)
        if size < 2:
            return b""
        # The first and the last frame have half of their samples in the clip.
        half = size // 2
        padded = np.zeros(len(samples) + 2 * half, np.float32)
        padded[half : half + len(samples)] = samples
        window, bank = _analysis(size, rate_hz)
        # Rows of a view; this is several times as fast as sliding_window_view.
        if len(padded) < size:
            return b""
        count = (len(padded) - size) // hop + 1
        cut = np.ndarray((count, size), np.float32, padded, strides=(4 * hop, 4))
        spectrum = scipy.fft.rfft(cut * window)  # numpy takes 7 times as long
        energies = (spectrum.real**2 + spectrum.imag**2) @ bank
        power = energies.sum(axis=1)
        most = float(power.max())
        if not _LEAST_POWER < most < np.inf:
            return b""
        levels = np.log(energies + np.float32(_FLOOR * most))
        shape = levels[:, 1:] - levels[:, :-1]
        changes = shape[1:] - shape[:-1]
        quiet = np.maximum(power[1:], power[:-1]) < _SILENT * most
        quiet |= np.abs(changes).max(axis=1, initial=0) < _LEAST_CHANGE
    bits = np.packbits(changes > 0, axis=1)
    bits[quiet] = 0
    loud = np.flatnonzero(bits.any(axis=1))
    return bits[: loud[-1] + 1].tobytes() if len(loud) >= LEAST_WORDS else b""


def is_alike(one: bytes, other: bytes) -> bool:
    """Whether two sketches of the start of one clip say that it is the same sound.

    True if they have too few words in common to say.
    """
    ours, theirs = (np.frombuffer(sketch, WORD) for sketch in (one, other))
    n = min(len(ours), len(theirs))
    both = (ours[:n] != 0) & (theirs[:n] != 0)
    differing = np.unpackbits((ours[:n] ^ theirs[:n])[both].view(np.uint8))
    return both.sum() < LEAST_WORDS or float(differing.mean()) <= MOST_DIFFERENT


def _decimated(samples: FloatArray, step: int) -> FloatArray:
    """Returns every ``step``-th sample after a low-pass filter, without its ends.

    Eight samples that come out are sums over 16 times ``step`` samples that go in: over
    two rows of a matrix. This product of matrices is several times as fast as a filter
    that goes from sample to sample.
    """
    taken = _FILTER_FRAMES * step
    rows = samples[: len(samples) // taken * taken].reshape(-1, taken)
    sums = rows @ _low_pass(step)
    both: FloatArray = sums[:-1, :_FILTER_FRAMES] + sums[1:, _FILTER_FRAMES:]
    return both.ravel()


@cache
def _low_pass(step: int) -> FloatArray:
    """Returns a windowed sinc filter, once for each sample that comes out.

    The shape is (8 * step, 16): what the first row, and then what the second row of
    samples adds to each.
    """
    taken = _FILTER_FRAMES * step
    times = (np.arange(taken) + 0.5) / step - _FILTER_FRAMES / 2
    taps = np.sinc(0.95 * times) * np.cos(np.pi * times / _FILTER_FRAMES) ** 2
    columns = np.zeros((2 * taken, _FILTER_FRAMES), np.float32)
    for k in range(_FILTER_FRAMES):
        columns[k * step : k * step + taken, k] = taps / taps.sum()
    return np.hstack([columns[:taken], columns[taken:]])


@cache
def _analysis(size: int, rate_hz: float) -> tuple[FloatArray, FloatArray]:
    """Returns the window of a frame, and triangles evenly spaced in mel.

    The triangles have the shape (bins, bands); a sine of full scale has a power of 0.5.
    """
    window = np.hanning(size + 1)[:-1]
    low, high = (2595 * np.log10(1 + hz / 700) for hz in (_LOW_HZ, _HIGH_HZ))
    edges = 700 * (10 ** (np.linspace(low, high, _BANDS + 2) / 2595) - 1)
    hz = np.arange(size // 2 + 1) * rate_hz / size
    left, top, right = edges[:-2], edges[1:-1], edges[2:]
    rising = (hz[:, None] - left) / (top - left)
    falling = (right - hz[:, None]) / (right - top)
    bank = np.maximum(0, np.minimum(rising, falling)) * 2 / (window @ window * size)
    return window.astype(np.float32), bank.astype(np.float32)


def hash_windows(windows: Sequence[FloatArray], starts: Integers) -> int:
    """Returns a hash of 64 bits of some windows of a clip; the sum over windows.

    So the hash of a clip does not depend on which of its windows come together. It is
    that of the samples as float32, and of the windows' starts in the clip.

    Parameters
    ----------
    windows : sequence of n numpy.ndarray, shape (..., frames), float32
    starts : numpy.ndarray, shape (n,), int64
    """
    total = 0
    for window, start in zip(windows, starts.tolist(), strict=True):
        middle = (window.shape[-1] + 1) // 2
        for shift, half in ((0, window[..., :middle]), (32, window[..., middle:])):
            samples = np.ascontiguousarray(half, "<f4")
            total += isal_zlib.crc32(samples, start % 0xFFFFFFFB) << shift
    return total & 0xFFFFFFFFFFFFFFFF
