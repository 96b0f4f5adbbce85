"""``batches.to_tf()``: the batches of any order as ``tf.data``."""

from pathlib import Path

import numpy as np
import pytest

from beam_pipeline import open_records, record_examples
from beam_pipeline.codecs import FLOAT_LIST, INT64_LIST
from beam_pipeline.errors import InputError
from beam_pipeline.examples.spec import FeatureSpec
from tests.raising import raises
from tests.read.members import make
from tests.read.test_replay import NUMBER
from tests.sounds import damage

tf = pytest.importorskip("tensorflow")

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
def folder(tmp_path_factory):
    out = str(tmp_path_factory.mktemp("elements") / "records")
    record_examples([example(n) for n in range(COUNT)], out, num_shards=3)
    return out


def test_values_types_and_epochs(folder):
    records = open_records(folder, features=FIXED)
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
def test_what_no_tensor_holds_is_named(folder, feature):
    with raises(InputError, naming=feature):
        open_records(folder, features=[feature]).batches(4).to_tf()


def test_mixed_targets_are_weights_of_classes(tmp_path):
    specs = [
        FeatureSpec("target", "int64", (), INT64_LIST),
        FeatureSpec("x", "float32", (2,), FLOAT_LIST),
    ]
    x = np.arange(16, dtype=np.float32).reshape(8, 2)
    columns = {"target": np.arange(8) % 2, "x": x}
    made = make(tmp_path, specs, columns, {"train": (8,)}, classes=("a", "b"))
    records = open_records(made)
    dataset = records.batches(4, mixup=0.5).to_tf()
    assert dataset.element_spec["target"] == tf.TensorSpec((None, 2), tf.float32)
    (first, *_), (wanted, *_) = list(dataset), list(records.batches(4, mixup=0.5))
    np.testing.assert_array_equal(first["target"], wanted["target"])
    np.testing.assert_array_equal(first["x"], wanted["x"])


def test_damage_names_the_file(tmp_path):
    folder = make(tmp_path, [NUMBER], {"number": np.arange(9)}, {"train": (9,)})
    (path,) = Path(folder).glob("train/*")
    damage(path)
    with pytest.raises(tf.errors.OpError, match=path.name):
        list(open_records(folder).batches(4).to_tf())
