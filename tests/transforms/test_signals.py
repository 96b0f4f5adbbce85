"""Steps from signals to signals, against formulas in float64 and scipy."""

import math

import numpy as np
import pytest
import scipy.signal
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.transforms import signals
from beam_pipeline.transforms.base import Chain, Identity, apply_transform
from beam_pipeline.transforms.loudness import Lufs, LufsGain, integrated_lufs
from beam_pipeline.transforms.signals import (
    Analytic,
    Downsample,
    Gain,
    Normalize,
    PreEmphasis,
    Resample,
    low_pass_taps,
)
from tests.transform_checks import noise

RATE = 16000
KINDS = ["log", "mean", "median", "minmax", "standard"]


# Gain, and gain to a loudness


@given(gain_db=st.floats(-100, 100))
def test_gain_is_its_definition(gain_db):
    windows = noise(2, 3, 50)
    out = Gain(gain_db=gain_db)(windows)
    expected = windows * 10 ** (gain_db / 20)
    np.testing.assert_allclose(out, expected, rtol=2e-7)
    np.testing.assert_array_equal(
        Gain(gain_db=gain_db).on_stream(windows[0], 1), out[0]
    )
    assert Gain(gain_db=gain_db).context(RATE) == 0


@pytest.mark.parametrize("shape", [(3, 16000), (2, 2, 9000), (1, 6, 8001)])
def test_lufs_gain_reaches_its_level(shape):
    windows = noise(*shape)
    out = LufsGain(level_lufs=-17.5)(windows, RATE)
    np.testing.assert_allclose(integrated_lufs(out, RATE), -17.5, atol=1e-5)
    ratio = (out / windows).reshape(len(out), -1)
    np.testing.assert_allclose(ratio, ratio[:, :1] + 0 * ratio, rtol=1e-6)


def test_lufs_gain_leaves_what_is_below_the_gate():
    windows = np.stack([np.zeros(8000, np.float32), noise(8000) * np.float32(1e-5)])
    np.testing.assert_array_equal(LufsGain()(windows, RATE), windows)


# Normalize


def slow_normalize(row, kind):
    x = row.astype(np.float64)
    if kind == "log":
        return np.sign(x) * np.log1p(abs(x))
    if kind == "minmax":
        return (x - x.min()) / (np.ptp(x) or 1)
    if kind == "median":
        return x - np.median(x)
    return (x - x.mean()) / ((x.std() or 1) if kind == "standard" else 1)


@given(
    kind=st.sampled_from(KINDS), scale=st.floats(1e-30, 1e30), offset=st.floats(-9, 9),
    frames=st.integers(2, 60),
)  # fmt: skip
@settings(deadline=None, max_examples=200)
def test_normalize_is_its_definition(kind, scale, offset, frames):
    windows = ((noise(2, 2, frames, seed=frames) + offset) * scale).astype(np.float32)
    out = Normalize(kind=kind)(windows)
    for index in np.ndindex(2, 2):
        expected = slow_normalize(windows[index], kind)
        np.testing.assert_allclose(
            out[index], expected, rtol=1e-6, atol=2e-7 * abs(expected).max()
        )


def test_normalize_of_a_long_window():
    windows = noise(1, 300_000) + np.float32(5)
    for kind in KINDS:
        out = Normalize(kind=kind)(windows)[0]
        np.testing.assert_allclose(out, slow_normalize(windows[0], kind), atol=1e-6)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "log"])
@pytest.mark.parametrize("value", [0.0, 0.1, -3.3e38, 1e-45])
@pytest.mark.parametrize("frames", [1, 3, 16000])
def test_a_constant_gives_zero(kind, value, frames):
    windows = np.full((2, frames), value, np.float32)
    assert not Normalize(kind=kind)(windows).any()


# Pre-emphasis


def test_pre_emphasis_is_librosas_but_for_the_first_frame():
    librosa = pytest.importorskip("librosa")
    windows = noise(2, 999)
    expected = librosa.effects.preemphasis(windows, coef=0.97)
    np.testing.assert_allclose(
        PreEmphasis()(windows)[:, 1:], expected[:, 1:], atol=1e-7
    )


def test_a_stretch_of_a_stream_needs_one_frame_before():
    clip = noise(2, 1000)
    step = PreEmphasis()
    assert step.context(RATE) == 1
    whole = step.on_stream(clip, RATE)
    np.testing.assert_array_equal(
        step.on_stream(clip[:, 499:], RATE)[:, 1:], whole[:, 500:]
    )


# The analytic signal


@pytest.mark.parametrize("shape", [(3, 1), (2, 2), (3, 3), (2, 2, 999), (17, 1000)])
def test_analytic_is_scipys(shape):
    windows = noise(*shape)
    out = Analytic()(windows)
    expected = scipy.signal.hilbert(windows.astype(np.float64))
    np.testing.assert_allclose(out, expected, atol=5e-7 * abs(expected).max())
    np.testing.assert_array_equal(out.real, windows)


# Other rates


def resampled(windows, from_hz, to_hz):
    common = math.gcd(from_hz, to_hz)
    up, down = to_hz // common, from_hz // common
    return scipy.signal.resample_poly(
        windows.astype(np.float64), up, down, axis=-1, window=low_pass_taps(up, down)
    )


@pytest.mark.parametrize(
    ("from_hz", "to_hz"),
    [(16000, 8000), (44100, 16000), (16000, 48000), (48000, 44100), (16000, 11025),
     (16000, 500), (2, 3)],
)  # fmt: skip
@pytest.mark.parametrize("frames", [1, 2, 441, 5001])
def test_resample_is_scipys(from_hz, to_hz, frames):
    windows = noise(2, frames)
    out = Resample(rate_hz=to_hz)(windows, from_hz)
    expected = resampled(windows, from_hz, to_hz)
    assert out.shape == expected.shape == (2, -(-frames * to_hz // from_hz))
    np.testing.assert_allclose(out, expected, atol=1e-6 * abs(windows).max())


@given(
    up=st.integers(1, 30), down=st.integers(1, 30), frames=st.integers(1, 700),
    block=st.sampled_from([1, 2**12, 2**18]),
)  # fmt: skip
@settings(deadline=None, max_examples=60)
def test_resample_is_its_definition_in_any_block(up, down, frames, block):
    windows = noise(2, frames, seed=frames)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signals, "BLOCK_SAMPLES", block)
        out = Resample(rate_hz=1000 * up)(windows, 1000 * down)
    np.testing.assert_allclose(
        out, resampled(windows, down, up), atol=1e-6 * abs(windows).max()
    )


@pytest.mark.parametrize(("up", "down"), [(1, 2), (160, 441), (3, 1)])
def test_response_of_the_low_pass(up, down):
    response = abs(np.fft.rfft(low_pass_taps(up, down), 2**20))
    # In halves of the lower rate.
    frequency = np.arange(len(response)) / 2**19 * max(up, down)
    level = 20 * np.log10(np.maximum(response, 1e-9))
    assert abs(level[frequency < 0.9]).max() < 0.001
    assert level[frequency >= 1].max() < -99.5


def test_downsample_is_resample():
    windows = noise(2, 3, 1001)
    for ratio in (1, 2, 5, 100):
        out = Downsample(ratio=ratio)(windows, RATE)
        np.testing.assert_array_equal(
            out, Resample(rate_hz=RATE // ratio)(windows, RATE)
        )
        assert Downsample(ratio=ratio).rate_after(RATE) == RATE // ratio


def test_a_chain_knows_the_rate_after_it():
    chain = Chain((Resample(rate_hz=48000), Lufs()))
    windows = noise(2, 8000)
    np.testing.assert_array_equal(
        apply_transform(chain, windows, RATE),
        Lufs()(Resample(rate_hz=48000)(windows, RATE), 48000),
    )
    assert Chain((Downsample(ratio=2), Identity())).axes(RATE, 1000) == []


# Errors
