"""recipe_file.py: what a file may hold, and the errors for the rest."""

import json

import pytest

from beam_pipeline.errors import InputError, RecipeError
from beam_pipeline.recipe.canonical import read_recipe
from tests.raising import raises


def read(folder, text):
    (folder / "r.yaml").write_text(text)
    return read_recipe(str(folder / "r.yaml"))


def test_yaml_and_json_with_names_of_flags_or_fields(tmp_path):
    wanted = {
        "win_seconds": 1.0,
        "hop": None,
        "shard_bytes": 1 << 20,
        "channels": 0,
        "keep": "energy()",
        "features": {"x": "rms()", "y": "lufs()"},
        "encodings": {"x": "raw"},
    }
    text = (
        "win-seconds: 1\nhop: ~\nshard_bytes: 1MiB\nchannels: '0'\nkeep: energy()\n"
        "features:\n  x: rms()\n  y: lufs()\nencodings: {x: raw}\n"
    )
    assert read(tmp_path, text) == wanted
    assert read(tmp_path, json.dumps(wanted)) == wanted
    assert read(tmp_path, "features: &f {x: rms()}\n") == {"features": {"x": "rms()"}}


@pytest.mark.parametrize(("text", "facts"), [
    ("features: {x: rms(), x: lufs()}\n", ["x", "line 1"]),
    ('{"hop": 1,\n"hop": 2}', ["hop", "line 2"]),
    ("win-seconds: 1\nwin_seconds: 0.3\n", ["win-seconds", "win_seconds"]),
    ("win-second: 1\n", ["win-second", "win-seconds"]),
    ("win_second: 1\n", ["win_second", "win_seconds"]),
    ("featurs: {x: rms()}\n", ["featurs", "features"]),
    ("feature: {x: rms()}\nfeatures: {}\n", ["feature", "features"]),
    ("split_moves: ''\n", ["split_moves"]),
    ("windows: {}\n", ["windows", "windows_at"]), ("zzz: 1\n", ["zzz"]),
    ("1: 1\n", ["1"]),
    # Files that hold no recipe.
    ("", ["None"]), ("- 1", ["['1']"]), ("{", ["YAML", "JSON"]),
    ("? [a]\n: 1\n? {b: 1}\n: 2\n", ["YAML", "JSON"]), ("a: &a [*a]\n", ["a"]),
    ("format_version: 1\n", ["format_version"]),
    ("win_len: 1\n---\nwin_len: 2\n", ["YAML", "JSON"]),
])  # fmt: skip
def test_files_that_are_refused(tmp_path, text, facts):
    with raises(InputError, naming=[f"{tmp_path}/r.yaml", *facts]):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "name", "facts"),
    [
        ("features: log_mel()", "features", ["'log_mel()'"]),
        ("features:", "features", ["''"]),
        ("features: {x: {log_mel: {n_mels: 3}}}", "features: x",
         ["{'log_mel': {'n_mels': '3'}}"]),
        ("encodings: {x: 3}", "encodings: x", ["'3'"]),
        ("augment: [noise(), speed()]", "augment", ["['noise()', 'speed()']"]),
        ("shard-bytes: many", "shard_bytes", ["'many'"]),
        ("win-seconds: long", "win_seconds", ["'long'"]),
    ],
)  # fmt: skip
def test_values_that_are_refused(tmp_path, text, name, facts):
    with raises(RecipeError, f"{tmp_path}/r.yaml: {name}", naming=facts):
        read(tmp_path, text)


def test_places_without_a_file(tmp_path):
    with raises(InputError, naming=tmp_path / "gone"):
        read_recipe(str(tmp_path / "gone"))
    with raises(InputError, naming=[tmp_path, "folder", "metadata.json"]):
        read_recipe(str(tmp_path))


def test_names_in_a_list_are_text(tmp_path):
    text = (
        "classes: [yes, no, 007, 010, 2.50, 1:30, ~]\ngroup-by: [1, on]\nhop: 010\n"
        "features: {on: rms()}\n"
    )
    assert read(tmp_path, text) == {
        "classes": "yes,no,007,010,2.50,1:30,~",
        "group_by": "1,on",
        "hop": 10,
        "features": {"on": "rms()"},
    }
