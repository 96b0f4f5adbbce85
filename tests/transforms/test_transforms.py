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
from beam_pipeline.transforms.mel import LogMel, mel_filter_bank
from beam_pipeline.transforms.signals import Gain, PeakGain, RmsGain, _rms
from tests.raising import raises

RATE = 16000


def noise(*shape, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * 0.1).astype(np.float32)


def slow_filter_bank(rate, n_fft, n_mels, f_min, f_max):
    """Slaney's bank, one weight at a time."""

    def to_mel(hz):
        return (
            hz * 0.015 if hz < 1000 else 15 + 27 * math.log(hz / 1000) / math.log(6.4)
        )

    def to_hz(mels):
        return mels / 0.015 if mels < 15 else 1000 * 6.4 ** ((mels - 15) / 27)

    step = (to_mel(f_max) - to_mel(f_min)) / (n_mels + 1)
    edges = [to_hz(to_mel(f_min) + step * i) for i in range(n_mels + 2)]
    bank = np.zeros((n_mels, n_fft // 2 + 1))
    for band in range(n_mels):
        low, centre, high = edges[band : band + 3]
        for k in range(n_fft // 2 + 1):
            hz = k * rate / n_fft
            if low < hz <= centre:
                bank[band, k] = (hz - low) / (centre - low)
            elif centre < hz < high:
                bank[band, k] = (high - hz) / (high - centre)
        bank[band] *= 2 / (high - low)
    return bank


def slow_mel_power(window, rate, n_fft, hop, n_mels, f_min, f_max):
    """The defining sums, for one window of one channel, in float64."""
    j = np.arange(n_fft)
    hann = np.sin(np.pi * j / n_fft) ** 2
    fourier = np.exp(-2j * np.pi * np.outer(np.arange(n_fft // 2 + 1), j) / n_fft)
    bank = slow_filter_bank(rate, n_fft, n_mels, f_min, f_max)
    starts = range(0, len(window) - n_fft + 1, hop)
    frames = [hann * window[s : s + n_fft].astype(np.float64) for s in starts]
    return np.array([bank @ np.abs(fourier @ frame) ** 2 for frame in frames])


# Identity


@pytest.mark.parametrize("code", [-32768, -32767, -1, 0, 1, 12345, 32767])
def test_int16_gives_pcm_back_exactly(code):
    windows = np.full((1, 3), code, np.float32) / 32768
    out = Identity("int16")(windows)
    assert out.dtype == np.int16
    assert (out == code).all()


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


def test_float32_is_untouched():
    windows = noise(2, 3, 5)
    assert Identity()(windows) is windows


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


def test_channels_share_one_gain():
    windows = np.array([[[0.5, 0.0], [0.0, -0.25]]], np.float32)
    assert PeakGain()(windows).tolist() == [[[1.0, 0.0], [0.0, -0.5]]]


@pytest.mark.parametrize("transform", [PeakGain(), RmsGain()])
def test_silence_stays_silence(transform):
    windows = np.zeros((2, 5), np.float32)
    windows[1] = 0.5
    assert not transform(windows)[0].any()
    assert transform(windows)[1].all()


@pytest.mark.parametrize("transform", [PeakGain(), RmsGain()])
def test_the_faintest_sample_does_not_overflow(transform):
    windows = np.zeros((1, 16000), np.float32)
    windows[0, 7] = np.finfo(np.float32).smallest_subnormal
    assert np.isfinite(transform(windows)).all()
    assert transform(windows)[0, 7] > 0.1


# The filter bank


@pytest.mark.parametrize(
    ("rate", "n_fft", "n_mels", "f_min", "f_max"),
    [(16000, 1024, 64, 0, 8000), (44100, 2048, 128, 20, 20000),
     (8000, 255, 10, 300, 3400), (16000, 512, 1, 0, 8000), (16000, 1024, 8, 0, 900),
     (48000, 4096, 20, 1000, 24000)],
)  # fmt: skip
def test_bank_is_slaneys(rate, n_fft, n_mels, f_min, f_max):
    bank = mel_filter_bank(rate, n_fft, n_mels, f_min, f_max)
    assert bank.dtype == np.float32
    expected = slow_filter_bank(rate, n_fft, n_mels, f_min, f_max)
    np.testing.assert_allclose(bank, expected, rtol=1e-5, atol=1e-9)


@pytest.mark.parametrize("rate", [8000, 22050, 48000])
def test_bank_is_librosas(rate):
    librosa = pytest.importorskip("librosa")
    expected = librosa.filters.mel(sr=rate, n_fft=2048, n_mels=40, fmin=50)
    bank = mel_filter_bank(rate, 2048, 40, 50.0, rate / 2)
    np.testing.assert_allclose(bank, expected, rtol=1e-5, atol=1e-9)


# LogMel


@st.composite
def mel_cases(draw):
    n_fft = draw(st.integers(48, 300))
    hop = draw(st.integers(1, 400))
    frames = n_fft + draw(st.integers(0, 500))
    f_min = draw(st.sampled_from([0.0, 100.0, 777.7]))
    f_max = draw(st.sampled_from([None, 8000.0, 5000.0]))
    n_mels = draw(st.integers(1, 5))
    shape = draw(st.sampled_from([(1,), (2,), (5,), (2, 1), (1, 3)]))
    transform = LogMel(n_fft=n_fft, hop=hop, n_mels=n_mels, f_min=f_min, f_max=f_max)
    return transform, noise(*shape, frames, seed=draw(st.integers(0, 99)))


@given(mel_cases())
@settings(deadline=None, max_examples=60)
def test_log_mel_is_its_definition(case):
    transform, windows = case
    out = transform(windows, RATE)
    assert out.dtype == np.float32
    assert out.shape[:-2] == windows.shape[:-1]
    f_max = RATE / 2 if transform.f_max is None else transform.f_max
    for index in np.ndindex(windows.shape[:-1]):
        expected = slow_mel_power(
            windows[index], RATE, transform.n_fft, transform.hop, transform.n_mels,
            transform.f_min, f_max,
        )  # fmt: skip
        assert out[index].shape == expected.shape
        # A difference of logarithms is a relative difference of powers.
        np.testing.assert_allclose(out[index], np.log(expected), atol=1e-5, rtol=2e-7)


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


@pytest.mark.parametrize("hz", [250.0, 1000.0, 3000.0, 7000.0])
def test_a_tone_peaks_in_the_nearest_band(hz):
    tone = np.sin(2 * np.pi * hz * np.arange(RATE) / RATE).astype(np.float32)
    transform = LogMel(n_mels=40)
    centres = transform.axes(RATE, RATE)[1]["values"]
    nearest = int(np.argmin(np.abs(np.array(centres) - hz)))
    out = transform(tone[np.newaxis], RATE)[0]
    assert (out.argmax(axis=-1) == nearest).all()


@pytest.mark.parametrize(
    ("frames", "hop", "count"),
    [(64, 16, 1), (65, 16, 1), (79, 16, 1), (80, 16, 2), (64, 1, 1), (65, 1, 2),
     (200, 100, 2), (163, 100, 1), (164, 100, 2), (64, 1000, 1)],
)  # fmt: skip
def test_number_of_time_frames(frames, hop, count):
    transform = LogMel(n_fft=64, hop=hop, n_mels=4)
    for shape in ((1, frames), (0, frames), (3, 8, frames), (0, 2, frames)):
        out = transform(np.zeros(shape, np.float32), RATE)
        assert out.shape == (*shape[:-1], count, 4)
    assert transform.axes(RATE, frames)[0]["size"] == count


@given(floor=st.floats(1e-30, 1e3), log=st.sampled_from(["ln", "db"]))
@settings(deadline=None, max_examples=30)
def test_silence_is_exactly_the_floor(floor, log):
    out = LogMel(n_fft=64, hop=7, n_mels=4, floor=floor, log=log)(
        np.zeros((2, 400), np.float32), RATE
    )
    expected = math.log(floor) * (1 if log == "ln" else 10 / math.log(10))
    assert (out == np.float32(expected)).all()


def test_silence_in_db_is_a_round_number():
    out = LogMel(log="db")(np.zeros((1, 2000), np.float32), RATE)
    assert np.unique(out).tolist() == [-100.0]


def test_floor_leaves_what_is_above_it():
    windows = noise(1, 4000)
    free = LogMel()(windows, RATE)
    floor = float(np.exp(np.median(free)))
    np.testing.assert_array_equal(
        LogMel(floor=floor)(windows, RATE),
        np.maximum(free, np.float32(math.log(floor))),
    )


def test_axes_say_where_a_click_and_a_tone_are():
    transform = LogMel(n_fft=512, hop=128, n_mels=30, f_min=100, f_max=6000.0)
    time, band = transform.axes(RATE, 4000)
    assert time == {
        "name": "time", "unit": "s", "size": 28, "start": 0.0, "step": 0.008,
        "length": 0.032,
    }  # fmt: skip
    assert (band["name"], band["unit"], band["size"]) == ("mel_band", "Hz", 30)
    assert band["values"] == sorted(band["values"])
    assert 100 < band["values"][0] < band["values"][-1] < 6000
    click = np.zeros((1, 4000), np.float32)
    click[0, 2000] = 1
    heard = np.flatnonzero(transform(click, RATE)[0].max(axis=-1) > -20)
    spans = [t for t in range(28) if t * 128 < 2000 < t * 128 + 512]
    assert heard.tolist() == spans


# The same bytes in any grouping


@pytest.mark.parametrize("n", [1, 2, 3, 16, 17])
def test_default_log_mel_has_the_same_bytes_in_any_block(n):
    windows = noise(50, 16000)
    whole = LogMel()(windows, RATE)
    for start in (0, 1, 33):
        part = LogMel()(windows[start : start + n], RATE)
        assert part.tobytes() == whole[start : start + n].tobytes()


def test_rms_adds_up_in_one_order_whatever_the_layout():
    for seed in range(20):
        window = noise(7, 301, seed=seed)
        assert _rms(np.asfortranarray(window)) == _rms(window)


# Values that are refused


@pytest.mark.parametrize(
    ("transform", "frames", "field", "value", "facts"),
    [
        (LogMel(n_fft=1024), 1023, "n_fft", 1024, "1023"),
        (LogMel(f_max=8001), 2000, "f_max", 8001.0, ["8000", "16000"]),
        (LogMel(f_min=8000), 2000, "f_min", 8000.0, ()),
        (LogMel(n_fft=64, n_mels=64), 2000, "n_mels", 64, ()),
    ],
)  # fmt: skip
@pytest.mark.parametrize("n", [0, 2])
def test_refused_when_called(transform, frames, field, value, facts, n):
    with raises(RecipeError, field, value, naming=facts):
        transform(np.zeros((n, frames), np.float32), RATE)


def test_axes_refuse_what_a_call_refuses():
    with raises(RecipeError, "n_fft", 1024, naming=10):
        LogMel().axes(RATE, 10)


def test_an_empty_band_is_named_with_a_way_out():
    empty = (slow_filter_bank(RATE, 64, 40, 0, 8000) == 0).all(axis=1).sum()
    assert empty > 0
    with raises(RecipeError, "n_mels", 40, naming=[empty, "n_fft", 64, 16000, "250.0"]):
        mel_filter_bank(RATE, 64, 40, 0.0, 8000.0)


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


def test_axes_of_a_chain():
    log_mel = LogMel(n_mels=20)
    chain = Chain((PeakGain(), log_mel, doubled))
    assert chain.axes(RATE, 4000) == log_mel.axes(RATE, 4000)
    assert Chain((doubled, doubled)).axes(RATE, 4000) == []


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
