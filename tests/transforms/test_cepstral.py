"""Cepstra, PCEN and slopes, against formulas in float64, closed forms and librosa."""

import math

import numpy as np
import pytest

from beam_pipeline.transforms.base import Chain
from beam_pipeline.transforms.cepstral import Delta, Mfcc, Pcen, smoothing_share
from beam_pipeline.transforms.mel import LogMel, Mel
from tests.transform_checks import noise

RATE = 16000
SMALL = {"n_fft": 512, "hop": 200, "n_mels": 20}


def names(transform):
    if isinstance(transform, Chain):
        return "|".join(map(names, transform.steps))
    return type(transform).__name__


# Oracles: the formulas, for one window of one channel, in float64


@pytest.mark.parametrize("constant", [1e-9, 0.1, 1.0, 25.0, 1e9])
def test_the_share_of_a_new_frame_solves_its_equation(constant):
    share = smoothing_share(constant)
    assert 0 < share <= 1
    # b**2 T**2 + b - 1 = 0
    assert (share * constant) ** 2 + share == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_delta_of_a_power_of_time(order):
    t = np.arange(30, dtype=np.float32)[:, np.newaxis]
    out = Delta(order=order)((0.5 * t**order)[np.newaxis])
    np.testing.assert_allclose(out, 0.5 * math.factorial(order), rtol=1e-6)
    lower = Delta(order=order)((3 + t ** (order - 1))[np.newaxis])
    np.testing.assert_allclose(lower, 0, atol=1e-9)


@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_delta_of_constants_is_exactly_0(order):
    features = np.full((2, 20, 3), -23.025852, np.float32)
    assert not Delta(order=order)(features).any()


def test_delta_takes_views_and_leaves_them():
    features = noise(3, 40, 8)
    before = features.copy()
    view = features[:, ::-1, ::2]
    np.testing.assert_array_equal(Delta()(view), Delta()(view.copy()))
    np.testing.assert_array_equal(features, before)
    assert Delta()(features[:0]).shape == (0, 40, 8)


# The contract


def test_all_coefficients_keep_the_energy():
    windows = noise(2, 2000)
    levels = LogMel(**SMALL, log="db")(windows, RATE)
    cepstra = Mfcc(**SMALL, n_mfcc=20)(windows, RATE)
    energy = (levels.astype(np.float64) ** 2).sum(axis=-1)
    np.testing.assert_allclose((cepstra**2).sum(axis=-1), energy, rtol=1e-5)


# librosa


def librosa_mel(windows, rate):
    librosa = pytest.importorskip("librosa")
    return librosa, librosa.feature.melspectrogram(
        y=windows, sr=rate, n_fft=1024, hop_length=256, n_mels=64, center=False
    )


@pytest.mark.parametrize("lifter", [0, 22])
@pytest.mark.parametrize("rate", [16000, 44100])
def test_mfcc_is_librosas(lifter, rate):
    windows = noise(3, 2, 8000) + np.sin(np.arange(8000) * 0.1).astype(np.float32)
    librosa, power = librosa_mel(windows, rate)
    levels = librosa.power_to_db(power, top_db=None)
    expected = librosa.feature.mfcc(S=levels, n_mfcc=20, lifter=lifter)
    out = Mfcc(lifter=lifter)(windows, rate)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(out, expected.swapaxes(-1, -2), atol=1e-6 * scale)


@pytest.mark.parametrize(
    "parameters", [{}, {"bias": 0}, {"gain": 0.8, "bias": 10, "power": 0.25}]
)
def test_pcen_is_librosas(parameters):
    windows = noise(3, 2, 8000) + np.sin(np.arange(8000) * 0.1).astype(np.float32)
    librosa, power = librosa_mel(windows, RATE)
    expected = librosa.pcen(power * 2.0**31, sr=RATE, hop_length=256, **parameters)
    out = Pcen(**parameters)(windows, RATE)
    np.testing.assert_allclose(out, expected.swapaxes(-1, -2), rtol=1e-5)


def test_pcen_is_librosas_of_the_same_power():
    """Where the FFTs differ by far more: faint bands beside a tone without noise."""
    tone = np.sin(np.arange(32000) * 0.1).astype(np.float32)[np.newaxis]
    librosa, their_power = librosa_mel(tone, RATE)
    out = Pcen()(tone, RATE)[0].T
    power = Mel()(tone, RATE)[0].T.astype(np.float64)
    same = librosa.pcen(power * 2.0**31, sr=RATE, hop_length=256)
    np.testing.assert_allclose(out, same, rtol=1e-7)
    theirs = librosa.pcen(their_power[0] * 2.0**31, sr=RATE, hop_length=256)
    heard = their_power[0] >= 1e-8 * their_power[0].max(axis=0)
    np.testing.assert_allclose(out[heard], theirs[heard], rtol=3e-4)
    difference = np.abs(out - theirs).max() / theirs.max()
    assert difference < 2e-2


@pytest.mark.parametrize(("width", "order"), [(3, 1), (9, 1), (9, 2), (29, 3)])
def test_delta_is_librosas(width, order):
    librosa = pytest.importorskip("librosa")
    features = noise(3, 2, 29, 20) * 100
    # In float64: in float32, its fit at the edges is 5e-6 of the largest value off.
    expected = librosa.feature.delta(
        features.astype(np.float64), width=width, order=order, axis=-2
    )
    out = Delta(width=width, order=order)(features)
    scale = np.abs(expected).max()
    np.testing.assert_allclose(out, expected, atol=2e-7 * scale)


# Errors
