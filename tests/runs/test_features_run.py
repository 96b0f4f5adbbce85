"""Whole runs of functions that give several features."""

import numpy as np
import pytest

from beam_pipeline import open_audio, open_records, record
from beam_pipeline.errors import RecipeError, TooManyRejected
from beam_pipeline.read.replay import replay
from beam_pipeline.read.verify import verify
from beam_pipeline.transforms import per_window
from tests.sounds import level_and_sign, write_corpus

# A function that gives several features.
TWO = {"both": "tests.sounds.level_and_sign", "signal": "identity()"}


@pytest.mark.parametrize("win_len", [1000, "clip"])
def test_every_reader_has_each_feature_of_a_function_that_gives_several(
    win_len, tmp_path
):
    write_corpus(tmp_path / "in", ("cat",), clips=2)
    folder = str(tmp_path / "out")
    metadata = record(
        str(tmp_path / "in"), folder, win_len=win_len, features=TWO, num_shards=2,
        encodings={"both/level": "float16"},
    )  # fmt: skip
    assert metadata.features["both/level"].shape == (None if win_len == "clip" else 10,)
    statistics = metadata.splits["records"].statistics["features"]
    assert statistics["both/level"].keys() >= {"mean", "std"}
    assert verify(folder, deep=True, input=str(tmp_path / "in")) == []
    records = open_records(folder)
    replayed = {
        int(e["index"]) * 10_000 + int(e["win_start_idx"]): e
        for e in replay(folder).as_numpy_iterator()
    }
    opened = open_audio(str(tmp_path / "in"), like=folder, features=["both/level"])
    levels = {e["both/level"].tobytes() for e in opened}
    for example in records:
        made = level_and_sign(example["signal"][None])
        level = made["level"][0].astype(np.float16).astype(np.float32)
        np.testing.assert_array_equal(example["both/level"], level)
        assert example["both/sign"] == made["sign"][0]
        key = int(example["index"]) * 10_000 + int(example["win_start_idx"])
        np.testing.assert_array_equal(replayed[key]["both/level"], level)
        assert replayed[key]["both/sign"].decode() == made["sign"][0]
    assert len(levels) == len(records) == len(replayed)
    batch = next(iter(records.batches(2, normalize=["both/level"])))
    assert len(batch["both/level"]) == 2


@pytest.mark.parametrize(
    ("returned", "options", "facts"),
    [
        ({}, {}, "identifiers"),
        ({"a b": 0}, {}, "a b"),
        ({1: 0}, {}, "1"),
        ({"level": 0}, {"encodings": {"both/lvel": "raw"}}, "both/level"),
        ({"level": 0}, {"encodings": {"both": "raw"}}, "both/level"),
    ],
)
def test_features_that_a_function_does_not_give_are_refused(
    returned, options, facts, tmp_path
):
    def give(windows):
        return {key: np.zeros(len(windows), np.float32) for key in returned}

    write_corpus(tmp_path / "in", ("cat",), clips=1)
    with pytest.raises(RecipeError, match=facts):
        record(
            str(tmp_path / "in"), str(tmp_path / "out"), win_len=1000,
            features={"both": give}, **options,
        )  # fmt: skip
    assert not (tmp_path / "out").exists()


def test_only_the_last_step_gives_several_features(tmp_path):
    write_corpus(tmp_path / "in", ("cat",), clips=1)
    features = {"both": "tests.sounds.level_and_sign|normalize()"}
    with pytest.raises(RecipeError, match="must end with this step"):
        record(
            str(tmp_path / "in"), str(tmp_path / "out"), win_len=9, features=features
        )


def other_keys(windows):
    """Gives another feature for what is not silent."""
    return {"loud" if windows.any() else "quiet": windows.max(-1)}


def test_a_function_that_gives_other_features_for_sound_is_an_error(tmp_path):
    write_corpus(tmp_path / "in", ("cat",), clips=1)
    with pytest.raises(TooManyRejected, match=r"both/loud.*both/quiet"):
        record(
            str(tmp_path / "in"), str(tmp_path / "out"), win_len=1000,
            features={"both": other_keys}, max_rejected=0,
        )  # fmt: skip


def test_a_function_of_one_window_may_give_several():
    made = per_window(lambda window: {"top": window.max(), "ends": window[[0, -1]]})(
        np.arange(6, dtype=np.float32).reshape(2, 3)
    )
    assert made["top"].tolist() == [2, 5]
    assert made["ends"].tolist() == [[0, 2], [3, 5]]
