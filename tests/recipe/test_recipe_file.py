"""recipe_files.py: what stands in a file, and what is said of what cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from beam_pipeline.cli.main import main
from beam_pipeline.errors import InputError, RecipeError
from beam_pipeline.recipe.recipe import Recipe, recipe_options
from beam_pipeline.recipe.recipe_file import read_recipe
from tests.sounds import write_sound


def read(folder: Path, text: str) -> dict:
    (folder / "r.yaml").write_text(text)
    return read_recipe(str(folder / "r.yaml"))


def test_yaml_and_json_with_names_of_flags_or_fields(tmp_path: Path) -> None:
    wanted = {
        "win_seconds": 1,
        "shard_bytes": 1 << 20,
        "channels": 0,
        "keep": "energy()",
        "features": {"x": "rms()", "y": "lufs()"},
    }
    text = (
        "win-seconds: 1\nshard_bytes: 1MiB\nchannels: '0'\nkeep: energy()\n"
        "features:\n  x: rms()\n  y: lufs()\n"
    )
    assert read(tmp_path, text) == wanted
    assert read(tmp_path, json.dumps(wanted)) == wanted
    assert read(tmp_path, "features: &f {x: rms()}\n") == {"features": {"x": "rms()"}}


def test_every_field_that_a_data_set_stores_is_read(tmp_path: Path) -> None:
    recipe = Recipe(win_len=5, features={"x": "rms()"})
    values = {"format_version": 1, "recipe": recipe.to_json()}
    read_back = read(tmp_path, json.dumps(values, indent=1))
    assert list(read_back) == list(recipe_options())
    assert Recipe(**read_back) == recipe


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("features: {x: rms(), x: lufs()}\n", "x stands there twice, in lines 1 and 1"),
        ("hop: 5\nwin_len: 1\nhop: 5\n", "hop stands there twice, in lines 1 and 3"),
        ('{"hop": 1,\n"hop": 2}', "hop stands there twice, in lines 1 and 2"),
        ("win-seconds: 1\nwin_seconds: 0.3\n", "win-seconds and win_seconds are the"),
        ("win-second: 1\n", "no field win-second. Did you mean win-seconds?"),
        ("win_second: 1\n", "no field win_second. Did you mean win_seconds?"),
        ("feature: {x: rms()}\n", "no field feature. Did you mean features?"),
        ("zzz: 1\n", "no field zzz. The recipe in audio-tfrecords record --help"),
        ("1: 1\n", "no field 1. The recipe in audio-tfrecords record --help"),
    ],
)
def test_names_that_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError) as raised:
        read(tmp_path, text)
    assert str(raised.value).startswith(f"{tmp_path}/r.yaml: ")
    assert problem in str(raised.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("features: log_mel()", "features: must be names with transforms, like {mel: "
         "log_mel()}; got 'log_mel()'"),
        ("features: [log_mel()]", "features: must be names with transforms"),
        ("features:", "features: must be names with transforms"),
        ("features: {x: {log_mel: {n_mels: 3}}}", "features: x: must be text, like "
         "log_mel(n_mels=64); got {'log_mel': {'n_mels': 3}}"),
        ("features:\n  x:\n", "features: x: must be text, like log_mel(n_mels=64)"),
        ("features: {on: rms(), x: rms()}", "features: a name must be text; quote it; "
         "got True"),
        ("keep: true", "keep: must be text, like energy(above_db=-50), with | between"),
        ("augment: [noise(), speed()]", "augment: must be text, like random_gain()|"),
        ("stream: 5", "stream: must be text, like high_pass(cutoff_hz=50), with |"),
        ("shard-bytes: many", "shard_bytes: must look like 128MiB"),
    ],
)  # fmt: skip
def test_values_that_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(RecipeError) as raised:
        read(tmp_path, text)
    assert str(raised.value).startswith(f"{tmp_path}/r.yaml: {problem}")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "holds no recipe, but NoneType"),
        ("- 1", "holds no recipe, but list"),
        ("{", "is neither YAML nor JSON"),
        ("? [a]\n: 1\n? {b: 1}\n: 2\n", "is neither YAML nor JSON"),
        ("a: &a [*a]\n", "has no field a"),
        ("format_version: 1\n", "holds no recipe, but NoneType"),
        ("win_len: 1\n---\nwin_len: 2\n", "is neither YAML nor JSON"),
    ],
)
def test_files_that_hold_no_recipe(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read(tmp_path, text)
    with pytest.raises(InputError, match=r"gone: there is no such file"):
        read_recipe(str(tmp_path / "gone"))


def test_an_error_in_a_file_ends_the_command_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_sound(tmp_path / "in" / "a" / "x.wav", 500)
    path = tmp_path / "r.yaml"
    path.write_text("features: log_mel()\n")
    arguments = f"plan --input {tmp_path}/in --win-len 500 --recipe {path}".split()
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"audio-tfrecords: {path}: features: must be names")
