"""Normalised means and variances, against Kaldi's loop in float64."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.transforms.mel import Cmvn


def spectra(*shape, seed=0):
    """Spectra whose level is far from 0, as decibels are."""
    rng = np.random.default_rng(seed)
    return (rng.normal(-40, 9, shape)).astype(np.float32)


def kaldi_sliding(x, window, min_window, center, norm_vars):
    """Kaldi's loop over frames, of one spectrum (t, bins), in float64."""
    x = x.astype(np.float64)
    out = np.empty_like(x)
    count = len(x)
    for t in range(count):
        if center:
            start = t - window // 2
            stop = start + window
        else:
            start, stop = t - window, t + 1
        if start < 0:
            stop -= start
            start = 0
        if not center and stop > t:
            stop = max(t + 1, min_window)
        if stop > count:
            start = max(0, start - (stop - count))
            stop = count
        part = x[start:stop]
        out[t] = x[t] - part.mean(axis=0)
        if norm_vars:
            out[t] /= np.sqrt(np.maximum(part.var(axis=0), 1e-10))
    return out


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 7, 4), (2, 3, 9, 5), (0, 4, 2)])
@pytest.mark.parametrize("norm_vars", [True, False])
def test_a_window_has_mean_0_and_deviation_1(shape, norm_vars):
    x = spectra(*shape)
    found = Cmvn(norm_vars=norm_vars)(x)
    assert (found.shape, found.dtype) == (shape, np.float32)
    if x.size:
        double = x.astype(np.float64)
        expected = double - double.mean(axis=-2, keepdims=True)
        if norm_vars:
            std = np.sqrt(np.maximum(double.var(axis=-2, keepdims=True), 1e-10))
            expected /= std
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@given(
    count=st.integers(1, 14),
    window=st.integers(1, 16),
    min_window=st.integers(1, 16),
    center=st.booleans(),
    norm_vars=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=150)
def test_a_sliding_window_is_kaldi_s(
    count, window, min_window, center, norm_vars, seed
):
    step = Cmvn(
        norm_vars=norm_vars, window=window, min_window=min_window, center=center
    )
    x = spectra(2, count, 3, seed=seed)
    found = step(x)
    for spectrum, made in zip(x, found, strict=True):
        expected = kaldi_sliding(spectrum, window, min_window, center, norm_vars)
        np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)


def test_the_floor_is_the_least_variance():
    x = np.array([[[0.0], [2.0]]], np.float32)
    np.testing.assert_allclose(Cmvn(floor=4.0)(x)[0, :, 0], [-0.5, 0.5])
    np.testing.assert_allclose(Cmvn(floor=0.25)(x)[0, :, 0], [-1, 1])


# Clips


@pytest.mark.parametrize("shape", [(5, 7, 3), (5, 2, 7, 3)])
def test_a_clip_is_measured_over_all_its_windows(shape):
    x = spectra(*shape)
    step = Cmvn(over="clip")
    measured = step.measure([x])
    assert step.measure([x[:2], x[2:3], x[3:]]) == measured
    found = step.of_measured(measured)(x)
    double = x.astype(np.float64)
    axes = (0, double.ndim - 2)
    expected = (double - double.mean(axis=axes, keepdims=True)) / double.std(
        axis=axes, keepdims=True
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(step.of_measured(measured)(x[2:3]), found[2:3])
