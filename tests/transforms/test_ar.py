"""Autoregressive models, against their definitions, scipy and numpy."""

import numpy as np
import pytest
import scipy.linalg
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.transforms import ar
from beam_pipeline.transforms.ar import (
    METHODS,
    ArSpectrum,
    LinearPrediction,
    burg,
    yule_walker,
)
from tests.transform_checks import noise

RATE = 16000
METHOD_NAMES = sorted(METHODS)

# A stable recursion: two resonances.
POLES = np.array([0.95 * np.exp(0.4j), 0.9 * np.exp(1.5j)])
RECURSION = np.poly(np.concatenate([POLES, POLES.conj()])).real


def coloured(*shape, seed=0):
    """Noise that the recursion has coloured."""
    return scipy.signal.lfilter([1], RECURSION, noise(*shape, seed=seed)).astype(
        np.float32
    )


# Burg


def slow_burg(x, order):
    """The recursion on the errors, in extended precision."""
    x = x.astype(np.longdouble)
    a, reflection, variance = np.ones(1, np.longdouble), [], np.mean(x**2)
    forward, backward = x[1:], x[:-1]
    for _ in range(order):
        k = -2 * np.sum(forward * backward) / np.sum(forward**2 + backward**2)
        forward, backward = (
            (forward + k * backward)[1:],
            (backward + k * forward)[:-1],
        )
        a = np.append(a, 0) + k * np.append(a, 0)[::-1]
        variance *= 1 - k**2
        reflection.append(k)
    return a, np.array(reflection), variance


@pytest.mark.parametrize("level", [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 0])
@pytest.mark.parametrize("order", [1, 4, 16, 48])
def test_burg_keeps_its_digits_whatever_the_noise_under_tones(level, order):
    t = np.arange(3000)
    tones = sum(np.sin(w * t + w) for w in (0.02, 0.17, 0.8, 1.9))
    x = (0.2 * tones + level * noise(2, 3000)).astype(np.float32)
    model, features = burg(x, order), LinearPrediction(order=order)(x)
    for i in range(2):
        a, reflection, variance = slow_burg(x[i], order)
        scale = float(np.abs(a).max())
        assert np.abs(model.coefficients[i] - a).max() < 3e-8 * scale
        assert np.abs(features[i] - a[1:]).max() < 9e-8 * scale  # as float32
        assert np.abs(model.reflection[i] - reflection).max() < 3e-8
        assert model.variance[i] == pytest.approx(float(variance), rel=1e-6)


@given(st.integers(1, 20), st.integers(1, 60), st.floats(-30, 30), st.integers(0, 999))
@settings(max_examples=150)
def test_burg_is_stable_and_has_no_unit(order, more, exponent, seed):
    rng = np.random.default_rng(seed)
    kind = rng.integers(0, 4)
    x = (
        rng.standard_normal(order + more),
        rng.integers(-1, 2, order + more),
        np.cumsum(np.cumsum(rng.standard_normal(order + more))),
        np.sin(rng.uniform(0, np.pi) * np.arange(order + more)),
    )[kind].astype(np.float32)[np.newaxis]
    model = burg(x, order)
    assert (np.abs(model.reflection) < 1).all()
    assert np.isfinite(model.coefficients).all()
    assert model.variance >= 0
    scaled = burg(np.ldexp(x, int(exponent)), order)
    np.testing.assert_array_equal(scaled.coefficients, model.coefficients)


# The autocorrelation, and the method with it


@pytest.mark.parametrize(
    ("frames", "order"),
    [(2, 1), (8, 7), (9, 8), (17, 16), (129, 9), (500, 64), (16384, 7), (16385, 8),
     (40001, 16)],
)  # fmt: skip
def test_yule_walker_solves_its_equations(frames, order):
    x = coloured(3, frames)
    model = yule_walker(x, order)
    for i in range(3):
        exact = x[i].astype(np.longdouble)
        lags = [exact[lag:] @ exact[: frames - lag] for lag in range(order + 1)]
        r = np.array(lags, float) / frames
        r[0] *= 1 + ar.WHITE_NOISE
        assert model.power[i] == pytest.approx(r[0], rel=1e-13)
        solved = scipy.linalg.solve_toeplitz(r[:-1], -r[1:])
        np.testing.assert_allclose(
            model.coefficients[i, 1:], solved, rtol=0, atol=1e-11
        )
        np.testing.assert_allclose(model.variance[i], r[0] + solved @ r[1:], rtol=1e-10)
    assert (np.abs(model.reflection) < 1).all()


# What holds for all


@pytest.mark.parametrize("method", METHOD_NAMES)
def test_degenerate_signals_have_finite_models(method):
    t = np.arange(640)
    rng = np.random.default_rng(0)
    signals = [
        0 * t, 0 * t + 0.5, (-1.0) ** t, np.sin(0.3 * t),
        np.sign(np.sin(0.1 * t + 0.05)), t == 0, t == t[-1], t / 640,
        1e-45 * np.rint(2 * rng.standard_normal(640)), 3e38 * np.sin(0.7 * t),
    ]  # fmt: skip
    windows = np.array(signals).astype(np.float32)
    for order in (1, 2, 16, 128):
        for output in ("coefficients", "reflection", "gain"):
            step = LinearPrediction(order=order, method=method, output=output)
            features = step(windows)
            assert np.isfinite(features).all()
            assert not features[0].any()
            assert output != "reflection" or (np.abs(features) < 1).all()
        spectrum = ArSpectrum(order=order, method=method)(windows, RATE)
        assert np.isfinite(spectrum).all()
        assert (spectrum[0] == -160).all()


# The transforms


@pytest.mark.parametrize("taper", ["hann", "hamming"])
def test_tapers(taper):
    x = coloured(2, 400)
    weights = scipy.signal.get_window(taper, 400)
    tapered = x * weights
    transform = {"method": "yule_walker", "taper": taper}
    np.testing.assert_allclose(
        LinearPrediction(**transform)(x),
        yule_walker(tapered, 16).coefficients[:, 1:],
        atol=1e-5,
    )
    np.testing.assert_allclose(
        LinearPrediction(**transform, output="gain")(x),
        np.sqrt(yule_walker(tapered, 16).variance / np.mean(weights**2)),
        rtol=1e-5,
    )


@pytest.mark.parametrize("n_fft", [17, 512, 513])
@pytest.mark.parametrize("log", ["db", "ln"])
def test_spectrum_is_the_filters_response(n_fft, log):
    x = coloured(2, 1000)
    out = ArSpectrum(n_fft=n_fft, log=log)(x, RATE)
    model = burg(x, 16)
    bins = np.arange(n_fft // 2 + 1)
    delays = np.exp(-2j * np.pi * np.outer(bins, np.arange(17)) / n_fft)
    for i in range(2):
        response = np.abs(delays @ model.coefficients[i]) ** 2
        power = 2 * model.variance[i] / RATE / response
        power[(2 * bins) % n_fft == 0] /= 2
        scale = 10 / np.log(10) if log == "db" else 1
        np.testing.assert_allclose(out[i], scale * np.log(power), rtol=1e-6, atol=1e-5)
