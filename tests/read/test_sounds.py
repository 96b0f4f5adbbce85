"""Examples to listen to, saved as WAV files."""

import io
import os

import numpy as np
import pytest
import soundfile

from beam_pipeline import open_records, record, record_examples
from beam_pipeline.cli.main import main
from beam_pipeline.read.example_view import encode_sound
from tests.raising import assert_names
from tests.sounds import RATE, write_sound

WIN_LEN = 1000
MEL = {"mel": "log_mel(n_fft=256,hop=100,n_mels=5)"}


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("heard") / "sounds"
    for k, name in enumerate(["a b/night, 1.wav", "ö/x.wav"]):
        write_sound(folder / name, 4 * WIN_LEN, channels=2, seed=k)
    return folder


def saved(out, folder, *flags):
    assert main(["show", str(out), "-n", "99", "--save-wav", str(folder), *flags]) == 0
    return sorted(folder.iterdir())


@pytest.mark.parametrize(
    ("options", "subtype"),
    [
        ({}, "FLOAT"),
        ({"dtype": "int16"}, "PCM_16"),
        ({"channels": "keep"}, "FLOAT"),
        ({"stream": "gain(gain_db=30)"}, "FLOAT"),  # far beyond full scale
        ({"features": {"x": "identity()", **MEL}, "encodings": {"x": "float16"}},
         "FLOAT"),
        ({"features": {"half": "downsample(ratio=2)"}}, "FLOAT"),
    ],
)  # fmt: skip
def test_a_file_holds_the_samples_of_its_example(options, subtype, sounds, tmp_path):
    record(sounds, tmp_path / "out", win_len=WIN_LEN, **options)
    paths = saved(tmp_path / "out", tmp_path / "wav")
    records = open_records(tmp_path / "out")
    assert len(paths) == len(records) == 8
    (name,) = {"signal", "x", "half"} & set(records.features)
    for path, example in zip(paths, records, strict=True):
        samples, rate = soundfile.read(path, dtype="float64")
        exact = np.asarray(example[name]).astype(np.float64).T
        scale = 32768 if subtype == "PCM_16" else 1
        np.testing.assert_array_equal(samples, exact / scale)
        assert soundfile.info(path).subtype == subtype
        assert rate == (RATE // 2 if name == "half" else RATE)


def test_names_say_split_number_clip_and_second(sounds, tmp_path):
    options = {"win_len": WIN_LEN, "copies": 1, "augment": "random_gain()"}
    record(f"train={sounds}", tmp_path / "out", **options)
    names = [path.name for path in saved(tmp_path / "out", tmp_path / "wav")]
    examples = open_records(tmp_path / "out", "train")
    assert len(names) == len(examples) == 16
    for number, (name, example) in enumerate(zip(names, examples, strict=True)):
        clip = "a_b_night_1" if "night" in example["filepath"] else "ö_x"
        second = f"{example['win_start_idx'] / RATE:g}"
        copy = "-copy1" if example["copy"] else ""
        assert name == f"train-{number:06}-{clip}-{second}s{copy}.wav"
    part = saved(tmp_path / "out", tmp_path / "part", "--split", "train[:25%]")
    assert [path.name for path in part] == names[:4]


def test_spectra_are_decoded_again(sounds, tmp_path):
    options = {
        "win_len": WIN_LEN, "copies": 1, "augment": "random_gain()",
        "keep": "energy(above_db=-16)", "sample_rate": 5000, "hop": 700,
        "elements_per_file": 5,
    }  # fmt: skip
    record(sounds, tmp_path / "mel", features=MEL, **options)
    with_signal = {**MEL, "signal": "identity()"}
    record(sounds, tmp_path / "both", features=with_signal, **options)
    paths = saved(tmp_path / "mel", tmp_path / "wav", "--input", str(sounds))
    records = open_records(tmp_path / "both")
    assert len(paths) == len(records) > 3
    for path, example in zip(paths, records, strict=True):
        samples, rate = soundfile.read(path, dtype="float32")
        np.testing.assert_array_equal(samples, example["signal"])
        assert rate == 5000


def test_what_is_missing_is_said(sounds, tmp_path, capsys):
    record(sounds, tmp_path / "mel", win_len=WIN_LEN, features=MEL)
    save = ["--save-wav", str(tmp_path / "wav")]
    assert main(["show", str(tmp_path / "mel"), *save]) == 2
    assert_names(capsys.readouterr().err, "--input")
    assert main(["show", str(tmp_path / "mel"), "--input", str(sounds)]) == 2
    assert_names(capsys.readouterr().err, "--input", "--save-wav")
    write_sound(tmp_path / "other/y.wav", 9000)
    other = ["--input", str(tmp_path / "other")]
    assert main(["show", str(tmp_path / "mel"), *save, *other]) == 2
    assert_names(capsys.readouterr().err, "the inputs do not have it")
    record_examples([{"x": [1.0, 2.0]}], tmp_path / "elements")
    assert main(["show", str(tmp_path / "elements"), *save]) == 2
    assert_names(capsys.readouterr().err, str(tmp_path / "elements"))
    assert not (tmp_path / "wav").exists()


@pytest.mark.parametrize(
    ("samples", "pcm"),
    [
        (np.array([0, 0.5, -1, np.nan], np.float32), [0, 16384, -32767, 0]),
        (np.array([0, 2, -1, np.inf], np.float64), [0, 32767, -16384, 16384]),
        (np.array([0, 16384, -32768], np.int16), [0, 16384, -32767]),
        (np.array([128, 255, 0], np.uint8), [0, 32511, -32767]),
    ],
)
def test_samples_become_16_bits(samples, pcm):
    content, _ = encode_sound(samples, RATE, "WAV")
    read, _ = soundfile.read(io.BytesIO(content), dtype="int16")
    np.testing.assert_array_equal(read, pcm)


def test_elements_with_a_sample_rate_are_heard(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    sound = np.linspace(-1, 1, 100, dtype=np.float32)
    record_examples([{"sound": sound, "sample_rate": 8000}], "out")
    for folder in ("gs://bucket/x", "out/metadata.json", "out/metadata.json/x"):
        assert main(["show", "out", "--save-wav", folder]) == 2
        assert_names(capsys.readouterr().err, folder)
    assert os.listdir() == ["out"]
    (path,) = saved("out", tmp_path / "wav")
    samples, rate = soundfile.read(path, dtype="float32")
    np.testing.assert_array_equal(samples, sound)
    assert (path.name, rate) == ("records-000000.wav", 8000)
