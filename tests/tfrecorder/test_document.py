"""The class and the calls of TFRecorder's document, with other imports.

The document's ``split`` cannot run as it is printed: it reads ``self.src_data``, which
is not set, and makes ``ToyExample`` without its label. Here it reads ``self.data``. Its
paths are below the folder of the test.
"""

import csv
import os

import numpy as np
import pytest
from toy_example import ToyExample

from beam_pipeline.tfrecorder import factory as tf_factory

SIZES = [0, 1, 4, 5, 6, 23, 10, 11, 12, 13]


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The folder of the document's call, its result, and the data of each name."""
    folder = tmp_path_factory.mktemp("toy")
    rng = np.random.default_rng(0)
    data = {f"n{i}": rng.random(size, np.float32) for i, size in enumerate(SIZES)}
    # Its maximum would be that of nothing.
    data["n0"] = np.ones(3, np.float32)
    (folder / "data").mkdir()
    with open(folder / "list.csv", "w", newline="") as file:
        for i, (name, values) in enumerate(data.items()):
            np.save(folder / "data" / f"{name}.npy", values)
            csv.writer(file).writerow([name, i])
    counts = tf_factory.generate_and_save_train_eval_test_tfrecords_files(
        save_directory_path=str(folder / "save"),
        example_class=ToyExample,
        examples_list_filepath=str(folder / "list.csv"),
        src_data_dirpath=str(folder / "data"),
        normalize=True,
        chunk_size_in_bins=5,
    )
    return folder / "save", counts, data


def rows_of(save, split):
    with open(save / split / "examples.csv", newline="") as file:
        return list(csv.reader(file))


def chunks_of(data, rows):
    for name, label in rows:
        values = data[name] / np.max(data[name])
        for i in range(0, len(values), 5):
            yield int(label), values[i : i + 5]


def test_the_document_runs(recorded):
    save, counts, data = recorded
    assert sorted(os.listdir(save)) == [
        "eval", "log.txt", "members.index", "metadata.json", "schema.pbtxt", "train",
    ]  # fmt: skip
    for split in ("train", "eval"):
        tfrecord_filepaths = tf_factory.get_tfrecord_filepaths(
            dirpath=str(save / split)
        )
        dataset = tf_factory.generate_dataset(tfrecord_filepaths)

        found = [(int(label), values.numpy()) for label, values in dataset]
        expected = list(chunks_of(data, rows_of(save, split)))
        assert counts[split] == len(found) == len(expected)
        for (label, values), (true_label, true_values) in zip(
            found, expected, strict=True
        ):
            assert label == true_label
            assert values.dtype == np.float32
            np.testing.assert_array_equal(values, true_values)


def test_the_rows_are_split_eight_to_two_and_none_is_lost(recorded):
    save, _, data = recorded
    train, evaluation = rows_of(save, "train"), rows_of(save, "eval")
    assert (len(train), len(evaluation)) == (8, 2)
    assert sorted(train + evaluation) == [[n, str(i)] for i, n in enumerate(data)]
    # The order of the list is another one.
    assert train != [[n, str(i)] for i, n in enumerate(data)][:8]
