"""RecordParser: examples of any writer against the values that were encoded."""

import random

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from tensorflow import train

from beam_pipeline.encodings import BYTES_LIST, FLOAT_LIST, INT64_LIST, RAW
from beam_pipeline.examples.serialisation import (
    BatchMaker,
    ExampleEncoder,
    ExampleMaker,
    RecordParser,
    array_prefix,
    pack_varints,
    unpack_varints,
)
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.storage.protobuf import keep_features, varint
from tests.raising import raises

SPECS = [
    FeatureSpec("a", "string", (), BYTES_LIST),
    FeatureSpec("b", "float32", (40,), FLOAT_LIST),
    FeatureSpec("c", "int64", (), INT64_LIST, optional=True),
    FeatureSpec("d", "float32", (), FLOAT_LIST),
    FeatureSpec("e", "int8", (3,), INT64_LIST),
    FeatureSpec("f", "float32", (None,), FLOAT_LIST),
    FeatureSpec("g", "uint64", (2, 2), RAW),
    FeatureSpec("h", "float64", (), RAW, optional=True),
]
NAMES = [spec.name for spec in SPECS]


def parsed(records, specs=SPECS, names=None):
    """The examples one by one; and together, which must be the same."""
    names = [spec.name for spec in specs] if names is None else names
    parser = RecordParser({spec.name: spec for spec in specs}, names)
    maker, batch = ExampleMaker(parser, names), BatchMaker(parser, names, len(records))
    found = []
    for place, record in enumerate(records):
        # Within a buffer, where a checksum follows.
        stored = parser.stored(b"before" + record + b"crc!", 6, 6 + len(record))
        found.append(maker.make(stored, dict))
        batch.put(place, stored)
    for name, column in batch.finish().items():
        for example, value in zip(found, column, strict=True):
            assert np.array_equal(example.get(name), value)
    return found


def message(field, content):
    return varint(field << 3 | 2) + varint(len(content)) + content


def entries_of(record):
    """The entries of the map of features, each with its tag and length."""
    features = train.Example.FromString(record).features.feature.items()
    return [
        message(1, message(1, name.encode()) + message(2, value.SerializeToString()))
        for name, value in features
    ]


rows = st.fixed_dictionaries(
    {
        "a": st.text(max_size=300),
        "b": st.integers(0, 99).map(lambda k: np.arange(40, dtype=np.float32) + k),
        "c": st.none() | st.integers(-(2**63), 2**63 - 1),
        "d": st.floats(width=32, allow_nan=False),
        "e": st.lists(st.integers(-128, 127), min_size=3, max_size=3),
        "f": st.lists(st.floats(width=32, allow_nan=False), max_size=40),
        "g": st.integers(0, 2**62).map(lambda k: np.arange(4).reshape(2, 2) + k),
        "h": st.none() | st.floats(allow_nan=False),
    }
)


@given(st.lists(rows, min_size=1, max_size=6), st.randoms(), st.booleans())
def test_every_value_comes_back_in_any_order(examples, shuffler, shuffle):
    columns = {name: [row[name] for row in examples] for name in NAMES}
    records = ExampleEncoder(SPECS).encode(len(examples), columns)
    if shuffle:
        records = [reordered(record, shuffler) for record in records]
    for row, example in zip(examples, parsed(records), strict=True):
        assert list(example) == [name for name in NAMES if row[name] is not None]
        for spec in SPECS:
            if row[spec.name] is not None:
                value = example[spec.name]
                assert np.array_equal(value, row[spec.name])
                if spec.dtype != "string":
                    assert value.dtype == spec.dtype
    assert [list(e) for e in parsed(records, names=["f", "a"])] == [["f", "a"]] * len(
        examples
    )


def reordered(record, shuffler):
    """With features that nobody knows, and in several Features messages."""
    entries = entries_of(record)
    unknown = message(1, message(1, b"zz") + message(2, message(3, message(1, b"\1"))))
    entries.append(unknown)
    shuffler.shuffle(entries)
    return message(1, b"".join(entries[:3])) + message(1, b"".join(entries[3:]))


# Values of one example, which have the names and types of SPECS.
ROW = {
    "a": ["x"], "b": np.zeros((1, 40), np.float32), "c": [300], "d": [1.0],
    "e": [[1, 2, 3]], "f": [np.zeros(3)], "g": [np.zeros((2, 2))], "h": [2.0],
}  # fmt: skip


def feature(kind, content):
    return message(2, message(kind, content))


def test_lists_that_are_not_packed():
    floats = b"".join(b"\x0d" + np.float32(v).tobytes() for v in (1.5, -2))
    integers = b"\x08\x05\x08\x07" + message(1, b"\x09")
    record = message(
        1,
        message(1, message(1, b"f") + feature(2, floats))
        + message(1, message(1, b"e") + feature(3, integers)),
    )
    specs = [SPECS[4], SPECS[5]]
    (example,) = parsed([record], specs)
    assert example["f"].tolist() == [1.5, -2]
    assert example["e"].tolist() == [5, 7, 9]


def test_the_last_of_equal_keys_counts():
    def entry(text):
        return message(1, message(1, b"a") + feature(1, message(1, text)))

    (example,) = parsed([message(1, entry(b"x") + entry(b"y"))], SPECS[:1])
    assert example["a"] == "y"


@pytest.mark.parametrize("record", [
    b"", message(1, b""), message(1, message(1, message(1, b"c") + message(2, b""))),
    message(1, message(1, message(1, b"c") + feature(3, b""))),
    message(1, message(1, message(1, b"c") + feature(3, message(1, b"")))),
])  # fmt: skip
def test_what_is_missing_or_empty_is_left_out(record):
    assert parsed([record], [SPECS[2]]) == [{}]
    (example,) = parsed([record], [SPECS[5]])
    assert example["f"].shape == (0,)
    with pytest.raises(ValueError, match="the record lacks feature e"):
        parsed([record], [SPECS[4]])


@pytest.mark.parametrize(("spec", "match"), [
    (FeatureSpec("a", "int64", (), INT64_LIST), "stored as bytes_list, but"),
    (FeatureSpec("b", "float32", (41,), FLOAT_LIST), "has 40 values, but"),
    (FeatureSpec("c", "uint8", (), INT64_LIST), "uint8 cannot hold"),
    (FeatureSpec("e", "int8", (4,), INT64_LIST), "has 3 values, but its"),
    (FeatureSpec("g", "uint64", (5,), RAW), "has 4 values, but its shape"),
    (FeatureSpec("g", "float32", (3,), RAW), "has 8 values, but its shape"),
    (FeatureSpec("a", "uint16", (3,), RAW), "1 bytes are not a whole number"),
    (FeatureSpec("a", "uint8", (1, 1), "png"), "feature a: .*as png"),
    (FeatureSpec("a", "uint8", (1,), "tensor"), "feature a: "),
    (FeatureSpec("f", "float32", (None, 2), FLOAT_LIST), "feature f: "),
])  # fmt: skip
def test_what_does_not_fit_its_spec_is_an_error(spec, match):
    (record,) = ExampleEncoder(SPECS).encode(1, ROW)
    with pytest.raises(ValueError, match=match):
        parsed([record], [spec])


@given(st.data())
def test_a_damaged_record_is_an_error_or_has_the_types_of_its_spec(data):
    (record,) = ExampleEncoder(SPECS).encode(1, ROW)
    broken = bytearray(record)
    for _ in range(data.draw(st.integers(1, 4))):
        broken[data.draw(st.integers(0, len(broken) - 1))] = data.draw(
            st.integers(0, 255)
        )
    cut = data.draw(st.integers(0, len(broken)))
    for damaged in (bytes(broken), record[:cut]):
        try:
            (example,) = parsed([damaged])
        except ValueError:
            continue
        for spec in SPECS:
            if spec.name in example and spec.dtype != "string":
                assert example[spec.name].dtype == spec.dtype


@given(
    st.lists(
        st.integers(-(2**63), 2**63 - 1)
        | st.integers(0, 300)
        | st.integers(0, 63).map(lambda bits: 1 << bits),
        max_size=80,
    )
)
def test_packed_integers(numbers):
    packed = pack_varints([int(np.int64(np.uint64(n % 2**64))) for n in numbers])
    found = unpack_varints(packed).view(np.int64)
    assert found.tolist() == [int(np.int64(np.uint64(n % 2**64))) for n in numbers]


@pytest.mark.parametrize("count", [1, 30])
def test_packed_integers_that_do_not_end(count):
    for packed in (b"\x01" * count + b"\x80", b"\x01" * count + b"\xff" * 10 + b"\x01"):
        with pytest.raises(ValueError, match=r"end|10 bytes"):
            unpack_varints(packed)


def test_full_tables_are_emptied(monkeypatch):
    monkeypatch.setattr("beam_pipeline.examples.serialisation._MOST_ENTRIES", 3)
    texts = [f"text {random.Random(k).randrange(9)}" for k in range(50)]
    records = ExampleEncoder(SPECS[:1]).encode(50, {"a": texts})
    assert [example["a"] for example in parsed(records, SPECS[:1])] == texts


def test_bytes_may_hold_what_precedes_an_array():
    specs = [FeatureSpec("a", "bytes", (), BYTES_LIST), SPECS[1]]
    before = array_prefix(SPECS[1], 160)
    columns = {
        "a": [before, before + before, b"x"],
        "b": np.arange(120, dtype=np.float32).reshape(3, 40),
    }
    found = parsed(ExampleEncoder(specs).encode(3, columns), specs)
    assert [example["a"] for example in found] == columns["a"]
    np.testing.assert_array_equal([example["b"] for example in found], columns["b"])


KEYS = ["", "a", "b", "ab", "é", "label/x"]

features = st.one_of(
    st.just(tf.train.Feature()),
    st.lists(st.integers(-(2**63), 2**63 - 1), max_size=3).map(
        lambda v: tf.train.Feature(int64_list=tf.train.Int64List(value=v))
    ),
    st.lists(st.floats(width=32, allow_nan=False), max_size=3).map(
        lambda v: tf.train.Feature(float_list=tf.train.FloatList(value=v))
    ),
    st.lists(st.binary(max_size=200), max_size=3).map(
        lambda v: tf.train.Feature(bytes_list=tf.train.BytesList(value=v))
    ),
)
maps = st.dictionaries(st.sampled_from(KEYS), features, max_size=5)
lists = st.dictionaries(
    st.sampled_from(KEYS),
    st.lists(features, max_size=3).map(lambda v: tf.train.FeatureList(feature=v)),
    max_size=3,
)
chosen = st.sets(st.sampled_from(KEYS))


def entry(name, feature, key_first=True):
    parts = [message(1, name.encode()), message(2, feature.SerializeToString())]
    return message(1, b"".join(parts if key_first else parts[::-1]))


def keep(record, names):
    return keep_features(record, {name.encode() for name in names})


@given(maps, lists, chosen)
def test_a_slice_is_what_protobuf_leaves(context, steps, names):
    example = tf.train.SequenceExample(
        context=tf.train.Features(feature=context),
        feature_lists=tf.train.FeatureLists(feature_list=steps),
    )
    found = tf.train.SequenceExample.FromString(
        keep(example.SerializeToString(), names)
    )
    for name in set(context) - names:
        del example.context.feature[name]
    for name in set(steps) - names:
        del example.feature_lists.feature_list[name]
    assert found == example


@given(maps, chosen, st.randoms(use_true_random=False), st.booleans())
def test_entries_stay_in_any_order(content, names, random, key_first):
    pairs = list(content.items())
    random.shuffle(pairs)
    entries = {name: entry(name, value, key_first) for name, value in pairs}
    record = message(1, b"".join(entries.values()))
    kept = b"".join(data for name, data in entries.items() if name in names)
    assert keep(record, names) == message(1, kept)


def test_several_maps_and_unknown_fields_read_as_protobuf_reads_them():
    def numbers(*values):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    twice = entry("a", numbers(1)) + entry("b", numbers(2)) + entry("a", numbers(3))
    unknown = message(9, b"?") + b"\x38\x05"
    record = unknown + message(1, twice + unknown) + message(1, entry("a", numbers(4)))
    found = tf.train.Example.FromString(keep(record, {"a"}))
    assert found.features.feature["a"].int64_list.value == [4]
    assert list(found.features.feature) == ["a"]
    nameless = message(1, message(1, message(2, numbers(5).SerializeToString())))
    assert keep(nameless, {""}) == nameless
    assert keep(nameless, {"a"}) == message(1, b"")


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_record_that_ends_early_is_an_error(cut):
    feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"12345678"]))
    record = message(1, entry("a", feature))
    with raises(ValueError):
        keep(record[:-cut], {"a"})
