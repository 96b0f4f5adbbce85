"""Mixup in replay: what comes out is between two examples of one batch, and so are
their targets."""

from pathlib import Path

import numpy as np
import pytest
import scipy.stats
import soundfile
import tensorflow as tf

from beam_pipeline import Metadata, mix, record, replay
from beam_pipeline.elements.record_examples import record_examples
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.read.choices import Parsing
from beam_pipeline.read.replay_mixup import draw_pairs, mix_batches
from tests.raising import raises

pytestmark = pytest.mark.runs


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """30 examples of three classes."""
    folder = tmp_path_factory.mktemp("mixup")
    rng = np.random.default_rng(0)
    for name in ("a/x", "b/y", "c/z"):
        path = folder / "in" / f"{name}.wav"
        path.parent.mkdir(parents=True)
        soundfile.write(path, 0.1 * rng.normal(size=4000), 8000)
    features = {"signal": "identity()", "mel": "log_mel(n_fft=256,n_mels=8)"}
    record(folder / "in", folder / "out", win_len=400, features=features)
    return str(folder / "out")


def pairs_of(mixed, plain):
    """The weight and the partner of each row that is a mix of rows of ``plain``."""
    weights, partners = [], []
    for row, own in zip(mixed, plain, strict=True):
        towards = plain - own
        lengths = np.maximum((towards**2).sum(axis=1), 1e-30)
        shares = ((row - own) * towards).sum(axis=1) / lengths
        left = np.abs(own + shares[:, None] * towards - row).max(axis=1)
        partners.append(int(left.argmin()))
        weights.append(1 - shares[partners[-1]])
        assert left.min() < 1e-6
    return np.array(weights), np.array(partners)


def batches_of(folder, **options):
    dataset = replay(folder, batch_size=8, **options)
    return list(dataset.as_numpy_iterator())


def test_pairs_and_their_targets_in_tf_data(recorded):
    plain, mixed = batches_of(recorded), batches_of(recorded, mixup=0.4, seed=3)
    assert [len(batch["signal"]) for batch in mixed] == [8, 8, 8, 6]
    drawn = []
    for one, other in zip(plain, mixed, strict=True):
        assert other["target"].dtype == np.float32
        double = one["signal"].astype(np.float64)
        weights, partners = pairs_of(other["signal"].astype(np.float64), double)
        assert (weights > -1e-6).all()
        assert (weights < 1 + 1e-6).all()
        drawn.append(weights)
        for name, values in (("mel", one["mel"]), ("target", np.eye(3)[one["target"]])):
            own = weights.reshape(-1, *[1] * (values.ndim - 1))
            expected = own * values + (1 - own) * values[partners]
            np.testing.assert_allclose(other[name], expected, rtol=1e-4, atol=1e-4)
        for name in ("class", "index", "num_classes", "win_start_idx"):
            np.testing.assert_array_equal(other[name], one[name])
    assert not np.allclose(drawn[0], drawn[1])


@pytest.mark.parametrize("alpha", [0.2, 1.0, 1000.0])
def test_weights_have_the_beta_distribution(alpha):
    seeds = tf.constant([1, 2, 3, 4, 5, 6], tf.int64)
    weights, partners = (x.numpy() for x in draw_pairs(20_000, alpha, seeds))
    assert scipy.stats.kstest(weights, scipy.stats.beta(alpha, alpha).cdf).pvalue > 0.01
    assert sorted(partners.tolist()) == list(range(20_000))
    assert abs(np.corrcoef(partners, np.arange(20_000))[0, 1]) < 0.03
    assert abs(np.corrcoef(partners, weights)[0, 1]) < 0.03


def test_the_weights_of_a_small_alpha_do_not_underflow():
    seeds = tf.constant([1, 2, 3, 4, 5, 6], tf.int64)
    weights = draw_pairs(20_000, 1e-4, seeds)[0].numpy()
    assert np.isfinite(weights).all()
    assert weights.mean() == pytest.approx(0.5, abs=0.02)


def test_several_labels_and_a_target_without_a_class():
    plain = {
        "x": np.eye(3),
        "labels": np.int64([[0, 1], [1, 1], [1, 0]]),
        "target": np.int64([-1, 0, 1]),
        "list": tf.ragged.constant([[1.0], [], [2.0, 3.0]]),
    }
    batches = tf.data.Dataset.from_tensors(plain)
    tf.random.set_seed(0)  # other tests may set another one, which counts, too
    (mixed,) = mix_batches(batches, Parsing({}, num_classes=2), 0.5, 0)
    shares = mixed["x"].numpy()  # of each example in each mixed one
    assert (shares.sum(axis=1) == 1).all()
    assert not np.allclose(shares, np.eye(3))
    for name, values in (("labels", plain["labels"]), ("target", np.eye(3, 2, -1))):
        assert mixed[name].dtype == tf.float32
        np.testing.assert_allclose(mixed[name], shares @ values, atol=1e-6)
    assert mixed["list"].to_list() == [[1.0], [], [2.0, 3.0]]


def test_the_seed_repeats_what_is_drawn_and_each_pass_draws_anew(recorded):
    def signals(dataset):
        return [batch["signal"].numpy() for batch in dataset]

    options = {"batch_size": 8, "mixup": 0.4, "features": ["signal"]}
    first = replay(recorded, seed=1, **options)
    epochs = [signals(first), signals(first)]
    again = replay(recorded, seed=1, **options)
    np.testing.assert_equal([signals(again), signals(again)], epochs)
    assert not np.allclose(epochs[0][0], epochs[1][0])
    other = signals(replay(recorded, seed=2**64 + 5, **options))
    assert not np.allclose(other[0], epochs[0][0])
    twice = signals(replay(recorded, seed=1, repeat=2, **options))
    assert not np.allclose(twice[0], twice[4])


@pytest.mark.parametrize("shuffle", [True, "global"])
def test_shuffled_pairs_for_keras(recorded, shuffle):
    dataset = replay(
        recorded, batch_size=8, shuffle=shuffle, mixup=1.0, drop_remainder=True,
        as_supervised=("mel", "target"), normalize=True,
    )  # fmt: skip
    plain_shape = Metadata.load(recorded).features["mel"].shape
    mel, target = dataset.element_spec
    assert mel.shape == (8, *plain_shape)
    assert (target.shape, target.dtype) == ((8, 3), tf.float32)
    assert dataset.cardinality() == len(list(dataset)) == 3
    assert dataset.class_names == ["a", "b", "c"]
    for _, targets in dataset:
        np.testing.assert_allclose(tf.reduce_sum(targets, 1), 1, rtol=1e-6)


def test_an_iterator_continues_from_a_checkpoint(recorded, tmp_path):
    dataset = replay(recorded, batch_size=8, shuffle="global", mixup=0.4)
    iterator = iter(dataset)
    next(iterator)
    path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "state"))
    wanted = [batch["signal"].numpy() for batch in iterator]
    other = iter(replay(recorded, batch_size=8, shuffle="global", mixup=0.4))
    tf.train.Checkpoint(iterator=other).read(path)
    found = [batch["signal"].numpy() for batch in other]
    np.testing.assert_equal(found, wanted)


def test_what_cannot_be_mixed(recorded, tmp_path: Path):
    with raises(OptionError, "mixup", 0.2, naming="batch_size"):
        replay(recorded, mixup=0.2)
    with raises(OptionError, "mixup", 0):
        replay(recorded, batch_size=8, mixup=0)
    with raises(InputError, naming="floating-point"):
        replay(recorded, batch_size=8, mixup=0.2, features=["target"])
    with raises(OptionError, "mixup", 0.2):
        mix({recorded: 1}).replay(batch_size=8, mixup=0.2)
    rows = [{"x": np.ones(3, np.float32), "target": k} for k in range(4)]
    record_examples(rows, tmp_path / "out")
    assert Metadata.load(tmp_path / "out").classes == ()
    with raises(InputError, naming="no classes"):
        replay(str(tmp_path / "out"), batch_size=2, mixup=0.2, features=["x", "target"])
