"""replay over gs:// and s3://, against a store on loopback."""

from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from beam_pipeline.errors import InputError, StoreError
from beam_pipeline.examples.spec import INT64_LIST, RAW, FeatureSpec
from beam_pipeline.read.replay import replay
from beam_pipeline.storage import files, object_store
from tests.raising import raises
from tests.read.members import make

COUNT = 300
COLUMNS = {
    "number": np.arange(COUNT),
    "noise": np.random.default_rng(0).integers(-9999, 9999, (COUNT, 30), np.int16),
}
SPECS = [
    FeatureSpec("number", "int64", (), INT64_LIST),
    FeatureSpec("noise", "int16", (30,), RAW),
]


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    root = tmp_path_factory.mktemp("local")
    return make(root, SPECS, COLUMNS, {"a": (129, 1, 20), "b": (150,)})


@pytest.fixture(params=["s3", "gs"])
def folder(request, bucket, local):
    folder = f"{request.param}://{bucket}/set"
    for name in files.list_files(local):
        files.write_bytes(files.join(folder, name), Path(local, name).read_bytes())
    return folder


def elements_of(folder, **options):
    tf.random.set_seed(1)
    return [
        (element["number"].tolist(), element["noise"].tolist())
        for element in replay(folder, **options).as_numpy_iterator()
    ]


@pytest.mark.parametrize(
    "options",
    [
        {"split": "a"},
        {"split": "b", "batch_size": 64, "repeat": 2},
        {"split": "a", "batch_size": 7, "shard": (1, 2)},
        {"split": "a", "batch_size": 7, "shuffle": True, "seed": 3},
    ],
    ids=str,
)
def test_the_elements_are_those_of_a_local_folder(folder, local, options):
    wanted = elements_of(str(local), **options)
    assert elements_of(folder, **options) == wanted
    assert len(wanted) == replay(folder, **options).cardinality()


def test_in_any_order(folder):
    found = elements_of(folder, split="a", deterministic=False)
    assert sorted(number for number, _ in found) == list(range(150))


def test_a_store_that_fails_for_a_while(folder, proxy):
    proxy.refuse, proxy.cut = 2, 1
    assert len(elements_of(folder, split="b")) == 150


def test_what_is_not_there(folder, bucket):
    with raises(InputError, naming=f"{folder}/nothing"):
        replay(f"{folder}/nothing")
    shard = f"{folder}/b/b-00000-of-00001.tfrecord.gz"
    content = bytearray(files.read_bytes(shard))
    content[-12] ^= 1
    files.write_bytes(shard, bytes(content))
    with pytest.raises(tf.errors.OpError, match=shard):
        elements_of(folder, split="b")
    files.write_bytes(shard, bytes(content[:-1]))
    with raises(InputError, naming=[shard, "bytes"]):
        replay(folder, split="b")
    object_store.delete([shard])
    with raises(InputError, naming=[shard, "no such object"]):
        replay(folder, split="b")
    with raises((StoreError, InputError), naming=f"{bucket}x"):
        replay(f"s3://{bucket}x/set")
