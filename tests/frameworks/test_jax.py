"""JAX: batches of NumPy arrays, and batches on its devices."""

import warnings

import numpy as np
import pytest

from beam_pipeline.errors import InputError
from tests.frameworks.conftest import COUNT, need

jax = need("jax")
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def numbers_of(batches):
    return [np.asarray(batch["number"]).tolist() for batch in batches]


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


def test_batches_on_the_device(records):
    batches = records.to_jax(8, shuffle="global", seed=2)
    plain = records.batches(8, shuffle="global", seed=2)
    assert len(batches) == len(plain) == -(-COUNT // 8)
    for epoch in range(2):
        for got, wanted in zip(batches, plain, strict=True):
            assert set(got) == set(wanted)
            for name, values in wanted.items():
                if name == "text":
                    assert got[name].tolist() == values.tolist()
                else:
                    assert isinstance(got[name], jax.Array)
                    np.testing.assert_array_equal(got[name], values)
        assert batches.state_dict()["epoch"] == epoch + 1


def test_batches_are_sharded(records):
    mesh = jax.make_mesh((jax.device_count(),), ("data",))
    sharding = NamedSharding(mesh, PartitionSpec("data"))
    batches = records.to_jax(8, sharding=sharding, drop_remainder=True)
    for batch in batches:
        assert batch["x"].sharding == sharding
        assert batch["x"].shape == (8, 6, 3)


def test_lists_stay_as_they_are(everything):
    (batch,) = everything.to_jax(COUNT)
    assert isinstance(batch["list"], list)
    assert len(batch["maybe"]) == COUNT


@pytest.mark.parametrize("steps", [0, 1, 5, 6, 7, 8])
def test_a_state_continues_at_the_next_example(records, steps):
    def make():
        return records.to_jax(8, shuffle="global", seed=1, repeat=True)

    wanted = numbers_of(b for _, b in zip(range(14), make(), strict=False))
    batches = make()
    iterator = iter(batches)
    got = numbers_of(next(iterator) for _ in range(steps))
    state = batches.state_dict()
    batches = make()
    batches.load_state_dict(state)
    rest = (b for _, b in zip(range(14 - steps), batches, strict=False))
    assert got + numbers_of(rest) == wanted


def test_an_iteration_that_was_left_early_is_continued(records):
    batches = records.to_jax(8, shuffle="global")
    iterator = iter(batches)
    got = numbers_of([next(iterator), next(iterator)])
    got += numbers_of(batches)
    assert got == numbers_of(records.batches(8, shuffle="global"))


def test_a_state_of_another_order_is_refused(records):
    state = records.to_jax(8, shuffle="global").state_dict()
    with pytest.raises(InputError, match="batch_size"):
        records.to_jax(4, shuffle="global").load_state_dict(state)
