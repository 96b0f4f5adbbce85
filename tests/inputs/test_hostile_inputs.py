"""Recipes, tables and sounds that are crafted: errors of ours, no code, few bytes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_pipeline import plan
from beam_pipeline.errors import AudioTFRecordsError, InputError, RecipeError
from beam_pipeline.inputs.table_files import open_table, read_rows
from beam_pipeline.recipe.canonical import read_recipe
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.text import shown
from beam_pipeline.transforms.steps import parse_transform
from tests.raising import raises
from tests.sounds import write_sound


class Doer:
    """No step, but making one does something."""

    def __init__(self, path):
        Path(path).touch()


def laughs(levels):
    """A value of nine to the power of ``levels`` parts, in YAML."""
    lines = ["classes: &a0 [lol]", "features:"]
    for k in range(1, levels):
        lines.append(f"  x{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]")
    return "\n".join(lines)


@pytest.mark.parametrize("text", [
    "!!python/object/apply:os.system ['touch PWNED']", laughs(9), "- " + "[" * 10**5,
    "win-len: " + "{a: " * 3000 + "1" + "}" * 3000, "win-len: " + "9" * 10**5,
    "features: &a {x: *a}", "\x00",
], ids=range(7))  # fmt: skip
def test_crafted_recipes(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with raises(AudioTFRecordsError, naming=path) as caught:
        read_recipe(str(path))
    assert len(str(caught.value)) < 2500
    assert not Path("PWNED").exists()


def test_a_value_that_holds_itself_many_times_is_not_written_out():
    value: Any = "lol"
    for _ in range(40):
        value = [value] * 9
    error = RecipeError("features", "must be text", {"x": value})
    assert len(str(error)) < 2000, error
    assert shown({"b": [1, 2], "a": ("x",)}, 1000) == "{'b': [1, 2], 'a': ('x',)}"
    assert shown("x" * 998, 1000) == repr("x" * 998)
    assert shown("x" * 999, 1000) == "'" + "x" * 996 + "..."
    assert shown(list(range(100)), 1000) == repr(list(range(100)))


@pytest.mark.parametrize("text", [
    "__import__('os')", "os.system(command='touch PWNED')", "os.system",
    "subprocess.Popen(args='touch PWNED',shell=True)",
    "beam_pipeline.audio.decoder.os.system", "xml.etree.ElementTree.ElementTree",
    "tests.inputs.test_hostile_inputs.Doer(path='PWNED')",
    "log_mel(n_mels=" + "(" * 5000, "log_mel(n_mels=" + "-" * 5000 + "1)",
    "log_mel(" + ")" * 5000, "log_mel(n_mels=9**9**9)",
    "log_mel(n_mels=[x for x in ()])", "peak_gain|" * 2000 + "peak_gain",
])  # fmt: skip
def test_crafted_expressions(tmp_path, monkeypatch, text):
    monkeypatch.chdir(tmp_path)
    with raises(RecipeError, naming="feature") as caught:
        parse_transform(text)
    assert len(str(caught.value)) < 2000
    assert not Path("PWNED").exists()


@pytest.mark.parametrize(("suffix", "text"), [
    ("csv", "path,x\nx.wav," + "y" * 200_000),
    ("csv", 'path,x\nx.wav,"' + "y\n" * 100_000),
    ("jsonl", '{"path":"x.wav","a":' + "[" * 10**5),
    ("jsonl", '{"path":"x.wav","a":' + "1" * 10**5 + "}"),
], ids=range(4))  # fmt: skip
def test_crafted_tables(tmp_path, suffix, text):
    path = tmp_path / f"clips.{suffix}"
    path.write_text(text + "\n")
    with raises(InputError, naming=[path, "line"]):
        list(read_rows(open_table(str(path))))


def test_a_table_that_ends_early(tmp_path):
    path = tmp_path / "clips.parquet"
    pq.write_table(pa.table({"path": ["a", "b"], "n": [1, None]}), path)
    path.write_bytes(path.read_bytes()[:-9])
    with raises(InputError, naming=path):
        open_table(str(path))


@pytest.mark.parametrize("path", ["s3://key:SECRET@b/x.wav", "gs://b/x?sig=SECRET"])
def test_rows_with_credentials_are_rejected(tmp_path, path):
    write_sound(tmp_path / "a.wav", 500)
    rows = [{"path": str(tmp_path / "a.wav")}, {"path": path}]
    _, rejects = plan(rows, win_len=500, label_from="none")
    (reject,) = rejects
    assert "SECRET" not in str(reject)
    assert "credentials" in reject.reason
    for call in (plan, Recipe):
        with pytest.raises(AudioTFRecordsError) as caught:
            call(path, win_len=500) if call is plan else read_recipe(path)
        assert "SECRET" not in str(caught.value)
