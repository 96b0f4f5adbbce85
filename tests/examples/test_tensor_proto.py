"""tensor_proto: the bytes and values of TensorFlow, and damage at every byte."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from beam_pipeline.examples.tensor_proto import DTYPES, decode_tensor, encode_tensor
from tests.raising import raises

tf = pytest.importorskip("tensorflow")
ml_dtypes = pytest.importorskip("ml_dtypes")

from tensorflow.core.framework import tensor_pb2  # noqa: E402

NUMBERS = [name for name in DTYPES if name != "string"]
SHAPES = [(), (0,), (1,), (2,), (2, 3), (1, 1, 1, 1), (2, 0, 3), (0, 0), (130,)]


def numpy_dtype(name):
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def array_of(name, shape, seed=0):
    """Any bytes as the values of an array; bools stay 0 and 1."""
    dtype = numpy_dtype(name)
    rng = np.random.default_rng(seed)
    count = int(np.prod(shape, dtype=int))
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    return np.frombuffer(rng.bytes(count * dtype.itemsize), dtype).reshape(shape)


def serialised(array):
    return tf.io.serialize_tensor(array).numpy()


def message(dtype, shape, **values):
    """A TensorProto made by hand, with the values in one of its fields."""
    proto = tensor_pb2.TensorProto(dtype=tf.dtypes.as_dtype(dtype).as_datatype_enum)
    for length in shape:
        proto.tensor_shape.dim.add().size = length
    for field, value in values.items():
        if isinstance(value, bytes):
            setattr(proto, field, value)
        else:
            getattr(proto, field).extend(value)
    return proto.SerializeToString()


def assert_same(found, wanted):
    """Equal dtype, shape and bits; objects are equal as they are."""
    assert found.dtype == wanted.dtype
    assert found.shape == wanted.shape
    if found.dtype == object:
        assert found.tolist() == wanted.tolist()
    else:
        assert found.tobytes() == wanted.tobytes()


# Encoding


def test_the_dtypes_are_those_that_tensorflow_serialises():
    def has_kernel(dtype):
        try:
            tf.io.serialize_tensor(tf.zeros((), dtype))
        except (tf.errors.OpError, TypeError, ValueError):
            return False
        return True

    known = {tf.dtypes.as_dtype(number) for number in range(1, 33)}
    plain = {d for d in known if not d.is_quantized and d not in NO_VALUES}
    assert {d.name for d in plain if has_kernel(d)} == set(DTYPES)


NO_VALUES = {tf.resource, tf.variant}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("name", NUMBERS)
def test_bytes_are_those_of_tensorflow(name, shape):
    array = array_of(name, shape)
    data = encode_tensor(array)
    assert data == serialised(array)
    assert_same(decode_tensor(data), array)


@settings(max_examples=150)
@given(
    hnp.arrays(
        st.sampled_from(NUMBERS).filter(lambda n: n != "bfloat16").map(np.dtype),
        hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=4),
    )
)
def test_any_array_of_numbers(array):
    data = encode_tensor(array)
    assert data == serialised(array)
    assert_same(decode_tensor(data, array.dtype.name), array)


@settings(max_examples=100)
@given(
    st.lists(st.binary(max_size=200) | st.text(max_size=20), max_size=12),
    st.sampled_from([(-1,), (-1, 1), (1, -1, 1)]),
)
def test_any_array_of_texts(texts, shape):
    array = np.empty(len(texts), object)
    array[:] = texts
    array = array.reshape(shape if texts else -1)
    stored = np.empty(len(texts), object)
    stored[:] = [t.encode() if isinstance(t, str) else t for t in texts]
    stored = stored.reshape(array.shape)
    data = encode_tensor(array)
    assert data == serialised(tf.constant(stored.tolist(), tf.string, array.shape))
    assert_same(decode_tensor(data, "string"), stored)


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"a",
        "ü",
        b"x" * 127,
        b"x" * 128,
        b"\xff\x00",
        np.bytes_(b"b"),
        np.str_("é"),
    ],
)
def test_a_single_text(text):
    data = encode_tensor(text)
    assert data == serialised(text)
    found = decode_tensor(data)
    assert found.shape == ()
    assert found[()] == (text.encode() if isinstance(text, str) else text)


@pytest.mark.parametrize("texts", [["a", "bc"], [[b"a"], [b"bc"]], [["ü"] * 3] * 2])
def test_arrays_and_lists_of_texts(texts):
    assert encode_tensor(np.array(texts)) == serialised(texts)
    assert encode_tensor(texts) == serialised(texts)


def test_zero_bytes_at_the_end_of_texts_in_lists():
    texts = [[b"a\0", b"\0"]]
    assert encode_tensor(texts) == serialised(texts)
    assert decode_tensor(encode_tensor(texts)).tolist() == texts


@pytest.mark.parametrize(
    "array",
    [
        np.arange(24, dtype=np.int32).reshape(2, 3, 4).transpose(2, 0, 1),
        np.arange(9, dtype=np.float32)[::-2],
        np.broadcast_to(np.float64(0.1), (3, 2)),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
    ],
)
def test_arrays_that_are_not_contiguous(array):
    assert encode_tensor(array) == serialised(array.copy())


@pytest.mark.parametrize("name", ["int16", "uint64", "float32", "complex64"])
def test_big_endian_arrays(name):
    array = array_of(name, (3, 2))
    swapped = array.astype(array.dtype.newbyteorder(">"))
    assert encode_tensor(swapped) == encode_tensor(array)


@pytest.mark.parametrize("value", [3, 2.5, True, [1, 2], [[1.0]], 1j])
def test_python_values_have_the_dtype_of_numpy(value):
    assert_same(decode_tensor(encode_tensor(value)), np.asarray(value))


@pytest.mark.parametrize(
    ("array", "fact"),
    [
        (np.array([None]), "None"),
        (np.array([b"a", 3], object), "3"),
        (np.zeros(1, "datetime64[s]"), "datetime64"),
        (np.zeros(1, "i4,f4"), "i4"),
        (np.zeros(1, ml_dtypes.float8_e5m2), "float8_e5m2"),
    ],
)
def test_what_cannot_be_a_tensor(array, fact):
    with pytest.raises(TypeError, match=fact):
        encode_tensor(array)


# Decoding


@pytest.mark.parametrize("stored", [1, 2, 5])
@pytest.mark.parametrize("name", NUMBERS)
def test_lists_of_values_repeat_the_last(name, stored):
    array = array_of(name, (stored,), seed=1)
    data = message(name, (5,), **value_field(name, array))
    wanted = tf.io.parse_tensor(data, name).numpy()
    assert_same(decode_tensor(data), wanted)
    assert wanted.tobytes() == array.tobytes() + array[-1:].tobytes() * (5 - stored)


def value_field(name, array):
    """The field of a dtype's values, filled with those of an array."""
    if name in ("float16", "bfloat16"):
        return {"half_val": array.view(np.uint16).tolist()}
    if name in ("complex64", "complex128"):
        field = "scomplex_val" if name == "complex64" else "dcomplex_val"
        return {field: array.view(array.real.dtype).tolist()}
    fields = {
        "float32": "float_val",
        "float64": "double_val",
        "int64": "int64_val",
        "bool": "bool_val",
        "uint32": "uint32_val",
        "uint64": "uint64_val",
    }
    return {fields.get(name, "int_val"): array.tolist()}


@pytest.mark.parametrize("name", DTYPES)
def test_a_list_without_values_is_of_zeros(name):
    data = message(name, (2, 2))
    wanted = tf.io.parse_tensor(data, name).numpy()
    assert_same(decode_tensor(data), wanted)
    assert not decode_tensor(data).any()


def test_texts_repeat_the_last():
    data = message("string", (3,), string_val=[b"a", b"b"])
    assert decode_tensor(data).tolist() == [b"a", b"b", b"b"]
    assert tf.io.parse_tensor(data, "string").numpy().tolist() == [b"a", b"b", b"b"]


def test_texts_in_one_piece():
    long = b"z" * 200
    data = message("string", (3,), tensor_content=b"\x01\x00\xc8\x01a" + long)
    wanted = tf.io.parse_tensor(data, "string").numpy().tolist()
    assert decode_tensor(data).tolist() == [b"a", b"", long] == wanted


@pytest.mark.parametrize("value", [1, -1, -(1 << 31), (1 << 31) - 1])
@pytest.mark.parametrize("name", ["int8", "uint8", "int16", "uint16", "int32"])
def test_numbers_wider_than_their_dtype_lose_their_upper_bits(name, value):
    data = message(name, (), int_val=[value])
    assert_same(decode_tensor(data), np.asarray(tf.io.parse_tensor(data, name)))


def test_values_may_be_packed_or_not():
    head = b"\x08\x03\x12\x04\x12\x02\x08\x03"
    packed, single = b"\x3a\x03\x07\x08\x09", b"\x38\x07\x38\x08\x38\x09"
    for values in (packed, single, b"\x38\x07\x3a\x02\x08\x09"):
        assert decode_tensor(head + values).tolist() == [7, 8, 9]
        assert tf.io.parse_tensor(head + values, "int32").numpy().tolist() == [7, 8, 9]


def test_unknown_fields_and_names_of_dimensions_are_passed_over():
    data = message("int64", (2,), int64_val=[1, -2])
    data += b"\x18\x00" + b"\xa1\x06" + bytes(8) + b"\xa5\x06" + bytes(4)
    proto = tensor_pb2.TensorProto.FromString(data)
    proto.tensor_shape.dim[0].name = "time"
    assert decode_tensor(proto.SerializeToString()).tolist() == [1, -2]


def test_a_decoded_array_can_be_changed():
    for array in (np.arange(3), np.float32(1)):
        found = decode_tensor(encode_tensor(array))
        found[...] = 7
        assert (found == 7).all()


@pytest.mark.parametrize(
    ("data", "facts"),
    [
        (b"", ["0"]),
        (message("float8_e5m2", ()), ["24"]),
        (message("int32", (2,), tensor_content=bytes(7)), ["7", "8", "int32"]),
        (message("int32", (2,), tensor_content=bytes(9)), ["9", "8", "(2,)"]),
        (message("int32", (0,), tensor_content=bytes(4)), ["4", "0"]),
        (message("int32", (2,), int_val=[1, 2, 3]), ["2", "3"]),
        (message("int32", (-1,)), ["-1"]),
        (message("bool", (1,), tensor_content=b"\x02"), ["bool"]),
        (message("string", (2,), tensor_content=b"\x01\x01a"), ["2", "3"]),
        (message("complex64", (1,), scomplex_val=[1.0]), ["4", "complex64"]),
        (b"\x08\x01\x12\x02\x18\x01", ["shape"]),
        (b"\x08\x01\x22\x05abc", ["early"]),
        (b"\x08\x01\x0b", ["3"]),
        (b"\xff" * 11, ["10"]),
    ],
)
def test_damaged_messages(data, facts):
    with raises(ValueError, naming=facts):
        decode_tensor(data)


def test_a_dtype_that_is_not_the_expected():
    with raises(ValueError, naming=["int32", "float32"]):
        decode_tensor(encode_tensor(np.int32(1)), "float32")


@pytest.mark.parametrize(
    "array", [np.arange(300, dtype=np.int16), "text", [b"a", b"b"]]
)
def test_a_cut_message_never_gives_the_array(array):
    data = encode_tensor(array)
    whole = decode_tensor(data)
    for size in range(len(data)):
        try:
            found = decode_tensor(data[:size])
        except ValueError:
            continue
        # A cut between two fields leaves a message that is well-formed.
        assert found.shape != whole.shape or found.tolist() != whole.tolist()


@settings(max_examples=300)
@given(st.binary(max_size=40))
def test_any_bytes_raise_nothing_but_value_errors(data):
    try:
        decode_tensor(b"\x08\x07\x12\x02\x12\x00" + data)
        decode_tensor(data)
    except (ValueError, MemoryError):
        pass


def test_no_tensorflow():
    code = """
import sys
from beam_pipeline.examples.tensor_proto import decode_tensor, encode_tensor
assert decode_tensor(encode_tensor([1.5])) == [1.5]
assert not {"tensorflow", "apache_beam", "ml_dtypes"} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
