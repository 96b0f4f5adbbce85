"""Normalised means and variances, against numpy in float64."""

import numpy as np
import pytest

from beam_pipeline.transforms.mel import Cmvn


def spectra(*shape, seed=0):
    """Spectra whose level is far from 0, as decibels are."""
    rng = np.random.default_rng(seed)
    return (rng.normal(-40, 9, shape)).astype(np.float32)


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
