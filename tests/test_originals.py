"""The replica of TFRecorder's engine: files, fields and lists as it writes them."""

import csv

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")

from tests.benchmarks.toy_example import ReplicaToyExample  # noqa: E402
from tests.originals import tfrecorder_record, write_like_tfrecorder  # noqa: E402

BINS = 10


@pytest.fixture
def sources(tmp_path):
    """Ten arrays of 25 values: chunks of 10, 10 and 5."""
    for i in range(10):
        np.save(tmp_path / f"{i}.npy", np.full(25, i, np.float32))
    with (tmp_path / "list.csv").open("w", newline="") as file:
        csv.writer(file).writerows((i, i % 3) for i in range(10))
    return tmp_path


def write(sources, **options):
    output = sources / "out"
    counts = write_like_tfrecorder(
        output,
        ReplicaToyExample,
        sources / "list.csv",
        src_data_dirpath=str(sources),
        chunk_size_in_bins=BINS,
        **options,
    )
    return output, counts


def records_in(folder):
    """The records of each file, in the order of the numbers in their names."""
    paths = sorted(folder.glob("*.tfr"), key=lambda path: int(path.stem))
    assert [path.name for path in paths] == [f"{i}.tfr" for i in range(len(paths))]
    return [list(tf.data.TFRecordDataset(str(p)).as_numpy_iterator()) for p in paths]


def test_records_are_flat_fields(sources):
    output, counts = write(sources)
    assert counts == {"train": 8, "eval": 2}
    (records,) = records_in(output / "train")
    assert len(records) == 8 * 3
    with (output / "train" / "examples.csv").open(newline="") as file:
        rows = list(csv.reader(file))
    for at, record in enumerate(records):
        name, label = rows[at // 3]
        found = tf.train.Example.FromString(record).features.feature
        assert set(found) == {"label", "data"}
        assert list(found["label"].int64_list.value) == [int(label)]
        values = np.frombuffer(found["data"].bytes_list.value[0], np.float32)
        assert values.tolist() == [int(name)] * (5 if at % 3 == 2 else BINS)


@pytest.mark.parametrize("more", [-1, 0, 1])
def test_a_file_ends_before_the_record_that_passes_the_limit(sources, more):
    output, _ = write(sources)
    sizes = [len(record) for record in records_in(output / "eval")[0]]
    output, _ = write(sources, file_bytes=sum(sizes[:3]) + more)
    wanted = [2, 2, 2] if more < 0 else [3, 3]
    assert [len(records) for records in records_in(output / "eval")] == wanted


def test_a_first_record_above_the_limit_leaves_an_empty_file(sources):
    output, _ = write(sources, file_bytes=1)
    assert [len(records) for records in records_in(output / "eval")] == [0] + [1] * 6


def test_texts_and_floats():
    class Note:
        FIELDS = (("text", "text"), ("x", "float"))
        text, x = "ü", 1561965277.252

    found = tf.train.Example.FromString(tfrecorder_record(Note)).features.feature
    assert found["text"].bytes_list.value[0] == "ü".encode()
    assert found["x"].float_list.value[0] == np.float32(1561965277.252)
