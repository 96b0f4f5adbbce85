"""Selections, against closed forms and plain float64 arithmetic."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.selection import (
    AcEnergy,
    Active,
    Energy,
    Peak,
    mean_square,
    variance,
)
from tests.raising import raises
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
    for cls in (Energy, AcEnergy, Peak, Active):
        assert cls(above_db=exact_db - 1e-9).keep(windows, RATE).all()
        assert not cls(above_db=exact_db + 1e-9).keep(windows, RATE).any()


def test_peak_is_that_of_any_channel_and_sign():
    windows = np.zeros((3, 2, 10), np.float32)
    windows[0, 1, 9] = -0.5
    windows[1, 0, 0] = 0.5
    windows[2] = 0.49
    assert Peak(above_db=-6.03).keep(windows, RATE).tolist() == [True, True, False]


def active_by_hand(window, above_db, share, frame):
    """Frame by frame."""
    channels = np.atleast_2d(window).astype(np.float64)
    count = channels.shape[-1] // frame
    powers = [
        np.mean(channels[:, t * frame : (t + 1) * frame] ** 2) for t in range(count)
    ]
    return sum(power >= 10 ** (above_db / 10) for power in powers) / count >= share


@given(
    data=st.data(),
    channels=st.integers(1, 3),
    frames=st.integers(1, 300),
    share=st.floats(0.01, 1),
)
def test_active_counts_frames(data, channels, frames, share):
    frame = data.draw(st.integers(1, frames))
    levels = data.draw(
        st.lists(st.sampled_from([0.0, 0.01, 0.2, 1.0]), min_size=8, max_size=8)
    )
    window = noise(channels, frames) * np.repeat(levels, 40)[:frames]
    window = window.astype(np.float32)
    kept = Active(above_db=-30, share=share, frame=frame).keep(window[None], RATE)
    assert kept.tolist() == [active_by_hand(window, -30, share, frame)]


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


def test_a_frame_is_no_longer_than_the_window():
    with raises(RecipeError, "frame", 512, naming="511"):
        Active(frame=512).keep(noise(1, 511), RATE)
