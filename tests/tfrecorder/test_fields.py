"""Declared types. Which values a dtype holds is tested with elements."""

import dataclasses

import numpy as np
import pytest

from beam_pipeline.tfrecorder import Example
from beam_pipeline.tfrecorder.example import FieldType

Field = Example.Field


@pytest.mark.parametrize(("name", "text"), [
    ("BOOL", "bool"), ("INT32", "int32"), ("INT64", "int64"), ("FLOAT", "float32"),
    ("DOUBLE", "float64"), ("STRING", "string"), ("BYTES", "string"),
    ("ARRAY_INT32", "array of int32"), ("ARRAY_INT64", "array of int64"),
    ("ARRAY_FLOAT32", "array of float32"), ("ARRAY_FLOAT64", "array of float64"),
])  # fmt: skip
def test_the_names_of_the_document_and_new_ones(name, text):
    assert str(getattr(Field, f"TYPE_{name}")) == text


@pytest.mark.parametrize(("dtype", "name"), [
    ("uint8", "uint8"), (np.uint8, "uint8"), (np.dtype(">f4"), "float32"),
    (float, "float64"), (bool, "bool"), (str, "string"), ("bytes", "string"),
])  # fmt: skip
def test_dtypes_have_many_spellings(dtype, name):
    assert Field.scalar(dtype) == FieldType(name)


SPECS = [
    (Field.TYPE_BOOL, (), "int64_list"),
    (Field.scalar("uint8"), (), "int64_list"),
    (Field.scalar("uint64"), (), "raw"),
    (Field.TYPE_FLOAT, (), "float_list"),
    (Field.TYPE_DOUBLE, (), "raw"),
    (Field.scalar("float16"), (), "raw"),
    (Field.TYPE_BYTES, (), "bytes_list"),
    (Field.TYPE_ARRAY_INT32, None, "raw"),
    (Field.array("float32", (None, 40)), (None, 40), "raw"),
    (Field.array("int8", (2, 3)), (2, 3), "raw"),
]


@pytest.mark.parametrize(("field", "shape", "encoding"), SPECS)
def test_specs(field, shape, encoding):
    spec, *shapes = field.specs("x")
    assert (spec.dtype, spec.shape, spec.encoding) == (field.dtype, shape, encoding)
    if shape is None or None in shape:  # otherwise, the shape is in the spec alone
        (of_shape,) = shapes
        assert spec.shape_in == of_shape.name == "x/shape"
        assert of_shape.shape == (None if shape is None else len(shape),)
        assert (of_shape.dtype, of_shape.encoding) == ("int64", "int64_list")
    else:
        assert (shapes, spec.shape_in) == ([], None)
    assert not any(spec.optional for spec in field.specs("x"))
    optional = dataclasses.replace(field, optional=True).specs("x")
    assert all(spec.optional for spec in optional)


@pytest.mark.parametrize(("field", "value", "expected"), [
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
])  # fmt: skip
def test_values(field, value, expected):
    found = field.stored("x", value)
    if expected is None:
        assert found is None
    else:
        np.testing.assert_array_equal(found, np.asarray(expected), strict=True)
