"""Columns of lists, of bytes and of large numbers: their types, and in whole runs."""

from __future__ import annotations

import csv
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
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline import open_records, record, verify
from beam_pipeline.cli.main import main
from beam_pipeline.errors import OptionError
from beam_pipeline.inputs.table_files import (
    ColumnType,
    column_types,
    open_table,
    read_rows,
    write_rows,
)
from beam_pipeline.inputs.table_files import convert as to_type
from beam_pipeline.read.audit import write_clean_manifest
from beam_pipeline.read.window_table import window_table
from tests.raising import raises
from tests.sounds import write_sound


def typed(tmp_path, values):
    """Returns the type of a column of values in memory."""
    path = write_rows([{"path": "x", "v": value} for value in values], str(tmp_path))
    return column_types([open_table(path)], ["v"])["v"]


@pytest.mark.parametrize(("values", "expected"), [
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
def test_types_of_lists_and_bytes(tmp_path, values, expected):
    assert typed(tmp_path, values) == ColumnType(*expected)


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
    table = pa.table({"path": ["x", "y"], **columns})
    pq.write_table(table, tmp_path / "m.parquet")
    found = column_types([open_table(str(tmp_path / "m.parquet"))], list(kinds))
    assert found == {name: ColumnType(*kind) for name, (_, kind) in kinds.items()}
    frames = (
        (table, ("number", "whole")),
        (pd.DataFrame({"path": ["x"], "number": [math.nan]}), ("number",)),
        (
            pd.DataFrame({"path": ["x"], "number": pd.array([None], "Int64")}),
            ("number",),
        ),
    )
    for frame, names in frames:
        path = write_rows(frame, str(tmp_path))
        for name in names:
            assert column_types([open_table(path)], [name])[name] == ("float32", ())


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

ROWS = [
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
def corpus(tmp_path_factory):
    folder: Path = tmp_path_factory.mktemp("lists")
    for k in range(3):
        write_sound(folder / f"a/{k}.wav", 1000, seed=k)
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "m.parquet")
    record(folder / "m.parquet", folder / "out", **OPTIONS)
    return folder


def data_bytes(folder):
    names = ("metadata.json", "manifest.parquet", "schema.pbtxt")
    shards = sorted(path.name for path in folder.glob("*.gz"))
    return {name: (folder / name).read_bytes() for name in (*names, *shards)}


def assert_holds(found, k):
    for name, (dtype, _, _) in TYPES.items():
        meant, value = ROWS[k][name], found[name]
        if dtype == "bytes":
            assert (type(value), value) == (bytes, meant)
        else:
            is_text = dtype == "string"
            assert value.dtype == (object if is_text else dtype)
            np.testing.assert_array_equal(value, np.array(meant, value.dtype))


def write_avro(path):
    kinds = {"embedding": "double", "wide": "double", "counts": "long"}
    fields: list[Any] = [
        {"name": name, "type": {"type": "array", "items": kinds.get(name, "string")}}
        for name in TYPES
        if name != "blob"
    ]
    fields += [{"name": "path", "type": "string"}, {"name": "blob", "type": "bytes"}]
    order = list(ROWS[0])
    fields.sort(key=lambda field: order.index(field["name"]))
    schema = {"type": "record", "name": "Clip", "fields": fields}
    with path.open("wb") as file:
        fastavro.writer(file, fastavro.parse_schema(schema), ROWS, "deflate")


@pytest.mark.parametrize("kind", ["avro", "dicts", "pandas", "arrow", "own"])
def test_all_tables_give_the_same_bytes(corpus, tmp_path, kind, monkeypatch):
    monkeypatch.chdir(corpus)
    write_avro(corpus / "m.avro")
    shutil.copy(corpus / "out/manifest.parquet", corpus / "own.parquet")
    source = {
        "avro": corpus / "m.avro", "dicts": ROWS, "pandas": pd.DataFrame(ROWS),
        "arrow": pa.Table.from_pylist(ROWS),
        "own": corpus / "own.parquet",
    }[kind]  # fmt: skip
    record(source, tmp_path / "out", **OPTIONS)
    assert data_bytes(tmp_path / "out") == data_bytes(corpus / "out")


def test_every_example_holds_the_values_of_its_row(corpus):
    records = open_records(corpus / "out")
    for name, (dtype, shape, encoding) in TYPES.items():
        spec = records.features[name]
        assert (spec.dtype, spec.shape, spec.encoding) == (dtype, shape, encoding)
    for i, found in enumerate(records):
        assert_holds(found, i // 2)
    batch = records.read([0, 2, 4])
    for k in range(3):
        assert_holds({name: batch[name][k] for name in TYPES}, k)
    assert verify(corpus / "out", deep=True, input=corpus / "m.parquet") == []


def test_tables_hold_lists_and_bytes(corpus, capsys):
    manifest = pq.read_table(corpus / "out/manifest.parquet")
    assert manifest.schema.field("embedding").type == pa.list_(pa.float64())
    assert manifest.schema.field("blob").type == pa.binary()
    assert manifest["counts"].to_pylist() == [row["counts"] for row in ROWS]
    table = window_table(corpus / "out")
    assert table["tags"].to_pylist() == [row["tags"] for row in ROWS for _ in range(2)]
    assert table["blob"].to_pylist()[-1] is None
    assert main(["windows", str(corpus / "out"), "--csv"]) == 0
    lines = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert json.loads(lines[2]["counts"]) == ROWS[1]["counts"]
    assert (lines[2]["blob"], lines[4]["blob"]) == (r"b'\xff\x00'", "")
    with raises(OptionError, naming=["embedding", "parquet"]):
        write_clean_manifest(corpus / "out", corpus / "clean.csv", corpus / "m.parquet")
    write_clean_manifest(corpus / "out", corpus / "clean.parquet", corpus / "m.parquet")
    clean = pq.read_table(corpus / "clean.parquet")
    assert clean["blob"].to_pylist() == [row["blob"] for row in ROWS]


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
