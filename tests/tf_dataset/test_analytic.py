"""Analytic signals and lower rates, against scipy and our own transforms."""

import numpy as np
import pytest
import scipy.signal
import tensorflow as tf

from beam_pipeline import Analytic, Resample
from beam_pipeline.errors import OptionError
from beam_pipeline.tf_dataset import (
    dataset_signal_apply_analytic,
    dataset_signal_apply_hilbert,
    dataset_signal_downsample,
)
from beam_pipeline.transforms.signals import low_pass_taps
from tests.raising import raises


def noise(*shape, seed=0):
    return np.random.default_rng(seed).normal(0, 0.2, shape).astype(np.float32)


def several(signals):
    """A data set of signals of one rank and different lengths."""
    elements = [{"signal": x, "index": i} for i, x in enumerate(signals)]
    spec = {
        "signal": tf.TensorSpec((None, *signals[0].shape[1:]), signals[0].dtype),
        "index": tf.TensorSpec((), tf.int64),
    }
    return tf.data.Dataset.from_generator(lambda: elements, output_signature=spec)


def of(signal, static=False, **more):
    element = {"signal": signal, "index": np.int64(0), **more}
    if static:
        return tf.data.Dataset.from_tensors(element)
    spec = {
        name: tf.TensorSpec(np.shape(value), np.asarray(value).dtype)
        for name, value in element.items()
    }
    spec["signal"] = tf.TensorSpec((None, *signal.shape[1:]), signal.dtype)
    return tf.data.Dataset.from_generator(lambda: [element], output_signature=spec)


def only(ds):
    (element,) = ds.as_numpy_iterator()
    return element


@pytest.mark.parametrize("apply", [
    dataset_signal_apply_analytic, dataset_signal_apply_hilbert,
])  # fmt: skip
@pytest.mark.parametrize("channels", [(), (2,)])
def test_hilbert_is_that_of_scipy(apply, channels):
    signals = [noise(frames, *channels) for frames in (1, 2, 3, 64, 97)]
    ds = apply(several(signals))
    for x, element in zip(signals, ds.as_numpy_iterator(), strict=True):
        found = element["signal"]
        assert found.dtype == np.complex64
        np.testing.assert_allclose(found, scipy.signal.hilbert(x, axis=0), atol=1e-6)
        np.testing.assert_array_equal(found.real, x)


def test_hilbert_is_that_of_the_catalogue_and_of_each_item():
    x = noise(3, 800)
    batch = tf.data.Dataset.from_tensors({"signal": x, "index": [0, 1, 2]})
    ds = dataset_signal_apply_hilbert(batch)
    assert ds.element_spec["signal"].shape == (3, 800)
    np.testing.assert_allclose(only(ds)["signal"], Analytic()(x), atol=1e-6)


def test_hilbert_of_integers_and_of_complex_signals():
    whole = np.array([2**30, -(2**31), 0, 5], np.int32)
    found = only(dataset_signal_apply_hilbert(of(whole)))["signal"]
    np.testing.assert_array_equal(found.real, np.float32(whole / 2**31))
    with raises(OptionError, "dataset", naming="complex"):
        dataset_signal_apply_hilbert(of(noise(4).astype("c8")))


@pytest.mark.parametrize(("du", "su"), [(640, 50), (2, 1), (3, 2), (1, 2), (147, 160)])
def test_downsampling_is_polyphase(du, su):
    signals = [noise(frames) for frames in (1, 2, 12, 13, 14, 500, 12801)]
    common = np.gcd(du, su)
    up, down = su // common, du // common
    taps = low_pass_taps(up, down)
    ds = dataset_signal_downsample(several(signals), du, su)
    for x, element in zip(signals, ds.as_numpy_iterator(), strict=True):
        found = element["signal"]
        wanted = scipy.signal.resample_poly(x.astype("f8"), up, down, window=taps)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, wanted, atol=1e-6)
        ours = Resample(rate_hz=su)(x[np.newaxis], du)[0]
        np.testing.assert_allclose(found, ours, atol=1e-6)


def test_downsampling_channels_and_complex_signals():
    x = noise(300, 2)
    found = only(dataset_signal_downsample(of(x), 3, 2))["signal"]
    assert found.shape == (200, 2)
    for channel in (0, 1):
        alone = only(dataset_signal_downsample(of(x[:, channel].copy()), 3, 2))
        np.testing.assert_allclose(found[:, channel], alone["signal"], atol=1e-7)
    both = only(dataset_signal_downsample(of(x[:, 0] + 1j * x[:, 1]), 3, 2))["signal"]
    assert both.dtype == np.complex64
    np.testing.assert_allclose(both, found[:, 0] + 1j * found[:, 1], atol=1e-7)


def test_rates_and_static_shapes():
    ds = dataset_signal_downsample(of(noise(441), True, fs=np.int32(44100)))
    assert ds.element_spec["signal"].shape == (35,)
    assert ds.element_spec["fs"].dtype == tf.int32
    element = only(ds)
    assert element["fs"] == 44100 * 50 // 640
    assert element["signal"].shape == (35,)
    batch = of(noise(64), True, fs=np.int32(8000)).batch(1, drop_remainder=True)
    assert only(dataset_signal_downsample(batch, 2, 1))["signal"].shape == (1, 32)


def test_a_ratio_of_one_only_changes_the_type():
    whole = np.array([2**14, -(2**15)], np.int16)
    found = only(dataset_signal_downsample(of(whole), 7, 7))["signal"]
    assert found.tolist() == [0.5, -1.0]
    x = noise(5).astype("c16")
    found = only(dataset_signal_downsample(of(x), 7, 7))["signal"]
    np.testing.assert_array_equal(found, x.astype("c8"))


@pytest.mark.parametrize(
    ("du", "su", "option"), [(0, 1, "du"), (1, 1.5, "su"), (99991, 99989, "du")]
)
def test_wrong_ratios(du, su, option):
    with raises(OptionError, option):
        dataset_signal_downsample(of(noise(5)), du, su)
