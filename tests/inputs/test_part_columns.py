"""Columns that say which part of its file a clip is; a data set's own manifest."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline import Metadata, open_records, plan, record
from beam_pipeline.dataset.tables import manifest_fields
from beam_pipeline.errors import InputError, RecipeError
from beam_pipeline.inputs.columns import PartColumns, part_in_seconds
from beam_pipeline.inputs.listing import Listing, survey
from beam_pipeline.inputs.sources import resolve_inputs
from beam_pipeline.recipe.recipe import Audio, Recipe
from beam_pipeline.transforms.base import seconds_to_frames
from tests.raising import raises
from tests.sounds import RATE, write_sound


def write_table(folder, *rows):
    path = folder / "m.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(path, **options):
    recipe = Recipe(win_len=1, label_from="none", **options)
    return list(Listing(survey(resolve_inputs([str(path)]), recipe), recipe).rows())


@pytest.mark.parametrize(("columns", "part"), [
    ({"path": "x.wav"}, (0.0, None, None)),
    ({"path": "x.wav", "offset_s": 2, "duration_s": 0.5}, (2.0, 0.5, None)),
    ({"path": "x.wav", "start_s": 2, "duration_s": ""}, (2.0, None, None)),
    ({"path": "x.wav", "start_s": 2, "end_s": 2.5}, (2.0, 0.5, None)),
    ({"path": "x.wav", "end_s": "2.5", "channel": 1}, (0.0, 2.5, 1)),
    ({"path": "x.wav", "start_s": "", "end_s": None}, (0.0, None, None)),
    ({"audio_filepath": "x.wav", "offset": 2, "duration": 0.5}, (2.0, 0.5, None)),
    ({"audio_filepath": "x.wav", "duration": 0.5}, (0.0, 0.5, None)),
    ({"path": "x.wav", "duration": 0.5}, (0.0, None, None)),
])  # fmt: skip
def test_columns_of_parts(tmp_path, columns, part):
    (row,) = rows_of(write_table(tmp_path, columns))
    assert (row.offset_s, row.duration_s, row.channel) == part
    is_data = columns.get("duration") and "path" in columns
    assert row.columns == ((0.5,) if is_data else ())


@pytest.mark.parametrize("names", [("offset_s", "start_s"), ("duration_s", "end_s")])
def test_two_columns_of_one_meaning(tmp_path, names):
    path = write_table(tmp_path, {"path": "x.wav", **dict.fromkeys(names, 1)})
    with raises(RecipeError, naming=["columns", str(path), *names]):
        rows_of(path)


@pytest.mark.parametrize(("names", "advice"), [
    (("start", "end"), "end_s"), (("Onset", "Offset"), "end_s"),
    (("offset", "duration"), "duration_s"), (("begin_time", "end_time"), "end_s"),
])  # fmt: skip
def test_columns_that_look_like_parts(tmp_path, names, advice):
    path = write_table(tmp_path, {"path": "x.wav", names[0]: 1.5, names[1]: 2})
    with raises(InputError, naming=[str(path), *names, "start_s", advice, "`columns`"]):
        rows_of(path)
    (row,) = rows_of(path, columns=names)
    assert (row.offset_s, row.duration_s, row.columns) == (0.0, None, (1.5, 2))


@pytest.mark.parametrize("columns", [
    {"start": "noon", "end": "one"}, {"start": 1}, {"offset": 1}, {"duration": 2},
])  # fmt: skip
def test_columns_that_do_not(tmp_path, columns):
    (row,) = rows_of(write_table(tmp_path, {"path": "x.wav", **columns}))
    assert len(row.columns) == len(columns)


def test_a_manifest_of_nemo(tmp_path):
    samples = write_sound(tmp_path / "x.wav", 4 * RATE)
    path = write_table(
        tmp_path,
        {"audio_filepath": "x.wav", "offset": 1, "duration": 1, "text": "one"},
        {"audio_filepath": "x.wav", "offset": 2.5, "duration": 1, "text": "two"},
    )
    record(
        str(path), tmp_path / "out", win_seconds=1, label_from="none", order="listed"
    )
    records = open_records(tmp_path / "out")
    assert [example["text"] for example in records] == ["one", "two"]
    for example, start in zip(records, (RATE, 2.5 * RATE), strict=True):
        wanted = samples[int(start) : int(start) + RATE]
        np.testing.assert_array_equal(example["signal"], wanted)


def test_a_file_of_no_frame_at_the_output_rate_is_named(tmp_path):
    write_sound(tmp_path / "a.wav", RATE // 4)
    _, (reject,) = plan(tmp_path, win_len=1, tail="pad", sample_rate=1)
    assert (reject.filepath, reject.error) == ("a.wav", "EmptyAudio")
    assert "no frame of it is left at 1 Hz" in reject.reason


def test_the_own_manifest_is_an_input(tmp_path):
    write_sound(tmp_path / "a.wav", 8000, seed=1)
    write_sound(tmp_path / "b.wav", 4001, seed=2, channels=2)
    names = ("path", "offset_s", "duration_s", "kind", "snr")
    values = [
        ("a.wav", 0.1, 0.3, "x", 1.5),
        ("a.wav", 0.5, None, "y", None),
        ("b.wav", None, None, "x", 2.5),
    ]
    rows = [dict(zip(names, row, strict=True)) for row in values]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
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
