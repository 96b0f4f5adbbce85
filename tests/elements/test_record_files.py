import gzip
import os

import pytest
import tensorflow as tf

from beam_pipeline import read_records, write_records
from beam_pipeline.errors import InputError

RECORDS = [b"123", b"", b"\0" * 70000, b"xyz314"]


@pytest.mark.parametrize("count", [0, 1, 4])
@pytest.mark.parametrize("name", ["a.tfrecord", "a.tfrecord.gz", "a.GZ", "gz"])
def test_plain_tensorflow_reads_what_is_written(tmp_path, name, count):
    path = tmp_path / name
    assert write_records(path, iter(RECORDS[:count])) == count
    kind = "GZIP" if name.lower().endswith(".gz") else ""
    found = list(tf.data.TFRecordDataset(str(path), kind).as_numpy_iterator())
    assert found == list(read_records(path)) == RECORDS[:count]
    assert os.listdir(tmp_path) == [name]


def test_equal_records_have_equal_bytes_also_in_a_new_folder(tmp_path):
    for name in ("a.gz", "new/folder/b.gz"):
        write_records(tmp_path / name, RECORDS)
    other = (tmp_path / "new/folder/b.gz").read_bytes()
    assert (tmp_path / "a.gz").read_bytes() == other


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
