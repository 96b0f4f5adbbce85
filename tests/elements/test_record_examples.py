"""record_examples: which features values become, and what is refused."""

from __future__ import annotations

import itertools
import os
import warnings
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import from_dtype

from beam_pipeline import Metadata, record_examples, replay
from beam_pipeline.elements.values import STORED_DTYPES, as_array, cast
from beam_pipeline.errors import InputError, OptionError
from tests.data_sets import contents, examples_in, problems_in

FIRST = 256  # these many examples decide the features
LATER = [{"x": 1}] * FIRST
IMAGE = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)


@pytest.fixture
def out(tmp_path):
    return str(tmp_path / "out")


def features_of(folder):
    """Name to (dtype, shape, encoding)."""
    return {
        name: (spec.dtype, spec.shape, spec.encoding)
        for name, spec in Metadata.load(folder).features.items()
    }


def decoded(folder):
    """The examples as numpy, without TensorFlow; verified."""
    assert problems_in(Path(folder)) == []
    return examples_in(Path(folder))


def replayed(folder):
    return list(replay(folder).as_numpy_iterator())


def as_lists(element):
    """The values as Python's, in dicts as deep as before."""
    if isinstance(element, dict):
        return {name: as_lists(value) for name, value in element.items()}
    # numpy's own types of text lose zeros at the end.
    kind = object if isinstance(element, bytes) else None
    return np.asarray(element, kind).tolist()


# How many


@pytest.mark.parametrize(("count", "is_list"), [
    (1, True), (256, True), (255, False), (256, False), (257, False), (600, False),
])  # fmt: skip
def test_every_example_is_written(out, count, is_list):
    """Whether the number is known before or not."""
    rows = [{"n": n, "text": str(n)} for n in range(count)]
    folder = record_examples(
        rows if is_list else iter(rows), out, elements_per_file=100
    )
    found = replayed(folder)
    assert [row["n"] for row in found] == list(range(count))
    assert [row["text"] for row in found] == [b"%d" % n for n in range(count)]
    (entry,) = Metadata.load(folder).splits.values()
    sizes = [shard.examples for shard in entry.shards]
    assert sizes == [100] * (count // 100) + [count % 100] * (count % 100 > 0)


@pytest.mark.parametrize("wanted", [0, 1, 3, 300])
def test_num_elems(out, wanted):
    drawn = []

    def generate():
        for n in itertools.count():
            drawn.append(n)
            yield {"n": n}

    folder = record_examples(generate(), out, num_elems=wanted)
    assert decoded(folder) == [{"n": n} for n in range(wanted)]
    assert len(drawn) == max(wanted, 1)  # not one too many


def test_no_examples_with_dtypes(out):
    folder = record_examples([], out, dtypes={"a": "float64"})
    assert replayed(folder) == []
    assert features_of(folder) == {"a": ("float64", (), "raw")}


# What values become


VALUES_AND_FEATURES = [
    (29, ("int64", (), "int64_list")),
    (True, ("bool", (), "int64_list")),
    (9.5, ("float32", (), "float_list")),
    (1 + 2j, ("complex64", (), "raw")),
    ("é", ("string", (), "bytes_list")),
    (b"\xff", ("string", (), "bytes_list")),
    ([1, 2], ("int64", (2,), "int64_list")),
    ([True, 2], ("int64", (2,), "int64_list")),
    ([1, 2.5], ("float32", (2,), "float_list")),
    ([], ("float32", (0,), "float_list")),
    (["a", b"b"], ("string", (2,), "bytes_list")),
    ([[1, 2], [3, 4]], ("int64", (2, 2), "int64_list")),
    ([["a"], ["b"]], ("string", (2, 1), "bytes_list")),
    (2**63, ("uint64", (), "raw")),
    ([1, 2**64 - 1], ("uint64", (2,), "raw")),
    (np.uint64(2**63), ("uint64", (), "raw")),
    (np.float64(9.99), ("float64", (), "raw")),
    (np.int8(-3), ("int8", (), "int64_list")),
    (np.str_("a"), ("string", (), "bytes_list")),
    (np.arange(3, dtype=np.int16), ("int16", (3,), "int64_list")),
    (np.arange(17, dtype=np.int16), ("int16", (17,), "raw")),
    (np.zeros((0, 3), np.float32), ("float32", (0, 3), "float_list")),
    (np.array(["a", "bc"]), ("string", (2,), "bytes_list")),
    (np.array(["a", b"\xff"], object), ("string", (2,), "bytes_list")),
    (np.zeros(2, tf.bfloat16.as_numpy_dtype), ("bfloat16", (2,), "raw")),
    (bytearray(b"a\0"), ("string", (), "bytes_list")),
    # numpy's own types of text lose zeros behind
    (b"\0a\0\0", ("string", (), "bytes_list")),
    ([b"\0", b"", "\0\0"], ("string", (3,), "bytes_list")),
    (np.bytes_(b"ab\0"), ("string", (), "bytes_list")),
    (tf.constant([[1, 2]], tf.int16), ("int16", (1, 2), "raw")),
    (tf.constant("x"), ("string", (), "bytes_list")),
]


def test_values_come_back(out):
    """All in one example, because each data set takes time to read."""
    values = {f"x{k}": value for k, (value, _) in enumerate(VALUES_AND_FEATURES)}
    features = {f"x{k}": feature for k, (_, feature) in enumerate(VALUES_AND_FEATURES)}
    folder = record_examples([values], out)
    assert features_of(folder) == features
    (found,) = replayed(folder)
    for name, value in values.items():
        dtype = features[name][0]
        plain = np.asarray(value, None if dtype == "float32" else object).tolist()
        plain = as_bytes(value) if dtype == "string" else plain
        assert np.asarray(found[name], object).tolist() == plain
        if dtype != "string":
            assert found[name].dtype.name == dtype


def as_bytes(value):
    if isinstance(value, tf.Tensor):
        value = value.numpy()
    if isinstance(value, str | bytes | bytearray):
        return value.encode() if isinstance(value, str) else bytes(value)
    return [as_bytes(item) for item in value]


def test_numbers_at_their_edges(out):
    values = [np.nan, np.inf, -np.inf, -0.0]
    (found,) = replayed(record_examples([{"f": values, "w": np.array(values)}], out))
    np.testing.assert_array_equal(found["f"], np.float32(values))
    np.testing.assert_array_equal(found["w"], values)
    assert np.signbit(found["w"][3])


def test_dicts_within_dicts(out):
    rows = [
        {"a": {"b": 1, "c": {"d": "x"}}, "a/b": 2, "e": {}},
        {"a": {"b": 3, "c": None}, "a/b": 4},
        {"a": None, "a/b": 5},
    ]
    folder = record_examples(rows, out)
    assert list(features_of(folder)) == ["a/b", "a/c/d", "a/b#2"]
    assert [as_lists(row) for row in replayed(folder)] == [
        {"a": {"b": [1], "c": {"d": [b"x"]}}, "a/b": 2},
        {"a": {"b": [3], "c": {"d": []}}, "a/b": 4},
        {"a": {"b": [], "c": {"d": []}}, "a/b": 5},
    ]


TYPES_IN_COMMON = [
    ([1, 2.5], "float32"),
    ([True, 2], "int64"),
    ([True, 2.5], "float32"),
    ([1, 2j], "complex64"),
    ([1.5, [2.5]], "float32"),
    ([[], [1]], "int64"),
    ([[], ["a"]], "string"),
    ([np.int32(1), 2], "int32"),
    ([np.float64(0.1), 0.1], "float64"),
    ([np.uint8(1), True], "uint8"),
    ([2**63, 1], "uint64"),
]


def test_types_that_have_one_in_common(out):
    """Whichever of the two comes first."""
    pairs = [way for pair, _ in TYPES_IN_COMMON for way in (pair, pair[::-1])]
    rows = [{f"x{k}": v[i] for k, v in enumerate(pairs)} for i in range(2)]
    folder = record_examples(rows, out)
    features = features_of(folder)
    dtypes = [features[name][0] for name in rows[0]]
    assert dtypes == [dtype for _, dtype in TYPES_IN_COMMON for _ in range(2)]
    for row, example in zip(rows, replayed(folder), strict=True):
        for name, value in row.items():
            wanted = as_bytes(value) if value in ("a", ["a"]) else value
            assert np.ravel(example[name]).tolist() == np.ravel(wanted).tolist()


# A value, another one later, and the shape that covers both.
FITTING_LATER = [
    (1, 2.0, ()),
    (1, True, ()),
    (1.5, 2, ()),
    (1.5, float("nan"), ()),
    (True, 1, ()),
    ("a", b"\xff", ()),
    (np.uint64(1), 2**64 - 1, ()),
    (np.int8(1), -128, ()),
    (np.float32(1), np.float64(0.5), ()),
    (2j, 1.5, ()),
    ([1], [], (None,)),
    (["a"], [], (None,)),
    ([1, 2], [3], (None,)),
    (["a"], ["a", "b"], (None,)),
    (np.zeros((2, 3), np.uint8), np.ones((5, 3), np.uint8), (None, 3)),
    (np.zeros((2, 3)), np.zeros((0, 3)), (None, 3)),
    (np.zeros((3, 0)), np.zeros((3, 0)), (3, 0)),
    (IMAGE, IMAGE[:3, :2], (None, None, 3)),
    (IMAGE, IMAGE[:2, :3], (None, None, 3)),
]


def test_another_type_or_length_later(out):
    first, late, shapes = (
        {f"x{k}": row[i] for k, row in enumerate(FITTING_LATER)} for i in range(3)
    )
    encodings = {"x17": "png", "x18": "tensor"}
    rows = [first] * FIRST + [late]
    folder = record_examples(rows, out, encodings=encodings)
    assert {n: shape for n, (_, shape, _) in features_of(folder).items()} == shapes
    start, *_, end = replayed(folder)
    for found, row in ((start, first), (end, late)):
        for name, value in row.items():
            is_text = features_of(folder)[name][0] == "string"
            wanted = as_bytes(value) if is_text else value
            np.testing.assert_array_equal(found[name], wanted)


EDGES = [0, 1, 2, 255, 256, 2**15, 65504, 2**24 + 1, 2**31, 2**53 + 1, 2**63 - 1]
EDGES += [2.0**63, 2.0**64, -(2.0**63), 0.5]
NUMERIC = [name for name in STORED_DTYPES if name not in ("string", "bfloat16")]


@settings(max_examples=300)
@given(st.data(), st.sampled_from(NUMERIC), st.sampled_from(NUMERIC))
def test_a_cast_changes_no_value(data, source, target):
    """The oracle is the comparison of Python's numbers, which is exact."""
    value = data.draw(from_dtype(np.dtype(source)) | st.sampled_from(EDGES))
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        array = np.array([value]).astype(source)
        part = array.real if np.dtype(target).kind != "c" else array
        (made,) = part.astype(target).tolist()
    (number,) = array.tolist()
    is_same = number == made or (number != number and made != made)
    if array.dtype.kind == "c" and np.dtype(target).kind != "c":
        is_same = is_same and number.imag == 0
    try:
        found = cast("x", as_array("x", array), target)
    except InputError:
        assert not is_same
    else:
        assert is_same
        assert found.dtype == target


# Lengths, and what is missing


OTHER_SHAPES = [
    (np.zeros((2, 3)), np.zeros((2, 4))),
    (np.zeros((2, 3)), np.zeros(6)),
    (np.zeros((2, 3)), np.zeros((2, 0))),
    (1, [1]),
    ([1], 1),
]


def test_shapes_of_which_each_is_stored(out):
    """If the first examples show them; later, they are refused."""
    rows = [{f"x{k}": pair[i] for k, pair in enumerate(OTHER_SHAPES)} for i in (0, 1)]
    folder = record_examples(rows, out)
    assert features_of(folder)["x0/shape"][0] == "int64"
    for row, found in zip(rows, replayed(folder), strict=True):
        for name, value in row.items():
            np.testing.assert_array_equal(found[name], value)


def test_a_new_feature_later(out):
    rows = [{"a": 1}] * FIRST
    # None is no value, so it needs no feature.
    found = replayed(record_examples([*rows, {"a": 1, "b": None}], out))
    assert set(found[-1]) == {"a"}
    dtypes = {"b": "int16", "c/d": "string"}
    late = {"a": 1, "b": 2, "c": {"d": "x"}}
    folder = record_examples([*rows, late], out, dtypes=dtypes, overwrite=True)
    start, *_, end = replayed(folder)
    assert as_lists(start) == {"a": 1, "b": [], "c": {"d": []}}
    assert as_lists(end) == {"a": 1, "b": [2], "c": {"d": [b"x"]}}
    assert end["b"].dtype == np.int16


@pytest.mark.parametrize("at", [0, FIRST])
def test_a_missing_feature(out, at):
    """In the first examples or later, each kind of feature may be missing."""
    one = np.eye(2, dtype=np.uint8)
    full = {"a": 1, "i": one, "m": np.ones((2, 3)), "s": ["x"], "q": [[1, 2]], "n": 0}
    rows = [full] * (FIRST + 2)
    rows[at], rows[at + 1] = {"n": 1}, {"n": 1, "a": None, "i": None, "m": None}
    # Their shapes differ in two axes.
    rows[2] = full | {"m": np.ones((3, 4)), "q": np.zeros((0, 2), np.int64)}
    folder = record_examples(rows, out, encodings={"i": "png"}, sequences=["q"])
    assert "m/shape" in features_of(folder)
    found = replayed(folder)
    for row, wanted in zip(found, rows, strict=True):
        if wanted["n"] == 1:
            assert [name for name in row if row[name].size == 0] == list("aimsq")
        else:
            assert as_lists(row) == {
                "a": [1], "i": one.tolist(), "m": wanted["m"].tolist(), "s": [b"x"],
                "q": np.asarray(wanted["q"]).tolist(), "n": 0,
            }  # fmt: skip


# Columns


def test_rows_and_columns(out):
    columns = {"i": [1, 2], "f": [0.5, 1.5], "t": ["a", None], "n": [None, 7],
               "l": [[1], [2, 3]]}  # fmt: skip
    columns["s"] = np.arange(4, dtype=np.int16).reshape(2, 2)
    found = [as_lists(row) for row in replayed(record_examples(columns, out))]
    assert found == [
        {"i": 1, "f": 0.5, "t": [b"a"], "n": [], "l": [1], "s": [0, 1]},
        {"i": 2, "f": 1.5, "t": [], "n": [7], "l": [2, 3], "s": [2, 3]},
    ]


# Options


def test_dtypes_keep_every_digit(out):
    rows = [{"p": 9.99, "l": [0.1, 0.2], "i": 3, "a/b": 1, "t": [1, 300]}]
    dtypes = {"p": "float64", "l": np.float64, "i": np.dtype("int8"), "a/b": "uint8"}
    dtypes["t"] = "uint16"
    folder = record_examples(rows, out, dtypes=dtypes)
    (found,) = replayed(folder)
    assert as_lists(found) == rows[0]
    dtypes = {name: found[name].dtype.name for name in found}
    assert dtypes == {
        "p": "float64", "l": "float64", "i": "int8", "a/b": "uint8", "t": "uint16",
    }  # fmt: skip
    assert Metadata.load(folder).elements.options["dtypes"] == dtypes


UNSTORABLE = [
    ([[1], [2, 3]], "different lengths"),
    ([1, "a"], "several types"),
    (np.array([1, "a"], object), "cannot be stored"),
    (object(), "cannot be stored"),
    (np.datetime64("2026-01-01"), "cannot be stored"),
    (2**64, "cannot be stored"),
    ([-1, 2**63], "cannot be stored"),
    (np.longdouble(1), "64 bits"),
    (tf.sparse.from_dense([0, 1]), "cannot be stored"),
]
MISFITS = [
    (1, 2.5), (1, 2**63), (1, "a"), (1, float("nan")), (1, float("inf")),
    (1.5, 2**24 + 1), (1.5, 1e300), (True, 2), ("a", 1), (np.uint64(1), -1),
    (np.int8(1), 128), (np.float32(1), np.float64(0.1)), (np.float16(1), 1e6),
    (1.5, 2j),
]  # fmt: skip
FITS_NOT = r"Example 0: Feature x is {}, which does not hold"
REFUSED = [
    *(([{"x": value}], {}, f"Example 0: .*x.*{word}") for value, word in UNSTORABLE),
    ([*LATER, {"x": object()}], {}, f"Example {FIRST}: .*x.*cannot be stored"),
    *(
        ([{"x": first}] * FIRST + [{"x": late}], {},
         rf"Example {FIRST}: Feature x is .*another dtype")
        for first, late in MISFITS
    ),
    *(
        ([{"x": first}] * FIRST + [{"x": late}], {},
         rf"Example {FIRST}: feature x has the shape")
        for first, late in OTHER_SHAPES
    ),
    *((rows, {}, r"no features.*dtypes") for rows in ([], {"a": []})),
    ([{"a": {"\ud800": 1}}], {}, "must be texts.* in 'a'"),
    ([{"a": {"b": 1}}, {"a": 2}], {}, "'a' is a value in one example, and a dict"),
    ([{"x": 1}, {"x": "a"}], {}, r"x has several types.*dtypes"),
    # A float beside it decides the type, and a time is none of float32.
    ([{"x": 0.5}, {"x": 2**24 + 1}], {}, r"Example 1: .*float32.*16777217"),
    ([{"x": 1561965276.252}], {}, r"Example 0: .*float32.*1561965276.252"),
    ([*LATER, {"x": 1, "b": 2}], {}, f"Example {FIRST} has the feature 'b'.*dtypes"),
    ([{"a": None, "n": 1}], {}, "a is None in the first 1 examples.*dtypes"),
    ({"a": [1, 2], "b": [1]}, {}, "a: 2, b: 1"),
    ({"a": [1], "b": 2}, {}, "'b' is a int"),
    ([("a", 1)], {}, "Example 0 is a tuple"),
    (LATER * 2 + [("a", 1)], {}, f"Example {2 * FIRST} is a tuple"),
    *(
        ([{"x": value}], {"dtypes": {"x": dtype}}, FITS_NOT.format(dtype))
        for value, dtype in [
            (300, "uint8"), (1.5, "int64"), (1, "string"),
        ]
    ),
    *(
        ([{"x": 1}], {"dtypes": {"x": dtype}}, r"dtypes: x: must be one of bool.*str")
        for dtype in ["object", "str", None]
    ),
    *(
        ([{"x": np.zeros((2, 2), np.float32), "t": "a"}], options, word)
        for options, word in [
            ({"encodings": {"xx": "png"}}, "did you mean x"),
            ({"encodings": {"x": "gif"}}, "must be one of"),
            ({"encodings": {"x": "png"}}, "encodings: x.*uint8"),
            ({"sequences": ["t"]}, "sequences"),
            ({"sequences": ["y"]}, "sequences.*y"),
            ({"elements_per_file": 0}, "elements_per_file"),
            ({"num_shards": 2, "elements_per_file": 2}, "num_shards|elements_per_file"),
            ({"num_shard": 2}, "did you mean num_shards"),
            ({"compression": "zip"}, "compression"),
            ({"num_elems": -1}, "num_elems"),
        ]
    ),
]  # fmt: skip


@pytest.mark.parametrize(("examples", "options", "problem"), REFUSED)
def test_what_is_refused_leaves_no_data_set(out, examples, options, problem):
    with pytest.raises((InputError, OptionError), match=problem):
        record_examples(examples, out, **options)
    assert not os.path.exists(out)


@pytest.mark.parametrize("at", [0, FIRST + 100])
def test_a_generator_that_fails_leaves_what_was_there(out, at):
    def generate():
        for n in range(at):
            yield {"n": n}
        raise ZeroDivisionError("from the generator")

    with pytest.raises(ZeroDivisionError, match="from the generator"):
        record_examples(generate(), out, elements_per_file=10)
    assert not os.path.exists(out)
    record_examples([{"n": 1}], out)
    with pytest.raises(ZeroDivisionError):
        record_examples(generate(), out, overwrite=True)
    assert decoded(out) == [{"n": 1}]


def test_equal_examples_have_equal_bytes(tmp_path):
    rows = [{"b": n, "a": [0.5] * (n % 3), "t": str(n)} for n in range(40)]
    for name in ("one", "other"):
        record_examples(iter(rows), tmp_path / name, elements_per_file=20)
    assert contents(tmp_path / "one") == contents(tmp_path / "other")
