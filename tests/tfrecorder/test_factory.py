"""Whole runs of the factory, and the reader of its files."""

import itertools
import os
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.errors import InputError
from beam_pipeline.tfrecorder import Example, IgnoreExampleException, checker, factory
from tests.data_sets import shards_in
from tests.raising import raises
from tests.tfrecorder.declared import declared

Field = Example.Field


class Item(Example):
    """A number; ``load`` makes that many rows of two columns."""

    number = declared("number", "int32")
    table = declared("table", Field.TYPE_ARRAY_FLOAT32)
    name = declared("name", "string")
    precise = declared("precise", "float64")
    wide = declared("wide", Field.array("complex64"))
    count = declared("count", "uint64")

    def __init__(self, number, table=None, name="é", precise=0.1, wide=None):
        self._number, self._table, self._name = number, table, name
        self._precise, self._wide, self._count = precise, wide, 2**64 - 1

    def load(self, ignored=(), **kwargs):
        if self.number in ignored:
            raise IgnoreExampleException(f"{self.number} is ignored")
        self._table = np.full((self.number, 2), self.number, np.float32)
        self._wide = np.full((1, 2), 1j * self.number, np.complex64)

    def split(self, parts=1, **kwargs):
        return [self] if parts == 1 else [self.copy(i) for i in range(parts)]

    def copy(self, i):
        return Item(self.number, self.table[i:], f"{i}", i / 3, self.wide)

    def to_csv_row(self):
        return [self.number]

    @staticmethod
    def from_csv_row(row, **kwargs):
        return Item(int(row[0]))


of_dict = factory.generate_and_save_tfrecords_files_for_examples_dict


def items(count):
    return [Item(number) for number in range(count)]


def write_list(path, numbers):
    path.write_text("".join(f"{number}\n" for number in numbers))
    return path


def read(folder, cls=None, **options):
    dataset = factory.generate_dataset(
        factory.get_tfrecord_filepaths(folder), cls, **options
    )
    return [[value.numpy() for value in element] for element in dataset]


def numbers_in(folder, **options):
    return [int(element[0]) for element in read(folder, **options)]


def csv_of(folder):
    lines = Path(folder, "examples.csv").read_text().splitlines()
    return [int(line) for line in lines]


def test_instances_are_split_and_come_back_with_types_and_shapes(tmp_path):
    examples = items(10)
    counts = factory.generate_and_save_train_eval_test_tfrecords_files_for_examples(
        tmp_path, iter(examples), [0.7, 0.2, 0.1], parts=2, ignored=[3]
    )
    splits = {name: csv_of(tmp_path / name) for name in ("train", "eval", "test")}
    assert sorted(itertools.chain(*splits.values())) == [0, 1, 2, 4, 5, 6, 7, 8, 9]
    assert [e.number for e in examples] == list(range(10))
    assert all(e.table is None for e in examples)
    for name, numbers in splits.items():
        found = read(tmp_path / name)
        assert counts[name] == len(found) == 2 * len(numbers)
        assert numbers_in(tmp_path / name) == np.repeat(numbers, 2).tolist()
        for i, element in enumerate(found):
            number, part = numbers[i // 2], i % 2
            table = np.full((max(number - part, 0), 2), number, np.float32)
            np.testing.assert_array_equal(element[1], table, strict=True)
            assert (element[2], element[3]) == (f"{part}".encode(), part / 3)
            wide = np.full((1, 2), 1j * number, np.complex64)
            np.testing.assert_array_equal(element[4], wide, strict=True)
            assert element[5] == 2**64 - 1


def test_the_order_is_that_of_the_seed(tmp_path):
    path = write_list(tmp_path / "list.csv", range(10))
    for name, options in {
        "a": {}, "b": {"seed": 0}, "c": {"seed": 1}, "d": {"examples_shuffle": False},
    }.items():  # fmt: skip
        counts = factory.generate_and_save_train_eval_test_tfrecords_files(
            tmp_path / name, Item, path, 0.5, **options
        )
        assert counts == {"train": 5, "eval": 5}
    train = {name: csv_of(tmp_path / name / "train") for name in "abcd"}
    assert train["a"] == train["b"] != train["c"]
    assert train["d"] == [0, 1, 2, 3, 4]
    # The same in every version of Python.
    assert factory.shuffled(range(5), 0) == [2, 1, 0, 4, 3]


def test_a_csv_file_for_each_split(tmp_path):
    names = ("train", "eval", "test")
    paths = [write_list(tmp_path / f"{n}.csv", [n, n + 1]) for n in range(3)]
    run = factory.generate_and_save_tfrecords_files_for_train_eval_test_examples_files
    assert run(tmp_path / "a", Item, *paths) == dict.fromkeys(names, 2)
    assert run(tmp_path / "b", Item, *paths[:2]) == dict.fromkeys(names[:2], 2)
    # The lists of one run are inputs of the next.
    lists = [tmp_path / "a" / name / "examples.csv" for name in names]
    run(tmp_path / "c", Item, *lists)
    assert shards_in(tmp_path / "a") == shards_in(tmp_path / "c")


def test_folds(tmp_path):
    folds = {f"fold_{n}": items(n) for n in range(3)}
    generators = {name: iter(some) for name, some in folds.items()}
    counts = of_dict(tmp_path / "a", generators)
    assert counts == {"fold_0": 0, "fold_1": 1, "fold_2": 2}
    assert [numbers_in(tmp_path / "a" / name) for name in folds] == [[], [0], [0, 1]]
    path = write_list(tmp_path / "list.csv", [2, 1, 3])
    run = factory.generate_and_save_tfrecords_files_for_examples_files_dict
    counts = run(tmp_path / "b", Item, dict.fromkeys(folds, path))
    assert counts == dict.fromkeys(folds, 3)
    run = factory.generate_and_save_tfrecords_files_for_examples_file
    assert run(tmp_path / "c", Item, path) == {"records": 3}
    for folder in (tmp_path / "b" / "fold_2", tmp_path / "c"):
        assert numbers_in(folder) == csv_of(folder) == [2, 1, 3]


def test_files_keep_to_their_size_and_their_order(tmp_path):
    size = {"examples_tfrecord_file_max_size_in_bytes": 3e3}
    of_dict(tmp_path, {"train": items(60)}, **size)
    folder = tmp_path / "train"
    paths = factory.get_tfrecord_filepaths(folder)
    assert len(paths) > 1
    assert [os.path.basename(path) for path in paths] == [
        f"train-{k:05d}-of-{len(paths):05d}.tfrecord.gz" for k in range(len(paths))
    ]
    assert max(map(os.path.getsize, paths)) <= 3000
    assert numbers_in(folder) == list(range(60))
    assert numbers_in(folder, dataset_fetching_num_threads=3) == list(range(60))
    shuffled = {"dataset_num_shuffled_tfrecord_files": 4}
    found = numbers_in(folder, **shuffled)
    assert sorted(found) == list(range(60)) != found
    assert numbers_in(folder, **shuffled) == found
    assert numbers_in(folder, seed=1, **shuffled) != found


def test_progress_and_the_number_of_ignored_examples(tmp_path, caplog):
    calls = []
    progress = lambda *numbers: calls.append(numbers)  # noqa: E731
    of_dict(tmp_path, {"train": items(5)}, ignored=[1, 4], progress=progress)
    assert calls[-1] == (5, 5)
    assert "5 sources, 2 ignored by IgnoreExampleException" in caplog.text
    assert "1 is ignored" in caplog.text


def test_the_metadata_hold_the_features_and_no_absolute_path(tmp_path):
    factory.generate_and_save_train_eval_test_tfrecords_files_for_examples(
        tmp_path, items(2), 0.5, data="/data", size=3
    )
    metadata = Metadata.load(str(tmp_path))
    assert list(metadata.features) == [spec.name for spec in Item.feature_specs()]
    assert metadata.elements.options["kwargs"] == {"size": 3}
    assert metadata.elements.options["seed"] == 0
    assert metadata.splits["train"].examples == 1


# Reading


def class_of(**types):
    """A class that declares attributes of these types."""

    return type("Old", (Example,), {n: declared(n, t) for n, t in types.items()})


def test_static_shapes(tmp_path):
    of_dict(tmp_path, {"train": items(1)})
    dataset = factory.generate_dataset(
        factory.get_tfrecord_filepaths(tmp_path / "train")
    )
    shapes = [spec.shape for spec in dataset.element_spec]
    # All examples have these shapes, so readers know them.
    assert shapes[1].as_list() == [0, 2]
    assert shapes[4].as_list() == [1, 2]
    assert [spec.dtype.name for spec in dataset.element_spec] == [
        "int32", "float32", "string", "float64", "complex64", "uint64",
    ]  # fmt: skip


def test_files_of_two_data_sets(tmp_path):
    of_dict(tmp_path / "a", {"train": items(1), "eval": items(2)})
    of_dict(tmp_path / "b", {"train": items(1)})
    other = class_of(number=Field.TYPE_INT64)()
    other._number = 1
    of_dict(tmp_path / "c", {"train": [other]}, examples_log_in_csv_file=False)
    paths = {
        name: factory.get_tfrecord_filepaths(tmp_path / name)
        for name in ("a/train", "a/eval", "b/train", "c/train")
    }
    together = paths["a/train"] + paths["a/eval"] + paths["b/train"]
    assert len(list(factory.generate_dataset(together))) == 4
    for read, facts in (
        ([together + paths["c/train"]], ["c", "count"]),
        ([paths["c/train"], class_of(number=Field.TYPE_FLOAT)], ["number", "float32"]),
        ([paths["c/train"], class_of(digit=Field.TYPE_INT64)], ["c", "digit"]),
    ):
        with raises(InputError, naming=facts):
            factory.generate_dataset(*read)
    # Files without metadata need the class.
    (moved,) = paths["c/train"]
    Path(moved).rename(tmp_path / "moved.tfrecord.gz")
    (found,) = factory.generate_dataset(tmp_path / "moved.tfrecord.gz", type(other))
    assert [int(value) for value in found] == [1]


# The checker


def test_a_class_that_is_right():
    assert checker.assert_example_serialize_deserialize_is_ok(Item(3)) is True
    assert checker.assert_example_serialize_deserialize_is_ok(
        items(4), 200, parts=2, ignored=[2]
    )


class Forgetful(Item):
    """Its rows hold another number."""

    def to_csv_row(self):
        return [self.number + 1]


class Unsteady(Item):
    """Each instance loads other data."""

    made = itertools.count()

    def load(self, **kwargs):
        super().load()
        self._table = np.full(2, next(self.made), np.float32)


@pytest.mark.parametrize("cls", [Forgetful, Unsteady])
def test_a_class_that_is_wrong(cls):
    examples = [cls(1), cls(2)]
    cls.from_csv_row = staticmethod(lambda row, **kwargs: cls(int(row[0])))
    with pytest.raises(AssertionError, match=f"^{cls.__name__}"):
        checker.assert_example_serialize_deserialize_is_ok(examples)


# Splitting


def sizes(total, ratio):
    train, evaluation, test = factory.split_examples_list(range(total), ratio)
    assert [*train, *evaluation, *(test or ())] == list(range(total))
    return len(train), len(evaluation), None if test is None else len(test)


@pytest.mark.parametrize(("total", "ratio", "expected"), [
    (10, 0.8, (8, 2, None)),
    (10, [0.8], (8, 2, None)),
    (10, 1, (10, 0, None)),
    (10, 0, (0, 10, None)),
    (0, 0.8, (0, 0, None)),
    (1, 0.8, (0, 1, None)),
    (9, 0.8, (7, 2, None)),
    (10, [0.7, 0.3], (7, 3, None)),
    (10, (0.7, 0.3), (7, 3, None)),
    # The sum of these is 0.9999999999999999.
    (10, [0.7, 0.2, 0.1], (7, 2, 1)),
    (13, [0.5, 0.3, 0.2], (6, 3, 4)),
    (3, [0.8, 0.1, 0.1], (2, 0, 1)),
    (10, [0.5, 0.5, 0.0], (5, 5, None)),
    # int(100 * 0.29) is 28, int(3 * (1 / 3)) is 1.
    (100, 0.29, (29, 71, None)),
    (3, [1 / 3, 1 / 3, 1 / 3], (1, 1, 1)),
    (1000, [1 / 3, 2 / 3], (333, 667, None)),
])  # fmt: skip
def test_sizes(total, ratio, expected):
    assert sizes(total, ratio) == expected


@given(st.integers(0, 10**5), st.integers(0, 1000))
def test_a_decimal_ratio_is_exact(total, thousandths):
    train = int(total * Fraction(thousandths, 1000))
    assert sizes(total, thousandths / 1000) == (train, total - train, None)
