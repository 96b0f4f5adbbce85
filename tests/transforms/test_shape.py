"""Shapes of spectra and of signals, against formulas in float64, tones and librosa."""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.errors import RecipeError
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
from tests.raising import raises
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


def slow_magnitudes(window, n_fft, hop):
    j = np.arange(n_fft)
    hann = np.sin(np.pi * j / n_fft) ** 2
    fourier = np.exp(-2j * np.pi * np.outer(np.arange(n_fft // 2 + 1), j) / n_fft)
    starts = range(0, len(window) - n_fft + 1, hop)
    return [
        np.abs(fourier @ (hann * window[s : s + n_fft].astype(np.float64)))
        for s in starts
    ]


def slow_centroid(magnitudes, hz):
    return sum(hz * magnitudes) / sum(magnitudes)


def slow_bandwidth(magnitudes, hz):
    away = hz - slow_centroid(magnitudes, hz)
    return math.sqrt(sum(away**2 * magnitudes) / sum(magnitudes))


def slow_flatness(magnitudes, hz, floor=1e-10):
    power = np.maximum(magnitudes**2, floor)
    return math.exp(sum(np.log(power)) / len(power)) / (sum(power) / len(power))


def slow_rolloff(magnitudes, hz, share):
    total = sum(magnitudes)
    upto = 0.0
    for k, magnitude in enumerate(magnitudes):
        upto += magnitude
        if upto >= share * total:
            return hz[k]
    raise AssertionError


def slow_contrast(magnitudes, hz, bands, f_min, quantile):
    edges = [0.0, *(f_min * 2.0**b for b in range(bands)), hz[-1]]
    out = []
    for band in range(bands + 1):
        low, high = edges[band : band + 2]
        if band == bands:
            inside = [k for k, f in enumerate(hz) if f >= low]
        else:
            inside = [k for k, f in enumerate(hz) if low <= f <= high]
        if band > 0:
            inside = [inside[0] - 1, *inside]
        most = max(1, round(quantile * len(inside)))
        if band < bands:
            inside = inside[:-1]
        ordered = sorted(magnitudes[inside])
        valley, peak = np.mean(ordered[:most]), np.mean(ordered[-most:])
        out.append(10 * math.log10(max(peak, 1e-10) / max(valley, 1e-10)))
    return out


SPECTRAL = [
    (SpectralCentroid, slow_centroid, {}),
    (SpectralBandwidth, slow_bandwidth, {}),
    (SpectralFlatness, slow_flatness, {}),
    (SpectralRolloff, slow_rolloff, {"share": 0.85}),
    (SpectralRolloff, slow_rolloff, {"share": 0.1234}),
    (SpectralRolloff, slow_rolloff, {"share": 0.999}),
    (SpectralContrast, slow_contrast, {"bands": 6, "f_min": 200.0, "quantile": 0.02}),
    (SpectralContrast, slow_contrast, {"bands": 3, "f_min": 500.0, "quantile": 0.3}),
    (SpectralContrast, slow_contrast, {"bands": 1, "f_min": 777.7, "quantile": 0.99}),
]


@pytest.mark.parametrize(("cls", "slow", "parameters"), SPECTRAL)
@pytest.mark.parametrize(("n_fft", "hop", "shape"), [
    (512, 160, (3, 512 + 160 * 4 + 7)), (301, 999, (2, 301)), (64, 1, (1, 2, 70)),
    (129, 129, (2, 3, 129 * 2 - 1))])  # fmt: skip
def test_shapes_of_spectra_are_their_definitions(
    cls, slow, parameters, n_fft, hop, shape
):
    if cls is SpectralContrast and n_fft < 300:
        parameters = {**parameters, "bands": 2, "f_min": 600.0}
    windows = noise(*shape)
    hz = np.arange(n_fft // 2 + 1) * RATE / n_fft
    expected = [
        [slow(s, hz, **parameters) for s in slow_magnitudes(window, n_fft, hop)]
        for window in windows.reshape(-1, shape[-1])
    ]
    out = apply_transform(cls(n_fft=n_fft, hop=hop, **parameters), windows, RATE)
    assert out.dtype == np.float32
    expected = np.reshape(expected, (*shape[:-1], *np.shape(expected)[1:]))
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-4)


@given(
    st.integers(1, 40), st.integers(1, 50), st.integers(0, 100),
    st.sampled_from([(1,), (3,), (2, 2)]), st.integers(0, 99))  # fmt: skip
@settings(deadline=None, max_examples=60)
def test_shapes_of_signals_are_their_definitions(frame, hop, more, shape, seed):
    windows = noise(*shape, frame + more, seed=seed)
    windows[windows > 0.1] = 0
    starts = range(0, more + 1, hop)
    frames = np.stack([windows[..., s : s + frame] for s in starts], axis=-2)
    frames = frames.astype(np.float64)

    rms = np.sqrt(np.mean(frames**2, axis=-1))
    np.testing.assert_allclose(Rms(frame=frame, hop=hop)(windows), rms, rtol=2e-6)
    negative = frames < 0
    crossings = np.sum(negative[..., 1:] != negative[..., :-1], axis=-1)
    np.testing.assert_array_equal(
        ZeroCrossingRate(frame=frame, hop=hop)(windows),
        (crossings / frame).astype(np.float32),
    )


def test_rms_of_frames_at_every_sample_is_exact():
    windows = noise(2, 3000)
    out = Rms(frame=2048, hop=1)(windows)
    squares = np.lib.stride_tricks.sliding_window_view(windows, 2048, axis=-1)
    expected = np.sqrt(np.mean(squares.astype(np.float64) ** 2, axis=-1))
    np.testing.assert_allclose(out, expected, rtol=2e-6)


# The contract


@pytest.mark.parametrize("transform", ALL, ids=names)
def test_what_silence_gives(transform):
    out = apply_transform(transform, np.zeros((2, 3, 1024), np.float32), RATE)
    assert (out == (1 if isinstance(transform, SpectralFlatness) else 0)).all()


@pytest.mark.parametrize("transform", ALL, ids=names)
def test_the_axis_of_time(transform):
    length = getattr(transform, "n_fft", None) or transform.frame
    time = transform.axes(RATE, 4000)[0]
    assert time["name"] == "time"
    assert time["size"] == 1 + (4000 - length) // transform.hop
    assert time["step"] == transform.hop / RATE
    assert time["length"] == length / RATE
    assert len(transform.axes(RATE, 4000)) == (
        2 if isinstance(transform, SpectralContrast) else 1
    )


def test_the_axis_of_octaves():
    bands = SpectralContrast(bands=3).axes(RATE, 1024)[1]
    assert bands["values"] == [0, 200, 400, 800]
    assert bands["unit"] == "Hz"


# Closed forms


@pytest.mark.parametrize("k", [10, 100, 200])
def test_a_tone_on_a_bin(k):
    tone = np.sin(2 * np.pi * k * np.arange(512) / 512)[np.newaxis].astype(np.float32)
    hz = k * RATE / 512
    # Hann spreads it over three bins with magnitudes 1/2, 1, 1/2.
    np.testing.assert_allclose(SpectralCentroid(n_fft=512)(tone, RATE), hz, rtol=1e-4)
    assert SpectralRolloff(n_fft=512, share=0.5)(tone, RATE) == hz
    assert SpectralRolloff(n_fft=512, share=0.85)(tone, RATE) == hz + RATE / 512
    np.testing.assert_allclose(
        SpectralBandwidth(n_fft=512)(tone, RATE), RATE / 512 / math.sqrt(2), rtol=2e-2
    )
    assert SpectralFlatness(n_fft=512)(tone) < 1e-8


def test_the_bandwidth_of_three_bins_among_many():
    # From sums of squares, the variance would lose all its digits here.
    power = np.zeros((1, 2**15 + 1), np.float32)
    power[0, 30000:30003] = 0.25, 1, 0.25
    np.testing.assert_allclose(bandwidth_bins(power), math.sqrt(0.5), rtol=1e-4)


def test_the_faintest_bins_beside_loud_ones():
    # A float32 FFT would be rounded to the loud tone, and fill the valleys with that.
    tone = np.sin(2 * np.pi * 100 * np.arange(512) / 512)
    window = (tone + 1e-4 * noise(512)).astype(np.float32)
    hz = np.arange(257) * RATE / 512
    (magnitudes,) = slow_magnitudes(window, 512, 1)
    np.testing.assert_allclose(
        SpectralContrast(n_fft=512)(window[np.newaxis], RATE)[0, 0],
        slow_contrast(magnitudes, hz, 6, 200.0, 0.02),
        atol=1e-5,
    )
    np.testing.assert_allclose(
        SpectralFlatness(n_fft=512)(window[np.newaxis])[0, 0],
        slow_flatness(magnitudes, hz),
        rtol=2e-6,
    )


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


def test_an_impulse_is_flat():
    click = np.zeros((1, 512), np.float32)
    click[0, 256] = 1
    np.testing.assert_allclose(SpectralFlatness(n_fft=512)(click), 1, rtol=1e-6)
    np.testing.assert_allclose(
        SpectralCentroid(n_fft=512)(click, RATE), RATE / 4, rtol=1e-6
    )
    np.testing.assert_allclose(SpectralContrast(n_fft=512)(click, RATE), 0, atol=1e-5)


def test_zero_crossings_of_a_square_wave():
    square = np.resize(np.repeat(np.float32([1, -1]), 8), (1, 1024))
    out = ZeroCrossingRate(frame=256, hop=8)(square)
    assert (out == 31 / 256).all()


@pytest.mark.parametrize(("samples", "crossings"), [
    ([0, 0, 0, 0], 0), ([-0.0, 0, -0.0, 0], 0), ([1, 0, 1, 0], 0), ([-1, 0, -1, 0], 3),
    ([1e-11, -1e-11, 1e-11, -1e-9], 1)])  # fmt: skip
def test_zero_is_positive(samples, crossings):
    out = ZeroCrossingRate(frame=4)(np.array([samples], np.float32))
    assert out == crossings / 4


def test_onsets_are_rises_only():
    amplitude = np.repeat([0.01, 0.1, 0.1, 0.01], 512)
    window = np.tile(noise(512), 4) * amplitude
    onset = OnsetStrength(n_fft=512, hop=512, n_mels=20)
    out = onset(window[np.newaxis].astype(np.float32), RATE)[0]
    np.testing.assert_allclose(out, [0, 20, 0, 0], atol=1e-4)


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


@pytest.mark.parametrize(("cls", "parameters", "field"), [
    (SpectralCentroid, {"n_fft": 0}, "n_fft"),
    (SpectralFlatness, {"floor": 0}, "floor"),
    (SpectralRolloff, {"share": 0}, "share"),
    (SpectralRolloff, {"share": 1}, "share"),
    (SpectralContrast, {"bands": 0}, "bands"),
    (SpectralContrast, {"bands": 65}, "bands"),
    (SpectralContrast, {"f_min": 0}, "f_min"),
    (SpectralContrast, {"quantile": 1}, "quantile"),
    (SpectralContrast, {"floor": 1e31}, "floor"),
    (Rms, {"hop": -1}, "hop"),
    (ZeroCrossingRate, {"frame": 0}, "frame"),
    (OnsetStrength, {"n_mels": 0}, "n_mels"),
    (OnsetStrength, {"f_min": 9.0, "f_max": 8.0}, "f_max"),
    (OnsetStrength, {"floor": -1}, "floor"),
])  # fmt: skip
def test_values_out_of_range(cls, parameters, field):
    with pytest.raises(RecipeError) as caught:
        cls(**parameters)
    assert caught.value.args[0] == field


@pytest.mark.parametrize("transform", ALL, ids=names)
def test_a_frame_must_fit(transform):
    windows = noise(1, 499)
    field = "n_fft" if hasattr(transform, "n_fft") else "frame"
    with raises(RecipeError, field, naming="499"):
        apply_transform(transform, windows, RATE)
    with raises(RecipeError, field, naming="499"):
        transform.axes(RATE, 499)


@pytest.mark.parametrize(("parameters", "rate", "field", "value", "facts"), [
    ({}, 8000, "bands", 6, "6400"),
    ({"n_fft": 64}, 16000, "n_fft", 64, ()),
    ({"n_fft": 512, "f_min": 31.0}, 16000, "n_fft", 512, ()),
    ({"n_fft": 15, "f_min": 7990.0, "bands": 1}, 16000, "n_fft", 15, "7990"),
])  # fmt: skip
def test_contrast_of_empty_bands(parameters, rate, field, value, facts):
    transform = SpectralContrast(**parameters)
    with raises(RecipeError, field, value, naming=facts):
        transform(noise(1, 2000), rate)
    with raises(RecipeError, field, value, naming=facts):
        transform.axes(rate, 2000)
