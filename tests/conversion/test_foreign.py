"""Files that other programs wrote: found, converted, and replayed as they are."""

import gzip
import os

import numpy as np
import pytest
import tensorflow as tf

from beam_pipeline import convert, record_examples, replay, replay_files
from beam_pipeline.conversion import records as records_module
from beam_pipeline.conversion.records import (
    InputFile,
    find_files,
    is_record_file,
    make_blocks,
    split_names,
)
from beam_pipeline.encodings import INT64_LIST, RAW
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.storage.tfrecord import frame_record
from tests.data_sets import contents, problems_in, records_in
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
    ({"a-b/0.tfr": b"", "a b/0.tfr": b""}, {}, ["a-b", "a b", "a_b"]),
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


# Which files are TFRecords, which splits they make, how they share blocks


RECORD_NAMES = [
    "a.tfrecord", "a.tfrecords", "a.tfrecord.gz", "a.tfr", "b/0.tfr.gz", "a.tfrec",
    "train-00000-of-00005", "train-00000-of-00005.gz", "a.tfrecord_01",
    "train-00000-of-00005.tfrecord.gz", "x-train.tfrecord-00000-of-00001",
]  # fmt: skip
OTHER_NAMES = [
    "a.tfrecord.idx", "a.tfrecord.json", "examples.csv", "schema.pbtxt", "tfrecord",
    "a-00000-of-00005.csv", "a-000-of-005", "-00000-of-00001", "log.txt", "a.gz",
]  # fmt: skip


def test_names_of_tfrecords_and_of_other_files():
    assert [
        name for name in RECORD_NAMES + OTHER_NAMES if is_record_file(name)
    ] == RECORD_NAMES


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (["a.tfrecord", "b.tfr"], ["records", "records"]),
        (["a-00000-of-00001", "b-00000-of-00001.gz"], ["a", "b"]),
        (["train/0.tfr"], ["train"]),
        (["train/0.tfr", "eval/0.tfr", "c.tfr"], ["train", "eval", "records"]),
        (["train/x/0.tfr", "eval/y/0.tfr"], ["train", "eval"]),
        (["train/train-00000-of-00001.tfrecord.gz"], ["train"]),
        (["fold1/part-00000-of-00001", "fold2/part-00000-of-00001"],
         ["fold1", "fold2"]),
        (["d/1/d-train.tfrecord-00000-of-00001", "d/1/d-test.tfrecord-00000-of-00001"],
         ["d_train", "d_test"]),
        (["d/a-00000-of-00001", "d/b-00000-of-00001", "e/x.tfr"], ["d_a", "d_b", "e"]),
        (["2019/x.tfr", "2020/x.tfr"], ["split_2019", "split_2020"]),
    ],
)  # fmt: skip
def test_splits_follow_from_names(names, splits):
    assert split_names(names) == splits


def test_files_are_found_in_the_order_of_their_numbers(tmp_path):
    names = ["b/10.tfr", "b/2.tfr", "a/0.tfr", "b/n.csv", ".x/0.tfr", "_work/0.tfr"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x" * len(name))
    found, ignored = find_files(str(tmp_path))
    assert [(f.name, f.split, f.size) for f in found] == [
        ("a/0.tfr", "a", 7), ("b/2.tfr", "b", 7), ("b/10.tfr", "b", 8)
    ]  # fmt: skip
    assert all(os.path.samefile(tmp_path / f.name, f.path) for f in found)
    assert sorted(ignored) == [".x/0.tfr", "_work/0.tfr", "b/n.csv"]


@pytest.mark.parametrize(
    ("sizes", "blocks"),
    [
        ([], []),
        ([0], [1]),
        ([4 << 20, 1], [1, 1]),
        ([(4 << 20) - 1, 1], [2]),
        ([1, 1, 9 << 20, 1, 0], [2, 1, 2]),
    ],
)
def test_small_files_share_a_block(sizes, blocks):
    files = [InputFile(str(i), str(i), "s", n) for i, n in enumerate(sizes)]
    made = list(make_blocks(files))
    assert [len(block) for block in made] == blocks
    assert [file for block in made for file in block] == files


# Files as tf.data, not converted


@pytest.fixture
def foreign(tmp_path):
    """Files of another program: one compressed, one not."""
    records = [
        example_of(
            image=[b"jpeg%d" % i],
            label=[i % 3],
            box=[0.0, 1.0 * i],
            words=[b"a"] * (i % 2 + 1),
        )
        for i in range(20)
    ]
    return [
        write(tmp_path / "a.tfrecord", *records[:12]),
        write(tmp_path / "b.tfrec", *records[12:], compressed=True),
    ]


def test_what_the_first_examples_show(foreign):
    found = list(replay_files(foreign))
    assert [int(e["label"]) for e in found] == [i % 3 for i in range(20)]
    assert found[3]["image"].numpy() == b"jpeg3"
    assert found[3]["box"].numpy().tolist() == [0.0, 3.0]
    assert [len(e["words"]) for e in found] == [i % 2 + 1 for i in range(20)]
    labelled = {"as_supervised": ("image", "label")}
    pairs = replay_files(foreign, **labelled)
    assert [int(label) for _, label in pairs] == [i % 3 for i in range(20)]
    unordered = replay_files(foreign, **labelled, deterministic=False)
    images = {image.numpy() for image, _ in unordered}
    assert images == {e["image"].numpy() for e in found}


@pytest.mark.parametrize(
    ("paths", "options", "error", "fact"),
    [
        (["x.tfr"], {}, InputError, "x.tfr"),
        ([], {}, OptionError, "filenames"),
        (None, {"features": ["lable"]}, InputError, "label"),
        (None, {"batch_size": 0}, OptionError, "batch_size"),
        (None, {"batch_size": "4"}, OptionError, "batch_size"),
        (None, {"shuffle": -1}, OptionError, "shuffle"),
        (None, {"dtypes": {"lable": "int32"}}, OptionError, "label"),
    ],
)
def test_wrong_arguments_of_replay_files(foreign, paths, options, error, fact):
    with raises(error, naming=fact):
        replay_files(foreign if paths is None else paths, **options)


def test_a_schema_says_what_is_replayed(tmp_path):
    path = write(tmp_path / "x.tfr", example_of(data=b"abcd", label=7))
    schema = tmp_path / "schema.pbtxt"
    schema.write_text(
        'feature { name: "label" type: INT shape {} presence { min_count: 1 } }'
    )
    (found,) = replay_files(path, schema=schema, dtypes={"label": "int32"})
    assert set(found) == {"label"}
    assert found["label"].dtype == tf.int32


def test_files_of_our_own_have_metadata(tmp_path):
    rows = [{"x": np.full((2, 3), i, np.int16), "n": i} for i in range(10)]
    record_examples(rows, tmp_path / "out", 4)
    files = sorted(str(p) for p in (tmp_path / "out").glob("*.gz"))
    found = list(replay_files(files[1:]))
    assert [int(e["n"]) for e in found] == [4, 5, 6, 7, 8, 9]
    assert found[0]["x"].numpy().tolist() == rows[4]["x"].tolist()


def test_narrow_integers_hold_what_is_stored(tmp_path):
    path = write(tmp_path / "x.tfrecord", example_of(a=5), example_of(a=300))
    assert [int(e["a"]) for e in replay_files(path, dtypes={"a": "int16"})] == [5, 300]
    with pytest.raises(tf.errors.InvalidArgumentError, match="int8 cannot hold"):
        list(replay_files(path, dtypes={"a": "int8"}))
