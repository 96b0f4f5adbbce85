"""replay: folders in the format of tf_dataset, written by a replica of it."""

import json
from pathlib import Path

import numpy as np
import pytest

from beam_pipeline import replay
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.read.replay import (
    SPEC_FILE,
    original_batch_size,
    original_files,
    original_specs,
)
from beam_pipeline.storage.wire import DTYPES, decode_tensor
from tests.raising import raises

tf = pytest.importorskip("tensorflow")

from tests.originals import write_like_tf_dataset  # noqa: E402

WIN_LEN = 64


def document_elements(count):
    """Elements with the keys of tf_dataset's document."""
    rng = np.random.default_rng(3)
    names = np.array([b"passenger", b"tug"], object)
    target = rng.integers(0, 2, count)
    return {
        "class": names[target].tolist(),
        "filepath": [f"C:\\internal\\data\\ü {i}.wav".encode() for i in range(count)],
        "index": np.arange(count),
        "num_classes": np.full(count, 2),
        "signal": rng.integers(-(2**31), 2**31, (count, WIN_LEN), np.int32),
        "target": target,
        "win_start_idx": rng.integers(0, 2**31, count, np.int32),
    }


def write(folder, columns, elements_per_file=2):
    dataset = tf.data.Dataset.from_tensor_slices(columns)
    write_like_tf_dataset(dataset, folder, elements_per_file)
    return str(folder)


def sort_by(elements, key):
    return sorted(elements, key=lambda element: element[key])


def assert_elements(found, columns, key):
    """Every element of the columns once, with the same keys, dtypes and bits."""
    dataset = tf.data.Dataset.from_tensor_slices(columns)
    wanted = list(dataset.as_numpy_iterator())
    assert len(found) == len(wanted)
    for element, other in zip(sort_by(found, key), sort_by(wanted, key), strict=True):
        assert element.keys() == other.keys()
        for name, value in element.items():
            np.testing.assert_array_equal(value, other[name], strict=True)


def replace_spec(folder, change):
    path = Path(folder, SPEC_FILE)
    values = json.loads(path.read_text())
    change(values)
    path.write_text(json.dumps(values))


@pytest.fixture(autouse=True)
def quiet(capsys):
    """The replica prints a line for each element."""
    return capsys


# Reading


@pytest.mark.parametrize("elements_per_file", [1, 4, 10, 11])
def test_the_elements_of_the_document(tmp_path, elements_per_file):
    columns = document_elements(10)
    folder = write(tmp_path / "records", columns, elements_per_file)
    assert len(original_files(folder)) == -(-10 // elements_per_file)
    dataset = replay(folder)
    wanted = tf.data.Dataset.from_tensor_slices(columns)
    assert dataset.element_spec == wanted.element_spec
    assert_elements(list(dataset.as_numpy_iterator()), columns, "index")


def test_every_dtype_and_rank(tmp_path):
    """Also the dtypes with which tf_dataset itself failed.

    One name looks like that of a part of a complex feature.
    """
    numbers = tf.cast(tf.reshape(tf.range(2 * 3 * 4), (2, 3, 4)) % 2, "int32")
    columns = {"n": [0, 1], "a_real": tf.cast(numbers, "float32")}
    for dtype in DTYPES:
        text = dtype == "string"
        columns[dtype] = tf.as_string(numbers) if text else tf.cast(numbers, dtype)
        columns[f"one {dtype}"] = columns[dtype][:, 0, 0]
    folder = write(tmp_path / "records", columns, 1)
    stored = json.loads(Path(folder, SPEC_FILE).read_text())
    assert {"complex64_real", "complex64_imag", "a_real", "n"} <= {*stored}
    dataset = replay(folder)
    assert dataset.element_spec["complex64"] == tf.TensorSpec((3, 4), tf.complex64)
    found = sort_by(dataset.as_numpy_iterator(), "n")
    specs = original_specs(folder)[0]
    for i, element in enumerate(found):
        for name, values in columns.items():
            wanted = tf.convert_to_tensor(values)[i].numpy()
            np.testing.assert_array_equal(element[name], wanted, strict=True)
    assert [specs[dtype].dtype for dtype in DTYPES] == [*DTYPES]


def test_a_shape_that_may_differ(tmp_path):
    folder = write(tmp_path / "records", {"x": np.zeros((2, 5))})
    replace_spec(folder, lambda spec: spec["x"].update(shape=[None]))
    dataset = replay(folder)
    assert dataset.element_spec["x"].shape.as_list() == [None]
    assert next(iter(dataset))["x"].shape == (5,)
    entry = {**PART, "dtype": "tf.complex64"}
    features, stored = specs_of(folder, {"x_real": entry})
    assert features == stored
    assert stored["x_real"].dtype == "complex64"


def test_files_come_in_the_order_of_their_names(tmp_path):
    folder = Path(write(tmp_path / "records", {"n": np.arange(30)}, 3))
    number = iter([7, 3, 9, 1, 0, 8, 2, 6, 5, 4])
    for path in sorted(folder.glob("*.tfrecord")):
        first = next(tf.data.TFRecordDataset(str(path)).as_numpy_iterator())
        n = tf.train.Example.FromString(first).features.feature["n"].bytes_list.value[0]
        path.rename(folder / f"{decode_tensor(n, 'int64'):02d} {next(number)}.tfrecord")
    assert original_files(str(folder)) == sorted(map(str, folder.glob("*.tfrecord")))
    for _ in range(2):
        found = [int(e["n"]) for e in replay(str(folder))]
        assert found == list(range(30))


def test_other_files_and_files_without_records_add_nothing(tmp_path):
    """tf_dataset wrote an empty one when the file size divides the number."""
    columns = {"n": np.arange(4)}
    folder = write(tmp_path / "records", columns)
    Path(folder, "000.tfrecord").touch()
    Path(folder, "notes.txt").write_text("x")
    Path(folder, "deeper").mkdir()
    Path(folder, "deeper", "a.tfrecord").write_text("x" * 100)
    assert_elements(list(replay(folder).as_numpy_iterator()), columns, "n")
    for path in original_files(folder):
        Path(path).write_bytes(b"")
    assert list(replay(folder)) == []


# Batches


@pytest.mark.parametrize("size", [1, 9, 10, 32])
def test_batches_keep_their_size_and_every_element(tmp_path, size):
    columns = {"n": np.arange(70)}
    dataset = tf.data.Dataset.from_tensor_slices(columns).batch(size)
    folder = write_like_tf_dataset(dataset, tmp_path / "records", 100)
    assert original_batch_size(folder) == size
    batches = [batch["n"].numpy() for batch in replay(folder)]
    assert {len(batch) for batch in batches[:-1]} <= {size}
    assert np.concatenate(batches).tolist() == list(range(70))


@pytest.mark.parametrize("text", ["", "0", "-3", "2.5", "3 4", "²", "tf.Tensor(3)"])
def test_a_batch_size_that_is_none(tmp_path, text):
    folder = write(tmp_path / "records", {"n": [1]})
    path = Path(folder, "batched")
    path.write_text(text)
    with raises(InputError, naming=[path, repr(text)]):
        replay(folder)
    path.write_text("32\n")
    assert original_batch_size(folder) == 32


# Damage


def test_a_description_without_records(tmp_path):
    folder = write(tmp_path / "records", {"n": [1]})
    with raises(OptionError, "shuffle", -1):
        replay(folder, shuffle=-1)
    with raises(OptionError, "split", "train", naming="record_dataset"):
        replay(folder, split="train")
    for path in original_files(folder):
        Path(path).unlink()
    with raises(InputError, naming=[folder, ".tfrecord"]):
        replay(folder)


FLOAT = {"dtype": "tf.float32", "shape": [], "previous_dtype": "tf.float32"}
PART = {**FLOAT, "shape": [3], "previous_dtype": "tf.complex64"}


def specs_of(folder, text):
    text = json.dumps(text) if isinstance(text, dict) else text
    Path(folder, SPEC_FILE).write_bytes(text.encode())
    return original_specs(str(folder))


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        *((text, []) for text in ("", "{", "[]", "{}", "3", "NaN")),
        ({"x": 3}, ["x", 3]),
        *(({"x": {k: v for k, v in FLOAT.items() if k != key}}, ["x", key])
          for key in FLOAT),
        ({"x": {**FLOAT, "previous_dtype": None}}, ["x", "previous_dtype"]),
        ({"x": {**FLOAT, "previous_dtype": "tf.float33"}}, ["x", "'float33'"]),
        ({"x": {**FLOAT, "dtype": ["tf.int32"]}}, ["x", "dtype"]),
        *(({"x": {**FLOAT, "shape": shape}}, ["x"]) for shape in (4, [4, -1], [True])),
        ({"y": FLOAT, "x_real": PART}, ["x_real", "'x_imag'"]),
        ({"x_imag": PART}, ["x_imag", "'x_real'"]),
        ({"x": PART}, ["x", "'x_real'"]),
        ({"x_real": PART, "x_imag": {**PART, "shape": [4]}}, ["x_real", "x_imag"]),
        ({"x_real": PART, "x_imag": {**FLOAT, "shape": [3]}}, ["x_real", "x_imag"]),
        ({"x": FLOAT, "x_real": PART, "x_imag": PART}, ["'x'"]),
    ],
)  # fmt: skip
def test_an_entry_that_is_damaged_or_contradicts(tmp_path, text, facts):
    with raises(InputError, naming=[tmp_path, SPEC_FILE, *facts]):
        specs_of(tmp_path, text)


def test_a_later_record_of_another_shape_is_an_error(tmp_path):
    folder = write(tmp_path / "records", {"x": np.zeros((2, 5))})
    (first,) = original_files(folder)
    Path(first).rename(Path(folder, "0.tfrecord"))
    write(folder, {"x": np.zeros((2, 6))})
    dataset = replay(folder)
    with pytest.raises(tf.errors.InvalidArgumentError, match="shape"):
        list(dataset)
