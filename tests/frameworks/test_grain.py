"""Grain: Records are a source of its data sets and of its DataLoader."""

import numpy as np
import pytest

from tests.frameworks.conftest import COUNT, need, numbers_on_disk

grain = need("grain")
from absl import flags  # noqa: E402


def numbers_of(batches):
    return [batch["number"].tolist() for batch in batches]


def test_records_are_a_source(records):
    source = grain.MapDataset.source(records)
    assert len(source) == COUNT
    np.testing.assert_array_equal(source[7]["x"], records[7]["x"])
    assert source[COUNT + 3]["number"] == records[3]["number"]  # repeated


def test_batches_are_stacked(records):
    batch = grain.MapDataset.source(records).batch(5)[1]
    assert type(batch) is dict
    numbers = numbers_on_disk(records)[5:10]
    assert batch["number"].tolist() == numbers
    assert batch["text"].tolist() == [f"ä{number}" for number in numbers]
    for row, example in enumerate(records[5:10]):
        assert batch["x"].dtype == np.float32
        np.testing.assert_array_equal(batch["x"][row], example["x"])
        np.testing.assert_array_equal(batch["complex"][row], example["complex"])


@pytest.mark.parametrize("workers", [0, 1])
def test_the_data_loader(records, workers):
    flags.FLAGS(["grain"])  # its worker processes read flags, as absl.app.run sets them

    def make():
        return grain.DataLoader(
            data_source=records,
            sampler=grain.samplers.IndexSampler(
                COUNT, num_epochs=1, shuffle=True, seed=3
            ),
            operations=[grain.transforms.Batch(4)],
            worker_count=workers,
        )

    iterator = iter(make())
    first = numbers_of(next(iterator) for _ in range(5))
    state = iterator.get_state()
    rest = numbers_of(iterator)
    numbers = [number for batch in first + rest for number in batch]
    assert sorted(numbers) == list(range(COUNT))
    iterator = iter(make())
    iterator.set_state(state)
    assert numbers_of(iterator) == rest
