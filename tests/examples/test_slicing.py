"""Slices of examples against the API of protobuf."""

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline.storage.wire import keep_features, varint
from tests.raising import raises

NAMES = ["", "a", "b", "ab", "é", "label/x"]

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
maps = st.dictionaries(st.sampled_from(NAMES), features, max_size=5)
lists = st.dictionaries(
    st.sampled_from(NAMES),
    st.lists(features, max_size=3).map(lambda v: tf.train.FeatureList(feature=v)),
    max_size=3,
)
chosen = st.sets(st.sampled_from(NAMES))


def field(number, content):
    return varint(number << 3 | 2) + varint(len(content)) + content


def entry(name, feature, key_first=True):
    parts = [field(1, name.encode()), field(2, feature.SerializeToString())]
    return field(1, b"".join(parts if key_first else parts[::-1]))


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
    record = field(1, b"".join(entries.values()))
    kept = b"".join(data for name, data in entries.items() if name in names)
    assert keep(record, names) == field(1, kept)
    wanted = {name: value for name, value in content.items() if name in names}
    found = tf.train.Example.FromString(keep(record, names))
    assert dict(found.features.feature) == wanted


def test_several_maps_and_unknown_fields_read_as_protobuf_reads_them():
    def numbers(*values):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))

    twice = entry("a", numbers(1)) + entry("b", numbers(2)) + entry("a", numbers(3))
    unknown = field(9, b"?") + b"\x38\x05"
    record = unknown + field(1, twice + unknown) + field(1, entry("a", numbers(4)))
    found = tf.train.Example.FromString(keep(record, {"a"}))
    assert found.features.feature["a"].int64_list.value == [4]
    assert list(found.features.feature) == ["a"]
    nameless = field(1, field(1, field(2, numbers(5).SerializeToString())))
    assert keep(nameless, {""}) == nameless
    assert keep(nameless, {"a"}) == field(1, b"")


@pytest.mark.parametrize("cut", range(1, 12))
def test_a_record_that_ends_early_is_an_error(cut):
    feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[b"12345678"]))
    record = field(1, entry("a", feature))
    with raises(ValueError):
        keep(record[:-cut], {"a"})
