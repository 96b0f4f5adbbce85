"""Grain: Records are a source for it; and an example is a tree of JAX."""

import numpy as np
import pytest

from tests.frameworks.conftest import COUNT, need

grain = need("grain")
from absl import flags  # noqa: E402


def numbers_of(batches):
    return [batch["number"].tolist() for batch in batches]


def test_records_are_a_source(records):
    source = grain.MapDataset.source(records)
    assert len(source) == COUNT
    np.testing.assert_array_equal(source[7]["x"], records[7]["x"])
    assert source[COUNT + 3]["number"] == records[3]["number"]  # repeated


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


def test_an_example_is_a_tree(records):
    jax, example = need("jax"), records[3]
    doubled = jax.tree.map(lambda value: value * 2, example)
    assert type(doubled) is dict
    assert set(doubled) == set(example)
    np.testing.assert_array_equal(doubled["x"], example["x"] * 2)
    paths, _ = jax.tree_util.tree_flatten_with_path(example)
    assert jax.tree_util.keystr(paths[0][0]) == "['complex']"
