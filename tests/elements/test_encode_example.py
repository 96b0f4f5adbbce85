"""`encode_example`, and the files that `write_records` makes of its records."""

import gzip
import os

import numpy as np
import pytest
import tensorflow as tf

from beam_pipeline import encode_example, read_records, record_examples, write_records
from beam_pipeline.errors import InputError

ROW = {
    "age": 29,
    "movies": ["Alien", "é"],
    "price": 9.99,
    "image": np.arange(12, dtype=np.uint8).reshape(2, 2, 3),
    "nested": {"x": [1, 2, 3], "none": None},
    "none": None,
}


@pytest.mark.parametrize("options", [
    {},
    {"dtypes": {"price": "float64", "late": "int8"}},
    {"encodings": {"image": "tensor", "nested/x": "raw"}},
    {"encodings": {"image": "png"}},
    {"sequences": ["movies", "image"]},
])  # fmt: skip
def test_the_record_is_that_of_a_data_set(tmp_path, options):
    row = {name: value for name, value in ROW.items() if name != "none"}
    row["nested"] = {"x": [1, 2, 3]}
    folder = record_examples([row], tmp_path / "out", **options)
    (shard,) = tmp_path.glob("out/*.gz")
    assert list(read_records(shard)) == [encode_example(ROW, **options)], folder


def test_none_is_left_out():
    assert encode_example({}) == encode_example({"a": None, "b": {"c": None}})
    assert not tf.train.Example.FromString(encode_example({})).features.feature


# Files of records


RECORDS = [b"123", b"", b"\0" * 70000, b"xyz314"]


@pytest.mark.parametrize("count", [0, 1, 4])
@pytest.mark.parametrize("name", ["a.tfrecord", "a.tfrecord.gz", "a.GZ", "gz"])
def test_plain_tensorflow_reads_what_is_written(tmp_path, name, count):
    path = tmp_path / "new" / name
    assert write_records(path, iter(RECORDS[:count])) == count
    kind = "GZIP" if name.lower().endswith(".gz") else ""
    found = list(tf.data.TFRecordDataset(str(path), kind).as_numpy_iterator())
    assert found == list(read_records(path)) == RECORDS[:count]
    assert os.listdir(tmp_path / "new") == [name]
    # Equal records have equal bytes.
    write_records(tmp_path / name, RECORDS[:count])
    assert (tmp_path / name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("wrong", ["text", None, 1, bytearray(b"a")])
def test_an_error_leaves_the_old_file(tmp_path, wrong):
    path = tmp_path / "a.tfrecord"
    write_records(path, [b"old"])

    def fail():
        yield b"a"
        raise ZeroDivisionError

    with pytest.raises(InputError, match=f"Record 1 is a {type(wrong).__name__}"):
        write_records(path, [b"a", wrong])
    with pytest.raises(ZeroDivisionError):
        write_records(path, fail())
    assert list(read_records(path)) == [b"old"]
    assert os.listdir(tmp_path) == ["a.tfrecord"]


@pytest.mark.parametrize("name", ["a.tfrecord", "a.tfrecord.gz"])
def test_damage_is_named(tmp_path, name):
    path = tmp_path / name
    write_records(tmp_path / "plain", RECORDS)
    broken = bytearray((tmp_path / "plain").read_bytes())
    broken[16 + 3 + 16 + 12 + 5] ^= 1  # in the data of record 2
    path.write_bytes(gzip.compress(broken) if name.endswith("gz") else broken)
    found = read_records(path)
    assert [next(found), next(found)] == RECORDS[:2]
    with pytest.raises(InputError, match=rf"{name}.*record 2"):
        next(found)


def test_no_file(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(InputError, match="does not exist"):
            read_records(path)
