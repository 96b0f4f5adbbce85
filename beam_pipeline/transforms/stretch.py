"""Augmentations that change tempo without pitch, and pitch without tempo."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import scipy  # loads its packages when they are used

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.augment import (
    GRID,
    MAX_SPEED,
    MIN_SPEED,
    Drawn,
    Keys,
    between,
    check_range,
    draw_hundredths,
    resample_into,
)
from beam_pipeline.transforms.base import FloatArray, as_float32
from beam_pipeline.transforms.mel import exact_hann
from beam_pipeline.transforms.quiet import quiet
from beam_pipeline.transforms.signals import rows

# The vocoder's frames overlap by three quarters.
_OVERLAP = 4
_MAX_SEMITONES = 12.0
_MIN_FRAME, _MAX_FRAME = 16, 1 << 16


@dataclass(frozen=True, kw_only=True)
class Stretch:
    """Plays each window faster or slower, without changing its pitch.

    The tempo is a whole number of hundredths, uniform from ``low`` to ``high``. The
    length stays the same, as with :class:`Speed`: zeros follow a faster window, and a
    slower window keeps its middle. The channels of a window share the tempo, and each
    is stretched by itself. Silence stays silence, and a window at tempo 1 does not
    change.

    A phase vocoder: with the spectra ``X[k]`` of frames of ``frame`` samples, ``frame /
    4`` apart, centred on their times (zeros surround the window) and weighted by a Hann
    window, frame ``t`` of the result has the spectrum::

        s = tempo * t,  k = floor(s)
        |Y[t]| = (1 - (s - k)) |X[k]| + (s - k) |X[k + 1]|
        phase(Y[t + 1]) = phase(Y[t]) + phase(X[k + 1]) - phase(X[k])

    In the middle frame of the result, the phase is that of ``X[k]``: frames at the ends
    are half empty, so that the phases of their bins do not fit each other. The frames
    are weighted again, added where they overlap, and divided by the sum of the squared
    weights. It suits steady tones; the attack of a drum becomes longer.

    Attributes
    ----------
    low, high : float
        Ratios, 0.5 to 2, in whole hundredths; 2 is twice as fast.
    frame : int
        Length of a frame in samples: a multiple of 4, 16 to 65536. Longer frames
        separate lower tones.

    Raises
    ------
    RecipeError
        If a value is out of its range, or ``high`` is below ``low``.

    References
    ----------
    J. L. Flanagan, R. M. Golden, Phase vocoder, Bell System Technical Journal 45, 1966.
    M. Dolson, The phase vocoder: A tutorial, Computer Music Journal 10, 1986.

    Examples
    --------
    >>> windows, keys = np.ones((1, 4000), np.float32), np.array([1], np.uint64)
    >>> fast = Stretch(low=2, high=2).augment(windows, keys, 16000)
    >>> fast[0, [1000, 3000]].round(3).tolist()
    [1.0, 0.0]
    """

    low: float = 0.9
    high: float = 1.1
    frame: int = 1024

    def __post_init__(self) -> None:
        check_range(self, "low", "high", MIN_SPEED, MAX_SPEED, whole_parts=GRID)
        _check_frame(self.frame)

    @quiet
    def augment(
        self, windows: FloatArray, keys: Keys, sample_rate_hz: int
    ) -> FloatArray:
        windows = as_float32(windows)
        frames = windows.shape[-1]
        out = np.zeros(windows.shape, np.float32)
        steps = draw_hundredths(self.low, self.high, keys).tolist()
        for window, played, step in zip(windows, out, steps, strict=True):
            if step == GRID:
                played[...] = window
                continue
            length = -(-frames * GRID // step)
            count = min(frames, length)
            start = (length - count) // 2
            for channel, result in rows(window, played):
                stretched = stretch(channel, step / GRID, length, self.frame)
                result[:count] = stretched[start : start + count]
        return out

    def drawn(self, keys: Keys, frames: int, sample_rate_hz: int) -> Drawn:
        """The tempo of each window."""
        return {"tempo": draw_hundredths(self.low, self.high, keys) / GRID}


@dataclass(frozen=True, kw_only=True)
class PitchShift:
    """Raises or lowers the pitch of each window, without changing its tempo.

    The interval is uniform from ``low`` to ``high`` semitones. Its ratio of
    frequencies, ``2**(semitones / 12)``, is rounded to a whole number of hundredths: by
    at most 9 cents, and 17 for an octave down. The window is stretched by this ratio,
    as with :class:`Stretch`, and then played faster by it, as with :class:`Speed`. So
    the length stays the same. Formants move with the pitch. The channels of a window
    share the interval, and each is shifted by itself. Silence stays silence, and a
    window whose ratio is 1 does not change.

    Attributes
    ----------
    low, high : float
        Semitones, -12 to 12.
    frame : int
        Length of a frame in samples: a multiple of 4, 16 to 65536.

    Raises
    ------
    RecipeError
        If a value is out of its range, or ``high`` is below ``low``.

    References
    ----------
    See :class:`Stretch`.

    Examples
    --------
    >>> windows, keys = np.ones((1, 4000), np.float32), np.array([1], np.uint64)
    >>> PitchShift(low=12, high=12).augment(windows, keys, 16000)[0, 2000].round(3)
    np.float32(1.0)
    """

    low: float = -2.0
    high: float = 2.0
    frame: int = 1024

    def __post_init__(self) -> None:
        check_range(self, "low", "high", -_MAX_SEMITONES, _MAX_SEMITONES)
        _check_frame(self.frame)

    @quiet
    def augment(
        self, windows: FloatArray, keys: Keys, sample_rate_hz: int
    ) -> FloatArray:
        windows = as_float32(windows)
        frames = windows.shape[-1]
        out = np.zeros(windows.shape, np.float32)
        steps = self._steps(keys).tolist()
        for window, shifted, step in zip(windows, out, steps, strict=True):
            if step == GRID:
                shifted[...] = window
                continue
            length = -(-frames * step // GRID)
            for channel, result in rows(window, shifted):
                stretched = stretch(channel, GRID / step, length, self.frame)
                resample_into(stretched, step, 0, result)
        return out

    def drawn(self, keys: Keys, frames: int, sample_rate_hz: int) -> Drawn:
        """The interval of each window, and the ratio of frequencies."""
        semitones = between(self.low, self.high, keys)
        return {"semitones": semitones, "ratio": self._steps(keys) / GRID}

    def _steps(self, keys: Keys) -> npt.NDArray[np.int64]:
        ratios = 2 ** (between(self.low, self.high, keys) / 12)
        return np.floor(GRID * ratios + 0.5).astype(np.int64)


def stretch(signal: FloatArray, tempo: float, length: int, frame: int) -> FloatArray:
    """A signal at another tempo; ``length`` samples of it. See :class:`Stretch`."""
    hop = frame // _OVERLAP
    hann = exact_hann(frame)
    # Frame k is centred on sample k * hop. Two more frames than reach into the signal.
    count = -(-len(signal) // hop) + 2
    padded = np.zeros(frame + (count - 1) * hop)
    padded[frame // 2 : frame // 2 + len(signal)] = signal
    framed = np.lib.stride_tricks.sliding_window_view(padded, frame)[::hop]
    spectra = scipy.fft.rfft(framed * hann)
    made = _vocoded(spectra, tempo, -(-length // hop) + 1)
    pieces = scipy.fft.irfft(made, frame)
    pieces *= hann
    total = np.zeros(frame + (len(pieces) - 1) * hop)
    for shift in range(_OVERLAP):
        # Frames that do not overlap are added in one go.
        some = pieces[shift::_OVERLAP]
        total[shift * hop :][: some.size] += some.reshape(-1)
    total = total[frame // 2 :][:length]
    total /= _weights(frame, len(pieces))[:length]
    return total.astype(np.float32)


def _vocoded(
    spectra: npt.NDArray[np.complex128], tempo: float, count: int
) -> npt.NDArray[np.complex128]:
    """``count`` spectra at another tempo; see :class:`Stretch`."""
    at = tempo * np.arange(count)
    low = np.minimum(at.astype(np.int64), len(spectra) - 2)
    share = np.minimum(at - low, 1.0)[:, np.newaxis]
    levels = np.abs(spectra)
    # Phases as numbers of modulus 1: no angle is needed, and no sine.
    units = np.divide(spectra, levels, out=np.ones_like(spectra), where=levels > 0)
    turns = units[1:] * units[:-1].conj()
    made = np.empty((count, spectra.shape[1]), np.complex128)
    made[0] = 1
    np.cumprod(turns[low[:-1]], axis=0, out=made[1:])
    middle = count // 2
    made *= units[low[middle]] * made[middle].conj()
    # Rounding has moved the moduli away from 1.
    made *= ((1 - share) * levels[low] + share * levels[low + 1]) / np.abs(made)
    return made


@functools.lru_cache(maxsize=32)
def _weights(frame: int, count: int) -> npt.NDArray[np.float64]:
    """The sum of the squared windows of frames, from the middle of the first on."""
    hop = frame // _OVERLAP
    squares = np.square(exact_hann(frame))
    total = np.zeros(frame + (count - 1) * hop)
    for at in range(count):
        total[at * hop : at * hop + frame] += squares
    return np.maximum(total[frame // 2 :], 1e-3)


def _check_frame(frame: int) -> None:
    is_whole = isinstance(frame, int) and not isinstance(frame, bool)
    if not is_whole or not _MIN_FRAME <= frame <= _MAX_FRAME or frame % _OVERLAP:
        raise RecipeError(
            "frame", f"must be a multiple of 4, {_MIN_FRAME} to {_MAX_FRAME}", frame
        )
