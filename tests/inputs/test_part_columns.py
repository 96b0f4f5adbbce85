"""Columns that say which part of its file a clip is."""

import json

import numpy as np
import pytest

from beam_pipeline import open_records, plan, record
from beam_pipeline.errors import InputError, RecipeError
from beam_pipeline.inputs.listing import Listing, survey
from beam_pipeline.inputs.sources import resolve_inputs
from beam_pipeline.recipe.recipe import Recipe
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


@pytest.mark.runs
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
