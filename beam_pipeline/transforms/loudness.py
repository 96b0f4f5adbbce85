"""Loudness of windows and clips by ITU-R BS.1770, and of frames by a weighting.

Audibility depends on frequency, so power is weighted by frequency before it is summed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import scipy  # loads its packages when they are used

from beam_pipeline.arrays import DoubleArray, FloatArray
from beam_pipeline.errors import RecipeError
from beam_pipeline.parameters import Choice, Number, WholeNumber, parameter
from beam_pipeline.transforms.base import LEVEL_DB, Step, on_windows
from beam_pipeline.transforms.frames import (
    SignalFrames,
    hann_window,
    on_signals,
)
from beam_pipeline.transforms.mel import mel_power
from beam_pipeline.transforms.signals import at_rest, pieces, run

# BS.1770-4, tables 1 and 2, for 48 kHz: b0, b1, b2, a0, a1, a2 of the shelf (the
# acoustic effect of the head) and of the high-pass.
K_SECTIONS = (
    (1.53512485958697, -2.69169618940638, 1.19839281085285,
     1.0, -1.69065929318241, 0.73248077421585),
    (1.0, -2.0, 1.0, 1.0, -1.99004745483398, 0.99007225036621),
)  # fmt: skip
K_RATE_HZ = 48000
MIN_K_RATE_HZ = 4000  # the shelf is at 1.7 kHz
# Below this rate, the bilinear transform bends the shelf by more than 0.07 dB.
LEAST_BILINEAR_HZ = 16000
REFERENCE_HZ = 997.0  # of BS.1770: a sine at 0 dB of full scale is at -3.01 LUFS

# With this offset, K-weighting does not change the level of a 997 Hz tone.
K_OFFSET_DB = -0.691

ABSOLUTE_GATE_LUFS = -70.0
RELATIVE_GATE = 0.1  # 10 LU below the mean
SURROUND = 1.41

# Channels have the order of WAVE files: left, right, centre, ... In 5.1, the fourth
# channel (low-frequency effects) does not count.
CHANNEL_WEIGHTS = {
    5: (1.0, 1.0, 1.0, SURROUND, SURROUND),
    6: (1.0, 1.0, 1.0, 0.0, SURROUND, SURROUND),
}


@functools.lru_cache(maxsize=32)
def k_weighting(sample_rate_hz: int) -> DoubleArray:
    """The two filters of BS.1770, for any rate.

    The inverse bilinear transform gives the analogue filter behind the one for 48 kHz;
    the bilinear transform for this rate then keeps its corner frequency. Below 16 kHz,
    the shelf has the poles of the one for 48 kHz, and its gains at 0 Hz, at 997 Hz and
    at half the rate. The response is that for 48 kHz within 0.07 dB from 8 kHz on, and
    within 0.31 dB from 4 kHz on.

    Returns
    -------
    numpy.ndarray, shape (2, 6), float64
        Second-order sections.

    Raises
    ------
    RecipeError
        If the rate is below 4000 Hz.

    Examples
    --------
    >>> k_weighting(16000)[1].round(3)
    array([ 0.99 , -1.98 ,  0.99 ,  1.   , -1.97 ,  0.971])

    References
    ----------
    M. Vicanek, Matched Second Order Digital Filters, 2016: the shelf below 16 kHz.
    """
    if sample_rate_hz < MIN_K_RATE_HZ:
        raise RecipeError(
            "sample_rate_hz",
            f"must be at least {MIN_K_RATE_HZ} Hz for K-weighting",
            sample_rate_hz,
        )
    shelf, high_pass = map(np.array, K_SECTIONS)
    moved = _at_rate if sample_rate_hz >= LEAST_BILINEAR_HZ else _matched
    return np.array([moved(shelf, sample_rate_hz), _at_rate(high_pass, sample_rate_hz)])


def _at_rate(section: DoubleArray, sample_rate_hz: int) -> DoubleArray:
    """Converts a section for 48 kHz to another rate; ``s = (1 - 1/z) / (1 + 1/z)``."""
    to_s = np.array([[1, 1, 1], [2, 0, -2], [1, -1, 1]])  # rows: s**0, s**1, s**2
    b, a = to_s @ section[:3], to_s @ section[3:]
    corner = math.sqrt(a[0] / a[2])  # tan(pi f / 48 kHz)
    turned = math.atan(corner) * K_RATE_HZ / sample_rate_hz
    powers = (math.tan(turned) / corner) ** np.array([2, 1, 0])
    b, a = (np.linalg.solve(to_s, powers * part) for part in (b, a))
    return np.asarray(np.concatenate([b, a]) / a[0])


def _matched(section: DoubleArray, sample_rate_hz: int) -> DoubleArray:
    """A section for 48 kHz with its poles and some of its gains at another rate."""
    hertz = np.array([0.0, REFERENCE_HZ, sample_rate_hz / 2])
    a = np.poly(np.roots(section[3:]) ** (K_RATE_HZ / sample_rate_hz)).real
    gains = np.abs(_response(section, hertz, K_RATE_HZ))
    low, middle, high = gains * np.abs(
        np.polyval(a[::-1], _delay(hertz, sample_rate_hz))
    )
    share = math.sin(math.pi * REFERENCE_HZ / sample_rate_hz) ** 2
    rest = middle**2 - low**2 * (1 - share) - high**2 * share
    rest /= 4 * share * (1 - share)
    mean = (low + high) / 2
    first = (mean + math.sqrt(mean**2 + rest)) / 2
    b = np.array([first, (low - high) / 2, -rest / (4 * first)])
    return np.concatenate([b, a])


def _delay(hertz: DoubleArray, sample_rate_hz: float) -> Any:
    """A delay of one sample, ``1 / z``."""
    return np.exp(-2j * np.pi * hertz / sample_rate_hz)


def _response(section: DoubleArray, hertz: DoubleArray, sample_rate_hz: float) -> Any:
    delay = _delay(hertz, sample_rate_hz)
    return np.polyval(section[2::-1], delay) / np.polyval(section[:2:-1], delay)


def clip_lufs(blocks: Iterable[FloatArray], sample_rate_hz: int) -> float:
    """The integrated loudness of blocks by ITU-R BS.1770-4, in LUFS.

    The blocks are of frames (channels, m), of any length. A clip shorter than 400 ms
    counts as one block of its own length.
    """
    sections, state = k_weighting(sample_rate_hz), None
    energies = [0.0]  # of stretches of 100 ms; the last one is not full yet
    done = 0
    for frames in blocks:
        channels = len(frames)
        weights = np.array(CHANNEL_WEIGHTS.get(channels, (1.0,) * channels))
        for piece in pieces(frames):
            if state is None:
                state = at_rest(sections, frames)
            filtered, state = run(sections, frames[:, piece], state)
            np.square(filtered, out=filtered)
            filtered *= weights[:, np.newaxis]
            power = filtered.sum(axis=0)
            start = 0
            while start < len(power):
                full = len(energies) * sample_rate_hz // 10
                stop = min(full - done, len(power))
                energies[-1] += float(power[start:stop].sum())
                if done + stop == full:
                    energies.append(0.0)
                start = stop
            done += len(power)
    found = np.array(energies)
    if not np.isfinite(found).all():
        return math.nan
    if len(found) <= 4:
        return gated_loudness(found.sum(keepdims=True) / max(1, done))
    # Blocks of 400 ms, four stretches, begin every 100 ms.
    sums = np.convolve(found[:-1], np.ones(4), "valid")
    return gated_loudness(sums / (0.4 * sample_rate_hz))


def gated_loudness(blocks: DoubleArray) -> float:
    """Gated loudness of blocks' weighted powers; minus infinity if none pass.

    The first gate keeps blocks above -70 LUFS. The second keeps those of them that are
    above a tenth of their mean.
    """
    blocks = blocks[blocks > 10 ** ((ABSOLUTE_GATE_LUFS - K_OFFSET_DB) / 10)]
    if blocks.size == 0:
        return -math.inf
    audible = blocks[blocks > RELATIVE_GATE * blocks.mean()]
    return K_OFFSET_DB + _decibels(float(audible.mean()))


def clip_level(kind: str, blocks: Iterable[FloatArray], sample_rate_hz: int) -> float:
    """The level of a whole clip, which arrives in blocks, with little memory.

    The bounds of the blocks change the result only by rounding (below 1e-9 dB). It is
    minus infinity for silence, NaN if samples are not finite. For ``lufs``, a clip
    without blocks above -70 LUFS counts as silence.

    Parameters
    ----------
    kind : str
        ``peak`` or ``rms``, in dB of full scale; ``lufs``, integrated loudness.
    blocks : iterable of numpy.ndarray, shape (channels, m), float32
        Of any length.
    sample_rate_hz : int

    Raises
    ------
    RecipeError
        If the rate is below 4000 Hz for ``lufs``.

    Examples
    --------
    >>> blocks = np.array([[0.1, -0.5]], np.float32), np.array([[0.2]], np.float32)
    >>> round(clip_level("peak", blocks, 16000), 2)
    -6.02
    """
    if kind == "lufs":
        return clip_lufs(blocks, sample_rate_hz)
    peak, energy, samples = np.float32(0), 0.0, 0
    for frames in blocks:
        # Unlike the built-in max, np.maximum passes NaN through.
        peak = np.maximum(peak, np.abs(frames).max(initial=0))
        for piece in pieces(frames):
            part = frames[..., piece]
            energy += float(np.square(part, dtype=np.float64).sum())
            samples += part.size
    if kind == "peak":
        return 2 * _decibels(float(peak))
    return _decibels(energy / max(1, samples))


def _decibels(power: float) -> float:
    return 10 * math.log10(power) if power != 0 else -math.inf


def integrated_lufs(windows: FloatArray, sample_rate_hz: int) -> DoubleArray:
    """The integrated loudness of each window; see :class:`Lufs`.

    Parameters
    ----------
    windows : numpy.ndarray, shape (n, frames) or (n, channels, frames), float32
    sample_rate_hz : int

    Returns
    -------
    numpy.ndarray, shape (n,), float64
        Minus infinity for windows without blocks above -70 LUFS.

    Raises
    ------
    RecipeError
        If the windows are shorter than 400 ms, or the rate is below 4000 Hz.

    Examples
    --------
    >>> integrated_lufs(np.zeros((1, 8000), np.float32), 16000)
    array([-inf])
    """
    k_weighting(sample_rate_hz)  # checks the rate
    frames = windows.shape[-1]
    if frames < 4 * sample_rate_hz // 10:
        raise RecipeError(
            "feature",
            "needs windows of at least 0.4 s to measure LUFS; at a sample rate of "
            f"{sample_rate_hz} Hz, this number of frames lasts "
            f"{frames / sample_rate_hz:g} s",
            frames,
        )
    lufs = [clip_lufs([np.atleast_2d(each)], sample_rate_hz) for each in windows]
    return np.array(lufs, np.float64)


class Lufs(Step):
    """Integrated loudness of each window, in LUFS.

    ::

        z[i] = sum_c w[c] * mean(K(x[c])**2)      in block i
        y = -0.691 + 10 log10(mean of z[i] over blocks that pass both gates)

    after ITU-R BS.1770-4. ``K`` is its pair of filters, from rest. Blocks of 400 ms
    begin every 100 ms; an incomplete block at the end is not used. The first gate keeps
    blocks above -70 LUFS; the second keeps those of them above a tenth of their mean
    ``z``.

    All channels of a window are measured together: windows (n, frames) and
    (n, channels, frames) give (n,), in float32. The weights ``w`` are those of 5.0 and
    5.1: for five channels, 1.41 for the last two; for six channels, 0 for the fourth
    and 1.41 for the last two; 1 for all others. Silence, and windows without a block
    above the first gate, give -70.

    A sine of 997 Hz at 0 dB of full scale is at -3.01 LUFS within 0.05 LU at any rate
    from 4 kHz on. At 48 kHz, the result agrees with pyloudnorm with the filters
    ``DeMan`` (largest difference found: 1e-11 LU). pyloudnorm's default filters
    approximate those of BS.1770 (largest difference found, for noise at any rate from 4
    kHz on: 0.13 LU). pyloudnorm also counts a last block that lacks less than half of
    100 ms.

    Raises
    ------
    RecipeError
        If the windows are shorter than 400 ms, or the rate is below 4000 Hz.

    References
    ----------
    Recommendation ITU-R BS.1770-4, Algorithms to measure audio programme loudness and
    true-peak audio level, 2015.

    Examples
    --------
    >>> tone = 0.1 * np.sin(2 * np.pi * 997 / 48000 * np.arange(48000))
    >>> Lufs()(tone[np.newaxis].astype(np.float32), 48000).round(1)
    array([-23.], dtype=float32)
    """

    @on_windows
    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> FloatArray:
        lufs = integrated_lufs(windows, sample_rate_hz)
        return np.maximum(lufs, ABSOLUTE_GATE_LUFS).astype(np.float32)


class LufsGain(Step):
    """Scales each window so that its integrated loudness is at a level.

    ``y = x * 10**((level_lufs - lufs(x)) / 20)``, with the loudness of
    :class:`Lufs` over all channels. Silence and windows below the gate at -70 LUFS
    do not change; peaks may exceed full scale.

    Attributes
    ----------
    level_lufs : float
        LUFS, -200 to 200.

    Raises
    ------
    RecipeError
        If the level is out of its range; in a call, if the windows are shorter than
        400 ms, or the rate is below 4000 Hz.

    Examples
    --------
    >>> tone = np.sin(2 * np.pi * 997 / 48000 * np.arange(48000)).astype(np.float32)
    >>> abs(LufsGain()(tone[np.newaxis], 48000)).max().round(2)
    np.float32(0.1)
    """

    gives_samples = True

    level_lufs: float = parameter(-23.0, LEVEL_DB)

    @on_windows
    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> FloatArray:
        lufs = integrated_lufs(windows, sample_rate_hz)
        out = np.empty(windows.shape, np.float32)
        for window, scaled, measured in zip(windows, out, lufs.tolist(), strict=True):
            gain_db = 0.0 if measured == -math.inf else self.level_lufs - measured
            np.multiply(window, np.float32(10 ** (gain_db / 20)), out=scaled)
        return out


def a_weighting(hertz: DoubleArray) -> DoubleArray:
    """Power gain of IEC 61672-1: a rational function of frequency, 1 at 1 kHz.

    Examples
    --------
    >>> (10 * np.log10(a_weighting(np.array([100.0, 1000.0, 10000.0])))).round(1)
    array([-19.1,   0. ,  -2.5])
    """

    def gain(hertz: Any) -> Any:
        f2 = np.square(hertz)
        low, mid_low, mid_high, high = 20.598997, 107.65265, 737.86223, 12194.217
        double = f2**2 / ((f2 + low**2) * (f2 + high**2))
        return double**2 / ((f2 + mid_low**2) * (f2 + mid_high**2))

    return np.asarray(gain(hertz) / gain(1000.0))


def k_weights(hertz: DoubleArray, sample_rate_hz: int) -> DoubleArray:
    """Power gain of the filters and the offset of BS.1770: close to 1 at 1 kHz."""
    power = np.full(hertz.shape, 10 ** (K_OFFSET_DB / 10))
    for section in k_weighting(sample_rate_hz):
        power *= np.abs(_response(section, hertz, sample_rate_hz)) ** 2
    return power


@functools.lru_cache(maxsize=32)
def weighting_bank(weighting: str, frame: int, sample_rate_hz: int) -> Any:
    """A bank of one band: the bins' weights in the mean square of a frame."""
    hertz: Any = np.arange(frame // 2 + 1) * (sample_rate_hz / frame)
    weights = np.full(hertz.shape, 2.0, np.float64)
    # Each bin represents two frequencies, except those at 0 and half the rate.
    weights[0] = 1
    if frame % 2 == 0:
        weights[-1] = 1
    if weighting == "a":
        weights *= a_weighting(hertz)
    elif weighting == "k":
        weights *= k_weights(hertz, sample_rate_hz)
    taper = hann_window(frame).astype(np.float64)
    weights /= frame * np.square(taper).sum()
    return scipy.sparse.csr_array(weights[np.newaxis].astype(np.float32))


class Loudness(SignalFrames):
    """Weighted power frame by frame, in dB.

    ::

        X[t, k] = sum_j hann[j] * x[t * hop + j] * exp(-2i pi j k / frame)
        P[t] = sum_k w(f[k]) * |X[t, k]|**2 / (frame * sum_j hann[j]**2)
        y[t] = max(10 log10(P[t]), floor_db)

    with the sum over all ``frame`` bins, at ``f[k] = k * sample_rate_hz / frame`` and
    mirrored, and with the periodic Hann window. With ``w = 1``, P is the mean square of
    the tapered frame, and a full-scale sine gives -3.01 dB. Frames are entirely within
    the window, as in ``LogMel``. Windows (n, frames) give (n, time_frames), windows
    (n, channels, frames) give (n, channels, time_frames), in float32. Silence gives
    exactly ``floor_db``.

    The result agrees with ``librosa.stft`` weighted by ``librosa.A_weighting``, which
    rounds the offset for 0 dB at 1 kHz to 2 dB (largest difference found: 0.0004 dB).

    Attributes
    ----------
    frame, hop : int
        Length of a frame, at least 2, and step to the next one, in frames of the
        signal.
    weighting : str
        ``a``: IEC 61672-1; ``k``: the filters and the offset of ITU-R BS.1770-4, so
        that levels are in LUFS; ``none``.
    floor_db : float
        The least level, -300 to 300 dB.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if a frame is longer than the
        window, or for ``k`` the rate is below 4000 Hz.

    References
    ----------
    IEC 61672-1, Electroacoustics: sound level meters, 2013. Recommendation ITU-R
    BS.1770-4, 2015.

    Examples
    --------
    >>> tone = np.sin(2 * np.pi * 1000 / 16000 * np.arange(2048)).astype(np.float32)
    >>> Loudness()(tone[np.newaxis], 16000).round(2)
    array([[-3.01, -3.01, -3.01, -3.01, -3.01]], dtype=float32)
    """

    frame: int = parameter(1024, WholeNumber(2))
    weighting: str = parameter("a", Choice(("a", "k", "none")))
    floor_db: float = parameter(-80.0, Number(-300.0, 300.0))

    @on_signals
    def __call__(self, signals: FloatArray, sample_rate_hz: int) -> FloatArray:
        bank = weighting_bank(self.weighting, self.frame, sample_rate_hz)
        hann = hann_window(self.frame)

        def levels(tapered: FloatArray) -> FloatArray:
            power: FloatArray
            if self.weighting == "none":  # by Parseval's theorem, without an FFT
                power = np.einsum("wtj,wtj->wt", tapered, tapered)
                power /= np.square(hann).sum()
            else:
                power = mel_power(tapered, bank)[..., 0]
            with np.errstate(divide="ignore"):
                np.log10(power, out=power)
            power *= np.float32(10)
            # Last, so that silence is exactly the floor.
            np.maximum(power, np.float32(self.floor_db), out=power)
            return power

        frames = self.frames(signals.shape[-1])
        return frames.features(signals, levels, taper=hann)
