"""Data sets of any structure, for round trips."""

from collections import namedtuple

import numpy as np
import tensorflow as tf
from hypothesis import strategies as st

Pair = namedtuple("Pair", ["left", "right"])

DTYPES = st.sampled_from(
    ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
     "float16", "float32", "float64", "complex64", "complex128", "bfloat16", "string"]
)  # fmt: skip
SIZES = st.none() | st.integers(0, 3)
KEYS = st.sampled_from(["a", "b", "a/b", "shape", "values", "é"])


def ragged_spec(rank, inner, dtype):
    return tf.RaggedTensorSpec([None] * (rank + 1) + inner, dtype, rank)


def structures():
    """Nests of the specs of components."""
    tensors = st.builds(
        tf.TensorSpec, st.lists(SIZES, max_size=3) | st.just(None), DTYPES
    )
    sparse = st.lists(st.none() | st.integers(1, 4), min_size=1, max_size=3)
    ragged = st.integers(1, 2), st.lists(st.integers(1, 2), max_size=1)
    leaves = tensors | tensors | st.builds(tf.SparseTensorSpec, sparse, DTYPES)
    leaves |= st.builds(ragged_spec, *ragged, DTYPES)
    return st.recursive(
        leaves,
        lambda below: (
            st.dictionaries(KEYS, below, min_size=1, max_size=3)
            | st.lists(below, min_size=1, max_size=3).map(tuple)
            | st.builds(Pair, below, below)
        ),
        max_leaves=9,
    )


def random_array(rng, dtype, shape):
    """Values over the whole range of a dtype, without NaN."""
    size = int(np.prod(shape))
    numpy_dtype = dtype.as_numpy_dtype
    if dtype == tf.string:
        flat = np.array([rng.bytes(int(n)) for n in rng.integers(0, 5, size)], object)
    elif dtype.is_integer:
        flat = np.frombuffer(rng.bytes(size * dtype.size), numpy_dtype)
    elif dtype == tf.bool:
        flat = rng.integers(0, 2, size).astype(bool)
    else:
        flat = rng.normal(size=size).astype(numpy_dtype)
        if dtype.is_complex:
            flat = flat + flat.dtype.type(1j) * rng.normal(size=size).astype(
                numpy_dtype
            )
    return flat.reshape(shape)


def random_value(spec, rng):
    """One value of a component: sizes that are not static are drawn anew."""

    def draw(shape):
        return tf.constant(random_array(rng, spec.dtype, shape), spec.dtype)

    if isinstance(spec, tf.RaggedTensorSpec):
        lengths, splits = rng.integers(0, 4, int(rng.integers(0, 4))), []
        for _ in range(spec.ragged_rank):
            splits.append(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))
            lengths = rng.integers(0, 3, int(splits[-1][-1]))
        inner = spec.shape.as_list()[spec.ragged_rank + 1 :]
        values = draw((int(splits[-1][-1]), *inner))
        return tf.RaggedTensor.from_nested_row_splits(values, splits)
    known = [None] * int(rng.integers(0, 3)) if spec.shape.rank is None else spec.shape
    shape = [int(rng.integers(0, 4)) if size is None else size for size in known]
    if not isinstance(spec, tf.SparseTensorSpec):
        return draw(shape)
    places = np.argwhere(rng.integers(0, 2, shape)).astype(np.int64)
    return tf.SparseTensor(places, draw((len(places),)), shape)


def dataset_of(specs, count, seed=0):
    def generate():
        rng = np.random.default_rng(seed)
        for _ in range(count):
            yield tf.nest.map_structure(lambda spec: random_value(spec, rng), specs)

    return tf.data.Dataset.from_generator(generate, output_signature=specs)


def expect_equal(found, wanted):
    """Two elements are equal: structure, dtypes, shapes and the bytes of values."""
    tf.nest.assert_same_structure(found, wanted, expand_composites=True)
    one, other = (tf.nest.flatten(x, expand_composites=True) for x in (found, wanted))
    for a, b in zip(one, other, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        left, right = (np.asarray(x.numpy()) for x in (a, b))
        if a.dtype == tf.string:
            assert left.astype(object).tolist() == right.astype(object).tolist()
        else:
            assert left.tobytes() == right.tobytes()
