"""The constant-Q transform: bins at even steps of pitch, and pitch classes from it.

The filters of an octave are half as long on a signal of half the rate. So the signal is
halved as it goes down the octaves, each octave is a small matrix product at the lowest
rate that holds it, and the deepest octave costs no more than the others.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import Array, FloatArray, check_choice, real, whole
from beam_pipeline.transforms.framewise import frames_of, level_floor, signals_of
from beam_pipeline.transforms.mel import cache_blocks
from beam_pipeline.transforms.quiet import quiet

ComplexArray = npt.NDArray[np.complex64]

# Samples whose octaves are computed at a time. What is made of them is 1 MiB at most
# and stays in the cache; more are slower, see ``mel.BLOCK_SAMPLES``.
SEGMENT_SAMPLES = 2**18

# Multiplications, and time frames, of a matrix product at most. OpenBLAS does not share
# so few among threads, and takes no longer for them than for more.
MOST_PRODUCTS = 2**18
MOST_FRAMES = 32

# Complex weights of all filters, 64 MiB; those of 32 Hz at 44.1 kHz, an odd hop and 36
# bins an octave are half as many.
MAX_WEIGHTS = 2**23
MAX_BINS = 4096
MAX_OCTAVES = 20

# A filter may lie on a signal of a lower rate if it is this many times its length's
# reciprocal, in Hz, below the end of the pass band. The Hann window's spectrum, which
# falls by the third power, is 1 / (pi 20**3) = 4e-5 of its peak there; what is lost
# beyond alternates in sign, and comes to a tenth of that.
SIDE_LOBES = 20.0
# The end of the pass band, as a share of the lower rate. It is a quarter, as the filter
# rejects from three quarters on: what would alias onto it.
PASS_BAND = 0.25
# Taps on each side of the middle one that are not zero, and the attenuation in dB that
# they allow: 10**(-138 / 20) = 1.3e-7 is float32's own rounding.
HALF_TAPS = 9
ATTENUATION_DB = 138.0


@dataclass(frozen=True, kw_only=True)
class Cqt:
    """Constant-Q transform: a bank of filters whose lengths are a number of cycles.

    ::

        f[k] = f_min * 2**(k / bins_per_octave)
        Q    = filter_scale / (2**(1 / bins_per_octave) - 1)
        L[k] = Q * sample_rate_hz / f[k]
        w[k, j] = cos(pi j / L[k])**2    for |j| < L[k] / 2, else 0    (Hann)
        C[t, k] = 2 sum_j w[k, j] x[t * hop + j] exp(-2i pi f[k] j / sample_rate_hz)
                  / sum_j w[k, j]

    A tone ``a cos(2 pi f[k] n / sample_rate_hz + p)`` gives ``C = a exp(i p[t])``, the
    phase being the tone's at the middle of frame t: a full-scale tone in the middle of
    a bin has the magnitude 1, which is 0 dB. Time frames are centred on the first
    sample and on every ``hop``-th from there, ``t = 0 .. frames // hop``. Around the
    window are zeros, so that filters may be longer than it; one that reaches over an
    end finds the less the less it sees. Windows (n, frames) give
    (n, time_frames, n_bins), windows (n, channels, frames) give
    (n, channels, time_frames, n_bins). Silence gives zeros, or the floor in dB. NaN and
    infinity make NaN, or infinity, of what the longest filter of an octave reaches.

    No value is further from the formula than 1e-5 of the window's peak. A hop that is
    a multiple of a high power of 2 is fastest: the signal is halved for low octaves as
    long as frames stay on whole samples.

    Attributes
    ----------
    f_min : float
        The lowest bin in Hz; C1 of equal temperament.
    bins_per_octave, n_bins : int
    hop : int
        From a time frame to the next, in frames of the signal.
    filter_scale : float
        Factor of the filters' lengths, 0.01 to 100: below 1 for finer times, above 1
        for finer pitch.
    kind : str
        ``magnitude`` is ``|C|`` in float32, ``power`` ``|C|**2``, ``db``
        ``10 log10(max(|C|**2, floor))``, ``complex`` ``C`` in complex64.
    floor : float
        The least power for ``db``.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if the highest band reaches over half
        the rate, or the filters have too many weights.

    Notes
    -----
    ``librosa.cqt`` rounds lengths to whole samples, drops 1 % of its filters' spectra,
    has ``Q = filter_scale / tanh(log(2) / bins_per_octave)``, 3 % longer for 12, and
    its values are greater by ``sqrt(L[k]) / 2``. But for this factor, magnitudes of
    noise correlate by 0.9995 with its own, and differ by 4 % of the largest at most;
    with its ``filter_scale`` set to give the same lengths, by 0.9998 and 2.4 %.

    References
    ----------
    J. C. Brown, Calculation of a constant Q spectral transform, Journal of the
    Acoustical Society of America 89, 1991.

    C. Schoerkhuber and A. Klapuri, Constant-Q transform toolbox for music processing,
    7th Sound and Music Computing Conference, 2010: octave by octave.

    Examples
    --------
    >>> Cqt()(np.zeros((2, 16000), np.float32), 16000).shape
    (2, 32, 84)
    """

    f_min: float = 32.703
    bins_per_octave: int = 12
    n_bins: int = 84
    hop: int = 512
    filter_scale: float = 1.0
    kind: str = "magnitude"
    floor: float = 1e-10

    def __post_init__(self) -> None:
        for name in ("bins_per_octave", "n_bins", "hop"):
            object.__setattr__(self, name, whole(name, getattr(self, name)))
        for name in ("f_min", "filter_scale"):
            object.__setattr__(self, name, real(name, getattr(self, name)))
        object.__setattr__(self, "floor", level_floor(self.floor))
        if self.f_min <= 0:
            raise RecipeError("f_min", "must be positive", self.f_min)
        if not 0.01 <= self.filter_scale <= 100:
            raise RecipeError(
                "filter_scale", "must lie between 0.01 and 100", self.filter_scale
            )
        if self.n_bins > MAX_BINS:
            raise RecipeError("n_bins", f"must not exceed {MAX_BINS}", self.n_bins)
        check_choice("kind", self.kind, ("magnitude", "power", "db", "complex"))

    @quiet
    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> Array:
        signals = signals_of(windows)
        count = _time_frames(signals.shape[-1], self.hop)
        dtype = np.complex64 if self.kind == "complex" else np.float32
        out = np.empty((len(signals), count, self.n_bins), dtype)
        bank = self.bank(sample_rate_hz)
        for place, octave, response in responses(signals, self.hop, bank):
            self._measure(response, out[place][..., octave.bins])
        return out.reshape(*windows.shape[:-1], count, self.n_bins)

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """What the last two axes mean, as JSON values.

        The time of a frame is that of its middle, in seconds from the start of the
        window. The frequency of a bin is that of its middle.

        Parameters
        ----------
        sample_rate_hz : int
        frames : int
            Length of the window.

        Examples
        --------
        >>> Cqt(f_min=440, n_bins=24).axes(48000, 48000)[1]["values"][12]
        880.0
        """
        self.bank(sample_rate_hz)
        bins = bin_frequencies(self.f_min, self.bins_per_octave, self.n_bins)
        return [
            _time_axis(sample_rate_hz, frames, self.hop),
            {
                "name": "frequency",
                "unit": "Hz",
                "size": self.n_bins,
                "values": bins.tolist(),
            },
        ]

    def bank(self, sample_rate_hz: int) -> tuple[Octave, ...]:
        """The filters, from the highest octave down."""
        return filter_bank(
            self.f_min,
            self.bins_per_octave,
            self.n_bins,
            self.filter_scale,
            sample_rate_hz,
            self.hop,
        )

    def _measure(self, response: ComplexArray, out: Array) -> None:
        if self.kind == "complex":
            out[...] = response
            return
        # Unlike the root of a sum of squares this does not overflow on the way.
        np.abs(response, out=out)
        if self.kind == "power":
            np.square(out, out=out)
        elif self.kind == "db":
            with np.errstate(divide="ignore"):
                np.log10(out, out=out)
            out *= np.float32(20)
            np.maximum(out, np.float32(10 * math.log10(self.floor)), out=out)


@dataclass(frozen=True, kw_only=True)
class Chroma:
    """Magnitudes of the constant-Q transform, summed by pitch class.

    ::

        class[k] = round(12 log2(f_min / 440) + 9) + floor(12 k / b + 1 / 2)   modulo 12
        S[t, c]  = sum of |C[t, k]| over the bins k with class[k] = c
        y[t, c]  = S[t, c] / max_c S[t, c]    or    S[t, c]

    with :class:`Cqt`'s C and b bins per octave. Class 0 is C, class 9 is A, whose pitch
    is 440 Hz in the fourth octave. Bins between two semitones belong to the nearer, and
    those in the middle to the higher one. Windows (n, frames) give
    (n, time_frames, 12), windows (n, channels, frames) give
    (n, channels, time_frames, 12), in float32. Silence gives zeros.

    ``librosa.feature.chroma_cqt`` folds in the same way (to 1e-6). But its magnitudes
    grow by sqrt(2) with each octave down, so that low notes decide; and it takes its
    tuning from the signal unless it is told, where here it is a factor of ``f_min``.

    Attributes
    ----------
    f_min : float
        The lowest bin in Hz, the middle of a semitone; C1 of equal temperament.
    bins_per_octave : int
        A multiple of 12.
    n_octaves : int
    hop : int
        From a time frame to the next, in frames of the signal.
    norm : str
        ``max``: each time frame's greatest value is 1; ``none``.

    Raises
    ------
    RecipeError
        As for :class:`Cqt`.

    References
    ----------
    T. Fujishima, Realtime chord recognition of musical sound: a system using Common
    Lisp Music, International Computer Music Conference, 1999.

    Examples
    --------
    >>> tone = np.sin(2 * np.pi * 440 / 16000 * np.arange(16000, dtype=np.float32))
    >>> Chroma()(tone[np.newaxis], 16000)[0, 16].argmax()
    np.int64(9)
    """

    f_min: float = 32.703
    bins_per_octave: int = 36
    n_octaves: int = 7
    hop: int = 512
    norm: str = "max"

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_octaves", whole("n_octaves", self.n_octaves))
        if self.n_octaves > MAX_OCTAVES:
            raise RecipeError(
                "n_octaves", f"must not exceed {MAX_OCTAVES}", self.n_octaves
            )
        bins_per_octave = whole("bins_per_octave", self.bins_per_octave)
        if bins_per_octave % 12:
            raise RecipeError(
                "bins_per_octave", "must be a multiple of 12", bins_per_octave
            )
        cqt = self.cqt()
        for name in ("f_min", "bins_per_octave", "hop"):
            object.__setattr__(self, name, getattr(cqt, name))
        check_choice("norm", self.norm, ("max", "none"))

    @quiet
    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> FloatArray:
        signals = signals_of(windows)
        count = _time_frames(signals.shape[-1], self.hop)
        out = np.zeros((len(signals), count, 12), np.float32)
        bank = self.cqt().bank(sample_rate_hz)
        for place, _, response in responses(signals, self.hop, bank):
            out[place] += self._fold(np.abs(response))
        if self.norm == "max":
            for signal in out:
                greatest = signal.max(axis=-1, keepdims=True)
                # NaN stays; of infinity no class is a share that is a number.
                greatest[np.isinf(greatest)] = np.nan
                signal /= np.where(greatest == 0, 1, greatest)
        return out.reshape(*windows.shape[:-1], count, 12)

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """What the last two axes mean: time, as ``Cqt.axes`` tells it, and the class.

        Examples
        --------
        >>> Chroma().axes(16000, 16000)[1]["size"]
        12
        """
        time, _ = self.cqt().axes(sample_rate_hz, frames)
        return [
            time,
            {
                "name": "pitch_class",
                "unit": "semitone",
                "size": 12,
                "start": 0,
                "step": 1,
            },
        ]

    def cqt(self) -> Cqt:
        return Cqt(
            f_min=self.f_min,
            bins_per_octave=self.bins_per_octave,
            n_bins=self.n_octaves * self.bins_per_octave,
            hop=self.hop,
        )

    def _fold(self, octave: FloatArray) -> FloatArray:
        """Sums by class of the bins of an octave, on the last axis."""
        each = self.bins_per_octave // 12
        # The last bins of an octave are nearer to the first note of the next.
        by_note = np.roll(octave, each // 2, axis=-1).reshape(
            *octave.shape[:-1], 12, each
        )
        first = round(12 * math.log2(self.f_min / 440) + 9)
        sums: FloatArray = np.roll(by_note.sum(axis=-1), first, axis=-1)
        return sums


class Octave(NamedTuple):
    """Filters of some neighbouring bins.

    ``halvings`` is how often the signal is halved before; ``weights`` has the shape
    (length, 2 * bins), real and imaginary parts side by side.
    """

    bins: slice
    halvings: int
    weights: FloatArray


def bin_frequencies(
    f_min: float, bins_per_octave: int, n_bins: int
) -> npt.NDArray[np.float64]:
    """The middle of each bin, in Hz; infinite where no number holds it."""
    with np.errstate(over="ignore"):
        ratios: npt.NDArray[np.float64] = np.exp2(np.arange(n_bins) / bins_per_octave)
        return f_min * ratios


@functools.lru_cache(maxsize=4)
def filter_bank(
    f_min: float,
    bins_per_octave: int,
    n_bins: int,
    filter_scale: float,
    sample_rate_hz: int,
    hop: int,
) -> tuple[Octave, ...]:
    """The filters of :class:`Cqt`, octave by octave from the highest.

    Raises
    ------
    RecipeError
        If the highest band reaches over half the rate, or there are too many weights.
    """
    cycles = filter_scale / (2 ** (1 / bins_per_octave) - 1)
    hertz = bin_frequencies(f_min, bins_per_octave, n_bins)
    _check_highest(f_min, float(hertz[-1]), n_bins, cycles, sample_rate_hz)
    plans = []
    total = 0.0
    for last in range(n_bins, 0, -bins_per_octave):
        bins = slice(max(0, last - bins_per_octave), last)
        halvings = _halvings(float(hertz[last - 1]), cycles, sample_rate_hz, hop)
        rate = sample_rate_hz / 2**halvings
        total += cycles * rate / float(hertz[bins][0]) * len(hertz[bins])
        plans.append((bins, halvings, rate))
    if total > MAX_WEIGHTS:
        raise RecipeError(
            "f_min",
            f"makes filters of {total:.2g} weights together, more than {MAX_WEIGHTS}; "
            "use a higher one, fewer bins per octave, or a hop that is a multiple of a "
            "higher power of 2",
            f_min,
        )
    return tuple(
        Octave(bins, halvings, _weights(hertz[bins] / rate, cycles))
        for bins, halvings, rate in plans
    )


def _check_highest(
    f_min: float, highest: float, n_bins: int, cycles: float, sample_rate_hz: int
) -> None:
    # Where the Hann window's response is at half its peak.
    if highest * (1 + 1 / cycles) > sample_rate_hz / 2:
        raise RecipeError(
            "f_min",
            f"puts the highest of {n_bins} bins at {highest:.6g} Hz, and the end of "
            f"its band above half the sample rate {sample_rate_hz} Hz; use fewer bins, "
            "or a lower one",
            f_min,
        )


def _halvings(highest: float, cycles: float, sample_rate_hz: int, hop: int) -> int:
    """How often the signal may be halved for filters up to a frequency."""
    rates = PASS_BAND * sample_rate_hz / (highest * (1 + SIDE_LOBES / cycles))
    halvings = 0
    while hop % 2 ** (halvings + 1) == 0 and rates >= 2 ** (halvings + 1):
        halvings += 1
    return halvings


def _weights(frequencies: npt.NDArray[np.float64], cycles: float) -> FloatArray:
    """The filters at frequencies, in cycles per sample, as an octave has them."""
    half = math.ceil(cycles / frequencies[0] / 2) - 1
    turns = np.arange(-half, half + 1)[:, np.newaxis] * frequencies
    hann = np.where(np.abs(turns) < cycles / 2, np.cos(np.pi / cycles * turns) ** 2, 0)
    weights = 2 / hann.sum(axis=0) * hann * np.exp(-2j * np.pi * turns)
    parts: FloatArray = weights.astype(np.complex64).view(np.float32)
    return parts


def responses(
    signals: FloatArray, hop: int, bank: tuple[Octave, ...]
) -> Iterator[tuple[tuple[slice, slice], Octave, ComplexArray]]:
    """The filters' responses to signals (n, frames), a piece at a time.

    Yields
    ------
    slices : (slice, slice)
        Over signals and over time frames.
    octave : Octave
    response : numpy.ndarray, shape (some signals, some time frames, bins), complex64
    """
    frames = signals.shape[-1]
    count = _time_frames(frames, hop)
    # What a filter reaches on either side, and what the halvings before it do.
    reach = max(
        (len(octave.weights) // 2 + 2 * HALF_TAPS) * 2**octave.halvings
        for octave in bank
    )
    longest = max(SEGMENT_SAMPLES, 4 * reach)
    times = max(1, longest // hop)
    several = max(1, SEGMENT_SAMPLES // (min(frames, longest) + 2 * reach))
    for signal in range(0, len(signals), several):
        for first in range(0, count, times):
            last = min(first + times, count)
            begin = max(0, first * hop - reach)
            part = signals[signal : signal + several, begin : last * hop + reach]
            yield from _segment_responses(
                part, first * hop - begin, (signal, first), last - first, hop, bank
            )


def _segment_responses(
    part: FloatArray,
    middle: int,
    place: tuple[int, int],
    count: int,
    hop: int,
    bank: tuple[Octave, ...],
) -> Iterator[tuple[tuple[slice, slice], Octave, ComplexArray]]:
    """Those of ``count`` time frames, the first of which is centred on ``middle``."""
    signal, first = place
    halvings = 0
    for octave in bank:
        for _ in range(octave.halvings - halvings):
            part, middle = halve(part, middle)
        halvings = octave.halvings
        length = len(octave.weights)
        step = hop >> halvings
        padded = _cut_padded(part, middle - length // 2, (count - 1) * step + length)
        framed = frames_of(padded, length, step)
        for rows, times in cache_blocks(len(framed), count, length):
            frames = np.ascontiguousarray(framed[rows, times])
            response = _product(frames, octave.weights).view(np.complex64)
            yield (
                (
                    slice(signal + rows.start, signal + rows.start + len(response)),
                    slice(first + times.start, first + times.start + len(response[0])),
                ),
                octave,
                response,
            )


def _product(frames: FloatArray, weights: FloatArray) -> FloatArray:
    """The matrix product of each signal's frames (n, count, length) and the weights.

    BLAS is called for each signal with the same shapes, and with small ones: how it
    rounds depends on the shape, and on the number of threads that share a large one.
    """
    _, count, length = frames.shape
    columns = weights.shape[1]
    terms = max(16, MOST_PRODUCTS // (min(count, MOST_FRAMES) * columns))
    out = np.empty((*frames.shape[:2], columns), np.float32)
    for first in range(0, count, MOST_FRAMES):
        some = frames[:, first : first + MOST_FRAMES]
        sums = out[:, first : first + MOST_FRAMES]
        np.matmul(some[..., :terms], weights[:terms], out=sums)
        for term in range(terms, length, terms):
            sums += some[..., term : term + terms] @ weights[term : term + terms]
    return out


def halve(signals: FloatArray, middle: int) -> tuple[FloatArray, int]:
    """Signals at half the rate, zeros around them; and where sample ``middle`` is then.

    ::

        y[m] = x[2 m] / 2 + sum_i h[i] (x[2 m + 2 i + 1] + x[2 m - 2 i - 1])

    A half-band filter passes all below an eighth of the rate to within 3e-7, and stops
    as much of all above three eighths. The result reaches as far as the filter does.
    """
    samples = signals.shape[-1]
    # An output at every sample that the filter's taps reach from, middle among them.
    left = 4 * HALF_TAPS - 2 + middle % 2
    size = (left + samples) // 2
    padded = np.zeros((len(signals), 2 * (size + 2 * HALF_TAPS)), np.float32)
    padded[:, left : left + samples] = signals
    odd = np.ascontiguousarray(padded[:, 1::2])
    out = padded[:, 2 * HALF_TAPS : 2 * (HALF_TAPS + size) : 2] * np.float32(0.5)
    pair = np.empty_like(out)
    for i, tap in enumerate(half_band_taps()):
        after = odd[:, HALF_TAPS + i : HALF_TAPS + i + size]
        before = odd[:, HALF_TAPS - 1 - i : HALF_TAPS - 1 - i + size]
        np.add(after, before, out=pair)
        pair *= tap
        out += pair
    return out, (left + middle) // 2 - HALF_TAPS


@functools.cache
def half_band_taps() -> FloatArray:
    """The taps h[i] of :func:`halve`: a sinc tapered by Kaiser's window."""
    odd = 2 * np.arange(HALF_TAPS) + 1
    beta = 0.1102 * (ATTENUATION_DB - 8.7)
    kaiser = np.i0(beta * np.sqrt(1 - (odd / (2 * HALF_TAPS)) ** 2))
    taps = np.sin(np.pi / 2 * odd) / odd * kaiser
    # What is constant stays exactly so.
    scaled: FloatArray = (taps / (4 * taps.sum())).astype(np.float32)
    return scaled


def _cut_padded(signals: FloatArray, start: int, size: int) -> FloatArray:
    """``size`` samples of each signal from ``start`` on, zeros where there are none."""
    out = np.zeros((len(signals), size), np.float32)
    begin, end = max(start, 0), min(start + size, signals.shape[-1])
    if begin < end:
        out[:, begin - start : end - start] = signals[:, begin:end]
    return out


def _time_frames(frames: int, hop: int) -> int:
    return 1 + frames // hop


def _time_axis(sample_rate_hz: int, frames: int, hop: int) -> dict[str, Any]:
    return {
        "name": "time",
        "unit": "s",
        "size": _time_frames(frames, hop),
        "start": 0.0,
        "step": hop / sample_rate_hz,
    }
