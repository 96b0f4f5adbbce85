"""replay, batches as tensors, and folders of tf_dataset; all as ``tf.data``."""

import json
from pathlib import Path

import numpy as np
import pytest

from beam_pipeline import open_records, record, record_examples
from beam_pipeline.encodings import FLOAT_LIST, INT64_LIST
from beam_pipeline.errors import DataSetWarning, InputError, OptionError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.read.replay import SPEC_FILE, open_original, original_specs, replay
from beam_pipeline.storage.protobuf import DTYPES, decode_tensor
from tests.raising import assert_names, raises
from tests.read.conftest import WIN_LEN
from tests.read.members import make
from tests.sounds import damage, write_samples

tf = pytest.importorskip("tensorflow")

# Strategies of tf.distribute use it, and give no other access to it.
from tensorflow.python.data.experimental.ops.distribute import _AutoShardDataset  # noqa: E402

from tests.originals import write_like_tf_dataset  # noqa: E402

MODULE = "beam_pipeline.read.replay"
CHOICES = "beam_pipeline.read.choices"
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
        monkeypatch.setattr(f"{CHOICES}.READ_AHEAD_BYTES", read_ahead)
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
        assert passes(2**64 + 1)[0] == first

    def test_shards_are_mixed(self, tmp_path):
        columns = {"number": np.arange(400)}
        folder = make(tmp_path, [NUMBER], columns, {"all": (100,) * 4})
        order = numbers(replay(folder, shuffle=20))
        assert {number // 100 for number in order[:20]} == {0, 1, 2, 3}

    def test_buffer_holds_a_batch(self, numbered, monkeypatch):
        monkeypatch.setattr(f"{CHOICES}.SHUFFLE_BYTES", 1)
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
    "seed": ["a", 1.5],
    "repeat": [-1],
    "shard": [(2, 2), (-1, 2)],
    "features": [[], 5],
    "encoded": [5],
    "normalize": [5],
    "missing": [5, ["number"]],
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
        with pytest.raises(tf.errors.OpError, match=shard.name):
            list(open_records(shard.parents[1]).batches(4).to_tf())

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


# ``batches.to_tf()``: the batches of any order as ``tf.data``.

COUNT = 23


def example(n):
    return {
        "number": np.int64(n),
        "x": np.full((2, 3), n, np.float32),
        "half": np.full(4, n, np.complex64),
        "text": f"ä{n}",
        "target": np.int64(n % 3),
        "list": np.full((n % 4, 2), n, np.float32),
        "grid": np.full((n % 4, n % 2 + 1), n, np.float32),
        **({"maybe": np.float32(n)} if n % 2 else {}),
    }


FIXED = ["number", "x", "half", "text", "target", "list"]


@pytest.fixture(scope="module")
def elements(tmp_path_factory):
    out = str(tmp_path_factory.mktemp("elements") / "records")
    record_examples([example(n) for n in range(COUNT)], out, num_shards=3)
    return out


def test_values_types_and_epochs(elements):
    records = open_records(elements, features=FIXED)
    dataset = records.batches(5, shuffle="global", seed=4).to_tf()
    spec = dataset.element_spec
    assert spec["x"] == tf.TensorSpec((None, 2, 3), tf.float32)
    assert spec["list"] == tf.RaggedTensorSpec((None, None, 2), tf.float32, 1)
    plain = records.batches(5, shuffle="global", seed=4)
    orders = []
    for _ in range(2):
        for got, wanted in zip(dataset, plain, strict=True):
            for name in ("number", "x", "half", "target"):
                np.testing.assert_array_equal(got[name], wanted[name])
                assert got[name].dtype == wanted[name].dtype
            texts = [text.decode() for text in got["text"].numpy()]
            assert texts == wanted["text"].tolist()
            for row, array in zip(got["list"], wanted["list"], strict=True):
                np.testing.assert_array_equal(row, array)
        orders.append(plain.state_dict()["epoch"])
    assert orders == [1, 2]


@pytest.mark.parametrize("feature", ["maybe", "grid"])
def test_what_no_tensor_holds_is_named(elements, feature):
    with raises(InputError, naming=feature):
        open_records(elements, features=[feature]).batches(4).to_tf()


def test_mixed_targets_are_weights_of_classes(whole):
    records = open_records(whole, "train", ["target", "mel"])
    dataset = records.batches(4, mixup=0.5).to_tf()
    assert dataset.element_spec["target"] == tf.TensorSpec((None, 3), tf.float32)
    for batch, wanted in zip(dataset, records.batches(4, mixup=0.5), strict=True):
        for name in ("target", "mel"):
            np.testing.assert_array_equal(batch[name], wanted[name])


# Folders in the format of tf_dataset, written by a replica of it.


def document_elements(count):
    """Elements with the keys of tf_dataset's document."""
    rng = np.random.default_rng(3)
    names = np.array([b"passenger", b"tug"], object)
    target = rng.integers(0, 2, count)
    return {
        "class": names[target].tolist(),
        "filepath": [f"C:\\internal\\data\\ü {i}.wav".encode() for i in range(count)],
        "index": np.arange(count),
        "num_classes": np.full(count, 2),
        "signal": rng.integers(-(2**31), 2**31, (count, 64), np.int32),
        "target": target,
        "win_start_idx": rng.integers(0, 2**31, count, np.int32),
    }


def write(folder, columns, elements_per_file=2):
    dataset = tf.data.Dataset.from_tensor_slices(columns)
    write_like_tf_dataset(dataset, folder, elements_per_file)
    return str(folder)


def sort_by(elements, key):
    return sorted(elements, key=lambda element: element[key])


def assert_elements(found, columns, key):
    """Every element of the columns once, with the same keys, dtypes and bits."""
    dataset = tf.data.Dataset.from_tensor_slices(columns)
    wanted = list(dataset.as_numpy_iterator())
    assert len(found) == len(wanted)
    for element, other in zip(sort_by(found, key), sort_by(wanted, key), strict=True):
        assert element.keys() == other.keys()
        for name, value in element.items():
            np.testing.assert_array_equal(value, other[name], strict=True)


@pytest.fixture(autouse=True)
def quiet(capsys):
    """The replica prints a line for each element."""
    return capsys


# Reading


@pytest.mark.parametrize("elements_per_file", [1, 4, 10, 11])
def test_the_elements_of_the_document(tmp_path, elements_per_file):
    columns = document_elements(10)
    folder = write(tmp_path / "records", columns, elements_per_file)
    assert len([*Path(folder).glob("*.tfrecord")]) == -(-10 // elements_per_file)
    dataset = replay(folder)
    wanted = tf.data.Dataset.from_tensor_slices(columns)
    assert dataset.element_spec == wanted.element_spec
    assert_elements(list(dataset.as_numpy_iterator()), columns, "index")


def test_every_dtype_and_rank(tmp_path):
    """Also the dtypes with which tf_dataset itself failed.

    One name looks like that of a part of a complex feature.
    """
    numbers = tf.cast(tf.reshape(tf.range(2 * 3 * 4), (2, 3, 4)) % 2, "int32")
    columns = {"n": [0, 1], "a_real": tf.cast(numbers, "float32")}
    for dtype in DTYPES:
        text = dtype == "string"
        columns[dtype] = tf.as_string(numbers) if text else tf.cast(numbers, dtype)
        columns[f"one {dtype}"] = columns[dtype][:, 0, 0]
    folder = write(tmp_path / "records", columns, 1)
    stored = json.loads(Path(folder, SPEC_FILE).read_text())
    assert {"complex64_real", "complex64_imag", "a_real", "n"} <= {*stored}
    dataset = replay(folder)
    assert dataset.element_spec["complex64"] == tf.TensorSpec((3, 4), tf.complex64)
    found = sort_by(dataset.as_numpy_iterator(), "n")
    specs = original_specs(folder)[0]
    for i, element in enumerate(found):
        for name, values in columns.items():
            wanted = tf.convert_to_tensor(values)[i].numpy()
            np.testing.assert_array_equal(element[name], wanted, strict=True)
    assert [specs[dtype].dtype for dtype in DTYPES] == [*DTYPES]


def test_a_shape_that_may_differ(tmp_path):
    folder = write(tmp_path / "records", {"x": np.zeros((2, 5))})
    path = Path(folder, SPEC_FILE)
    entry = {**json.loads(path.read_text())["x"], "shape": [None]}
    path.write_text(json.dumps({"x": entry}))
    dataset = replay(folder)
    assert dataset.element_spec["x"].shape.as_list() == [None]
    assert next(iter(dataset))["x"].shape == (5,)
    entry = {**PART, "dtype": "tf.complex64"}
    features, stored = specs_of(folder, {"x_real": entry})
    assert features == stored
    assert stored["x_real"].dtype == "complex64"


def test_files_come_in_the_order_of_their_names(tmp_path):
    folder = Path(write(tmp_path / "records", {"n": np.arange(30)}, 3))
    number = iter([7, 3, 9, 1, 0, 8, 2, 6, 5, 4])
    for path in sorted(folder.glob("*.tfrecord")):
        first = next(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
        n = tf.train.Example.FromString(first).features.feature["n"].bytes_list.value[0]
        path.rename(folder / f"{decode_tensor(n, 'int64'):02d} {next(number)}.tfrecord")
    for _ in range(2):
        found = [int(e["n"]) for e in replay(str(folder))]
        assert found == list(range(30))


def test_other_files_and_files_without_records_add_nothing(tmp_path):
    """tf_dataset wrote an empty one when the file size divides the number."""
    columns = {"n": np.arange(4)}
    folder = write(tmp_path / "records", columns)
    Path(folder, "000.tfrecord").touch()
    Path(folder, "notes.txt").write_text("x")
    Path(folder, "deeper").mkdir()
    Path(folder, "deeper", "a.tfrecord").write_text("x" * 100)
    assert_elements(list(replay(folder).as_numpy_iterator()), columns, "n")
    for path in Path(folder).glob("*.tfrecord"):
        path.write_bytes(b"")
    assert list(replay(folder)) == []


# Batches


@pytest.mark.parametrize("size", [1, 9, 10, 32])
def test_batches_keep_their_size_and_every_element(tmp_path, size):
    columns = {"n": np.arange(70)}
    dataset = tf.data.Dataset.from_tensor_slices(columns).batch(size)
    folder = write_like_tf_dataset(dataset, tmp_path / "records", 100)
    assert open_original(folder)[3] == size
    batches = [batch["n"].numpy() for batch in replay(folder)]
    assert {len(batch) for batch in batches[:-1]} <= {size}
    assert np.concatenate(batches).tolist() == list(range(70))


@pytest.mark.parametrize("text", ["", "0", "-3", "2.5", "3 4", "²", "tf.Tensor(3)"])
def test_a_batch_size_that_is_none(tmp_path, text):
    folder = write(tmp_path / "records", {"n": [1]})
    path = Path(folder, "batched")
    path.write_text(text)
    with raises(InputError, naming=[path, "batch size"]):
        replay(folder)
    path.write_text("32\n")
    assert open_original(folder)[3] == 32


# Damage


def test_a_description_without_records(tmp_path):
    folder = write(tmp_path / "records", {"n": [1]})
    with raises(OptionError, "shuffle", -1):
        replay(folder, shuffle=-1)
    with raises(OptionError, "split", "train", naming="record_dataset"):
        replay(folder, split="train")
    for path in Path(folder).glob("*.tfrecord"):
        path.unlink()
    with raises(InputError, naming=[folder, ".tfrecord"]):
        replay(folder)


FLOAT = {"dtype": "tf.float32", "shape": [], "previous_dtype": "tf.float32"}
PART = {**FLOAT, "shape": [3], "previous_dtype": "tf.complex64"}


def specs_of(folder, text):
    text = json.dumps(text) if isinstance(text, dict) else text
    Path(folder, SPEC_FILE).write_bytes(text.encode())
    return original_specs(str(folder))


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        *((text, []) for text in ("", "{", "[]", "{}", "3", "NaN")),
        ({"x": 3}, ["x", 3]),
        ({"x": {"dtype": "tf.float32", "shape": []}}, ["x", "previous_dtype"]),
        ({"x": {**FLOAT, "previous_dtype": "tf.float33"}}, ["x", "'float33'"]),
        *(({"x": {**FLOAT, "shape": shape}}, ["x"]) for shape in (4, [4, -1])),
        ({"y": FLOAT, "x_real": PART}, ["x_real", "'x_imag'"]),
        ({"x_imag": PART}, ["x_imag", "'x_real'"]),
        ({"x": PART}, ["x", "'x_real'"]),
        ({"x_real": PART, "x_imag": {**PART, "shape": [4]}}, ["x_real", "x_imag"]),
        ({"x_real": PART, "x_imag": {**FLOAT, "shape": [3]}}, ["x_real", "x_imag"]),
        ({"x": FLOAT, "x_real": PART, "x_imag": PART}, ["x_imag"]),
    ],
)  # fmt: skip
def test_an_entry_that_is_damaged_or_contradicts(tmp_path, text, facts):
    with raises(InputError, naming=[tmp_path, SPEC_FILE, *facts]):
        specs_of(tmp_path, text)


def test_a_later_record_of_another_shape_is_an_error(tmp_path):
    folder = write(tmp_path / "records", {"x": np.zeros((2, 5))})
    (first,) = Path(folder).glob("*.tfrecord")
    first.rename(Path(folder, "0.tfrecord"))
    write(folder, {"x": np.zeros((2, 6))})
    dataset = replay(folder)
    with pytest.raises(tf.errors.InvalidArgumentError, match="shape"):
        list(dataset)
