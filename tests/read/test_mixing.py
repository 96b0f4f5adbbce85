"""mix: the proportions of its sources, their ends, and its state."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline import mix, open_records
from beam_pipeline.codecs import FLOAT_LIST, INT64_LIST
from beam_pipeline.errors import InputError, OptionError, UnknownOption
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.read.mix import Draws, Mixed
from tests.raising import raises
from tests.read.fake_records import FakeRecords, assert_continues
from tests.read.members import make
from tests.read.test_replay import NUMBER

ENDS = ("repeat", "stop", "leave")
TARGET = FeatureSpec("target", "int64", (), INT64_LIST)


def pairs_of(batches, count=None):
    """(source, number) of each example; the width of ``pair`` is the source."""
    found = []
    for batch in batches:
        found += batch["number"].tolist()
        if count is not None and len(found) >= count:
            break
    return found[:count]


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
        found = draws.take(0, 0, np.zeros(3, np.int64), 100_000)
        shares = np.bincount(found) / 100_000
        assert np.allclose(shares, [0.7, 0.2, 0.1], atol=4 * 0.5 / 100_000**0.5)
        # Each is independent of the one before.
        same = np.mean(found[1:] == found[:-1])
        assert abs(same - (0.49 + 0.04 + 0.01)) < 4 * 0.5 / 100_000**0.5

    def test_known_values(self):
        draws = Draws([1, 2], [9, 9], "repeat", seed=0)
        found = draws.take(0, 0, np.zeros(2, np.int64), 16)
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
        whole = draws.take(0, 0, nothing, 100)
        found, turn = [], 0
        while True:
            taken = np.bincount(np.array(found, int), minlength=len(lengths))
            some = draws.take(0, len(found), taken, steps[turn % len(steps)])
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
        whole = Draws([1, 3], lengths, "repeat", 5).take(0, 0, nothing, 90)
        for k in range(3):
            mine = Draws([1, 3], lengths, "repeat", 5, (k, 3))
            assert mine.take(0, 0, nothing, 30).tolist() == whole[k::3].tolist()


class TestBatches:
    @pytest.mark.parametrize("shuffle", [False, "global"])
    def test_sources_repeat_by_epochs(self, shuffle):
        mixed = mixed_of([5, 20], [1, 1])
        found = pairs_of(mixed.batches(8, shuffle=shuffle), 200)
        small = [n for n in found if n < 1000]
        large = [n - 1000 for n in found if n >= 1000]
        assert abs(len(small) - 100) < 4 * 50**0.5
        for numbers, size in ((small, 5), (large, 20)):
            passes = [
                numbers[k : k + size] for k in range(0, len(numbers) - size + 1, size)
            ]
            assert all(sorted(one) == list(range(size)) for one in passes)
            if shuffle:
                assert len({tuple(one) for one in passes}) > len(passes) / 2

    def test_stop(self):
        batches = mixed_of([5, 100], [1, 1], ends="stop").batches(4)
        found = list(batches)
        numbers = pairs_of(found)
        assert sorted(n for n in numbers if n < 1000) == list(range(5))
        assert numbers[-1] < 1000
        assert len(set(numbers)) == len(numbers)
        # The next iteration has other draws and orders.
        assert pairs_of(batches) != numbers

    def test_leave(self):
        batches = mixed_of([5, 30, 0], [9, 1, 1], ends="leave").batches(4)
        for _ in range(2):
            numbers = pairs_of(batches)
            assert sorted(numbers) == [*range(5), *range(1000, 1030)]

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


class TestState:
    @pytest.mark.parametrize("ends", ENDS)
    def test_continues_at_every_batch(self, ends):
        mixed = mixed_of([7, 12], [1, 2], ends=ends)
        assert_continues(lambda: mixed.batches(3, threads=0), 15)

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
        numbers = pairs_of(mixed.batches(4))
        assert sorted(numbers) == [*range(9), *range(100, 114)]
        same = mix(
            [(open_records(folders[0], "train"), 3), (folders[1], np.int64(1))],
            split="train", ends="leave",
        )  # fmt: skip
        assert pairs_of(same.batches(5)) == numbers

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
        for option, fact in (("seed", "mix"), ("epoch", "shuffle"), ("shufle", "mean")):
            with raises(UnknownOption, naming=[option, fact]):
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
