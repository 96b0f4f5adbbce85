"""Mixup: pairs of a batch, weighted; the same for any threads and after a restart."""

import numpy as np
import pytest
import scipy.stats

from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.read.batches import Batches, Mixup, draw_pairs
from tests.raising import raises
from tests.read.fake_records import FakeRecords


def make(n=40, classes=("a", "b", "c"), **more):
    """Records whose ``target`` is their number modulo the number of classes."""
    records = FakeRecords(n)
    records.metadata.classes = classes
    read = records.read

    def with_target(indices):
        batch = read(indices)
        batch["target"] = batch["number"] % max(1, len(classes))
        return {**batch, **{name: value(batch) for name, value in more.items()}}

    records.read = with_target
    return records


@pytest.mark.parametrize("alpha", [0.2, 1.0, 5.0])
def test_weights_have_the_beta_distribution(alpha):
    weights, partners = draw_pairs(20_000, alpha, 0, 0, 0)
    assert scipy.stats.kstest(weights, scipy.stats.beta(alpha, alpha).cdf).pvalue > 0.01
    assert sorted(partners.tolist()) == list(range(20_000))
    assert abs(np.corrcoef(partners, np.arange(20_000))[0, 1]) < 0.03


def test_each_partner_is_as_likely():
    partners = [draw_pairs(4, 1, 0, 0, at)[1] for at in range(4000)]
    for row in np.array(partners).T:
        counts = np.bincount(row, minlength=4)
        assert np.abs(counts - 1000).max() < 150


def test_the_seed_the_epoch_and_the_position_change_what_is_drawn():
    places = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (-1, 0, 0)]
    drawn = {draw_pairs(5, 0.2, *place)[0].tobytes() for place in places}
    assert len(drawn) == len(places)


def test_features_and_targets_are_mixed_alike():
    records = make(labels=lambda batch: np.stack([batch["number"] % 2] * 3, axis=1))
    batches = Batches(records, 16, seed=3, mixup=0.4)
    for position, batch in zip(range(0, 40, 16), batches, strict=True):
        numbers = batch["number"]
        weights, partners = draw_pairs(len(numbers), 0.4, 3, 0, position)
        others = numbers[partners]
        pair = weights * numbers + (1 - weights) * others
        np.testing.assert_allclose(batch["pair"], np.stack([pair] * 2, 1), rtol=1e-6)
        hot = np.eye(3)
        expected = weights[:, None] * hot[numbers % 3]
        expected += (1 - weights)[:, None] * hot[others % 3]
        np.testing.assert_allclose(batch["target"], expected, atol=1e-6)
        assert batch["target"].dtype == batch["labels"].dtype == np.float32
        odd = weights * (numbers % 2) + (1 - weights) * (others % 2)
        np.testing.assert_allclose(batch["labels"][:, 1], odd, atol=1e-6)
        # What is no number between two others stays.
        assert [len(x) for x in batch["list"] if x is not None] == [
            k % 4 for k in numbers.tolist() if k % 7 != 3
        ]


@pytest.mark.parametrize("shuffle", [False, "global"])
def test_threads_and_restarts_do_not_change_it(shuffle):
    options = {"shuffle": shuffle, "seed": 1, "mixup": 0.3}
    wanted = [b["pair"].tobytes() for b in Batches(make(), 8, threads=0, **options)]
    for threads in (1, 3):
        batches = Batches(make(), 8, threads=threads, **options)
        assert [b["pair"].tobytes() for b in batches] == wanted
    batches = Batches(make(), 8, **options)
    iterator = iter(batches)
    next(iterator)
    state = batches.state_dict()
    again = Batches(make(), 8, **options)
    again.load_state_dict(state)
    assert [b["pair"].tobytes() for b in again] == wanted[1:]
    # A state of batches without mixup has the same order.
    plain = Batches(make(), 8, **{**options, "mixup": None})
    plain.load_state_dict(state)
    batches.load_state_dict(plain.state_dict())


def test_it_mixes_after_normalize():
    plain = next(iter(Batches(make(), 8, normalize=["pair"])))["pair"]
    mixed = next(iter(Batches(make(), 8, normalize=["pair"], mixup=1.0)))["pair"]
    weights, partners = draw_pairs(8, 1.0, 0, 0, 0)
    expected = weights[:, None] * plain + (1 - weights)[:, None] * plain[partners]
    np.testing.assert_allclose(mixed, expected, rtol=1e-5, atol=1e-6)


def test_a_batch_of_one_is_itself_and_a_target_without_a_class_is_0():
    batch = {"x": np.ones((1, 3), np.float32), "target": np.array([-1])}
    mixed = Mixup(0.2, 0, 2).mix(batch, 0, 0)
    np.testing.assert_allclose(mixed["x"], 1)
    assert mixed["target"].tolist() == [[0, 0]]
    numbers = {"x": np.ones((2, 3), np.float32), "target": np.float32([0, 2])}
    weights, partners = draw_pairs(2, 0.2, 0, 0, 0)
    expected = weights * [0, 2] + (1 - weights) * np.array([0, 2])[partners]
    found = Mixup(0.2, 0, 0).mix(numbers, 0, 0)["target"]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


@pytest.mark.parametrize("alpha", [0, -1, float("nan"), float("inf"), True, "1"])
def test_parameters_that_cannot_be(alpha):
    with raises(OptionError, "mixup", alpha):
        Batches(make(), 8, mixup=alpha)


def test_batches_that_cannot_be_mixed():
    with raises(InputError, naming="no classes"):
        next(iter(Batches(make(classes=()), 8, mixup=0.2)))
    with raises(InputError, naming="floating-point"):
        Mixup(0.2, 0, 2).mix({"target": np.array([1])}, 0, 0)
