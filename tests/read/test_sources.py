"""Where examples come from: the same samples, cut out of the file by other tools."""

from __future__ import annotations

import csv
import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile

from beam_pipeline import open_records, record, record_examples, verify
from beam_pipeline.cli.main import main
from beam_pipeline.errors import InputError
from beam_pipeline.read.table import window_table
from tests.raising import raises
from tests.sounds import RATE, write_sound

pytestmark = pytest.mark.runs


@pytest.fixture(scope="module")
def sounds(tmp_path_factory: Any) -> Path:
    folder: Path = tmp_path_factory.mktemp("sources") / "in"
    write_sound(folder / "a/one.wav", 1700, seed=1)
    write_sound(folder / "b/two.flac", 2100, channels=2, seed=2)
    write_sound(folder / "b/three.wav", 900, channels=2, seed=3, subtype="PCM_24")
    return folder


def cut(source: Any, length: int) -> Any:
    """Returns what soundfile reads at the told place, padded with zeros."""
    samples, rate = soundfile.read(
        source.file, source.frames, source.first_frame, dtype="float32", always_2d=True
    )
    assert rate == source.sample_rate_hz
    assert samples.shape == (source.frames, source.channels)
    assert source.first_frame / rate == pytest.approx(source.start_s, abs=1e-12)
    assert (source.first_frame + source.frames) / rate == pytest.approx(source.end_s)
    channel = samples[:, 0]
    if source.channel is not None:
        channel = samples[:, source.channel]
    elif source.channels == 2:
        channel = (samples[:, 0] + samples[:, 1]) / np.float32(2)
    return np.pad(channel, (0, length - len(channel)))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tail": "pad", "hop": 170},
        {"tail": "overlap", "order": "listed"},
        {"random_starts": True, "max_windows": 2},
        {"hash_files": True, "keep": "energy(above_db=-10.85)", "hop": 100},
    ],
)
def test_the_samples_at_the_told_place_are_those_of_the_example(
    sounds: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    record(sounds, tmp_path / "out", win_len=400, label_from="none", **options)
    records = open_records(tmp_path / "out")
    assert len(records) > 5
    for i, found in enumerate(records):
        source = records.source(i, input=sounds)
        assert source.path == found["filepath"]
        np.testing.assert_array_equal(found["signal"], cut(source, 400))
        digest = None
        if "hash_files" in options:
            digest = hashlib.sha256((sounds / source.path).read_bytes()).hexdigest()
        assert (source.sha256, source.copy, source.input) == (digest, 0, 0)
        assert records.source(i) == source._replace(file=None)


def test_parts_of_files_channels_and_copies(
    sounds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(sounds)
    rows = [
        {"path": "b/two.flac", "offset_s": 0.0313, "duration_s": 0.12, "channel": 1},
        {"path": "b/two.flac", "offset_s": 0.1, "duration_s": None, "channel": None},
        {"path": str(sounds / "a/one.wav"), "offset_s": 0.05, "duration_s": 0.1},
    ]
    record(
        rows, tmp_path / "out", win_len=400, label_from="none", copies=1,
        augment="noise()", hash_files=True,
    )  # fmt: skip
    records = open_records(tmp_path / "out")
    seen = set()
    for i, found in enumerate(records):
        source = records.source(i, input=".")
        assert source.copy == found["copy"]
        seen.add((source.path, source.channel, source.copy))
        if source.copy == 0:
            np.testing.assert_array_equal(found["signal"], cut(source, 400))
    assert len(seen) == 6
    view = records[[3, 1]]
    assert view.source(0) == records.source(3)
    assert view.source(-1) == records.source(1)
    with pytest.raises(IndexError):
        view.source(2)
    manifest = pq.read_table(tmp_path / "out/manifest.parquet")
    assert manifest.schema.field("file_sha256").type == "string"
    assert manifest["file_sha256"].null_count == 0


@pytest.mark.parametrize("rate", [4000, 11025])
def test_resampled_windows_touch_these_frames(
    sounds: Path, tmp_path: Path, rate: int
) -> None:
    record(sounds, tmp_path / "out", win_len=200, sample_rate=rate, label_from="none")
    records = open_records(tmp_path / "out")
    for i, found in enumerate(records):
        source = records.source(i)
        start = found["win_start_idx"] / rate
        assert source.start_s == pytest.approx(start)
        first, stop = source.first_frame, source.first_frame + source.frames
        assert first <= start * RATE + 1e-6 < first + 1
        assert stop - 1 < source.end_s * RATE + 1e-6
        assert stop >= source.end_s * RATE - 1e-6
        assert source.sample_rate_hz == RATE


def test_verify_names_a_file_whose_bytes_have_changed(
    sounds: Path, tmp_path: Path
) -> None:
    shutil.copytree(sounds, tmp_path / "in")
    options = {"win_len": 400, "label_from": "none", "hash_files": True}
    record(tmp_path / "in", tmp_path / "out", **options)
    assert verify(tmp_path / "out", deep=True, input=tmp_path / "in") == []
    with (tmp_path / "in/a/one.wav").open("ab") as file:
        file.write(b"note")  # which changes no sample
    problems = verify(tmp_path / "out", deep=True, input=tmp_path / "in")
    assert problems
    assert all("a/one.wav" in line and "file_sha256" in line for line in problems)


def test_the_name_of_the_folder_changes_nothing(sounds: Path, tmp_path: Path) -> None:
    shutil.copytree(sounds, tmp_path / "other name")
    options = {"win_len": 400, "label_from": "none", "hash_files": True}
    for name, folder in (("one", sounds), ("two", tmp_path / "other name")):
        record(folder, tmp_path / name, **options)
    one, two = (
        {p.name: p.read_bytes() for p in (tmp_path / n).iterdir()}
        for n in ("one", "two")
    )
    assert one == two


def test_a_table_with_sources(sounds: Path, tmp_path: Path, capsys: Any) -> None:
    record(sounds, tmp_path / "out", win_len=400, label_from="none", hash_files=True)
    plain = window_table(tmp_path / "out")
    table = window_table(tmp_path / "out", sources=True)
    more = ["native_start", "native_frames", "native_sample_rate_hz", "channels",
            "file_sha256"]  # fmt: skip
    assert table.column_names == [*plain.column_names, *more]
    assert main(["windows", str(tmp_path / "out"), "--csv", "--sources"]) == 0
    lines = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [int(line["native_start"]) for line in lines] == (
        table["native_start"].to_pylist()
    )
    assert main(["windows", str(tmp_path / "out"), "--sources"]) == 2


def test_sources_that_cannot_be_told(sounds: Path, tmp_path: Path) -> None:
    record(sounds, tmp_path / "out", win_len=400, label_from="none")
    records = open_records(tmp_path / "out")
    with raises(InputError, naming=tmp_path):
        records.source(0, input=tmp_path)
    with pytest.raises(IndexError):
        records.source(len(records))
    record_examples([{"x": 1.0}], tmp_path / "elements")
    with raises(InputError, naming=[tmp_path / "elements", "audio files"]):
        open_records(tmp_path / "elements").source(0)
