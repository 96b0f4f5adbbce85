"""What ``tf.distribute`` and the service of ``tf.data`` do with what replay returns."""

import numpy as np
import pytest

from beam_pipeline import replay
from tests.read.members import make
from tests.read.test_replay import NUMBER, numbers

tf = pytest.importorskip("tensorflow")

# Strategies of tf.distribute use it, and give no other access to it.
from tensorflow.python.data.experimental.ops.distribute import (  # noqa: E402
    _AutoShardDataset,
)

POLICY = tf.data.experimental.AutoShardPolicy


@pytest.fixture(scope="module")
def numbered(tmp_path_factory):
    """``number`` 0 to 22 in shards of 5, 1, 9 and 8."""
    folder = tmp_path_factory.mktemp("numbered")
    columns = {"number": np.arange(23)}
    return make(folder, [NUMBER], columns, {"train": (5, 1, 9, 8)})


@pytest.mark.parametrize("policy", [None, POLICY.FILE, POLICY.DATA, POLICY.AUTO])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 4},
        {"batch_size": 4, "shuffle": True},
        {"shuffle": 5, "features": ["number"]},
        {"batch_size": 3, "repeat": 2, "shuffle": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("workers", [1, 2, 3])
def test_each_example_goes_to_one_worker(numbered, policy, options, workers):
    found = []
    for worker in range(workers):
        ds = replay(numbered, split="train", **options)
        given = tf.data.Options()
        if policy is not None:
            given.experimental_distribute.auto_shard_policy = policy
        found += numbers(_AutoShardDataset(ds.with_options(given), workers, worker))
    assert sorted(found) == sorted([*range(23)] * options.get("repeat", 1))


def test_whatever_is_ready_first(numbered):
    shares = [*range(5), *range(6, 15)], [5, *range(15, 23)]
    for worker, expected in enumerate(shares):
        ds = replay(numbered, split="train", batch_size=4, deterministic=False)
        assert sorted(numbers(_AutoShardDataset(ds, 2, worker))) == expected


def test_a_share_is_not_divided(numbered):
    found = []
    for worker in range(3):
        ds = replay(numbered, split="train", batch_size=4, shard=(worker, 3))
        found.append(numbers(_AutoShardDataset(ds, 3, worker)))
    assert found == [[*range(7)], [*range(7, 15)], [*range(15, 23)]]


@pytest.mark.parametrize("options", [{}, {"shuffle": True, "batch_size": 4}])
def test_holds_no_python(numbered, options):
    ds = replay(numbered, split="train", **options)
    graph = tf.raw_ops.DatasetToGraphV2(input_dataset=ds._variant_tensor)
    definition = tf.compat.v1.GraphDef.FromString(graph.numpy())
    functions = [f.node_def for f in definition.library.function]
    used = {node.op for nodes in (definition.node, *functions) for node in nodes}
    assert "TFRecordDatasetV2" in used or "TFRecordDataset" in used
    assert not [op for op in used if "PyFunc" in op]


@pytest.mark.parametrize("policy", ["OFF", "DYNAMIC"])
def test_the_service_of_tf_data(numbered, policy):
    service = tf.data.experimental.service
    dispatcher = service.DispatchServer()
    address = dispatcher.target.split("://")[1]
    config = service.WorkerConfig(address, heartbeat_interval_ms=50)
    worker = service.WorkerServer(config)
    ds = replay(numbered, split="train", shuffle=True, batch_size=4)
    mode = getattr(service.ShardingPolicy, policy)
    ds = ds.apply(service.distribute(mode, dispatcher.target))
    assert sorted(numbers(ds)) == [*range(23)]
    worker._stop()
