"""replay(shuffle="global"): the elements of replay, in the order of Records.batches."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from beam_pipeline import open_records, record_dataset, replay
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.read.index_members import index_data_set
from tests.raising import raises
from tests.read.members import rewrite
from tests.read.test_replay import NUMBER, make

tf = pytest.importorskip("tensorflow")

ROOT = Path(__file__).parents[2]


def numbers(ds):
    return [int(n) for e in ds for n in np.atleast_1d(e["number"].numpy())]


@pytest.fixture(scope="module")
def numbered(tmp_path_factory):
    """``number`` 0 to 22 in shards of 5, 1, 9 and 8; and a split without examples."""
    folder = tmp_path_factory.mktemp("numbered")
    columns = {"number": np.arange(23)}
    splits = {"train": (5, 1, 9, 8), "none": (0,)}
    return str(rewrite(make(folder, [NUMBER], columns, splits), folder / "members"))


@pytest.fixture(scope="module")
def elements(tmp_path_factory):
    """Elements of different shapes, in batches."""
    folder = str(tmp_path_factory.mktemp("elements") / "records")
    dataset = tf.data.Dataset.range(21).map(
        lambda n: {
            "number": n,
            "ragged": tf.RaggedTensor.from_row_lengths(
                tf.range(n), [n // 2, n - n // 2]
            ),
            "text": (tf.strings.as_string(n), tf.cast(n, tf.complex64)),
            "list": tf.range(n % 5),
        }
    )
    record_dataset(dataset, folder)
    index_data_set(folder)
    return folder


def as_text(element):
    """An element as a text, by which it is compared."""
    return str(tf.nest.map_structure(
        lambda t: t.to_list() if isinstance(t, tf.RaggedTensor) else str(t.numpy()),
        element,
        expand_composites=False,
    ))  # fmt: skip


class TestOrder:
    @pytest.mark.parametrize("batch_size", [None, 4, 23])
    @pytest.mark.parametrize("repeat", [False, 3])
    def test_is_that_of_batches(self, numbered, batch_size, repeat):
        ds = replay(
            numbered, split="train", shuffle="global", seed=5, repeat=repeat,
            batch_size=batch_size,
        )  # fmt: skip
        batches = open_records(numbered, "train").batches(4, shuffle="global", seed=5)
        for _ in range(2):
            expected = []
            for _ in range(int(repeat or 1)):
                expected += [int(n) for batch in batches for n in batch["number"]]
            found = list(ds)
            assert len(found) == ds.cardinality().numpy()
            assert numbers(found) == expected

    def test_endless(self, numbered):
        ds = replay(
            numbered, split="train", shuffle="global", batch_size=10, repeat=True
        )
        assert ds.cardinality() == tf.data.INFINITE_CARDINALITY
        found = numbers(ds.take(6))
        assert sorted(found[:23]) == sorted(found[23:]) == list(range(23))
        assert found[:23] != found[23:]

    @pytest.mark.parametrize("repeat", [False, True, 2])
    @pytest.mark.parametrize("batch_size", [None, 4])
    def test_nothing(self, numbered, repeat, batch_size):
        options = {"repeat": repeat, "batch_size": batch_size}
        assert list(replay(numbered, split="none", shuffle="global", **options)) == []
        small = {"split": "train", "batch_size": 30, "drop_remainder": True}
        assert list(replay(numbered, shuffle="global", repeat=repeat, **small)) == []

    @pytest.mark.parametrize("count", [1, 3, 25])
    def test_shares(self, numbered, count):
        options = {"split": "train", "shuffle": "global", "batch_size": 2}
        whole = numbers(replay(numbered, **options))
        shares = [
            numbers(replay(numbered, shard=(i, count), **options)) for i in range(count)
        ]
        assert [n for share in shares for n in share] == whole

    def test_does_not_depend_on_the_seed_of_tensorflow(self, numbered):
        orders = []
        for seed in (1, 2):
            tf.random.set_seed(seed)
            orders.append(numbers(replay(numbered, split="train", shuffle="global")))
        assert orders[0] == orders[1]


class TestElements:
    @pytest.mark.parametrize(
        "options",
        [
            {},
            {"batch_size": 4},
            {"batch_size": 4, "drop_remainder": True},
            {"features": ["list", "number"], "batch_size": 3},
            {"as_supervised": ("number", "list")},
        ],
        ids=str,
    )
    def test_are_those_of_replay(self, elements, options):
        there = replay(elements, **options)
        here = replay(elements, shuffle="global", **options)
        assert here.element_spec == there.element_spec
        assert here.cardinality() == there.cardinality()
        if "batch_size" not in options:
            assert Counter(map(as_text, here)) == Counter(map(as_text, there))
            # Single examples are parsed in blocks, which keep the order.
            order = [int(e[0] if isinstance(e, tuple) else e["number"]) for e in here]
            records = open_records(elements)
            (batch,) = records.batches(99, shuffle="global", epoch=1)
            assert order == batch["number"].tolist()
        else:
            assert len(list(here)) == len(list(there))

    @pytest.mark.parametrize(
        "options",
        [
            {"batch_size": 4},
            {"batch_size": 4, "drop_remainder": True},
            {},
            {"as_supervised": ("number", "number")},
            {"repeat": 2, "batch_size": 5},
        ],
        ids=str,
    )
    def test_have_the_same_types(self, numbered, options):
        there = replay(numbered, split="train", **options)
        here = replay(numbered, split="train", shuffle="global", **options)
        assert here.element_spec == there.element_spec
        assert here.cardinality() == there.cardinality()


class TestCheckpoints:
    @pytest.mark.parametrize("batch_size", [None, 4])
    def test_continue_at_every_element(self, numbered, tmp_path, batch_size):
        def make_dataset():
            return replay(
                numbered,
                split="train",
                shuffle="global",
                batch_size=batch_size,
                repeat=2,
            )

        iterator = iter(make_dataset())
        checkpoint = tf.train.Checkpoint(iterator=iterator)
        expected = numbers(make_dataset())
        found = []
        for step in range(len(make_dataset())):
            if step % (7 if batch_size is None else 1) == 0:
                path = checkpoint.write(str(tmp_path / f"{step}"))
                restored = iter(make_dataset())
                tf.train.Checkpoint(iterator=restored).read(path)
                assert found + numbers(restored) == expected
            found += numbers([next(iterator)])
        assert found == expected

    def test_the_pass_after_a_restored_one_is_the_next(self, numbered, tmp_path):
        options = {"split": "train", "shuffle": "global", "batch_size": 1}
        one = replay(numbered, **options)
        passes = [numbers(one) for _ in range(2)]
        iterator = iter(one)
        start = numbers([next(iterator)])
        path = tf.train.Checkpoint(iterator=iterator).write(str(tmp_path / "saved"))
        expected = numbers(iterator), numbers(one)
        other = replay(numbered, **options)
        restored = iter(other)
        tf.train.Checkpoint(iterator=restored).read(path)
        assert (numbers(restored), numbers(other)) == expected
        assert sorted(start + expected[0]) == list(range(23))
        assert start + expected[0] not in passes

    @pytest.mark.runs
    def test_a_killed_process_is_continued(self, numbered, tmp_path):
        script = f"""
import os, signal, sys
import tensorflow as tf
from beam_pipeline import replay
ds = replay({numbered!r}, split="train", shuffle="global", batch_size=2, repeat=3)
iterator = iter(ds)
checkpoint = tf.train.Checkpoint(iterator=iterator)
manager = tf.train.CheckpointManager(checkpoint, {str(tmp_path)!r}, 1)
if manager.latest_checkpoint:
    checkpoint.restore(manager.latest_checkpoint)
for step, batch in enumerate(iterator):
    print(*batch["number"].numpy(), flush=True)
    manager.save()
    if step == int(sys.argv[1]):
        os.kill(os.getpid(), signal.SIGKILL)
"""
        found = []
        for step in ("10", "99"):
            done = subprocess.run(
                [sys.executable, "-c", script, step],
                capture_output=True, text=True, cwd=ROOT, check=False,
            )  # fmt: skip
            assert (done.returncode == 0) == (step == "99"), done.stderr
            found += [int(n) for n in done.stdout.split()]
        ds = replay(numbered, split="train", shuffle="global", batch_size=2, repeat=3)
        assert found == numbers(ds)


class TestErrors:
    def test_a_data_set_without_an_index(self, tmp_path):
        folder = make(tmp_path, [NUMBER], {"number": np.arange(3)}, {"train": (3,)})
        with raises(InputError, naming="audio-tfrecords index"):
            replay(folder, shuffle="global")

    @pytest.mark.parametrize("shuffle", ["shards", "globl", ""])
    def test_no_such_order(self, numbered, shuffle):
        with raises(OptionError, naming="shuffle"):
            replay(numbered, split="train", shuffle=shuffle)

    def test_damage_names_the_file(self, numbered, tmp_path):
        folder = rewrite(numbered, tmp_path / "copy")
        (path,) = folder.glob("train/*-00002-of-*")
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 255
        path.write_bytes(data)
        with pytest.raises(tf.errors.OpError, match=path.name):
            list(replay(str(folder), split="train", shuffle="global", batch_size=4))
