"""Declared types and classes. Which values a dtype holds is tested with elements."""

import numpy as np
import pytest
from toy_example import ToyExample

from beam_pipeline.tfrecorder import Example, tfrecordable
from beam_pipeline.tfrecorder.example import FieldType, declared_fields, read_csv_rows
from tests.data_sets import decode_examples

Field = Example.Field


@pytest.mark.parametrize(("dtype", "name"), [
    ("uint8", "uint8"), (np.uint8, "uint8"), (np.dtype(">f4"), "float32"),
    (float, "float64"), (bool, "bool"), (str, "string"), ("bytes", "string"),
])  # fmt: skip
def test_dtypes_have_many_spellings(dtype, name):
    assert Field.scalar(dtype) == FieldType(name)


@pytest.mark.parametrize(("field", "text", "encoding"), [
    (Field.TYPE_BOOL, "bool", "int64_list"),
    (Field.TYPE_INT32, "int32", "int64_list"),
    (Field.TYPE_INT64, "int64", "int64_list"),
    (Field.scalar("uint64"), "uint64", "raw"),
    (Field.TYPE_FLOAT, "float32", "float_list"),
    (Field.TYPE_DOUBLE, "float64", "raw"),
    (Field.TYPE_STRING, "string", "bytes_list"),
    (Field.TYPE_ARRAY_INT32, "array of int32", "raw"),
    (Field.TYPE_ARRAY_FLOAT32, "array of float32", "raw"),
])  # fmt: skip
def test_types_and_specs(field, text, encoding):
    assert str(field) == text
    spec, *shapes = field.specs("x")
    shape = None if field.is_array else ()
    assert (spec.dtype, spec.shape, spec.encoding) == (field.dtype, shape, encoding)
    assert [(each.name, each.dtype, each.encoding) for each in shapes] == [
        ("x/shape", "int64", "int64_list")
    ] * field.is_array


@pytest.mark.parametrize(("field", "value", "expected"), [
    (Field.TYPE_BOOL, np.bool_(False), np.bool_(False)),
    (Field.TYPE_INT32, np.int64(7), np.int32(7)),
    # A scalar of numpy is rounded as a number of Python; an array is not.
    (Field.TYPE_FLOAT, 0.1, np.float32(0.1)),
    (Field.TYPE_FLOAT, np.float64(0.1), np.float32(0.1)),
    (Field.TYPE_STRING, "é", np.array("é".encode(), object)),
    (Field.TYPE_ARRAY_FLOAT32, [0.1, 2], np.float32([0.1, 2])),
    (Field.TYPE_ARRAY_INT32, [], np.int32([])),
    (Field.array("int8"), [[1, 2]], np.int8([[1, 2]])),
    (Field.array("string"), ["a", "b"], np.array([b"a", b"b"], object)),
])  # fmt: skip
def test_values(field, value, expected):
    found = field.stored("x", value)
    np.testing.assert_array_equal(found, np.asarray(expected), strict=True)


class Toy(ToyExample):
    def __init__(self, name="a", label=3, data=None):
        super().__init__(name, label)
        self._data = data


class Longer(Toy):
    @tfrecordable(dtype="float64")
    def area(self):
        return 2.5


class Longest(Longer):
    @tfrecordable(dtype=Field.TYPE_STRING)
    def a_note(self):
        return "é"

    # Of another type, at its place.
    @Toy.data.getter
    def data(self):
        return np.ones(2, np.float32)


DECLARED = ["label: int32", "data: array of float32", "area: float64", "a_note: string"]


@pytest.mark.parametrize(("cls", "count"), [(Toy, 2), (Longer, 3), (Longest, 4)])
def test_the_order_is_that_of_the_declarations(cls, count):
    found = [f"{name}: {field}" for name, field in declared_fields(cls).items()]
    assert found == DECLARED[:count]
    names = [spec.name for spec in cls.feature_specs()]
    # A shape follows its array.
    assert names == ["label", "data", "data/shape", "area", "a_note"][: count + 1]


def test_it_is_a_property():
    toy = Toy(label=4)
    toy.label += 1
    assert toy._label == 5
    with pytest.raises(AttributeError):
        Longer().area = 3.0


def test_a_record_holds_what_is_declared():
    data = np.arange(6, dtype="f4").reshape(2, 3)
    record = Longer("a", -7, data).serialize_to_string()
    specs = {spec.name: spec for spec in Longer.feature_specs()}
    (found,) = decode_examples([record], specs)
    assert list(found) == ["label", "data", "data/shape", "area"]
    np.testing.assert_array_equal(found["data"], data, strict=True)
    assert (found["label"], found["area"]) == (-7, 2.5)


def test_a_csv_file_may_have_a_mark_empty_lines_and_quotes(tmp_path):
    text = b'\xef\xbb\xbfa,1\r\n\r\n"b\n""c""",2'
    (tmp_path / "list.csv").write_bytes(text)
    rows = read_csv_rows(tmp_path / "list.csv")
    assert rows == [["a", "1"], ['b\n"c"', "2"]]
