"""Hugging Face reads Arrow, and streams of examples."""

import numpy as np

from tests.frameworks.conftest import COUNT, FIXED, need

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
