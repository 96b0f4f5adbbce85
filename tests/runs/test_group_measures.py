"""cmvn(over='group') in whole runs, against the mean and variance of what is stored."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile

from beam_pipeline import Metadata, open_records, record
from beam_pipeline.api import plan
from beam_pipeline.errors import TooManyRejected
from beam_pipeline.read.verify import verify

pytestmark = pytest.mark.runs

RATE = 8000
MEL = "log_mel(n_fft=128,hop=64,n_mels=5)"
OPTIONS: Any = {
    "win_len": 400,
    "hop": 170,
    "label_from": "(?P<speaker>[a-z]+)(?P<class>_)",
    "splits": {"train": 0.5, "test": 0.5},
    "group_by": "speaker",
    "features": {
        "plain": MEL,
        "group": f"{MEL}|cmvn(over='group')",
        "clip": f"{MEL}|cmvn(over='clip',norm_vars=False)",
        "slopes": f"{MEL}|cmvn(over='group',norm_vars=False)|delta(width=3)",
    },
    "workers": 1,
}
# Speaker to the lengths of the clips.
SPEAKERS = {"ada": (5000, 900, 3100), "bob": (2000, 777), "cy": (1500,)}


def write_noise(path: Path, frames: int, level: float, seed: int = 0) -> None:
    path.parent.mkdir(exist_ok=True, parents=True)
    noise = np.random.default_rng(seed).normal(size=frames)
    soundfile.write(path, np.clip(level * noise, -1, 1), RATE)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clips of other levels, so that clips and groups have means of their own."""
    folder = tmp_path_factory.mktemp("groups") / "in"
    for k, (speaker, lengths) in enumerate(SPEAKERS.items()):
        for i, frames in enumerate(lengths):
            level = 0.01 * (i + 1) ** 2 * 3**k
            write_noise(folder / f"{speaker}_{i}.wav", frames, level, seed=10 * k + i)
    write_noise(folder / "dee_0.wav", 1200, 0.0)
    write_noise(folder / "dee_1.wav", 500, 0.0)
    return folder


@pytest.fixture(scope="module")
def recorded(corpus: Path) -> Path:
    folder = corpus.parent / "out"
    record(corpus, folder, **OPTIONS)
    return folder


def groups_of(folder: Path, by: Any = None) -> dict[str, list[Any]]:
    """The examples of a data set, by speaker."""
    found: dict[str, list[Any]] = {}
    records = open_records(folder, "+".join(Metadata.load(folder).splits))
    for example in (records[i] for i in range(len(records))):
        path = example["filepath"]
        found.setdefault(by(path) if by else path.split("_")[0], []).append(example)
    return found


def moments_of(examples: list[Any]) -> tuple[Any, Any]:
    plain = np.stack([example["plain"] for example in examples]).astype(np.float64)
    std = np.sqrt(np.maximum(plain.var(axis=(0, 1)), 1e-10))
    return plain.mean(axis=(0, 1)), std


def check(examples: list[Any], mean: Any, std: Any) -> None:
    for example in examples:
        expected = (example["plain"] - mean) / std
        np.testing.assert_allclose(example["group"], expected, rtol=0, atol=2e-5)


def test_each_group_of_a_data_set_has_mean_0_and_deviation_1(recorded: Path) -> None:
    groups = groups_of(recorded)
    assert {name: len(some) for name, some in groups.items()} == {
        "ada": 28 + 3 + 16, "bob": 10 + 3, "cy": 7, "dee": 5 + 1,
    }  # fmt: skip
    for name, examples in groups.items():
        mean, std = moments_of(examples)
        check(examples, mean, std)
        stored = np.stack([e["group"] for e in examples]).astype(np.float64)
        np.testing.assert_allclose(stored.mean(axis=(0, 1)), 0, atol=1e-5)
        if name == "dee":  # silence
            assert not stored.any()
        else:
            np.testing.assert_allclose(stored.std(axis=(0, 1)), 1, atol=1e-5)
    ada = groups["ada"]
    assert not np.allclose(moments_of(ada)[0], moments_of(ada[:3])[0], atol=0.5)


def bytes_of(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize(
    "run",
    [{"workers": 2}, {"workers": None, "beam_args": ["--runner=FnApiRunner"]}],
    ids=["two workers", "Beam"],
)
def test_the_bytes_do_not_depend_on_who_writes(
    corpus: Path, recorded: Path, tmp_path: Path, run: Any
) -> None:
    record(corpus, tmp_path / "out", **{**OPTIONS, **run})
    assert bytes_of(tmp_path / "out") == bytes_of(recorded)


def test_rejected_clips_do_not_count(
    corpus: Path, recorded: Path, tmp_path: Path
) -> None:
    shutil.copytree(corpus, tmp_path / "in")
    (tmp_path / "in" / "ada_bad.wav").write_text("no sound")
    write_noise(tmp_path / "in" / "ada_short.wav", 399, 0.9)
    soundfile.write(
        tmp_path / "in" / "ada_nan.wav", np.full(900, np.nan), RATE, "FLOAT"
    )
    record(tmp_path / "in", tmp_path / "out", max_rejected=3, **OPTIONS)
    assert len((tmp_path / "out" / "rejected.jsonl").read_text().splitlines()) == 3
    whole, found = groups_of(recorded), groups_of(tmp_path / "out")
    for name, examples in whole.items():
        stored, expected = (
            sorted(example["group"].tobytes() for example in some)
            for some in (found[name], examples)
        )
        assert stored == expected


@pytest.mark.parametrize("left_out", [{"num_elems": 20}, {"min_seconds": 0.12}])
def test_clips_that_are_left_out_do_not_count(
    corpus: Path, recorded: Path, tmp_path: Path, left_out: Any
) -> None:
    """A clip that ``num_elems`` cuts counts as a whole, one that it drops does not."""
    record(corpus, tmp_path / "out", **{**OPTIONS, **left_out})
    manifest = pq.read_table(tmp_path / "out" / "manifest.parquet").to_pylist()
    held = {row["path"] for row in manifest if row["windows"]}
    assert {"ada", "bob"} <= {path.split("_")[0] for path in held}
    assert len(held) < len(manifest)
    whole = groups_of(recorded)
    changed = 0
    for name, examples in groups_of(tmp_path / "out").items():
        some = [e for e in whole[name] if e["filepath"] in held]
        check(examples, *moments_of(some))
        changed += 0 < len(some) < len(whole[name])
    assert changed


def test_copies_choice_and_shards_do_not_change_a_group(
    corpus: Path, recorded: Path, tmp_path: Path
) -> None:
    """The splits of stratified groups are decided after clips are measured."""
    options = {**OPTIONS, "elements_per_file": 7, "copies": 1, "stratify": True,
               "augment": "random_gain()", "keep": "energy(above_db=-36)"}  # fmt: skip
    record(corpus, tmp_path / "out", **options)
    every, some = (
        {(e["filepath"], e["win_start_idx"]): e["group"]
         for examples in groups_of(folder).values() for e in examples
         if not e.get("copy")}
        for folder in (recorded, tmp_path / "out")
    )  # fmt: skip
    assert 10 < len(some) < len(every)
    for key, stored in some.items():
        np.testing.assert_array_equal(stored, every[key])


def test_without_groups_the_clips_of_a_file_are_one(tmp_path: Path) -> None:
    write_noise(tmp_path / "a.wav", 4000, 0.1)
    write_noise(tmp_path / "b.wav", 900, 0.5, seed=1)
    (tmp_path / "in.csv").write_text(
        "path,offset_s,duration_s\na.wav,0,0.1\na.wav,0.3,0.2\nb.wav,0,0.1\n"
    )
    options = {**OPTIONS, "label_from": "none", "splits": None, "group_by": None}
    record(tmp_path / "in.csv", tmp_path / "out", **options)
    files = groups_of(tmp_path / "out", by=str)
    counts = {name: len(some) for name, some in files.items()}
    assert counts == {"a.wav": 3 + 8, "b.wav": 3}
    for examples in files.values():
        check(examples, *moments_of(examples))


def test_splits_of_one_file_are_measured_by_themselves(tmp_path: Path) -> None:
    """A column may divide a file; what is in test must not change what is in train."""
    write_noise(tmp_path / "a.wav", 1600, 0.1)
    write_noise(tmp_path / "b.wav", 1600, 0.5, seed=1)
    both = np.concatenate([soundfile.read(tmp_path / f"{n}.wav")[0] for n in "ab"])
    soundfile.write(tmp_path / "ab.wav", both, RATE)
    table = tmp_path / "in.csv"
    table.write_text(
        "path,offset_s,duration_s,split\n"
        "ab.wav,0,0.1,train\nab.wav,0.1,0.1,train\nab.wav,0.2,0.2,test\n"
    )
    options = {**OPTIONS, "label_from": "none", "splits": None, "group_by": None}
    record(table, tmp_path / "out", split_column="split", **options)
    for split, count in (("train", 6), ("test", 8)):
        records = open_records(tmp_path / "out", split)
        examples = [records[i] for i in range(len(records))]
        assert len(examples) == count
        check(examples, *moments_of(examples))
    assert verify(str(tmp_path / "out"), deep=True, input=str(table), sample=20) == []


def test_a_group_with_channels_and_all_clips(tmp_path: Path) -> None:
    """One group; each channel is measured by itself."""
    noise = np.random.default_rng(0).normal(size=(3, 900, 2)) * [0.01, 0.1]
    for k, frames in enumerate(noise):
        path = tmp_path / "in" / f"ada_{k}.wav"
        path.parent.mkdir(exist_ok=True)
        soundfile.write(path, (k + 1) * frames, RATE)
    options = {**OPTIONS, "channels": "keep", "splits": {"train": 1}}
    record(tmp_path / "in", tmp_path / "out", **options)
    (examples,) = groups_of(tmp_path / "out").values()
    plain = np.stack([e["plain"] for e in examples]).astype(np.float64)
    assert plain.shape[1] == 2
    axes = (0, 2)
    mean, std = plain.mean(axes, keepdims=True), plain.std(axes, keepdims=True)
    found = np.stack([e["group"] for e in examples])
    np.testing.assert_allclose(found, (plain - mean) / std, rtol=0, atol=2e-5)


# What comes after a recording


def test_a_run_that_continues_measures_groups_again(
    corpus: Path, tmp_path: Path
) -> None:
    """Shards without the changed clip, but with others of its group, are made anew."""
    sounds = shutil.copytree(corpus, tmp_path / "in")
    (sounds / "cy_bad.wav").write_text("no sound")
    options = {**OPTIONS, "elements_per_file": 7}
    with pytest.raises(TooManyRejected):
        record(sounds, tmp_path / "out", **options)
    before = bytes_of(tmp_path / "out")
    write_noise(sounds / "ada_1.wav", SPEAKERS["ada"][1], 0.9, seed=99)
    for name in ("out", "anew"):
        record(sounds, tmp_path / name, max_rejected=1, **options)
    after = bytes_of(tmp_path / "out")
    assert after == bytes_of(tmp_path / "anew")
    shards = [name for name in after if name.endswith(".gz")]
    changed = [name for name in shards if after[name] != before[name]]
    # Of 47 windows of ada's, 3 are of the clip that changed.
    assert 6 <= len(changed) < len(shards)


def test_a_clip_that_changed_is_found_in_the_windows_of_its_group(
    corpus: Path, recorded: Path, tmp_path: Path
) -> None:
    out = str(recorded)
    assert verify(out, deep=True, input=str(corpus), sample=20) == []
    sounds = shutil.copytree(corpus, tmp_path / "in")
    write_noise(sounds / "bob_1.wav", SPEAKERS["bob"][1], 0.3, seed=99)
    problems = verify(out, deep=True, input=str(sounds), sample=500)
    unchanged = [line for line in problems if line.startswith("bob_0.wav")]
    assert len(unchanged) == 10
    assert all("group, slopes" in line for line in unchanged)
    assert not [line for line in problems if line.startswith(("ada", "cy", "dee"))]
    (sounds / "bob_1.wav").write_text("no sound")
    problems = verify(out, deep=True, input=str(sounds), sample=500)
    assert any(p.startswith("bob_0.wav") and "bob_1.wav of its group" in p
               for p in problems)  # fmt: skip


def test_a_sample_of_the_plan(corpus: Path) -> None:
    found = plan(corpus, **{**OPTIONS, "workers": None}, sample=10)
    assert found.forecast is not None
    assert found.forecast.lost == 0
