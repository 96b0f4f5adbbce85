"""replay: its tensors against soundfile and numpy."""

import json
from pathlib import Path

import numpy as np
import pytest

from beam_pipeline import open_records, record, record_examples
from beam_pipeline.codecs import FLOAT_LIST, INT64_LIST
from beam_pipeline.errors import DataSetWarning, InputError, OptionError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.read.replay import replay
from tests.raising import assert_names, raises
from tests.read.conftest import WIN_LEN
from tests.read.members import make
from tests.sounds import damage, write_samples

tf = pytest.importorskip("tensorflow")

MODULE = "beam_pipeline.read.replay"
RATE = 8000
CLASSES = ("cat", "dog", "owl")
NUMBER = FeatureSpec("number", "int64", (), INT64_LIST)


@pytest.fixture(scope="module")
def numbered(tmp_path_factory):
    """``number`` 0 to 22 in shards of 5, 1, 9 and 8; and a split of 0 to 3."""
    folder = tmp_path_factory.mktemp("numbered")
    columns = {"number": np.arange(23)}
    return make(folder, [NUMBER], columns, {"train": (5, 1, 9, 8), "test": (4,)})


def numbers(ds):
    """``number`` of every example, whether batched or not."""
    return [int(n) for e in ds for n in np.atleast_1d(e["number"].numpy())]


class TestRecorded:
    def test_static_types_and_shapes(self, whole):
        spec = replay(whole, split="train").element_spec
        numbers = ("copy", "fs", "index", "num_classes", "target", "win_start_idx")
        assert spec == {
            **dict.fromkeys(("class", "filepath"), tf.TensorSpec((), tf.string)),
            **dict.fromkeys(numbers, tf.TensorSpec((), tf.int64)),
            "mel": tf.TensorSpec((1, 8), tf.float32),
            "signal": tf.TensorSpec((WIN_LEN,), tf.float32),
        }
        for drop, size in ((False, None), (True, 4)):
            ds = replay(whole, "train", batch_size=4, drop_remainder=drop)
            assert ds.element_spec == {
                name: tf.TensorSpec((size, *s.shape), s.dtype)
                for name, s in spec.items()
            }

    def test_supervised_pairs_train_a_keras_model(self, whole):
        options = {"as_supervised": ("signal", "target"), "shuffle": 3, "repeat": True}
        ds = replay(whole, "train", batch_size=4, **options)
        assert ds.class_names == open_records(whole, "train").class_names
        assert ds.class_names == [*CLASSES]
        assert ds.element_spec == (
            tf.TensorSpec((None, WIN_LEN), tf.float32),
            tf.TensorSpec((None,), tf.int64),
        )
        layers = [tf.keras.layers.Dense(len(CLASSES), activation="softmax")]
        model = tf.keras.Sequential(layers)
        model.compile("sgd", "sparse_categorical_crossentropy")
        history = model.fit(ds, steps_per_epoch=2, epochs=1, verbose=0)
        assert np.isfinite(history.history["loss"]).all()


class TestCardinality:
    @pytest.mark.parametrize("shuffle", [False, 4])
    @pytest.mark.parametrize("batch_size", [4, 23, 100])
    @pytest.mark.parametrize("repeat", [False, 3])
    @pytest.mark.parametrize("drop_remainder", [False, True])
    def test_known_and_true(
        self, numbered, batch_size, shuffle, repeat, drop_remainder
    ):
        ds = replay(
            numbered, split="train", batch_size=batch_size, shuffle=shuffle,
            repeat=repeat, drop_remainder=drop_remainder,
        )  # fmt: skip
        passes, size = repeat or 1, batch_size
        kept = 23 - 23 % size if drop_remainder else 23
        batches = list(ds)
        assert ds.cardinality() == len(batches) == passes * -(-kept // size)
        assert len(numbers(batches)) == passes * kept

    @pytest.mark.parametrize("batch_size", [None, 4])
    def test_endless(self, numbered, batch_size):
        ds = replay(numbered, "test", batch_size=batch_size, repeat=True)
        assert ds.cardinality() == tf.data.INFINITE_CARDINALITY
        assert numbers(ds.take(9))[:9] == [0, 1, 2, 3, 0, 1, 2, 3, 0]


class TestOrder:
    @pytest.mark.parametrize("batch_size", [None, 7])
    @pytest.mark.parametrize("read_ahead", [1, 1 << 20])
    def test_as_on_disk(self, numbered, batch_size, read_ahead, monkeypatch):
        monkeypatch.setattr(f"{MODULE}.READ_AHEAD_BYTES", read_ahead)
        for cores in (1, 2, 3, 8):
            monkeypatch.setattr(f"{MODULE}.usable_cores", lambda n=cores: n)
            ds = replay(numbered, split="train", batch_size=batch_size)
            assert numbers(ds) == numbers(ds) == [*range(23)]

    @pytest.mark.parametrize("shuffle", [False, True, 1, 5])
    @pytest.mark.parametrize("deterministic", [True, False])
    def test_shuffled_is_complete(self, numbered, shuffle, deterministic):
        options = {"shuffle": shuffle, "deterministic": deterministic, "repeat": 4}
        ds = replay(numbered, split="train", **options)
        assert ds.options().deterministic is deterministic
        order = numbers(ds)
        passes = [order[i : i + 23] for i in range(0, 92, 23)]
        assert all(sorted(one) == [*range(23)] for one in passes)
        assert not shuffle or len({tuple(one) for one in passes}) > 1

    def test_seed_decides_every_pass(self, numbered):
        def passes(seed):
            ds = replay(numbered, split="train", shuffle=True, seed=seed, batch_size=5)
            return [numbers(ds) for _ in range(3)]

        first, second, third = passes(1)
        assert [first, second, third] == passes(1)
        assert first != second != third
        assert first != passes(2)[0]

    def test_shards_are_mixed(self, tmp_path):
        columns = {"number": np.arange(400)}
        folder = make(tmp_path, [NUMBER], columns, {"all": (100,) * 4})
        order = numbers(replay(folder, shuffle=20))
        assert {number // 100 for number in order[:20]} == {0, 1, 2, 3}

    def test_buffer_holds_a_batch(self, numbered, monkeypatch):
        monkeypatch.setattr(f"{MODULE}.SHUFFLE_BYTES", 1)
        monkeypatch.setattr(f"{MODULE}.MIXED_SHARDS", 1)
        ds = replay(numbered, split="test", shuffle=True, batch_size=4, repeat=9)
        assert len({tuple(numbers([batch])) for batch in ds}) > 1


class TestTrainers:
    @pytest.mark.parametrize(
        ("split", "examples", "count"),
        [("train", 23, 1), ("train", 23, 3), ("train", 23, 7), ("test", 4, 5)],
    )
    def test_share_out_every_example_evenly(self, numbered, split, examples, count):
        found = []
        for index in range(count):
            ds = replay(numbered, split=split, shard=(index, count))
            share = numbers(ds)
            assert ds.cardinality() == len(share)
            assert len(share) in (examples // count, -(-examples // count))
            found += share
        assert found == [*range(examples)]


class TestFeatures:
    @pytest.fixture
    def folder(self, tmp_path):
        specs = [NUMBER, FeatureSpec("signal", "float32", (2,), FLOAT_LIST)]
        columns = {"number": np.arange(3), "signal": np.ones((3, 2), np.float32)}
        return make(tmp_path, specs, columns, {"all": (3,)}, classes=("a", "b"))

    def test_subset_and_constant(self, folder):
        examples = list(replay(folder, features=["number"]).as_numpy_iterator())
        assert examples == [{"number": i, "num_classes": 2} for i in range(3)]
        (batch,) = replay(folder, features=["number"], batch_size=5)
        assert batch["num_classes"].numpy().tolist() == [2, 2, 2]

    def test_others_are_not_parsed(self, folder):
        path = Path(folder, "metadata.json")
        metadata = json.loads(path.read_text())
        metadata["features"]["signal"]["shape"] = [3]
        path.write_text(json.dumps(metadata))
        assert len(numbers(replay(folder, features=["number"]))) == 3
        with pytest.raises(tf.errors.InvalidArgumentError, match="signal"):
            list(replay(folder))

    def test_no_classes_no_constant(self, numbered):
        assert list(replay(numbered, split="test").element_spec) == ["number"]


WRONG = {
    "batch_size": [0],
    "drop_remainder": [True],
    "shuffle": [-1],
    "seed": ["a", 1.5, 2**63],
    "repeat": [-1],
    "shard": [(2, 2), (-1, 2)],
    "features": [[]],
    "as_supervised": [True, ("number",)],
}


class TestErrors:
    def test_names(self, numbered):
        for options, facts in (
            ({"split": "trian"}, ["trian", "train", "test"]),
            ({"features": ["numbers"]}, ["numbers", "number"]),
            ({"as_supervised": ("number", "y")}, ["'y'"]),
            ({"features": ["number"], "as_supervised": ("a", "b")},
             ["features", "as_supervised"]),
        ):  # fmt: skip
            with raises(InputError, naming=facts):
                replay(numbered, **{"split": "test", **options})

    @pytest.mark.parametrize(("option", "values"), WRONG.items())
    def test_values(self, numbered, option, values):
        for value in values:
            with raises(OptionError, option, value):
                replay(numbered, split="train", **{option: value})

    @pytest.fixture
    def shard(self, tmp_path):
        """The second shard of a data set."""
        columns = {"number": np.arange(200)}
        make(tmp_path, [NUMBER], columns, {"all": (100, 100)})
        return tmp_path / "all" / "all-00001-of-00002.tfrecord.gz"

    def test_truncated_and_missing_shards_are_named(self, shard):
        shard.write_bytes(shard.read_bytes()[:-1])
        with raises(InputError, naming=shard):
            replay(str(shard.parents[1]))
        shard.unlink()
        with raises(InputError, naming=shard):
            replay(str(shard.parents[1]))

    @pytest.mark.parametrize("shuffle", [False, True])
    def test_damage_of_the_same_size_is_an_error(self, shard, shuffle):
        damage(shard)
        with pytest.raises(tf.errors.DataLossError):
            list(replay(str(shard.parents[1]), shuffle=shuffle, batch_size=8))

    @pytest.mark.parametrize("batch_size", [None, 8])
    def test_fewer_records_than_the_metadata_say(self, shard, batch_size):
        path = shard.parents[1] / "metadata.json"
        path.write_text(path.read_text().replace('"examples": 100', '"examples": 101'))
        with raises(tf.errors.FailedPreconditionError, naming="202"):
            list(replay(str(shard.parents[1]), batch_size=batch_size))


def test_what_stands_for_a_missing_value_must_fit(tmp_path):
    element = {"n": np.int8(1), "x": np.float16(1), "t": "b"}
    folder = record_examples([{"a": 1, **element}, {"a": 2}], tmp_path / "out")
    for name, value in (
        ("n", 128), ("n", 1.5), ("n", "1"), ("n", [1, 2]), ("x", 1e9), ("t", 3),
    ):  # fmt: skip
        with raises(OptionError, "missing", value, naming=name):
            replay(folder, missing={name: value})
    given = {"n": -3.0, "x": 0.1, "t": "ü"}
    (filled,) = replay(folder, missing=given).skip(1).as_numpy_iterator()
    assert (filled["n"], filled["x"]) == (-3, np.float16(0.1))
    assert filled["t"].decode() == "ü"


def write_tone(path):
    write_samples(path, 0.5 * np.sin(np.arange(2000) / 5), RATE)


def test_a_split_without_windows_gives_a_warning(tmp_path, cli):
    write_tone(tmp_path / "test" / "a" / "x.wav")
    write_samples(tmp_path / "train" / "a" / "x.wav", np.zeros(2000), RATE)
    out = tmp_path / "out"
    arguments = [
        "record", f"--input=train={tmp_path}/train", f"--input=test={tmp_path}/test",
        f"--output={out}", "--win-len=400", "--keep=energy(above_db=-60)",
    ]  # fmt: skip
    assert_names(cli(*arguments).err, "warning", "split train", "--keep", 5)
    assert len(list(replay(str(out), split="test"))) == 5
    for normalize in (True, "signal"):
        with raises(InputError, naming=["normalize", "train"]):
            replay(str(out), split="test", normalize=normalize)


def test_another_split_is_not_taken_for_train(tmp_path):
    write_tone(tmp_path / "in" / "a" / "x.wav")
    record({"test": tmp_path / "in"}, tmp_path / "test", win_len=400)
    with raises(InputError, naming=["normalize", "train", "test"]):
        replay(str(tmp_path / "test"), normalize=True)
    record(tmp_path / "in", tmp_path / "whole", win_len=400)
    with pytest.warns(DataSetWarning, match="of this data set itself"):
        ds = replay(str(tmp_path / "whole"), normalize=True)
    assert abs(np.mean([e["signal"] for e in ds])) < 1e-6


# What ``tf.distribute`` and the service of ``tf.data`` do with what replay returns.


# Strategies of tf.distribute use it, and give no other access to it.
from tensorflow.python.data.experimental.ops.distribute import _AutoShardDataset  # noqa: E402

POLICY = tf.data.experimental.AutoShardPolicy


@pytest.mark.parametrize("policy", [None, POLICY.FILE, POLICY.DATA, POLICY.AUTO])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 4, "shuffle": True},
        {"shuffle": 5, "features": ["number"]},
        {"batch_size": 3, "repeat": 2, "shuffle": True},
    ],
    ids=str,
)
def test_each_example_goes_to_one_worker(numbered, policy, options):
    given = tf.data.Options()
    if policy is not None:
        given.experimental_distribute.auto_shard_policy = policy
    found = []
    for worker in range(3):
        ds = replay(numbered, split="train", **options).with_options(given)
        found += numbers(_AutoShardDataset(ds, 3, worker))
    assert sorted(found) == sorted([*range(23)] * options.get("repeat", 1))


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
