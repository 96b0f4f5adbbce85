"""Real recordings, from file to reader; they lie where AUDIO_CORPORA says."""

import csv
from collections import Counter

import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile

from beam_pipeline import record, replay
from tests.data_sets import examples_in, problems_in, rejects_in

DIGITS = r"(?P<class>\d)_"
OTHERS = ("go_audio_wav", "jstrait_wavefile", "lhotse", "librosa_data", "perch")
# A hop of three quarters, so that windows overlap and shards cut clips.
WIN_LEN, HOP = 1024, 768


def test_every_digit_is_there_once_sample_by_sample(corpora, tmp_path):
    metadata = record(
        corpora / "fsdd", tmp_path / "out", label_from=DIGITS, win_len=WIN_LEN, hop=HOP,
        tail="pad", elements_per_file=1000, workers=2,
    )  # fmt: skip
    files = sorted((corpora / "fsdd").glob("*.wav"))
    assert len(files) == metadata.clips == 3000
    assert metadata.rejected == 0
    assert metadata.classes == tuple("0123456789")
    found = Counter()
    samples = {f.name: soundfile.read(f, dtype="float32")[0] for f in files}
    for batch in replay(tmp_path / "out", batch_size=500).as_numpy_iterator():
        assert set(batch["fs"]) == {8000}
        assert set(batch["num_classes"]) == {10}
        columns = ("filepath", "win_start_idx", "signal", "class", "target", "index")
        for path, start, signal, label, target, index in zip(
            *map(batch.get, columns), strict=True
        ):
            name = path.decode()
            window = samples[name][start : start + WIN_LEN]
            assert np.array_equal(signal[: len(window)], window)
            assert not signal[len(window) :].any()
            assert label.decode() == name[0] == str(target)
            assert files[index].name == name
            found[name, int(start)] += 1
    wanted = Counter(
        (name, start)
        for name, whole in samples.items()
        for start in range(0, max(1, len(whole) - WIN_LEN + HOP), HOP)
        if start < len(whole)
    )
    assert found == wanted


@pytest.mark.parametrize("folder", OTHERS)
def test_each_file_is_complete_or_rejected_with_a_reason(corpora, tmp_path, folder):
    record(
        corpora / folder, tmp_path / "out", win_len=4096, tail="pad",
        max_rejected="100%",
    )  # fmt: skip
    with (corpora / "inventory.csv").open() as file:
        inventory = {
            row["path"].removeprefix(f"{folder}/"): row
            for row in csv.DictReader(file)
            if row["path"].startswith(f"{folder}/")
        }
    rejected = {line["path"]: line for line in rejects_in(tmp_path / "out")}
    manifest = {
        row["path"]: row
        for row in pq.read_table(tmp_path / "out" / "manifest.parquet").to_pylist()
    }
    assert set(manifest) | set(rejected) == set(inventory)
    assert not set(manifest) & set(rejected)
    for path, row in inventory.items():
        if path in rejected:
            sound = row["opens"] == "yes" and int(row["decoded_frames"]) > 0
            assert not sound or "declares" in row["error"], rejected[path]
            assert rejected[path]["reason"]
        elif row["opens"] == "yes":  # other files: only a second decoder opens them
            frames = int(row["decoded_frames"])
            assert manifest[path]["native_frames"] == frames
            assert manifest[path]["windows"] == -(-frames // 4096)
    starts = Counter()
    for example in examples_in(tmp_path / "out"):
        starts[example["filepath"]] += 1
        assert np.isfinite(example["signal"]).all()
    assert starts == {path: row["windows"] for path, row in manifest.items()}
    assert problems_in(tmp_path / "out") == []
