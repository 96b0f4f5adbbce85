"""Tensors of protobuf: the bytes and values of TensorFlow, and damage at every byte."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.storage.protobuf import DTYPES, decode_tensor, encode_tensor
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
    """Equal dtype, shape and bits, and it can be changed; objects are equal."""
    assert found.flags.writeable
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
    assert_same(decode_tensor(data, name), array)
    with raises(ValueError, naming=[name, "string"]):
        decode_tensor(data, "string")


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


@pytest.mark.parametrize("array", [
    np.arange(24, dtype=np.int32).reshape(2, 3, 4).transpose(2, 0, 1),
    np.arange(9, dtype=np.float32)[::-2], np.broadcast_to(np.float64(0.1), (3, 2)),
    np.asfortranarray(np.arange(6).reshape(2, 3)), np.arange(6, dtype=">c8"),
    [[b"zero bytes at the end\0", b"\0"]],
])  # fmt: skip
def test_arrays_in_any_layout(array):
    data = encode_tensor(array)
    wanted = array if isinstance(array, list) else array.astype(array.dtype.name)
    assert data == serialised(wanted)
    dtype = "string" if isinstance(array, list) else array.dtype.name
    assert decode_tensor(data, dtype).tolist() == np.array(wanted, object).tolist()


@pytest.mark.parametrize(("array", "fact"), [
    (np.array([None]), "None"), (np.array([b"a", 3], object), "3"),
    (np.zeros(1, "datetime64[s]"), "datetime64"), (np.zeros(1, "i4,f4"), "i4"),
    (np.zeros(1, ml_dtypes.float8_e5m2), "float8_e5m2"),
])  # fmt: skip
def test_what_cannot_be_a_tensor(array, fact):
    with pytest.raises(TypeError, match=fact):
        encode_tensor(array)


# Decoding


def test_unknown_fields_and_names_of_dimensions_are_passed_over():
    data = message("int64", (2,), tensor_content=np.array([1, -2]).tobytes())
    data += b"\x18\x00" + b"\xa1\x06" + bytes(8) + b"\xa5\x06" + bytes(4)
    proto = tensor_pb2.TensorProto.FromString(data)
    proto.tensor_shape.dim[0].name = "time"
    assert decode_tensor(proto.SerializeToString(), "int64").tolist() == [1, -2]


@pytest.mark.parametrize(("data", "facts"), [
    (b"", ["0"]), (message("float8_e5m2", ()), ["24"]),
    (message("int32", (2,), tensor_content=bytes(7)), ["7", "8", "int32"]),
    (message("int32", (2,), tensor_content=bytes(9)), ["9", "8", "(2,)"]),
    (message("int32", (0,), tensor_content=bytes(4)), ["4", "0"]),
    (message("int32", (2,), int_val=[1, 2]), ["0", "8", "int32"]),
    (message("string", (2,), string_val=[b"a"]), ["2", "1"]),
    (b"\x08\x01\x12\x02\x18\x01", ["shape"]), (b"\x08\x01\x22\x05abc", ["early"]),
    (b"\x08\x01\x0b", ["3"]), (b"\xff" * 11, ["10"]),
])  # fmt: skip
def test_damaged_messages(data, facts):
    with raises(ValueError, naming=facts):
        decode_tensor(data, "string" if b"\x08\x07" in data else "int32")


@settings(max_examples=300)
@given(st.binary(max_size=40))
def test_any_bytes_raise_nothing_but_value_errors(data):
    try:
        decode_tensor(b"\x08\x07\x12\x02\x12\x00" + data, "string")
        decode_tensor(data, "string")
    except (ValueError, MemoryError):
        pass
