"""Arrays as images, FLAC, half precision and int8: what comes back, and damage."""

from __future__ import annotations

import io
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from beam_pipeline.encodings import CODECS, MOST_PIXELS, round_to_half
from beam_pipeline.errors import InputError, RecipeError
from beam_pipeline.examples.spec import FeatureSpec, encoding_problem
from tests.audio import files
from tests.raising import raises

tf = pytest.importorskip("tensorflow")


def encode(array, kind, rate=None):
    return CODECS[kind].encode("x", np.asarray(array), rate)


def decode(data, kind, dtype, shape):
    return CODECS[kind].decode(data, dtype, shape)


# What images can hold: kind, dtype, channels (None: no axis for them).
HELD = [
    *(("png", "uint8", channels) for channels in (None, 1, 2, 3, 4)),
    *(("png", "uint16", channels) for channels in (None, 1)),
    *(("jpeg", "uint8", channels) for channels in (None, 1, 3)),
]


def shape_of(height, width, channels):
    return (height, width) if channels is None else (height, width, channels)


def noise(dtype, *shape, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, np.iinfo(dtype).max, shape, dtype, endpoint=True)


def smooth(*shape):
    """A picture without sharp edges, which JPEG changes little."""
    grid = np.indices(shape).astype(float)
    waves = np.sin(grid[0] / 9) + np.cos(grid[1] / 7)
    waves += grid[2] / 3 if len(shape) == 3 else 0
    return np.rint(40 * waves + 120).astype(np.uint8)


# PNG and JPEG


@pytest.mark.parametrize(("kind", "dtype", "channels"), HELD[:7])
@settings(max_examples=25)
@given(data=st.data())
def test_png_gives_back_every_array(kind, dtype, channels, data):
    sides = st.integers(1, 9), st.integers(1, 9)
    shape = data.draw(st.tuples(*sides).map(lambda s: shape_of(*s, channels)))
    array = data.draw(arrays.arrays(dtype, shape))
    encoded = encode(array, kind)
    swapped = array.astype(array.dtype.newbyteorder(">"))[::-1][::-1]
    assert encode(swapped, kind) == encoded
    theirs = tf.io.encode_png(np.atleast_3d(array)).numpy()
    for image in (encoded, theirs):
        decoded = decode(image, kind, dtype, shape)
        assert decoded.dtype == dtype
        np.testing.assert_array_equal(decoded, array)
    by_tensorflow = tf.io.decode_png(encoded, dtype=tf.as_dtype(dtype)).numpy()
    np.testing.assert_array_equal(by_tensorflow, np.atleast_3d(array))


@pytest.mark.parametrize("channels", [None, 1, 3])
@pytest.mark.parametrize(("height", "width"), [(1, 1), (8, 8), (59, 64), (17, 200)])
def test_jpeg_is_near_and_read_alike(height, width, channels):
    array = smooth(*shape_of(height, width, channels))
    encoded = encode(array, "jpeg")
    assert encoded == encode(array.copy(), "jpeg")
    decoded = decode(encoded, "jpeg", "uint8", array.shape)
    assert (decoded.dtype, decoded.shape) == (np.uint8, array.shape)
    assert np.abs(decoded.astype(int) - array).max() <= 4
    by_tensorflow = tf.io.decode_jpeg(encoded, dct_method="INTEGER_ACCURATE").numpy()
    difference = np.atleast_3d(decoded).astype(int) - by_tensorflow
    # Colours at half the resolution are spread over pixels in two ways.
    assert np.abs(difference).max() <= (3 if channels == 3 else 0)


@pytest.mark.parametrize(("dtype", "shape", "kind", "fact"), [
    ("float32", (2, 3), "png", "uint16"), ("float32", (2, 3), "jpeg", "as_image"),
    ("int8", (2, 3), "png", "uint8"), ("uint16", (2, 3), "jpeg", "uint8"),
    ("uint16", (2, 3, 3), "png", "uint16 with 1"), ("string", (2, 3), "png", "uint8"),
    ("uint8", (3,), "png", "shape"), ("uint8", (2, 3, 0), "png", "shape"),
    ("uint8", (2, 3, 5), "png", "shape"), ("uint8", (2, 3, 2), "jpeg", "shape"),
    ("uint8", (2, 3, 3, 1), "png", "shape"), ("uint8", (0, 3), "png", "row"),
    ("uint8", (3, 0, 3), "jpeg", "row"), ("uint8", (65501, 1), "jpeg", 65500),
    ("uint8", (1, MOST_PIXELS + 1), "png", MOST_PIXELS),
    ("uint8", None, "jpeg", "shape"), ("uint8", (None, None, 5), "jpeg", "shape"),
    ("uint16", (None, None, None), "jpeg", "uint8"), ("uint8", (None, 0), "png", "row"),
    ("uint8", (None, 65501), "jpeg", 65500)])  # fmt: skip
def test_what_images_cannot_hold(dtype, shape, kind, fact):
    problem = CODECS[kind].problem(dtype, shape, None)
    assert str(fact) in problem
    if dtype != "string" and shape and None not in shape:
        array = np.broadcast_to(np.zeros((), dtype), shape)
        with raises(RecipeError, "image", f"{dtype} {shape}") as caught:
            encode(array, kind)
        assert caught.value.args[1] == problem
    with raises(RecipeError, "image", f"{dtype} {shape}"):
        decode(b"", kind, dtype, shape)


@pytest.mark.parametrize(("shape", "found"), [
    ((None, None), (5, 6)), ((5, None), (5, 6)), ((None, None, 1), (5, 6, 1)),
    ((None, 6, None), (5, 6, 1)), ((None, None, None), (5, 6, 3)),
    ((5, None, 3), (5, 6, 3))])  # fmt: skip
@pytest.mark.parametrize("kind", ["png", "jpeg"])
def test_sizes_that_differ_between_images(kind, shape, found):
    encoded = encode(smooth(*found), kind)
    decoded = decode(encoded, kind, "uint8", shape)
    np.testing.assert_array_equal(decoded, decode(encoded, kind, "u1", found))
    assert decoded.shape == found


@pytest.mark.parametrize(("dtype", "shape", "made"), [
    ("uint8", (None, None), (5, 6, 3)), ("uint8", (None, None, 1), (5, 6, 3)),
    ("uint8", (None, 7), (5, 6)), ("uint8", (4, None), (5, 6)),
    ("uint8", (None, None, 3), (5, 6)), ("uint8", (6, 5), (5, 6)),
    ("uint16", (5, 6), (5, 6))])  # fmt: skip
def test_images_of_another_size_or_type(dtype, shape, made):
    with raises(InputError, naming=["png", 5, 6]):
        decode(encode(smooth(*made), "png"), "png", dtype, shape)


@pytest.mark.parametrize(("kind", "dtype", "channels"), HELD)
def test_damaged_images_are_input_errors(kind, dtype, channels):
    array = noise(dtype, *shape_of(6, 7, channels))
    encoded = encode(array, kind)
    refused = 0
    for at in range(len(encoded)):
        for damaged in (encoded[:at], encoded[:at] + b"\x11" + encoded[at + 1 :]):
            try:
                decoded = decode(damaged, kind, dtype, array.shape)
                assert decoded.shape == array.shape
            except InputError:
                refused += 1
    assert refused > len(encoded) / 2
    other = "jpeg" if kind == "png" else "png"
    if CODECS[other].problem(dtype, array.shape, None) is None:
        with raises(InputError, naming=other):
            decode(encoded, other, dtype, array.shape)


# FLAC


def subtype_of(data: bytes) -> tuple[int, str]:
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        return file.samplerate, file.subtype


@settings(max_examples=30)
@given(arrays.arrays(np.int16, st.tuples(st.integers(1, 8), st.integers(1, 70))))
def test_int16_is_exact_in_flac(values: Any) -> None:
    data = encode(values, "flac", 8000)
    found = decode(data, "flac", "int16", values.shape)
    assert found.dtype == np.int16
    np.testing.assert_array_equal(found, values)
    assert encode(values, "flac", 8000) == data
    assert encode((values / 32768).astype("f4"), "flac", 8000) == data
    assert subtype_of(data) == (8000, "PCM_16")


@settings(max_examples=30)
@given(arrays.arrays(np.int32, 50, elements=st.integers(-(2**23), 2**23 - 1)))
def test_24_bits_are_exact_as_float32_in_flac(values: Any) -> None:
    floats = (values / 2**23).astype("f4")
    data = encode(floats, "flac", 44100)
    found = decode(data, "flac", "float32", (None,))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, floats)
    wide = np.array([0.5, 2.0**-23], "f4")
    assert subtype_of(encode(wide, "flac", 44100)) == (44100, "PCM_24")


@pytest.mark.parametrize("bad", [1.0, -1.1, 2.0**-24, np.nan, np.inf, 0.1])
def test_other_samples_are_refused_for_flac(bad: float) -> None:
    with raises(InputError, naming=["Feature x", "16-bit or 24-bit", "int16", "raw"]):
        encode(np.array([0.0, bad], "f4"), "flac", 8000)


def test_damaged_flac_is_named() -> None:
    samples = np.random.default_rng(0).integers(-9000, 9000, 3000).astype(np.int16)
    data = encode(samples, "flac", 8000)
    stereo = encode(samples.reshape(2, 1500), "flac", 8000)
    # STREAMINFO declares 2**36 - 1 frames; who believes it runs out of memory.
    huge = bytearray(data)
    huge[21] |= 0x0F
    huge[22:26] = b"\xff" * 4
    for damaged, shape, reason in (
        (data[:-2000], (3000,), r"cannot be decoded|frames of 3000"),
        (b"no sound", (3000,), "cannot be decoded"),
        (data, (2999,), r"\(1, 3000\) instead of \(2999,\)"),
        (stereo, (3000,), r"\(2, 1500\) instead of"),
        (files.encode(samples), (3000,), "not of FLAC"),
        (bytes(huge), (3000,), "bytes of memory"),
    ):
        with pytest.raises(ValueError, match=reason):
            decode(damaged, "flac", "int16", shape)


# Opus and Vorbis

LOSSY = [("opus", 8000), ("opus", 48000), ("vorbis", 22050), ("vorbis", 96000)]


@pytest.mark.parametrize(("encoding", "rate"), LOSSY)
@pytest.mark.parametrize("channels", [0, 1, 2])
@pytest.mark.parametrize("frames", [1, 2, 57, 480, 4474, 20_007])
def test_lossy_signals_keep_their_frames(encoding, rate, channels, frames) -> None:
    time = np.arange(frames) / rate
    tone = (0.3 * np.sin(2 * np.pi * 440 * time)).astype("f4")
    levels = np.arange(1, channels + 1, dtype="f4")[:, np.newaxis] / 2
    signal = levels * tone if channels else tone
    data = encode(signal, encoding, rate)
    assert encode(signal, encoding, rate) == data
    found = decode(data, encoding, "float32", signal.shape)
    assert found.dtype == np.float32
    if frames > 20_000:  # a codec needs some time to settle
        error = np.linalg.norm(found - signal, axis=-1)
        assert (error < 0.1 * np.linalg.norm(signal, axis=-1)).all()
    else:
        assert np.abs(found).max() < 0.5
    integers = np.rint(signal * 32767).astype(np.int16)
    data = encode(integers, encoding, rate)
    found = decode(data, encoding, "int16", (None,) * signal.ndim)
    assert (found.dtype, found.shape) == (np.int16, signal.shape)


def test_opus_has_two_bits_a_sample_and_at_least_24_kbit() -> None:
    noise = np.random.default_rng(0).standard_normal(120_000).astype("f4") / 8
    for rate, kbits in ((8000, 24), (16000, 32), (24000, 48), (48000, 96)):
        data = encode(noise, "opus", rate)
        seconds = len(noise) / rate
        assert len(data) * 8 / 1000 / seconds == pytest.approx(kbits, rel=0.2)


@pytest.mark.parametrize("encoding", ["opus", "vorbis"])
def test_lossy_signals_are_refused_by_name(encoding: str) -> None:
    for bad in (np.nan, np.inf):
        with raises(InputError, naming=["Feature x", bad, encoding]):
            encode(np.array([0.0, bad], "f4"), encoding, 8000)


@pytest.mark.parametrize(("encoding", "dtype", "shape", "rate", "word"), [
    ("flac", "float64", (None,), 8000, "float32 or int16"),
    ("flac", "float32", (), 8000, "shape (frames,)"),
    ("flac", "float32", (2, 3, 4), 8000, "shape (frames,)"),
    ("flac", "int16", (9, None), 8000, "1 to 8 channels"),
    ("flac", "int16", (None, 9), 8000, "1 to 8 channels"),
    ("flac", "int16", (None,), None, "one known sample rate"),
    ("flac", "int16", (None,), 384_001, "384001 Hz"),
    ("flac", "int16", (8, None), 192_000, None),
    ("opus", "float32", (3, None), 8000, "1 to 2 channels"),
    ("vorbis", "float32", (3, None), 8000, "1 to 2 channels"),
    ("opus", "int16", (None,), 44100, "8, 12, 16, 24 or 48 kHz), not 44100 Hz"),
    ("vorbis", "int16", (None,), 44100, None)])  # fmt: skip
def test_features_that_no_file_of_sound_holds(encoding, dtype, shape, rate, word):
    spec = FeatureSpec("x", dtype, shape, encoding, rate_hz=rate)
    problem = encoding_problem(spec, encoding)
    assert problem is None if word is None else word in problem


# float16, bfloat16 and int8

HALVES = {
    "float16": (np.dtype(np.float16), 2.0**-11, 2.0**-25),
    "bfloat16": (np.dtype(ml_dtypes.bfloat16), 2.0**-8, 0.0),
}


@pytest.mark.parametrize("encoding", HALVES)
@given(arrays.arrays(np.float32, 20, elements=st.floats(-(2.0**15), 2.0**15, width=32)))
def test_half_precision_is_within_its_bound(encoding: str, values: Any) -> None:
    dtype, relative, least = HALVES[encoding]
    normal = (np.abs(values) >= 2.0**-126) | (values == 0)
    error = np.abs(round_to_half("x", values, dtype).astype("f8") - values)
    bound = np.maximum(relative * np.abs(values.astype("f8")), least)
    assert (error <= bound)[normal].all()


def test_what_half_precision_cannot_hold() -> None:
    dtype = HALVES["float16"][0]
    # Halfway to the next number, float16 would become infinity.
    kept = round_to_half("x", np.array([65504, 65519, np.inf, np.nan], "f4"), dtype)
    assert kept[:3].tolist() == [65504, 65504, np.inf]
    assert np.isnan(kept[3])
    with raises(InputError, naming=["Feature x", "65520", "float16", "raw"]):
        round_to_half("x", np.array([0, 65520], "f4"), dtype)
    with raises(InputError, naming=["Feature x", "3.40282e+38", "bfloat16"]):
        round_to_half("x", np.array([np.finfo("f4").max], "f4"), HALVES["bfloat16"][0])


@given(arrays.arrays(np.float32, st.integers(0, 40), elements=st.floats(
    allow_nan=False, allow_infinity=False, width=32)))  # fmt: skip
def test_int8_is_within_half_a_step_and_is_packed_again_the_same(values: Any) -> None:
    packed = encode(values, "int8")
    assert len(packed) == 4 + len(values)
    read = decode(packed, "int8", "float32", None)
    assert read.dtype == np.float32
    exact, peak = values.astype("f8"), np.abs(values.astype("f8")).max(initial=0)
    error = np.abs(read.astype("f8") - exact)
    assert (error <= np.frombuffer(packed, "<f4", 1)[0] / 2).all()
    if peak >= 127 * 2.0**-126:
        assert (error <= peak / 254).all()
    assert (read[exact == 0] == 0).all()
    assert encode(read, "int8") == packed


def test_int8_holds_finite_values_and_a_scale() -> None:
    for bad in (np.nan, np.inf):
        with raises(InputError, naming=["Feature x", str(bad), "int8"]):
            encode(np.array([1, bad], "f4"), "int8")
    for packed in (b"", b"\0\0\0", np.array([np.nan], "<f4").tobytes(), bytes(4)):
        with pytest.raises(ValueError, match="scale"):
            decode(packed, "int8", "float32", None)
