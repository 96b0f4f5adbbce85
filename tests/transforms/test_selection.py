"""Selections and placements, against closed forms, float64 and loops over samples."""

import math

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.clip_steps import (
    AcEnergy,
    Active,
    Energy,
    Peak,
    Peaks,
    Sounds,
)
from beam_pipeline.transforms.signals import mean_square, variance
from beam_pipeline.transforms.steps import (
    PLACEMENT,
)
from tests.raising import raises
from tests.transform_checks import noise

RATE = 1000


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


@pytest.mark.parametrize("frames", [1, 2, 2**16, 200_001])
@pytest.mark.parametrize("offset", [0.0, -0.9])
def test_means_of_squares(frames, offset):
    window = noise(2, frames)
    window[0] += np.float32(offset)
    wide = window.astype(np.float64)
    assert mean_square(window) == pytest.approx(np.mean(wide**2), rel=1e-13)
    expected = wide.var(axis=1).mean()
    assert variance(window) == pytest.approx(expected, rel=1e-9, abs=1e-30)


def test_an_offset_does_not_count():
    """With an offset of 0.03 in each channel, of another sign."""
    windows = noise(1, 2, 4000) / np.float32(1000) + np.float32([[0.03], [-0.03]])
    assert Energy(above_db=-40).keep(windows, RATE).all()
    assert not AcEnergy(above_db=-40).keep(windows, RATE).any()
    assert not AcEnergy(above_db=-200).keep(np.ones_like(windows), RATE).any()


def test_a_frame_is_no_longer_than_the_window():
    with raises(RecipeError, "frame", 512, naming="511"):
        Active(frame=512).keep(noise(1, 511), RATE)


LEVELS = st.sampled_from([0.0, 0.001, 0.02, 0.3, 0.5])


def powers_of(clip, frame):
    """The mean square of each frame, with a loop."""
    channels = np.atleast_2d(clip).astype(np.float64)
    cuts = range(0, channels.shape[1], frame)
    return [float(np.mean(np.square(channels[:, k : k + frame]))) for k in cuts]


def peaks_by_hand(powers, least, gap, frame):
    maxima = []
    for k, power in enumerate(powers):
        left = next((p for p in powers[k::-1] if p != power), -1)
        right = next((p for p in powers[k:] if p != power), -1)
        if power >= least and left < power > right:
            maxima.append(k)
    runs: list[list[int]] = []  # equal neighbours are one frame
    for k in maxima:
        if runs and runs[-1][-1] == k - 1:
            runs[-1].append(k)
        else:
            runs.append([k])
    middles = [(run[0] + run[-1]) // 2 for run in runs]
    stays: list[int] = []
    for k in sorted(middles, key=lambda k: (-powers[k], k)):
        if all(abs(k - other) * frame >= gap for other in stays):
            stays.append(k)
    return sorted(stays)


@given(
    levels=st.lists(LEVELS, min_size=1, max_size=40),
    tail=st.integers(0, 9),
    gap=st.integers(0, 120),
)
@example(levels=[0.5], tail=0, gap=0)
@example(levels=[0.0, 0.5, 0.5, 0.5, 0.5, 0.0], tail=3, gap=0)
def test_peaks_by_hand(levels, tail, gap):
    """Frames of ten samples, and a shorter one at the end."""
    clip = np.repeat(np.array(levels, np.float32), 10)
    clip = clip[: len(clip) - tail]
    found = Peaks(above_db=-40, min_gap_s=gap / RATE).passages([clip], RATE)
    assert (found[:, 0] == found[:, 1]).all()
    by_hand = peaks_by_hand(powers_of(clip, 10), 1e-4, gap, 10)
    assert found[:, 0].tolist() == [min(10 * k + 5, len(clip) - 1) for k in by_hand]


@given(
    levels=st.lists(LEVELS, min_size=1, max_size=40),
    tail=st.integers(0, 9),
    gap=st.integers(0, 60),
    least=st.integers(0, 60),
)
@example(levels=[0.0, 0.5, 0.0, 0.5], tail=0, gap=10, least=10)
def test_sounds_by_hand(levels, tail, gap, least):
    clip = np.repeat(np.array(levels, np.float32), 10)
    clip = clip[: len(clip) - tail]
    step = Sounds(above_db=-40, min_gap_s=gap / RATE, min_sound_s=least / RATE)
    passages: list[list[int]] = []
    for k, power in enumerate(powers_of(clip, 10)):
        begin, end = 10 * k, min(10 * k + 10, len(clip))
        if power < 1e-4:
            continue
        touches = bool(passages) and passages[-1][1] == begin
        if touches or (passages and begin - passages[-1][1] < gap):
            passages[-1][1] = end
        else:
            passages.append([begin, end])
    wanted = [[begin, end] for begin, end in passages if end - begin >= least]
    assert step.passages([clip], RATE).tolist() == wanted


@pytest.mark.parametrize("shape", [(1003,), (2, 1003)])
@given(cuts=st.lists(st.integers(0, 1003), max_size=8))
def test_blocks_do_not_matter(shape, cuts):
    clip = noise(*shape)
    parts = np.split(clip, sorted(cuts), axis=-1)
    middle_db = 10 * math.log10(float(np.median(powers_of(clip, 10))))
    for cls in PLACEMENT.table.values():
        step = cls(above_db=middle_db, min_gap_s=0.02)
        whole = step.passages([clip], RATE)
        assert len(whole) > 5
        assert step.passages(parts, RATE).tolist() == whole.tolist()


@pytest.mark.parametrize("cls", PLACEMENT.table.values())
def test_silence_and_nan_are_no_sound(cls):
    step = cls(above_db=-200)
    for value in (0.0, np.nan):
        clip = np.full(300, value, np.float32)
        for blocks in ([clip], [clip, clip[:1]], [clip[:0]], []):
            assert step.passages(blocks, RATE).shape == (0, 2)
