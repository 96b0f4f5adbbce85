"""JAX takes batches of NumPy arrays, and an example as a tree."""

import numpy as np

from tests.frameworks.conftest import need

jax = need("jax")


def test_jax_takes_the_batches_of_numpy_arrays(sounds):
    @jax.jit
    def loudest(batch):
        return batch["signal"].max(), batch["log_mel"].mean()

    for batch in sounds.batches(16):
        numbers = {k: v for k, v in batch.items() if v.dtype != object}
        top, mean = loudest(numbers)
        assert float(top) == batch["signal"].max()
        np.testing.assert_allclose(float(mean), batch["log_mel"].mean(), rtol=1e-4)


def test_an_example_is_a_tree(records):
    example = records[3]
    doubled = jax.tree.map(lambda value: value * 2, example)
    assert type(doubled) is dict
    assert set(doubled) == set(example)
    np.testing.assert_array_equal(doubled["x"], example["x"] * 2)
    paths, _ = jax.tree_util.tree_flatten_with_path(example)
    assert jax.tree_util.keystr(paths[0][0]) == "['complex']"
