"""Whole runs with compact encodings: readers, verify, repeated bytes, and rejects."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from beam_pipeline import Metadata, open_records, record
from beam_pipeline.errors import AudioTFRecordsError
from beam_pipeline.read.replay import replay
from beam_pipeline.read.verify import find_problems
from tests.data_sets import shards_in
from tests.sounds import RATE, write_corpus

pytestmark = pytest.mark.runs

ENCODINGS: dict[str, Any] = {
    "plain": "raw", "half": "float16", "brain": "bfloat16", "byte": "int8",
}  # fmt: skip
OPTIONS: dict[str, Any] = {
    "win_len": 500, "elements_per_file": 16, "encodings": ENCODINGS,
    "features": {"x": "identity()", **dict.fromkeys(ENCODINGS, "identity()")},
}  # fmt: skip
# Relative to the peak of the window, or to the value.
BOUNDS = {"half": 2.0**-11, "brain": 2.0**-8, "byte": 1 / 254}


def check_example(example: Any) -> None:
    exact = example["x"]
    np.testing.assert_array_equal(example["plain"], exact)
    for name, bound in BOUNDS.items():
        assert example[name].dtype == np.float32
        size = np.abs(exact).max() if name == "byte" else np.abs(exact)
        error = np.abs(example[name] - exact)
        assert error.max() > 0
        assert (error <= bound * size + 2.0**-25).all()


def test_compact_features_from_file_to_readers(tmp_path: Path) -> None:
    write_corpus(tmp_path / "in")
    folder = tmp_path / "out"
    metadata = record(tmp_path / "in", folder, workers=1, **OPTIONS)
    for name, encoding in ENCODINGS.items():
        spec = metadata.features[name]
        assert (spec.dtype, spec.encoding) == ("float32", encoding)
    statistics = metadata.splits["records"].statistics["features"]
    assert statistics["byte"] == statistics["x"]
    assert Metadata.load(str(folder)).features == metadata.features
    assert list(find_problems(str(folder), metadata)) == []
    records = open_records(str(folder))
    for example in records:
        check_example(example)
    batches = list(replay(str(folder), batch_size=8).as_numpy_iterator())
    for name in ENCODINGS:
        found = np.concatenate([batch[name] for batch in batches])
        np.testing.assert_array_equal(found, [example[name] for example in records])
    record(tmp_path / "in", tmp_path / "again", workers=2, **OPTIONS)
    assert shards_in(tmp_path / "again") == shards_in(folder)


def test_a_clip_whose_values_do_not_fit_is_rejected(tmp_path: Path) -> None:
    write_corpus(tmp_path / "in", classes=("cat",), clips=2)
    loud = np.full(2600, 70000.0, np.float32)
    soundfile.write(tmp_path / "in/cat/loud.wav", loud, RATE, subtype="FLOAT")
    options: dict[str, Any] = {"win_len": 500, "encodings": {"signal": "float16"}}
    with pytest.raises(AudioTFRecordsError, match="loud"):
        record(tmp_path / "in", tmp_path / "out", workers=1, **options)
    record(tmp_path / "in", tmp_path / "some", workers=1, max_rejected="1", **options)
    (line,) = (tmp_path / "some/rejected.jsonl").read_text().splitlines()
    reject = json.loads(line)
    assert (reject["path"], reject["stage"]) == ("cat/loud.wav", "encode")
    assert "float16 cannot hold" in reject["reason"]
    metadata = Metadata.load(str(tmp_path / "some"))
    assert metadata.splits["records"].examples == 10
    assert list(find_problems(str(tmp_path / "some"), metadata)) == []
