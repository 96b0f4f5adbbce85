"""Selections, against closed forms and plain float64 arithmetic."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline.transforms.selection import (
    AcEnergy,
    Energy,
    Peak,
    mean_square,
    variance,
)
from tests.transform_checks import noise

RATE = 16000


@given(
    level_db=st.floats(-150, 150),
    shape=st.sampled_from([(512,), (8, 512), (1, 1000)]),
)
def test_energy_compares_the_rms(level_db, shape):
    windows = np.full((1, *shape), 10 ** (level_db / 20), np.float32)
    windows[..., ::2] *= -1
    exact_db = 20 * math.log10(abs(float(windows.flat[0])))
    for cls in (Energy, AcEnergy, Peak):
        assert cls(above_db=exact_db - 1e-9).keep(windows, RATE).all()
        assert not cls(above_db=exact_db + 1e-9).keep(windows, RATE).any()


def test_peak_is_that_of_any_channel_and_sign():
    windows = np.zeros((3, 2, 10), np.float32)
    windows[0, 1, 9] = -0.5
    windows[1, 0, 0] = 0.5
    windows[2] = 0.49
    assert Peak(above_db=-6.03).keep(windows, RATE).tolist() == [True, True, False]


@pytest.mark.parametrize("frames", [1, 2**16 - 1, 2**16, 2**16 + 1, 200_001])
def test_mean_square(frames):
    window = noise(2, frames)
    expected = math.fsum(float(x) ** 2 for x in window.flat) / window.size
    assert mean_square(window) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize("frames", [1, 2, 2**16, 2**16 + 1])
@pytest.mark.parametrize("offset", [0.0, 0.03, -0.9])
def test_variance(frames, offset):
    window = noise(2, frames)
    window[0] += np.float32(offset)
    wide = window.astype(np.float64)
    expected = ((wide - wide.mean(axis=1, keepdims=True)) ** 2).mean()
    assert variance(window) == pytest.approx(expected, rel=1e-9, abs=1e-30)


def test_an_offset_does_not_count():
    """With an offset of 0.03 in each channel, of another sign."""
    quiet = noise(1, 2, 4000) / np.float32(1000)
    windows = quiet + np.float32([[0.03], [-0.03]])
    assert Energy(above_db=-40).keep(windows, RATE).all()
    assert not AcEnergy(above_db=-40).keep(windows, RATE).any()
    level_db = 10 * math.log10(quiet.var(axis=-1).mean())
    assert AcEnergy(above_db=level_db - 0.01).keep(windows, RATE).all()
    assert not AcEnergy(above_db=level_db + 0.01).keep(windows, RATE).any()
    constant = np.ones((1, 2, 4000), np.float32)
    assert not AcEnergy(above_db=-200).keep(constant, RATE).any()
