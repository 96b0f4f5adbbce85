"""What is refused before anything is written: types, values, classes, files."""

import functools

import numpy as np
import pytest

from beam_pipeline import write_records
from beam_pipeline.errors import ExampleError, InputError, OptionError
from beam_pipeline.tfrecorder import Example, checker, factory
from beam_pipeline.tfrecorder.factory import RowEncoder
from tests.tfrecorder.declared import declared

Field = Example.Field
RATIO = "a number from 0 to 1"
split = functools.partial(factory.split_examples_list, [1, 2, 3])
check = checker.assert_example_serialize_deserialize_is_ok


class Item(Example):
    number = declared("number", "int32")
    _number = 1


def stored(field, value):
    return field.stored("x", value)


def encoded(source):
    return list(RowEncoder(Item, {}, True).encode(("train", [source])))


SPLIT = factory.generate_and_save_train_eval_test_tfrecords_files
OF_DICT = factory.generate_and_save_tfrecords_files_for_examples_dict
REFUSED = [
    *(
        (Field.array, [dtype], OptionError, "dtype: must be one of bool")
        for dtype in [None, "flaot32", "U5", "datetime64[s]", "longdouble", 3]
    ),
    *(
        (stored, [field, value], InputError, problem)
        for field, value, problem in [
            (Field.TYPE_INT32, 2**31, "x is int32, which does not hold the value"),
            (Field.TYPE_INT32, "3", "which does not hold the value b'3'"),
            (Field.TYPE_INT32, None, "x: None cannot be stored"),
            (Field.TYPE_INT32, [3], r"shape \(1,\), but is declared as int32"),
            (Field.TYPE_ARRAY_FLOAT32, np.array([0.1]), "float32, .*another dtype"),
            (Field.TYPE_ARRAY_FLOAT32, np.float32(3), r"\(\), .*array of float"),
            (Field.TYPE_ARRAY_FLOAT32, {1.0}, "cannot be stored"),
        ]
    ),
    # Classes, lists and files
    (Example.feature_specs, [], OptionError, "must declare what is stored"),
    (OF_DICT, ["none", {}], InputError, "no examples"),
    (OF_DICT, ["none", {"train": []}], InputError, "no examples"),
    (OF_DICT, ["none", None], OptionError, "a dict, .*got None"),
    (OF_DICT, ["none", {"train": None}], OptionError, "examples: .*got None"),
    (OF_DICT, ["none", {"train": "no.csv"}], InputError, r"no\.csv does not exist"),
    (OF_DICT, ["none", {"train": [1]}], OptionError, "must declare .*got None"),
    (SPLIT, ["none", Item, "no.csv"], InputError, r"no\.csv does not exist"),
    (SPLIT, ["none", Item, None], OptionError, "examples: .*got None"),
    (SPLIT, ["none", None, [["a"]]], OptionError, "example_class: .*got None"),
    (factory.generate_dataset, [[]], OptionError, "tfrecords_filepaths"),
    (Item().to_csv_row, [], NotImplementedError, "Item does not define"),
    (encoded, [["a"]], ExampleError, "Item does not define from_csv_row"),
    (encoded, [Item()], ExampleError, "Item does not define to_csv_row"),
    # Ratios
    *(
        (split, [ratio], OptionError, problem)
        for ratio, problem in [
            (1.1, RATIO), (-0.1, RATIO), (float("nan"), RATIO), ([], RATIO),
            ("most", RATIO), (None, RATIO), ([0.25] * 4, "up to three"),
            ([0.7, 0.2], "the sum 1, and has 0.9; got "),
            ([0.7, 0.2, 0.2], "the sum 1, and has 1.1; got "),
        ]
    ),
]  # fmt: skip


@pytest.mark.parametrize(("function", "args", "error", "problem"), REFUSED)
def test_what_is_refused(function, args, error, problem):
    assert issubclass(OptionError, ValueError)
    with pytest.raises(error, match=problem):
        function(*args)


def test_incomplete_folders(tmp_path):
    assert factory.get_tfrecord_filepaths(tmp_path) == []
    for name, problem in (
        ("a-00000-of-00002", "a-00001-of-00002.* is missing"),
        ("b-00000-of-00001", "a-00001-of-00002.* is missing"),
        ("a-00001-of-00002", "b-00000-of-00001.* of another run"),
    ):
        (tmp_path / f"{name}.tfrecord.gz").touch()
        with pytest.raises(InputError, match=problem):
            factory.get_tfrecord_filepaths(tmp_path)
    with pytest.raises(ValueError, match="must be a folder that exists"):
        factory.get_tfrecord_filepaths(tmp_path / "none")


BYTES, SHARES = "examples_tfrecord_file_max_size_in_bytes", "train_eval_test_ratio"
WRONG = [
    (b"1\n2", {BYTES: 0}, OptionError, "a positive number of bytes; got 0"),
    (b"1\n2", {f"examples_{SHARES}": [0.5, 0.1]}, OptionError, "must have the sum 1"),
    (b"1", {"examples_shufle": 1}, OptionError, "did you mean examples_shuffle"),
    (b"1", {"worker": 1}, OptionError, "did you mean workers"),
    (b"1", {"sed": 1}, OptionError, "did you mean seed"),
    (b"", {}, InputError, r"list.csv holds no rows"),
    (b"a,1\n\xff,2\n", {}, InputError, "list.csv, line 2: not UTF-8"),
    (b"1", {"workers": 0}, OptionError, "workers: .*; got 0"),
    (b"1", {"beam_args": ["--runner=FnApiRunner", "--no"]}, OptionError, "--no"),
]


@pytest.mark.parametrize(("content", "options", "error", "problem"), WRONG)
def test_wrong_options_leave_no_trace(tmp_path, content, options, error, problem):
    if content is not None:
        (tmp_path / "list.csv").write_bytes(content)
    with pytest.raises(error, match=problem):
        SPLIT(tmp_path / "a", Item, tmp_path / "list.csv", **options)
    assert not (tmp_path / "a").exists()


def test_what_cannot_be_read(tmp_path):
    write_records(tmp_path / "a.tfrecord", [])
    with pytest.raises(InputError, match=r"No metadata.json.*Give `example_class`"):
        factory.generate_dataset(tmp_path / "a.tfrecord")
    with pytest.raises(InputError, match=r"x.tfrecord cannot be read"):
        factory.generate_dataset(tmp_path / "x.tfrecord", Item)
