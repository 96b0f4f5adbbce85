"""Shapes of spectra and of signals, against formulas in float64, tones and librosa."""

import math
import warnings

import numpy as np
import pytest

from beam_pipeline.transforms.base import apply_transform
from beam_pipeline.transforms.shape import (
    OnsetStrength,
    Rms,
    SpectralBandwidth,
    SpectralCentroid,
    SpectralContrast,
    SpectralFlatness,
    SpectralRolloff,
    ZeroCrossingRate,
    bandwidth_bins,
)
from tests.transform_checks import noise

RATE = 16000
ALL = [
    OnsetStrength(n_fft=512, n_mels=20),
    Rms(frame=512, hop=200),
    SpectralBandwidth(n_fft=512, hop=200),
    SpectralCentroid(n_fft=511, hop=300),
    SpectralContrast(n_fft=512, hop=200),
    SpectralFlatness(n_fft=512, hop=200),
    SpectralRolloff(n_fft=500, hop=200),
    ZeroCrossingRate(frame=512, hop=200),
]


def names(transform):
    return type(transform).__name__


# Oracles: the formulas of one frame of one signal, in float64


def test_rms_of_frames_at_every_sample_is_exact():
    windows = noise(2, 3000)
    out = Rms(frame=2048, hop=1)(windows)
    squares = np.lib.stride_tricks.sliding_window_view(windows, 2048, axis=-1)
    expected = np.sqrt(np.mean(squares.astype(np.float64) ** 2, axis=-1))
    np.testing.assert_allclose(out, expected, rtol=2e-6)


# The contract


# Closed forms


def test_the_bandwidth_of_three_bins_among_many():
    # From sums of squares, the variance would lose all its digits here.
    power = np.zeros((1, 2**15 + 1), np.float32)
    power[0, 30000:30003] = 0.25, 1, 0.25
    np.testing.assert_allclose(bandwidth_bins(power), math.sqrt(0.5), rtol=1e-4)


def test_the_faintest_bins_beside_loud_ones():
    # A float32 FFT would be rounded to the loud tone, and fill the valleys with that.
    tone = np.sin(2 * np.pi * 100 * np.arange(512) / 512)
    window = (tone + 1e-4 * noise(512)).astype(np.float32)
    hann = np.sin(np.pi * np.arange(512) / 512) ** 2
    power = np.abs(np.fft.rfft(hann * window.astype(np.float64))) ** 2
    power = np.maximum(power, 1e-10)
    expected = np.exp(np.log(power).mean()) / power.mean()
    found = SpectralFlatness(n_fft=512)(window[np.newaxis])
    np.testing.assert_allclose(found, [[expected]], rtol=2e-6)


@pytest.mark.parametrize("transform", ALL[2:4] + ALL[6:7], ids=names)
def test_shape_does_not_depend_on_loudness(transform):
    windows = noise(2, 2000)
    expected = transform(windows, RATE)
    for power in (-40, 40):
        out = transform(windows * np.float32(2.0**power), RATE)
        np.testing.assert_array_equal(out, expected)


def test_flatness_of_a_bin_that_float32_cannot_hold_beside_the_others():
    # The last bin is at the floor, 66 orders of magnitude below the mean.
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flatness = SpectralFlatness(n_fft=4, floor=1e-30)
        assert flatness(np.full((1, 4), 1e18, np.float32)) > 0


@pytest.mark.parametrize(("samples", "crossings"), [
    ([0, 0, 0, 0], 0), ([-0.0, 0, -0.0, 0], 0), ([1, 0, 1, 0], 0), ([-1, 0, -1, 0], 3),
    ([1e-11, -1e-11, 1e-11, -1e-9], 1)])  # fmt: skip
def test_zero_is_positive(samples, crossings):
    out = ZeroCrossingRate(frame=4)(np.array([samples], np.float32))
    assert out == crossings / 4


# librosa


@pytest.mark.parametrize(("n_fft", "hop"), [(512, 128), (1024, 256), (2048, 333)])
@pytest.mark.parametrize("rate", [16000, 44100])
def test_shapes_of_spectra_are_librosas(n_fft, hop, rate):
    windows = noise(3, 2, 6000) + np.sin(np.arange(6000) * 0.1).astype(np.float32)
    librosa = pytest.importorskip("librosa")
    # In float64: rounded to float32, its roll-off may be the neighbouring bin.
    stft = librosa.stft(
        windows.astype(np.float64), n_fft=n_fft, hop_length=hop, center=False
    )
    given = {"S": np.abs(stft), "n_fft": n_fft, "hop_length": hop}
    feature = librosa.feature
    frames = {"n_fft": n_fft, "hop": hop}

    for transform, expected, tolerance in (
        (SpectralCentroid, feature.spectral_centroid(sr=rate, **given), 1e-6),
        (SpectralBandwidth, feature.spectral_bandwidth(sr=rate, **given), 1e-6),
        (SpectralFlatness, feature.spectral_flatness(**given), 5e-6),
        (SpectralRolloff, feature.spectral_rolloff(sr=rate, **given), 1e-6),
    ):
        out = apply_transform(transform(**frames), windows, rate)
        np.testing.assert_allclose(out, expected[..., 0, :], rtol=tolerance)

    expected = feature.spectral_contrast(sr=rate, **given)
    out = SpectralContrast(**frames)(windows, rate)
    np.testing.assert_allclose(out, expected.swapaxes(-1, -2), atol=2e-5)


@pytest.mark.parametrize(("frame", "hop"), [(512, 128), (1023, 256), (2048, 333)])
def test_shapes_of_signals_are_librosas(frame, hop):
    librosa = pytest.importorskip("librosa")
    windows = noise(3, 2, 6000)
    windows[..., 1000:2000] *= 1e-9
    frames = {"frame_length": frame, "hop_length": hop, "center": False}
    np.testing.assert_array_equal(
        ZeroCrossingRate(frame=frame, hop=hop)(windows),
        librosa.feature.zero_crossing_rate(windows, **frames)[..., 0, :].astype("f"),
    )
    np.testing.assert_allclose(
        Rms(frame=frame, hop=hop)(windows),
        librosa.feature.rms(y=windows, **frames)[..., 0, :],
        rtol=1e-6,
    )


def test_onset_strength_is_librosas():
    librosa = pytest.importorskip("librosa")
    windows = noise(3, 6000) * np.linspace(0, 1, 6000, dtype=np.float32) ** 2
    power = librosa.feature.melspectrogram(
        y=windows, sr=RATE, n_fft=1024, hop_length=256, n_mels=64, center=False
    )
    expected = librosa.onset.onset_strength_multi(
        S=librosa.power_to_db(power, top_db=None), sr=RATE, center=False
    )
    out = OnsetStrength()(windows, RATE)
    np.testing.assert_allclose(out, expected[..., 0, :], atol=1e-4)


# Errors
