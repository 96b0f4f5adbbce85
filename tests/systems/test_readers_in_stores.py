"""open_records and replay over gs:// and s3://, against a store on loopback."""

import os
import pickle
import signal
import warnings

import numpy as np
import pytest
import tensorflow as tf

from beam_pipeline.codecs import INT64_LIST, RAW
from beam_pipeline.errors import InputError, StoreError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.read.records import open_records
from beam_pipeline.read.replay import replay
from beam_pipeline.storage import files, object_store
from tests.loopback import upload_folder
from tests.read.members import make

COUNT = 150
NUMBER = FeatureSpec("number", "int64", (), INT64_LIST)
NOISE = FeatureSpec("noise", "int16", (300,), RAW)
COLUMNS = {
    "number": np.arange(COUNT),
    "noise": np.random.default_rng(0).integers(-9999, 9999, (COUNT, 300), np.int16),
}


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    root = tmp_path_factory.mktemp("local")
    return make(root, [NUMBER, NOISE], COLUMNS, {"records": (80, 70)})


@pytest.fixture(params=["s3", "gs"])
def folder(request, bucket, local):
    """The data set in a store."""
    folder = f"{request.param}://{bucket}/set"
    upload_folder(local, folder)
    return folder


def check(records, wanted):
    batch = records.read(wanted)
    assert batch["number"].tolist() == list(wanted)
    assert np.array_equal(batch["noise"], COLUMNS["noise"][wanted])


def test_neighbours_are_one_request(folder, proxy, monkeypatch):
    records = open_records(folder)
    proxy.reset()
    check(records, range(COUNT))
    assert proxy.count("GET") == len(proxy.requests) == 2
    assert records[7]["number"] == 7
    assert (
        proxy.bytes_sent < 1.1 * files.size(f"{folder}/{shard_names(records)[0]}") * 2
    )
    assert [int(example["number"]) for example in records] == list(range(COUNT))
    monkeypatch.setattr(records._opened.reader, "_gap", 0)
    proxy.reset()
    proxy.delay_s = 0.1
    check(records, [39, 1, 11, 4, 25])
    assert proxy.count("GET") == 5
    assert proxy.at_once > 1


def shard_names(records):
    return [shard.file for shard in records.metadata.splits["records"].shards]


def test_what_is_not_there(folder, bucket):
    scheme = folder.partition("://")[0]
    with pytest.raises(InputError, match="no folder"):
        open_records(f"{scheme}://{bucket}/nothing")
    records = open_records(folder)
    object_store.delete([f"{folder}/{shard_names(records)[0]}"])
    with pytest.raises(InputError, match=r"00000-of-00002.*cannot be read: .*no such"):
        records[0]
    object_store.delete([f"{folder}/members.index"])
    with pytest.raises(InputError, match=f"`audio-tfrecords convert {folder} NEW"):
        open_records(folder)


def test_another_process_rewrites_the_folder(folder):
    """With objects of the same size, which are seen by their tags."""
    records = open_records(folder)
    path = f"{folder}/{shard_names(records)[0]}"
    assert records[3]["number"] == 3
    content = bytearray(files.read_bytes(path))
    content[4] ^= 1  # the time in the header of GZIP, which no reader looks at
    files.write_bytes(path, bytes(content))
    with pytest.raises(InputError, match=r"00000-of-00002.*changed since it was first"):
        records[3]
    files.write_bytes(path, bytes(content[:-1]))
    with pytest.raises(InputError, match=r"00000-of-00002.*bytes instead of"):
        open_records(folder)[3]


def in_child(work):
    """Runs a function in a forked process; returns whether it did not raise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        signal.alarm(30)
        status = 1
        try:
            work()
            status = 0
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def test_a_fork_after_reading(folder):
    """The client does not survive it: the child gets an error, and does not hang."""
    records = open_records(folder)
    check(records, [1, 2])
    pickled = pickle.dumps(records[10:20])

    def work():
        for use in (
            lambda: check(records, [39, 0, 5]),
            lambda: pickle.loads(pickled)[0],
            lambda: files.size(folder),
            lambda: files.read_bytes(f"{folder}/metadata.json"),
        ):
            with pytest.raises(StoreError, match=r"before a fork.*'spawn'"):
                use()

    assert in_child(work)
    check(records, [3])


def elements_of(folder, **options):
    tf.random.set_seed(1)
    return [
        (element["number"].tolist(), element["noise"].tolist())
        for element in replay(folder, **options).as_numpy_iterator()
    ]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 64, "repeat": 2},
        {"batch_size": 7, "shard": (1, 2)},
        {"batch_size": 7, "shuffle": True, "seed": 3},
    ],
    ids=str,
)
def test_the_elements_are_those_of_a_local_folder(folder, local, options):
    wanted = elements_of(str(local), **options)
    assert elements_of(folder, **options) == wanted
    assert len(wanted) == replay(folder, **options).cardinality()


def test_replay_of_a_store_that_fails_for_a_while(folder, proxy):
    proxy.refuse, proxy.cut = 2, 1
    found = elements_of(folder, deterministic=False)
    assert sorted(number for number, _ in found) == list(range(COUNT))
