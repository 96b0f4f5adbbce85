"""Columns of numbers for a model, against numpy."""

import numpy as np
import pytest
import tensorflow as tf

from beam_pipeline.errors import OptionError
from beam_pipeline.tf_dataset import (
    dataset_prepare_signal_for_ml,
    prepare_signal_for_ml,
    prepare_signal_for_ml_lite,
)
from tests.raising import raises


def noise(frames, is_complex, seed=0, size=0.5):
    rng = np.random.default_rng(seed)
    x = rng.normal(0, size, frames)
    return x + 1j * rng.normal(0, size, frames) if is_complex else x


def centred_amplitude(x):
    amplitude = np.abs(x) / np.abs(x).max()
    return amplitude - amplitude.mean()


def rescaled(x):
    return x / x.max() if x.max() >= 0.05 else x


def full(x):
    """The equations of the docstring, column by column."""
    a, w = rescaled(np.abs(x)), rescaled(np.abs(x) ** 2)
    p = np.where(a < 0.001, 0, np.angle(x) / np.pi)
    f = np.append(np.diff(p), 0)
    f = np.where(np.abs(f) > 1, 0, f)
    if np.iscomplexobj(x):
        samples, spectrum = [x.real, x.imag], np.fft.fft(x)
    else:
        samples, spectrum = [x - x.mean()], np.fft.rfft(x, 2 * len(x) - 1)
    s = np.abs(spectrum)
    return np.stack([
        p, a, f, w, *samples, centred_amplitude(x),
        spectrum.real, spectrum.imag, s, s**2, np.angle(spectrum),
    ], axis=-1)  # fmt: skip


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("frames", [1, 2, 3, 64, 97])
@pytest.mark.parametrize("size", [0.5, 0.001])
def test_full(is_complex, frames, size):
    x = noise(frames, is_complex, size=size)
    found = prepare_signal_for_ml(tf.constant(x)).numpy()
    assert found.dtype == np.float32
    assert found.shape == (frames, 12 if is_complex else 11)
    wanted = full(x)
    np.testing.assert_allclose(found[:, :-1], wanted[:, :-1], rtol=1e-5, atol=1e-5)
    # Angles of pi and -pi are the same, and near 0 there is no angle.
    turn = np.exp(1j * found[:, -1]) - np.exp(1j * wanted[:, -1])
    assert (np.abs(turn[wanted[:, -3] > 1e-6]) < 1e-5).all()


def test_domains():
    x = tf.constant(noise(30, True))
    both = prepare_signal_for_ml(x)
    np.testing.assert_array_equal(prepare_signal_for_ml(x, "time"), both[:, :7])
    np.testing.assert_array_equal(prepare_signal_for_ml(x, ["frequency"]), both[:, 7:])
    for wrong in ([], ["tme"], "space"):
        with raises(OptionError, "domain", wrong):
            prepare_signal_for_ml(x, wrong)


@pytest.mark.parametrize("is_complex", [False, True])
def test_lite(is_complex):
    x = noise(50, is_complex)
    samples = [x.real, x.imag] if is_complex else [x]
    more = [np.abs(x), np.abs(x) ** 2, np.angle(x)]
    for use_inst_vals in (False, True):
        wanted = [*samples, *(more * use_inst_vals), centred_amplitude(x)]
        found = prepare_signal_for_ml_lite(x, use_inst_vals=use_inst_vals).numpy()
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, np.stack(wanted, -1), atol=1e-6)
    assert prepare_signal_for_ml_lite(x, use_norm_ctr=False).shape[-1] == len(samples)


@pytest.mark.parametrize("prepare", [prepare_signal_for_ml, prepare_signal_for_ml_lite])
def test_silence_gives_zeros(prepare):
    assert not prepare(tf.zeros(9)).numpy().any()


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("use_lite", [False, True])
def test_data_sets(is_complex, use_lite):
    signals = np.stack([noise(40, is_complex, seed, 0.2 + seed) for seed in range(3)])
    signals = signals.astype("c8" if is_complex else "f4")
    ds = tf.data.Dataset.from_tensor_slices({"signal": signals, "index": [0, 1, 2]})
    columns = {(False, True): 2, (True, True): 3, (False, False): 11, (True, False): 12}
    shape = (40, columns[is_complex, use_lite])
    kept = dataset_prepare_signal_for_ml(ds, use_lite=use_lite)
    assert kept.element_spec["signal_features"] == tf.TensorSpec(shape, tf.float32)
    assert kept.element_spec["signal"] == ds.element_spec["signal"]
    alone = [x["signal_features"] for x in kept.as_numpy_iterator()]
    batch = dataset_prepare_signal_for_ml(ds.batch(3), False, use_lite)
    assert set(batch.element_spec) == {"signal", "index"}
    (together,) = batch.as_numpy_iterator()
    np.testing.assert_allclose(together["signal"], alone, rtol=1e-6, atol=1e-6)


def test_several_channels_are_refused():
    ds = tf.data.Dataset.from_tensors({"signal": np.zeros((9, 2)), "index": 0})
    with raises(OptionError, "dataset"):
        dataset_prepare_signal_for_ml(ds)
