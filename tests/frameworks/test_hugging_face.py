"""Hugging Face reads Arrow, and streams of examples."""

import numpy as np
import pytest

from tests.frameworks.conftest import COUNT, FIXED, need
from tests.frameworks.loops import read_pieces

datasets = need("datasets")


def test_a_table_becomes_a_dataset(everything):
    dataset = datasets.Dataset(everything.to_arrow(tensors=False))
    assert len(dataset) == COUNT
    for wanted, got in zip(everything, dataset.with_format("numpy"), strict=True):
        for name in FIXED:
            value = wanted[name]
            if name == "complex":
                value = np.stack([value.real, value.imag], axis=-1)
            np.testing.assert_array_equal(got[name], value)
        assert got["list"].tolist() == wanted["list"].tolist()
    lacking = [one is None for one in dataset["maybe"]]
    assert lacking == [i % 3 == 0 for i in range(COUNT)]


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_gives_each_example_once(records, workers):
    from torch.utils.data import DataLoader

    pieces = [(start, start + 9) for start in range(0, COUNT, 9)]
    stream = datasets.IterableDataset.from_generator(
        read_pieces, gen_kwargs={"records": records, "pieces": pieces}
    )
    loader = DataLoader(stream, batch_size=4, num_workers=workers)
    numbers = [n for batch in loader for n in batch["number"].tolist()]
    assert sorted(numbers) == list(range(COUNT))
