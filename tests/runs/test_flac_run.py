"""Whole runs whose signal is stored as FLAC, Opus, Vorbis, or the clip's file."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from beam_pipeline import Metadata, convert, open_audio, open_records, record
from beam_pipeline.errors import InputError, OptionError, RecipeError
from beam_pipeline.read.replay import replay
from beam_pipeline.read.verify import find_problems, verify
from tests.raising import raises
from tests.sounds import RATE, write_corpus, write_sound

pytestmark = pytest.mark.runs


@pytest.mark.parametrize("win_len", ["clip", 700])
def test_signals_are_exact_in_all_readers(tmp_path: Path, win_len: Any) -> None:
    sounds = write_corpus(tmp_path / "in", classes=("cat",))
    sounds["cat/wide.wav"] = write_sound(
        tmp_path / "in/cat/wide.wav", 1999, subtype="PCM_24"
    )
    options: dict[str, Any] = {
        "win_len": win_len, "encodings": {"signal": "flac", "half": "flac"},
        "features": {"signal": "identity()", "half": "identity(dtype='int16')"},
    }  # fmt: skip
    folder = str(tmp_path / "out")
    metadata = record(tmp_path / "in", folder, workers=1, **options)
    spec = metadata.features["signal"]
    assert (spec.dtype, spec.encoding, spec.rate_hz) == ("float32", "flac", RATE)
    assert Metadata.load(folder).features == metadata.features
    assert list(find_problems(folder, metadata)) == []
    records = open_records(folder)
    for example in records:
        start, signal = example["win_start_idx"], example["signal"]
        meant = sounds[example["filepath"]][start : start + len(signal)]
        np.testing.assert_array_equal(signal, meant)
        half = np.clip(np.rint(meant * 32768), -32768, 32767)
        np.testing.assert_array_equal(example["half"], half)
    dataset = replay(folder)
    assert dataset.element_spec["signal"].shape == spec.shape
    elements = list(dataset.as_numpy_iterator())
    assert len(elements) == len(records)
    for element, example in zip(elements, records, strict=True):
        np.testing.assert_array_equal(element["signal"], example["signal"])
        assert element["half"].dtype == np.int16
    (stored,) = replay(folder, encoded=["signal"]).take(1).as_numpy_iterator()
    found, rate = soundfile.read(io.BytesIO(stored["signal"]), dtype="float32")
    assert rate == RATE
    np.testing.assert_array_equal(found, elements[0]["signal"])
    again = tmp_path / "again"
    record(tmp_path / "in", again, workers=2, **options)
    for path in again.glob("*.tfrecord.gz"):
        assert path.read_bytes() == (tmp_path / "out" / path.name).read_bytes()


@pytest.mark.parametrize("encoding", ["opus", "vorbis"])
def test_lossy_signals_are_the_same_in_all_readers(
    tmp_path: Path, encoding: str
) -> None:
    sounds = {"a.wav": write_sound(tmp_path / "in/a.wav", 9000)}
    sounds["b.wav"] = write_sound(tmp_path / "in/b.wav", 5000)
    folder = tmp_path / "out"
    options: dict[str, Any] = {"win_len": "clip", "encodings": {"signal": encoding}}
    metadata = record(tmp_path / "in", folder, **options)
    assert list(find_problems(str(folder), metadata)) == []
    records = open_records(folder)
    for example, scored, element, stored in zip(
        sorted(records, key=lambda e: e["index"]),
        open_audio(tmp_path / "in", folder),
        sorted(replay(folder).as_numpy_iterator(), key=lambda e: e["index"]),
        replay(folder, encoded=["signal"]).as_numpy_iterator(),
        strict=True,
    ):
        wanted, signal = sounds[example["filepath"]], example["signal"]
        assert signal.shape == wanted.shape
        assert np.linalg.norm(signal - wanted) < 0.3 * np.linalg.norm(wanted)
        np.testing.assert_array_equal(scored["signal"], signal)
        np.testing.assert_array_equal(element["signal"], signal)
        assert soundfile.info(io.BytesIO(stored["signal"])).samplerate == RATE
    convert(folder, tmp_path / "copy")
    copied = open_records(tmp_path / "copy")
    for one, other in zip(records, copied, strict=True):
        np.testing.assert_array_equal(one["signal"], other["signal"])


@pytest.mark.parametrize(("channels", "dtype"), [("mix", "float32"), ("keep", "int16")])
def test_an_example_holds_the_file_of_its_clip(
    tmp_path: Path, channels: str, dtype: str
) -> None:
    folder, rates = tmp_path / "out", {}
    for number, suffix in enumerate(("wav", "flac", "ogg", "mp3")):
        frames = np.random.default_rng(number).uniform(-1, 1, (4000 + number, 2))
        rates[f"{suffix}.{suffix}"] = rate = 8000 * (1 + number)
        (tmp_path / "in").mkdir(exist_ok=True)
        soundfile.write(tmp_path / f"in/{suffix}.{suffix}", frames, rate)
    options: dict[str, Any] = {
        "win_len": "clip", "channels": channels, "dtype": dtype, "workers": 1,
    }  # fmt: skip
    record(tmp_path / "in", tmp_path / "raw", **options)
    options["encodings"] = {"signal": "original"}
    record(tmp_path / "in", folder, **options)
    assert verify(folder, deep=True, input=tmp_path / "in") == []
    found = [
        sorted(examples, key=lambda example: example["index"])
        for examples in (
            open_records(folder),
            open_records(tmp_path / "raw"),
            open_audio(tmp_path / "in", folder),
            replay(folder).as_numpy_iterator(),
            replay(folder, encoded=["signal"]).as_numpy_iterator(),
        )
    ]
    for example, meant, scored, element, stored in zip(*found, strict=True):
        assert example["fs"] == rates[example["filepath"]]
        assert example["signal"].dtype == dtype
        for other in (meant["signal"], scored["signal"], element["signal"]):
            np.testing.assert_array_equal(example["signal"], other)
        file = tmp_path / "in" / example["filepath"]
        assert stored["signal"] == file.read_bytes()


def test_files_that_do_not_give_the_signal_are_rejected(tmp_path: Path) -> None:
    write_sound(tmp_path / "in/good.wav", 2600)
    write_sound(tmp_path / "in/fast.wav", 2600, rate=2 * RATE)
    options: dict[str, Any] = {
        "encodings": {"signal": "original"}, "sample_rate": RATE, "max_rejected": "1",
    }  # fmt: skip
    record(tmp_path / "in", tmp_path / "out", win_len="clip", **options)
    (line,) = (tmp_path / "out/rejected.jsonl").read_text().splitlines()
    assert "fast.wav" in line
    assert "at its own sample rate" in line
    for wrong in (
        {"win_len": 700},
        {"win_len": "clip", "copies": 1, "augment": "noise()"},
        {"win_len": "clip", "features": {"signal": "gain(gain_db=1)"}},
    ):
        with raises(RecipeError, naming=["encodings: signal", "without copies"]):
            record(tmp_path / "in", tmp_path / "two", **(options | wrong))


def test_clips_that_flac_cannot_hold_exactly_are_rejected(tmp_path: Path) -> None:
    write_corpus(tmp_path / "in", classes=("cat",), clips=2)
    write_sound(tmp_path / "in/cat/odd.wav", 2600, subtype="FLOAT")
    options: dict[str, Any] = {
        "win_len": 700, "workers": 1, "encodings": {"signal": "flac"},
    }  # fmt: skip
    record(tmp_path / "in", tmp_path / "out", max_rejected="1", **options)
    (line,) = (tmp_path / "out/rejected.jsonl").read_text().splitlines()
    assert "cat/odd.wav" in line
    assert "16-bit or 24-bit" in line
    assert "for example raw; examples 0 to 2 of 3 are missing" in line
    write_sound(tmp_path / "in/cat/fast.wav", 2600, rate=2 * RATE)
    with raises(RecipeError, naming=["one sample rate", "signal=flac"]):
        record(tmp_path / "in", tmp_path / "two", **options)


def test_elements_have_no_sample_rate(tmp_path: Path) -> None:
    from beam_pipeline import record_examples

    rows = [{"x": np.zeros(5, np.int16)}]
    with pytest.raises(Exception, match="only `record` stores it") as caught:
        record_examples(rows, tmp_path / "out", encodings={"x": "flac"})
    assert not isinstance(caught.value, InputError | AssertionError)
    with raises(OptionError, naming=["encodings: x", "only `record`"]):
        record_examples(rows, tmp_path / "out", encodings={"x": "original"})
