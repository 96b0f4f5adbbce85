"""Features and encoding, compared with tf.train.Example and plain numpy."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from tensorflow import train

from beam_pipeline.encodings import (
    BYTES_LIST,
    FLOAT_LIST,
    INT64_LIST,
    LISTS,
    RAW,
    TENSOR,
)
from beam_pipeline.errors import RecipeError, TransformError
from beam_pipeline.examples.features import FeatureSet, check_transform
from beam_pipeline.examples.serialisation import ExampleEncoder, example_bytes
from beam_pipeline.examples.spec import FeatureSpec, encoding_problem
from beam_pipeline.examples.window_steps import Origins
from beam_pipeline.recipe.canonical import split_options
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.transforms.base import Chain, Identity
from beam_pipeline.transforms.mel import LogMel
from beam_pipeline.transforms.signals import Normalize, PeakGain
from beam_pipeline.transforms.steps import parse_transform
from tests.data_sets import decode_examples
from tests.raising import assert_names, raises
from tests.transform_checks import noise

RATE = 8000


INT_DTYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32")
DTYPES = (
    *INT_DTYPES, "uint64", "float16", "float32", "float64", "complex64", "complex128",
)  # fmt: skip
RANGES = {FLOAT_LIST: ("float32",), INT64_LIST: INT_DTYPES, RAW: DTYPES}
NAMES = st.text(st.characters(codec="utf-8"), min_size=1)


def sample(dtype, shape, seed=0):
    """Values over the whole range of a dtype; the last float is NaN."""
    width = np.dtype(dtype).itemsize * math.prod(shape)
    data = np.random.default_rng(seed).bytes(width)
    if dtype == "bool":
        return (np.frombuffer(data, np.uint8) > 127).reshape(shape)
    values = np.array(np.frombuffer(data, dtype))
    if values.dtype.kind in "fc":
        values[-1] = np.nan
    return values.reshape(shape)


def expect_same(found, wanted):
    """Whether two values are equal to the last bit, NaN included."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert found.tobytes() == wanted.tobytes()


@st.composite
def example_columns(draw):
    """Specs with their values: one to four examples of one to five features."""
    count = draw(st.integers(1, 4))
    specs, columns = {}, {}
    for name in draw(st.sets(NAMES, min_size=1, max_size=5)):
        encoding = draw(st.sampled_from([FLOAT_LIST, INT64_LIST, RAW, BYTES_LIST]))
        if encoding == BYTES_LIST:
            specs[name] = FeatureSpec(name, "string", (), encoding)
            texts = draw(st.lists(st.text(), min_size=count, max_size=count))
            shared = draw(st.booleans())
            columns[name] = texts[0] if shared else np.array(texts, object)
            continue
        dtype = draw(st.sampled_from(RANGES[encoding]))
        shape = draw(arrays.array_shapes(min_dims=0, max_dims=2, max_side=4))
        # Protobuf may change the bits of NaN.
        kinds = {} if np.dtype(dtype).kind in "biu" else {"allow_nan": False}
        elements = arrays.from_dtype(np.dtype(dtype), **kinds)
        specs[name] = FeatureSpec(name, dtype, shape, encoding)
        columns[name] = draw(arrays.arrays(dtype, (count, *shape), elements=elements))
    return count, specs, columns


def value_of(column, i):
    return column if isinstance(column, int | str) else column[i]


def by_protobuf(specs, columns, i):
    """Example i, by the definition of each encoding."""
    made = train.Example()
    for name, spec in specs.items():
        value = value_of(columns[name], i)
        if spec.encoding == BYTES_LIST:
            content = [str(value).encode()]
        elif spec.encoding == RAW:
            content = [np.asarray(value).astype(spec.dtype).tobytes()]
        else:
            flat = np.asarray(value).reshape(-1)
            content = (flat.astype(int) if flat.dtype == bool else flat).tolist()
        field = spec.encoding if spec.encoding in LISTS else BYTES_LIST
        kind = getattr(made.features.feature[name], field)
        kind.SetInParent()
        kind.value.extend(content)
    return made


@settings(max_examples=60, deadline=None)
@given(example_columns())
def test_bytes_are_those_of_tensorflow(drawn):
    count, specs, columns = drawn
    # Python's protobuf puts a name before its own prefixes, C++'s after them.
    assume(not any(a != b and a.startswith(b) for a in specs for b in specs))
    records = ExampleEncoder(specs.values()).encode(count, columns)
    wanted = [by_protobuf(specs, columns, i) for i in range(count)]
    assert records == [w.SerializeToString(deterministic=True) for w in wanted]


@pytest.mark.parametrize(("dtype", "shape", "encoding"), [
    ("float32", (), FLOAT_LIST), ("float32", (17, 2), FLOAT_LIST), ("float16", (), RAW),
    ("float64", (1,), RAW), ("complex64", (), RAW), ("int64", (), INT64_LIST),
    ("int8", (15,), INT64_LIST), ("int16", (16,), INT64_LIST), ("int16", (17,), RAW),
    ("uint8", (1, 1), RAW), ("bool", (), INT64_LIST), ("uint32", (), INT64_LIST),
    ("uint64", (), RAW)])  # fmt: skip
def test_encoding_by_dtype_and_shape(dtype, shape, encoding):
    made = np.zeros((2, *shape), dtype)
    (spec,) = check_transform("x", "text", lambda windows: made, (9,), RATE)
    assert spec == FeatureSpec("x", dtype, shape, encoding, "text")


@pytest.mark.parametrize("call", ["rms()", "spectral_flatness()", "stft(n_fft=64)"])
def test_without_a_common_rate_there_are_no_axes(call):
    transform = parse_transform(call)
    (spec,) = check_transform("x", call, transform, (4000,), RATE)
    (same,) = check_transform("x", call, transform, (4000,), None)
    assert len(spec.axes) > 0
    assert same == replace(spec, axes=())


@pytest.mark.parametrize("dtype", ["<U3", "S3"])
def test_one_text_for_each_window_is_a_string(dtype):
    texts = np.array(["abc", "d"], dtype)
    (spec,) = check_transform("x", "", lambda windows: texts, (9,), RATE)
    assert (spec.dtype, spec.shape, spec.encoding) == ("string", (), BYTES_LIST)
    records = ExampleEncoder([spec]).encode(2, {"x": texts})
    assert decode_examples(records, {"x": spec}) == [{"x": "abc"}, {"x": "d"}]


@pytest.mark.parametrize("encoding", [FLOAT_LIST, RAW])
def test_views_and_byte_orders_are_stored_alike(encoding):
    many = np.arange(24, dtype=np.float32)
    slid = np.lib.stride_tricks.sliding_window_view(many[:9], 4)
    for values in (
        slid, slid[::2], many[:12].reshape(4, 3).T, many.reshape(6, 4)[:, ::2],
        many[::-1].reshape(6, 4), many.astype(">f4").reshape(6, 4),
        np.broadcast_to(np.float32(7), (3, 4)),
        np.asfortranarray(many.reshape(2, 3, 4)),
    ):  # fmt: skip
        spec = FeatureSpec("x", "float32", values.shape[1:], encoding)
        records = ExampleEncoder([spec]).encode(len(values), {"x": values})
        plain = np.ascontiguousarray(values, "<f4")
        assert records == ExampleEncoder([spec]).encode(len(plain), {"x": plain})
        found = decode_examples(records, {"x": spec})
        for example, value in zip(found, plain, strict=True):
            expect_same(example["x"], value)


# FeatureSet


def feature_set(*, classes=("a",), channels=None, rate=RATE, win_len=100, **options):
    shape = (win_len,) if channels is None else (channels, win_len)
    return FeatureSet.of(Recipe(win_len=win_len, **options), shape, rate, classes)


STARTS = np.arange(0, 900, 100)


def origins(starts=STARTS, rate=RATE, path="a.wav"):
    return Origins(path, rate, starts, np.zeros(len(starts), int), starts)


def test_default_features_of_an_example():
    specs = feature_set().specs
    assert {n: (s.dtype, s.shape, s.encoding) for n, s in specs.items()} == {
        "signal": ("float32", (100,), FLOAT_LIST),
        "class": ("string", (), BYTES_LIST),
        "filepath": ("string", (), BYTES_LIST),
        "target": ("int64", (), INT64_LIST),
        "index": ("int64", (), INT64_LIST),
        "win_start_idx": ("int64", (), INT64_LIST),
        "fs": ("int64", (), INT64_LIST),
    }
    assert list(specs) == sorted(specs)
    assert all(spec.description for spec in specs.values())


def test_without_classes_there_is_neither_class_nor_target():
    assert set(feature_set().specs) - set(feature_set(classes=()).specs) == {
        "class",
        "target",
    }


@pytest.mark.parametrize("dtype", ["int16", "float32"])
def test_a_dtype_that_a_feature_names_is_not_overridden(dtype):
    other = {"int16": "float32", "float32": "int16"}[dtype]
    features = {
        "a": "identity",
        "b": "peak_gain()|identity()",
        "c": f"identity(dtype='{other}')",
        "d": f"peak_gain()|identity(dtype='{other}')",
        "e": Identity(other),
    }
    recipe, _ = split_options(
        None, {"win_len": 10, "dtype": dtype, "features": features}
    )
    # The stored recipe names the stored dtype, and stays the same when repeated.
    again, _ = split_options(recipe, {"dtype": "int16"})
    assert again.features == recipe.features
    specs = feature_set(dtype=dtype, features=recipe.features).specs
    wanted = {"a": dtype, "b": dtype, "c": other, "d": other, "e": other}
    for name, stored in wanted.items():
        assert recipe.features[name].endswith(f"identity(dtype='{stored}')")
        assert specs[name].dtype == stored


def test_axes_of_a_spectrum_are_in_its_spec():
    text = "log_mel(n_fft=64,hop=16,n_mels=4)"
    spec = feature_set(features={"m": text}).specs["m"]
    assert spec.shape == (3, 4)
    assert list(spec.axes) == LogMel(n_fft=64, hop=16, n_mels=4).axes(RATE, 100)
    assert spec.description == text


@pytest.mark.parametrize("text", ["log_mel()", "peak_gain()|log_mel()"])
def test_a_transform_that_needs_a_rate_says_so(text):
    with raises(RecipeError, "feature m", naming="log_mel"):
        feature_set(rate=None, features={"m": text})
    specs = feature_set(rate=None, features={"m": "identity()"}).specs
    assert specs["m"].shape == (100,)


@pytest.mark.parametrize(
    ("returned", "value", "facts"),
    [
        (None, (), ()),
        (np.zeros((1, 4)), (1, 4), "2"),
        (np.zeros((3, 4)), (3, 4), ()),
        (np.zeros((2, 0)), (2, 0), ()),
        (np.array([None, None]), "object", ()),
        (np.array([["a"], ["b"]]), "<U1", ()),
        (np.zeros(2, "M8[s]"), "datetime64[s]", ()),
        ([[1, 2], [3]], "text", "ValueError"),
    ],
    ids=["none", "n-1", "n+1", "empty", "objects", "2d text", "dates", "ragged"],
)  # fmt: skip
def test_values_that_cannot_be_stored_are_refused(returned, value, facts):
    with raises(RecipeError, "feature bad", value, naming=facts):
        check_transform("bad", "text", lambda windows: returned, (9,), RATE)


@pytest.mark.parametrize("dtype", ["f4", "f8", "i2", "i8", "c8", "U3"])
@pytest.mark.parametrize("order", "<>")
def test_values_in_another_byte_order_are_stored(dtype, order):
    def swapped(windows):
        made = (100 * windows[:, :3]).astype("i1").astype(order + dtype)
        return made[:, 0] if dtype == "U3" else made

    (spec,) = check_transform("x", "", swapped, (100,), RATE)
    windows = np.linspace(-1, 1, 200, dtype=np.float32).reshape(2, 100)
    features = FeatureSet({"x": swapped}, {"x": spec}, {"x": "x"})
    values = features.apply(windows, origins(np.array([0, 100])))[0]["x"]
    assert spec.dtype == ("string" if dtype == "U3" else np.dtype(dtype).name)
    assert values.dtype.isnative
    np.testing.assert_array_equal(values, swapped(windows))


def test_axes_that_do_not_fit_are_left_out():
    """A user-defined step may change the axes that the steps before it describe."""

    def halve(spectra):
        return spectra[..., ::2]

    log_mel = LogMel(n_fft=64, hop=32, n_mels=6)
    for step, axes in ((np.abs, 2), (halve, 0), (lambda x: x.max((1, 2)), 0)):
        (spec,) = check_transform("x", "", Chain((log_mel, step)), (256,), RATE)
        assert len(spec.axes) == axes


def test_a_value_for_each_window_is_no_signal():
    """The next step would treat the windows of a block as the frames of one window."""

    def peaks(windows):
        return np.abs(windows).max(axis=-1)

    for step, name in ((Normalize(), "normalize"), (PeakGain(), "peak_gain")):
        with raises(RecipeError, f"feature z: {name}", "float32 of shape (2,)"):
            check_transform("z", "", Chain((peaks, step)), (64,), RATE)


# apply


def one_feature(transform, frames=100):
    (spec,) = check_transform("mine", "", transform, (frames,), RATE)
    return FeatureSet({"mine": transform}, {"mine": spec}, {"mine": "mine"})


def test_texts_may_be_longer_than_on_silence():
    features = one_feature(lambda w: np.array(["loud" if x.any() else "-" for x in w]))
    found, _ = features.apply(noise(2, 100), origins())
    assert found["mine"].tolist() == ["loud", "loud"]


def on_sound(returned):
    """A transform that behaves on silence, where it returns float32 (n, 4)."""

    def transform(windows):
        if not windows.any():
            return np.zeros((len(windows), 4), np.float32)
        return returned(windows) if callable(returned) else returned

    return transform


@pytest.mark.parametrize(
    ("returned", "facts"),
    [
        (np.zeros((3, 5), "f4"), ["float32 (3, 5)", "(3, 4)"]),
        (np.zeros((2, 4), "f4"), ["float32 (2, 4)", "(3, 4)"]),
        (np.zeros((3, 4), "f8"), ["float64 (3, 4)", "float32"]),
        (np.array(["a", "b", "c"]), ["<U1 (3,)", "(3, 4)"]),
        (None, ["object ()", "(3, 4)"]),
        (lambda w: w[:, 1000], ["IndexError"]),
        (lambda w: [[1], [1, 2]], ["ValueError"]),
    ],
    ids=["longer", "n-1", "dtype", "texts", "nothing", "raises", "ragged"],
)  # fmt: skip
def test_apply_names_the_clip_and_the_feature(returned, facts):
    features = one_feature(on_sound(returned))
    facts = ["feature mine", "frame 0", *facts]
    with raises(TransformError, path="sea/tug.wav", naming=facts):
        features.apply(noise(3, 100), origins(path="sea/tug.wav"))


# Encodings of a recipe


@pytest.mark.parametrize("shape", [(), (1,), (17,), (2, 3), (2, 3, 3)])
@pytest.mark.parametrize("dtype", [*DTYPES, "string"])
def test_an_encoding_fits_if_values_come_back(dtype, shape):
    """By each encoding's definition; images have tests of their own."""
    fits = {
        FLOAT_LIST: dtype == "float32",
        INT64_LIST: dtype in INT_DTYPES,
        BYTES_LIST: dtype == "string",
        RAW: dtype != "string",
        TENSOR: True,
    }
    values = np.array(["ä", "b"]) if dtype == "string" else sample(dtype, (2, *shape))
    size = values.shape[1:]
    for encoding, does_fit in fits.items():
        spec = FeatureSpec("x", dtype, size, encoding)
        problem = encoding_problem(spec, encoding)
        assert (problem is None) == does_fit
        if not does_fit:
            assert_names(problem, dtype, size, encoding)
            continue
        records = ExampleEncoder([spec]).encode(2, {"x": values})
        for found, value in zip(
            decode_examples(records, {"x": spec}), values, strict=True
        ):
            if dtype == "string":
                assert found["x"] == value
            else:
                expect_same(found["x"], value)


# The size of an example, which decides the size of shards


@pytest.mark.parametrize("win_len", [1, 100, 5000])
def test_example_bytes_is_the_length_of_a_typical_example(win_len):
    features = feature_set(win_len=win_len)
    columns = {
        "signal": np.ones((1, win_len), np.float32), "class": "c" * 64,
        "filepath": "f" * 64,
        **dict.fromkeys(("target", "index", "win_start_idx", "fs"), 1 << 20),
    }  # fmt: skip
    (record,) = ExampleEncoder(features.specs.values()).encode(1, columns)
    assert example_bytes(features) == len(record)
