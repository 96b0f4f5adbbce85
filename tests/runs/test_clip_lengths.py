"""Clips that are too short or too long, and windows as long as their clips."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import jsonschema
import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile

import beam_pipeline
from beam_pipeline import Metadata, open_records, plan, record, replay, verify
from beam_pipeline.errors import InputError, RecipeError, TooManyRejected
from beam_pipeline.read.verify import find_problems
from beam_pipeline.read.window_table import window_table
from beam_pipeline.transforms.mel import LogMel
from tests.raising import assert_names, raises
from tests.sounds import RATE, level_and_sign, write_corpus, write_samples, write_sound

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
    rows = pq.read_table(tmp_path / "out/manifest.parquet").to_pylist()
    assert {row["path"]: row["frames"] for row in rows if not row["windows"]} == {
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


# Whole runs with one example for each clip: ``win_len="clip"``.


OPTIONS = {
    "win_len": "clip", "splits": "train=.6,test=.4", "elements_per_file": 4,
    "features": {
        "signal": "identity()", "mel": "log_mel(n_fft=512,hop=128,n_mels=12)",
        "spectrum": "tests.sounds.spectrum", "pcm": "identity(dtype='int16')",
        "first": "tests.sounds.first_sample", "pairs": "tests.sounds.similarity",
        "byte": "identity()", "both": "tests.sounds.level_and_sign",
    },
    "encodings": {"pairs": "tensor", "byte": "int8", "both/level": "float16"},
}  # fmt: skip
SHAPES = {
    "signal": (None,), "mel": (None, 12), "spectrum": (None,), "pcm": (None,),
    "first": (), "pairs": (None, None), "byte": (None,), "both/level": (None,),
    "both/sign": (),
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    root = tmp_path_factory.mktemp("whole")
    sounds = write_corpus(root / "in")
    metadata = record(root / "in", root / "out", workers=1, **OPTIONS)
    return SimpleNamespace(
        sounds=sounds, source=root / "in", folder=root / "out", metadata=metadata
    )


def check_values(example, samples):
    np.testing.assert_array_equal(example["signal"], samples)
    np.testing.assert_array_equal(example["pcm"], samples * 32768)
    np.testing.assert_array_equal(
        example["spectrum"], np.fft.rfft(samples).astype("c8")
    )
    mel = LogMel(n_fft=512, hop=128, n_mels=12)(samples[np.newaxis], RATE)[0]
    np.testing.assert_array_equal(example["mel"], mel)
    np.testing.assert_array_equal(
        example["pairs"], np.outer(samples[::500], samples[::500])
    )
    assert example["first"] == samples[0]
    error = np.abs(example["byte"] - samples).max()
    assert 0 < error <= np.abs(samples).max() / 254
    both = level_and_sign(samples[np.newaxis])
    level = both["level"][0].astype(np.float16)
    np.testing.assert_array_equal(example["both/level"], level)
    assert example["both/sign"] in (both["sign"][0], both["sign"][0].encode())


def test_each_example_is_a_clip_with_all_its_frames(run):
    found = {name: run.metadata.features[name].shape for name in SHAPES}
    assert found == SHAPES
    time, bands = run.metadata.features["mel"].axes
    assert (time["size"], time["step"], bands["size"]) == (None, 128 / RATE, 12)
    assert Metadata.load(str(run.folder)).features == run.metadata.features
    seen = []
    for split, entry in run.metadata.splits.items():
        records = open_records(str(run.folder), split)
        for example in records:
            check_values(example, run.sounds[example["filepath"]])
            assert example["win_start_idx"] == 0
            seen.append(example["filepath"])
        frames = sum(len(run.sounds[example["filepath"]]) for example in records)
        assert entry.seconds == frames / RATE
        assert sum(entry.seconds_per_class.values()) == pytest.approx(entry.seconds)
        assert (entry.examples, entry.clips) == (len(records), len(records))
        assert entry.statistics["features"]["signal"]["count"] == frames
        # A row of each spectrum frame, bin by bin.
        mel = np.concatenate([example["mel"] for example in records])
        bins = entry.statistics["features"]["mel"]["bins"]["mean"]
        np.testing.assert_allclose(bins, mel.mean(axis=0, dtype="f8"), rtol=1e-6)
        assert entry.statistics["features"]["both/level"].keys() >= {"mean", "std"}
    assert sorted(seen) == sorted(run.sounds)
    assert verify(run.folder, deep=True, input=run.source) == []


def test_the_plan_has_the_seconds_of_the_clips(run):
    summary, _ = plan(run.source, **OPTIONS)
    for name, split in run.metadata.splits.items():
        assert summary.kept(name) == (split.examples, pytest.approx(split.seconds))


def test_replay_gives_tensors_of_any_length(run):
    dataset = replay(str(run.folder), split="train")
    for name, shape in SHAPES.items():
        assert tuple(dataset.element_spec[name].shape) == shape
    examples = list(dataset.as_numpy_iterator())
    for example in examples:
        check_values(example, run.sounds[example["filepath"].decode()])
    (batch,) = list(replay(str(run.folder), split="train", batch_size=len(examples)))
    lengths = [len(example["signal"]) for example in examples]
    assert len(set(lengths)) > 1
    assert batch["signal"].row_lengths().numpy().tolist() == lengths
    np.testing.assert_array_equal(batch["mel"][1].numpy(), examples[1]["mel"])
    pairs = replay(str(run.folder), split="train", as_supervised=("mel", "target"))
    mel, _ = next(iter(pairs.padded_batch(len(examples))))
    assert mel.shape == (len(examples), max(len(e["mel"]) for e in examples), 12)


def test_a_clip_too_short_for_a_transform_is_rejected(tmp_path):
    write_corpus(tmp_path / "in", classes=("cat",), clips=3)
    write_sound(tmp_path / "in/cat/short.wav", 100)
    options = {
        "win_len": "clip", "workers": 1, "max_rejected": "1", "copies": 1,
        "augment": "random_gain()", "keep": "energy(above_db=-50)",
        "features": {"mel": "log_mel(n_fft=512)", "signal": "identity()"},
    }  # fmt: skip
    quiet = np.zeros(3000)
    write_samples(tmp_path / "in/cat/quiet.wav", quiet, RATE)
    metadata = record(tmp_path / "in", tmp_path / "out", **options)
    (entry,) = metadata.splits.values()
    assert (entry.examples, entry.left_out, entry.clips) == (6, 2, 4)
    assert entry.seconds == entry.seconds_per_class["cat"] == 2 * 7800 / RATE
    (line,) = (tmp_path / "out/rejected.jsonl").read_text().splitlines()
    assert_names(line, "cat/short.wav", "mel")
    assert list(find_problems(str(tmp_path / "out"), metadata)) == []


def test_a_feature_with_two_axes_of_any_length_needs_an_encoding(run, tmp_path):
    features = {"x": "tests.sounds.similarity"}
    with raises(RecipeError, "encodings: x", naming=["tensor", "(None, None)"]):
        record(run.source, tmp_path / "out", win_len="clip", features=features)
    assert not (tmp_path / "out").exists()
