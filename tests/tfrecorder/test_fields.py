import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from beam_pipeline.errors import OptionError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.text import typed
from beam_pipeline.tfrecorder.fields import Field, UnstorableValue

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "float32", "float64", "complex64", "complex128"]
NUMBERS = ["bool", *INTEGERS, *FLOATS]


def test_the_names_of_the_document_and_new_ones():
    assert str(Field.TYPE_BOOL) == "bool"
    assert str(Field.TYPE_INT32) == "int32"
    assert str(Field.TYPE_INT64) == "int64"
    assert str(Field.TYPE_FLOAT) == "float32"
    assert str(Field.TYPE_DOUBLE) == "float64"
    assert str(Field.TYPE_STRING) == "string"
    assert str(Field.TYPE_BYTES) == "bytes"
    assert str(Field.TYPE_ARRAY_INT32) == "array of int32"
    assert str(Field.TYPE_ARRAY_INT64) == "array of int64"
    assert str(Field.TYPE_ARRAY_FLOAT32) == "array of float32"
    assert str(Field.TYPE_ARRAY_FLOAT64) == "array of float64"
    assert str(Field.array("int8", (None, 2))) == "array of int8 of shape (None, 2)"


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        ("uint8", "uint8"),
        (np.uint8, "uint8"),
        (np.dtype(">f4"), "float32"),
        (float, "float64"),
        (bool, "bool"),
        (str, "string"),
        ("bytes", "bytes"),
    ],
)
def test_dtypes_have_many_spellings(dtype, name):
    assert Field.scalar(dtype) == Field(name)


@pytest.mark.parametrize(
    "dtype", [None, "flaot32", "object", "U5", "datetime64[s]", "longdouble", 3]
)
def test_no_such_dtype(dtype):
    with pytest.raises(OptionError, match="must be 'string', 'bytes' or a dtype"):
        Field.scalar(dtype)


def test_arrays_are_of_numbers():
    with pytest.raises(OptionError, match="arrays are of numbers only"):
        Field.array("string")


@pytest.mark.parametrize("shape", [(), (-1,), ("a",), 3, (1.5,)])
def test_no_such_shape(shape):
    with pytest.raises(OptionError, match="shape: must be a tuple"):
        Field.array("float32", shape)


@pytest.mark.parametrize(
    ("field", "specs"),
    [
        (Field.TYPE_BOOL, [("x", "bool", (), "int64_list", None)]),
        (Field.scalar("uint8"), [("x", "uint8", (), "int64_list", None)]),
        (Field.scalar("uint64"), [("x", "uint64", (), "raw", None)]),
        (Field.TYPE_FLOAT, [("x", "float32", (), "float_list", None)]),
        (Field.TYPE_DOUBLE, [("x", "float64", (), "raw", None)]),
        (Field.scalar("float16"), [("x", "float16", (), "raw", None)]),
        (Field.TYPE_STRING, [("x", "string", (), "bytes_list", None)]),
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
    for spec in found:
        assert typed(FeatureSpec, {"name": spec.name, **spec.to_json()}, "") == spec


def test_the_shape_of_an_optional_array_is_optional_too():
    specs = Field.array("int8", optional=True).specs("x")
    assert [spec.optional for spec in specs] == [True, True]


def stored(field, value):
    found = field.encodable(value)
    if isinstance(found, bytes):
        return found
    dtype = np.dtype(field.dtype)
    assert found.dtype.newbyteorder("=") == dtype
    assert found.flags.c_contiguous
    return found.astype(dtype)


@given(st.data())
def test_arrays_of_the_declared_dtype_are_kept(data):
    dtype = data.draw(st.sampled_from(NUMBERS))
    shapes = hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=3)
    array = data.draw(hnp.arrays(dtype, shapes))
    order = data.draw(st.sampled_from(["=", ">", "<"]))
    given_array = np.asfortranarray(array).astype(array.dtype.newbyteorder(order))
    np.testing.assert_array_equal(stored(Field.array(dtype), given_array), array)


@given(st.data())
def test_integers_are_cast_exactly_or_refused(data):
    dtype = data.draw(st.sampled_from(NUMBERS))
    wide = data.draw(st.sampled_from(["bool", "int8", "uint16", "int64", "uint64"]))
    array = data.draw(hnp.arrays(wide, st.integers(1, 3)))
    kind = np.dtype(dtype).kind
    if kind in "iu":
        limits = np.iinfo(dtype)
        fits = all(limits.min <= v <= limits.max for v in array.tolist())
    elif kind == "b":
        fits = set(array.tolist()) <= {0, 1}
    else:
        with np.errstate(over="ignore"):
            cast = array.astype(dtype).real.astype(float).tolist()
        fits = all(
            np.isfinite(c) and int(c) == v
            for c, v in zip(cast, array.tolist(), strict=True)
        )
    if fits or wide == dtype:
        assert stored(Field.array(dtype), array).tolist() == array.tolist()
    else:
        with pytest.raises(UnstorableValue, match="which does not fit"):
            Field.array(dtype).encodable(array)


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        (Field.TYPE_BOOL, True, True),
        (Field.TYPE_BOOL, np.bool_(False), False),
        (Field.TYPE_BOOL, 1, True),
        (Field.TYPE_INT32, 2**31 - 1, 2**31 - 1),
        (Field.TYPE_INT32, -(2**31), -(2**31)),
        (Field.TYPE_INT32, np.int64(7), 7),
        (Field.TYPE_INT32, np.array(7), 7),
        (Field.TYPE_INT32, True, 1),
        (Field.TYPE_INT64, 2**63 - 1, 2**63 - 1),
        (Field.scalar("uint64"), 2**64 - 1, 2**64 - 1),
        (Field.TYPE_FLOAT, 0.1, np.float32(0.1)),
        (Field.TYPE_FLOAT, np.float64(0.1), np.float32(0.1)),
        (Field.TYPE_FLOAT, 2**24, 2**24),
        (Field.TYPE_FLOAT, float("inf"), float("inf")),
        (Field.TYPE_DOUBLE, 1561965277.252, 1561965277.252),
        (Field.scalar("complex64"), 1 + 2j, 1 + 2j),
        (Field.scalar("complex64"), 0.5, 0.5),
        (Field.TYPE_STRING, "héllo", "héllo".encode()),
        (Field.TYPE_STRING, b"\xff", b"\xff"),
        (Field.TYPE_BYTES, bytearray(b"\x00a"), b"\x00a"),
    ],
)
def test_scalars(field, value, expected):
    assert stored(field, value) == expected


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        # Python's floats have no width of their own; an array has.
        (Field.TYPE_ARRAY_FLOAT32, [0.1, 2], np.array([0.1, 2], np.float32)),
        (Field.TYPE_ARRAY_FLOAT32, np.float16([0.1]), np.float32(np.float16([0.1]))),
        (Field.TYPE_ARRAY_FLOAT32, [], np.zeros(0, np.float32)),
        (Field.TYPE_ARRAY_INT32, [], np.zeros(0, np.int32)),
        (Field.TYPE_ARRAY_INT32, [[1], [2]], np.array([[1], [2]], np.int32)),
        (Field.array("complex64"), np.float32([1]), np.array([1], np.complex64)),
        (Field.array("int8", (None, 2)), [[1, 2]], np.array([[1, 2]], np.int8)),
        (Field.array("int8", (0,)), [], np.zeros(0, np.int8)),
    ],
)
def test_arrays(field, value, expected):
    np.testing.assert_array_equal(stored(field, value), expected, strict=True)


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        (Field.TYPE_BOOL, 2, "int 2, which does not fit"),
        (Field.TYPE_BOOL, "True", "found str 'True'"),
        (Field.TYPE_INT32, 2**31, "which does not fit"),
        (Field.TYPE_INT64, 2**63, "which does not fit"),
        (Field.TYPE_INT64, 2**70, "which does not fit"),
        (Field.scalar("uint8"), -1, "int -1, which does not fit"),
        (Field.TYPE_INT32, 3.0, "found float 3.0"),
        (Field.TYPE_INT32, "3", "found str '3'"),
        (Field.TYPE_INT32, None, "found None"),
        (Field.TYPE_INT32, [3], r"found list \[3\]"),
        (Field.TYPE_INT32, np.array([3]), r"an array of int64 with shape \(1,\)"),
        (Field.TYPE_FLOAT, 2**24 + 1, "which does not fit"),
        (Field.TYPE_FLOAT, 1e300, "which does not fit"),
        (Field.TYPE_FLOAT, 1j, "found complex 1j"),
        (Field.TYPE_STRING, 3, "found int 3"),
        (Field.TYPE_STRING, "\ud800", "not Unicode"),
        (Field.TYPE_BYTES, "a", "found str 'a'"),
        (Field.TYPE_ARRAY_FLOAT32, np.zeros(2), "an array of float64 with shape"),
        (Field.TYPE_ARRAY_FLOAT32, np.float64([]), "an array of float64 with shape"),
        (Field.TYPE_ARRAY_FLOAT32, [1e300], "which does not fit"),
        (Field.TYPE_ARRAY_FLOAT32, np.float32(3), "found float32"),
        (Field.TYPE_ARRAY_FLOAT32, np.zeros((), "f4"), "an array of float32"),
        (Field.TYPE_ARRAY_FLOAT32, 3, "found int 3"),
        (Field.TYPE_ARRAY_FLOAT32, "abc", "found str 'abc'"),
        (Field.TYPE_ARRAY_FLOAT32, {1.0}, "found set"),
        (Field.TYPE_ARRAY_FLOAT32, [[1], [1, 2]], r"found list \[\[1\], \[1, 2\]\]"),
        (Field.TYPE_ARRAY_INT32, [2**31], "which does not fit"),
        (Field.TYPE_ARRAY_INT32, np.float32([1]), "an array of float32"),
        (Field.TYPE_ARRAY_INT32, [1.0], r"found list \[1.0\]"),
        (Field.array("int8", (None, 2)), np.zeros((2, 3), "i1"), r"shape \(2, 3\)"),
        (Field.array("int8", (None, 2)), np.zeros(2, "i1"), r"shape \(2,\)"),
    ],
)
def test_refused_values(field, value, problem):
    with pytest.raises(UnstorableValue, match=problem):
        field.encodable(value)
