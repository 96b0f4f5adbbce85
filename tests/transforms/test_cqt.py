"""The constant-Q transform and chroma: the formula in float64, tones, and librosa."""

import math

import librosa
import numpy as np
import pytest
import threadpoolctl

from beam_pipeline.transforms.frames import Chroma, Cqt
from tests.transform_checks import noise

RATE = 16000
C1 = 32.703


def slow_cqt(window, transform, rate):
    """The defining sums, one bin after the other, in float64."""
    count = 1 + len(window) // transform.hop
    out = np.empty((count, transform.n_bins), complex)
    octave = 2 ** (1 / transform.bins_per_octave)
    for k in range(transform.n_bins):
        hertz = transform.f_min * octave**k
        length = transform.filter_scale / (octave - 1) * rate / hertz
        half = math.ceil(length / 2) - 1
        j = np.arange(-half, half + 1)
        hann = np.cos(np.pi * j / length) ** 2
        weights = 2 * hann / hann.sum() * np.exp(-2j * np.pi * hertz / rate * j)
        padded = np.concatenate([np.zeros(half), window, np.zeros(half + 1)])
        framed = np.lib.stride_tricks.sliding_window_view(padded, len(weights))
        out[:, k] = framed[:: transform.hop] @ weights
    return out


def tone(hertz, frames, rate):
    return np.cos(2 * np.pi * hertz / rate * np.arange(frames)).astype(np.float32)


# The formula


@pytest.mark.parametrize(("parameters", "rate", "frames"), [
    ({}, RATE, 9000),
    ({"hop": 441}, 22050, 9000),  # never halved
    ({"bins_per_octave": 36, "n_bins": 90, "f_min": 200.0}, RATE, 8001),
    ({"bins_per_octave": 5, "n_bins": 33, "hop": 64}, RATE, 2047),
    ({"bins_per_octave": 1, "n_bins": 6, "f_min": 50.0}, RATE, 5000),
    ({"n_bins": 1, "f_min": 3000.0, "hop": 1}, RATE, 100),
    ({"filter_scale": 0.25, "hop": 128}, RATE, 6000),
    ({"filter_scale": 3.0, "n_bins": 24, "f_min": 130.0}, 48000, 9000),
    ({"f_min": 5.0, "n_bins": 18, "hop": 2048}, 8000, 9001),
])  # fmt: skip
def test_the_formula(parameters, rate, frames):
    transform = Cqt(kind="complex", **parameters)
    windows = np.stack([
        10 * noise(frames),
        tone(440.0, frames, rate),
        np.sign(tone(97.3, frames, rate)),
        np.ones(frames, np.float32),
        tone(rate / 2, frames, rate),
    ])  # fmt: skip
    found = transform(windows, rate)
    assert found.dtype == np.complex64
    for window, response in zip(windows, found, strict=True):
        np.testing.assert_allclose(
            response,
            slow_cqt(window, transform, rate),
            rtol=0, atol=5e-6 * np.abs(window).max(),
        )  # fmt: skip


# Kinds


def test_kinds_are_of_the_same_values():
    windows = noise(3, 9000)
    values = Cqt(kind="complex")(windows, RATE)
    magnitude = np.abs(values)
    assert (Cqt()(windows, RATE) == magnitude).all()
    np.testing.assert_allclose(
        Cqt(kind="power")(windows, RATE), magnitude**2, rtol=1e-6
    )
    floor = 1e-5
    expected = 10 * np.log10(np.maximum(magnitude.astype(float) ** 2, floor))
    found = Cqt(kind="db", floor=floor)(windows, RATE)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert found.min() == np.float32(-50)


# The contract


@pytest.mark.parametrize(("parameters", "frames"), [
    ({}, 20000),
    ({"hop": 441}, 60000),
    ({"hop": 64, "bins_per_octave": 36, "n_bins": 252}, 30001),
])  # fmt: skip
def test_the_number_of_threads_does_not_show(parameters, frames):
    windows = noise(2, frames)
    transform = Cqt(**parameters)
    with threadpoolctl.threadpool_limits(1):
        alone = transform(windows, 22050)
    with threadpoolctl.threadpool_limits(4):
        np.testing.assert_array_equal(transform(windows, 22050), alone)


# librosa


@pytest.mark.parametrize(
    ("bins_per_octave", "f_min"), [(12, C1), (24, C1), (36, C1), (36, 55.0), (60, 49.0)]
)
def test_chroma_folds_as_librosa_does(bins_per_octave, f_min):
    windows = noise(2, 10000)
    parameters = {"f_min": f_min, "bins_per_octave": bins_per_octave}
    magnitudes = Cqt(n_bins=6 * bins_per_octave, **parameters)(windows, RATE)
    matrix = librosa.filters.cq_to_chroma(
        6 * bins_per_octave, bins_per_octave=bins_per_octave, fmin=f_min
    )
    sums = magnitudes @ matrix.T
    found = Chroma(n_octaves=6, norm="none", **parameters)(windows, RATE)
    np.testing.assert_allclose(found, sums, rtol=2e-6)
    normed = Chroma(n_octaves=6, **parameters)(windows, RATE)
    np.testing.assert_allclose(
        normed, sums / sums.max(axis=-1, keepdims=True), rtol=2e-6
    )
