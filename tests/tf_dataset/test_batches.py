"""Batches, order and form of the elements."""

import numpy as np
import pytest
import tensorflow as tf

from beam_pipeline import tf_dataset as tfd
from beam_pipeline.tf_dataset.structure import is_batched


def elements(count=5):
    return tf.data.Dataset.from_tensor_slices(
        {
            "signal": np.arange(count * 6, dtype="f4").reshape(count, 2, 3),
            "target": np.arange(count) % 3,
            "num_classes": np.full(count, 3),
            "index": np.arange(count),
        }
    )


def indices(ds):
    return [x["index"].tolist() for x in ds.as_numpy_iterator()]


@pytest.mark.parametrize("size", [1, 2, 4, 5, 6])
def test_batches_leave_out_a_rest(size):
    ds = tfd.dataset_batch(elements(), size)
    assert ds.element_spec["signal"].shape == (size, 2, 3)
    assert [len(x) for x in indices(ds)] == [size] * (5 // size)
    kept = tfd.dataset_unbatch(tfd.dataset_batch(elements(), size, False))
    assert indices(kept) == [0, 1, 2, 3, 4]
    assert is_batched(ds) is not is_batched(kept) is False


def test_order():
    assert indices(tfd.dataset_repeat(elements(2), 3)) == [0, 1] * 3
    assert tfd.dataset_repeat(elements()).cardinality() == tf.data.INFINITE_CARDINALITY
    assert indices(tfd.dataset_prefetch(elements())) == [0, 1, 2, 3, 4]
    mixed = tfd.dataset_shuffle(elements(50), 50, seed=3)
    first, second = indices(mixed), indices(mixed)
    assert sorted(first) == list(range(50)) != first != second
    same = tfd.dataset_shuffle(elements(50), 50, reshuffle_each_iteration=False, seed=3)
    assert indices(same) == indices(same)


def test_one_hot():
    ds = tfd.dataset_onehot(elements(4))
    assert ds.element_spec["target"] == tf.TensorSpec((3,), tf.int64)
    found = [x["target"].tolist() for x in ds.as_numpy_iterator()]
    assert found == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 0, 0]]
    batch = tfd.dataset_onehot(elements().batch(5))
    assert tfd.grab(batch)["target"].shape == (5, 3)
    wide = tfd.dataset_onehot(elements(), num_classes=7)
    assert wide.element_spec["target"].shape == (7,)


def test_flatten():
    ds = tfd.dataset_flatten(elements(2), "signal")
    assert ds.element_spec["signal"].shape == (2, 3)
    ds = tfd.dataset_flatten(elements(2).batch(2), "signal")
    assert ds.element_spec["signal"].shape.as_list() == [None, 6]
    np.testing.assert_array_equal(tfd.grab(ds)["signal"], [range(6), range(6, 12)])
    assert tfd.grab(tfd.dataset_flatten(ds, "target"))["target"].shape == (2, 1)
    assert tfd.grab(tfd.dataset_flatten(elements(), "target"))["target"].shape == (1,)


def unshaped(*sizes):
    return tf.data.Dataset.from_generator(
        lambda: ({"x": np.zeros(size), "y": 1} for size in sizes),
        output_signature={
            "x": tf.TensorSpec(None, tf.float64), "y": tf.TensorSpec(None, tf.int32),
        },
    )  # fmt: skip


def test_shapes_are_those_of_the_first_element():
    ds = tfd.dataset_set_shapes(unshaped(4, 4))
    assert ds.element_spec["x"].shape == (4,)
    assert ds.element_spec["y"].shape == ()
    assert len(list(ds)) == 2
    with pytest.raises(tf.errors.InvalidArgumentError):
        list(tfd.dataset_set_shapes(unshaped(4, 5)))
    pairs = tfd.dataset_set_shapes(unshaped(4).map(lambda element: (element["x"], 1)))
    assert pairs.element_spec[0].shape == (4,)


def test_compact():
    ds = tfd.dataset_compact(elements(), "signal", "target")
    x, y = next(iter(ds))
    assert (x.shape, y.numpy()) == ((2, 3), 0)
    x, y = next(iter(tfd.dataset_compact(elements(), ["signal", "index"])))
    assert [value.shape for value in x] == [(2, 3), ()]
    x, (target, classes) = next(
        iter(tfd.dataset_compact(elements(), ["signal"], ("target", "num_classes")))
    )
    assert (x.shape, target.numpy(), classes.numpy()) == ((2, 3), 0, 3)


def test_looking_at_elements(capsys):
    first = tfd.grab(elements())
    assert tfd.shapes(first) == {
        "signal": (2, 3), "target": (), "num_classes": (), "index": (),
    }  # fmt: skip
    assert tfd.shapes([first["signal"], (1, "a")]) == [(2, 3), ((), ())]
    found = tfd.info({**first, "more": {"name": "tug"}}, return_dict=True)
    assert found["signal"] == {"size": 6, "shape": (2, 3), "dtype": "float32"}
    assert found["more"]["name"] == {"size": 1, "shape": (), "dtype": "string"}
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "signal: float32 (2, 3)"
    assert lines[1] == "target: int64 0"
    assert tfd.info(first, print_=False) is None
    assert capsys.readouterr().out == ""
