"""Warnings about data sets that are as asked for, but probably not as meant."""

import warnings

import numpy as np
import pytest
import soundfile

from beam_pipeline import Metadata, open_records, record, verify
from beam_pipeline.api import plan
from beam_pipeline.cli.main import main
from beam_pipeline.errors import DataSetWarning
from tests.raising import assert_names, names


def write_clips(folder, rates=(8000, 8000, 8000)):
    """Writes a clip of 100 frames for each rate, each of its own class."""
    for k, rate in enumerate(rates):
        (folder / f"class{k}").mkdir(parents=True)
        sound = np.full(100, k / 10, np.float32)
        soundfile.write(folder / f"class{k}" / f"{k}.wav", sound, rate)
    return folder


def warned_of(folder, call=record, **options):
    args = (folder / "in",) if call is plan else (folder / "in", folder / "out")
    with pytest.warns(DataSetWarning) as caught:
        call(*args, win_len=10, **options)
    assert {warning.filename for warning in caught} == {__file__}
    return [str(warning.message) for warning in caught]


def test_mixed_rates(tmp_path):
    write_clips(tmp_path / "in", (8000, 8001, 16000))
    wanted = [
        "clips have 3 sample rates (8,000, 8,001, 16,000 Hz), so windows of as many "
        "frames differ in seconds. Give `sample_rate`"
    ]
    assert warned_of(tmp_path, plan) == wanted
    assert warned_of(tmp_path) == wanted
    # The data set is complete: the same call says the same.
    assert warned_of(tmp_path) == wanted


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("rates", [(8000, 8000), (8000, 16000)])
def test_one_rate(tmp_path, rates):
    write_clips(tmp_path / "in", rates)
    options = {"sample_rate": 8000} if rates[0] != rates[1] else {}
    plan(tmp_path / "in", win_len=10, **options)
    record(tmp_path / "in", tmp_path / "out", win_len=10, **options)


@pytest.mark.parametrize(("asked", "warns"), [(29, False), (30, False), (31, True)])
@pytest.mark.parametrize("call", [plan, record])
def test_too_few_examples(tmp_path, call, asked, warns):
    write_clips(tmp_path / "in")
    wanted = ["split records has 30 examples. `num_elems` asks for 31"]
    if warns:
        assert warned_of(tmp_path, call, num_elems=asked) == wanted
        return
    args = (tmp_path / "in",) if call is plan else (tmp_path / "in", tmp_path / "out")
    call(*args, win_len=10, num_elems=asked)


@pytest.mark.parametrize("call", [plan, record])
def test_splits(tmp_path, call):
    write_clips(tmp_path / "in")
    warnings = warned_of(
        tmp_path,
        call,
        splits="a=1,b=1,c=1",
        group_by="kind",
        label_from="(?P<class>(?P<kind>[a-z])[a-z]*)",
    )
    assert len(warnings) == 2
    for warning in warnings:
        assert warning.endswith(
            "has no clip at all. There are fewer files or groups than splits"
        )


@pytest.mark.parametrize("call", [plan, record])
def test_classes(tmp_path, call):
    write_clips(tmp_path / "in")
    table = [
        {"path": str(path), "class": path.parent.name, "part": part}
        for path, part in zip(
            sorted((tmp_path / "in").rglob("*.wav")), "aab", strict=True
        )
    ]
    args = (table,) if call is plan else (table, tmp_path / "out")
    options = {"label_from": "class", "split_column": "part", "win_len": 10}
    with pytest.warns(DataSetWarning) as caught:
        call(*args, **options)
    assert [str(warning.message) for warning in caught] == [
        "split a has no example of class2",
        "split b has no example of class0, class1",
    ]


def test_on_the_command_line(tmp_path, capsys):
    write_clips(tmp_path / "in", (8000, 16000))
    io = ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]
    assert main(["record", *io, "--win-len", "10", "--num-elems", "31"]) == 0
    assert [
        line for line in capsys.readouterr().err.splitlines() if "warning" in line
    ] == [
        "audio-tfrecords: warning: split records has 20 examples. --num-elems asks for "
        "31",
        "audio-tfrecords: warning: clips have 2 sample rates (8,000, 16,000 Hz), so "
        "windows of as many frames differ in seconds. Give --sample-rate",
    ]


def write_loud(folder):
    """Writes floats, some beyond full scale; returns how many int16 cannot hold."""
    beyond = 0
    for k in range(6):
        noise = np.random.default_rng(k).normal(0, 0.4, 1000).astype(np.float32)
        noise[:3] = 1, -1, 1 - 2.0**-16  # clipped, held, rounded to 32768
        folder.mkdir(exist_ok=True)
        soundfile.write(folder / f"{k}.wav", noise, 8000, subtype="FLOAT")
        beyond += int((noise >= 1 - 2.0**-16).sum() + (noise < -1 - 2.0**-16).sum())
    return beyond


def test_clipped_samples(tmp_path):
    beyond = write_loud(tmp_path / "in")
    chosen = {"dtype": "int16", "elements_per_file": 100, "label_from": "none"}
    (warning,) = warned_of(tmp_path, **chosen)
    assert names(warning, f"{beyond} of the 6,000 values of signal in records")
    assert names(warning, "int16")
    assert names(warning, "`stream`")
    found = Metadata.load(tmp_path / "out").splits["records"].statistics
    assert found["features"]["signal"]["clipped"] == beyond
    stored = [e["signal"] for e in open_records(tmp_path / "out")]
    assert (
        beyond == np.sum(np.equal(stored, 32767)) + np.sum(np.equal(stored, -32768)) - 6
    )
    assert verify(tmp_path / "out", deep=True) == []


@pytest.mark.filterwarnings("error")
def test_samples_beyond_full_scale_that_are_kept(tmp_path):
    write_loud(tmp_path / "in")
    made = record(tmp_path / "in", tmp_path / "out", win_len=10, label_from="none")
    statistics = made.splits["records"].statistics
    stored = np.array([e["signal"] for e in open_records(tmp_path / "out")])
    assert statistics["windows"]["samples_beyond"] == np.sum(np.abs(stored) > 1) > 0
    assert "clipped" not in statistics["features"]["signal"]


@pytest.mark.parametrize(("values", "warns"), [("0.5 1.5", True), ("1 2", False)])
@pytest.mark.parametrize("call", [plan, record])
def test_classes_that_are_values(tmp_path, call, values, warns):
    write_clips(tmp_path / "in", (8000, 8000))
    rows = (f"class{k}/{k}.wav,{value}" for k, value in enumerate(values.split()))
    table = tmp_path / "in/table.csv"
    table.write_text("\n".join(["path,arousal", *rows]))
    output = [tmp_path / "out"] * (call is record)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataSetWarning)
        call(table, *output, win_len=10, label_from="arousal")
    said = [str(w.message) for w in caught if w.category is DataSetWarning]
    assert len(said) == warns
    for message in said:
        assert_names(message, "2", "0.5, 1.5", "`target_columns` arousal")
