"""Classes of different sizes: balanced draws, and weights for losses."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline import mix, open_records, record, record_examples
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.permutation import BalancedDraws
from tests.raising import raises
from tests.sounds import write_sound


def draws_of(classes: Any, epochs: int, seed: int = 0) -> list[int]:
    """All draws of some epochs, one after the other."""
    draws = BalancedDraws(np.array(classes), seed)
    positions = np.arange(len(classes))
    return [n for epoch in range(epochs) for n in draws.at(epoch, positions).tolist()]


@given(
    st.lists(st.integers(0, 5), min_size=1, max_size=40), st.integers(0, 9), st.data()
)
def test_each_class_is_drawn_once_in_a_round(
    classes: list[int], seed: int, data: st.DataObject
) -> None:
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


def test_large_classes_and_many_classes() -> None:
    """Beyond 256, a permutation takes the place of a sort: the same promises."""
    classes = np.sort(np.arange(3000) % 600 % 299)
    found = np.array(draws_of(classes, 3))
    assert {*Counter(classes[found[: 299 * 10]].tolist()).values()} == {10}
    two = np.repeat([0, 1], [2000, 10])
    drawn = np.array(draws_of(two, 2))
    assert np.bincount(two[drawn]).tolist() == [2010, 2010]
    assert len({*drawn[two[drawn] == 0][:2000].tolist()}) == 2000
    # Orders look random: neighbours on disk do not stay neighbours, passes differ.
    rare = drawn[two[drawn] == 1].reshape(-1, 10)
    assert len({tuple(row) for row in rare.tolist()}) == len(rare)
    assert np.mean(np.diff(drawn[two[drawn] == 0][:2000]) == 1) < 0.01


def test_known_values() -> None:
    found = draws_of([0, 0, 0, 1, 2, 0], 2, seed=1)
    assert found == [4, 3, 0, 3, 4, 1, 3, 4, 5, 3, 4, 2]


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("uneven")
    for label, clips in (("bat", 1), ("owl", 6), ("tit", 2)):
        for k in range(clips):
            write_sound(folder / "in" / label / f"{k}.wav", 1500, seed=k)
    record(folder / "in", folder / "out", win_len=500, workers=1)
    return str(folder / "out")


@pytest.mark.runs
def test_batches_are_balanced_and_continue(uneven: str) -> None:
    records = open_records(uneven)
    assert np.bincount(records.class_numbers()).tolist() == [3, 18, 6]

    def made(**options: Any) -> Any:
        return records.batches(4, shuffle="balanced", seed=5, **options)

    whole = made(repeat=True)
    batches = [batch for _, batch in zip(range(21), whole, strict=False)]
    targets = np.concatenate([batch["target"] for batch in batches])
    assert np.bincount(targets).tolist() == [27, 27, 27]
    assert len(made()) == 7
    first = made()
    iterator = iter(first)
    for _ in range(5):
        next(iterator)
    saved = json.loads(json.dumps(first.state_dict()))
    assert len(json.dumps(saved)) < 300
    again = made(threads=0)
    again.load_state_dict(saved)
    rest = [*again, *again]
    for one, other in zip(rest, batches[5:14], strict=True):
        assert one["index"].tolist() == other["index"].tolist()
        assert one["win_start_idx"].tolist() == other["win_start_idx"].tolist()
    with raises(InputError, naming="shuffle"):
        records.batches(4, shuffle="global", seed=5).load_state_dict(saved)
    # Trainers have consecutive parts of one epoch's draws; views and mixes do it, too.
    parts = [b["target"] for k in range(3) for b in made(shard=(k, 3))]
    assert np.concatenate(parts).tolist() == targets[:27].tolist()
    view = records.where("class != 'bat'").batches(8, shuffle="balanced")
    assert np.bincount(np.concatenate([b["target"] for b in view])).tolist() == [
        0,
        12,
        12,
    ]
    mixed = mix([(records, 1.0)]).batches(27, shuffle="balanced")
    assert np.bincount(next(iter(mixed))["target"]).tolist() == [9, 9, 9]


@pytest.mark.runs
def test_weights_are_those_of_scikit_learn(uneven: str) -> None:
    records = open_records(uneven)
    weights = records.class_weights()
    assert weights == {0: 27 / (3 * 3), 1: 27 / (3 * 18), 2: 27 / (3 * 6)}
    assert sum(weights[k] for k in records.class_numbers().tolist()) == len(records)
    assert records.where("class != 'bat'").class_weights() == {
        0: 0.0,
        1: 24 / 36,
        2: 2.0,
    }


@pytest.mark.runs
def test_records_without_one_class_each_are_refused(
    uneven: str, tmp_path: Path
) -> None:
    with raises(OptionError, "shuffle", naming=["balanced", "globe"]):
        open_records(uneven).batches(4, shuffle="globe")  # type: ignore[arg-type]
    record_examples([{"x": 1}], tmp_path / "dicts")
    with raises(InputError, naming="table"):
        open_records(tmp_path / "dicts").class_weights()
    write_sound(tmp_path / "in" / "a.wav", 600)
    rows = [{"path": str(tmp_path / "in" / "a.wav"), "class": "owl;tit"}]
    options: Any = {"label_from": "class", "label_separator": ";", "win_len": 500}
    record(rows, tmp_path / "several", **options, workers=1)
    with raises(InputError, naming=["owl;tit", "owl, tit"]):
        open_records(tmp_path / "several").batches(1, shuffle="balanced")
