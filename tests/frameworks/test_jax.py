"""JAX takes an example as a tree; the page of frameworks has its batches."""

import numpy as np

from tests.frameworks.conftest import need

jax = need("jax")


def test_an_example_is_a_tree(records):
    example = records[3]
    doubled = jax.tree.map(lambda value: value * 2, example)
    assert type(doubled) is dict
    assert set(doubled) == set(example)
    np.testing.assert_array_equal(doubled["x"], example["x"] * 2)
    paths, _ = jax.tree_util.tree_flatten_with_path(example)
    assert jax.tree_util.keystr(paths[0][0]) == "['complex']"
