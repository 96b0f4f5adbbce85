"""Pitch, against its formulas in slow float64, closed forms and librosa."""

import functools

import librosa
import numpy as np
import pytest
import scipy.stats

from beam_pipeline.transforms.pitch import (
    PitchPaths,
    Pyin,
    Yin,
    difference_function,
    dip_probabilities,
    find_dips,
    threshold_probabilities,
)
from tests.transform_checks import noise

RATE = 16000


def tone(f0, seconds=0.5, harmonics=1):
    t = np.arange(round(seconds * RATE)) / RATE
    numbers = np.arange(1, harmonics + 1)[:, np.newaxis]
    return (0.3 / numbers * np.sin(numbers * (2 * np.pi * f0 * t + 0.3))).sum(axis=0)


def as_windows(signal):
    return np.asarray(signal, np.float32)[np.newaxis]


def cents(f0, truth):
    return 1200 * np.abs(np.log2(f0 / truth))


# The formulas, one number at a time


def slow_difference(frame, lags):
    frame = frame.astype(np.float64)
    n = len(frame)
    return np.array(
        [np.mean((frame[: n - k] - frame[k:]) ** 2) for k in range(lags + 1)]
    )


@functools.cache
def ranks(count):
    """The probabilities of so many dips below a threshold, by their rank."""
    return scipy.stats.boltzmann.pmf(np.arange(count), 2, count)


def slow_probabilities(heights, mean):
    """By scipy's distributions, one threshold after the other."""
    chances = np.diff(scipy.stats.beta.cdf(np.linspace(0, 1, 101), 2, 2 / mean - 2))
    found = np.zeros(len(heights))
    for k, chance in enumerate(chances):
        below = heights < (k + 1) / 100
        found[below] += chance * ranks(int(below.sum()))
        if not below.any() and len(heights):
            found[np.argmin(heights)] += 0.01 * chance
    return found


@pytest.mark.parametrize(
    ("frame", "hop", "lags"),
    [(2048, 512, 248), (2048, 450, 248), (2048, 600, 248), (2048, 3000, 248),
     (2048, 1800, 248), (300, 1, 100), (301, 7, 150), (3, 1, 1), (64, 16, 16),
     (64, 15, 16), (65, 16, 16)],
)  # fmt: skip
def test_difference_is_its_sum(frame, hop, lags):
    samples = noise(2, frame + 5 * hop + hop // 2) + np.float32(3)
    out = difference_function(samples, frame, hop, lags)
    assert out.shape == (2, 6, lags + 1)
    for window, t in np.ndindex(2, 6):
        expected = slow_difference(samples[window, t * hop : t * hop + frame], lags)
        np.testing.assert_allclose(out[window, t], expected, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("mean", [0.1, 0.15, 0.2])
def test_probabilities_are_pyins(mean):
    difference = difference_function(noise(1, 3000), 600, 270, 280).reshape(-1, 281)
    difference[5] = 0  # a frame without dips
    difference[7] = np.arange(281)
    dips = find_dips(difference, 5)
    heights = dips.heights * np.linspace(0.01, 1.2, len(dips.heights))
    out = dip_probabilities(
        dips._replace(heights=heights), len(difference), threshold_probabilities(mean)
    )
    assert not np.isin([5, 7], dips.frames).any()
    for frame in range(len(difference)):
        mine = dips.frames == frame
        expected = slow_probabilities(heights[mine], mean)
        np.testing.assert_allclose(out[mine], expected, rtol=1e-9, atol=1e-15)


# The path


def random_odds(steps, pitches, windows, seed):
    rng = np.random.default_rng(seed)
    odds = rng.random((steps, pitches, windows)) ** 8
    odds[rng.random(odds.shape) < 0.5] = 1e-30
    odds /= odds.sum(axis=1, keepdims=True) * rng.uniform(1, 3, (steps, 1, windows))
    return odds, (1 - odds.sum(axis=1)) / pitches


@pytest.mark.parametrize(
    ("pitches", "reach", "switch"),
    [(1, 0, 0.3), (5, 0, 0.2), (6, 5, 0.5), (30, 3, 0.01), (40, 11, 0.1), (9, 8, 0.9)],
)
def test_path_is_librosas_with_the_full_matrix(pitches, reach, switch):
    odds, rest = random_odds(40, pitches, 4, seed=pitches)
    paths = PitchPaths(pitches, reach, switch)
    voiced, unvoiced = np.log(odds).astype(np.float32), np.log(rest).astype(np.float32)
    voicing, steps = paths.backward(paths.forward(voiced, unvoiced))

    near = np.abs(np.subtract.outer(np.arange(pitches), np.arange(pitches)))
    local = np.maximum(0, 1 - near / (reach + 1))
    local /= local.sum(axis=1, keepdims=True)
    turns = np.array([[1 - switch, switch], [switch, 1 - switch]])
    for window in range(4):
        both = [odds[..., window].T, np.tile(rest[:, window], (pitches, 1))]
        expected = librosa.sequence.viterbi(np.concatenate(both), np.kron(turns, local))
        states = voicing[window] * pitches + steps[window]
        np.testing.assert_array_equal(states, expected)


def test_long_paths_are_as_exact_as_short_ones():
    rng = np.random.default_rng(0)
    odds = rng.uniform(-80.1, -80, (10000, 5, 1)).astype(np.float32)
    rest = np.full((10000, 1), -90, np.float32)
    paths = PitchPaths(5, 4, 0.1)
    whole = paths.backward(paths.forward(odds, rest))
    end = paths.backward(paths.forward(odds[-300:], rest[-300:]))
    np.testing.assert_array_equal(whole[..., -200:], end[..., -200:])


# Sounds with a known pitch


@pytest.mark.parametrize(("harmonics", "most"), [(1, 0.2), (20, 8)])
def test_tones_are_found_as_closely_as_the_documentation_says(harmonics, most):
    t = np.arange(4096) / RATE
    for hz in np.geomspace(70, 2000, 30):
        heard = np.arange(1, min(harmonics, int(0.49 * RATE / hz)) + 1)
        parts = np.sin(2 * np.pi * hz * np.outer(heard, t)) / heard[:, np.newaxis]
        for transform in (Yin(), Pyin()):
            out = transform(as_windows(0.1 * parts.sum(axis=0)), RATE)[0]
            assert cents(out[:, 0], hz).max() < most


def test_voicing_begins_and_ends_with_the_tone():
    signal = np.concatenate([noise(8000) / 30, tone(250, 0.5, harmonics=5)])
    signal = np.concatenate([signal, noise(8000, seed=1) / 30])
    transform = Pyin(hop=256)
    out = transform(as_windows(signal), RATE)[0]
    middles = np.arange(len(out)) * 256 + 1024
    inside = (middles > 9200) & (middles < 14800)
    outside = (middles < 6800) | (middles > 17200)
    assert cents(out[inside, 0], 250).max() < 2
    assert not out[outside, 0].any()

    guess = Pyin(hop=256, unvoiced="guess")(as_windows(signal), RATE)[0]
    signed = Pyin(hop=256, unvoiced="negative")(as_windows(signal), RATE)[0]
    assert (guess[:, 0] >= 65).all()
    np.testing.assert_array_equal(np.abs(signed[:, 0]), guess[:, 0])
    np.testing.assert_array_equal(np.maximum(signed[:, 0], 0), out[:, 0])
