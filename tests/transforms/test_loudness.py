"""Loudness, against pyloudnorm, librosa, and tones whose loudness is known."""

import math

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.transforms.descriptors import (
    K_SECTIONS,
    Lufs,
    LufsGain,
    clip_level,
    integrated_lufs,
    k_weighting,
    k_weights,
)
from tests.transform_checks import noise

RATE = 16000
RATES = [8000, 11025, 16000, 22050, 32000, 44100, 48000, 96000]


def tone(level_db, seconds, rate=48000, hz=1000.0):
    """A sine whose peak is at a level, as EBU Tech 3341 gives it."""
    t = np.arange(round(seconds * rate)) / rate
    return 10 ** (level_db / 20) * np.sin(2 * np.pi * hz * t)


def bursts(rate, seed=0):
    """Noise that is loud, quiet and silent by turns, for both gates; whole 100 ms."""
    rng = np.random.default_rng(seed)
    parts = 10 ** rng.uniform(-5, 0, 40) * (rng.uniform(size=40) < 0.8)
    frames = 4 * rate
    envelope = parts.repeat(rate // 10 + 1)[:frames]
    return (0.2 * rng.standard_normal(frames) * envelope).astype(np.float32)


# EBU Tech 3341, table 1: cases 1 to 6, all within 0.1 LU.
@pytest.mark.parametrize(("parts", "lufs"), [
    ([(-23, 20)], -23),
    ([(-33, 20)], -33),
    ([(-36, 10), (-23, 60), (-36, 10)], -23),
    ([(-72, 10), (-36, 10), (-23, 60), (-36, 10), (-72, 10)], -23),
    ([(-26, 20), (-20, 20.1), (-26, 20)], -23),
])  # fmt: skip
def test_stereo_tones_of_the_ebu(parts, lufs):
    one = np.concatenate([tone(*part) for part in parts]).astype(np.float32)
    out = Lufs()(np.stack([one, one])[np.newaxis], 48000)
    assert out.shape == (1,)
    assert out.dtype == np.float32
    assert abs(out[0] - lufs) < 0.05


def test_surround_tones_of_the_ebu():
    levels = [-28, -28, -24, -30, -30]
    five = np.stack([tone(level, 20) for level in levels]).astype(np.float32)
    assert abs(Lufs()(five[np.newaxis], 48000)[0] + 23) < 0.05
    # Low frequency effects, the fourth of six, do not count.
    six = np.insert(five, 3, tone(0, 20), axis=0)
    assert Lufs()(six[np.newaxis], 48000)[0] == Lufs()(five[np.newaxis], 48000)[0]


def test_filters_are_those_of_the_recommendation():
    np.testing.assert_allclose(k_weighting(48000), K_SECTIONS, atol=1e-13)


@pytest.mark.parametrize(
    "rate", [4000, 4410, 5512, 6000, *RATES, 12000, 176400, 192000]
)
def test_the_tone_of_the_recommendation_at_any_rate(rate):
    """997 Hz at 0 dB of full scale is at -3.01 LUFS; EBU Tech 3341 allows 0.1 LU."""
    full = tone(0, 2, rate, 997.0).astype(np.float32)[np.newaxis]
    assert abs(integrated_lufs(full, rate)[0] + 3.01) < 0.05
    assert abs(integrated_lufs(LufsGain()(full, rate), rate)[0] + 23) < 1e-4
    assert abs(clip_level("lufs", [full], rate) + 3.01) < 0.05
    hertz = np.linspace(20, min(rate, 48000) / 2, 500)
    response = 10 * np.log10(k_weights(hertz, rate) / k_weights(hertz, 48000))
    assert np.abs(response).max() < (0.07 if rate >= 8000 else 0.31)


@pytest.mark.parametrize("rate", RATES)
def test_lufs_is_pyloudnorms_at_any_rate(rate):
    pyloudnorm = pytest.importorskip("pyloudnorm")
    meter = pyloudnorm.Meter(rate)
    clip = bursts(rate)
    out = integrated_lufs(clip[np.newaxis], rate)
    standard = meter.integrated_loudness(clip.astype(np.float64))
    np.testing.assert_allclose(out, standard, atol=0.1)

    class Same:  # its blocks and gates behind these filters
        def apply_filter(self, samples):
            return scipy.signal.sosfilt(k_weighting(rate), samples)

    meter._filters = {"same": Same()}
    same = meter.integrated_loudness(clip.astype(np.float64))
    np.testing.assert_allclose(out, same, atol=1e-9)


def test_what_is_left_after_the_last_block_does_not_count():
    clip = np.concatenate([noise(8000), np.ones(1599, np.float32)])
    assert integrated_lufs(clip[np.newaxis], RATE) == pytest.approx(
        integrated_lufs(clip[np.newaxis, :8000], RATE)[0], abs=1e-12
    )


# Clips


def in_blocks(kind, clip, cuts, rate=RATE):
    return clip_level(kind, np.split(clip, sorted(cuts), axis=-1), rate)


@given(
    kind=st.sampled_from(["peak", "rms", "lufs"]), channels=st.integers(1, 3),
    frames=st.integers(6400, 40000), cuts=st.lists(st.integers(0, 30000), max_size=9),
)  # fmt: skip
@settings(max_examples=60)
def test_a_clip_is_the_same_in_any_blocks(kind, channels, frames, cuts):
    clip = np.stack([bursts(RATE, c)[:frames] for c in range(channels)])
    x = clip.astype(np.float64)
    expected = {
        "peak": lambda: 20 * math.log10(abs(x).max()),
        "rms": lambda: 10 * math.log10(np.mean(x**2)),
        "lufs": lambda: integrated_lufs(clip[np.newaxis], RATE)[0],
    }[kind]()
    assert in_blocks(kind, clip, cuts) == pytest.approx(expected, abs=1e-9)


def test_a_short_clip_is_one_block():
    clip = np.concatenate([noise(1, 6400)] * 2, axis=-1)
    short = clip[:, :1000].astype(np.float64)
    power = np.mean(scipy.signal.sosfilt(k_weighting(RATE), short) ** 2)
    expected = -0.691 + 10 * math.log10(power)
    assert in_blocks("lufs", clip[:, :1000], [10]) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("kind", ["peak", "rms", "lufs"])
def test_clips_without_a_level(kind):
    assert clip_level(kind, [], RATE) == -math.inf
    assert in_blocks(kind, np.zeros((2, 9000), np.float32), [5]) == -math.inf
    broken = noise(2, 9000)
    broken[1, 7000] = np.nan
    assert math.isnan(in_blocks(kind, broken, [8000]))
