"""A folder as a data frame."""

import numpy as np
import pytest

from beam_pipeline.tf_dataset import construct_metadata

NAMES = [
    "1561965276.252_1561965582.106_24346_passenger.wav",
    "1561971147.625_1561971202.077_24346_cargo.wav",
    "1561971697.731_1561971718.283_24346_tug.wav",
    "1561971800.000_1561971900.000_24346_cargo.wav",
]


def make_files(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return [str(folder / name) for name in names]


@pytest.fixture
def data(tmp_path):
    make_files(tmp_path / "data", *reversed(NAMES))
    return tmp_path / "data"


def test_the_columns_of_the_document(data):
    df = construct_metadata(data)
    assert list(df.columns) == ["filepath", "class", "num_classes", "target"]
    assert df["filepath"].tolist() == [str(data / name) for name in NAMES]
    assert df["class"].tolist() == ["passenger", "cargo", "tug", "cargo"]
    assert df["num_classes"].tolist() == [3] * 4
    assert df["target"].tolist() == [0, 1, 2, 1]
    assert df["target"].dtype == df["num_classes"].dtype == np.int64


def test_folders_are_listed_and_the_order_is_that_of_paths(tmp_path):
    wanted = make_files(tmp_path, "a/b/3_x.wav", "a/c_y.wav", "b_x.wav")
    make_files(tmp_path, "notes.txt", "a/other_z.mp3")
    assert construct_metadata(tmp_path)["filepath"].tolist() == wanted
    only = construct_metadata(tmp_path, ext=".mp3")
    assert only["class"].tolist() == ["z"]


def test_a_sequence_of_labels_is_by_position(data):
    labels = np.asarray(["d", "c", "d", "a"])
    df = construct_metadata(data, labels, label_colname="kind")
    assert df["kind"].tolist() == ["d", "c", "d", "a"]
    assert df["target"].tolist() == [0, 1, 0, 2]
    assert "class" not in df


@pytest.mark.parametrize("spelled", ["absolute", "in_folder", "name", "from_here"])
def test_a_mapping_of_labels_is_joined_by_path(spelled, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_files(tmp_path / "data", "one/1.wav", "two/2.wav", "3.wav")
    names = {
        "absolute": [
            f"{tmp_path}/data/{n}" for n in ("3.wav", "one/1.wav", "two/2.wav")
        ],
        "in_folder": ["3.wav", "./one/1.wav", "two//2.wav"],
        "name": ["3.wav", "1.wav", "2.wav"],
        "from_here": ["data/3.wav", "./data/one/1.wav", "data/two/2.wav"],
    }[spelled]
    labels = dict(zip(names, ("c", "a", "b"), strict=True))
    turned = dict(reversed(labels.items()))
    df = construct_metadata("./data", labels=turned)
    assert df["class"].tolist() == ["c", "a", "b"]
    assert df["target"].tolist() == [0, 1, 2]


def test_targets_are_taken_as_they_are(data, tmp_path):
    make_files(tmp_path / "other", "1.wav", "2.wav")
    plain = construct_metadata(tmp_path / "other", targets=[3, 4])
    assert list(plain.columns) == ["filepath", "target"]  # names need no class
    without = construct_metadata(data, create_targets=False)
    assert list(without.columns) == ["filepath", "class", "num_classes"]
    df = construct_metadata(data, targets=[0.5, 0.1, 0.9, 0.33], create_targets=False)
    assert df["target"].tolist() == [0.5, 0.1, 0.9, 0.33]
    assert df["num_classes"].tolist() == [3] * 4
    vectors = construct_metadata(data, targets=np.eye(4))["target"]
    np.testing.assert_array_equal(np.stack(vectors.tolist()), np.eye(4))
