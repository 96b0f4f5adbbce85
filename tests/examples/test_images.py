"""Images: PNG gives back what it got, JPEG nearly, and TensorFlow reads the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from beam_pipeline.errors import InputError, RecipeError
from beam_pipeline.examples.array_bytes import (
    MOST_PIXELS,
    decode_image,
    encode_image,
    image_problem,
)
from tests.raising import raises

tf = pytest.importorskip("tensorflow")

# What images can hold: kind, dtype, channels (None: no axis for them).
HELD = [
    *(("png", "uint8", channels) for channels in (None, 1, 2, 3, 4)),
    *(("png", "uint16", channels) for channels in (None, 1)),
    *(("jpeg", "uint8", channels) for channels in (None, 1, 3)),
]
LOSSLESS = [held for held in HELD if held[0] == "png"]


def shape_of(height, width, channels):
    return (height, width) if channels is None else (height, width, channels)


def noise(dtype, *shape, seed=0):
    high = np.iinfo(dtype).max
    rng = np.random.default_rng(seed)
    return rng.integers(0, high, shape, dtype, endpoint=True)


def smooth(*shape):
    """A picture without sharp edges, which JPEG changes little."""
    grid = np.indices(shape).astype(float)
    waves = np.sin(grid[0] / 9) + np.cos(grid[1] / 7)
    if len(shape) == 3:
        waves += grid[2] / 3
    return np.rint(40 * waves + 120).astype(np.uint8)


# PNG


@pytest.mark.parametrize(("kind", "dtype", "channels"), LOSSLESS)
@given(data=st.data())
def test_png_gives_back_every_array(kind, dtype, channels, data):
    sides = st.integers(1, 9), st.integers(1, 9)
    shape = data.draw(st.tuples(*sides).map(lambda s: shape_of(*s, channels)))
    array = data.draw(arrays.arrays(dtype, shape))
    encoded = encode_image(array, kind)
    decoded = decode_image(encoded, kind, dtype, shape)
    assert decoded.dtype == dtype
    np.testing.assert_array_equal(decoded, array)
    by_tensorflow = tf.io.decode_png(encoded, dtype=tf.as_dtype(dtype)).numpy()
    np.testing.assert_array_equal(by_tensorflow, np.atleast_3d(array))


@pytest.mark.parametrize(("kind", "dtype", "channels"), LOSSLESS)
def test_png_of_tensorflow_is_read(kind, dtype, channels):
    array = noise(dtype, *shape_of(5, 8, channels))
    encoded = tf.io.encode_png(np.atleast_3d(array)).numpy()
    decoded = decode_image(encoded, kind, dtype, array.shape)
    np.testing.assert_array_equal(decoded, array)


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_views_and_the_other_byte_order(dtype):
    array = noise(dtype, 12, 14)
    view = array[::2, ::-1]
    swapped = array.astype(array.dtype.newbyteorder(">"))
    assert encode_image(view, "png") == encode_image(view.copy(), "png")
    assert encode_image(swapped, "png") == encode_image(array, "png")
    array.flags.writeable = False
    assert decode_image(encode_image(array, "png"), "png", dtype, array.shape).any()


# JPEG


@pytest.mark.parametrize("channels", [None, 1, 3])
@pytest.mark.parametrize(("height", "width"), [(1, 1), (8, 8), (59, 64), (17, 200)])
def test_jpeg_is_near_and_read_alike(height, width, channels):
    array = smooth(*shape_of(height, width, channels))
    encoded = encode_image(array, "jpeg")
    decoded = decode_image(encoded, "jpeg", "uint8", array.shape)
    assert decoded.dtype == np.uint8
    assert decoded.shape == array.shape
    assert np.abs(decoded.astype(int) - array).max() <= 4
    by_tensorflow = tf.io.decode_jpeg(encoded, dct_method="INTEGER_ACCURATE").numpy()
    assert by_tensorflow.shape == np.atleast_3d(array).shape
    difference = np.atleast_3d(decoded).astype(int) - by_tensorflow
    # Colours at half the resolution are spread over pixels in two ways.
    assert np.abs(difference).max() <= (3 if channels == 3 else 0)


def test_quality_of_jpeg():
    array = noise("uint8", 40, 40)
    sizes = [len(encode_image(array, "jpeg", quality=q)) for q in (1, 50, 95, 100)]
    assert sizes == sorted(set(sizes))
    assert encode_image(array, "jpeg") == encode_image(array, "jpeg", quality=95)
    error = {
        q: np.abs(
            decode_image(encode_image(array, "jpeg", quality=q), "jpeg", "u1", (40, 40))
            .astype(int) - array
        ).mean()
        for q in (50, 95, 100)
    }  # fmt: skip
    assert error[50] > error[95] > error[100]


@pytest.mark.parametrize("quality", [0, 101, -1, 95.5, True, "95", None])
def test_quality_out_of_its_range(quality):
    with raises(RecipeError, "quality", quality):
        encode_image(noise("uint8", 2, 2), "jpeg", quality=quality)


# Both


@pytest.mark.parametrize(("dtype", "shape", "kind", "fact"), [
    ("float32", (2, 3), "png", "uint16"), ("float32", (2, 3), "jpeg", "as_image"),
    ("int8", (2, 3), "png", "uint8"), ("bool", (2, 3), "png", "uint8"),
    ("uint16", (2, 3), "jpeg", "uint8"), ("uint32", (2, 3), "png", "uint8"),
    ("uint16", (2, 3, 3), "png", "uint8"), ("string", (2, 3), "png", "uint8"),
    ("uint8", (), "png", "shape"), ("uint8", (3,), "png", "shape"),
    ("uint8", (2, 3, 0), "png", "shape"), ("uint8", (2, 3, 5), "png", "shape"),
    ("uint8", (2, 3, 2), "jpeg", "shape"), ("uint8", (2, 3, 4), "jpeg", "shape"),
    ("uint8", (2, 3, 3, 1), "png", "shape"), ("uint8", (0, 3), "png", "row"),
    ("uint8", (3, 0, 3), "jpeg", "row"), ("uint8", (65501, 1), "jpeg", 65500),
    ("uint8", (1, 65501), "jpeg", 65500), ("uint8", (1, MOST_PIXELS + 1), "png",
     MOST_PIXELS), ("uint8", (2, 3), "gif", "gif"), ("uint8", (2, 3), "PNG", "PNG"),
])  # fmt: skip
def test_problems(dtype, shape, kind, fact):
    problem = image_problem(dtype, shape, kind)
    assert str(fact) in problem
    if dtype == "string":
        return
    array = np.broadcast_to(np.zeros((), dtype), shape)
    with raises(RecipeError, "image", f"{dtype} {shape}") as caught:
        encode_image(array, kind)
    assert caught.value.args[1] == problem
    with raises(RecipeError, "image"):
        decode_image(b"", kind, dtype, shape)


@pytest.mark.parametrize(("shape", "found"), [
    ((None, None), (5, 6)), ((5, None), (5, 6)), ((None, 6), (5, 6)),
    ((None, None, 1), (5, 6, 1)), ((None, 6, None), (5, 6, 1)),
    ((None, None, None), (5, 6, 3)), ((5, None, 3), (5, 6, 3)),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_sizes_that_differ_between_images(kind, shape, found):
    assert image_problem("uint8", shape, kind) is None
    array = smooth(*found)
    encoded = encode_image(array, kind)
    decoded = decode_image(encoded, kind, "uint8", shape)
    np.testing.assert_array_equal(decoded, decode_image(encoded, kind, "u1", found))
    assert decoded.shape == found


@pytest.mark.parametrize(("shape", "array_shape"), [
    ((None, None), (5, 6, 3)), ((None, None, 1), (5, 6, 3)), ((None, 7), (5, 6)),
    ((4, None), (5, 6)), ((None, None, 3), (5, 6)),
])  # fmt: skip
def test_sizes_that_do_not_fit(shape, array_shape):
    with raises(InputError, naming=["png", 5, 6]):
        decode_image(encode_image(smooth(*array_shape), "png"), "png", "uint8", shape)


@pytest.mark.parametrize(("dtype", "shape", "fact"), [
    ("uint8", None, "shape"), ("uint8", (None,), "shape"),
    ("uint8", (None, None, 5), "shape"), ("uint16", (None, None, None), "uint8"),
    ("uint8", (None, 0), "row"), ("uint8", (None, 65501), 65500),
])  # fmt: skip
def test_problems_of_sizes_that_differ(dtype, shape, fact):
    assert str(fact) in image_problem(dtype, shape, "jpeg")
    with raises(RecipeError, "image", f"{dtype} {shape}"):
        decode_image(b"", "jpeg", dtype, shape)


@pytest.mark.parametrize(("shape", "kind"), [
    ((65500, 1), "jpeg"), ((1, 65500), "jpeg"), ((1, 65501), "png"),
    ((1, MOST_PIXELS), "png"),
])  # fmt: skip
def test_the_largest(shape, kind):
    assert image_problem("uint8", shape, kind) is None
    if max(shape) < MOST_PIXELS:
        array = np.full(shape, 7, np.uint8)
        decoded = decode_image(encode_image(array, kind), kind, "uint8", shape)
        np.testing.assert_array_equal(decoded, array)


@pytest.mark.parametrize(("dtype", "shape"), [
    ("uint8", (6, 5)), ("uint8", (5, 7)), ("uint8", (5, 6, 3)), ("uint16", (5, 6)),
])  # fmt: skip
def test_another_shape_or_type(dtype, shape):
    encoded = encode_image(noise("uint8", 5, 6), "png")
    with raises(InputError, naming=["png", *map(str, shape[:2])]):
        decode_image(encoded, "png", dtype, shape)


@pytest.mark.parametrize(("kind", "dtype", "channels"), HELD)
def test_damaged_data_are_input_errors(kind, dtype, channels):
    array = noise(dtype, *shape_of(6, 7, channels))
    encoded = encode_image(array, kind)
    refused = 0
    for at in range(len(encoded)):
        for damaged in (encoded[:at], encoded[:at] + b"\x11" + encoded[at + 1 :]):
            try:
                decoded = decode_image(damaged, kind, dtype, array.shape)
                assert decoded.shape == array.shape
            except InputError:
                refused += 1
    assert refused > len(encoded) / 2
    other = "jpeg" if kind == "png" else "png"
    if image_problem(dtype, array.shape, other) is None:
        with raises(InputError, naming=other):
            decode_image(encoded, other, dtype, array.shape)
