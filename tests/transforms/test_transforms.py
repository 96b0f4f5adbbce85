"""The transforms, against formulas in float64, closed forms and librosa."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import (
    Chain,
    Identity,
    apply_counting,
    apply_transform,
    needs_sample_rate,
)
from beam_pipeline.transforms.mel import LogMel
from beam_pipeline.transforms.signals import Gain, PeakGain, RmsGain, _rms
from tests.raising import raises

RATE = 16000


def noise(*shape, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * 0.1).astype(np.float32)


# Identity


def test_every_pcm_value_comes_back():
    codes = np.arange(-32768, 32768, dtype=np.int16)[np.newaxis]
    windows = codes.astype(np.float32) / 32768
    np.testing.assert_array_equal(Identity("int16")(windows), codes)


def test_int16_rounds_to_even_and_clips():
    windows = np.array([[0.5, 1.5, -0.5, 40000, -40000]], np.float32) / 32768
    assert Identity("int16")(windows).tolist() == [[0, 2, 0, 32767, -32768]]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_int16_refuses_what_is_not_finite(value):
    with raises(RecipeError, "dtype", "int16", naming="float32"):
        Identity("int16")(np.array([[0, value]] * 40, np.float32))


# Gains


@given(level=st.floats(-60, 20), scale=st.floats(1e-30, 1e30), shape=st.sampled_from(
    [(1, 1), (3, 17), (2, 8, 5)]))  # fmt: skip
@settings(deadline=None)
def test_gains_reach_their_level_and_keep_the_shape(level, scale, shape):
    windows = (noise(*shape) * scale).astype(np.float32)
    axes = tuple(range(1, len(shape)))
    target = 10 ** (level / 20)

    peak = PeakGain(level)(windows)
    np.testing.assert_allclose(np.abs(peak).max(axis=axes), target, rtol=1e-6)
    rms = RmsGain(level)(windows)
    power = np.mean(rms.astype(np.float64) ** 2, axis=axes)
    np.testing.assert_allclose(np.sqrt(power), target, rtol=1e-6)
    for out in (peak, rms):
        assert out.dtype == np.float32
        ratio = out.astype(np.float64) / windows
        flat = ratio.reshape(len(ratio), -1)
        np.testing.assert_allclose(
            flat, flat[:, :1].repeat(flat.shape[1], 1), rtol=1e-6
        )


@pytest.mark.parametrize("transform", [PeakGain(), RmsGain()])
def test_the_faintest_sample_does_not_overflow(transform):
    windows = np.zeros((1, 16000), np.float32)
    windows[0, 7] = np.finfo(np.float32).smallest_subnormal
    assert np.isfinite(transform(windows)).all()
    assert transform(windows)[0, 7] > 0.1


# The filter bank


# LogMel


@pytest.mark.parametrize("log", ["ln", "db"])
@pytest.mark.parametrize("shape", [(3, 16000), (2, 2, 5001)])
def test_log_mel_is_librosas(shape, log):
    librosa = pytest.importorskip("librosa")
    windows = noise(*shape)
    power = librosa.feature.melspectrogram(
        y=windows, sr=RATE, n_fft=1024, hop_length=256, n_mels=64, center=False
    )
    power = np.maximum(np.swapaxes(power, -1, -2).astype(np.float64), 1e-10)
    out = LogMel(log=log)(windows, RATE).astype(np.float64)
    ours = np.exp(out) if log == "ln" else 10 ** (out / 10)
    np.testing.assert_allclose(ours, power, rtol=1e-5)


def test_floor_leaves_what_is_above_it():
    windows = noise(1, 4000)
    free = LogMel()(windows, RATE)
    floor = float(np.exp(np.median(free)))
    np.testing.assert_array_equal(
        LogMel(floor=floor)(windows, RATE),
        np.maximum(free, np.float32(math.log(floor))),
    )


# The same bytes in any grouping


def test_rms_adds_up_in_one_order_whatever_the_layout():
    for seed in range(20):
        window = noise(7, 301, seed=seed)
        assert _rms(np.asfortranarray(window)) == _rms(window)


# Values that are refused


# Chains and rates


def doubled(windows):
    return windows * 2


def seconds(windows, sample_rate_hz):
    return np.full(len(windows), windows.shape[-1] / sample_rate_hz)


@dataclasses.dataclass(frozen=True)
class Pitch:
    def __call__(self, windows, sample_rate_hz):
        return seconds(windows, sample_rate_hz)


@pytest.mark.parametrize(
    ("transform", "expected"),
    [(doubled, False), (seconds, True), (Pitch(), True), (LogMel(), True),
     (PeakGain(), False), (np.abs, False), (Chain((doubled, PeakGain())), False),
     (Chain((doubled, Pitch())), True)],
)  # fmt: skip
def test_needs_sample_rate(transform, expected):
    assert needs_sample_rate(transform) is expected


@pytest.mark.parametrize("transform", [seconds, Pitch(), Chain((doubled, Pitch()))])
def test_the_rate_goes_to_those_that_take_it(transform):
    out = apply_transform(transform, noise(3, 400), 100)
    assert out.tolist() == [4.0, 4.0, 4.0]


def test_a_chain_applies_from_left_to_right():
    windows = noise(2, 2000)
    chain = Chain((doubled, PeakGain(-1.0), LogMel(n_mels=20)))
    expected = LogMel(n_mels=20)(PeakGain(-1.0)(doubled(windows)), RATE)
    np.testing.assert_array_equal(apply_transform(chain, windows, RATE), expected)
    assert apply_transform(Chain((PeakGain(), doubled)), windows, RATE).max() > 1.5


def test_chains_within_chains_are_spliced():
    nested = Chain((Chain((doubled, PeakGain())), Identity()))
    assert nested == Chain((doubled, PeakGain(), Identity()))


def test_the_shape_of_a_single_window_is_told():
    facts = ["(n, frames)", "window[None]", "(1, frames)"]
    with raises(RecipeError, value=(4000,), naming=facts):
        LogMel()(noise(4000), RATE)
    assert LogMel()(noise(4000)[None], RATE).shape[0] == 1
    levels = Chain((np.ravel, LogMel()))  # one value for each window, then a spectrum
    with raises(RecipeError, value=(4000,), naming=["last", *facts]):
        levels(noise(1, 4000), RATE)


@pytest.mark.parametrize(
    ("sample", "clipped"),
    [
        (0.0, 0),
        (1 - 2.0**-15, 0),
        (1 - 2.0**-16 - 2.0**-24, 0),
        (1 - 2.0**-16, 1),  # a half, rounded to the even 32768
        (1.0, 1),
        (-1.0, 0),
        (-1 - 2.0**-16, 0),  # a half, rounded to the even -32768
        (-1 - 2.0**-15, 1),
        (np.inf, 1),
        (-np.inf, 1),
    ],
)
def test_int16_counts_what_it_clips(sample, clipped):
    windows = np.full((2, 3), 0.5, np.float32)
    windows[1, 2] = sample
    assert Identity("int16").count_clipped(windows) == clipped
    assert Identity().count_clipped(windows) == 0
    assert Identity("int16").count_clipped(windows[:0]) == 0


def test_each_step_of_a_chain_counts():
    windows = noise(3, 100) / 0.05
    chain = Chain((Gain(gain_db=6), Identity("int16")))
    found, clipped = apply_counting(chain, windows, RATE)
    loud = Gain(gain_db=6)(windows)
    assert found.tobytes() == apply_transform(chain, windows, RATE).tobytes()
    assert clipped == np.sum((loud > 1 - 2.0**-16) | (loud < -1 - 2.0**-16)) > 0
    assert apply_counting(Gain(gain_db=6), windows, RATE)[1] == 0
