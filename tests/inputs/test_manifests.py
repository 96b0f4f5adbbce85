"""Manifests: columns and their types, parts of files, splits; as rows and in runs."""

from __future__ import annotations

import csv
import io
import itertools
import json
import math
import shutil
from datetime import datetime
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline import Metadata, open_records, plan, record, verify
from beam_pipeline.cli.main import main
from beam_pipeline.dataset.tables import manifest_fields
from beam_pipeline.errors import (
    InputError,
    OptionError,
    OutputError,
    RecipeError,
    TooManyRejected,
)
from beam_pipeline.inputs.columns import PartColumns, part_in_seconds
from beam_pipeline.inputs.listing import Listing, survey
from beam_pipeline.inputs.sources import resolve_inputs
from beam_pipeline.inputs.table_files import (
    ColumnType,
    column_types,
    open_table,
    read_rows,
    write_rows,
)
from beam_pipeline.inputs.table_files import convert as to_type
from beam_pipeline.parameters import comma_list, comma_text
from beam_pipeline.read.audit import write_clean_manifest
from beam_pipeline.read.window_table import window_table
from beam_pipeline.recipe.recipe import Audio, Recipe
from beam_pipeline.transforms.base import seconds_to_frames
from tests.data_sets import contents, shards_in
from tests.raising import assert_names, raises
from tests.sounds import RATE, write_sound

ROWS = [
    {"path": "a/1.wav", "kind": "cat", "loud": 1.5, "take": 1},
    {"path": "a/2.wav", "kind": "dog", "loud": -2.0, "take": 2},
    {"path": "b/ä 3.wav", "kind": "cat", "loud": 0.25, "take": 30},
]


def write_csv(path, rows, delimiter=",", header=True):
    pd.DataFrame(rows).to_csv(path, sep=delimiter, header=header, index=False)
    return path


def avro(rows, schema=None, **types):
    """Rows as Avro; ``types`` are the types of fields that are not texts."""
    types = {"loud": "double", "take": "long", **types}
    if schema is None:
        fields = [{"name": name, "type": types.get(name, "string")} for name in rows[0]]
        schema = {"type": "record", "name": "Clip", "fields": fields}
    file = io.BytesIO()
    marker = bytes(16)  # otherwise it is random
    parsed = fastavro.parse_schema(schema)
    fastavro.writer(file, parsed, rows, "deflate", sync_marker=marker)
    return file.getvalue()


@pytest.fixture
def corpus(tmp_path):
    for i, row in enumerate(ROWS):
        write_sound(tmp_path / row["path"], 1000 + 500 * i, seed=i)
    return tmp_path


def rows_of(path, **options):
    recipe = Recipe(win_len=1, **options)
    return list(Listing(survey(resolve_inputs([str(path)]), recipe), recipe).rows())


# Tables


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("suffix", [".csv", ".CSV"])
def test_csv_with_any_delimiter(tmp_path, delimiter, suffix):
    path = write_csv(tmp_path / f"m{suffix}", ROWS, delimiter)
    table = open_table(str(path))
    assert table.names == tuple(ROWS[0])
    assert [number for number, _ in read_rows(table)] == [2, 3, 4]
    assert [row["path"] for _, row in read_rows(table)] == [r["path"] for r in ROWS]


def test_csv_as_spreadsheets_write_it(tmp_path):
    text = '\ufeffpath,kind\r\n"a, b.wav","say ""hi"""\r\n\r\nc.wav,x\r\n'
    (tmp_path / "m.csv").write_text(text, newline="", encoding="utf-8")
    rows = list(read_rows(open_table(str(tmp_path / "m.csv"))))
    assert rows == [
        (2, {"path": "a, b.wav", "kind": 'say "hi"'}),
        (4, {"path": "c.wav", "kind": "x"}),
    ]


def test_csv_without_a_header(tmp_path):
    path = write_csv(tmp_path / "m.csv", ROWS, header=False)
    table = open_table(str(path), names=["path", "kind", "loud", "take"])
    assert next(read_rows(table)) == (
        1, {"path": "a/1.wav", "kind": "cat", "loud": "1.5", "take": "1"}
    )  # fmt: skip


def test_a_line_of_jsonl_may_bring_a_column(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text('{"path":"a.wav"}\n{"path":"b.wav","sex":"f"}\n{"age":3}\n')
    assert open_table(str(path)).names == ("path", "sex", "age")


def test_jsonl_parquet_and_avro_hold_the_same_rows(tmp_path):
    (tmp_path / "m.jsonl").write_text("".join(json.dumps(r) + "\n\n" for r in ROWS))
    pq.write_table(pa.Table.from_pylist(ROWS), tmp_path / "m.parquet")
    (tmp_path / "m.avro").write_bytes(avro(ROWS))
    for name in ("m.jsonl", "m.parquet", "m.avro"):
        table = open_table(str(tmp_path / name))
        assert [row for _, row in read_rows(table)] == ROWS


@pytest.mark.parametrize(("name", "text", "facts"), [
    ("m.csv", "", "m.csv"), ("m.csv", "\na,b\n", "m.csv"),
    ("m.csv", "path,path\n", "path"), ("m.csv", "path,,x\n", "--column-names"),
    ("m.csv", "path,x\na,1\nb\n", ["m.csv", "3", "1", "2"]),
    ("m.csv", "path,x\na,1,2\n", ["m.csv", "2", "3"]),
    ("m.csv", 'path,x\n"a\n', ["m.csv", "2"]),
    ("m.csv", b"path,x\na,1\nb\xfcd,1\n", ["m.csv", "3", "UTF-8", "xfcd"]),
    ("m.csv", "path,x\na,1\n".encode("utf-16-be"), ["m.csv", "UTF-8"]),
    ("m.jsonl", b'{"path": "a"}\n{"path": "\xfc"}\n', ["m.jsonl", "2", "UTF-8"]),
    ("m.jsonl", "", "m.jsonl"), ("m.jsonl", "{}{\n", ["m.jsonl", "1"]),
    ("m.jsonl", '{"path": "x", "path": "y"}\n', ["m.jsonl", "1", "path"]),
    ("m.jsonl", '{"path": "x"}\n[]\n', ["m.jsonl", "2"]),
    *(("m.avro", content, "m.avro") for content in (
        "", "path,kind", avro(ROWS)[:-10], avro(["a.wav"], "string"),
    )),
])  # fmt: skip
def test_tables_that_cannot_be_read(tmp_path, name, text, facts):
    content = text if isinstance(text, bytes) else text.encode()
    (tmp_path / name).write_bytes(content)
    with raises(InputError, naming=facts):
        list(read_rows(open_table(str(tmp_path / name))))


# Rows


@pytest.mark.parametrize(("row", "facts"), [
    ({"path": ""}, ["path"]), ({"kind": " "}, ["kind"]),
    ({"offset_s": "-1"}, ["offset_s", "-1"]),
    ({"duration_s": "0"}, ["duration_s", "0"]),
    ({"duration_s": "inf"}, ["duration_s", "inf"]),
    ({"offset_s": "1:30"}, ["offset_s", "1:30"]),
    ({"channel": "1.5"}, ["channel", "1.5"]),
    ({"frames": "0", "sample_rate_hz": "8000"}, ["frames", "0"]),
    ({"split": "a b"}, ["split", "a b"]), ({"speaker": ""}, ["speaker"]),
    ({"speaker": "  "}, ["speaker"]),
    ({"frames": "1e20", "sample_rate_hz": "8000"}, ["frames", "1e+20"]),
    ({"channel": "1_0"}, ["channel", "1_0"]),
])  # fmt: skip
def test_problems_of_a_row(tmp_path, row, facts):
    good = {"path": "x.wav", "kind": "cat", "offset_s": "", "duration_s": "",
            "channel": "", "frames": "", "sample_rate_hz": "", "split": "train",
            "speaker": "theo"}  # fmt: skip
    path = write_csv(tmp_path / "m.csv", [good, {**good, "path": "y.wav", **row}])
    first, second = rows_of(
        path, label_from="kind", split_column="split", group_by="speaker"
    )
    assert (first.problem, first.split, first.group) == (None, "train", "theo")
    assert_names(second.problem, *facts)
    assert second.line == 3


@pytest.mark.parametrize(("options", "field", "value", "facts"), [
    *(({"label_from": text}, "label_from", text, ["path", "kind", "(?P<class>"])
      for text in ("species", "(", "(?P<class>", r"(\d)", "(?P<k>a)")),
    ({"path_column": "file"}, "path_column", "file", ["m.csv", "path", "kind"]),
    ({"group_by": "kind,speaker", "splits": "a=1"}, "group_by", "speaker", "m.csv"),
    ({"columns": "loud,quiet"}, "columns", "quiet", ["m.csv", "take"]),
    ({"target_columns": "x"}, "target_columns", "x", "m.csv"),
    ({"split_column": "part"}, "split_column", "part", "m.csv"),
    ({"features": {"loud": "identity()"}}, "columns", "loud", ()),
    ({"columns": "loud", "target_columns": "loud"}, "columns", "loud", ()),
])  # fmt: skip
def test_columns_that_are_not_there(corpus, options, field, value, facts):
    path = write_csv(corpus / "m.csv", ROWS)
    with raises(RecipeError, field, value, naming=facts):
        plan(str(path), win_len=100, **{"label_from": "none", **options})


def test_a_table_without_a_header_is_told_of_the_option(corpus):
    path = corpus / "m.csv"
    path.write_text("a/1.wav,1.5\n")
    with raises(RecipeError, "path_column", naming=["a/1.wav", "--column-names"]):
        plan(str(path), win_len=100, label_from="none")


def test_two_tables_need_the_same_columns(corpus):
    first = write_csv(corpus / "m.csv", ROWS)
    second = write_csv(corpus / "n.csv", [{"path": "a/1.wav", "kind": "cat"}])
    with raises(InputError, naming=[first, second, "take", "--columns"]):
        plan([str(first), str(second)], win_len=100, label_from="kind")


def test_a_column_has_one_type_in_all_tables(tmp_path):
    rows = [(1, 0.5, ""), ("x", 1561965277.252, 3)]
    for k, values in enumerate(rows):
        row = dict(zip(("path", "key", "time", "gap"), ("x.wav", *values), strict=True))
        write_csv(tmp_path / f"{k}.csv", [row])
    inputs = resolve_inputs([str(tmp_path / f"{k}.csv") for k in range(2)])
    surveyed = survey(inputs, Recipe(win_len=1, label_from="none"))
    assert [dict(entry.columns) for entry in surveyed] == [{
        "key": ColumnType("string"), "time": ColumnType("float64"),
        "gap": ColumnType("float32"),
    }] * 2  # fmt: skip


# Whole runs


@pytest.mark.parametrize("targets", ["loud", "loud,take"])
def test_columns_travel_into_every_example(corpus, targets):
    """As they are, as numbers to be predicted, and as several classes of a clip."""
    times = [1561965277.252, 0.1, math.nan]  # of float64: no digit is lost
    kinds = ["cat;dog", "dog", "owl; cat"]
    rows = [
        {**row, "kind": kind, "time": "" if time != time else time, "number": 1}
        for row, kind, time in zip(ROWS, kinds, times, strict=True)
    ]
    metadata = record(
        write_csv(corpus / "m.csv", rows), corpus / "o", win_len=1000, order="listed",
        label_from="kind", label_separator=";", target_columns=targets,
        columns="number,time,kind",
    )  # fmt: skip
    records = open_records(corpus / "o")
    expected = [(rows[k], times[k], k) for k in (0, 1, 2, 2)]
    labels = [[1, 1, 0], [0, 1, 0], [1, 0, 1]]
    for example, (row, time, k) in zip(records, expected, strict=True):
        assert (example["kind"], example["number"]) == (row["kind"], 1)
        np.testing.assert_array_equal(example["time"], time)
        wanted = np.float32([row[name] for name in targets.split(",")])
        np.testing.assert_array_equal(example["target"], wanted.squeeze())
        assert example["labels"].tolist() == labels[k]
    assert metadata.classes == ("cat", "dog", "owl")
    (entry,) = metadata.splits.values()
    assert entry.examples_per_class == {"cat": 3, "dog": 2, "owl": 2}
    found = {name: spec.dtype for name, spec in metadata.features.items()}
    dtypes = {"number": "int64", "time": "float64", "kind": "string"}
    assert found.items() >= dtypes.items()
    assert not found.keys() & {"class", "loud", "take"}
    assert len(records.where("time > 1561965277.2519")) == 1


def test_groups_of_the_expression_are_columns(corpus, tmp_path_factory):
    out = tmp_path_factory.mktemp("out") / "o"
    metadata = record(corpus, out, win_len=500,
                      label_from=r"(?P<class>[ab])/(?P<name>.*)\.wav")  # fmt: skip
    assert metadata.features["name"].dtype == "string"
    assert {e["name"] for e in open_records(out)} == {"1", "2", "ä 3"}


@pytest.mark.parametrize(("rate", "names"), [
    (None, ("path", "offset_s", "duration_s")),
    (4000, ("path", "offset_s", "duration_s")),
    (None, ("audio_filepath", "offset", "duration")),  # of NeMo
])  # fmt: skip
def test_segments_are_parts_of_their_file(tmp_path, rate, names):
    write_sound(tmp_path / "x.wav", 4 * RATE)
    starts = {"a": 0.5, "b": 3.0, "c": 1.0}
    rows = [
        {**dict(zip(names, ("x.wav", start, "" if name == "b" else 1.0), strict=True)),
         "class": name}
        for name, start in starts.items()
    ]  # fmt: skip
    path = write_csv(tmp_path / "m.csv", rows)
    options = {"win_seconds": 0.25, "sample_rate": rate, "order": "listed"}
    record(path, tmp_path / "o", label_from="class", **options)
    record(tmp_path / "x.wav", tmp_path / "whole", label_from="none", **options)
    whole = np.concatenate([e["signal"] for e in open_records(tmp_path / "whole")])
    to = rate or RATE
    found = open_records(tmp_path / "o")
    assert len(found) == 12
    limit = 2e-5 if rate else 0
    for example in found:
        start = int(starts[example["class"]] * to + example["win_start_idx"])
        wanted = whole[start : start + to // 4]
        np.testing.assert_allclose(example["signal"], wanted, rtol=0, atol=limit)


def test_a_channel_of_a_file(tmp_path):
    sound = write_sound(tmp_path / "x.wav", 1000, channels=2)
    rows = [{"path": "x.wav", "channel": channel} for channel in (1, 0)]
    path = write_csv(tmp_path / "m.csv", rows)
    record(path, tmp_path / "o", win_len=1000, label_from="none", order="listed")
    for example, channel in zip(open_records(tmp_path / "o"), (1, 0), strict=True):
        np.testing.assert_array_equal(example["signal"], sound[:, channel])


@pytest.mark.parametrize(("offset", "duration", "facts"), [
    (0.5, 0.6, ["0.5", "1.1"]), (1.0, "", ["1 s"]), (0.99, "", ["80"]),
])  # fmt: skip
def test_segments_beyond_their_file(tmp_path, offset, duration, facts):
    write_sound(tmp_path / "x.wav", RATE)
    rows = [{"path": "x.wav", "offset_s": offset, "duration_s": duration}]
    path = write_csv(tmp_path / "m.csv", rows)
    summary, (reject,) = plan(
        str(path), win_len=100, short_clips="reject", label_from="none"
    )
    assert summary.example_format is None
    assert_names(reject.reason, *facts, "row 2")


def test_what_is_known_is_not_probed(corpus, monkeypatch):
    rows = [{**row, "frames": 1000 + 500 * i, "sample_rate_hz": RATE, "channels": 1}
            for i, row in enumerate(ROWS)]  # fmt: skip
    options = {"win_len": 500, "label_from": "kind"}
    record(write_csv(corpus / "n.csv", ROWS), corpus / "probed", **options)
    monkeypatch.setattr("beam_pipeline.audio.clip_reader.probe_audio", None)
    record(write_csv(corpus / "m.csv", rows), corpus / "known", workers=1, **options)
    assert shards_in(corpus / "known") == shards_in(corpus / "probed")


@pytest.mark.parametrize(("speakers", "group"), [
    (["S1", " S1", "S1 "], "S1"), (["1", "1.0", "01.0"], None),
    (["7", "7.0", "7.00", "7."], "7"), (["-3", "-3.0"], "-3"),
    (["Zo\u00eb", "Zoe\u0308"], "Zo\u00eb"), (["1.10", "1.1"], None),
])  # fmt: skip
def test_groups_have_one_spelling(tmp_path, speakers, group):
    rows = [{"path": f"{i}.wav", "speaker": s} for i, s in enumerate(speakers)]
    path = write_csv(tmp_path / "m.csv", rows)
    found = {
        row.group
        for row in rows_of(path, label_from="none", splits="a=1", group_by="speaker")
    }
    assert len(found) == 1 if group else len(found) > 1
    assert group is None or found == {group}


def test_classes_have_one_spelling(tmp_path):
    rows = [
        {"path": "a.wav", "kind": "Zo\u00eb"},
        {"path": "b.wav", "kind": "Zoe\u0308"},
    ]
    path = write_csv(tmp_path / "m.csv", rows)
    for classes in (None, "Zoe\u0308"):
        found = rows_of(path, label_from="kind", classes=classes)
        assert [row.label for row in found] == ["Zo\u00eb", "Zo\u00eb"]


# Splits


@pytest.fixture(scope="module")
def speakers(tmp_path_factory):
    """Twelve speakers with three clips of each of two classes."""
    folder = tmp_path_factory.mktemp("speakers")
    for speaker, label, take in itertools.product(range(12), "ab", range(3)):
        write_sound(folder / f"{label}_{speaker:02d}_{take}.wav", 200, seed=speaker)
    return folder


def splits_of(folder, out, **options):
    """The metadata, and the splits of each speaker."""
    metadata = record(
        folder, out, win_len=100, columns="none",
        label_from="(?P<class>[ab])_(?P<speaker>.+)_", **options,
    )  # fmt: skip
    found = {}
    for row in pq.read_table(out / "manifest.parquet").to_pylist():
        found.setdefault(row["path"].split("_")[1], set()).add(row["split"])
    return metadata, found


@pytest.mark.parametrize("stratify", [False, True])
def test_no_group_is_in_two_splits_and_none_moves(speakers, tmp_path, stratify):
    metadata, before = splits_of(
        speakers, tmp_path / "a", splits="train=.5,eval=.25,test=.25",
        group_by="speaker", stratify=stratify,
    )  # fmt: skip
    assert all(len(splits) == 1 for splits in before.values())
    if stratify:
        shares = [len(s.shards) and s.clips / 72 for s in metadata.splits.values()]
        assert sorted(shares) == [0.25, 0.25, 0.5]
    more = shutil.copytree(speakers, tmp_path / "in")
    for take in range(3):
        write_sound(more / f"a_zz_{take}.wav", 200)
    # The recipe in the metadata holds the groups that were moved.
    assert isinstance(metadata.recipe.to_json().get("split_moves"), str)
    again, after = splits_of(more, tmp_path / "b", recipe=metadata.recipe)
    assert {s: after[s] for s in before} == before
    assert again.splits.keys() == metadata.splits.keys()


def test_no_split_is_empty_if_there_are_groups_enough(speakers, tmp_path):
    """The hash leaves some of eight splits empty; then, and only then, groups move."""
    eight = {"splits": "a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1", "group_by": "speaker"}
    metadata, found = splits_of(speakers, tmp_path / "a", **eight)
    assert set().union(*found.values()) == set("abcdefgh")
    assert metadata.recipe.split_moves
    again, same = splits_of(speakers, tmp_path / "b", recipe=metadata.recipe)
    assert (same, again.recipe) == (found, metadata.recipe)
    two = {"splits": "a=1,b=1", "group_by": "speaker"}
    metadata, first = splits_of(speakers, tmp_path / "c", **two)
    assert metadata.recipe.split_moves == {}
    # Another seed is another choice.
    assert splits_of(speakers, tmp_path / "d", seed=1, **two)[1] != first


def test_folds(speakers, tmp_path):
    metadata, found = splits_of(speakers, tmp_path / "o", folds=3, group_by="speaker")
    assert set(metadata.splits) == {"fold0", "fold1", "fold2"}
    assert all(len(splits) == 1 for splits in found.values())


# Tables in memory


@pytest.mark.parametrize(("rows", "facts"), [
    ([{"path": "a/1.wav", "kind": 1j}], ["1", "1j", "kind"]),
    ({"path": ["a/1.wav"]}, "['a/1.wav']"),
    (["a/1.wav", {"path": "a/1.wav"}], "{'path': 'a/1.wav'}"), ([{}], ()),
    (pd.DataFrame({"path": []}), ()),
    ([{"name": "a/1.wav"}], ["path_column", "filepath"]),
])  # fmt: skip
def test_tables_in_memory_that_are_refused(corpus, monkeypatch, rows, facts):
    monkeypatch.chdir(corpus)
    with raises((InputError, OptionError), naming=facts):
        record(rows, corpus / "o", win_len=500)
    assert not (corpus / "o").exists()


@pytest.mark.parametrize("below", ["a/,b/", ","])
def test_classes_from_a_mapping(corpus, tmp_path_factory, below):
    """Names are those below an input, or whole paths."""
    a, b = below.split(",")
    source = corpus if a else {"train": corpus / "a", "test": corpus / "b"}
    classes = {f"{a}1.wav": "owl", f"{b}ä 3.wav": "tit",
               str(corpus / "a/2.wav"): "owl"}  # fmt: skip
    out = tmp_path_factory.mktemp("out") / "o"
    metadata = record(source, out, win_len=500, label_from=classes)
    found = {
        (example["filepath"], example["class"])
        for split in metadata.splits
        for example in open_records(out, split)
    }
    wanted = {(f"{a}1.wav", "owl"), (f"{a}2.wav", "owl"), (f"{b}ä 3.wav", "tit")}
    assert found == wanted


def test_classes_from_a_mapping_that_does_not_fit(corpus):
    for classes, error, facts in (
        ({"a/1.wav": "owl", "a/9.wav": "owl"}, InputError, ["label_from", "a/9.wav"]),
        ({}, TooManyRejected, ["a/1.wav", "a/2.wav", "b/ä 3.wav"]),
    ):
        with raises(error, naming=facts):
            record(corpus, corpus.parent / f"{corpus.name} out", win_len=500,
                   label_from=classes)  # fmt: skip
    _, rejects = plan(corpus, win_len=500, label_from={"a/1.wav": "owl"})
    assert [r.filepath for r in rejects] == ["a/2.wav", "b/ä 3.wav"]


def test_a_run_of_a_table_in_memory_can_be_continued(corpus, monkeypatch):
    monkeypatch.chdir(corpus)
    rows = [*ROWS, {**ROWS[0], "path": "gone.wav"}]
    options = {"win_len": 500, "label_from": "kind"}
    with raises(TooManyRejected, naming="gone.wav"):
        record(rows, corpus / "o", **options)
    (kept,) = (corpus / "o" / "_work" / "rows").iterdir()
    assert pq.read_table(kept).num_rows == 4
    with raises(OutputError, naming=[corpus / "o", "--overwrite"]):
        record(ROWS, corpus / "o", **options)
    write_sound(corpus / "gone.wav", 600)
    assert record(rows, corpus / "o", **options).clips == 4


# What would leak, or be lost


@pytest.mark.parametrize(("inputs", "options", "facts"), [
    (["train={}", "{}"], {}, ["--input", "SPLIT=INPUT"]),
    (["train={}", "test={}"], {"splits": "a=1"}, ["--splits", "--input", "a=1"]),
    (["train={}", "test={}"], {"folds": 2}, ["--folds", "--input", "2"]),
])  # fmt: skip
def test_one_way_of_splitting(corpus, inputs, options, facts):
    places = [corpus / "a", corpus / "b"]
    texts = [text.format(place) for text, place in zip(inputs, places, strict=True)]
    with raises((InputError, RecipeError), naming=facts):
        plan(texts, win_len=100, **options)


@pytest.mark.parametrize("value", [None, math.nan, 1e300])
def test_what_is_to_be_predicted_must_be_there(corpus, monkeypatch, value):
    monkeypatch.chdir(corpus)
    rows = [{"path": "a/1.wav", "t": 1.0}, {"path": "a/2.wav", "t": value}]
    _, rejects = plan(rows, win_len=500, target_columns=["t"], label_from="none")
    assert [reject.row for reject in rejects] == [1]


@pytest.mark.parametrize(("name", "said", "facts"), [
    ("x.wav", {"frames": 999}, [1000, 999]), ("x.flac", {"frames": 1001}, [1000, 1001]),
    ("x.ogg", {"frames": 5000}, [1000, 5000]),
    ("x.wav", {"sample_rate_hz": 2 * RATE}, ["sample_rate_hz", RATE, 2 * RATE]),
    ("x.wav", {"channels": 2}, ["channels", 1, 2]),
])  # fmt: skip
def test_a_table_that_lies_is_found_out(tmp_path, name, said, facts):
    sound = np.random.default_rng(0).uniform(-0.1, 0.1, 1000)
    soundfile.write(tmp_path / name, sound, RATE)
    row = {"path": name, "frames": 1000, "sample_rate_hz": RATE, "channels": 1, **said}
    path = write_csv(tmp_path / "m.csv", [row])
    with raises(TooManyRejected, naming=[name, *facts]):
        record(path, tmp_path / "o", win_len=500, label_from="none")


@pytest.mark.parametrize(("kinds", "label", "facts"), [
    (["owl", "tit"], "owl;tit", ()), (["owl", 2], "2;owl", ()),
    ("tit; owl", "owl;tit", ()),
    *((["owl", value], None, ["kind"]) for value in (None, ["x"], {"a": 1}, True)),
    (["a;b"], None, ["kind", "a;b", "--label-separator"]),
    (["owl", ""], None, ["empty"]),
])  # fmt: skip
def test_lists_of_classes(tmp_path, kinds, label, facts):
    path = tmp_path / "m.jsonl"
    path.write_text(json.dumps({"path": "a.wav", "kind": kinds}))
    (row,) = rows_of(path, label_from="kind", label_separator=";")
    assert row.label == label
    assert_names(row.problem or "", *facts)
    if isinstance(kinds, list):
        (row,) = rows_of(path, label_from="kind")
        assert_names(row.problem, "kind", "--label-separator")


def test_classes_need_a_label(corpus):
    with raises(RecipeError, "classes", "cat,dog", naming="label_from"):
        plan(corpus / "a", win_len=500, label_from="none", classes="cat,dog")
    # A column may have this name.
    path = write_csv(corpus / "m.csv", [{"path": "a/1.wav", "none": "dog"}])
    (row,) = rows_of(path, label_from="none", classes="cat,dog")
    assert row.label == "dog"


def test_names_with_commas():
    classes = ["tit", 'owl, "barn"']
    assert comma_list('a, "b, c" ,d') == ["a", "b, c", "d"]
    assert comma_list('5" disk,x') == ['5" disk', "x"]
    assert comma_list(comma_text(classes)) == classes


# Columns that say which part of its file a clip is; the manifest of a data set


def write_table(folder, *rows):
    path = folder / "m.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.mark.parametrize(("columns", "part"), [
    ({"path": "x.wav"}, (0.0, None, None)),
    ({"path": "x.wav", "offset_s": 2, "duration_s": 0.5}, (2.0, 0.5, None)),
    ({"path": "x.wav", "start_s": 2, "duration_s": ""}, (2.0, None, None)),
    ({"path": "x.wav", "start_s": 2, "end_s": 2.5}, (2.0, 0.5, None)),
    ({"path": "x.wav", "end_s": "2.5", "channel": 1}, (0.0, 2.5, 1)),
    ({"path": "x.wav", "start_s": "", "end_s": None}, (0.0, None, None)),
    ({"audio_filepath": "x.wav", "offset": 2, "duration": 0.5}, (2.0, 0.5, None)),
    ({"audio_filepath": "x.wav", "duration": 0.5}, (0.0, 0.5, None)),
    # Data, and no parts.
    *(({"path": "x.wav", **data}, (0.0, None, None)) for data in (
        {"duration": 0.5}, {"start": 1}, {"offset": 1}, {"start": "noon", "end": "one"},
    )),
])  # fmt: skip
def test_columns_of_parts(tmp_path, columns, part):
    (row,) = rows_of(write_table(tmp_path, columns), label_from="none")
    assert (row.offset_s, row.duration_s, row.channel) == part
    data = {"start", "end", "offset", "duration"} & {*columns}
    assert len(row.columns) == (len(data) if "path" in columns else 0)


@pytest.mark.parametrize("names", [("offset_s", "start_s"), ("duration_s", "end_s")])
def test_two_columns_of_one_meaning(tmp_path, names):
    path = write_table(tmp_path, {"path": "x.wav", **dict.fromkeys(names, 1)})
    with raises(RecipeError, naming=["columns", str(path), *names]):
        rows_of(path, label_from="none")


@pytest.mark.parametrize(("names", "advice"), [
    (("start", "end"), "end_s"), (("Onset", "Offset"), "end_s"),
    (("offset", "duration"), "duration_s"), (("begin_time", "end_time"), "end_s"),
])  # fmt: skip
def test_columns_that_look_like_parts(tmp_path, names, advice):
    path = write_table(tmp_path, {"path": "x.wav", names[0]: 1.5, names[1]: 2})
    with raises(InputError, naming=[str(path), *names, "start_s", advice, "`columns`"]):
        rows_of(path, label_from="none")
    (row,) = rows_of(path, label_from="none", columns=names)
    assert (row.offset_s, row.duration_s, row.columns) == (0.0, None, (1.5, 2))


def test_a_file_of_no_frame_at_the_output_rate_is_named(tmp_path):
    write_sound(tmp_path / "a.wav", RATE // 4)
    _, (reject,) = plan(tmp_path, win_len=1, tail="pad", sample_rate=1)
    assert (reject.filepath, reject.error) == ("a.wav", "EmptyAudio")
    assert "no frame of it is left at 1 Hz" in reject.reason


def test_the_own_manifest_is_an_input(tmp_path):
    write_sound(tmp_path / "a.wav", 8000, seed=1)
    write_sound(tmp_path / "b.wav", 4001, seed=2, channels=2)
    rows = {
        "path": ["a.wav", "a.wav", "b.wav"], "offset_s": [0.1, 0.5, None],
        "duration_s": [0.3, None, None], "kind": ["x", "y", "x"],
        "snr": [1.5, None, 2.5],
    }  # fmt: skip
    pq.write_table(pa.table(rows), tmp_path / "rows.parquet")
    options = {"win_len": 500, "sample_rate": 16000}
    record(tmp_path / "rows.parquet", tmp_path / "out", label_from="kind", **options)
    own = tmp_path / "own.parquet"
    shutil.copy(tmp_path / "out" / "manifest.parquet", own)
    record(own, tmp_path / "again", label_from="class", **options)
    before, after = (Metadata.load(tmp_path / name) for name in ("out", "again"))
    assert [*after.shards()] == [*before.shards()]
    assert after.features == before.features
    tables = [
        pq.read_table(tmp_path / n / "manifest.parquet") for n in ("out", "again")
    ]
    assert str(tables[0].to_pylist()) == str(tables[1].to_pylist())
    # At another rate, parts are the same seconds.
    record(own, tmp_path / "low", label_from="class", win_len=100, sample_rate=4000)
    ends = {e["win_start_idx"] + 100 for e in open_records(tmp_path / "low")}
    assert max(ends) == 2000


@pytest.mark.parametrize(
    "wrong", [{"start": None}, {"sample_rate_hz": 0}, {"frames": "x"}]
)
def test_a_wrong_row_is_named(wrong):
    row = {**dict.fromkeys(manifest_fields(Audio()), 1), "channel": None, **wrong}
    part = PartColumns.of([*row], "path", "x")
    with pytest.raises(ValueError, match=next(iter(wrong))):
        part.read(row)


@given(
    st.integers(0, 10**9), st.integers(1, 10**9), st.sampled_from([8000, 11025, 44100])
)
def test_seconds_of_a_part_give_its_frames(start, frames, rate):
    offset_s, duration_s = part_in_seconds(start, frames, rate, 2 * 10**9 + 1, rate)
    assert seconds_to_frames(offset_s, rate) == start
    assert duration_s is not None
    assert seconds_to_frames(duration_s, rate) == frames


# Columns of lists, of bytes and of large numbers


@pytest.mark.parametrize(("values", "expected"), [
    (["1", "-2", "0"], "int64"), (["1", "2.5"], "float32"), (["1e3", "nan"], "string"),
    (["1", ""], "float32"), (["", ""], "string"), (["007", "8"], "string"),
    (["x", "1"], "string"), ([1, 2], "int64"), ([True, False], "int64"),
    ([1, 2.0], "float32"), ([None, 1.5], "float32"), (["a", None], "string"),
    ([[[1], [2]], [[3]]], "string"), ([{"a": 1}], "string"), ([[1, 2], 3], "string"),
    ([math.nan, "x"], "string"),
    ([None, None], "string"), (["0.1", "1234.567"], "float32"),
    (["1234567.8"], "float64"), ([1561965277.252, None], "float64"),
    ([0.1 + 0.2], "float64"), ([float(np.float32(0.1))], "float32"),
    ([1e39, 1.5], "float64"), ([2**24, 0.5], "float32"), ([2**24 + 1, 0.5], "float64"),
    ([2**24 + 1, 0.5, None], "float64"), ([2**24 + 1, None], "string"),
    ([2.0**25, 1], "float64"), ([1561965277.252, "x"], "string"),
    ([2**63 - 1, -(2**63)], "int64"), ([2**63], "string"), (["1_21", "12_1"], "string"),
    (["\u0663", "1"], "string"),
    ([[1, 2], [3, 4]], ("int64", (2,))), ([[True], [False]], ("int64", (1,))),
    ([[1, 2], [3]], ("int64", (None,))), ([[1, 2], None], ("int64", (None,))),
    ([[2**63 - 1]], ("int64", (1,))), ([[2**63]], ("string", ())),
    ([[1, 2.5]], ("float32", (2,))), ([[1, None]], ("float32", (2,))),
    ([[2**24 + 1, None]], ("float64", (2,))), ([[0.1], [0.1 + 0.2]], ("float64", (1,))),
    ([[], []], ("float32", (None,))), ([[None, math.nan]], ("float32", (2,))),
    ([["1", "2"]], ("string", (2,))), ([["a"], []], ("string", (None,))),
    ([["a", 1]], ("string", ())), ([[b"a"], [b"", b"c"]], ("bytes", (None,))),
    ([b"a", None], ("bytes", ())), ([[[1]]], ("string", ())),
    ([[1], 2], ("string", ())), ([2, [1]], ("string", ())),
    ([["a"], "a"], ("string", ())), ([{"a": [1]}], ("string", ())),
    ([[{"a": 1}]], ("string", ())),
])  # fmt: skip
def test_types_of_columns(tmp_path, values, expected):
    dtype, *shape = (expected,) if isinstance(expected, str) else expected
    path = write_rows([{"path": "x", "v": value} for value in values], str(tmp_path))
    assert column_types([open_table(path)], ["v"])["v"] == ColumnType(dtype, *shape)


def test_what_a_file_declares_of_empty_columns(tmp_path):
    kinds = {
        "number": (pa.float64(), ("float32", ())),
        "whole": (pa.int16(), ("float32", ())),
        "text": (pa.string(), ("string", ())),
        "blob": (pa.binary(), ("bytes", ())),
        "numbers": (pa.list_(pa.float32()), ("float32", (None,))),
        "texts": (pa.list_(pa.string()), ("string", (None,))),
        "blobs": (pa.list_(pa.binary()), ("bytes", (None,))),
        "other": (pa.struct([("a", pa.int8())]), ("string", ())),
    }
    columns = {name: pa.nulls(2, kind) for name, (kind, _) in kinds.items()}
    kinds["nan"] = pa.float32(), ("float32", ())
    columns["nan"] = pa.array([math.nan, None])
    table = pa.table({"path": ["x", "y"], **columns})
    pq.write_table(table, tmp_path / "m.parquet")
    found = column_types([open_table(str(tmp_path / "m.parquet"))], list(kinds))
    assert found == {name: ColumnType(*kind) for name, (_, kind) in kinds.items()}


@pytest.mark.parametrize(("values", "held"), [
    ([1, None, 3], [1, None, 3]), ([0.5, math.nan, 2], [0.5, None, 2.0]),
    ([pd.NA, 3], [None, 3]), (["a", math.nan], ["a", None]),
    ([b"a", None], [b"a", None]), ([Path("x"), 1, True], ["x", "1", "True"]),
    ([[1, 2], [b"a"], 2**70], ["[1, 2]", "[\"b'a'\"]", str(2**70)]),
    ([{"a": 1}, {"b": "ä"}], ['{"a": 1}', '{"b": "ä"}']),
    ([np.float32(0.5), np.int64(2)], [0.5, 2.0]),
    ([np.array([1, 2]), [3]], [[1, 2], [3]]),
    ([np.zeros((1, 2)), None], ["[[0.0, 0.0]]", None]),
    ([datetime(2026, 5, 1, 2), None], ["2026-05-01T02:00:00", None]),
])  # fmt: skip
def test_rows_in_memory_come_back(tmp_path, values, held):
    rows = [{"path": "x", "v": value} for value in values]
    path = write_rows(rows, str(tmp_path))
    assert write_rows(rows, str(tmp_path)) == path
    found = list(read_rows(open_table(path)))
    assert found == [(n, {"path": "x", "v": v}) for n, v in enumerate(held, 1)]


@pytest.mark.parametrize(("value", "kind", "facts"), [
    ([1.5], ("float32", (2,)), ["1 values", "2"]),
    (1.5, ("float32", (2,)), ["1.5", "lists"]),
    (["x"], ("float32", (None,)), ["'x'", "number"]),
    ([1e39], ("float32", (None,)), "1e+39"), ([math.inf], ("float64", (None,)), "inf"),
    ("x", ("bytes", ()), ["'x'", "bytes"]), (b"x", ("string", ()), "bytes"),
    ([2**53 + 1], ("float64", (1,)), [2**53 + 1, 2**53]),
    (-(2**53) - 1, ("float64", ()), -(2**53) - 1),
    (str(2**53 + 1), ("float64", ()), [2**53 + 1, "text"]),
])  # fmt: skip
def test_values_that_a_type_does_not_hold(value, kind, facts):
    with raises(ValueError, naming=facts):
        to_type("v", value, ColumnType(*kind))


@pytest.mark.parametrize("missing", [None, "", math.nan])
@pytest.mark.parametrize(("kind", "expected"), [
    (ColumnType("bytes"), b""), (ColumnType("string"), ""),
    (ColumnType("float64"), math.nan), (ColumnType("int64", (None,)), ()),
    (ColumnType("bytes", (None,)), ()),
])  # fmt: skip
def test_missing_values(missing, kind, expected):
    assert repr(to_type("v", missing, kind)) == repr(expected)


# Whole runs

LISTS = [
    {
        "path": f"a/{k}.wav",
        "embedding": [0.5 + k, math.nan, -1.0],
        "wide": [0.1 + 0.2, 1e300],
        "counts": [2**60, 2, 3][:k],
        "tags": ["x", "y", "z"][: k + 1],
        "pair": ["1", "\u00e9"],
        "blob": [b"text", b"\xff\x00", b""][k],
    }
    for k in range(3)
]
TYPES = {
    "embedding": ("float32", (3,), "float_list"),
    "wide": ("float64", (2,), "raw"),
    "counts": ("int64", (None,), "int64_list"),
    "tags": ("string", (None,), "bytes_list"),
    "pair": ("string", (2,), "bytes_list"),
    "blob": ("bytes", (), "bytes_list"),
}
OPTIONS: dict[str, Any] = {
    "win_len": 500, "order": "listed", "label_from": "none", "workers": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def lists(tmp_path_factory):
    folder: Path = tmp_path_factory.mktemp("lists")
    for k in range(3):
        write_sound(folder / f"a/{k}.wav", 1000, seed=k)
    pq.write_table(pa.Table.from_pylist(LISTS), folder / "m.parquet")
    record(folder / "m.parquet", folder / "out", **OPTIONS)
    return folder


def assert_holds(found, k):
    for name, (dtype, _, _) in TYPES.items():
        meant, value = LISTS[k][name], found[name]
        if dtype == "bytes":
            assert (type(value), value) == (bytes, meant)
        else:
            is_text = dtype == "string"
            assert value.dtype == (object if is_text else dtype)
            np.testing.assert_array_equal(value, np.array(meant, value.dtype))


@pytest.mark.parametrize("kind", ["avro", "dicts", "pandas", "arrow", "own"])
def test_all_tables_give_the_same_bytes(lists, tmp_path, kind, monkeypatch):
    monkeypatch.chdir(lists)
    kinds = {"embedding": "double", "wide": "double", "counts": "long"}
    of_avro: Any = {
        name: {"type": "array", "items": kinds.get(name, "string")} for name in TYPES
    }
    (lists / "m.avro").write_bytes(avro(LISTS, **{**of_avro, "blob": "bytes"}))
    shutil.copy(lists / "out/manifest.parquet", lists / "own.parquet")
    source = {
        "avro": lists / "m.avro", "dicts": LISTS, "pandas": pd.DataFrame(LISTS),
        "arrow": pa.Table.from_pylist(LISTS),
        "own": lists / "own.parquet",
    }[kind]  # fmt: skip
    record(source, tmp_path / "out", **OPTIONS)
    assert contents(tmp_path / "out") == contents(lists / "out")


def test_every_example_holds_the_values_of_its_row(lists):
    records = open_records(lists / "out")
    for name, (dtype, shape, encoding) in TYPES.items():
        spec = records.features[name]
        assert (spec.dtype, spec.shape, spec.encoding) == (dtype, shape, encoding)
    for i, found in enumerate(records):
        assert_holds(found, i // 2)
    batch = records.read([0, 2, 4])
    for k in range(3):
        assert_holds({name: batch[name][k] for name in TYPES}, k)
    assert verify(lists / "out", deep=True, input=lists / "m.parquet") == []


def test_tables_hold_lists_and_bytes(lists, capsys):
    manifest = pq.read_table(lists / "out/manifest.parquet")
    assert manifest.schema.field("embedding").type == pa.list_(pa.float64())
    assert manifest.schema.field("blob").type == pa.binary()
    assert manifest["counts"].to_pylist() == [row["counts"] for row in LISTS]
    table = window_table(lists / "out")
    assert table["tags"].to_pylist() == [row["tags"] for row in LISTS for _ in range(2)]
    assert table["blob"].to_pylist()[-1] is None
    assert main(["windows", str(lists / "out"), "--csv"]) == 0
    lines = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert json.loads(lines[2]["counts"]) == LISTS[1]["counts"]
    assert (lines[2]["blob"], lines[4]["blob"]) == (r"b'\xff\x00'", "")
    with raises(OptionError, naming=["embedding", "parquet"]):
        write_clean_manifest(lists / "out", lists / "clean.csv", lists / "m.parquet")
    write_clean_manifest(lists / "out", lists / "clean.parquet", lists / "m.parquet")
    clean = pq.read_table(lists / "clean.parquet")
    assert clean["blob"].to_pylist() == [row["blob"] for row in LISTS]


@settings(max_examples=40)
@given(
    st.lists(st.floats() | st.integers(-(2**70), 2**70) | st.text() | st.none()),
    st.sampled_from(["int64", "float32", "float64", "string"]),
)
def test_a_list_is_converted_as_its_entries(values, dtype):
    try:
        expected = [to_type("v", value, ColumnType(dtype)) for value in values]
    except ValueError:
        with pytest.raises(ValueError, match="column v"):
            to_type("v", values, ColumnType(dtype, (None,)))
        return
    found = to_type("v", values, ColumnType(dtype, (None,)))
    assert str(list(found)) == str(expected)
