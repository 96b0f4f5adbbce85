"""Pitch of windows, frame by frame: YIN, and pYIN, which follows it through time."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy  # loads its packages when they are used
from numpy.lib.stride_tricks import sliding_window_view

from beam_pipeline.arrays import Booleans, DoubleArray, FloatArray
from beam_pipeline.parameters import Choice, Number, WholeNumber, parameter
from beam_pipeline.transforms.base import COUNT, POSITIVE, slices
from beam_pipeline.transforms.frames import (
    SignalFrames,
    Where,
    axis,
    cache_blocks,
    on_signals,
)

IntArray = npt.NDArray[np.intp]

VOICED, UNVOICED = 0, 1


@dataclass(frozen=True)
class PitchPaths:
    """Viterbi decoding of a pitch and its voicing, for several windows at once.

    The states are (voicing, pitch). From one time frame to the next the pitch moves by
    ``k`` steps with a probability proportional to ``1 - |k| / (glide + 1)``, within
    the range of pitches, and the voicing changes with probability ``switch``. At the
    start, all states are equally probable. Among equally probable paths, the result is
    the one whose last states are voiced, then low.

    Transitions are local, so a step takes about ``8 * glide`` operations per pitch; the
    full matrix would take ``8 * pitches``. ``forward`` returns the scores of all states
    at all times, and ``backward`` finds the path in them.

    Attributes
    ----------
    pitches : int
        Number of pitches.
    glide : int
        The largest move of the pitch, in steps.
    switch : float
        Probability that the voicing changes, between 0 and 1.

    References
    ----------
    A. Viterbi, Error bounds for convolutional codes and an asymptotically optimum
    decoding algorithm, IEEE Transactions on Information Theory 13(2), 1967.

    Examples
    --------
    >>> paths = PitchPaths(pitches=3, glide=1, switch=0.01)
    >>> voiced = np.log(np.float32([[[0.8], [0.1], [0.1]], [[0.3], [0.2], [0.4]]]))
    >>> history = paths.forward(voiced, np.log(np.float32([[0.1], [0.1]])))
    >>> paths.backward(history).tolist()
    [[[0, 0]], [[0, 0]]]
    """

    pitches: int
    glide: int
    switch: float

    def forward(self, voiced: FloatArray, unvoiced: FloatArray) -> FloatArray:
        """The scores of the best path to each state.

        Parameters
        ----------
        voiced : numpy.ndarray, shape (time_frames, pitches, windows)
            Logarithms of the observation probabilities of voiced states.
        unvoiced : numpy.ndarray, shape (time_frames, windows)
            The same for unvoiced states of any pitch.

        Returns
        -------
        numpy.ndarray, shape (time_frames, pitches + 2 * glide, 2, windows), float32
            The logarithm of the sum of weights of a state's moves is subtracted from
            its score, so that the moves' weights do not depend on the state. The
            pitches are in the middle; the rest is minus infinity, which no path uses.
        """
        steps, pitches, windows = voiced.shape
        inside = slice(self.glide, self.glide + pitches)
        history = np.full(
            (steps, pitches + 2 * self.glide, 2, windows), -np.inf, np.float32
        )
        best = np.zeros((pitches, 2, windows), np.float32)
        for step, scores in enumerate(history):
            if step:
                self._move(history[step - 1], best)
            best[:, VOICED] += voiced[step]
            best[:, UNVOICED] += unvoiced[step]
            # Scores stay near 0, so float32 resolves them for paths of any length.
            best -= best.max(axis=(0, 1))
            np.subtract(best, self._sums, out=scores[inside])
        return history

    def backward(self, history: FloatArray) -> IntArray:
        """The states of the best path.

        Parameters
        ----------
        history : numpy.ndarray
            The result of ``forward``.

        Returns
        -------
        numpy.ndarray, shape (2, windows, time_frames)
            The voicing, 0 for voiced and 1 for unvoiced, and the pitch.
        """
        steps, _, _, windows = history.shape
        path = np.empty((2, windows, steps), np.intp)
        ends = history[-1][self.glide : self.glide + self.pitches] + self._sums
        path[..., -1] = _argmax(ends)
        for step in reversed(range(steps - 1)):
            path[..., step] = self._origin(history[step], path[..., step + 1])
        return path

    def _move(self, before: FloatArray, best: FloatArray) -> None:
        """Writes the best scores that states can get from those one step before."""
        stay, change = self._voicing
        # Voicing comes first: it does not depend on the move of the pitch.
        origins = before + stay
        np.maximum(origins, before[:, ::-1] + change, out=origins)
        middle, pitches = self.glide, self.pitches
        np.add(origins[middle : middle + pitches], self._weights[middle], out=best)
        moved = np.empty_like(best)
        for k in range(1, self.glide + 1):
            up, down = middle - k, middle + k
            np.maximum(
                origins[up : up + pitches], origins[down : down + pitches], out=moved
            )
            moved += self._weights[down]
            np.maximum(best, moved, out=best)

    def _origin(self, scores: FloatArray, state: IntArray) -> IntArray:
        """The states from which the best paths came to each window's state."""
        voicing, pitch = state
        moves = np.arange(2 * self.glide + 1)[:, np.newaxis]
        near = scores[pitch + moves, :, np.arange(len(pitch))]
        stay, change = self._voicing
        turns = np.where(np.arange(2) == voicing[:, np.newaxis], stay, change)
        near += turns
        near += self._weights[:, np.newaxis, np.newaxis]
        origin = _argmax(near.swapaxes(1, 2))
        origin[1] += pitch - self.glide
        return origin

    @cached_property
    def _voicing(self) -> FloatArray:
        return np.log([1 - self.switch, self.switch]).astype(np.float32)

    @cached_property
    def _triangle(self) -> DoubleArray:
        return 1 - np.abs(np.arange(-self.glide, self.glide + 1)) / (self.glide + 1)

    @cached_property
    def _weights(self) -> FloatArray:
        return np.log(self._triangle).astype(np.float32)

    @cached_property
    def _sums(self) -> FloatArray:
        """Logarithms of the sums of weights of each pitch's moves within the range."""
        sums = np.convolve(np.ones(self.pitches), self._triangle)
        inside = sums[self.glide : self.glide + self.pitches]
        return np.log(inside).astype(np.float32)[:, np.newaxis, np.newaxis]


def _argmax(scores: FloatArray) -> IntArray:
    """(Voicing, index in m) of each window's first maximum in (m, 2, windows)."""
    flat = scores.transpose(2, 1, 0).reshape(scores.shape[2], -1).argmax(axis=1)
    return np.stack(np.divmod(flat, len(scores)))


# Differences below this share of the energy count as 0. Rounding leaves a few 1e-16 of
# the energy instead of 0; so does the least significant bit of 24-bit samples.
ROUNDING = 2.0**-44

# Lags on either side that interpolation uses; the number of points between two lags
# where it is evaluated, and the distance of the values around each point.
NEAR = 4
POINTS = 32
STEP = 0.25

# The end of a valley of YIN's aperiodicity, relative to its first dip that is low
# enough. Noise makes several dips in a valley, and the first may not be the lowest.
VALLEY = 1.5

# The most hops whose sums frames share; adding up more takes longer than an FFT.
MAX_SHARED = 32

# Memory for the scores that pYIN needs to go back in time: several windows of a second
# fit. A longer window takes what it needs, 6 KB a time frame with the defaults.
HISTORY_BYTES = 2**22

# pYIN: the number of thresholds 0.01, 0.02 .. 1; how quickly the probability falls from
# a dip to the next; the probability of the lowest dip at thresholds below it.
THRESHOLDS = 100
BOLTZMANN = 2.0
NO_DIP_PROBABILITY = 0.01
LEAST_LOG = np.float32(-87)


class _Periods(SignalFrames):
    """Code that YIN and pYIN share: frames, the range of periods, and the axes."""

    frame: int = parameter(2048, WholeNumber(1, 2**16))
    hop: int = parameter(512, COUNT)
    f_min: float = parameter(65.0, POSITIVE)
    f_max: float = parameter(2093.0, POSITIVE, above="f_min")

    columns: ClassVar[tuple[str, str]]

    def last_axes(self, sample_rate_hz: int) -> list[dict[str, Any]]:
        """Describes the axis of columns."""
        self._lags(sample_rate_hz)
        column = axis("column", "", len(self.columns), 0, 1)
        return [{**column, "labels": list(self.columns)}]

    def _lags(self, sample_rate_hz: int) -> tuple[int, int]:
        """The least and the largest lag that can be a period."""
        if self.f_max > sample_rate_hz / 2:
            raise self.refused(
                "f_max",
                f"must not exceed {sample_rate_hz / 2:g} Hz, half the sample rate of "
                f"{sample_rate_hz} Hz",
            )
        longest = math.ceil(sample_rate_hz / self.f_min)
        least = 2 * (longest + NEAR) + 1
        if self.frame < least:
            raise self.refused(
                "f_min",
                f"has a period of {longest} frames at {sample_rate_hz} Hz; two periods "
                f"do not fit into frame ({self.frame}); use a higher f_min, or set "
                f"frame to {least} or more",
            )
        return math.floor(sample_rate_hz / self.f_max), longest

    def _dips(
        self, signals: FloatArray, sample_rate_hz: int
    ) -> Iterator[tuple[Where, Dips, Booleans]]:
        """Yields the dips of the time frames of signals, block by block.

        The last value is boolean, (signals, time_frames): which frames contain NaN or
        infinity.
        """
        shortest, longest = self._lags(sample_rate_hz)
        lags = longest + NEAR
        shares = _shared_hops(self.frame, self.hop, lags) > 0
        length = self.hop + lags if shares else self.frame
        size = 2 * (length + lags)  # in float64
        frames = self.frames(signals.shape[-1])
        for rows, times in cache_blocks(len(signals), frames.count, size):
            samples = signals[rows, slice(*frames.span(times))]
            difference = difference_function(samples, self.frame, self.hop, lags)
            # The difference of lag 0 covers the whole frame; it is 0 for finite frames.
            broken = ~np.isfinite(difference[..., 0])
            dips = find_dips(difference, shortest)
            yield (rows, times), dips, broken

    def _frequency(self, periods: DoubleArray, sample_rate_hz: int) -> DoubleArray:
        return np.clip(sample_rate_hz / periods, self.f_min, self.f_max)


class Yin(_Periods):
    """Fundamental frequency and aperiodicity, frame by frame, by YIN.

    ::

        D[t, l] = mean_{j < frame - l} (x[t * hop + j] - x[t * hop + j + l])**2
        a[t, l] = D[t, l] * l / sum_{1 <= i <= l} D[t, i]
        y[t, 0] = sample_rate_hz / l*        y[t, 1] = a[t, l*]

    for lags ``l`` from ``floor(sample_rate_hz / f_max)`` up to
    ``ceil(sample_rate_hz / f_min)``. Candidates are the minima of ``a`` below
    ``threshold``. If there are none, they are the minima less than ``threshold`` above
    the lowest one. ``l*`` is the lowest candidate between the lag of the first one and
    1.5 times that lag. Polynomials through nine values of ``D`` give minima between the
    lags.

    Frames are entirely within the window (they are not centred, nothing is padded), so
    ``t = 0 .. (frames - frame) // hop``. Windows (n, frames) give (n, time_frames, 2),
    windows (n, channels, frames) give (n, channels, time_frames, 2), in float32: the
    frequency in Hz, between ``f_min`` and ``f_max``, and the aperiodicity, from 0 for a
    periodic signal to about 1 for noise. Every frame has a frequency; if the
    aperiodicity is above the threshold, the frequency is only a guess. Silence,
    constants and other frames without a minimum give 0 Hz and 1. Frames that contain
    NaN or infinity give NaN for both.

    Attributes
    ----------
    frame, hop : int
        Length of a frame and step to the next one, in frames of the signal. Two
        periods of ``f_min`` must fit into one frame.
    f_min, f_max : float
        Range of the frequency in Hz.
    threshold : float
        Aperiodicity below which a period is accepted, above 0 and at most 1.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if a frame is longer than the
        window or shorter than two periods, or ``f_max`` exceeds half the rate.

    Notes
    -----
    Three steps differ from the paper, in the manner of the authors' later program. The
    paper uses the same number of pairs at each lag; the mean over all pairs is as exact
    and stays in the middle of the frame. If no minimum is below the threshold, the
    paper uses the lowest one; but the minima at multiples of a period are about as low,
    and in noise often lower. The paper uses the first minimum below the threshold even
    if noise splits one minimum into several.

    ``librosa.yin`` of librosa 0.11 assumes zeros beyond the end of the frame, so its
    differences grow with the lag, and it interpolates with parabolas. For steady tones
    from 70 to 2000 Hz at 16 kHz, its error is up to 12 cents for pure tones. Here it is
    0.2 cents for them, and 8 cents for tones whose harmonic k has 1 / k of the
    amplitude. High tones of equally strong harmonics, up to half the rate, may be
    found an octave or more too low.

    References
    ----------
    A. de Cheveigne and H. Kawahara, YIN, a fundamental frequency estimator for speech
    and music, Journal of the Acoustical Society of America 111(4), 2002.

    Examples
    --------
    >>> tone = np.sin(2 * np.pi * 440 / 16000 * np.arange(4096)).astype(np.float32)
    >>> Yin()(tone[np.newaxis], 16000).round(1)[0, 0].tolist()
    [440.0, 0.0]
    """

    threshold: float = parameter(0.1, Number(most=1.0, is_positive=True))

    columns = ("f0_hz", "aperiodicity")

    @on_signals
    def __call__(self, signals: FloatArray, sample_rate_hz: int) -> FloatArray:
        count = self.frames(signals.shape[-1]).count
        out = np.empty((len(signals), count, 2), np.float32)
        for block, dips, broken in self._dips(signals, sample_rate_hz):
            chosen = self._choose(dips)
            features = np.empty((broken.size, 2), np.float32)
            features[:] = 0, 1
            features[broken.ravel()] = np.nan
            at = dips.frames[chosen]
            features[at, 0] = self._frequency(dips.periods[chosen], sample_rate_hz)
            features[at, 1] = dips.heights[chosen]
            out[block] = features.reshape(*broken.shape, 2)
        return out

    def _choose(self, dips: Dips) -> IntArray:
        """The chosen dip of each frame that has dips."""
        frames, periods, heights = dips
        count = frames.max(initial=-1) + 1
        limits = np.full(count, np.inf)
        np.minimum.at(limits, frames, heights)
        limits = self.threshold + np.where(limits < self.threshold, 0, limits)
        low = np.flatnonzero(heights < limits[frames])
        first = low[_first_of_each(frames[low])]
        ends = np.zeros(count)
        ends[frames[first]] = periods[first] * VALLEY
        low = low[periods[low] <= ends[frames[low]]]
        return low[_first_of_each(frames[low], heights[low])]


class Pyin(_Periods):
    """Fundamental frequency and voicing, frame by frame, by probabilistic YIN.

    The minima of YIN's aperiodicity (see ``Yin``) are candidates. YIN's choice depends
    on its threshold, so a distribution of thresholds gives each candidate a
    probability::

        p[i] = sum_s Beta(s) * exp(-2 k[i, s]) * (1 - exp(-2)) / (1 - exp(-2 n[s]))

    for thresholds ``s = 0.01, 0.02 .. 1`` above the candidate's minimum, where
    ``Beta(s)`` is the probability of thresholds from ``s - 0.01`` to ``s``, ``n[s]``
    the number of minima below ``s``, and ``k[i, s]`` the number of these at smaller
    lags. In addition, the lowest minimum gets a hundredth of the probability of the
    thresholds below it. The sum of ``p`` is the probability that the frame is voiced.

    The most probable path through all frames of the window then selects one candidate
    for each frame, or none. It is the path of a hidden Markov model, whose states are
    pitches ``f_min * 2**(b / (12 * bins_per_semitone))``, voiced or not. A voiced state
    is observed with the probability of the candidates closest to its pitch; the
    unvoiced states share the remaining probability. From one frame to the next, the
    pitch moves by at most ``max_glide_octaves_s``; the probability of moves is a
    triangle around 0. See :class:`PitchPaths`.

    Windows (n, frames) give (n, time_frames, 2), windows (n, channels, frames) give
    (n, channels, time_frames, 2), in float32, with frames as in ``Yin``. The values are
    the frequency in Hz, which is not rounded to a pitch of the model, and the
    probability from 0 to 1 that the frame, by itself, is voiced. Silence and constants
    are unvoiced, with probability 0. Frames that contain NaN or infinity give NaN for
    both, and count as unvoiced for the path through the others.

    Attributes
    ----------
    frame, hop : int
        Length of a frame and step to the next one, in frames of the signal. Two
        periods of ``f_min`` must fit into one frame.
    f_min, f_max : float
        Range of the frequency in Hz.
    bins_per_semitone : int
        Pitches of the model, 1 to 100.
    threshold_mean : float
        Mean of the thresholds, 0.01 to 0.5. They follow the beta distribution with
        ``alpha = 2`` and ``beta = 2 / threshold_mean - 2``.
    max_glide_octaves_s : float
        The fastest change of pitch, in octaves per second; 0 to 1000.
    switch_probability : float
        Probability that voicing begins or ends from one frame to the next; between 0
        and 1.
    unvoiced : str
        Frequency of frames that are unvoiced on the path: ``zero``; ``guess``, the
        frequency of the path; or ``negative``, the same with a minus sign.

    Raises
    ------
    RecipeError
        If a value is out of its range; in a call, if a frame is longer than the
        window or shorter than two periods, or ``f_max`` exceeds half the rate.

    Notes
    -----
    The probabilities and the model are those of the authors' program, as in
    ``librosa.pyin`` of librosa 0.11. librosa differs in the aperiodicity (see ``Yin``).
    It returns the frequencies of the model's pitches, 10 cents apart. It keeps only one
    of several candidates closest to the same pitch; here, their probabilities are
    added. And it rounds the fastest glide to semitones per frame.

    References
    ----------
    M. Mauch and S. Dixon, pYIN: a fundamental frequency estimator using probabilistic
    threshold distributions, IEEE International Conference on Acoustics, Speech and
    Signal Processing, 2014.

    Examples
    --------
    >>> tone = np.sin(2 * np.pi * 440 / 16000 * np.arange(4096)).astype(np.float32)
    >>> Pyin()(tone[np.newaxis], 16000).round(1)[0, 0].tolist()
    [440.0, 1.0]
    """

    bins_per_semitone: int = parameter(10, WholeNumber(1, 100))
    threshold_mean: float = parameter(0.1, Number(0.01, 0.5))
    max_glide_octaves_s: float = parameter(17.96, Number(0.0, 1000.0))
    switch_probability: float = parameter(0.01, Number(1e-9, 1 - 1e-9))
    unvoiced: str = parameter("zero", Choice(("zero", "guess", "negative")))

    columns = ("f0_hz", "voiced_probability")

    @on_signals
    def __call__(self, signals: FloatArray, sample_rate_hz: int) -> FloatArray:
        count = self.frames(signals.shape[-1]).count
        out = np.empty((len(signals), count, 2), np.float32)
        paths = self._paths(sample_rate_hz)
        # Scores of two voicings in float32, see PitchPaths.forward.
        size = 2 * (paths.pitches + 2 * paths.glide) * 4
        several = HISTORY_BYTES // (size * count)
        for rows in slices(len(signals), several):
            candidates = self._observe(signals[rows], sample_rate_hz, paths)
            path = paths.backward(candidates.forward(paths))
            out[rows, :, 0] = self._frequencies(candidates, path)
            out[rows, :, 1] = candidates.voiced
            out[rows][candidates.broken] = np.nan
        return out

    def _paths(self, sample_rate_hz: int) -> PitchPaths:
        bins_per_octave = 12 * self.bins_per_semitone
        pitches = 1 + math.floor(bins_per_octave * math.log2(self.f_max / self.f_min))
        # At least one step: otherwise, the pitch could not move between close frames.
        octaves = self.max_glide_octaves_s * self.hop / sample_rate_hz
        glide = min(max(1, round(octaves * bins_per_octave)), pitches - 1)
        return PitchPaths(pitches, glide, self.switch_probability)

    def _observe(
        self, signals: FloatArray, sample_rate_hz: int, paths: PitchPaths
    ) -> Candidates:
        thresholds = threshold_probabilities(self.threshold_mean)
        done, parts = 0, []
        shape = (len(signals), self.frames(signals.shape[-1]).count)
        unknown = np.empty(shape, np.bool_)
        for block, dips, broken in self._dips(signals, sample_rate_hz):
            unknown[block] = broken
            frequencies = self._frequency(dips.periods, sample_rate_hz)
            probabilities = dip_probabilities(dips, broken.size, thresholds)
            parts.append((dips.frames + done, frequencies, probabilities))
            done += broken.size
        frames, frequencies, probabilities = map(
            np.concatenate, zip(*parts, strict=True)
        )
        octaves = np.log2(frequencies / self.f_min)
        nearest = np.rint(octaves * (12 * self.bins_per_semitone)).astype(np.intp)
        np.minimum(nearest, paths.pitches - 1, out=nearest)
        return Candidates(shape, frames, nearest, frequencies, probabilities, unknown)

    def _frequencies(self, candidates: Candidates, path: IntArray) -> DoubleArray:
        """Frequencies of the candidates closest to the path, or of the path itself."""
        voicing, pitch = path
        frames, probabilities = candidates.frames, candidates.probabilities
        on_path = np.flatnonzero(candidates.pitches == pitch.ravel()[frames])
        chosen = on_path[_first_of_each(frames[on_path], -probabilities[on_path])]
        frequencies = self.f_min * 2 ** (pitch / (12 * self.bins_per_semitone))
        frequencies.ravel()[frames[chosen]] = candidates.frequencies[chosen]
        factor = {"zero": 0.0, "guess": 1.0, "negative": -1.0}[self.unvoiced]
        silent = voicing == UNVOICED
        frequencies[silent] *= factor
        return np.asarray(frequencies)


class Dips(NamedTuple):
    """Minima of the aperiodicity, sorted by frame, then by lag; all of shape (m,)."""

    frames: IntArray
    periods: DoubleArray
    heights: DoubleArray


@dataclass(frozen=True)
class Candidates:
    """Frequencies from which pYIN chooses, sorted by frame; arrays of shape (m,).

    ``shape`` is (windows, time_frames). ``frames`` counts the time frames of all
    windows. ``pitches`` are the nearest pitches of the model. ``broken``, of shape
    (windows, time_frames), marks frames that contain NaN or infinity.
    """

    shape: tuple[int, int]
    frames: IntArray
    pitches: IntArray
    frequencies: DoubleArray
    probabilities: DoubleArray
    broken: Booleans

    @functools.cached_property
    def voiced(self) -> DoubleArray:
        """The probability that a frame is voiced, (windows, time_frames)."""
        windows, steps = self.shape
        sums = np.bincount(self.frames, self.probabilities, windows * steps)
        return np.minimum(sums, 1.0).reshape(self.shape)

    def forward(self, paths: PitchPaths) -> FloatArray:
        """The scores of the paths, given these candidates; see ``PitchPaths``."""
        windows, steps = self.shape
        window, step = np.divmod(self.frames, steps)
        cells = (step * paths.pitches + self.pitches) * windows + window
        cells, where = np.unique(cells, return_inverse=True)
        sums = np.bincount(where, self.probabilities, len(cells)).astype(np.float64)
        voiced = np.full((steps, paths.pitches, windows), LEAST_LOG)
        voiced.ravel()[cells] = _log(sums)
        unvoiced = (1 - self.voiced.T) / paths.pitches
        return paths.forward(voiced, _log(unvoiced))


def difference_function(
    samples: FloatArray, frame: int, hop: int, lags: int
) -> DoubleArray:
    """YIN's difference function, frame by frame, up to a lag.

    ::

        D[t, l] = mean_{j < frame - l} (x[t * hop + j] - x[t * hop + j + l])**2

    This is the energy of both factors less twice their correlation. The two cancel if
    the signal is periodic, so they are computed in float64, and differences within the
    rounding error are set to 0.

    Parameters
    ----------
    samples : numpy.ndarray, shape (windows, frames)
    frame, hop : int
    lags : int
        The largest lag, less than half a frame.

    Returns
    -------
    numpy.ndarray, shape (windows, time_frames, lags + 1), float64

    Examples
    --------
    >>> x = np.float32([[1, 0, 1, 0, 1, 0]])
    >>> difference_function(x, frame=6, hop=1, lags=2).round(9).tolist()
    [[[0.0, 1.0, 0.0]]]
    """
    x = np.array(samples, np.float64, order="C")
    correlation = _correlation(x, frame, hop, lags)
    np.square(x, out=x)
    # From a lag to the next, both energies lose a square, at the end and at the start.
    starts = sliding_window_view(x[:, : x.shape[1] - frame + lags], lags, axis=1)
    ends = sliding_window_view(x[:, frame - lags :], lags, axis=1)
    energy = np.empty_like(correlation)
    energy[..., 0] = -2 * correlation[..., 0]
    np.add(starts[:, ::hop], ends[:, ::hop, ::-1], out=energy[..., 1:])
    np.cumsum(energy, axis=-1, out=energy)
    correlation *= -2
    difference = np.subtract(correlation, energy, out=correlation)
    difference[difference < ROUNDING * -energy[..., :1]] = 0
    difference /= frame - np.arange(lags + 1)
    return difference


def _correlation(x: DoubleArray, frame: int, hop: int, lags: int) -> DoubleArray:
    """``sum_{j < frame - l} x[w, t * hop + j] * x[w, t * hop + j + l]``.

    Frames overlap, so the sum over a frame is split: into sums over hops, which other
    frames share, and a sum over the rest of the frame.
    """
    shared = _shared_hops(frame, hop, lags)
    rest = frame - shared * hop
    total = _products(x[:, shared * hop :], rest, rest, hop, lags)
    if not shared:
        return total
    hops = _products(x, hop, hop + lags, hop, lags)
    for k in range(shared):
        total += hops[:, k : k + total.shape[1]]
    return total


def _shared_hops(frame: int, hop: int, lags: int) -> int:
    """The number of hops of a frame to share with others; 0 if that takes longer."""
    shared = (frame - lags) // hop
    rest = frame - shared * hop
    # Three FFTs of a hop and two of the rest, instead of two of a frame.
    quicker = 3 * (hop + lags) + 2 * (rest + lags) < 2 * (frame + lags)
    return shared if quicker and shared <= MAX_SHARED else 0


def _products(
    x: DoubleArray, length: int, width: int, hop: int, lags: int
) -> DoubleArray:
    """The sums over ``j < length`` with ``j + l < width``, at every hop."""
    parts = sliding_window_view(x, width, axis=1)[:, ::hop]
    n_fft = scipy.fft.next_fast_len(length + lags, real=True)
    spectrum = scipy.fft.rfft(parts, n_fft)
    first = spectrum
    if length < width:
        first = scipy.fft.rfft(parts[..., :length], n_fft)
    spectrum *= first.conj()
    return np.asarray(scipy.fft.irfft(spectrum, n_fft)[..., : lags + 1])


def find_dips(difference: DoubleArray, shortest: int) -> Dips:
    """The minima of the aperiodicity from a lag on, without the last ``NEAR`` lags.

    Polynomials through the difference function give their positions between the lags.
    They use more lags than the three of a parabola, whose error is several cents if a
    period has few samples or many harmonics.
    """
    difference = difference.reshape(-1, difference.shape[-1])
    lags = np.arange(difference.shape[1])
    means = np.cumsum(difference, axis=1)
    means /= np.maximum(lags, 1)
    aperiodicity = np.ones_like(difference)
    np.divide(difference, means, out=aperiodicity, where=means > 0)
    middle = aperiodicity[:, shortest:-NEAR]
    dips = middle < aperiodicity[:, shortest - 1 : -NEAR - 1]
    dips &= middle <= aperiodicity[:, shortest + 1 : 1 - NEAR or None]
    frames, lags = np.nonzero(dips)
    lags += shortest
    periods, lowest = _lowest_near(difference, frames, lags)
    return Dips(frames, periods, np.maximum(lowest, 0) / means[frames, lags])


def _lowest_near(
    difference: DoubleArray, frames: IntArray, lags: IntArray
) -> tuple[DoubleArray, DoubleArray]:
    """The lag of each minimum of the difference function, and the value there.

    A parabola through neighbouring lags, then another through interpolated values.
    """
    # The function is even: its value at lag -l is that at lag l.
    taps = np.abs(lags[:, np.newaxis] + np.arange(-NEAR, NEAR + 1))
    near = difference[frames[:, np.newaxis], taps]
    offset, _ = _parabola(near[:, NEAR - 1 : NEAR + 2])
    point = np.rint(offset * POINTS).astype(np.intp)
    between = near[:, np.newaxis] * _interpolation()[point + POINTS]
    step, lowest = _parabola(between.sum(axis=-1))
    return lags + point / POINTS + step * STEP, lowest


def _parabola(values: DoubleArray) -> tuple[DoubleArray, DoubleArray]:
    """The minima of parabolas through (m, 3): positions from -1 to 1, and values."""
    left, middle, right = values.T
    slope = (right - left) / 2
    curvature = left - 2 * middle + right
    offset = np.zeros_like(middle)
    np.divide(-slope, curvature, out=offset, where=curvature > 0)
    np.clip(offset, -1, 1, out=offset)
    return offset, middle + offset * (slope + offset * curvature / 2)


@functools.cache
def _interpolation() -> DoubleArray:
    """Lagrange's polynomials, (points, 3 steps, 2 * NEAR + 1 taps).

    They are exact where the difference function is smooth, as it is at low pitches.
    Sinc functions are not: they would move its flat minima.
    """
    middles = np.arange(-POINTS, POINTS + 1)[:, np.newaxis] / POINTS
    points = middles[..., np.newaxis] + np.array([[-STEP], [0], [STEP]])
    taps = np.arange(-NEAR, NEAR + 1)
    factors = [
        np.where(taps == other, 1, (points - other) / (taps - other + (taps == other)))
        for other in taps
    ]
    return np.asarray(np.prod(factors, axis=0))


@functools.lru_cache(maxsize=32)
def threshold_probabilities(mean: float) -> DoubleArray:
    """Probabilities of thresholds between ``k / 100`` and ``(k + 1) / 100``."""
    steps = np.linspace(0, 1, THRESHOLDS + 1)
    probabilities: DoubleArray = np.diff(
        scipy.special.betainc(2.0, 2 / mean - 2, steps)
    )
    return probabilities


def dip_probabilities(dips: Dips, frames: int, thresholds: DoubleArray) -> DoubleArray:
    """The probability ``p`` of each dip; see ``Pyin``."""
    # A dip is below all thresholds from this one on.
    level = np.minimum(dips.heights * THRESHOLDS, THRESHOLDS).astype(np.intp)
    below = np.zeros((frames, THRESHOLDS + 1))
    np.add.at(below, (dips.frames, level), 1)
    below = np.cumsum(below[:, :THRESHOLDS], axis=1)
    share = np.zeros_like(below)
    np.divide(
        thresholds * -np.expm1(-BOLTZMANN),
        -np.expm1(-BOLTZMANN * below),
        out=share,
        where=below > 0,
    )
    # Dip by dip, for all frames together: each dip leaves less to the next one.
    order = np.flatnonzero(level < THRESHOLDS)
    starts = _first_of_each(dips.frames[order])
    lengths = np.diff(starts, append=len(order))
    rank = np.arange(len(order)) - np.repeat(starts, lengths)
    levels = np.full((rank.max(initial=-1) + 1, frames), THRESHOLDS)
    levels[rank, dips.frames[order]] = level[order]
    shares = np.zeros(levels.shape)
    columns = np.arange(THRESHOLDS)
    for dip, lowest in enumerate(levels):
        taken = share * (columns >= lowest[:, np.newaxis])
        shares[dip] = taken.sum(axis=1)
        taken *= -np.expm1(-BOLTZMANN)
        share -= taken
    probabilities = np.zeros(len(level))
    probabilities[order] = shares[rank, dips.frames[order]]
    deepest = _first_of_each(dips.frames, dips.heights)
    above = np.concatenate([[0], np.cumsum(thresholds)])
    probabilities[deepest] += NO_DIP_PROBABILITY * above[level[deepest]]
    return probabilities


def _first_of_each(groups: IntArray, key: DoubleArray | None = None) -> IntArray:
    """The entry with the least key in each of the sorted groups; the first of equals.

    Without a key, the first entry of each group.
    """
    starts = np.flatnonzero(np.diff(groups, prepend=-1))
    return starts if key is None else np.lexsort((key, groups))[starts]


def _log(probabilities: DoubleArray) -> FloatArray:
    with np.errstate(divide="ignore"):
        logs: FloatArray = np.log(probabilities).astype(np.float32)
    return np.maximum(logs, LEAST_LOG, out=logs)
