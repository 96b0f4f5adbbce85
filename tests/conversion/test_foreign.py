"""Folders that other programs wrote, converted: what their features become."""

import gzip

import numpy as np
import pytest
import tensorflow as tf

from beam_pipeline import convert, record_dataset, replay, replay_dataset
from beam_pipeline.codecs import INT64_LIST, RAW
from beam_pipeline.conversion import records as records_module
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.storage.tfrecord import frame_record
from tests.data_sets import contents, problems_in, records_in
from tests.originals import write_like_tf_dataset
from tests.raising import raises


def feature_of(values):
    values = values if isinstance(values, list) else [values]
    first = values[0] if values else 0
    if isinstance(first, float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    if isinstance(first, bytes):
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))


def example_of(**values):
    features = {name: feature_of(value) for name, value in values.items()}
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return example.SerializeToString()


def write(path, *records, compressed=False):
    path.parent.mkdir(parents=True, exist_ok=True)
    data = b"".join(map(frame_record, records))
    path.write_bytes(gzip.compress(data) if compressed else data)
    return path


def convert_one(tmp_path, *records, **options):
    """Converts one file; returns the specs and the elements."""
    write(tmp_path / "in" / "a.tfrecord", *records)
    metadata = convert(tmp_path / "in", tmp_path / "out", **options)
    assert records_in(tmp_path / "out")["records"] == list(records)
    assert problems_in(tmp_path / "out") == []
    return metadata.features, list(replay(str(tmp_path / "out")).as_numpy_iterator())


def shapes_of(specs):
    return {name: (spec.shape, spec.optional) for name, spec in specs.items()}


# What follows from examples


def test_lengths_and_missing_features_follow_from_all_examples(tmp_path, monkeypatch):
    monkeypatch.setattr(records_module, "FIRST", 2)
    records = [example_of(n=1, x=[1.0], m=[1, 2], late=7, e=[1])] * 2
    records += [example_of(n=2, x=[1.0, 2.0], m=[3, 4], e=[])]
    specs, elements = convert_one(tmp_path, *records)
    assert shapes_of(specs) == {
        "e": ((None,), False),
        "late": ((), True),
        "m": ((2,), False),
        "n": ((), False),
        "x": ((None,), False),
    }
    assert [x["n"] for x in elements] == [1, 1, 2]
    assert [x["x"].tolist() for x in elements] == [[1], [1], [1, 2]]
    assert [x["late"].tolist() for x in elements] == [[7], [7], []]
    assert [x["e"].tolist() for x in elements] == [[1], [1], []]


def test_a_feature_without_a_value_has_no_type(tmp_path):
    feature = {"none": tf.train.Feature()}
    empty = tf.train.Example(features=tf.train.Features(feature=feature))
    one = example_of(n=1)
    specs, elements = convert_one(tmp_path, one, one + empty.SerializeToString())
    assert list(specs) == ["n"]
    assert len(elements) == 2


def test_the_first_examples_of_each_split_count(tmp_path, monkeypatch):
    monkeypatch.setattr(records_module, "FIRST", 1)
    write(tmp_path / "in" / "a" / "0.tfr", example_of(x=1), example_of(x=2))
    write(tmp_path / "in" / "b" / "0.tfr")
    write(tmp_path / "in" / "b" / "1.tfr", example_of(y=2.0))
    # Metadata of another program describe nothing.
    (tmp_path / "in" / "metadata.json").write_text('{"name": "x"}')
    metadata = convert(tmp_path / "in", tmp_path / "out")
    assert shapes_of(metadata.features) == {"x": ((), True), "y": ((), True)}
    assert {n: s.examples for n, s in metadata.splits.items()} == {"a": 2, "b": 1}
    # A feature that comes later may stay behind.
    write(tmp_path / "late" / "a.tfrecord", X, X, X, LATE)
    metadata = convert(tmp_path / "late", tmp_path / "x", features=["x"])
    assert list(metadata.features) == ["x"]
    assert records_in(tmp_path / "x")["records"] == [X] * 4


def test_sequence_examples_are_known_by_their_lists(tmp_path):
    specs, elements = convert_one(tmp_path, *SEQUENCES)
    assert shapes_of(specs) == {"n": ((), False), "s": ((None, 2), False)}
    assert specs["s"].sequence
    assert [x["s"].tolist() for x in elements] == [
        [[1, 2]], [], [[1, 2], [3, 4]]
    ]  # fmt: skip


# Files


def test_files_are_read_by_their_content(tmp_path):
    records = [example_of(i=i) for i in range(6)]
    write(tmp_path / "in" / "train-00000-of-00002", *records[:2], compressed=True)
    write(tmp_path / "in" / "train-00001-of-00002", *records[2:4])
    write(tmp_path / "in" / "test" / "0.tfrecord.gz", *records[4:])
    (tmp_path / "in" / "notes.csv").write_text("a,b")
    before = contents(tmp_path / "in")
    metadata = convert(tmp_path / "in", tmp_path / "out")
    assert records_in(tmp_path / "out")["train"] == records[:4]
    assert records_in(tmp_path / "out")["test"] == records[4:]
    assert metadata.elements.options["ignored_files"] == 1
    assert contents(tmp_path / "in") == before


# Splits


def test_examples_without_a_path_are_split_by_their_place(tmp_path, monkeypatch):
    for k in range(3):
        write(
            tmp_path / "in" / f"{k}.tfr", *[example_of(i=40 * k + i) for i in range(40)]
        )
    metadata = convert(tmp_path / "in", tmp_path / "out", splits="train=.8,eval=.2")
    assert metadata.elements.options["group_by"] is None
    counts = {name: entry.examples for name, entry in metadata.splits.items()}
    assert sum(counts.values()) == 120
    assert 10 < counts["eval"] < 40
    convert(tmp_path / "in", tmp_path / "again", splits={"train": 4, "eval": 1})
    assert contents(tmp_path / "out") == contents(tmp_path / "again")
    monkeypatch.setattr("beam_pipeline.conversion.records._RECORDS_TOGETHER", 7)
    convert(tmp_path / "in", tmp_path / "by-seven", splits={"train": 4, "eval": 1})
    for split in metadata.splits:
        found = records_in(tmp_path / "by-seven")[split]
        assert found == records_in(tmp_path / "out")[split]


def test_a_group_of_any_type_stays_in_one_split(tmp_path):
    rng = np.random.default_rng(0)
    keys = [int(k) for k in rng.integers(0, 20, 200)]
    records = [
        example_of(key=k, text=b"t%d" % k, several=[k, -k], x=float(i))
        for i, k in enumerate(keys)
    ]
    write(tmp_path / "in" / "a.tfr", *records)
    for name in ("key", "text", "several"):
        out = str(tmp_path / name)
        convert(tmp_path / "in", out, splits="a=.5,b=.5", group_by=name)
        found = [
            {int(x["key"]) for x in replay(out, split=split).as_numpy_iterator()}
            for split in ("a", "b")
        ]
        assert set() not in found
        assert found[0] & found[1] == set()


# Schemas and dtypes

SCHEMA = """
feature { name: "n" type: INT presence { min_fraction: 1 } shape {} }
feature { name: "x" type: FLOAT presence { min_fraction: 1 } }
feature { name: "late" type: BYTES value_count { min: 1 max: 1 } }
"""


@pytest.mark.parametrize("beside", [True, False])
def test_a_schema_describes_what_examples_do_not_show(tmp_path, beside):
    path = tmp_path / ("in" if beside else ".") / "schema.pbtxt"
    options = {} if beside else {"schema": path}
    records = [example_of(n=1, x=[1.0, 2.0])] * 3
    for count in (0, 3):
        write(tmp_path / "in" / "a.tfr", *records[:count])
        path.write_text(SCHEMA)
        out = tmp_path / f"out{count}"
        metadata = convert(tmp_path / "in", out, **options)
        assert metadata.splits["records"].examples == count
        assert shapes_of(metadata.features) == {
            "late": ((), True), "n": ((), False), "x": ((None,), False)
        }  # fmt: skip
        assert [e["late"].numpy().tolist() for e in replay(str(out))] == [[]] * count
    for wrong in (example_of(x=1.0), example_of(n=[1, 2], x=1.0), example_of(n=b"")):
        bad = write(tmp_path / "in" / "b.tfr", *records, wrong)
        with raises(InputError, naming=f"{bad}, record 3"):
            convert(tmp_path / "in", tmp_path / "out", **options)


def test_dtypes_of_bytes_and_integers(tmp_path):
    values = np.arange(6, dtype="<i2")
    records = [example_of(raw=values[:n].tobytes(), n=n, b=n % 2) for n in (2, 6, 0)]
    write(tmp_path / "in" / "a.tfr", *records)
    metadata = convert(
        tmp_path / "in", tmp_path / "out",
        dtypes={"raw": "int16", "n": "int32", "b": "bool"},
    )  # fmt: skip
    specs = metadata.features
    assert (specs["raw"].encoding, specs["raw"].shape) == (RAW, (None,))
    assert (specs["n"].encoding, specs["n"].dtype) == (INT64_LIST, "int32")
    elements = list(replay(str(tmp_path / "out")).as_numpy_iterator())
    assert [x["raw"].tolist() for x in elements] == [[0, 1], [0, 1, 2, 3, 4, 5], []]
    assert [(x["n"], x["b"]) for x in elements] == [(2, False), (6, False), (0, False)]
    assert elements[0]["raw"].dtype == np.int16
    assert elements[0]["n"].dtype == np.int32


# Errors


def sequence(*steps):
    lists = tf.train.FeatureList(feature=[feature_of(list(s)) for s in steps])
    example = tf.train.SequenceExample(
        context=tf.train.Features(feature={"n": feature_of(len(steps))}),
        feature_lists=tf.train.FeatureLists(feature_list={"s": lists}),
    )
    return example.SerializeToString()


def framed(*records):
    return b"".join(map(frame_record, records))


SEQUENCES = [sequence((1.0, 2.0)), sequence(), sequence((1.0, 2.0), (3.0, 4.0))]
X, LATE, TEXT = example_of(x=1), example_of(x=1, late=1), example_of(x=b"1")
WHOLE = framed(*[X] * 5)
BROKEN = bytearray(WHOLE)
BROKEN[len(framed(X)) * 4 + 20] ^= 1
BYTES = {"a.tfr": framed(example_of(raw=b"1234", n=1), example_of(raw=b"123", n=300))}
ALL = {"a.tfr": framed(example_of(raw=b"12345678", n=1, x=1.0))}
REFUSED = [
    (None, {}, ["in"]),
    ({"a.wav": b""}, {}, ["in", "a.wav", 1]),
    ({"a.tfr": b""}, {}, ["--schema"]),
    ({"a.tfr": WHOLE, "metadata.json": b'{"format_version": '}, {}, ["metadata.json"]),
    # Records
    *(({"a.tfr": framed(*[X] * at, TEXT)}, {}, [f"a.tfr, record {at}", "x"])
      for at in (1, 2, 3)),
    ({"a.tfr": framed(X, X, X, LATE)}, {}, ["a.tfr, record 3", "late", "--schema"]),
    ({"a.tfr": framed(X, b"not a message")}, {}, ["a.tfr, record 1"]),
    *(({"0.tfr": framed(X), "1.tfr": pack(BROKEN)}, {}, ["1.tfr, record 4"])
      for pack in (bytes, gzip.compress)),
    *(({"0.tfr": framed(X), "1.tfr": pack(WHOLE)[:-1]}, {}, ["1.tfr", "record"])
      for pack in (bytes, gzip.compress)),
    ({"a.tfr": framed(sequence((1.0, 2.0), (1.0,)))}, {}, ["s", "record 0"]),
    ({"a.tfr": framed(*SEQUENCES, sequence((1.0,)))}, {}, ["s", "a.tfr, record 3"]),
    ({"a.tfr": framed(X, LATE)}, {"splits": "a=1,b=1", "group_by": "late"},
     ["a.tfr, record 0", "late"]),
    ({"a.tfr": WHOLE}, {"schema": "there-is-none"}, ["--schema", "there-is-none"]),
    # Dtypes
    *((ALL, {"dtypes": dict([pair])}, pair) for pair in [
        ("rwa", "raw"), ("raw", "object"), ("raw", "nothing"), ("n", "float32"),
        ("n", "uint64"), ("x", "float64"),
    ]),
    (BYTES, {"dtypes": {"raw": "float32"}}, ["a.tfr, record 1", "raw"]),
    (BYTES, {"dtypes": {"n": "uint8"}}, ["a.tfr, record 1", "n", 300]),
]  # fmt: skip


@pytest.mark.parametrize(("content", "options", "facts"), REFUSED)
def test_what_is_refused(tmp_path, monkeypatch, content, options, facts):
    monkeypatch.setattr(records_module, "FIRST", 3 if "s" in facts else 2)
    for name, data in (content or {}).items():
        write(tmp_path / "in" / name).write_bytes(data)
    with raises((InputError, OptionError), naming=facts):
        convert(tmp_path / "in", tmp_path / "out", **options)
    assert not (tmp_path / "out").exists() or contents(tmp_path / "out") == {}


# Two older libraries


def test_a_folder_of_tf_dataset_is_replayed_and_recorded(tmp_path):
    dataset = tf.data.Dataset.from_tensor_slices({"x": [[1j, 2], [3, 4j], [5, 6]]})
    old = write_like_tf_dataset(dataset.batch(2), tmp_path / "old", 2)
    record_dataset(replay_dataset(old).unbatch(), tmp_path / "out")
    assert replay(str(tmp_path / "out")).element_spec == dataset.element_spec
