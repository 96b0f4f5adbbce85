"""Padding: how much of it examples have, and statistics without it."""

import numpy as np
import pytest

from beam_pipeline import Metadata, open_records, record, verify
from beam_pipeline.errors import RecipeError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.write.shard import without_padding
from tests.raising import raises
from tests.sounds import RATE, write_corpus

TIME = {"name": "time", "unit": "s", "size": 4, "start": 0.0, "step": 2 / RATE}
BAND = {"name": "mel_band", "unit": "Hz", "size": 3, "values": [1, 2, 3]}
SPECS = {
    "signal": FeatureSpec("signal", "float32", (8,), "float_list", ""),
    "mel": FeatureSpec("mel", "float32", (4, 3), "float_list", "", (TIME, BAND)),
    "level": FeatureSpec("level", "float32", (), "float_list", ""),
    "both": FeatureSpec("both", "float32", (2, 4, 3), "float_list", "", (TIME, BAND)),
}


@pytest.mark.parametrize(
    ("valid", "frames", "times"),
    [(1, 1, 1), (2, 2, 1), (3, 3, 2), (6, 6, 3), (7, 7, 4), (8, 8, 4), (0, 0, 0)],
)
def test_what_is_left_of_a_window(valid, frames, times):
    """Windows of 8 frames; a spectrum frame begins at each second one."""
    found, values = {}, {"texts": ["a"]}
    for name, spec in SPECS.items():
        size = np.prod(spec.shape, dtype=int)
        values[name] = np.arange(size).reshape(1, *spec.shape)
    for name, value in values.items():
        found[name] = without_padding(value, SPECS.get(name), valid, 8, RATE)
    np.testing.assert_array_equal(found["signal"], values["signal"][:, :frames])
    np.testing.assert_array_equal(found["mel"], values["mel"][:, :times])
    np.testing.assert_array_equal(found["both"], values["both"][:, :, :times])
    np.testing.assert_array_equal(found["level"], values["level"])
    assert found["texts"] == ["a"]


OPTIONS = {
    "win_len": 1000, "hop": 900, "tail": "pad", "elements_per_file": 7,
    "features": {
        "mel": "log_mel(n_fft=256,hop=128,n_mels=8)", "signal": "identity()",
        "level": "rms(frame=1000,hop=1000)",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def marked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("padding")
    write_corpus(folder / "in", frames=2050)
    record(folder / "in", folder / "out", mark_padding=True, **OPTIONS)
    return folder


def test_statistics_leave_padding_out(marked):
    metadata = Metadata.load(marked / "out")
    mel, signal, padded = [], [], 0
    for example in open_records(marked / "out"):
        valid = int(example["valid_frames"])
        assert not example["signal"][valid:].any()
        assert example["signal"][max(valid - 5, 0) : valid].any()
        padded += valid < 1000
        signal.append(example["signal"][:valid])
        mel.append(example["mel"][np.arange(len(example["mel"])) * 128 < valid])
    assert padded > 10
    found = metadata.splits["records"].statistics["features"]
    for name, parts in (("mel", mel), ("signal", signal)):
        values = np.concatenate(parts).astype(np.float64)
        assert found[name]["count"] == values.size
        assert found[name]["mean"] == pytest.approx(values.mean(), abs=1e-9)
        assert found[name]["std"] == pytest.approx(values.std(), rel=1e-6)
        assert found[name]["min"] == values.min()
    bins = np.concatenate(mel).astype(np.float64).mean(axis=0)
    assert found["mel"]["bins"]["mean"] == pytest.approx(bins, rel=1e-6)
    assert found["level"]["count"] == metadata.splits["records"].examples
    assert found["mel"]["min"] > -20  # the floor is at -23.03


def test_by_default_padding_counts(marked, tmp_path):
    made = record(marked / "in", tmp_path / "out", **OPTIONS)
    assert "valid_frames" not in made.features
    assert made.recipe.to_json()["mark_padding"] is False
    mel = made.splits["records"].statistics["features"]["mel"]
    assert mel["min"] == pytest.approx(-23.03, abs=0.01)


def test_a_changed_number_of_frames_is_found(marked, tmp_path, monkeypatch):
    """A writer that is wrong about the padding: the table of windows knows better."""
    from beam_pipeline.write.shard import FeatureBlock

    wrong = property(lambda block: block.rows.frames[block.rows.kept] - 1)
    monkeypatch.setattr(FeatureBlock, "valid_frames", wrong)
    record(marked / "in", tmp_path / "out", mark_padding=True, workers=1, **OPTIONS)
    problems = verify(tmp_path / "out", deep=True)
    assert any("valid_frames" in problem for problem in problems)


def test_the_name_of_the_entry_is_taken(tmp_path):
    features = {"valid_frames": "rms()"}
    with raises(RecipeError, "features", "valid_frames", naming="--mark-padding"):
        record(
            tmp_path, tmp_path / "o", win_len=9, features=features, mark_padding=True
        )
    (tmp_path / "a.csv").write_text("path,valid_frames,class\na.wav,1,b\n")
    with raises(RecipeError, "columns", "valid_frames"):
        record(
            tmp_path / "a.csv", tmp_path / "o", win_len=9, mark_padding=True,
            label_from="class", columns="valid_frames",
        )  # fmt: skip
