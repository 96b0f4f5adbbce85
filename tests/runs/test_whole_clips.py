"""Whole runs with one example for each clip: ``win_len="clip"``."""

from types import SimpleNamespace

import numpy as np
import pytest

from beam_pipeline import (
    Metadata,
    open_records,
    plan,
    record,
    replay,
    verify,
)
from beam_pipeline.errors import RecipeError
from beam_pipeline.read.verify import find_problems
from beam_pipeline.transforms.mel import LogMel
from tests.raising import assert_names, raises
from tests.sounds import RATE, level_and_sign, write_corpus, write_samples, write_sound

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
