"""Batches of records: their order, their state, and the threads that read ahead."""

import gc
import json
import os
import threading
import time
from itertools import chain, islice, repeat
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline import mix, open_records, record, record_examples
from beam_pipeline.encodings import FLOAT_LIST, INT64_LIST
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.permutation import BalancedDraws, Permutation
from beam_pipeline.read.batches import Batches, Draws, Mixed, Mixup, draw_pairs
from beam_pipeline.read.choices import choose_statistics
from tests.raising import raises
from tests.read.members import make
from tests.sounds import write_sound

SHUFFLES = (False, "global")
NUMBER = FeatureSpec("number", "int64", (), INT64_LIST)


class FakeRecords:
    """``number`` is 0 to n - 1, ``pair`` that number twice, ``list`` as many values."""

    def __init__(self, n, name="a", broken=(), seconds=0.0, width=2):
        self.n, self.broken, self.seconds = n, broken, seconds
        self.fingerprint = f"{name}{n}"
        self.features = {
            "number": FeatureSpec("number", "int64", (), INT64_LIST),
            "pair": FeatureSpec("pair", "float32", (width,), FLOAT_LIST),
            "list": FeatureSpec("list", "float32", (None,), FLOAT_LIST),
        }
        of = {
            "count": 1, "mean": 10.0, "m2": 4.0, "std": 2.0, "min": 0.0, "max": 9.0,
        }  # fmt: skip
        statistics = {"features": {"pair": of, "list": of}}
        entry = SimpleNamespace(examples=n, clips=n, statistics=statistics, shards=())
        self.metadata = SimpleNamespace(
            features=self.features, splits={"train": entry}, classes=(), recipe=None
        )
        self.classes = ()
        self.folder, self.statistics = name, choose_statistics(self.metadata, ())
        self.width = width
        self.reads = []
        self.threads = set()

    def __len__(self):
        return self.n

    def class_numbers(self):
        return np.arange(self.n) % 3

    def read(self, indices):
        time.sleep(self.seconds)
        indices = np.asarray(indices)
        self.reads.append(indices)
        self.threads.add(threading.get_ident())
        for index in indices:
            if index in self.broken:
                raise ValueError(f"example {index} is damaged")
        assert indices.size == 0 or 0 <= indices.min() <= indices.max() < self.n
        return {
            "number": indices.astype(np.int64),
            "pair": np.repeat(indices[:, None], self.width, 1).astype(np.float32),
            "list": [
                None if k % 7 == 3 else np.full(k % 4, k, np.float32) for k in indices
            ],
        }


def assert_continues(make, steps):
    """From the state before any of some steps, others give the rest of the batches.

    ``make`` returns batches; an iteration that ends is followed by the next one.
    """

    def given_by(batches, count):
        for batch in islice(chain.from_iterable(repeat(batches)), count):
            given = batch["number"].tolist(), batch["pair"].tobytes()
            yield given, json.dumps(batches.state_dict())

    batches = make()
    start = json.dumps(batches.state_dict())
    found, states = zip(*given_by(batches, steps), strict=True)
    for step, state in enumerate([start, *states]):
        restored = make()
        restored.load_state_dict(json.loads(state))
        assert json.dumps(restored.state_dict()) == state
        rest = [given for given, _ in given_by(restored, steps - step)]
        assert rest == [*found[step:]]


def numbers(batches, count=None):
    """``number`` of each example; of a mix, it tells the source, too."""
    found = (int(n) for batch in batches for n in batch["number"])
    return [*islice(found, count)]


def reading_threads():
    return [t for t in threading.enumerate() if t.name.startswith("batches")]


def wait_for_threads():
    """They end when an iteration does."""
    deadline = time.monotonic() + 60
    while reading_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert reading_threads() == []


class TestOrder:
    @pytest.mark.parametrize("n", [0, 1, 8, 41])
    @pytest.mark.parametrize("shuffle", [False, True, "global"])
    def test_the_order_is_the_permutation(self, shuffle, n):
        """Whatever the size of batches and the number of threads."""
        for epoch in (1, 2):
            order = Permutation(n, 4, epoch).at(range(n)) if shuffle else range(n)
            for size in (1, 4, 100):
                for threads in (0, 1, 4):
                    options = {"shuffle": shuffle, "threads": threads, "seed": 4}
                    batches = Batches(FakeRecords(n), size, epoch=epoch, **options)
                    found = list(batches)
                    assert numbers(found) == list(order)
                    for batch in found:
                        assert np.array_equal(batch["pair"][:, 0], batch["number"])
                    assert len(found) == len(batches) == -(-n // size)
                    assert batches.epoch == epoch + 1
        wait_for_threads()

    def test_normalize(self):
        records = FakeRecords(9)
        (batch,) = Batches(records, 9, normalize=True)
        assert batch["pair"].dtype == np.float32
        assert np.array_equal(batch["pair"][:, 0], (np.arange(9) - 10) / 2)
        assert batch["list"][5].tolist() == [-2.5]
        assert batch["list"][3] is None
        (batch,) = Batches(records, 9, normalize=["list"])
        assert np.array_equal(batch["pair"][:, 0], np.arange(9))


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize("count", [1, 2, 3, 50])
@pytest.mark.parametrize("n", [17, 36, 43, 49])
def test_shares_are_cut_from_one_order(shuffle, n, count):
    """Those of whole batches have as many batches for each trainer."""
    whole = numbers(Batches(FakeRecords(n), 4, shuffle=shuffle))
    found = []
    for index in range(count):
        shard = {"shuffle": shuffle, "shard": (index, count)}
        part = numbers(Batches(FakeRecords(n), 4, **shard))
        assert len(part) == (index + 1) * n // count - index * n // count
        batches = Batches(FakeRecords(n), 9, drop_remainder=True, **shard)
        made = list(batches)
        assert len(made) == len(batches) == n // count // 9
        assert numbers(made) == part[: 9 * len(made)]
        assert batches.epoch == 1
        found += part
    assert found == whole


class TestState:
    @pytest.mark.parametrize("shuffle", [*SHUFFLES, "balanced"])
    @pytest.mark.parametrize("drop_remainder", [False, True])
    @pytest.mark.parametrize("shard", [None, (1, 3)])
    @pytest.mark.parametrize("mixup", [None, 0.3])
    def test_continues_at_every_batch(self, shuffle, drop_remainder, shard, mixup):
        def make():
            return Batches(
                with_targets(33), 4, shuffle=shuffle, seed=2, shard=shard, threads=2,
                drop_remainder=drop_remainder, mixup=mixup,
            )  # fmt: skip

        assert_continues(make, 2 * len(make()))

    @pytest.mark.parametrize(
        ("changed", "named"),
        [
            ({"seed": 1}, "seed is 0 in the state, but 1 here"),
            ({"shuffle": False}, "shuffle is 'global' in the state, but False"),
            ({"shard": (0, 2)}, "shard"),
            ({"batch_size": 5}, "batch_size is 4 in the state, but 5"),
            ({"drop_remainder": True}, "drop_remainder"),
            ({"records": FakeRecords(21)}, "examples is 20 in the state, but 21"),
            ({"records": FakeRecords(20, "b")}, "fingerprint is 'a20'"),
        ],
    )
    def test_of_something_else_is_refused(self, changed, named):
        options = {"records": FakeRecords(20), "batch_size": 4, "shuffle": "global"}
        state = Batches(**options).state_dict()
        with raises(InputError, naming=named):
            Batches(**{**options, **changed}).load_state_dict(state)

    @pytest.mark.parametrize(
        "changed",
        [
            *({"position": at} for at in (24, 20, -4, 3, 4.0, None)),
            {"epoch": -1}, {"epoch": "a"},
            *({"position": taken}
              for taken in ([1], [-1, 4], [1.5, 1.5], [1, 1], [9, -1], [23, 1])),
        ],
    )  # fmt: skip
    def test_of_no_place_between_batches_is_refused(self, changed):
        mixed = mixed_of([20, 12], ends="stop")
        for batches in (Batches(FakeRecords(20), 4), mixed.batches(4)):
            state = batches.state_dict()
            with raises(InputError, naming=["damaged", *map(repr, changed.values())]):
                batches.load_state_dict({**state, **changed})
            with raises(InputError, naming="state_dict()"):
                batches.load_state_dict(None)
            assert batches.state_dict() == state


class TestIterations:
    def test_a_newer_one_ends_the_older(self):
        batches = Batches(FakeRecords(20), 4)
        older = iter(batches)
        next(older)
        newer = iter(batches)
        assert next(newer)["number"][0] == 4
        with raises(InputError, naming="newer iteration"):
            next(older)
        assert next(newer)["number"][0] == 8
        batches.load_state_dict(batches.state_dict())
        with raises(InputError, naming="state was loaded"):
            next(newer)


class TestThreads:
    @pytest.mark.parametrize("shuffle", SHUFFLES)
    @pytest.mark.parametrize("leave", ["collect", "close", "raise"])
    def test_stop_when_the_iteration_is_left(self, shuffle, leave):
        records = FakeRecords(1000, seconds=0.002)
        running = iter(Batches(records, 4, shuffle=shuffle, threads=3))
        next(running)
        assert reading_threads()
        if leave == "raise":
            with pytest.raises(GeneratorExit):
                running.throw(GeneratorExit)
        elif leave == "close":
            running.close()
        else:
            del running
            gc.collect()
        wait_for_threads()
        assert sum(len(read) for read in records.reads) < 200

    def test_none_read_in_the_caller(self):
        records = FakeRecords(20)
        for _ in Batches(records, 4, threads=0):
            assert reading_threads() == []
        assert records.threads == {threading.get_ident()}

    def test_read_at_the_same_time(self):
        barrier = threading.Barrier(3, timeout=60)
        records = FakeRecords(24)
        read = records.read
        records.read = lambda indices: (barrier.wait(), read(indices))[1]
        assert numbers(Batches(records, 4, threads=3)) == list(range(24))

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
    def test_a_process_after_a_fork_has_its_own(self):
        batches = Batches(FakeRecords(40), 4, threads=2)
        running = iter(batches)
        next(running)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                try:
                    next(running)
                except InputError as error:
                    code = 2 if "another process" in str(error) else 3
                if code == 2 and numbers(batches) == list(range(4, 40)):
                    code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert numbers(running) == list(range(4, 40))


WRONG = {
    "batch_size": [0, 2.9, "3", None],
    "seed": [1.9, None],
    "epoch": [0.7, -1],
    "threads": [1.5, -1, True],
    "drop_remainder": ["no"],
    "shard": [3, ("a", "b"), (2, 2)],
    "shuffle": [1, "globl"],
    "mixup": [0, -1, float("nan"), float("inf"), True, "1"],
}


class TestErrors:
    @pytest.mark.parametrize("threads", [0, 1, 4])
    def test_come_where_their_batch_would(self, threads):
        batches = Batches(FakeRecords(40, broken={22}), 4, threads=threads)
        found = []
        with pytest.raises(ValueError, match="example 22"):
            found.extend(batch["number"][0] for batch in batches)
        assert found == [0, 4, 8, 12, 16]
        wait_for_threads()
        # The next iteration is at the same batch.
        assert batches.state_dict()["position"] == 20
        with pytest.raises(ValueError, match="example 22"):
            list(batches)

    @pytest.mark.parametrize(("option", "values"), WRONG.items())
    def test_wrong_values_name_the_option(self, option, values):
        for value in values:
            with raises(OptionError, naming=option):
                Batches(FakeRecords(20), **{"batch_size": 4, option: value})


class TestMemory:
    @pytest.mark.parametrize("limit", [1, 4000, 100_000])
    def test_batches_ahead_are_limited_in_bytes(self, monkeypatch, limit):
        monkeypatch.setattr("beam_pipeline.read.choices.READ_AHEAD_BYTES", limit)
        records = FakeRecords(400, width=50)
        running = iter(Batches(records, 4, threads=4))
        for given_out in range(1, 90):
            next(running)
            time.sleep(0.001)
            ahead = sum(map(len, records.reads)) / 4 - given_out
            assert ahead <= max(limit / (4 * 200), 1) + (given_out == 1)
            assert ahead <= 8
        running.close()


# Mixup: pairs of a batch, weighted; the same for any threads and after a restart.


def with_targets(n=40, classes=("a", "b", "c"), **more):
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


@pytest.mark.parametrize("normalize", [False, ["pair"]])
@pytest.mark.parametrize("threads", [0, 3])
@pytest.mark.parametrize("shuffle", SHUFFLES)
def test_features_and_targets_are_mixed_alike(threads, shuffle, normalize):
    records = with_targets(
        labels=lambda batch: np.stack([batch["number"] % 2] * 3, axis=1)
    )
    options = {"seed": 3, "threads": threads, "shuffle": shuffle}
    options["normalize"] = normalize
    batches = Batches(records, 16, mixup=0.4, **options)
    # A state of batches without mixup has the same order.
    plain = Batches(records, 16, **options)
    batches.load_state_dict(plain.state_dict())
    order = [batch["number"] for batch in plain]
    for position, batch, numbers in zip(range(0, 40, 16), batches, order, strict=True):
        weights, partners = draw_pairs(len(numbers), 0.4, 3, 0, position)
        others = numbers[partners]
        pair = weights * numbers + (1 - weights) * others
        pair = (pair - 10) / 2 if normalize else pair
        pairs = np.stack([pair] * 2, 1)
        np.testing.assert_allclose(batch["pair"], pairs, rtol=1e-5, atol=1e-5)
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


def test_batches_that_cannot_be_mixed():
    with raises(InputError, naming="no classes"):
        next(iter(Batches(with_targets(classes=()), 8, mixup=0.2)))
    with raises(InputError, naming="floating-point"):
        Mixup(0.2, 0, 2).mix({"target": np.array([1])}, 0, 0)


# Classes of different sizes: balanced draws, and weights for losses.


def draws_of(classes, epochs, seed=0):
    """All draws of some epochs, one after the other."""
    draws = BalancedDraws(np.array(classes), seed)
    positions = np.arange(len(classes))
    return [n for epoch in range(epochs) for n in draws.at(epoch, positions).tolist()]


@settings(max_examples=40)
@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=40), st.integers(0, 9), st.data()
)
def test_each_class_is_drawn_once_in_a_round(classes, seed, data):
    """A brute force: rounds of classes, and passes through the examples of each."""
    found, number = draws_of(classes, 5, seed), len({*classes})
    labels = [classes[n] for n in found]
    for first in range(0, len(labels) - number + 1, number):
        assert {*labels[first : first + number]} == {*classes}
    for label in {*classes}:
        members = [n for n, own in enumerate(classes) if own == label]
        drawn = [n for n in found if classes[n] == label]
        for first in range(0, len(drawn) - len(members) + 1, len(members)):
            assert sorted(drawn[first : first + len(members)]) == members
    # Any positions, in any order, give what is there.
    epoch = data.draw(st.integers(0, 4))
    some = data.draw(st.lists(st.integers(0, len(classes) - 1)))
    at = BalancedDraws(np.array(classes), seed).at(epoch, np.array(some, np.int64))
    assert at.tolist() == [found[epoch * len(classes) + n] for n in some]


def test_a_large_class_and_a_rare_one():
    two = np.repeat([0, 1], [2000, 10])
    drawn = np.array(draws_of(two, 2))
    assert np.bincount(two[drawn]).tolist() == [2010, 2010]
    assert len({*drawn[two[drawn] == 0][:2000].tolist()}) == 2000
    # Orders look random: neighbours on disk do not stay neighbours, passes differ.
    rare = drawn[two[drawn] == 1].reshape(-1, 10)
    assert len({tuple(row) for row in rare.tolist()}) == len(rare)
    assert np.mean(np.diff(drawn[two[drawn] == 0][:2000]) == 1) < 0.01


def test_known_values():
    found = draws_of([0, 0, 0, 1, 2, 0], 2, seed=1)
    assert found == [4, 3, 0, 3, 4, 1, 3, 4, 5, 3, 4, 2]


@pytest.fixture(scope="module")
def uneven(tmp_path_factory):
    folder = tmp_path_factory.mktemp("uneven")
    for label, clips in (("bat", 1), ("owl", 6), ("tit", 2)):
        for k in range(clips):
            write_sound(folder / "in" / label / f"{k}.wav", 1500, seed=k)
    record(folder / "in", folder / "out", win_len=500, workers=1)
    return str(folder / "out")


def test_batches_are_balanced(uneven):
    records = open_records(uneven)
    assert np.bincount(records.class_numbers()).tolist() == [3, 18, 6]

    def made(**options):
        return records.batches(4, shuffle="balanced", seed=5, **options)

    whole = made()
    targets = np.concatenate([b["target"] for _ in range(3) for b in whole])
    assert np.bincount(targets).tolist() == [27, 27, 27]
    assert len(made()) == 7
    # `test_continues_at_every_batch` continues them; a state of them is small.
    saved = made().state_dict()
    assert len(json.dumps(saved)) < 300
    with raises(InputError, naming="shuffle"):
        records.batches(4, shuffle="global", seed=5).load_state_dict(saved)
    # Trainers have consecutive parts of one epoch's draws; views and mixes do it, too.
    parts = [b["target"] for k in range(3) for b in made(shard=(k, 3))]
    assert np.concatenate(parts).tolist() == targets[:27].tolist()
    view = records.where("class != 'bat'").batches(8, shuffle="balanced")
    drawn = np.concatenate([b["target"] for b in view])
    assert np.bincount(drawn).tolist() == [0, 12, 12]
    mixed = mix([(records, 1.0)]).batches(27, shuffle="balanced")
    assert np.bincount(next(iter(mixed))["target"]).tolist() == [9, 9, 9]


def test_weights_are_those_of_scikit_learn(uneven):
    records = open_records(uneven)
    weights = records.class_weights()
    assert weights == {0: 27 / (3 * 3), 1: 27 / (3 * 18), 2: 27 / (3 * 6)}
    assert sum(weights[k] for k in records.class_numbers().tolist()) == len(records)
    weights = records.where("class != 'bat'").class_weights()
    assert weights == {0: 0.0, 1: 24 / 36, 2: 2.0}


def test_records_without_one_class_each_are_refused(tmp_path):
    record_examples([{"x": 1}], tmp_path / "dicts")
    with raises(InputError, naming="table"):
        open_records(tmp_path / "dicts").class_weights()
    write_sound(tmp_path / "in" / "a.wav", 600)
    rows = [{"path": str(tmp_path / "in" / "a.wav"), "class": "owl;tit"}]
    options = {"label_from": "class", "label_separator": ";", "win_len": 500}
    record(rows, tmp_path / "several", **options, workers=1)
    with raises(InputError, naming=["owl;tit", "owl, tit"]):
        open_records(tmp_path / "several").batches(1, shuffle="balanced")


# Mixes: the proportions of their sources, their ends, and their state.

ENDS = ("repeat", "stop", "leave")
TARGET = FeatureSpec("target", "int64", (), INT64_LIST)


class Offset(FakeRecords):
    """Records whose numbers begin at an offset, which shows their source."""

    def __init__(self, n, offset=0, **more):
        super().__init__(n, name=f"folder{offset}/", **more)
        self.offset = offset

    def read(self, indices):
        found = super().read(indices)
        return {**found, "number": found["number"] + self.offset}


def mixed_of(sizes, weights=None, seed=0, ends="repeat"):
    sources = [Offset(n, 1000 * k) for k, n in enumerate(sizes)]
    return Mixed(sources, weights or [1.0] * len(sizes), seed, ends)


class TestDraws:
    def test_have_the_weights(self):
        draws = Draws([7, 2, 1], [10, 10, 10], "repeat", seed=3)
        found = draws.take(0, np.zeros(3, np.int64), 100_000)
        shares = np.bincount(found) / 100_000
        assert np.allclose(shares, [0.7, 0.2, 0.1], atol=4 * 0.5 / 100_000**0.5)
        # Each is independent of the one before.
        same = np.mean(found[1:] == found[:-1])
        assert abs(same - (0.49 + 0.04 + 0.01)) < 4 * 0.5 / 100_000**0.5

    def test_known_values(self):
        draws = Draws([1, 2], [9, 9], "repeat", seed=0)
        found = draws.take(0, np.zeros(2, np.int64), 16)
        assert found.tolist() == [0, 0, 0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 1, 1, 1, 0]

    @settings(max_examples=50)
    @given(
        st.lists(st.integers(0, 12), min_size=1, max_size=4),
        st.sampled_from(("stop", "leave")),
        st.integers(0, 99),
        st.lists(st.integers(1, 9), min_size=1, max_size=4),
    )
    def test_do_not_depend_on_how_many_are_taken(self, lengths, ends, seed, steps):
        draws = Draws(range(1, len(lengths) + 1), lengths, ends, seed)
        nothing = np.zeros(len(lengths), np.int64)
        whole = draws.take(0, nothing, 100)
        found, turn = [], 0
        while True:
            taken = np.bincount(np.array(found, int), minlength=len(lengths))
            some = draws.take(0, taken, steps[turn % len(steps)])
            if not len(some):
                break
            found += some.tolist()
            turn += 1
        assert found == whole.tolist()
        counts = np.bincount(whole, minlength=len(lengths))
        assert (counts <= lengths).all()
        if ends == "leave":
            assert counts.tolist() == lengths
        elif min(lengths):
            # It ends with the last example of the source that ends first.
            (ended,) = np.flatnonzero(counts == lengths)
            assert whole[-1] == ended
        else:
            assert not len(whole)

    def test_trainers_share_one_sequence(self):
        lengths = [50, 50]
        nothing = np.zeros(2, np.int64)
        whole = Draws([1, 3], lengths, "repeat", 5).take(0, nothing, 90)
        for k in range(3):
            mine = Draws([1, 3], lengths, "repeat", 5, (k, 3))
            assert mine.take(0, nothing, 30).tolist() == whole[k::3].tolist()


class TestMixedBatches:
    @pytest.mark.parametrize("shuffle", [False, "global"])
    def test_sources_repeat_by_epochs(self, shuffle):
        mixed = mixed_of([5, 20], [1, 1])
        found = numbers(mixed.batches(8, shuffle=shuffle), 200)
        small = [n for n in found if n < 1000]
        large = [n - 1000 for n in found if n >= 1000]
        assert abs(len(small) - 100) < 4 * 50**0.5
        for some, size in ((small, 5), (large, 20)):
            passes = [some[k : k + size] for k in range(0, len(some) - size + 1, size)]
            assert all(sorted(one) == list(range(size)) for one in passes)
            if shuffle:
                assert len({tuple(one) for one in passes}) > len(passes) / 2

    def test_stop(self):
        batches = mixed_of([5, 100], [1, 1], ends="stop").batches(4)
        found = numbers(batches)
        assert sorted(n for n in found if n < 1000) == list(range(5))
        assert found[-1] < 1000
        assert len(set(found)) == len(found)
        # The next iteration has other draws and orders.
        assert numbers(batches) != found

    def test_leave(self):
        batches = mixed_of([5, 30, 0], [9, 1, 1], ends="leave").batches(4)
        for _ in range(2):
            assert sorted(numbers(batches)) == [*range(5), *range(1000, 1030)]

    def test_each_source_is_normalised_by_its_own_statistics(self):
        mixed = mixed_of([4, 4], ends="leave")
        statistics = mixed.sources[1].metadata.splits["train"].statistics
        moments = {"mean": 0.0, "m2": 1.0, "std": 0.5, "min": 0.0, "max": 1.0}
        values = {"count": 4, **moments}
        statistics["features"]["pair"] = values
        for batch in mixed.batches(8, normalize=["pair"]):
            number = batch["number"]
            expected = np.where(number < 1000, (number - 10) / 2, (number - 1000) * 2)
            assert np.array_equal(batch["pair"][:, 0], expected)


class TestMixedState:
    @pytest.mark.parametrize("ends", ENDS)
    def test_continues_at_every_batch(self, ends):
        mixed = mixed_of([7, 12], [1, 2], ends=ends)
        options = {"threads": 0, "epoch": 1, "mixup": 0.3}
        assert_continues(lambda: mixed.batches(3, **options), 15)

    @pytest.mark.parametrize(
        ("other", "named"),
        [
            ({"weights": [1.0, 3.0]}, "weights"),
            ({"seed": 1}, "seed"),
            ({"ends": "stop"}, "ends"),
            ({"sizes": [7, 13]}, "sources"),
        ],
    )
    def test_of_another_mix_is_refused(self, other, named):
        state = mixed_of([7, 12]).batches(3).state_dict()
        options = {"sizes": [7, 12], **other}
        with raises(InputError, naming=f"{named} is"):
            mixed_of(**options).batches(3).load_state_dict(state)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two data sets: ``number`` 0 to 8, and 100 to 113."""
    root = tmp_path_factory.mktemp("mixed")
    found = []
    for name, start, sizes in (("a", 0, (5, 4)), ("b", 100, (3, 9, 2))):
        (root / name).mkdir()
        columns = {"number": np.arange(start, start + sum(sizes))}
        splits = {"train": sizes, "more": (1,)}
        found.append(make(root / name, [NUMBER], columns, splits))
    return found


class TestMix:
    def test_of_folders(self, folders):
        shares = {folders[0]: np.float32(0.75), folders[1]: 0.25}
        mixed = mix(shares, split="train", ends="leave")
        assert folders[1] in repr(mixed)
        found = numbers(mixed.batches(4))
        assert sorted(found) == [*range(9), *range(100, 114)]
        same = mix(
            [(open_records(folders[0], "train"), 3), (folders[1], np.int64(1))],
            split="train", ends="leave",
        )  # fmt: skip
        assert numbers(same.batches(5)) == found

    @pytest.mark.parametrize(
        ("named", "values"),
        [
            ("sources", [{}, [], "folder", ["a", "b"], [("a", 1, 2)], Path("a"), 3]),
            ("weights", [{"a": w} for w in (0, -1, float("nan"), "1", True)]),
        ],
    )
    def test_wrong_values_are_named(self, named, values):
        for sources in values:
            with raises(OptionError, naming=named):
                mix(sources)
        for option, value in (("ends", "end"), ("seed", 1.5)):
            with raises(OptionError, naming=option):
                mix({"a": 1}, **{option: value})
        for option in ("seed", "shufle"):
            with pytest.raises(TypeError, match=option):
                mixed_of([1]).batches(2, **{option: "a"})

    def test_splits_and_features_are_those_of_folders(self, folders):
        records = open_records(folders[0], "train")
        for option in ({"split": "train"}, {"features": ["number"]}):
            with raises(OptionError, naming=next(iter(option))):
                mix([(records, 1)], **option)

    def test_an_empty_source_is_refused(self, folders):
        empty = open_records(folders[0], "train")[:0]
        with raises(InputError, naming=folders[0]):
            mix([(empty, 1)])
        few = mix([(open_records(folders[0], "more"), 1)])
        with raises(InputError, naming="trainer 0 of 2"):
            few.batches(2, shard=(0, 2))

    @pytest.mark.parametrize(
        ("other", "classes", "named"),
        [
            ([FeatureSpec("number", "float32", (), FLOAT_LIST), TARGET], "ab",
             "the dtype 'float32'"),
            ([TARGET], "ab", "lacks the feature number"),
            ([NUMBER, TARGET], "ac", "a, c"),
        ],
    )  # fmt: skip
    def test_features_and_classes_must_agree(self, tmp_path, other, classes, named):
        made = []
        for specs, names in (([NUMBER, TARGET], "ab"), (other, classes)):
            (folder := tmp_path / str(len(made))).mkdir()
            columns = {spec.name: np.zeros(3, spec.dtype) for spec in specs}
            made.append(make(folder, specs, columns, {"a": (3,)}, classes=(*names,)))
        with raises(InputError, naming=named):
            mix(dict.fromkeys(made, 1))
