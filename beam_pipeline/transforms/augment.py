"""Augmentations: random changes of windows, before features are computed.

Each window has a random key of 64 bits. All random values come from that key by integer
arithmetic (SplitMix64). So they are the same on every machine, with any version of
numpy, and in any block.

Rooms and backgrounds come from folders that a recipe names. Their files are listed and
decoded elsewhere, see :mod:`beam_pipeline.examples.window_steps`; here they are
arrays. Masks change the features of copies, not their samples.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Sequence
from dataclasses import MISSING
from typing import Any, ClassVar, Protocol

import numpy as np
import scipy  # loads its packages when they are used

from beam_pipeline.arrays import (
    Array,
    Booleans,
    DoubleArray,
    FloatArray,
    Integers,
    Keys,
)
from beam_pipeline.parameters import Choice, Flag, Number, Text, WholeNumber, parameter
from beam_pipeline.permutation import hash64, unit_floats
from beam_pipeline.transforms.base import (
    SHARE,
    Step,
    on_windows,
    quiet,
    seconds_to_frames,
    spectra_of,
)
from beam_pipeline.transforms.frames import frames_of, stretch
from beam_pipeline.transforms.signals import mean_square, rows

CHANGE_DB = Number(-100.0, 100.0)

# Samples that are computed together; intermediate values stay in the cache.
_PIECE = 2**16

# Number of octaves whose sum is pink noise; below the last, the spectrum is flat.
_OCTAVES = 12

# Speeds are whole multiples of 1 / GRID.
GRID = 100
SPEED = Number(0.5, 2.0)

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
    window and key. An augmentation of your own is a frozen dataclass.

    A step that moves sounds to other frames has the attribute ``moves_time``, which is
    true: it is refused beside a mask of events.
    """

    def augment(
        self, windows: FloatArray, keys: Keys, sample_rate_hz: int
    ) -> FloatArray: ...


def draw(keys: Keys, number: int = 0) -> DoubleArray:
    """Random values in [0, 1), one for each key: one of many independent draws.

    Number 0 is ``unit_floats(hash64(0, key))``, see :func:`.permutation.unit_floats`;
    the others are number 0 of the keys ``hash64(number, key)``.

    Parameters
    ----------
    keys : numpy.ndarray, uint64
    number : int

    Examples
    --------
    >>> draw(np.array([1, 2], np.uint64)).round(3).tolist()
    [0.432, 0.026]
    """
    keys = hash64(number, keys.view(np.int64)) if number else keys
    return unit_floats(hash64(0, keys.view(np.int64)))


def draw_whole(keys: Keys, number: int, count: int) -> Integers:
    """Random whole numbers from 0 to ``count - 1``, ``floor(draw(...) * count)``."""
    return np.floor(draw(keys, number) * count).astype(np.int64)


class _EachWindow(Step):
    """An augmentation that changes each window by values that it draws for it."""

    @on_windows
    def augment(
        self, windows: FloatArray, keys: Keys, sample_rate_hz: int
    ) -> FloatArray:
        drawn = self._draw(keys, windows.shape[-1], sample_rate_hz)
        out = np.zeros(windows.shape, np.float32)
        values = (each.tolist() for each in drawn)
        for window, changed, *own in zip(windows, out, *values, strict=True):
            self._change(window, changed, *own)
        return out

    def _draw(self, keys: Keys, frames: int, sample_rate_hz: int) -> tuple[Array, ...]:
        """Arrays with a value for each key, for windows of a length."""
        raise NotImplementedError

    def _change(
        self, window: FloatArray, out: FloatArray, *drawn: Any, **_: Any
    ) -> None:
        """Fills ``out``, which holds zeros, with the changed window."""
        raise NotImplementedError


class _Scaled(_EachWindow):
    """An augmentation that multiplies a window by a drawn factor."""

    def _change(self, window: FloatArray, out: FloatArray, factor: float) -> None:
        # The last bit of a power differs between machines; float32 rounds it away.
        np.multiply(window, np.float32(factor), out=out)


class RandomGain(_Scaled):
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

    low_db: float = parameter(-6.0, CHANGE_DB)
    high_db: float = parameter(6.0, CHANGE_DB, at_least="low_db")

    def _draw(self, keys: Keys, frames: int, sample_rate_hz: int) -> tuple[Array, ...]:
        return (10 ** (between(self.low_db, self.high_db, keys) / 20),)


class RandomPolarity(_Scaled):
    """Inverts each window with a probability of one half.

    ``y = -x`` or ``y = x``. The channels of a window share the sign.

    Examples
    --------
    >>> windows, keys = np.ones((3, 1), np.float32), np.arange(3, dtype=np.uint64)
    >>> RandomPolarity().augment(windows, keys, 16000).ravel().tolist()
    [-1.0, 1.0, 1.0]
    """

    def _draw(self, keys: Keys, frames: int, sample_rate_hz: int) -> tuple[Array, ...]:
        return (np.where(draw(keys) < 0.5, 1, -1),)


class TimeShift(_EachWindow):
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

    max_s: float = parameter(0.1, Number(0.0, unit="seconds"))
    wrap: bool = parameter(False, Flag())

    def _draw(self, keys: Keys, frames: int, sample_rate_hz: int) -> tuple[Array, ...]:
        most = seconds_to_frames(self.max_s, sample_rate_hz)
        if most >= frames:
            raise self.refused(
                "max_s",
                f"must be shorter than the window's {frames} frames at "
                f"{sample_rate_hz} Hz",
            )
        return (draw_whole(keys, 0, 2 * most + 1) - most,)

    def _change(self, window: FloatArray, out: FloatArray, shift: int) -> None:
        frames = window.shape[-1]
        start = shift % frames
        if shift >= 0 or self.wrap:
            out[..., start:] = window[..., : frames - start]
        if shift < 0 or self.wrap:
            out[..., :start] = window[..., frames - start :]


class _AtSnr(_EachWindow):
    """Adds a sound to each window, at a random signal-to-noise ratio."""

    low_snr_db: float = parameter(10.0, CHANGE_DB)
    high_snr_db: float = parameter(40.0, CHANGE_DB, at_least="low_snr_db")

    def _ratios(self, keys: Keys, number: int) -> DoubleArray:
        """Ratios of the level of the sound to that of the window."""
        return 10 ** (between(self.low_snr_db, self.high_snr_db, keys, number) / -20)

    def _add(
        self, sound: FloatArray, ratio: float, window: FloatArray, out: FloatArray
    ) -> None:
        gain = ratio * _gain_to(window, mean_square(sound))
        np.multiply(sound, np.float32(gain), out=out)
        out += window


class Noise(_AtSnr):
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

    color: str = parameter("white", Choice(("white", "pink")))

    def _draw(self, keys: Keys, frames: int, sample_rate_hz: int) -> tuple[Array, ...]:
        return keys, self._ratios(keys, 0)

    def _change(
        self, window: FloatArray, out: FloatArray, key: int, ratio: float
    ) -> None:
        color = _pink if self.color == "pink" else white_noise
        frames = out.shape[-1]
        channels = out.reshape(-1, frames)
        keys = hash64(key, np.arange(len(channels), dtype=np.int64)).tolist()
        for channel, own_key in zip(channels, keys, strict=True):
            for start in range(0, frames, _PIECE):
                stop = min(start + _PIECE, frames)
                channel[start:stop] = color(own_key, start, stop)
        self._add(out, ratio, window, out)


class Speed(_EachWindow):
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

    low: float = parameter(0.9, SPEED)
    high: float = parameter(1.1, SPEED, at_least="low")

    def check(self) -> None:
        super().check()
        for name in ("low", "high"):
            parts = getattr(self, name) * GRID
            if abs(parts - round(parts)) > 1e-9:
                problem = "must be a multiple of 0.01, like 0.95"
                raise self.refused(name, problem)

    def _draw(self, keys: Keys, frames: int, sample_rate_hz: int) -> tuple[Array, ...]:
        first, last = round(self.low * GRID), round(self.high * GRID)
        return (first + draw_whole(keys, 0, last - first + 1),)

    def _change(self, window: FloatArray, out: FloatArray, step: int) -> None:
        if step == GRID:
            out[...] = window
            return
        for channel, result in rows(window, out):
            _resample(channel, step, result)


def between(low: float, high: float, keys: Keys, number: int = 0) -> DoubleArray:
    """Random numbers, uniform from ``low`` to ``high``; see :func:`draw`."""
    return low + (high - low) * draw(keys, number)


def _gain_to(window: FloatArray, power: float) -> float:
    """The gain that a sound of a power needs for the level of a window."""
    # Noise of a single sample can be zero, and so can a stretch of a recording.
    return float((mean_square(window) / power) ** 0.5) if power else 0.0


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
        framed = frames_of(stretch(signal, low, high), bank.shape[1], step)
        values = bank @ framed.T.astype(np.float64, order="C")
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


class _FromFolder(_EachWindow):
    """An augmentation that takes recorded sounds from a folder."""

    folder: str = parameter(MISSING, Text())
    sounds: ClassVar[tuple[FloatArray, ...]] = ()

    def with_sounds(self, sounds: Sequence[FloatArray]) -> Any:
        """The step with its folder's sounds (frames,), in the order of their names."""
        loaded = copy.copy(self)
        object.__setattr__(loaded, "sounds", tuple(sounds))
        return loaded

    def draw_sounds(self, keys: Keys) -> Integers:
        """The number of each window's sound."""
        return draw_whole(keys, 0, len(self.sounds))


class Reverb(_FromFolder):
    """Lets each window sound as in a room: convolves it with an impulse response.

    ::

        r = (x * h)[0 .. frames - 1]
        y = (1 - wet) x + wet * rms(x) / rms(r) * r

    ``h`` is a file of the folder, chosen by the window's key, mixed to mono, at the
    window's sample rate. It counts from its largest sample on, so that the direct sound
    stays where it is. ``rms`` is over all frames and channels of the window, so with
    ``wet=1`` the level stays. What sounds after the end of the window is cut off, and
    nothing sounds before its start. All channels have the same ``h``. Silence stays
    silence.

    Attributes
    ----------
    folder : str
        A folder of audio files, local or in a store; its subfolders count. Each process
        holds all of them in memory, decoded, 1 GiB at most. The name of a file decides
        its place, so renaming files changes what is chosen.
    wet : float
        Share of the room, 0 to 1.
    sha256 : str
        SHA-256 of the names and contents of the files. ``record`` fills it in, and
        refuses a folder that has changed.

    Raises
    ------
    RecipeError
        If a value is out of its range; when data are recorded, if the folder has no
        audio file, a file cannot be decoded or is silent, or the files have changed.

    Examples
    --------
    >>> room = Reverb(folder="rooms").with_sounds([np.float32([0, 1, 1])])
    >>> windows, keys = np.float32([[1, 0, 0, 0]]), np.array([1], np.uint64)
    >>> room.augment(windows, keys, 16000)[:, :2].round(3)
    array([[0.707, 0.707]], dtype=float32)
    """

    wet: float = parameter(1.0, SHARE)
    sha256: str = parameter("", Text(may_be_empty=True))

    def _draw(self, keys: Keys, frames: int, sample_rate_hz: int) -> tuple[Array, ...]:
        return (self.draw_sounds(keys),)

    def _change(self, window: FloatArray, out: FloatArray, number: int) -> None:
        room = _convolve(window, self.sounds[number])
        gain = self.wet * _gain_to(window, float(np.square(room).mean()))
        out[...] = (1 - self.wet) * window.astype(np.float64) + gain * room


class Background(_AtSnr, _FromFolder):
    """Adds a recorded sound to each window, at a random signal-to-noise ratio.

    ::

        y = x + n * rms(x) / rms(n) * 10**(-snr_db / 20)

    with ``rms`` over all frames and channels of the window, and ``snr_db`` uniform from
    ``low_snr_db`` to ``high_snr_db``. ``n`` is as long as the window, from a random
    frame on of a file of the folder, which the window's key chooses; it is mixed to
    mono, at the window's sample rate. A sound that is shorter than the window begins
    at a random frame, and repeats. All channels have the same ``n``. Silence stays
    silence. Where the sound is silent for the whole window, nothing is added.

    Attributes
    ----------
    folder : str
        A folder of audio files, local or in a store; its subfolders count. Each process
        holds all of them in memory, decoded, 1 GiB at most. The name of a file decides
        its place, so renaming files changes what is chosen.
    low_snr_db, high_snr_db : float
        dB, -100 to 100.
    sha256 : str
        SHA-256 of the names and contents of the files. ``record`` fills it in, and
        refuses a folder that has changed.

    Raises
    ------
    RecipeError
        If a value is out of its range, or ``high_snr_db`` is below ``low_snr_db``; when
        data are recorded, as for :class:`Reverb`.

    Examples
    --------
    >>> step = Background(folder="noises", low_snr_db=20, high_snr_db=20)
    >>> noise = step.with_sounds([np.float32([0.5, -0.5])])
    >>> windows, keys = np.ones((1, 4), np.float32), np.array([1], np.uint64)
    >>> noise.augment(windows, keys, 16000).round(3)
    array([[1.1, 0.9, 1.1, 0.9]], dtype=float32)
    """

    low_snr_db: float = parameter(0.0, CHANGE_DB)
    high_snr_db: float = parameter(20.0, CHANGE_DB, at_least="low_snr_db")
    sha256: str = parameter("", Text(may_be_empty=True))

    def _change(
        self, window: FloatArray, out: FloatArray, number: int, first: int, ratio: float
    ) -> None:
        frames = window.shape[-1]
        samples = self.sounds[number][first : first + frames]
        if len(samples) < frames:
            samples = np.resize(np.roll(self.sounds[number], -first), frames)
        self._add(samples, ratio, window, out)

    def _draw(self, keys: Keys, frames: int, sample_rate_hz: int) -> tuple[Array, ...]:
        """The number of each window's sound, its first frame, and a ratio of levels."""
        chosen = self.draw_sounds(keys)
        lengths = np.array([len(sound) for sound in self.sounds])[chosen]
        places = np.where(lengths < frames, lengths, lengths - frames + 1)
        firsts = np.floor(draw(keys, 1) * places).astype(np.int64)
        return chosen, firsts, self._ratios(keys, 2)


def _convolve(window: FloatArray, response: FloatArray) -> DoubleArray:
    """The start of a convolution, as long as the window, from the direct sound on."""
    frames = window.shape[-1]
    direct = int(np.abs(response).argmax())
    tail = response[direct : direct + frames].astype(np.float64)
    tail = tail.reshape(*[1] * (window.ndim - 1), -1)
    whole = scipy.signal.fftconvolve(window.astype(np.float64), tail, axes=-1)
    return np.asarray(whole[..., :frames])


MASKS = WholeNumber(0, 100)
WIDTH = WholeNumber(0)


class SpecAugment(Step):
    """Masks bands and times of the spectra of copies, at random; others stay.

    A step of a feature, after one that gives (time_frames, bins). Examples that are no
    copies are not changed, nor is anything in ``as_tf`` and ``dofns.Transform``, which
    know no copies. Each of ``freq_masks`` masks::

        f = whole number, uniform from 0 to min(max_bins, bins)
        b = whole number, uniform from 0 to bins - f
        y[t, b .. b + f - 1] = fill

    and each of ``time_masks`` masks does the same in time, with at most ``max_frames``
    frames, and at most the share ``max_share`` of all (rounded down). Masks may
    overlap. The channels of a window share the masks. The shape does not change; the
    result is float32.

    Attributes
    ----------
    freq_masks, time_masks : int
        Number of masks, 0 to 100.
    max_bins, max_frames : int
        Largest width of a mask, in bins and in spectrum frames.
    max_share : float
        Largest width of a mask in time, as a share of the spectrum's frames, 0 to 1.
    fill : str
        ``mean``: the mean of all values of the spectrum (of its channel) before it is
        masked. ``least``: the least of them. ``zero``: 0.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if the features lack the axes
        (time_frames, bins).

    References
    ----------
    D. S. Park et al., SpecAugment: A simple data augmentation method for automatic
    speech recognition, Interspeech 2019. This is without its warping of time.

    Examples
    --------
    >>> masks = SpecAugment(freq_masks=1, max_bins=2, time_masks=0, fill="zero")
    >>> features, keys = np.ones((1, 2, 4), np.float32), np.array([3], np.uint64)
    >>> masks.on_copies(features, keys, 16000).tolist()
    [[[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0]]]
    """

    on_features = True

    freq_masks: int = parameter(2, MASKS)
    max_bins: int = parameter(27, WIDTH)
    time_masks: int = parameter(2, MASKS)
    max_frames: int = parameter(100, WIDTH)
    max_share: float = parameter(0.2, SHARE)
    fill: str = parameter("mean", Choice(("mean", "least", "zero")))

    def __call__(self, features: FloatArray) -> FloatArray:
        """The features as they are, checked to be spectra."""
        return spectra_of(features, "spec_augment")

    @quiet()
    def on_copies(
        self, features: FloatArray, keys: Keys, sample_rate_hz: int
    ) -> FloatArray:
        features = self(features)
        frames, bins = features.shape[-2:]
        widest = min(self.max_frames, int(self.max_share * frames))
        in_time = _masked(keys, self.time_masks, frames, widest, 0)
        in_bins = _masked(keys, self.freq_masks, bins, min(self.max_bins, bins), 1)
        masked = in_time[:, :, np.newaxis] | in_bins[:, np.newaxis, :]
        masked = masked.reshape(len(features), *[1] * (features.ndim - 3), frames, bins)
        return np.where(masked, self._fill(features), features)

    def _fill(self, features: FloatArray) -> Any:
        if self.fill == "zero" or not features.size:
            return np.float32(0)
        axes = (-2, -1)
        if self.fill == "least":
            return features.min(axis=axes, keepdims=True)
        features = np.ascontiguousarray(features)
        mean = features.mean(axis=axes, keepdims=True, dtype=np.float64)
        return mean.astype(np.float32)


def _masked(keys: Keys, masks: int, size: int, most: int, axis: int) -> Booleans:
    """Which of ``size`` places along an axis are masked, for each key: (n, size)."""
    at = np.arange(size)
    masked = np.zeros((len(keys), size), np.bool_)
    for mask in range(masks):
        # Other masks stay as they are if there are more of them.
        number = 4 * mask + 2 * axis
        widths = draw_whole(keys, number, most + 1)
        starts = np.floor(draw(keys, number + 1) * (size - widths + 1)).astype(np.int64)
        starts, stops = starts[:, np.newaxis], (starts + widths)[:, np.newaxis]
        masked |= (at >= starts) & (at < stops)
    return masked
