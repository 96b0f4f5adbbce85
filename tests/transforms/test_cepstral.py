"""Cepstra, PCEN and slopes, against formulas in float64, closed forms and librosa."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import Chain
from beam_pipeline.transforms.cepstral import Delta, Mfcc, Pcen, smoothing_share
from beam_pipeline.transforms.mel import LogMel, Mel, mel_filter_bank
from tests.raising import raises
from tests.transform_checks import check_contract, noise

RATE = 16000
SMALL = {"n_fft": 512, "hop": 200, "n_mels": 20}
ALL = [
    Mfcc(**SMALL, n_mfcc=13, lifter=22),
    Pcen(**SMALL),
    Chain((Mfcc(**SMALL), Delta(width=5))),
    Chain((LogMel(**SMALL), Delta(width=7, order=2), Delta(width=3))),
]


def names(transform):
    if isinstance(transform, Chain):
        return "|".join(map(names, transform.steps))
    return type(transform).__name__


# Oracles: the formulas, for one window of one channel, in float64


def slow_mel_power(window, n_fft, hop, n_mels):
    j = np.arange(n_fft)
    hann = np.sin(np.pi * j / n_fft) ** 2
    fourier = np.exp(-2j * np.pi * np.outer(np.arange(n_fft // 2 + 1), j) / n_fft)
    bank = mel_filter_bank(RATE, n_fft, n_mels, 0.0, RATE / 2).astype(np.float64)
    starts = range(0, len(window) - n_fft + 1, hop)
    frames = [hann * window[s : s + n_fft].astype(np.float64) for s in starts]
    return np.array([bank @ np.abs(fourier @ frame) ** 2 for frame in frames])


def slow_mfcc(power, n_mfcc, lifter):
    n_mels = power.shape[1]
    levels = 10 * np.log10(np.maximum(power, 1e-10))
    out = np.zeros((len(power), n_mfcc))
    for q in range(n_mfcc):
        scale = math.sqrt((1 if q == 0 else 2) / n_mels)
        lift = 1 + lifter / 2 * math.sin(math.pi * (q + 1) / lifter) if lifter else 1
        for m in range(n_mels):
            cosine = math.cos(math.pi * q * (2 * m + 1) / (2 * n_mels))
            out[:, q] += lift * scale * cosine * levels[:, m]
    return out


def slow_pcen(power, hop, scale, gain, bias, root, time_constant_s, eps):
    constant = time_constant_s * RATE / hop
    b = (math.sqrt(1 + 4 * constant**2) - 1) / (2 * constant**2)
    level = np.ones(power.shape[1])
    out = []
    for energy in power * scale:
        level = (1 - b) * level + b * energy
        out.append((energy / (eps + level) ** gain + bias) ** root - bias**root)
    return np.array(out)


def slow_slope(series, order):
    """The derivative of the nearest polynomial, in the middle of some frames."""
    half = len(series) // 2
    polynomial = np.polyfit(np.arange(-half, half + 1), series, order)
    return polynomial[0] * math.factorial(order)


@pytest.mark.parametrize(("n_fft", "hop", "n_mels", "shape"), [
    (512, 160, 20, (3, 512 + 160 * 4 + 7)), (301, 999, 12, (2, 301)),
    (256, 1, 10, (1, 2, 260)), (129, 129, 1, (2, 3, 129 * 3 - 1))])  # fmt: skip
@pytest.mark.parametrize("lifter", [0, 22, 7.5])
def test_mfcc_is_its_definition(n_fft, hop, n_mels, shape, lifter):
    windows = noise(*shape)
    for n_mfcc in {1, n_mels // 2 or 1, n_mels}:
        transform = Mfcc(
            n_fft=n_fft, hop=hop, n_mels=n_mels, n_mfcc=n_mfcc, lifter=lifter
        )
        expected = [
            slow_mfcc(slow_mel_power(window, n_fft, hop, n_mels), n_mfcc, lifter)
            for window in windows.reshape(-1, shape[-1])
        ]
        expected = np.reshape(expected, (*shape[:-1], *np.shape(expected)[1:]))
        out = transform(windows, RATE)
        assert out.dtype == np.float32
        tolerance = 1e-6 * np.abs(expected).max()
        np.testing.assert_allclose(out, expected, rtol=1e-6, atol=tolerance)


@pytest.mark.parametrize("parameters", [
    {}, {"scale": 1.0, "eps": 1e-3}, {"gain": 0.0, "power": 1.0},
    {"gain": 1.0, "time_constant_s": 0.06}, {"time_constant_s": 1e-6},
    {"time_constant_s": 1e6, "scale": 1.0}, {"power": 0.25, "bias": 10.0},
    {"scale": 1e-6, "bias": 0.5}])  # fmt: skip
@pytest.mark.parametrize("shape", [(2, 512), (3, 4000), (2, 3, 1200)])
def test_pcen_is_its_definition(parameters, shape):
    windows = noise(*shape) * np.linspace(0, 1, shape[-1], dtype=np.float32)
    values = {"scale": 2.0**31, "gain": 0.98, "bias": 2.0, "power": 0.5,
              "time_constant_s": 0.4, "eps": 1e-6} | parameters  # fmt: skip
    expected = [
        slow_pcen(slow_mel_power(window, 512, 200, 20), 200, *values.values())
        for window in windows.reshape(-1, shape[-1])
    ]
    expected = np.reshape(expected, (*shape[:-1], *np.shape(expected)[1:]))
    out = Pcen(**SMALL, **parameters)(windows, RATE)
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, expected, rtol=5e-6, atol=1e-15)


def test_pcen_without_bias_is_the_limit():
    windows = noise(2, 2000)
    out = Pcen(**SMALL, bias=0.0)(windows, RATE)
    power = slow_mel_power(windows[0], 512, 200, 20)
    expected = slow_pcen(power, 200, 2.0**31, 0.98, 0.0, 0.5, 0.4, 1e-6)
    np.testing.assert_allclose(out[0], expected, rtol=5e-6)


@pytest.mark.parametrize("constant", [1e-9, 0.1, 1.0, 25.0, 1e9])
def test_the_share_of_a_new_frame_solves_its_equation(constant):
    share = smoothing_share(constant)
    assert 0 < share <= 1
    # b**2 T**2 + b - 1 = 0
    assert (share * constant) ** 2 + share == pytest.approx(1, rel=1e-12)


@given(
    st.sampled_from([3, 5, 9, 15]), st.integers(1, 4), st.integers(0, 20),
    st.sampled_from([(1, 1), (3, 4), (2, 2, 3)]), st.integers(0, 99))  # fmt: skip
@settings(deadline=None, max_examples=80)
def test_delta_is_its_definition(width, order, more, shape, seed):
    order = min(order, width - 1)
    *rest, bins = shape
    features = noise(*rest, width + more, bins, seed=seed) + 5
    out = Delta(width=width, order=order)(features)
    assert out.dtype == np.float32
    assert out.shape == features.shape
    inner = [
        np.apply_along_axis(
            slow_slope, -2, features[..., t : t + width, :].astype(np.float64), order
        )
        for t in range(more + 1)
    ]
    half = width // 2
    expected = np.stack([inner[0]] * half + inner + [inner[-1]] * half, axis=-2)
    np.testing.assert_allclose(out, expected, rtol=1e-6, atol=1e-11)


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


@pytest.mark.parametrize("transform", ALL[:2], ids=names)
@pytest.mark.parametrize("frames", [512, 513])
def test_contract_of_one_frame(transform, frames):
    check_contract(transform, frames=frames)


def test_what_silence_gives():
    silence = np.zeros((2, 3, 2000), np.float32)
    cepstra = Mfcc(**SMALL)(silence, RATE)
    np.testing.assert_allclose(cepstra[..., 0], -100 * math.sqrt(20), rtol=1e-6)
    np.testing.assert_allclose(cepstra[..., 1:], 0, atol=1e-3)
    assert not Pcen(**SMALL)(silence, RATE).any()
    assert not Pcen(**SMALL, bias=0.0)(silence, RATE).any()
    assert not Chain((Mfcc(**SMALL), Delta(width=5)))(silence, RATE).any()


def test_all_coefficients_keep_the_energy():
    windows = noise(2, 2000)
    levels = LogMel(**SMALL, log="db")(windows, RATE)
    cepstra = Mfcc(**SMALL, n_mfcc=20)(windows, RATE)
    energy = (levels.astype(np.float64) ** 2).sum(axis=-1)
    np.testing.assert_allclose((cepstra**2).sum(axis=-1), energy, rtol=1e-5)


def test_axes():
    time, coefficients = Mfcc(**SMALL, n_mfcc=13).axes(RATE, 2000)
    assert time == LogMel(**SMALL).axes(RATE, 2000)[0]
    assert coefficients["size"] == 13
    assert Pcen(**SMALL).axes(RATE, 2000) == LogMel(**SMALL).axes(RATE, 2000)
    # Slopes keep the axes of what they are of.
    chain = Chain((Mfcc(**SMALL, n_mfcc=13), Delta()))
    assert chain.axes(RATE, 4000) == Mfcc(**SMALL, n_mfcc=13).axes(RATE, 4000)


@pytest.mark.parametrize("cls", [Mfcc, Pcen])
def test_numbers_of_other_kinds_become_plain(cls):
    transform = cls(n_fft=np.int64(512), f_min=np.float32(50), f_max=4000)
    assert transform == cls(n_fft=512, f_min=50.0, f_max=4000.0)
    assert type(transform.n_fft) is int
    assert type(transform.f_min) is type(transform.f_max) is float


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


@pytest.mark.parametrize("parameters", [{}, {"gain": 0.8, "bias": 10, "power": 0.25}])
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


@pytest.mark.parametrize(("cls", "parameters", "field"), [
    (Mfcc, {"n_mfcc": 0}, "n_mfcc"),
    (Mfcc, {"n_mfcc": 65}, "n_mfcc"),
    (Mfcc, {"n_mels": 0}, "n_mels"),
    (Mfcc, {"lifter": -1}, "lifter"),
    (Mfcc, {"floor": 0}, "floor"),
    (Pcen, {"f_min": -1}, "f_min"),
    (Pcen, {"scale": 0}, "scale"),
    (Pcen, {"gain": 1.1}, "gain"),
    (Pcen, {"bias": -1}, "bias"),
    (Pcen, {"power": 0}, "power"),
    (Pcen, {"time_constant_s": 0}, "time_constant_s"),
    (Delta, {"width": 1}, "width"),
    (Delta, {"width": 8}, "width"),
    (Delta, {"width": 1001}, "width"),
    (Delta, {"order": 0}, "order"),
    (Delta, {"order": 5}, "order"),
    (Delta, {"width": 3, "order": 3}, "order"),
])  # fmt: skip
def test_values_out_of_range(cls, parameters, field):
    with pytest.raises(RecipeError) as caught:
        cls(**parameters)
    assert caught.value.args[0] == field


@pytest.mark.parametrize("transform", ALL[:2], ids=names)
def test_a_frame_must_fit(transform):
    with raises(RecipeError, "n_fft", 512, naming="511"):
        transform(noise(1, 511), RATE)
    with raises(RecipeError, "n_fft", 512, naming="511"):
        transform.axes(RATE, 511)


@pytest.mark.parametrize("cls", [Mfcc, Pcen])
def test_bands_must_lie_below_half_the_rate(cls):
    with raises(RecipeError, "f_max", 9000.0, naming="8000"):
        cls(f_max=9000)(noise(1, 2000), RATE)


def test_delta_needs_frames():
    with raises(RecipeError, "width", 9, naming="8"):
        Delta()(noise(1, 8, 3))
    with raises(RecipeError, "feature", (2, 4000)):
        Delta()(noise(2, 4000))
