"""Clips that are too short or too long: left out and counted, padded, or rejected."""

import json
import shutil
from pathlib import Path

import jsonschema
import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile

import beam_pipeline
from beam_pipeline import Metadata, open_records, plan, record, verify
from beam_pipeline.errors import InputError, TooManyRejected
from beam_pipeline.read.window_table import window_table
from tests.raising import raises
from tests.sounds import write_sound

# Name -> frames; a second has 8000, and a window 4000.
SOUNDS = {
    "cat/tiny.wav": 1000,
    "cat/half.wav": 4000,
    "cat/one.wav": 8000,
    "dog/less.wav": 3999,
    "dog/two.wav": 16000,
    "dog/more.wav": 16001,
    "owl/long.wav": 40000,
}
SCHEMA = json.loads(
    (Path(beam_pipeline.__file__).parent / "dataset/metadata.schema.json").read_text()
)


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lengths") / "sounds"
    for number, (name, frames) in enumerate(SOUNDS.items()):
        write_sound(folder / name, frames, seed=number)
    return folder


def recorded(output):
    """The number of examples of each file."""
    table = window_table(output)
    paths = table.filter(table["left_out"].is_null())["path"].to_pylist()
    return {path: paths.count(path) for path in sorted({*paths})}


def test_clips_outside_of_the_limits_are_left_out_and_counted(sounds, tmp_path, cli):
    limits = {"win_len": 4000, "min_seconds": 0.5, "max_seconds": 2}
    metadata = record(sounds, tmp_path / "out", **limits)
    assert recorded(tmp_path / "out") == {
        "cat/half.wav": 1, "cat/one.wav": 2, "dog/two.wav": 4,
    }  # fmt: skip
    assert metadata.left_out == {"too_short": 2, "too_long": 2}
    assert (metadata.clips, metadata.rejected) == (7, 0)
    assert (tmp_path / "out/rejected.jsonl").read_bytes() == b""
    # Only clips that are left out are owls.
    assert metadata.classes == ("cat", "dog")
    jsonschema.validate(
        json.loads((tmp_path / "out/metadata.json").read_text()), SCHEMA
    )
    assert Metadata.load(tmp_path / "out") == metadata
    manifest = pq.read_table(tmp_path / "out/manifest.parquet").to_pydict()
    left_out = {
        path: frames
        for path, frames, windows in zip(
            manifest["path"], manifest["frames"], manifest["windows"], strict=True
        )
        if not windows
    }
    assert left_out == {
        name: SOUNDS[name]
        for name in ("cat/tiny.wav", "dog/less.wav", "dog/more.wav", "owl/long.wav")
    }
    assert verify(tmp_path / "out", deep=True, input=sounds) == []
    said = cli("windows", tmp_path / "out").out
    assert "clips left out: 2 too short, 2 too long" in said


@pytest.mark.parametrize("command", ["plan", "record"])
def test_the_command_counts_them_and_ends_well(command, sounds, tmp_path, cli):
    output = ["--output", tmp_path / "out"] if command == "record" else []
    flags = ["--win-seconds", 1, "--max-seconds", 2]
    said = cli(command, "--input", sounds, *output, *flags)
    assert "7 clips, 0 rejected, 3 too short, 2 too long;" in said.out
    (line,) = [line for line in said.out.splitlines() if "left out:" in line]
    assert set(line.partition(": ")[2].split(", ")) == set(SOUNDS) - {
        "cat/one.wav", "dog/two.wav",
    }  # fmt: skip
    assert "--short-clips pad" in said.out


def test_the_first_clip_that_is_tried_has_a_window(tmp_path):
    """A short one of a low rate does not refuse a band that all others have."""
    write_sound(tmp_path / "in/a/0.wav", 100, rate=4000)
    write_sound(tmp_path / "in/a/1.wav", 16000, rate=16000)
    features = {"mel": "log_mel(f_max=8000)"}
    found, rejects = plan(tmp_path / "in", win_len=4000, features=features)
    assert (found.left_out, len(rejects)) == ({"too_short": 1}, 0)


@pytest.mark.parametrize("tail", ["drop", "pad", "overlap"])
def test_a_short_clip_is_padded_whatever_becomes_of_tails(tail, sounds, tmp_path):
    record(
        sounds, tmp_path / "out", win_len=8000, tail=tail, short_clips="pad",
        max_seconds=2.001,
    )  # fmt: skip
    records = open_records(tmp_path / "out")
    (example,) = records.of_clip("dog/less.wav")
    samples, _ = soundfile.read(sounds / "dog/less.wav", dtype="float32")
    np.testing.assert_array_equal(example["signal"][:3999], samples)
    assert not example["signal"][3999:].any()
    assert len(records.of_clip("dog/more.wav")) == {"drop": 2}.get(tail, 3)
    assert verify(tmp_path / "out", deep=True, input=sounds) == []


def test_short_clips_can_be_rejected_where_tails_are_padded(sounds):
    _, rejects = plan(sounds, win_len=4000, tail="pad", short_clips="reject")
    assert [(r.filepath, r.error) for r in rejects] == [
        ("cat/tiny.wav", "ShortClip"), ("dog/less.wav", "ShortClip"),
    ]  # fmt: skip


def test_a_clip_below_the_least_length_is_no_reject(sounds):
    """It is shorter than a window, too: leaving it out was asked for."""
    found, rejects = plan(sounds, win_len=8000, min_seconds=0.25, short_clips="reject")
    assert [r.filepath for r in rejects] == ["cat/half.wav", "dog/less.wav"]
    assert found.left_out == {"too_short": 1}


@pytest.mark.filterwarnings("error")
def test_no_clip_is_left(sounds, tmp_path):
    with raises(InputError, naming=["7 clips", "7 too short", "--min-seconds"]):
        record(sounds, tmp_path / "out", win_len=4000, min_seconds=60)
    (tmp_path / "in").mkdir()
    shutil.copy(sounds / "cat/tiny.wav", tmp_path / "in/a.wav")
    (tmp_path / "in/b.wav").write_bytes(b"no audio")
    with raises(TooManyRejected, naming=["b.wav", "1 too short"]):
        record(
            tmp_path / "in", tmp_path / "o", win_len=4000, min_seconds=60,
            max_rejected="100%", label_from="none",
        )  # fmt: skip
