"""Data sets of any structure, for round trips."""

from collections import namedtuple

import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128", "bfloat16", "string",
)  # fmt: skip


def random_array(rng, dtype, shape):
    """Values over the whole range of a dtype, without NaN."""
    if dtype == "string":
        texts = [rng.bytes(int(rng.integers(0, 5))) for _ in range(int(np.prod(shape)))]
        return np.array(texts, object).reshape(shape)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype == "bfloat16":
        return rng.normal(size=shape).astype(tf.bfloat16.as_numpy_dtype)
    kind = np.dtype(dtype)
    if kind.kind in "iu":
        info = np.iinfo(kind)
        return rng.integers(info.min, info.max, shape, kind, endpoint=True)
    real = rng.normal(size=shape)
    return (real + 1j * rng.normal(size=shape) if kind.kind == "c" else real).astype(
        kind
    )


def tensor_values(rng, dtype, shape, static):
    """One value of a component: sizes that are not static are drawn anew."""
    sizes = [
        n if fixed else int(rng.integers(0, 4))
        for n, fixed in zip(shape, static, strict=True)
    ]
    return tf.constant(random_array(rng, dtype, sizes), dtype)


def ragged_values(rng, dtype, rank, inner):
    lengths = [int(n) for n in rng.integers(0, 4, int(rng.integers(0, 4)))]
    splits = []
    for _ in range(rank):
        splits.append(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
        lengths = [int(n) for n in rng.integers(0, 3, int(splits[-1][-1]))]
    values = tf.constant(random_array(rng, dtype, (int(splits[-1][-1]), *inner)), dtype)
    return tf.RaggedTensor.from_nested_row_splits(values, splits)


def sparse_values(rng, dtype, shape):
    dense = rng.integers(0, 2, shape).astype(bool)
    places = np.argwhere(dense).astype(np.int64)
    values = tf.constant(random_array(rng, dtype, (len(places),)), dtype)
    return tf.SparseTensor(places, values, shape)


@st.composite
def components(draw):
    """(spec, function from a generator to a value) of one component."""
    kind = draw(st.sampled_from(["tensor", "tensor", "tensor", "ragged", "sparse"]))
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(st.lists(st.integers(0, 3), max_size=3))
    if kind == "tensor":
        static = [draw(st.booleans()) for _ in shape]
        if draw(st.integers(0, 9)) == 0:
            known = tf.TensorShape(None)
        else:
            known = tf.TensorShape(
                [n if f else None for n, f in zip(shape, static, strict=True)]
            )
        return tf.TensorSpec(known, dtype), lambda rng: tensor_values(
            rng, dtype, shape, static
        )
    if kind == "ragged":
        rank = draw(st.integers(1, 2))
        inner = draw(st.lists(st.integers(1, 2), max_size=1))
        spec = tf.RaggedTensorSpec([None] * (rank + 1) + inner, dtype, rank)
        return spec, lambda rng: ragged_values(rng, dtype, rank, inner)
    shape = [n + 1 for n in shape] or [2]
    static = draw(st.booleans())
    spec = tf.SparseTensorSpec(shape if static else [None] * len(shape), dtype)
    return spec, lambda rng: sparse_values(rng, dtype, shape)


Pair = namedtuple("Pair", ["left", "right"])


def structures(depth=2):
    """(nest of specs, function from a generator to a nest of values)."""
    leaf = components()
    if depth == 0:
        return leaf
    below = structures(depth - 1)

    def as_dict(pairs):
        specs = {key: spec for key, (spec, _) in pairs.items()}
        return specs, lambda rng: {key: make(rng) for key, (_, make) in pairs.items()}

    def as_tuple(parts):
        specs = tuple(spec for spec, _ in parts)
        return specs, lambda rng: tuple(make(rng) for _, make in parts)

    def as_pair(parts):
        (a, make_a), (b, make_b) = parts
        return Pair(a, b), lambda rng: Pair(make_a(rng), make_b(rng))

    keys = st.sampled_from(["a", "b", "a/b", "shape", "values", "é"])
    return st.one_of(
        leaf,
        st.dictionaries(keys, below, min_size=1, max_size=3).map(as_dict),
        st.lists(below, min_size=1, max_size=3).map(as_tuple),
        st.tuples(below, below).map(as_pair),
    )


def dataset_of(specs, make, count, seed=0):
    def generate():
        rng = np.random.default_rng(seed)
        for _ in range(count):
            yield make(rng)

    return tf.data.Dataset.from_generator(generate, output_signature=specs)


def parts_of(value):
    """The parts of a value that must be equal."""
    if isinstance(value, tf.RaggedTensor):
        return [value.flat_values, *value.nested_row_splits]
    if isinstance(value, tf.SparseTensor):
        return [value.indices, value.values, value.dense_shape]
    return [value]


def expect_equal(found, wanted):
    """Two elements are equal: structure, dtypes, shapes and the bytes of values."""
    tf.nest.assert_same_structure(found, wanted)
    pairs = zip(tf.nest.flatten(found), tf.nest.flatten(wanted), strict=True)
    for one, other in pairs:
        for a, b in zip(parts_of(one), parts_of(other), strict=True):
            assert a.dtype == b.dtype
            assert a.shape == b.shape
            left, right = a.numpy(), b.numpy()
            if a.dtype == tf.string:
                assert (
                    np.array(left, object).tolist() == np.array(right, object).tolist()
                )
            else:
                assert left.tobytes() == right.tobytes()
