import os
import tempfile
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline import Metadata, open_records, record_dataset, replay, replay_dataset
from beam_pipeline.elements.record_dataset import describe_elements
from beam_pipeline.errors import InputError, OutputError
from beam_pipeline.read.verify import find_problems
from beam_pipeline.storage.tfrecord import read_any_records
from tests import loopback
from tests.data_sets import check_metadata, contents
from tests.elements.structures import dataset_of, expect_equal, structures


def counts_of(folder):
    """The number of records in each shard, by reading them."""
    shards = Metadata.load(folder).splits["records"].shards
    counts = []
    for shard in shards:
        with open(os.path.join(folder, shard.file), "rb") as file:
            counts.append(sum(1 for _ in read_any_records(file)))
    assert counts == [shard.examples for shard in shards]
    return counts


@settings(max_examples=8, deadline=None)
@given(structures(), st.integers(0, 5), st.integers(0, 2**32))
def test_any_structure_comes_back(specs, count, seed):
    dataset = dataset_of(specs, count, seed)
    with tempfile.TemporaryDirectory() as folder:
        record_dataset(dataset, f"{folder}/out", elements_per_file=2)
        check_metadata(Path(folder, "out"))
        replayed = replay(f"{folder}/out")
        assert replayed.element_spec == dataset.element_spec
        found = list(replayed)
        assert len(found) == count
        for one, other in zip(found, dataset, strict=True):
            expect_equal(one, other)


def test_no_element_is_lost_whatever_the_numbers(tmp_path):
    """0 to 26 elements in files of 1 to 12."""
    everything = tf.data.Dataset.range(100, 127)
    for count in (0, 1, 2, 5, 11, 12, 13, 24, 26):
        for per_file in {1, 12, max(count, 1) % 12 or 12}:
            folder = record_dataset(
                everything, tmp_path / "out", per_file, count, overwrite=True
            )
            counts = counts_of(folder)
            assert sum(counts) == count
            assert counts[:-1] == [per_file] * (len(counts) - 1)
            assert len(counts) == max(-(-count // per_file), 1)
        records = open_records(folder)
        found = [int(n) for example in records for n in example.values()]
        assert found == list(range(100, 100 + count))


def test_files_of_four_four_and_two(tmp_path):
    ds = tf.data.Dataset.range(100).map(lambda n: {"n": n, "text": tf.as_string(n)})
    folder = record_dataset(
        ds, num_elems=10, elements_per_file=4, output_dir=tmp_path / "records"
    )
    assert folder == str(tmp_path / "records")
    assert counts_of(folder) == [4, 4, 2]
    assert [e["n"].numpy() for e in replay_dataset(folder)] == list(range(10))
    found = [int(e["n"]) for e in replay_dataset(folder, shuffle=True)]
    assert sorted(found) == list(range(10)) != found
    assert not list(find_problems(folder, Metadata.load(folder)))
    assert counts_of(record_dataset(ds.take(7), tmp_path / "all")) == [7]


def test_an_endless_data_set_needs_num_elems(tmp_path):
    endless = tf.data.Dataset.range(3).repeat()
    for ds in (endless, endless.batch(2)):
        with pytest.raises(InputError, match="num_elems"):
            record_dataset(ds, tmp_path / "out")
        assert not (tmp_path / "out").exists()
    folder = record_dataset(endless, tmp_path / "out", num_elems=8)
    assert [int(n) for n in replay(folder)] == [0, 1, 2, 0, 1, 2, 0, 1]
    with pytest.warns(UserWarning, match=r"num_elems is 9.*only 3.*repeat"):
        folder = record_dataset(tf.data.Dataset.range(3), tmp_path / "b", num_elems=9)
    assert counts_of(folder) == [3]


@pytest.mark.parametrize("drop", [False, True])
def test_batches_come_back(tmp_path, drop):
    ds = tf.data.Dataset.range(10).map(lambda n: (n, tf.fill([3], n), tf.zeros([0])))
    ds = ds.batch(4, drop_remainder=drop)
    folder = record_dataset(ds.prefetch(2), tmp_path / "out")
    assert counts_of(folder) == [2 if drop else 3]
    check_metadata(Path(folder))
    replayed = replay_dataset(folder)
    assert replayed.element_spec == ds.element_spec
    for one, other in zip(replayed, ds, strict=True):
        expect_equal(one, other)


@pytest.mark.parametrize(("specs", "word"), [
    ({"a": tf.TensorSpec((), tf.qint8)}, "'a'.*qint8"),
    ({"a": ({"b": tf.TensorSpec((), tf.variant)},)}, "'a/0/b'.*variant"),
    ({"a": tf.data.DatasetSpec(tf.TensorSpec((), tf.int64))}, "'a'.*DatasetSpec"),
    (tf.OptionalSpec(tf.TensorSpec((), tf.int64)), "The element.*OptionalSpec"),
    ({b"a": tf.TensorSpec((), tf.int64)}, "b'a'"),
])  # fmt: skip
def test_what_cannot_be_stored_is_refused(specs, word):
    with pytest.raises(InputError, match=word):
        describe_elements(specs)


def test_a_data_set_is_kept(tmp_path):
    record_dataset(tf.data.Dataset.range(2), tmp_path / "out")
    with pytest.raises(OutputError, match="overwrite"):
        record_dataset(tf.data.Dataset.range(3), tmp_path / "out")
    record_dataset(tf.data.Dataset.range(3), tmp_path / "out", 1, overwrite=True)
    assert counts_of(str(tmp_path / "out")) == [1, 1, 1]
    record_dataset(tf.data.Dataset.range(1), tmp_path / "out", overwrite=True)
    assert sorted(os.listdir(tmp_path / "out")) == [
        "members.index", "metadata.json", "records-00000-of-00001.tfrecord.gz",
        "schema.pbtxt",
    ]  # fmt: skip
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(OutputError, match=r"notes\.txt"):
        record_dataset(tf.data.Dataset.range(3), tmp_path, overwrite=True)


def test_features_of_a_structure_by_name(tmp_path):
    ragged = tf.ragged.constant([[1], []])
    ds = tf.data.Dataset.from_tensors(({"x": 1.5, "r": ragged, "no": None}, 7))
    folder = record_dataset(ds, tmp_path / "out")
    ((whole, _),) = replay(folder)
    assert whole["no"] is None
    (element,) = replay(folder, features=["0/r"])
    assert list(element) == ["0/r"]
    assert element["0/r"].to_list() == [[1], []]
    ((x, y),) = replay(folder, as_supervised=("0/x", "1"))
    assert (float(x), int(y)) == (1.5, 7)
    with pytest.raises(InputError, match="0/r"):
        replay(folder, features=["0/r/row_splits_0"])


def test_progress_counts_elements_and_files(tmp_path, capsys):
    ds = tf.data.Dataset.range(10)
    record_dataset(ds, tmp_path / "out", elements_per_file=4, progress=True)
    shown = capsys.readouterr().err
    assert "10/10" in shown
    assert "file=" in shown
    record_dataset(ds, tmp_path / "b", progress=False)
    assert capsys.readouterr().err == ""


def test_an_object_store_gets_the_same_files(bucket, tmp_path):
    ds = tf.data.Dataset.range(10).map(lambda n: {"n": n})
    there, here = f"s3://{bucket}/out", str(tmp_path / "out")
    for target in (there, here):
        assert record_dataset(ds, target, elements_per_file=4) == target
    assert loopback.contents_in(there) == contents(tmp_path / "out")
