"""What was drawn for a copy, against the copies of a data set."""

import numpy as np
import pytest
import soundfile

from beam_pipeline import augmentation_values, open_records, record, record_examples
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.errors import InputError, OptionError
from tests.raising import raises

RATE = 8000
MEL = "log_mel(n_fft=64,hop=32,n_mels=8)"


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "in" / "a").mkdir(parents=True)
    for i in range(2):
        sound = 0.1 * rng.normal(size=1200)
        sound[400:800] *= 1e-4  # left out
        soundfile.write(tmp_path / "in" / "a" / f"{i}.wav", sound, RATE, "FLOAT")
    record(
        tmp_path / "in", tmp_path / "out", win_len=400, copies=2, seed=5,
        keep="energy(above_db=-60)", augment="random_gain()|random_gain()",
        features={
            "signal": "identity()", "plain": MEL,
            "mel": f"{MEL}|spec_augment(max_bins=3,freq_masks=1)",
        },
    )  # fmt: skip
    return tmp_path / "out"


@pytest.mark.runs
def test_they_are_those_of_the_copies(folder):
    examples = list(open_records(str(folder)))
    windows = {
        (e["filepath"], e["win_start_idx"]): e for e in examples if not e["copy"]
    }
    assert len(windows) == 4
    gains = set()
    for example in examples:
        if not example["copy"]:
            continue
        path, start = example["filepath"], int(example["win_start_idx"])
        values = augmentation_values(
            folder, path, start // 400, int(example["copy"]), frames=400,
            sample_rate=RATE,
        )  # fmt: skip
        assert list(values) == ["random_gain", "random_gain #2", "mel: spec_augment"]
        gain_db = values["random_gain"]["gain_db"] + values["random_gain #2"]["gain_db"]
        gains.add(gain_db)
        np.testing.assert_allclose(
            example["signal"],
            windows[path, start]["signal"] * 10 ** (gain_db / 20),
            rtol=1e-5,
        )
        masks, masked = values["mel: spec_augment"], example["plain"].copy()
        mean = masked.mean(dtype=np.float64)
        for first, width in zip(masks["first_frame"], masks["frames"], strict=True):
            masked[first : first + width] = mean
        for first, width in zip(masks["first_bin"], masks["bins"], strict=True):
            masked[:, first : first + width] = mean
        np.testing.assert_allclose(example["mel"], masked, rtol=1e-6)
    assert len(gains) == 8


@pytest.mark.runs
def test_what_has_no_copies(folder, tmp_path):
    metadata = Metadata.load(str(folder))
    options = {"frames": 400, "sample_rate": RATE}
    for copy in (0, 3):
        with raises(OptionError, "copy", copy, naming="from 1 to 2"):
            augmentation_values(metadata, "a/0.wav", 0, copy, **options)
    with raises(OptionError, "window", -1):
        augmentation_values(metadata, "a/0.wav", -1, 1, **options)
    record_examples([{"x": 1}], str(tmp_path / "other"))
    with raises(InputError, naming="audio files"):
        augmentation_values(tmp_path / "other", "a/0.wav", 0, 1, **options)
