"""Scaling of signals, against numpy, our own transforms and scikit-learn."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from beam_pipeline import Normalize
from beam_pipeline.errors import OptionError
from beam_pipeline.tf_dataset import (
    dataset_signal_normalize,
    dataset_signal_safe_rescale,
    safe_rescale,
)
from tests.raising import raises

KINDS = (
    "mean", "mean_channelwise", "minmax", "standard", "median", "quantile", "log",
    "gain",
)  # fmt: skip


def of(*signals):
    elements = [{"signal": s, "index": np.int64(i)} for i, s in enumerate(signals)]
    shape = (None, *signals[0].shape[1:])
    spec = {
        "signal": tf.TensorSpec(shape, signals[0].dtype),
        "index": tf.TensorSpec((), tf.int64),
    }
    return tf.data.Dataset.from_generator(lambda: elements, output_signature=spec)


def normalised(signal, kind="mean"):
    ds = dataset_signal_normalize(of(signal), kind)
    (found,) = (x["signal"] for x in ds.as_numpy_iterator())
    assert found.dtype == ds.element_spec["signal"].dtype
    assert found.shape == signal.shape
    return found


def noise(*shape, seed=0):
    return np.random.default_rng(seed).normal(0.1, 0.2, shape).astype(np.float32)


def expected(x, kind):
    """What the kind means, by numpy in double precision."""
    x = x.astype(np.float64)
    if kind == "mean":
        return x - x.mean()
    if kind == "mean_channelwise":
        return x - x.mean(axis=0)
    if kind == "minmax":
        return (x - x.min()) / (x.max() - x.min())
    if kind == "standard":
        return (x - x.mean()) / x.std()
    if kind == "median":
        return x - np.median(x, axis=0)
    if kind == "log":
        return np.log(np.abs(x))
    return x / np.abs(x).max(axis=0)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "quantile"])
@pytest.mark.parametrize("shapes", [[(2,), (7,), (500,)], [(2, 2), (9, 2), (500, 2)]])
def test_kinds(kind, shapes):
    signals = [noise(*shape) for shape in shapes]
    ds = dataset_signal_normalize(of(*signals), kind)
    for x, element in zip(signals, ds.as_numpy_iterator(), strict=True):
        np.testing.assert_allclose(
            element["signal"], expected(x, kind), rtol=1e-6, atol=1e-7
        )


@pytest.mark.parametrize("kind", ["mean", "median", "minmax", "standard"])
def test_kinds_are_those_of_the_catalogue(kind):
    x = noise(801)
    ours = Normalize(kind=kind)(x[np.newaxis])[0]
    np.testing.assert_allclose(normalised(x, kind), ours, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", KINDS)
def test_silence_and_constants_give_zero(kind):
    sizes = (1, 4, 5)
    signals = [np.full(n, value, "f4") for n in sizes for value in (0, 0.3)]
    found = dataset_signal_normalize(of(*signals), kind).as_numpy_iterator()
    for element, signal in zip(found, signals, strict=True):
        of_constant = {"log": np.log(0.3), "gain": 1}.get(kind, 0)
        wanted = of_constant if signal[0] else 0
        np.testing.assert_allclose(element["signal"], wanted, rtol=1e-6)


def test_zeros_have_the_median_logarithm():
    x = np.array([[0.0, 0.0], [1.0, 0.0], [np.e, 0.0], [-np.e, 0.0]], "f4")
    np.testing.assert_allclose(
        normalised(x, "log"), [[1, 0], [0, 0], [1, 0], [1, 0]], atol=1e-6
    )


@pytest.mark.parametrize(
    "x",
    [
        noise(2), noise(3), noise(999), noise(1000), noise(1001), noise(5000),
        noise(300, 2),
    ],
    ids=lambda x: str(x.shape),
)  # fmt: skip
def test_quantiles_are_those_of_scikit_learn(x):
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    columns = x.reshape(len(x), -1).astype(np.float64)
    wanted = preprocessing.quantile_transform(
        columns, n_quantiles=min(1000, len(x)), copy=True
    )
    np.testing.assert_allclose(
        normalised(x, "quantile"), wanted.reshape(x.shape), atol=2e-6
    )


def test_quantiles_of_equal_samples_are_mean_ranks():
    """All signals of up to four samples out of three values, in one data set."""
    values = np.array([-1, 0.25, 1], "f4")
    signals = [
        values[list(places)]
        for frames in range(1, 5)
        for places in itertools.product(range(3), repeat=frames)
    ]
    ds = dataset_signal_normalize(of(*signals), "quantile")
    for x, element in zip(signals, ds.as_numpy_iterator(), strict=True):
        below = (x[:, None] > x).sum(axis=1)
        equal = (x[:, None] == x).sum(axis=1)
        rank = (below + (equal - 1) / 2) / max(len(x) - 1, 1)
        rank[x == x.max()] = 1
        rank[x == x.min()] = 0
        np.testing.assert_allclose(element["signal"], rank, atol=1e-6)


@pytest.mark.parametrize("kind", ["mean", "mean_channelwise", "standard", "gain"])
def test_complex_signals(kind):
    x = noise(50, 2) + 1j * noise(50, 2, seed=1)
    found = normalised(x.astype(np.complex64), kind)
    x = x.astype(np.complex128)
    wanted = {
        "mean": x - x.mean(),
        "mean_channelwise": x - x.mean(axis=0),
        "standard": (x - x.mean()) / x.std(),
        "gain": x / np.abs(x).max(axis=0),
    }[kind]
    np.testing.assert_allclose(found, wanted, atol=1e-6)


@pytest.mark.parametrize("dtype", ["int16", "int32"])
def test_integers_count_as_full_scale(dtype):
    one = -float(np.iinfo(dtype).min)
    x = noise(60)
    whole = np.rint(np.clip(x, -0.9, 0.9) * one).astype(dtype)
    np.testing.assert_allclose(
        normalised(whole), normalised(np.float32(whole / one)), atol=1e-7
    )


@pytest.mark.parametrize("kind", KINDS)
def test_items_of_a_batch_are_treated_one_by_one(kind):
    signals = [noise(40, seed=seed) * (seed + 1) for seed in range(4)]
    ds = dataset_signal_normalize(of(*signals).batch(4), kind)
    (batch,) = ds.as_numpy_iterator()
    wanted = [normalised(signal, kind) for signal in signals]
    np.testing.assert_array_equal(batch["signal"], wanted)


def test_shapes_stay_static():
    ds = tf.data.Dataset.from_tensors({"signal": noise(8), "index": 0})
    assert dataset_signal_normalize(ds).element_spec["signal"].shape == (8,)
    both = dataset_signal_normalize(ds.batch(1, drop_remainder=True))
    assert both.element_spec["signal"].shape == (1, 8)


def test_unknown_kinds_are_errors():
    with raises(OptionError, "norm_type", "min_max", naming="minmax"):
        dataset_signal_normalize(of(noise(4)), "min_max")
    for kind in sorted(set(KINDS) - {"mean", "mean_channelwise", "standard", "gain"}):
        with raises(OptionError, "norm_type", kind, naming="complex"):
            dataset_signal_normalize(of(noise(4).astype("c8")), kind)
    with raises(OptionError, "dataset", naming="uint8"):
        dataset_signal_normalize(of(np.zeros(4, "u1")))


@pytest.mark.parametrize(
    ("x", "divisor"),
    [
        ([0.5, -0.8], 0.5),
        ([2.0, -0.8], 2.0),
        ([0.0625, 0.0], 0.0625),
        ([0.04, -0.8], 1.0),
        ([0.0, 0.0], 1.0),
        ([0.25 - 0.5j, 0.1 + 0.125j], 0.25),
        ([[0.5, 0.25], [0.125, 0.0]], 0.5),
    ],
)
def test_safe_rescale(x, divisor):
    x = np.array(x, "c8" if isinstance(x[0], complex) else "f4")
    (found,) = dataset_signal_safe_rescale(of(x)).as_numpy_iterator()
    assert found["signal"].dtype == x.dtype
    np.testing.assert_array_equal(found["signal"], x / np.float32(divisor))


def test_safe_rescale_along_an_axis():
    x = tf.constant([[0.5, 0.25], [0.01, 0.02]])
    assert safe_rescale(x, axis=-1).numpy()[0].tolist() == [1, 0.5]
    np.testing.assert_array_equal(safe_rescale(x, axis=-1)[1], x[1])
