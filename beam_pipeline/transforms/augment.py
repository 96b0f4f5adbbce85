"""Augmentations: random changes of windows, before features are computed.

Each window has a random key of 64 bits. All random values come from that key by integer
arithmetic (SplitMix64). So they are the same on every machine, with any version of
numpy, and in any block.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
import numpy.typing as npt
import scipy  # loads its packages when they are used

from beam_pipeline.errors import RecipeError
from beam_pipeline.hashing import hash64
from beam_pipeline.transforms.base import (
    FloatArray,
    as_float32,
    check_choice,
    real,
    seconds_to_frames,
)
from beam_pipeline.transforms.selection import mean_square
from beam_pipeline.transforms.signals import rows

Keys = npt.NDArray[np.uint64]
Drawn = Mapping[str, npt.NDArray[Any]]

MAX_DB = 100.0

# Samples that are computed together; intermediate values stay in the cache.
_PIECE = 2**16

# Number of octaves whose sum is pink noise; below the last, the spectrum is flat.
_OCTAVES = 12

# Speeds are whole multiples of 1 / GRID.
GRID = 100
MIN_SPEED, MAX_SPEED = 0.5, 2.0

# A Kaiser window with this beta, over 48 zero crossings of the sinc on each side,
# attenuates by 67 dB from 0.044 above the cutoff on (Kaiser, 1974). The unit is half
# the sample rate.
_CROSSINGS = 48
_BETA = 6.4
_CUTOFF = 1 - 0.044


class Augmentation(Protocol):
    """``augmentation.augment(windows, keys, sample_rate_hz)`` returns changed windows.

    ``windows`` is read-only float32 of shape (n, frames) or (n, channels, frames).
    ``keys`` is uint64 of shape (n,), a random number for each window. The result is
    float32 of the same shape as ``windows``. Each result may depend only on its own
    window and key. Recipes can name frozen dataclasses at the top level of a module.

    A step that moves sounds to other frames has the attribute ``moves_time``, which is
    true: it is refused beside a mask of events.
    """

    def augment(
        self, windows: FloatArray, keys: Keys, sample_rate_hz: int
    ) -> FloatArray: ...


def uniforms(keys: Keys) -> npt.NDArray[np.float64]:
    """Random numbers in [0, 1), one for each key.

    ``u = floor(hash64(0, key) / 2**11) / 2**53``

    Parameters
    ----------
    keys : numpy.ndarray, uint64

    Examples
    --------
    >>> uniforms(np.array([1, 2], np.uint64)).round(3).tolist()
    [0.432, 0.026]
    """
    words = hash64(0, keys.view(np.int64)) >> np.uint64(11)
    return words.astype(np.float64) * 2.0**-53


def draw(keys: Keys, number: int) -> npt.NDArray[np.float64]:
    """Random numbers in [0, 1), one for each key: those with a number of many.

    Number 0 is :func:`uniforms`; ``uniforms(hash64(number, keys))`` are the others.
    """
    return uniforms(hash64(number, keys.view(np.int64)) if number else keys)


def draw_whole(keys: Keys, number: int, count: int) -> npt.NDArray[np.int64]:
    """Random whole numbers from 0 to ``count - 1``, ``floor(draw(...) * count)``."""
    return np.floor(draw(keys, number) * count).astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class RandomGain:
    """Scales each window by a random gain.

    ``y = x * 10**(gain_db / 20)``, with ``gain_db`` uniform from ``low_db`` to
    ``high_db``. The channels of a window share the gain. Silence stays silence; nothing
    is clipped.

    Attributes
    ----------
    low_db, high_db : float
        dB, -100 to 100.

    Raises
    ------
    RecipeError
        If a value is out of its range, or ``high_db`` is below ``low_db``.

    Examples
    --------
    >>> windows, keys = np.ones((2, 3), np.float32), np.array([1, 2], np.uint64)
    >>> RandomGain(low_db=6, high_db=6).augment(windows, keys, 16000).round(3)[0]
    array([1.995, 1.995, 1.995], dtype=float32)
    """

    low_db: float = -6.0
    high_db: float = 6.0

    def __post_init__(self) -> None:
        check_range(self, "low_db", "high_db", -MAX_DB, MAX_DB)

    def augment(
        self, windows: FloatArray, keys: Keys, sample_rate_hz: int
    ) -> FloatArray:
        windows = as_float32(windows)
        gains_db = self.drawn(keys, windows.shape[-1], sample_rate_hz)["gain_db"]
        return windows * per_window(10 ** (gains_db / 20), windows)

    def drawn(self, keys: Keys, frames: int, sample_rate_hz: int) -> Drawn:
        """The gain of each window."""
        return {"gain_db": between(self.low_db, self.high_db, keys)}


@dataclass(frozen=True, kw_only=True)
class RandomPolarity:
    """Inverts each window with a probability of one half.

    ``y = -x`` or ``y = x``. The channels of a window share the sign.

    Examples
    --------
    >>> windows, keys = np.ones((3, 1), np.float32), np.arange(3, dtype=np.uint64)
    >>> RandomPolarity().augment(windows, keys, 16000).ravel().tolist()
    [-1.0, 1.0, 1.0]
    """

    def augment(
        self, windows: FloatArray, keys: Keys, sample_rate_hz: int
    ) -> FloatArray:
        windows = as_float32(windows)
        signs = self.drawn(keys, windows.shape[-1], sample_rate_hz)["sign"]
        return windows * per_window(signs, windows)

    def drawn(self, keys: Keys, frames: int, sample_rate_hz: int) -> Drawn:
        """The factor of each window, 1 or -1."""
        return {"sign": np.where(uniforms(keys) < 0.5, 1, -1)}


@dataclass(frozen=True, kw_only=True)
class TimeShift:
    """Shifts each window by a random time, forward or backward.

    ``y[t] = x[t - shift]``, where ``shift`` is a whole number of frames, uniform from
    ``-max_s`` to ``max_s``. Zeros fill the gap, or with ``wrap`` the frames that leave
    at the other end. The channels of a window share the shift. Silence stays silence.

    Attributes
    ----------
    max_s : float
        Largest shift in seconds; rounded to frames, halves up.
    wrap : bool
        Whether frames that leave at one end enter at the other.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if ``max_s`` is not shorter than the
        window.

    Examples
    --------
    >>> windows, keys = np.float32([[1, 2, 3, 4]]), np.array([5], np.uint64)
    >>> TimeShift(max_s=3).augment(windows, keys, 1)
    array([[2., 3., 4., 0.]], dtype=float32)
    """

    moves_time: ClassVar[bool] = True

    max_s: float = 0.1
    wrap: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "max_s", real("max_s", self.max_s))
        if self.max_s < 0:
            raise RecipeError("max_s", "must not be negative", self.max_s)
        if not isinstance(self.wrap, bool):
            raise RecipeError("wrap", "must be True or False", self.wrap)

    def augment(
        self, windows: FloatArray, keys: Keys, sample_rate_hz: int
    ) -> FloatArray:
        windows = as_float32(windows)
        frames = windows.shape[-1]
        out = np.zeros(windows.shape, np.float32)
        shifts = self.drawn(keys, frames, sample_rate_hz)["shift_frames"]
        for window, shifted, shift in zip(windows, out, shifts.tolist(), strict=True):
            start = shift % frames
            if shift >= 0 or self.wrap:
                shifted[..., start:] = window[..., : frames - start]
            if shift < 0 or self.wrap:
                shifted[..., :start] = window[..., frames - start :]
        return out

    def drawn(self, keys: Keys, frames: int, sample_rate_hz: int) -> Drawn:
        """The shift of each window, in frames."""
        most = seconds_to_frames(self.max_s, sample_rate_hz)
        if most >= frames:
            raise RecipeError(
                "max_s",
                f"must be shorter than the window's {frames} frames at "
                f"{sample_rate_hz} Hz",
                self.max_s,
            )
        return {"shift_frames": draw_whole(keys, 0, 2 * most + 1) - most}


@dataclass(frozen=True, kw_only=True)
class Noise:
    """Adds noise to each window, at a random signal-to-noise ratio.

    ::

        y = x + n * rms(x) / rms(n) * 10**(-snr_db / 20)

    with ``rms`` over all frames and channels of the window, and ``snr_db`` uniform from
    ``low_snr_db`` to ``high_snr_db``. The channels of a window share the ratio and the
    level of the noise; each channel has different noise. Silence stays silence.

    A white sample is the sum of the four 16-bit parts of a word of SplitMix64. Sums of
    integers are exact on every machine; a logarithm and a cosine are not. The density
    is nearly normal (kurtosis 2.7 instead of 3) and ends at 3.46 standard deviations. A
    pink sample is the sum of 12 white samples; the sample of octave ``k = 0 .. 11`` is
    held for ``2**k`` frames (Voss and Clarke). The power density of pink noise is
    proportional to ``1 / f`` within 1 dB, for ``f`` from a 1000th to half of the sample
    rate, and flat below a 10 000th.

    Attributes
    ----------
    low_snr_db, high_snr_db : float
        dB, -100 to 100.
    color : str
        ``white`` or ``pink``.

    Raises
    ------
    RecipeError
        If a value is out of its range, or ``high_snr_db`` is below ``low_snr_db``.

    References
    ----------
    R. F. Voss, J. Clarke, "1/f noise" in music: Music from 1/f noise, Journal of the
    Acoustical Society of America 63, 1978.

    Examples
    --------
    >>> windows, keys = np.ones((1, 1000), np.float32), np.array([1], np.uint64)
    >>> noise = Noise(low_snr_db=20, high_snr_db=20).augment(windows, keys, 16000) - 1
    >>> print(f"{np.sqrt(np.mean(noise**2)):.4f}")
    0.1000
    """

    low_snr_db: float = 10.0
    high_snr_db: float = 40.0
    color: str = "white"

    def __post_init__(self) -> None:
        check_range(self, "low_snr_db", "high_snr_db", -MAX_DB, MAX_DB)
        check_choice("color", self.color, tuple(_COLORS))

    def augment(
        self, windows: FloatArray, keys: Keys, sample_rate_hz: int
    ) -> FloatArray:
        windows = as_float32(windows)
        out = np.empty(windows.shape, np.float32)
        snr_db = self.drawn(keys, windows.shape[-1], sample_rate_hz)["snr_db"]
        ratios = 10 ** (snr_db / -20)
        for window, noisy, key, ratio in zip(windows, out, keys, ratios, strict=True):
            _fill_noise(noisy, int(key), _COLORS[self.color])
            power = mean_square(noisy)
            # Noise of a single sample can be zero.
            gain = ratio * (mean_square(window) / power) ** 0.5 if power else 0.0
            noisy *= np.float32(gain)
            noisy += window
        return out

    def drawn(self, keys: Keys, frames: int, sample_rate_hz: int) -> Drawn:
        """The signal-to-noise ratio of each window."""
        return {"snr_db": between(self.low_snr_db, self.high_snr_db, keys)}


@dataclass(frozen=True, kw_only=True)
class Speed:
    """Plays each window faster or slower, which changes its pitch and its tempo.

    ``y(t) = x(speed * t)``, where ``speed`` is a whole number of hundredths, uniform
    from ``low`` to ``high``. The length stays the same: zeros follow a faster window,
    and a slower window keeps its middle. The channels of a window share the speed.
    Silence stays silence, and a window at speed 1 does not change.

    A sinc with a Kaiser window, 48 zero crossings on each side, interpolates between
    the samples. It is flat within 0.01 dB up to 0.91 of half the sample rate (of
    ``1 / speed`` of that for faster windows). Aliases and images are attenuated by more
    than 60 dB. Beyond its ends, a window counts as zero.

    Attributes
    ----------
    low, high : float
        Ratios, 0.5 to 2, in whole hundredths.

    Raises
    ------
    RecipeError
        If a value is out of its range, or ``high`` is below ``low``.

    References
    ----------
    J. O. Smith, P. Gossett, A flexible sampling-rate conversion method, ICASSP 1984.
    T. Ko, V. Peddinti, D. Povey, S. Khudanpur, Audio augmentation for speech
    recognition, Interspeech 2015.

    Examples
    --------
    >>> windows, keys = np.ones((1, 400), np.float32), np.array([1], np.uint64)
    >>> fast = Speed(low=2, high=2).augment(windows, keys, 16000)
    >>> fast[0, [100, 250]].round(3).tolist()
    [1.0, 0.0]
    """

    moves_time: ClassVar[bool] = True

    low: float = 0.9
    high: float = 1.1

    def __post_init__(self) -> None:
        check_range(self, "low", "high", MIN_SPEED, MAX_SPEED, whole_parts=GRID)

    def augment(
        self, windows: FloatArray, keys: Keys, sample_rate_hz: int
    ) -> FloatArray:
        windows = as_float32(windows)
        out = np.zeros(windows.shape, np.float32)
        steps = draw_hundredths(self.low, self.high, keys)
        for window, played, step in zip(windows, out, steps.tolist(), strict=True):
            if step == GRID:
                played[...] = window
                continue
            for channel, result in rows(window, played):
                _resample(channel, step, result)
        return out

    def drawn(self, keys: Keys, frames: int, sample_rate_hz: int) -> Drawn:
        """The speed of each window."""
        return {"speed": draw_hundredths(self.low, self.high, keys) / GRID}


def check_range(
    augmentation: Any,
    low_name: str,
    high_name: str,
    least: float,
    most: float,
    whole_parts: int | None = None,
) -> None:
    """Checks two attributes of a step, and makes them floats.

    With ``whole_parts``, they must be multiples of ``1 / whole_parts``.
    """
    for name in (low_name, high_name):
        value = real(name, getattr(augmentation, name))
        if not least <= value <= most:
            raise RecipeError(name, f"must be between {least:g} and {most:g}", value)
        parts = value * (whole_parts or 0)
        if abs(parts - round(parts)) > 1e-9:
            raise RecipeError(name, "must be a multiple of 0.01, like 0.95", value)
        object.__setattr__(augmentation, name, value)
    low, high = getattr(augmentation, low_name), getattr(augmentation, high_name)
    if high < low:
        raise RecipeError(high_name, f"must not be below {low_name} ({low:g})", high)


def between(
    low: float, high: float, keys: Keys, number: int = 0
) -> npt.NDArray[np.float64]:
    """Random numbers, uniform from ``low`` to ``high``; see :func:`draw`."""
    return low + (high - low) * draw(keys, number)


def draw_hundredths(low: float, high: float, keys: Keys) -> npt.NDArray[np.int64]:
    """Random whole numbers of hundredths, uniform from ``low`` to ``high``."""
    first, last = round(low * GRID), round(high * GRID)
    return first + draw_whole(keys, 0, last - first + 1)


def per_window(factors: npt.NDArray[Any], windows: FloatArray) -> FloatArray:
    """Factors in the shape that multiplies windows.

    The last bit of a power differs between machines; float32 rounds it away.
    """
    return factors.astype(np.float32).reshape(-1, *[1] * (windows.ndim - 1))


def white_noise(key: int, start: int, stop: int) -> FloatArray:
    """Samples ``start .. stop - 1`` of a key's white noise: integers with mean 0."""
    words = hash64(key, np.arange(start, stop, dtype=np.int64))
    parts = words.astype("<u8", copy=False).view("<u2").reshape(-1, 4)
    # Sums have 18 bits at most, which float32 stores exactly.
    total = parts[:, 0].astype(np.float32)
    for part in parts.T[1:]:
        total += part
    total -= np.float32(2 * 65535)
    return total


def _pink(key: int, start: int, stop: int) -> FloatArray:
    """Samples ``start .. stop - 1`` of a key's pink noise: integers with mean 0.

    From the longest octave down, each value is its octave's sample plus the sum of the
    octaves above, which is held twice as long. Many octaves change at the same time at
    some frames; a random offset keeps these from the start of every window.
    """
    keys = hash64(key, np.arange(_OCTAVES + 1, dtype=np.int64)).tolist()
    offset = keys[_OCTAVES] % 2 ** (_OCTAVES - 1)
    first, last = start + offset, stop - 1 + offset
    top = _OCTAVES - 1
    total = white_noise(keys[top], first >> top, (last >> top) + 1)
    for octave in reversed(range(top)):
        low, high = first >> octave, last >> octave
        held = np.repeat(total, 2)[low & 1 :][: high - low + 1]
        # Sums have 22 bits at most, so float32 is exact here, too.
        total = white_noise(keys[octave], low, high + 1)
        total += held
    return total


_COLORS: dict[str, Callable[[int, int, int], FloatArray]] = {
    "white": white_noise,
    "pink": _pink,
}


def _fill_noise(
    out: FloatArray, key: int, color: Callable[[int, int, int], FloatArray]
) -> None:
    """Fills (frames,) or (channels, frames) with a key's noise; channels differ."""
    frames = out.shape[-1]
    channels = out.reshape(-1, frames)
    keys = hash64(key, np.arange(len(channels), dtype=np.int64)).tolist()
    for channel, own_key in zip(channels, keys, strict=True):
        for start in range(0, frames, _PIECE):
            stop = min(start + _PIECE, frames)
            channel[start:stop] = color(own_key, start, stop)


def _resample(signal: FloatArray, step: int, out: FloatArray) -> None:
    """Fills ``out`` with every ``step / GRID``-th frame of a signal (of its middle).

    What is beyond the end of the signal stays as it is in ``out``.

    Each group of ``GRID`` results uses the same weights, on frames that begin ``step``
    later than those of the group before. So the result is a banded matrix times rows of
    frames that are ``step`` apart. Weights and samples are float32, so their products
    are exact in float64 and rounding is the same with or without fused multiply-add.
    """
    frames = len(signal)
    start = max(0, frames - -(-frames * step // GRID)) // 2
    bank, before = _sinc_bank(step)
    count = min(len(out), 1 + (frames - 1 - start) * GRID // step)
    several = max(1, _PIECE // GRID)
    for block in range(0, count, several * GRID):
        rows = min(several, -(-(count - block) // GRID))
        low = start + block // GRID * step - before
        high = low + (rows - 1) * step + bank.shape[1]
        part = np.zeros(high - low)
        inside = signal[max(low, 0) : max(high, 0)]
        part[max(-low, 0) :][: len(inside)] = inside
        framed = np.lib.stride_tricks.sliding_window_view(part, bank.shape[1])[::step]
        values = bank @ np.ascontiguousarray(framed.T)
        target = out[block : min(block + rows * GRID, count)]
        target[...] = values.T.reshape(-1)[: len(target)]


@functools.lru_cache(maxsize=64)
def _sinc_bank(step: int) -> tuple[Any, int]:
    """Weights of ``GRID`` samples over the frames, and the number of frames before 0.

    Each sample's weights add up to 1, so a constant signal stays constant. The last bit
    of a sine differs between machines; float32 rounds it away.
    """
    # Distances are integers, in hundredths of a frame: the window ends with a step, and
    # rounding must not decide which frames are inside.
    half = _CROSSINGS * max(GRID, step)
    reach = -(-half // GRID)
    positions = np.arange(GRID) * step
    frames = np.arange(-reach, positions[-1] // GRID + reach + 1) * GRID
    away = frames - positions[:, np.newaxis]
    inside = np.abs(away) < half
    taper = np.i0(_BETA * np.sqrt(np.where(inside, 1 - (away / half) ** 2, 0)))
    sinc = np.sinc(away * (_CUTOFF / max(GRID, step)))
    weights = np.where(inside, sinc * taper, 0.0)
    weights /= weights.sum(axis=1, keepdims=True)
    rounded = weights.astype(np.float32).astype(np.float64)
    return scipy.sparse.csr_array(rounded), reach
