"""Batches of records: their order, their state, and the threads that read ahead."""

import gc
import json
import os
import pickle
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.permutation import Permutation
from beam_pipeline.read import batches as read_batches
from beam_pipeline.read.batches import Batches
from tests.raising import raises
from tests.read.fake_records import FakeRecords

SHUFFLES = (False, "global")


def numbers(batches):
    return [int(n) for batch in batches for n in batch["number"]]


def reading_threads():
    return [t for t in threading.enumerate() if t.name.startswith("batches")]


def wait_for_threads():
    deadline = time.monotonic() + 10
    while reading_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert reading_threads() == []


class TestOrder:
    @pytest.mark.parametrize("threads", [0, 1, 3])
    @pytest.mark.parametrize("shuffle", SHUFFLES)
    @pytest.mark.parametrize("n", [0, 1, 7, 8, 9, 31, 64])
    def test_an_epoch_has_every_example_once(self, n, shuffle, threads):
        batches = Batches(FakeRecords(n), 8, shuffle=shuffle, threads=threads)
        for _ in range(2):
            found = list(batches)
            assert len(found) == len(batches)
            assert sorted(numbers(found)) == list(range(n))
            assert all(len(batch["number"]) == 8 for batch in found[:-1])

    @pytest.mark.parametrize("shuffle", [True, "global"])
    def test_global_is_the_permutation(self, shuffle):
        batches = Batches(FakeRecords(20), 3, shuffle=shuffle, seed=4, epoch=1)
        for epoch in (1, 2):
            assert numbers(batches) == Permutation(20, 4, epoch).at(range(20)).tolist()

    @pytest.mark.parametrize("shuffle", SHUFFLES)
    def test_threads_and_batch_sizes_do_not_change_the_order(self, shuffle):
        found = {
            tuple(numbers(Batches(FakeRecords(41), size, shuffle=shuffle, threads=t)))
            for size in (1, 4, 100)
            for t in (0, 1, 4)
        }
        assert len(found) == 1

    @pytest.mark.parametrize("shuffle", SHUFFLES)
    def test_rows_belong_together(self, shuffle):
        for batch in Batches(FakeRecords(40), 6, shuffle=shuffle):
            number = batch["number"]
            assert np.array_equal(batch["pair"], np.stack([number, number], 1))
            for n, values in zip(number, batch["list"], strict=True):
                assert values is None if n % 7 == 3 else list(values) == [n] * (n % 4)

    def test_drop_remainder(self):
        batches = Batches(FakeRecords(20), 8, drop_remainder=True)
        assert len(batches) == 2
        assert numbers(batches) == list(range(16))
        assert numbers(batches) == list(range(16))
        none = Batches(FakeRecords(7), 8, drop_remainder=True)
        assert (len(none), list(none), none.epoch) == (0, [], 1)

    def test_repeat_does_not_end(self):
        batches = Batches(FakeRecords(5), 2, shuffle="global", repeat=True)
        found = []
        for batch in batches:
            found.append(batch["number"].tolist())
            if len(found) == 9:
                break
        assert [len(batch) for batch in found] == [2, 2, 1] * 3
        flat = [n for batch in found for n in batch]
        assert [sorted(flat[k : k + 5]) for k in (0, 5, 10)] == [list(range(5))] * 3
        assert len({tuple(flat[k : k + 5]) for k in (0, 5, 10)}) == 3

    @pytest.mark.parametrize("options", [{}, {"drop_remainder": True}])
    def test_repeating_nothing_is_an_error(self, options):
        n = 3 if options else 0
        with raises(InputError, naming="repeat"):
            Batches(FakeRecords(n), 8, repeat=True, **options)

    def test_normalize(self):
        records = FakeRecords(9)
        (batch,) = Batches(records, 9, normalize=True)
        assert batch["pair"].dtype == np.float32
        assert np.array_equal(batch["pair"][:, 0], (np.arange(9) - 10) / 2)
        assert batch["list"][5].tolist() == [-2.5]
        assert batch["list"][3] is None
        (batch,) = Batches(records, 9, normalize=["list"])
        assert np.array_equal(batch["pair"][:, 0], np.arange(9))


class TestShares:
    @pytest.mark.parametrize("shuffle", SHUFFLES)
    @pytest.mark.parametrize("count", [1, 2, 3, 50])
    def test_are_cut_from_one_order(self, shuffle, count):
        whole = numbers(Batches(FakeRecords(43), 4, shuffle=shuffle))
        parts = [
            numbers(Batches(FakeRecords(43), 4, shuffle=shuffle, shard=(i, count)))
            for i in range(count)
        ]
        assert [n for part in parts for n in part] == whole
        assert [len(part) for part in parts] == [
            (i + 1) * 43 // count - i * 43 // count for i in range(count)
        ]


class TestState:
    @pytest.mark.parametrize("shuffle", SHUFFLES)
    @pytest.mark.parametrize("drop_remainder", [False, True])
    @pytest.mark.parametrize("shard", [None, (1, 3)])
    def test_continues_at_every_batch(self, shuffle, drop_remainder, shard):
        def make(**more):
            return Batches(
                FakeRecords(33), 4, shuffle=shuffle, seed=2, shard=shard, threads=2,
                drop_remainder=drop_remainder, **more,
            )  # fmt: skip

        whole = make()
        expected, states = [], [json.dumps(whole.state_dict())]
        for _ in range(2):
            for batch in whole:
                expected.append(batch["number"].tolist())
                states.append(json.dumps(whole.state_dict()))
        for k, state in enumerate(states[:-1]):
            restored = make(epoch=5)
            restored.load_state_dict(json.loads(state))
            assert json.dumps(restored.state_dict()) == state
            found = []
            while len(found) < len(expected) - k:
                found += [batch["number"].tolist() for batch in restored]
            assert found == expected[k:]

    @settings(max_examples=25)
    @given(st.integers(1, 40), st.integers(1, 9), st.sampled_from(SHUFFLES), st.data())
    def test_any_stops_lose_and_repeat_nothing(self, n, size, shuffle, data):
        options = {"shuffle": shuffle, "threads": 0, "repeat": True}
        steps = data.draw(st.lists(st.integers(0, 5), min_size=1, max_size=4))
        endless = iter(Batches(FakeRecords(n), size, **options))
        expected = [next(endless)["number"].tolist() for _ in range(sum(steps))]
        state, found = None, []
        for step in steps:
            batches = Batches(FakeRecords(n), size, **options)
            if state is not None:
                batches.load_state_dict(state)
            running = iter(batches)
            found += [next(running)["number"].tolist() for _ in range(step)]
            state = batches.state_dict()
        assert found == expected

    def test_counts_what_the_caller_has(self):
        batches = Batches(FakeRecords(20), 5, threads=4)
        running = iter(batches)
        assert batches.state_dict()["position"] == 0
        next(running)
        time.sleep(0.05)
        assert batches.state_dict()["position"] == 5
        for _ in running:
            pass
        state = batches.state_dict()
        assert (state["epoch"], state["position"], batches.epoch) == (1, 0, 1)

    def test_an_iteration_left_early_is_continued(self):
        batches = Batches(FakeRecords(20), 4)
        for batch in batches:
            if 5 in batch["number"]:
                break
        assert numbers(batches) == list(range(8, 20))
        assert numbers(batches) == list(range(20))

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
        "damage",
        [
            {"position": 21},
            {"position": -1},
            {"position": 3},
            {"epoch": "1"},
            {"epoch": None},
        ],
    )
    def test_damaged_is_refused(self, damage):
        batches = Batches(FakeRecords(20), 4)
        with raises(InputError, naming="damaged"):
            batches.load_state_dict({**batches.state_dict(), **damage})
        for state in (None, "state", 3):
            with raises(InputError, naming=["state_dict", state]):
                batches.load_state_dict(state)
        with raises(InputError, naming="seed"):
            batches.load_state_dict({})

    def test_can_be_pickled(self):
        batches = Batches(FakeRecords(20), 4, shuffle="global")
        running = iter(batches)
        next(running)
        copy = pickle.loads(pickle.dumps(batches))
        assert numbers(copy) == numbers(running)


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
    def test_stop_when_the_iteration_ends(self, shuffle):
        list(Batches(FakeRecords(50), 4, shuffle=shuffle, threads=3))
        wait_for_threads()

    @pytest.mark.parametrize("shuffle", SHUFFLES)
    @pytest.mark.parametrize("leave", ["break", "collect", "close", "raise"])
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
        # Nothing is read before it is asked for.
        running = iter(Batches(records, 4, threads=0))
        records.reads.clear()
        next(running)
        assert len(records.reads) == 1

    def test_read_at_the_same_time(self):
        barrier = threading.Barrier(3, timeout=10)
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

    @pytest.mark.parametrize(
        ("options", "option"),
        [
            ({"batch_size": 0}, "batch_size"),
            ({"batch_size": 2.9}, "batch_size"),
            ({"batch_size": "3"}, "batch_size"),
            ({"batch_size": None}, "batch_size"),
            ({"seed": 1.9}, "seed"),
            ({"seed": None}, "seed"),
            ({"epoch": 0.7}, "epoch"),
            ({"threads": 1.5}, "threads"),
            ({"drop_remainder": "no"}, "drop_remainder"),
            ({"shard": 3}, "shard"),
            ({"shard": ("a", "b")}, "shard"),
            ({"shuffle": 1}, "shuffle"),
            ({"shuffle": "globl"}, "shuffle"),
            ({"shard": (2, 2)}, "shard"),
            ({"epoch": -1}, "epoch"),
            ({"threads": -1}, "threads"),
            ({"threads": True}, "threads"),
            ({"repeat": 2}, "repeat"),
            ({"normalize": 1.5}, "normalize"),
        ],
    )
    def test_wrong_values_name_the_option(self, options, option):
        with raises(OptionError, naming=option):
            Batches(FakeRecords(20), **{"batch_size": 4, **options})


class TestMemory:
    @pytest.mark.parametrize("limit", [1, 4000, 100_000])
    def test_batches_ahead_are_limited_in_bytes(self, monkeypatch, limit):
        monkeypatch.setattr("beam_pipeline.read.batches.READ_AHEAD_BYTES", limit)
        records = FakeRecords(400, width=50)
        running = iter(Batches(records, 4, threads=4))
        for given_out in range(1, 90):
            next(running)
            time.sleep(0.001)
            ahead = sum(map(len, records.reads)) / 4 - given_out
            assert ahead <= max(limit / (4 * 200), 1) + (given_out == 1)
            assert ahead <= 8
        running.close()

    def test_a_large_batch_is_read_by_all_threads(self, monkeypatch):
        monkeypatch.setattr(read_batches, "READ_AHEAD_BYTES", 4000)
        records = FakeRecords(64, width=50)
        found = list(Batches(records, 16, threads=4, shuffle="global"))
        assert {len(read) for read in records.reads} == {4}
        (alone,) = Batches(records, 64, threads=0, shuffle="global")
        assert numbers(found) == alone["number"].tolist()
        pairs = np.concatenate([batch["pair"] for batch in found])
        assert np.array_equal(pairs, alone["pair"])


@pytest.mark.parametrize("shuffle", SHUFFLES)
@pytest.mark.parametrize(("n", "count"), [(35, 2), (49, 3), (17, 2), (3, 4), (36, 2)])
def test_trainers_with_whole_batches_have_as_many(n, count, shuffle):
    taken = []
    for index in range(count):
        batches = Batches(
            FakeRecords(n), 9, shard=(index, count), shuffle=shuffle,
            drop_remainder=True,
        )  # fmt: skip
        made = list(batches)
        assert len(made) == len(batches) == n // count // 9
        assert {len(batch["number"]) for batch in made} <= {9}
        taken += numbers(made)
        assert batches.epoch == 1
    assert len(set(taken)) == len(taken)
