"""Scaling, analytic signals, other rates and columns, against numpy, scipy, sklearn."""

import itertools

import numpy as np
import pytest
import scipy.signal
import tensorflow as tf

from beam_pipeline import tf_dataset as tfd
from beam_pipeline.transforms.signals import low_pass_taps

OF_COMPLEX = ("mean", "mean_channelwise", "standard", "gain")


def of(*signals, **more):
    """A data set of signals of one rank and different lengths."""
    elements = [{"signal": x, "index": i, **more} for i, x in enumerate(signals)]
    spec = {name: tf.TensorSpec((), np.asarray(v).dtype) for name, v in more.items()}
    spec["signal"] = tf.TensorSpec((None, *signals[0].shape[1:]), signals[0].dtype)
    spec["index"] = tf.TensorSpec((), tf.int64)
    return tf.data.Dataset.from_generator(lambda: elements, output_signature=spec)


def changed(function, *signals, options=()):
    """The signals after a function, which keeps their types in the spec."""
    ds = function(of(*signals), *options)
    found = [x["signal"] for x in ds.as_numpy_iterator()]
    dtype = ds.element_spec["signal"].dtype.as_numpy_dtype
    assert {x.dtype for x in found} == {np.dtype(dtype)}
    return found


def noise(*shape, seed=0, size=0.2, is_complex=False):
    rng = np.random.default_rng(seed)
    x = rng.normal(0.1, size, shape)
    return x + 1j * rng.normal(0, size, shape) if is_complex else x.astype("f4")


def quantiles(x):
    preprocessing = pytest.importorskip("sklearn.preprocessing")
    columns, count = x.reshape(len(x), -1), min(1000, len(x))
    found = preprocessing.quantile_transform(columns, n_quantiles=count, copy=True)
    return found.reshape(x.shape)


# What the kinds mean, in double precision.
KINDS = {
    "mean": lambda x: x - x.mean(),
    "mean_channelwise": lambda x: x - x.mean(axis=0),
    "minmax": lambda x: (x - x.min()) / (x.max() - x.min()),
    "standard": lambda x: (x - x.mean()) / x.std(),
    "median": lambda x: x - np.median(x, axis=0),
    "quantile": quantiles,
    "log": lambda x: np.log(np.abs(x)),
    "gain": lambda x: x / np.abs(x).max(axis=0),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("channels", [(), (2,)])
def test_kinds(kind, channels):
    sizes = (2, 3, 7, 500, 999, 1000, 1001, 5000)
    signals = [noise(size, *channels, seed=size) for size in sizes]
    found = changed(tfd.dataset_signal_normalize, *signals, options=[kind])
    for x, y in zip(signals, found, strict=True):
        wanted = KINDS[kind](x.astype(np.float64))
        np.testing.assert_allclose(y, wanted, rtol=1e-6, atol=2e-6)
    if kind in OF_COMPLEX:
        x = noise(50, *channels, is_complex=True)
        (y,) = changed(tfd.dataset_signal_normalize, x.astype("c8"), options=[kind])
        np.testing.assert_allclose(y, KINDS[kind](x), atol=1e-6)
    # In a batch, each item by itself.
    same = np.stack([noise(40, *channels, seed=k) * (k + 1) for k in range(3)])
    ds = tf.data.Dataset.from_tensors({"signal": same, "index": [0, 1, 2]})
    batch = tfd.dataset_signal_normalize(ds, kind)
    assert batch.element_spec["signal"].shape == same.shape
    wanted = [KINDS[kind](x.astype(np.float64)) for x in same]
    found = next(iter(batch))["signal"]
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_silence_and_constants_give_zero(kind):
    signals = [np.full(n, value, "f4") for n in (1, 4, 5) for value in (0, 0.3)]
    found = changed(tfd.dataset_signal_normalize, *signals, options=[kind])
    for y, signal in zip(found, signals, strict=True):
        of_constant = {"log": np.log(0.3), "gain": 1}.get(kind, 0)
        np.testing.assert_allclose(y, of_constant if signal[0] else 0, rtol=1e-6)


def test_zeros_have_the_median_logarithm():
    x = np.array([[0.0, 0.0], [1.0, 0.0], [np.e, 0.0], [-np.e, 0.0]], "f4")
    (found,) = changed(tfd.dataset_signal_normalize, x, options=["log"])
    np.testing.assert_allclose(found, [[1, 0], [0, 0], [1, 0], [1, 0]], atol=1e-6)


def test_quantiles_of_equal_samples_are_mean_ranks():
    """All signals of up to four samples out of three values."""
    values = np.array([-1, 0.25, 1], "f4")
    signals = [
        values[list(places)]
        for frames in range(1, 5)
        for places in itertools.product(range(3), repeat=frames)
    ]
    found = changed(tfd.dataset_signal_normalize, *signals, options=["quantile"])
    for x, y in zip(signals, found, strict=True):
        below = (x[:, None] > x).sum(axis=1)
        equal = (x[:, None] == x).sum(axis=1)
        rank = (below + (equal - 1) / 2) / max(len(x) - 1, 1)
        rank[x == x.max()] = 1
        rank[x == x.min()] = 0
        np.testing.assert_allclose(y, rank, atol=1e-6)


@pytest.mark.parametrize(("x", "divisor"), [
    ([0.5, -0.8], 0.5),
    ([2.0, -0.8], 2.0),
    ([0.0625, 0.0], 0.0625),
    ([0.04, -0.8], 1.0),
    ([0.0, 0.0], 1.0),
    ([0.25 - 0.5j, 0.1 + 0.125j], 0.25),
    ([[0.5, 0.25], [0.125, 0.0]], 0.5),
])  # fmt: skip
def test_safe_rescale(x, divisor):
    x = np.array(x, "c8" if isinstance(x[0], complex) else "f4")
    (found,) = changed(tfd.dataset_signal_safe_rescale, x)
    np.testing.assert_array_equal(found, x / np.float32(divisor), strict=True)
    batch = of(x, x * 4).batch(2)
    (both,) = tfd.dataset_signal_safe_rescale(batch).as_numpy_iterator()
    np.testing.assert_array_equal(both["signal"][0], found)
    assert tfd.safe_rescale(tf.constant([[0.5], [0.01]]), -1).numpy().tolist() == [
        [1.0], [np.float32(0.01)],
    ]  # fmt: skip


@pytest.mark.parametrize(
    "apply", [tfd.dataset_signal_apply_analytic, tfd.dataset_signal_apply_hilbert]
)
@pytest.mark.parametrize("channels", [(), (2,)])
def test_hilbert_is_that_of_scipy(apply, channels):
    signals = [noise(frames, *channels) for frames in (1, 2, 3, 64, 97)]
    for x, found in zip(signals, changed(apply, *signals), strict=True):
        assert found.dtype == np.complex64
        np.testing.assert_allclose(found, scipy.signal.hilbert(x, axis=0), atol=1e-6)
        np.testing.assert_array_equal(found.real, x)
    rows = noise(3, 80)
    ds = apply(tf.data.Dataset.from_tensors({"signal": rows, "index": [0, 1, 2]}))
    assert ds.element_spec["signal"].shape == (3, 80)
    found = next(iter(ds))["signal"]
    np.testing.assert_allclose(found, scipy.signal.hilbert(rows), atol=1e-6)


@pytest.mark.parametrize(("du", "su"), [(640, 50), (2, 1), (3, 2), (1, 2), (147, 160)])
def test_downsampling_is_polyphase(du, su):
    signals = [noise(frames) for frames in (1, 2, 12, 13, 14, 500, 12801)]
    taps = low_pass_taps(su // np.gcd(du, su), du // np.gcd(du, su))
    found = changed(tfd.dataset_signal_downsample, *signals, options=[du, su])
    for x, y in zip(signals, found, strict=True):
        wanted = scipy.signal.resample_poly(x.astype("f8"), su, du, window=taps)
        np.testing.assert_allclose(y, wanted, atol=1e-6)


def test_downsampling_channels_and_complex_signals():
    x = noise(300, 2)
    (found,) = changed(tfd.dataset_signal_downsample, x, options=[3, 2])
    alone = changed(tfd.dataset_signal_downsample, *x.T, options=[3, 2])
    np.testing.assert_allclose(found, np.transpose(alone), atol=1e-7)
    pair = x[:, 0] + 1j * x[:, 1]
    (both,) = changed(tfd.dataset_signal_downsample, pair, options=[3, 2])
    np.testing.assert_allclose(both, found[:, 0] + 1j * found[:, 1], atol=1e-7)
    (same,) = changed(tfd.dataset_signal_downsample, pair, options=[7, 7])
    np.testing.assert_array_equal(same, pair.astype("c8"))


def test_rates_and_static_shapes():
    element = {"signal": noise(441), "index": 0, "fs": np.int32(44100)}
    ds = tfd.dataset_signal_downsample(tf.data.Dataset.from_tensors(element))
    assert ds.element_spec["signal"].shape == (35,)
    assert ds.element_spec["fs"].dtype == tf.int32
    found = next(iter(ds))
    assert (found["fs"], found["signal"].shape) == (44100 * 50 // 640, (35,))


def centred_amplitude(x):
    amplitude = np.abs(x) / np.abs(x).max()
    return amplitude - amplitude.mean()


def full(x):
    """The equations of the docstring, column by column."""
    a, w = (y / y.max() if y.max() >= 0.05 else y for y in (np.abs(x), np.abs(x) ** 2))
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
    x = noise(frames, size=size, is_complex=is_complex)
    x = x.astype("c16" if is_complex else "f8") - 0.1
    found = tfd.prepare_signal_for_ml(tf.constant(x)).numpy()
    assert found.dtype == np.float32
    assert found.shape == (frames, 12 if is_complex else 11)
    wanted = full(x)
    np.testing.assert_allclose(found[:, :-1], wanted[:, :-1], rtol=1e-5, atol=1e-5)
    # Angles of pi and -pi are the same, and near 0 there is no angle.
    turn = np.exp(1j * found[:, -1]) - np.exp(1j * wanted[:, -1])
    assert (np.abs(turn[wanted[:, -3] > 1e-6]) < 1e-5).all()
    time = 7 if is_complex else 6
    np.testing.assert_array_equal(tfd.prepare_signal_for_ml(x, "time"), found[:, :time])
    bins = tfd.prepare_signal_for_ml(x, ["frequency"])
    np.testing.assert_array_equal(bins, found[:, time:])


@pytest.mark.parametrize("is_complex", [False, True])
def test_lite(is_complex):
    x = noise(50, is_complex=is_complex)
    samples = [x.real, x.imag] if is_complex else [x]
    more = [np.abs(x), np.abs(x) ** 2, np.angle(x)]
    for use_inst_vals in (False, True):
        wanted = [*samples, *(more * use_inst_vals), centred_amplitude(x)]
        found = tfd.prepare_signal_for_ml_lite(x, use_inst_vals=use_inst_vals).numpy()
        np.testing.assert_allclose(found, np.stack(wanted, -1), atol=1e-6)
    less = tfd.prepare_signal_for_ml_lite(x, use_norm_ctr=False)
    np.testing.assert_allclose(less, np.stack(samples, -1), atol=1e-6)


@pytest.mark.parametrize("is_complex", [False, True])
@pytest.mark.parametrize("use_lite", [False, True])
def test_data_sets_of_columns(is_complex, use_lite):
    signals = [noise(40, seed=k, size=0.2 + k, is_complex=is_complex) for k in range(3)]
    signals = np.stack(signals).astype("c8" if is_complex else "f4")
    ds = tf.data.Dataset.from_tensor_slices({"signal": signals, "index": [0, 1, 2]})
    kept = tfd.dataset_prepare_signal_for_ml(ds, use_lite=use_lite)
    spec = tf.TensorSpec((40, (2 if use_lite else 11) + is_complex), tf.float32)
    assert kept.element_spec == {**ds.element_spec, "signal_features": spec}
    alone = [x["signal_features"] for x in kept.as_numpy_iterator()]
    batch = tfd.dataset_prepare_signal_for_ml(ds.batch(3), False, use_lite)
    assert set(batch.element_spec) == {"signal", "index"}
    (together,) = batch.as_numpy_iterator()
    np.testing.assert_allclose(together["signal"], alone, rtol=1e-6, atol=1e-6)


def test_columns_of_silence_are_0():
    for prepare in (tfd.prepare_signal_for_ml, tfd.prepare_signal_for_ml_lite):
        assert not prepare(tf.zeros(9)).numpy().any()
