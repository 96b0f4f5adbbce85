"""Which files are TFRecords, which splits they make, and how they share blocks."""

import os

import pytest

from beam_pipeline.conversion.records import (
    InputFile,
    find_files,
    is_record_file,
    make_blocks,
    split_names,
)
from beam_pipeline.errors import InputError
from tests.raising import raises

RECORDS = [
    "a.tfrecord", "a.tfrecords", "a.tfrecord.gz", "a.tfr", "b/0.tfr.gz", "a.tfrec",
    "train-00000-of-00005", "train-00000-of-00005.gz", "a.tfrecord_01",
    "train-00000-of-00005.tfrecord.gz", "x-train.tfrecord-00000-of-00001",
]  # fmt: skip
OTHERS = [
    "a.tfrecord.idx", "a.tfrecord.json", "examples.csv", "schema.pbtxt", "tfrecord",
    "a-00000-of-00005.csv", "a-000-of-005", "-00000-of-00001", "log.txt", "a.gz",
]  # fmt: skip


def test_names_of_tfrecords_and_of_other_files():
    assert [name for name in RECORDS + OTHERS if is_record_file(name)] == RECORDS


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["a.tfrecord", "b.tfr"], ["records", "records"]),
        (["a-00000-of-00001", "b-00000-of-00001.gz"], ["a", "b"]),
        (["train/0.tfr"], ["train"]),
        (["train/0.tfr", "eval/0.tfr", "c.tfr"], ["train", "eval", "records"]),
        (["train/x/0.tfr", "eval/y/0.tfr"], ["train", "eval"]),
        (["train/train-00000-of-00001.tfrecord.gz"], ["train"]),
        (["fold1/part-00000-of-00001", "fold2/part-00000-of-00001"],
         ["fold1", "fold2"]),
        (["d/1/d-train.tfrecord-00000-of-00001", "d/1/d-test.tfrecord-00000-of-00001"],
         ["d_train", "d_test"]),
        (["d/a-00000-of-00001", "d/b-00000-of-00001", "e/x.tfr"], ["d_a", "d_b", "e"]),
        (["2019/x.tfr", "2020/x.tfr"], ["split_2019", "split_2020"]),
    ],
)  # fmt: skip
def test_splits_follow_from_names(names, splits):
    assert split_names(names) == splits


def test_two_splits_of_one_name_are_an_error():
    with raises(InputError, naming=["a-b", "a b", "a_b"]):
        split_names(["a-b/0.tfr", "a b/0.tfr"])


def test_files_are_found_in_the_order_of_their_numbers(tmp_path):
    names = ["b/10.tfr", "b/2.tfr", "a/0.tfr", "b/n.csv", ".x/0.tfr", "_work/0.tfr"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * len(name))
    found, ignored = find_files(str(tmp_path))
    assert [(f.name, f.split, f.size) for f in found] == [
        ("a/0.tfr", "a", 7), ("b/2.tfr", "b", 7), ("b/10.tfr", "b", 8)
    ]  # fmt: skip
    assert all(os.path.samefile(tmp_path / f.name, f.path) for f in found)
    assert sorted(ignored) == [".x/0.tfr", "_work/0.tfr", "b/n.csv"]


@pytest.mark.parametrize(
    ("sizes", "blocks"),
    [
        ([], []),
        ([0], [1]),
        ([4 << 20, 1], [1, 1]),
        ([(4 << 20) - 1, 1], [2]),
        ([1, 1, 9 << 20, 1, 0], [2, 1, 2]),
    ],
)
def test_small_files_share_a_block(sizes, blocks):
    files = [InputFile(str(i), str(i), "s", n) for i, n in enumerate(sizes)]
    made = list(make_blocks(files))
    assert [len(block) for block in made] == blocks
    assert [file for block in made for file in block] == files
