"""verify --repair, and the run that makes damaged shards again, byte for byte."""

import os
import shutil
from pathlib import Path

import pytest
import soundfile

from beam_pipeline import record, record_examples, repair, verify
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.errors import (
    IncompleteRun,
    InputError,
    OutputError,
    VerificationError,
)
from beam_pipeline.run import local
from tests.data_sets import contents
from tests.raising import assert_names, raises
from tests.sounds import damage, write_corpus, write_samples, write_sound

OPTIONS = {
    "win_len": 500, "elements_per_file": 12, "max_rejected": 2,
    "short_clips": "reject",
    "splits": "train=.5,test=.5", "stratify": True, "keep": "energy(above_db=-10.9)",
    "features": {"x": "tests.sounds.fail_on_loud"},
}  # fmt: skip


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    """Sounds; one is rejected by its header, and one fails while it is recorded."""
    folder = tmp_path_factory.mktemp("sounds")
    write_corpus(folder)
    write_sound(folder / "cat" / "short.wav", 100)
    write_sound(folder / "owl" / "loud.wav", 4000, seed=5)
    samples, rate = soundfile.read(folder / "owl" / "loud.wav")
    samples[1600] = 0.95
    write_samples(folder / "owl" / "loud.wav", samples, rate)
    return folder


@pytest.fixture(scope="module")
def recorded(sounds, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole") / "out"
    metadata = record(sounds, folder, **OPTIONS)
    assert metadata.rejected == 2
    assert all(split.left_out for split in metadata.splits.values())
    return folder


@pytest.fixture
def folder(recorded, tmp_path):
    return Path(shutil.copytree(recorded, tmp_path / "out"))


def shards_of(folder):
    return sorted(folder.rglob("*.tfrecord.gz"))


def spoil(path, how):
    if how == "gone":
        path.unlink()
    elif how == "byte":
        damage(path)
    else:
        os.truncate(path, 0 if how == "empty" else path.stat().st_size // 2)


@pytest.mark.parametrize(
    ("how", "options"),
    [
        ("gone", {}),
        ("byte", {"workers": 2}),
        ("cut", {"beam_args": ["--runner=FnApiRunner"]}),
        ("empty", {"work_dir": "work"}),
    ],
)
def test_shards_get_their_bytes_back(folder, recorded, sounds, how, options):
    first, second, *others = shards_of(folder)
    for path in (first, second):
        spoil(path, how)
    kept = {path: path.stat().st_mtime_ns for path in others}
    if "work_dir" in options:
        options = {"work_dir": folder.parent / "work"}
    assert repair(folder) == [str(p.relative_to(folder)) for p in (first, second)]
    assert not any(p.exists() for p in (first, second, folder / "metadata.json"))
    record(sounds, folder, **OPTIONS, **options)
    assert contents(folder) == contents(recorded)
    assert {path: path.stat().st_mtime_ns for path in others} == kept
    assert verify(folder, deep=True) == []
    assert repair(folder) == []


def test_a_repair_that_is_cut_off_goes_on(folder, recorded, sounds, monkeypatch):
    for path in shards_of(folder):
        spoil(path, "cut")
    assert len(repair(folder)) == len(shards_of(recorded))

    def cut(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(local, "finish_job", cut)
        with pytest.raises(KeyboardInterrupt):
            record(sounds, folder, **OPTIONS)
    assert not (folder / "metadata.json").exists()
    made = {path: path.stat().st_mtime_ns for path in shards_of(folder)}
    assert len(made) == len(shards_of(recorded))
    with raises(OutputError, naming=[folder, "--win-len", 500, 501]):
        record(sounds, folder, **{**OPTIONS, "win_len": 501})
    record(sounds, folder, **OPTIONS)
    assert {path: path.stat().st_mtime_ns for path in shards_of(folder)} == made
    assert contents(folder) == contents(recorded)


def test_other_inputs_do_not_complete_it(folder, recorded, sounds, tmp_path):
    first, *_ = shards_of(folder)
    spoil(first, "gone")
    repair(folder)
    copy = Path(shutil.copytree(sounds, tmp_path / "in"))
    for path in copy.rglob("*_?.wav"):
        write_sound(path, soundfile.info(path).frames, seed=77)
    saved = folder / "_work" / "metadata.json"
    with raises(IncompleteRun, naming=[first.name, "other bytes", saved]):
        record(copy, folder, **OPTIONS)
    assert saved.read_bytes() == (recorded / "metadata.json").read_bytes()
    assert not (folder / "metadata.json").exists()
    record(sounds, folder, **OPTIONS)
    assert contents(folder) == contents(recorded)


def test_other_recipes_are_refused(folder, recorded, sounds):
    spoil(shards_of(folder)[0], "gone")
    repair(folder)
    before = contents(folder)
    with raises(OutputError, naming=["--win-len", 500, 501, "_work/metadata.json"]):
        record(sounds, folder, **{**OPTIONS, "win_len": 501})
    with raises(InputError, naming="nothing"):
        record(str(folder / "nothing"), str(folder), **OPTIONS)
    assert contents(folder) == before
    saved = Metadata.parse((folder / "_work/metadata.json").read_bytes(), "saved")
    record(sounds, folder, recipe=saved, max_rejected=2)
    assert contents(folder) == contents(recorded)
    spoil(shards_of(folder)[0], "gone")
    repair(folder)
    other = {**OPTIONS, "win_len": 501}
    assert record(sounds, folder, overwrite=True, **other)
    assert verify(folder) == []
    assert not (folder / "_work").exists()


@pytest.mark.parametrize("name", ["windows.parquet", "rejected.jsonl", "schema.pbtxt"])
def test_other_files_are_not_repaired(folder, name):
    spoil(folder / name, "gone")
    spoil(shards_of(folder)[0], "byte")
    before = contents(folder)
    with raises(InputError, naming=[folder, name, "overwrite"]):
        repair(folder)
    assert contents(folder) == before


def test_what_cannot_be_repaired(folder, tmp_path):
    record_examples([{"x": 1}], tmp_path / "elements")
    with raises(InputError, naming=tmp_path / "elements"):
        repair(tmp_path / "elements")
    path = folder / "metadata.json"
    path.write_text(path.read_text().replace('"examples": ', '"examples": 1', 1))
    with raises(InputError, naming="metadata.json"):
        repair(folder)
    path.write_text("{")
    with raises(VerificationError, naming=path):
        repair(folder)


def test_the_command(folder, sounds, cli):
    first, *_ = shards_of(folder)
    spoil(first, "byte")
    call = ["verify", str(folder), "--repair"]
    assert_names(cli(*call, "--deep", status=2).err, "--repair", "--deep")
    said = cli(*call).out
    assert_names(said, f"deleted: {first.parent.name}/{first.name}", "record")
    flags = ["--recipe", str(folder / "_work/metadata.json"), "--max-rejected", "2"]
    places = ["--input", str(sounds), "--output", str(folder)]
    cli("record", *places, *flags)
    assert_names(cli(*call).out, "nothing to repair")
    cli(*call[:2])
