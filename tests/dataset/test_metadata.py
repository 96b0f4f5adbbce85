"""metadata.py: JSON there and back, and what other tools make of it."""

import importlib.metadata
import json
import math
from pathlib import Path

import jsonschema
import numpy as np
import pyarrow.parquet as pq
import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_metadata.proto.v0 import schema_pb2
from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

import beam_pipeline
from beam_pipeline import Metadata, record, record_examples
from beam_pipeline.dataset.job import writer_versions
from beam_pipeline.dataset.metadata import (
    FORMAT_VERSION,
    FileEntry,
    ShardEntry,
    SplitEntry,
    parse_schema,
    schema_text,
)
from beam_pipeline.dataset.tables import (
    make_manifest_part,
    manifest_fields,
    sort_rejects,
    write_manifest,
    write_rejects,
)
from beam_pipeline.encodings import BYTES_LIST, CODECS, FLOAT_LIST, INT64_LIST
from beam_pipeline.errors import InputError
from beam_pipeline.examples.features import FeatureSet
from beam_pipeline.examples.serialisation import ExampleEncoder
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.inputs.table_files import ColumnType
from beam_pipeline.planning.clips import Clip, Reject
from beam_pipeline.planning.shards import ClipSketch, PlacedClips, ShardLayout
from beam_pipeline.recipe.recipe import Recipe, recipe_options
from beam_pipeline.text import json_sha256
from tests.data_sets import plain
from tests.raising import assert_names, raises
from tests.sounds import write_corpus

RATE = 8000
SCHEMA = json.loads(
    (Path(beam_pipeline.__file__).parent / "dataset/metadata.schema.json").read_text()
)
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
FEATURES = {
    "signal": "identity()",
    "mel": "log_mel(n_fft=64,hop=16,n_mels=4)",
    "spectrum": "tests.sounds.spectrum",
    "image": "log_mel(n_fft=64,hop=16,n_mels=4)|as_image()",
}
ENCODINGS = {"image": "jpeg", "spectrum": "tensor"}
FILES = (
    "schema.pbtxt", "manifest.parquet", "windows.parquet", "members.index",
    "rejected.jsonl",
)  # fmt: skip


def features_of(recipe, classes=("a",)):
    return FeatureSet.of(recipe, (100,), RATE, classes).specs


SOME_STATISTICS = {
    "windows": {"silent_windows": 1, "clipped_windows": 0, "clipped_share": 0.0},
    "features": {
        "mel": {
            "count": 8, "nonfinite_share": 0.2, "mean": -1.5, "m2": 2.0, "std": 0.5,
            "min": -2.0, "max": -1.0, "quantiles": {"0.5": -1.5},
            "bins": {
                "count": [4, 4, 0, 0], "mean": [-2.0, -1.0, None, None],
                "m2": [0.0, 0.0, None, None], "std": [0.0, 0.0, None, None],
                "min": [-2.0, -1.0, None, None], "max": [-2.0, -1.0, None, None],
            },
        },
        "signal": {
            "count": 0, "nonfinite_share": 1.0, "mean": None, "m2": None, "std": None,
        },
    },
}  # fmt: skip


def some_metadata(**changes):
    recipe = Recipe(
        win_len=100, features=FEATURES, encodings=ENCODINGS, elements_per_file=2
    )
    shards = tuple(
        ShardEntry(f"train/train-{k:05d}-of-00002.tfrecord.gz", 2, 99, f"{k}" * 64)
        for k in range(2)
    )
    counts, seconds = {"cat": 3, "dög": 1}, {"cat": 0.04, "dög": 0.01}
    entry = SplitEntry(4, 2, 0.05, 3, counts, seconds, SOME_STATISTICS, shards)
    values = {
        "recipe": recipe,
        "features": features_of(recipe),
        "classes": ("cat", "dög"),
        "splits": {"train": entry},
        "clips": 5,
        "rejected": 2,
        "ignored_files": 1,
        "writer": writer_versions(),
        "files": {name: FileEntry(9, "0" * 64) for name in FILES},
        "listing_sha256": "0" * 64,
    }
    return Metadata(**{**values, **changes})


# JSON there and back


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"classes": ()},
        {"recipe": Recipe(win_seconds=0.1, channels=1, seed=-5, tail="pad")},
        {"splits": {s: SplitEntry(0, 0, 0.0) for s in ("eval", "train")}},
        {"features": {"x": FeatureSpec("x", "string", (), "bytes_list", "sæ")}},
    ],
    ids=["all", "no classes", "recipe", "splits", "feature"],
)
def test_metadata_come_back_from_their_text(tmp_path, changes):
    metadata = some_metadata(**changes)
    (tmp_path / "metadata.json").write_bytes(metadata.to_text())
    found = Metadata.load(tmp_path)
    assert found == metadata
    assert found.to_text() == metadata.to_text()
    later = metadata.to_json()
    for place in (later, later["inputs"]):
        place["more"] = ["of later versions"]
    assert Metadata.parse(json.dumps(later), "here") == metadata


def test_a_notebook_shows_a_line():
    metadata = some_metadata()
    shown = repr(metadata)
    assert len(shown) < 500
    features = [f"{name} {spec.dtype}" for name, spec in metadata.features.items()]
    assert_names(shown, "train 4", "2 classes", *features)


def test_folders_without_metadata(tmp_path):
    (tmp_path / "file").touch()
    for name, fact in (("", "no finished"), ("nowhere", "no folder"), ("file", "file")):
        with raises(InputError, naming=[tmp_path / name, fact]):
            Metadata.load(tmp_path / name)


def edited(path, value):
    """The metadata's JSON with one value replaced, or removed where it is None.

    The hash of its recipe fits, unless that is what is edited.
    """
    values = json.loads(some_metadata().to_text())
    *above, last = path
    place = values
    for key in above:
        place = place[key]
    if value is None:
        del place[last]
    else:
        place[last] = value
    if path[0] == "recipe" and value is not None:
        values["recipe_sha256"] = json_sha256(values["recipe"])
    return values


@pytest.mark.parametrize("text", ["", "{", "[]", "3", "null", b"\xff\xfe"])
def test_a_file_that_is_no_metadata_is_named(text):
    with raises(InputError, naming="/x/metadata.json"):
        Metadata.parse(text, "/x/metadata.json")


SHARD = ("splits", "train", "shards", 0)
SIGNAL = ("features", "signal")
STATISTICS = ("splits", "train", "statistics", "features")


def bins_of(**changes):
    """Statistics of a feature with two bins, one of which has no values."""
    one = {"mean": 1.0, "m2": 2.0, "std": 1.0, "min": 0.0, "max": 2.0}
    bins = {name: [value, None] for name, value in one.items()}
    return {"count": 2, **one, "bins": {"count": [2, 0], **bins, **changes}}


# A place, its value, and what the error names.
WRONG = [
    (("recipe",), None, ["recipe"]),
    (("recipe", "win_len"), 0, ["win_len"]),
    (("recipe", "win_len"), "x" * 10**5, ["win_len"]),
    (("recipe", "tail"), "cut", ["tail", "cut"]),
    (("recipe", "win_lem"), 100, ["win_lem", "win_len"]),
    (("recipe_sha256",), "00", ["recipe_sha256"]),
    (("format_version",), None, ["format version"]),
    (("format_version",), FORMAT_VERSION + 1, ["format version"]),
    (("format_version",), "x" * 10**5, ["format version"]),
    ((*SHARD, "file"), None, ["shards[0].file"]),
    ((*SHARD, "file"), "../../x.tfrecord.gz", ["shards[0].file", "leaves"]),
    ((*SHARD, "file"), "a/../../x", ["shards[0].file", "leaves"]),
    ((*SHARD, "file"), "/etc/passwd", ["/etc/passwd", "relative"]),
    ((*SHARD, "file"), "s3://b/k", ["s3://b/k", "relative"]),
    ((*SHARD, "file"), "a\0b", ["file"]),
    ((*SHARD, "file"), "\x1b[31mred", ["file"]),
    ((*SHARD, "file"), "x" * 5000, ["file"]),
    ((*SHARD, "file"), "", ["file"]),
    ((*SHARD, "bytes"), -1, ["bytes", -1]),
    ((*SIGNAL, "shape"), None, ["signal", "shape"]),
    ((*SIGNAL, "shape"), [-5], ["signal", -5]),
    ((*SIGNAL, "shape"), ["a"], ["signal", "'a'"]),
    ((*SIGNAL, "shape"), 5, ["signal", 5]),
    ((*SIGNAL, "dtype"), "object", ["signal", "object"]),
    ((*SIGNAL, "dtype"), "V1000000000000", ["signal"]),
    ((*SIGNAL, "dtype"), "datetime64[ns]", ["signal"]),
    ((*SIGNAL, "dtype"), "finfo", ["signal", "finfo"]),
    ((*SIGNAL, "encoding"), "zip", ["signal", "zip"]),
    ((*SIGNAL, "axes"), [1], ["axes[0]", 1]),
    (("classes",), 5, ["classes"]),
    (("classes",), [5], ["classes[0]", 5]),
    (("features",), [], ["features"]),
    (("splits", "train", "statistics"), "x", ["statistics"]),
    ((*STATISTICS, "mel"), [], ["mel", "dict"]),
    ((*STATISTICS, "mel"), {}, ["mel", "count is missing"]),
    ((*STATISTICS, "mel", "std"), [1.0], ["mel", "std", "[1.0]"]),
    ((*STATISTICS, "x"), bins_of(std=["a", None]), ["x.bins.std[0]", "a"]),
    ((*STATISTICS, "x"), bins_of(mean=None), ["x.bins.mean", "None"]),
    (("splits", "train", "seconds"), "x", ["seconds"]),
    (("splits", "train", "examples_per_class", "cat"), [], ["cat"]),
    (("inputs", "clips"), None, ["clips"]),
    (("inputs", "clips"), -1, ["clips", -1]),
    (("writer", "numpy"), 3, ["numpy", 3]),
]
# What a JSON Schema cannot say.
BEYOND_SCHEMA = [
    (("recipe_sha256",), "0" * 64, ["recipe_sha256"]),
    ((*SHARD, "examples"), 10**30, ["examples"]),
    ((*SIGNAL, "shape"), [10**12], ["signal", 10**12]),
    ((*SIGNAL, "shape"), [10**6, 10**6], ["signal"]),
    ((*STATISTICS, "signal", "count"), 8, ["signal", "mean", "None"]),
    ((*STATISTICS, "mel", "m2"), float("nan"), ["mel", "m2", "nan"]),
    ((*STATISTICS, "mel"), bins_of(), ["mel", "count of bins", "(2,)", "[3, 4]"]),
    ((*STATISTICS, "x"), bins_of(m2=[1.0]), ["x", "m2 of bins", "(1,)"]),
    ((*STATISTICS, "x"), bins_of(mean=[1.0, 2.0]), ["x.bins.mean[1]"]),
    *((("splits", name), {"examples": 0}, ["cannot be the name of a split"])
      for name in ("../../x", "/tmp/x", "..", "a/b", "", "a b")),
]  # fmt: skip


def place_of(value):
    return ".".join(map(str, value)) if isinstance(value, tuple) else ""


@pytest.mark.parametrize(
    ("path", "value", "facts"), [*WRONG, *BEYOND_SCHEMA], ids=place_of
)
def test_what_is_wrong_is_named(path, value, facts):
    """Also what a stranger has put there: no code, and little memory."""
    text = json.dumps(edited(path, value))
    with raises(InputError, naming=["/x/metadata.json", *facts]) as caught:
        Metadata.parse(text, "/x/metadata.json")
    assert len(str(caught.value)) < 2000


def test_writer_versions_are_those_installed():
    versions = writer_versions()
    assert versions["name"] == "audio-tfrecords"
    for name in ("numpy", "soundfile", "soxr", "isal", "scipy"):
        assert versions[name] == importlib.metadata.version(name)
    assert "pillow" not in versions
    for encoding in ("png", "jpeg"):
        pillow = {"pillow": importlib.metadata.version("pillow")}
        assert writer_versions(["raw", encoding]) == {**versions, **pillow}
    assert writer_versions(["raw", "tensor", "float_list"]) == versions


# The JSON Schema


def problems(values):
    return [f"{e.json_path}: {e.message}" for e in VALIDATOR.iter_errors(values)]


def test_the_json_schema_knows_every_encoding_and_every_field_of_a_recipe():
    assert SCHEMA["$defs"]["encoding"]["enum"] == list(CODECS)
    recipe = SCHEMA["$defs"]["recipe"]
    names = sorted(recipe_options())
    assert sorted(recipe["properties"]) == sorted(recipe["required"]) == names
    assert all("description" in value for value in recipe["properties"].values())


@pytest.mark.parametrize(
    "options",
    [
        {"win_seconds": 0.05, "features": FEATURES, "encodings": ENCODINGS},
        {"win_len": 500, "label_from": "none", "dtype": "int16", "tail": "pad"},
    ],
    ids=["features", "no classes"],
)
def test_metadata_of_a_run_are_valid_and_edits_are_not(tmp_path, options):
    write_corpus(tmp_path / "in", classes=("cat", "dog"), clips=2)
    metadata = record(str(tmp_path / "in"), str(tmp_path / "out"), **options)
    text = (tmp_path / "out" / "metadata.json").read_bytes()
    assert Metadata.parse(text, "here") == metadata
    values = json.loads(text)
    assert problems(values) == []
    for key in values:
        assert problems({k: v for k, v in values.items() if k != key}), key
    assert problems({**values, "more": 1})


@pytest.mark.parametrize(("path", "value"), [row[:2] for row in WRONG], ids=place_of)
def test_the_json_schema_finds_what_is_wrong(path, value):
    assert problems(json.loads(some_metadata().to_text())) == []
    assert problems(edited(path, value))


# schema.pbtxt


def test_tfx_bsl_decodes_records_by_the_schema():
    encodings = {"image": "png"}
    specs = features_of(Recipe(win_len=100, features=FEATURES, encodings=encodings))
    rng = np.random.default_rng(0)
    texts = {"class": "dög", "filepath": "dög/1.wav"}
    columns = {
        **texts,
        "signal": rng.uniform(-1, 1, (2, 100)).astype(np.float32),
        "mel": rng.uniform(-1, 1, (2, 3, 4)).astype(np.float32),
        "spectrum": (rng.uniform(-1, 1, (2, 51)) * 1j).astype(np.complex64),
        "image": rng.integers(0, 256, (2, 3, 4)).astype(np.uint8),
        "target": 1,
        "index": 7,
        "win_start_idx": np.array([0, 100]),
        "fs": RATE,
    }
    records = ExampleEncoder(specs.values()).encode(2, columns)
    text = schema_text(specs)
    schema = text_format.Parse(text, schema_pb2.Schema())
    decoder = ExamplesToRecordBatchDecoder(schema.SerializeToString())
    batch = decoder.DecodeBatch(records)
    assert set(batch.schema.names) == set(specs)
    features = {feature.name: feature for feature in schema.feature}
    raw = ("spectrum", "image")
    for name, feature in features.items():
        assert feature.presence.min_fraction == 1.0
        assert feature.WhichOneof("shape_type") == "shape"
        wanted = () if name in raw else specs[name].shape
        assert tuple(dim.size for dim in feature.shape.dim) == wanted
        assert list(feature.annotation.comment) == [specs[name].description]
    found = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    assert found["signal"] == columns["signal"].tolist()
    assert found["mel"] == columns["mel"].reshape(2, 12).tolist()
    assert found["spectrum"] == [[row.tobytes()] for row in columns["spectrum"]]
    images = [CODECS["png"].encode("image", image, None) for image in columns["image"]]
    assert found["image"] == [[image] for image in images]
    assert found["class"] == [["dög".encode()]] * 2
    assert found["win_start_idx"] == [[0], [100]]
    assert found["index"] == [[7]] * 2


# manifest.parquet

PLAIN = Recipe(win_len=80)


def clip(row, windows=2, **changes):
    made = Clip(
        row, 0, f"dög/{row}.wav", "dög", "records", 441, 44100, 2, "WAV", "PCM_16",
        16000, 160, windows, group="a\x1fb", file=row,
    )  # fmt: skip
    return made._replace(**changes)


def manifest(tmp_path, *buckets, total=100, recipe=PLAIN, columns=(), sketches=()):
    """The rows of a manifest of buckets, each given with the windows before it."""
    layout = ShardLayout("records", total, 1, total)
    parts = []
    for before, clips in buckets:
        placed = PlacedClips("records", before, tuple(clips))
        parts.append(make_manifest_part(placed, {"records": layout}, recipe))
    path = tmp_path / "manifest.parquet"
    fields = manifest_fields(recipe, columns)
    write_manifest(str(path), parts, fields, sketches)
    assert [p.name for p in tmp_path.iterdir()] == ["manifest.parquet"]
    return pq.read_table(path)


def test_a_row_of_the_manifest_of_a_part(tmp_path):
    recipe = Recipe(win_len=80, group_by="x,y", splits="a=1", channels=1)
    parts = [clip(5, file=3, start=7), clip(6, channel=0)]
    rows = manifest(tmp_path, (0, parts), recipe=recipe).to_pylist()
    found = [[r[n] for n in ("file", "group", "start", "channel")] for r in rows]
    assert found == [[3, "a\x1fb", 7, 1], [6, "a\x1fb", 0, 0]]


def test_sketches_and_columns_of_the_manifest(tmp_path):
    """Two shards have windows of one clip; another clip has no sketch, or none read."""
    types = ("int64", "string", "float32")
    columns = tuple(zip(("age", "path", "path_"), map(ColumnType, types), strict=True))
    values = [(3, "p", 0.5), (-1, "", math.nan), (0, "", 1.0)]
    sketches = [
        ClipSketch("0", 7, 2**64 - 1, "00ff"), ClipSketch("0", 7, 3, ""),
        ClipSketch("1", 2, 255, ""),
    ]  # fmt: skip
    table = manifest(
        tmp_path,
        (0, [clip(7, columns=values[0])]),
        (2, [clip(2, columns=values[1]), clip(9, columns=values[2])]),
        columns=columns,
        sketches=sketches,
    )
    heard = ["window_hash", "start_sketch"]
    assert table.schema.names[-5:] == ["age", "path__", "path_", *heard]
    first, second, third = table.to_pylist()
    assert [first[name] for name in heard] == [(2).to_bytes(8, "big"), b"\0\xff"]
    assert [second[name] for name in heard] == [(255).to_bytes(8, "big"), None]
    assert [third[name] for name in heard] == [None, None]
    assert [first[name] for name in table.schema.names[-5:-2]] == [3, "p", 0.5]
    assert [second[name] for name in table.schema.names[-5:-3]] == [-1, ""]
    assert math.isnan(second["path_"])


@pytest.mark.parametrize("in_group", [1, 2, 3, 99])
@pytest.mark.parametrize(
    ("total", "windows"),
    [(9, [2, 3, 1]), (6, [2, 3, 1]), (5, [2, 3, 0]), (3, [2, 1, 0]), (2, [2, 0, 0]),
     (1, [1, 0, 0])],
)  # fmt: skip
def test_rows_stand_in_the_order_of_the_examples(
    tmp_path, monkeypatch, total, windows, in_group
):
    """Windows beyond the total are not in the data set, but their clips are listed."""
    monkeypatch.setattr("beam_pipeline.dataset.tables._CLIPS_IN_GROUP", in_group)
    buckets = (0, [clip(9, 2), clip(1, 3)]), (5, []), (5, [clip(4, 1)])
    rows = manifest(tmp_path, *buckets, total=total).to_pylist()
    assert [row["index"] for row in rows] == [9, 1, 4]
    assert [row["first_index"] for row in rows] == [0, 2, 5]
    assert [row["windows"] for row in rows] == windows


# rejected.jsonl


def rejects_text(tmp_path, rejects):
    path = tmp_path / "rejected.jsonl"
    write_rejects(str(path), sort_rejects(rejects))
    assert list(tmp_path.iterdir()) == [path]
    return path.read_bytes()


def test_rejects_are_one_line_each_by_row(tmp_path):
    first = Reject(2, "dög/2.wav", "probe", "EmptyAudio", "holds no frames")
    why = "one\ntwo\u2028three"
    late = Reject(9, "a.wav", "decode", "UnreadableAudio", why, "a", "s-1", "train", 3)
    later = late._replace(shard="s-2")
    assert rejects_text(tmp_path, []) == b""
    lines = rejects_text(tmp_path, [later, late, first]).decode()[:-1].split("\n")
    assert lines[0] == (
        '{"path": "dög/2.wav", "stage": "probe", "error": "EmptyAudio", '
        '"reason": "holds no frames", "seconds": null}'
    )
    found = [(each["path"], each["reason"]) for each in map(json.loads, lines)]
    assert found[1:] == [("a.wav", why)] * 2
    again = rejects_text(tmp_path, [first, later, late])
    assert again == "".join(f"{s}\n" for s in lines).encode()


# What plain TensorFlow and TensorFlow Metadata are told


def test_every_kind_of_feature(tmp_path):
    rows = [
        {
            "scalar": n,
            "fixed": [1.5, 2.5],
            "list": [1] * n,
            "texts": ["a"] * n,
            "raw": np.full((2, 2), n - 0.5j, np.complex64),
            "image": np.zeros((2, 2 + n), np.uint8),
            "ragged": np.zeros((n, 1 + n), np.float32),
            "optional": n if n else None,
            "optional_array": np.zeros((2, 2)) if n else None,
            "none": np.zeros((0, 2)),
        }
        for n in range(3)
    ]
    folder = record_examples(rows, tmp_path / "out", encodings={"image": "png"})
    description = Metadata.load(folder).feature_description()
    fixed, varied = tf.io.FixedLenFeature, tf.io.VarLenFeature
    assert description == {
        "scalar": fixed((), tf.int64),
        "fixed": fixed((2,), tf.float32),
        "list": varied(tf.int64),
        "texts": varied(tf.string),
        "raw": fixed((), tf.string),
        "image": fixed((), tf.string),
        "image/shape": fixed((2,), tf.int64),
        "ragged": varied(tf.float32),
        "ragged/shape": fixed((2,), tf.int64),
        "optional": varied(tf.int64),
        "optional_array": varied(tf.string),
        "none": fixed((), tf.string),
    }
    batch = tf.io.parse_example(list(plain(folder)), description)
    raw = tf.io.decode_raw(batch["raw"], tf.complex64).numpy().reshape(3, 2, 2)
    np.testing.assert_array_equal(raw, [row["raw"] for row in rows])
    assert batch["optional"].values.numpy().tolist() == [1, 2]
    assert batch["ragged/shape"].numpy().tolist() == [[0, 1], [1, 2], [2, 3]]


SPECS = [
    FeatureSpec("one", "float32", (), FLOAT_LIST, "a number"),
    FeatureSpec("several", "int64", (4,), INT64_LIST),
    FeatureSpec("table", "float32", (2, 3), FLOAT_LIST),
    FeatureSpec("any", "string", (None,), BYTES_LIST),
    FeatureSpec("perhaps", "int64", (), INT64_LIST, optional=True),
]


def test_what_a_schema_can_say_comes_back():
    specs = {spec.name: spec for spec in SPECS}
    assert parse_schema(schema_text(specs), "here") == specs


@pytest.mark.parametrize(
    ("more", "shape", "optional"),
    [
        ("", (None,), True),
        ("presence { min_fraction: 1 }", (None,), False),
        ("presence { min_fraction: 0.99 }", (None,), True),
        ("value_count { min: 1 max: 1 }", (), True),
        ("value_count { min: 5 max: 5 }", (5,), True),
        ("value_count { min: 1 max: 5 }", (None,), True),
        ("value_count { min: 0 max: 0 }", (None,), True),
        ("shape { }", (), True),
        ("shape { dim { size: 2 } dim { size: 3 } }", (2, 3), True),
        ("shape { dim { size: 2 } dim { name: 'x' } }", (None,), True),
    ],
)
def test_shapes_and_presence(more, shape, optional):
    text = f'feature {{ name: "x" type: FLOAT {more} }}'
    (spec,) = parse_schema(text.encode(), "here").values()
    assert spec == FeatureSpec("x", "float32", shape, FLOAT_LIST, optional=optional)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (b"feature {", []),
        (b"\xff", []),
        (b'{"feature": []}', []),
        (b'feature { name: "x" }', ["x", "TYPE_UNKNOWN"]),
        (b'feature { name: "x" type: STRUCT }', ["x", "STRUCT"]),
        (b'feature { name: "x" type: INT } feature { name: "x" type: INT }', ["x"]),
    ],
)
def test_what_is_no_schema_of_examples_is_an_error(text, facts):
    with raises(InputError, naming=["there.pbtxt", *facts]):
        parse_schema(text, "there.pbtxt")
