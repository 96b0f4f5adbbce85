"""Declared types. Which values a dtype holds is tested with elements."""

import dataclasses

import numpy as np
import pytest

from beam_pipeline.tfrecorder import Example
from beam_pipeline.tfrecorder.example import FieldType

Field = Example.Field


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("BOOL", "bool"), ("INT32", "int32"), ("INT64", "int64"), ("FLOAT", "float32"),
        ("DOUBLE", "float64"), ("STRING", "string"), ("BYTES", "string"),
        ("ARRAY_INT32", "array of int32"), ("ARRAY_INT64", "array of int64"),
        ("ARRAY_FLOAT32", "array of float32"), ("ARRAY_FLOAT64", "array of float64"),
    ],
)  # fmt: skip
def test_the_names_of_the_document_and_new_ones(name, text):
    assert str(getattr(Field, f"TYPE_{name}")) == text


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("uint8", "uint8"), (np.uint8, "uint8"), (np.dtype(">f4"), "float32"),
        (float, "float64"), (bool, "bool"), (str, "string"), ("bytes", "string"),
    ],
)  # fmt: skip
def test_dtypes_have_many_spellings(dtype, name):
    assert Field.scalar(dtype) == FieldType(name)


@pytest.mark.parametrize(
    ("field", "specs"),
    [
        (Field.TYPE_BOOL, [("x", "bool", (), "int64_list", None)]),
        (Field.scalar("uint8"), [("x", "uint8", (), "int64_list", None)]),
        (Field.scalar("uint64"), [("x", "uint64", (), "raw", None)]),
        (Field.TYPE_FLOAT, [("x", "float32", (), "float_list", None)]),
        (Field.TYPE_DOUBLE, [("x", "float64", (), "raw", None)]),
        (Field.scalar("float16"), [("x", "float16", (), "raw", None)]),
        (Field.TYPE_BYTES, [("x", "string", (), "bytes_list", None)]),
        (
            Field.TYPE_ARRAY_INT32,
            [
                ("x", "int32", None, "raw", "x/shape"),
                ("x/shape", "int64", (None,), "int64_list", None),
            ],
        ),
        (
            Field.array("float32", (None, 40)),
            [
                ("x", "float32", (None, 40), "raw", "x/shape"),
                ("x/shape", "int64", (2,), "int64_list", None),
            ],
        ),
        # The shape is in the spec alone.
        (Field.array("int8", (2, 3)), [("x", "int8", (2, 3), "raw", None)]),
    ],
)
def test_specs(field, specs):
    found = field.specs("x")
    assert [(s.name, s.dtype, s.shape, s.encoding, s.shape_in) for s in found] == specs
    assert not any(spec.optional for spec in found)
    optional = dataclasses.replace(field, optional=True).specs("x")
    assert all(spec.optional for spec in optional)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        (Field.TYPE_BOOL, np.bool_(False), np.bool_(False)),
        (Field.TYPE_INT32, np.int64(7), np.int32(7)),
        # A scalar of numpy is rounded as a number of Python; an array is not.
        (Field.TYPE_FLOAT, 0.1, np.float32(0.1)),
        (Field.TYPE_FLOAT, np.float64(0.1), np.float32(0.1)),
        (Field.TYPE_STRING, "é", np.array("é".encode(), object)),
        (Field.TYPE_ARRAY_FLOAT32, [0.1, 2], np.float32([0.1, 2])),
        (Field.TYPE_ARRAY_INT32, [], np.int32([])),
        (Field.array("int8", (None, 2)), [[1, 2]], np.int8([[1, 2]])),
        (Field.array("string"), ["a", "b"], np.array([b"a", b"b"], object)),
        (Field.array("int8", optional=True), None, None),
    ],
)
def test_values(field, value, expected):
    found = field.stored("x", value)
    if expected is None:
        assert found is None
    else:
        np.testing.assert_array_equal(found, np.asarray(expected), strict=True)
