"""Steps from samples to samples, chains of steps, and grey levels, at their edges."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pytest
import scipy.signal
from hypothesis import example, given, settings
from hypothesis import strategies as st

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms import signals
from beam_pipeline.transforms.base import (
    AsImage,
    Chain,
    Identity,
    apply_counting,
    apply_transform,
    needs_sample_rate,
)
from beam_pipeline.transforms.descriptors import Lufs
from beam_pipeline.transforms.mel import LogMel
from beam_pipeline.transforms.signals import (
    BandPass,
    Downsample,
    Gain,
    HighPass,
    LowPass,
    Normalize,
    PeakGain,
    Resample,
    RmsGain,
    low_pass_taps,
)
from tests.raising import raises
from tests.transform_checks import noise

RATE = 16000


# int16


def test_int16_holds_every_pcm_value_rounds_to_even_and_clips():
    codes = np.arange(-32768, 32768, dtype=np.int16)[np.newaxis]
    np.testing.assert_array_equal(
        Identity("int16")(codes.astype(np.float32) / 32768), codes
    )
    windows = np.array([[0.5, 1.5, -0.5, 40000, -40000]], np.float32) / 32768
    assert Identity("int16")(windows).tolist() == [[0, 2, 0, 32767, -32768]]
    for value in (np.nan, np.inf):
        with raises(RecipeError, "dtype", "int16", naming="float32"):
            Identity("int16")(np.array([[0, value]] * 40, np.float32))


@pytest.mark.parametrize(("sample", "clipped"), [
    (0.0, 0), (1 - 2.0**-15, 0), (1 - 2.0**-16 - 2.0**-24, 0),
    (1 - 2.0**-16, 1),  # a half, rounded to the even 32768
    (-1 - 2.0**-16, 0),  # a half, rounded to the even -32768
    (1.0, 1), (-1.0, 0), (-1 - 2.0**-15, 1), (np.inf, 1), (-np.inf, 1)])  # fmt: skip
def test_int16_counts_what_it_clips(sample, clipped):
    windows = np.full((2, 3), 0.5, np.float32)
    windows[1, 2] = sample
    assert Identity("int16").count_clipped(windows) == clipped
    assert Identity().count_clipped(windows) == 0
    assert Identity("int16").count_clipped(windows[:0]) == 0


# Levels


@pytest.mark.parametrize("transform", [PeakGain(), RmsGain()])
def test_the_faintest_sample_does_not_overflow(transform):
    windows = np.zeros((1, 16000), np.float32)
    windows[0, 7] = np.finfo(np.float32).smallest_subnormal
    assert np.isfinite(transform(windows)).all()
    assert transform(windows)[0, 7] > 0.1


@pytest.mark.parametrize("kind", ["mean", "median", "minmax", "standard"])
def test_a_constant_gives_zero(kind):
    for value in (0.0, 0.1, -3.3e38, 1e-45):
        for frames in (1, 3, 16000):
            windows = np.full((2, frames), value, np.float32)
            assert not Normalize(kind=kind)(windows).any()


# Filters

FILTERS = [LowPass(cutoff_hz=900), HighPass(cutoff_hz=50, order=3),
           BandPass(low_hz=100, high_hz=300, order=2), HighPass(cutoff_hz=5, order=1),
           LowPass(cutoff_hz=50, order=12), LowPass(cutoff_hz=7990)]  # fmt: skip


def scipys(step):
    edges = [getattr(step, name) for name in step.EDGES]
    return scipy.signal.butter(
        step.order, edges if len(edges) == 2 else edges[0], step.KIND, fs=RATE,
        output="sos",
    )  # fmt: skip


@pytest.mark.parametrize("step", FILTERS)
def test_a_stretch_with_its_context_is_the_uninterrupted_filter(step):
    context = step.context(RATE)
    impulse = np.zeros(4 * context)
    impulse[0] = 1
    response = abs(scipy.signal.sosfilt(scipys(step), impulse))
    assert response[context:].sum() <= 1e-9 < response[context - 1 :].sum()
    start = context + 5000
    clip = noise(2, start + 3000) + np.float32(0.3)  # an offset is the worst case
    whole = scipy.signal.sosfilt(scipys(step), clip.astype(np.float64))
    part = step.on_stream(clip[:, start - context :], RATE)[:, context:]
    np.testing.assert_allclose(part, whole[:, start:], atol=1e-8, rtol=1e-7)


def test_filters_that_are_not_possible_on_streams(monkeypatch):
    with raises(RecipeError, "cutoff_hz", 0.1):
        LowPass(cutoff_hz=0.1).on_stream(noise(1, 9), RATE)
    with raises(RecipeError, "low_hz", 1000.0, naming="4194304"):
        BandPass(low_hz=1000, high_hz=1000.2, order=16).context(RATE)
    step = LowPass(cutoff_hz=1000)
    frames = step.context(RATE)
    signals.butterworth_context.cache_clear()
    monkeypatch.setattr(signals, "MAX_CONTEXT", frames - 1)
    with raises(RecipeError, "cutoff_hz", 1000.0, naming=145):
        step.context(RATE)
    monkeypatch.setattr(signals, "MAX_CONTEXT", frames)
    assert step.context(RATE) == frames


# Other rates


@given(
    up=st.integers(1, 30), down=st.integers(1, 30), frames=st.integers(1, 700),
    block=st.sampled_from([1, 2**12, 2**18]),
)  # fmt: skip
@example(up=441, down=160, frames=700, block=2**18)
@example(up=441, down=640, frames=700, block=2**18)
@settings(max_examples=60)
def test_resample_is_scipys_in_any_block(up, down, frames, block):
    windows = noise(2, frames, seed=frames)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signals, "BLOCK_SAMPLES", block)
        out = Resample(rate_hz=1000 * up)(windows, 1000 * down)
    common = np.gcd(up, down)
    up, down = up // common, down // common
    expected = scipy.signal.resample_poly(
        windows.astype(np.float64), up, down, axis=-1, window=low_pass_taps(up, down)
    )
    np.testing.assert_allclose(out, expected, atol=1e-6 * abs(windows).max())
    if up == 1:
        made = Downsample(ratio=down)(windows, 1000 * down)
        np.testing.assert_allclose(made, expected, atol=1e-6 * abs(windows).max())


def test_a_chain_knows_the_rate_after_it():
    chain = Chain((Resample(rate_hz=48000), Lufs()))
    windows = noise(2, 8000)
    np.testing.assert_array_equal(
        apply_transform(chain, windows, RATE),
        Lufs()(Resample(rate_hz=48000)(windows, RATE), 48000),
    )
    assert Chain((Downsample(ratio=2), Identity())).axes(RATE, 1000) == []


# Chains


def doubled(windows):
    return windows * 2


def seconds(windows, sample_rate_hz):
    return np.full(len(windows), windows.shape[-1] / sample_rate_hz)


@dataclass(frozen=True)
class Pitch:
    def __call__(self, windows, sample_rate_hz):
        return seconds(windows, sample_rate_hz)


@pytest.mark.parametrize(
    ("transform", "expected"),
    [(doubled, False), (seconds, True), (Pitch(), True), (LogMel(), True),
     (PeakGain(), False), (np.abs, False), (Chain((doubled, PeakGain())), False),
     (Chain((doubled, Pitch())), True)],
)  # fmt: skip
def test_the_rate_goes_to_those_that_take_it(transform, expected):
    assert needs_sample_rate(transform) is expected
    made = apply_transform(transform, noise(3, 2000), 500)
    if expected and not isinstance(transform, LogMel):
        assert made.tolist() == [4.0, 4.0, 4.0]


def test_a_chain_applies_from_left_to_right_and_splices_inner_chains():
    windows = noise(2, 2000)
    chain = Chain((doubled, PeakGain(-1.0), LogMel(n_mels=20)))
    expected = LogMel(n_mels=20)(PeakGain(-1.0)(doubled(windows)), RATE)
    np.testing.assert_array_equal(apply_transform(chain, windows, RATE), expected)
    nested = Chain((Chain((doubled, PeakGain())), Identity()))
    assert nested == Chain((doubled, PeakGain(), Identity()))


def test_each_step_of_a_chain_counts_what_it_clips():
    windows = noise(3, 100) / 0.05
    chain = Chain((Gain(gain_db=6), Identity("int16")))
    found, clipped = apply_counting(chain, windows, RATE)
    loud = Gain(gain_db=6)(windows)
    assert found.tobytes() == apply_transform(chain, windows, RATE).tobytes()
    assert clipped == np.sum((loud > 1 - 2.0**-16) | (loud < -1 - 2.0**-16)) > 0
    assert apply_counting(Gain(gain_db=6), windows, RATE)[1] == 0


# Grey levels


@given(
    st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=20),
    st.integers(-40, 39),
    st.integers(1, 40),
)
def test_grey_levels_are_the_equations_in_fractions(values, low, width):
    step = AsImage(low=low, high=low + width)
    windows = np.array([values], np.float32)
    levels = [255 * (Fraction(x) - low) / width for x in values]
    half = Fraction(1, 10**9)  # float64 may round a level at a half either way
    for found, level in zip(step(windows)[0].tolist(), levels, strict=True):
        is_near_half = abs(level % 1 - Fraction(1, 2)) < half
        assert abs(found - min(max(round(level), 0), 255)) <= is_near_half
    least = sum(x < -Fraction(1, 2) - half or x > 255.5 + half for x in levels)
    most = sum(x < -Fraction(1, 2) + half or x >= 255.5 - half for x in levels)
    assert least <= step.count_clipped(windows) <= most
