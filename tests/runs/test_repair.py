"""Data sets that are repaired, byte for byte, or replaced by another one."""

import json
import os
import shutil
from pathlib import Path

import pytest
import soundfile

from beam_pipeline import Metadata, record, record_examples, repair, verify
from beam_pipeline.errors import (
    IncompleteRun,
    InputError,
    OutputError,
    TooManyRejected,
    VerificationError,
)
from tests.data_sets import contents
from tests.processes import run_python
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


def test_a_repair_that_is_cut_off_goes_on(folder, recorded, sounds, run_cut_off):
    for path in shards_of(folder):
        spoil(path, "cut")
    assert len(repair(folder)) == len(shards_of(recorded))
    run_cut_off(sounds, folder, **OPTIONS)
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
    said = cli(*call).out
    assert_names(said, f"deleted: {first.parent.name}/{first.name}", "record")
    flags = ["--recipe", str(folder / "_work/metadata.json"), "--max-rejected", "2"]
    places = ["--input", str(sounds), "--output", str(folder)]
    cli("record", *places, *flags)
    assert_names(cli(*call).out, "nothing to repair")
    cli(*call[:2])


# A data set that is replaced stays whole until the new one is ready.


OLD = {"win_len": 500, "elements_per_file": 20}
NEW = {
    "win_len": 250, "elements_per_file": 20, "splits": "train=.6,test=.4",
    "features": {"mel": "log_mel(n_fft=128,hop=64,n_mels=8)", "signal": "identity()"},
}  # fmt: skip
NOTHING = {**NEW, "keep": "energy(above_db=60)"}


def content(folder):
    """The bytes of the files of a data set, without the work folder."""
    return {n: held for n, held in contents(folder).items() if "_work" not in n}


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    folder = tmp_path_factory.mktemp("before")
    write_corpus(folder / "in")
    record(folder / "in", folder / "old", **OLD)
    record(folder / "in", folder / "new", **NEW)
    return folder


@pytest.fixture
def out(before, tmp_path):
    return Path(shutil.copytree(before / "old", tmp_path / "out"))


_CODE = """
import json, multiprocessing, os, signal, sys
from beam_pipeline import record
from beam_pipeline.storage import files

options, source, undisturbed, *outputs = sys.argv[1:]
options = json.loads(options)
made = multiprocessing.Value("i")  # also by processes that a run starts
fatal = 0

def counted(function):
    def call(*args, **kwargs):
        with made:
            made.value += 1
        if made.value == fatal:
            os.killpg(0, signal.SIGKILL)
        return function(*args, **kwargs)
    return call

files.move, files.write_bytes = counted(files.move), counted(files.write_bytes)
record(source, undisturbed, **options)
last = made.value
for number, folder in enumerate(outputs, 1):
    made.value, fatal = 0, last * number // len(outputs)
    child = os.fork()
    if child == 0:
        os.setpgrp()
        record(source, folder, **options)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    print(os.WIFSIGNALED(status), flush=True)
"""


def record_and_kill(source, undisturbed, outputs, **options):
    """Records into each output, and kills the run before one of the files it writes.

    The last one is killed right before its last file. A run into ``undisturbed`` comes
    first; it counts the files.
    """
    done = run_python("-c", _CODE, json.dumps(options), source, undisturbed, *outputs)
    assert done.stdout.split() == ["True"] * len(outputs), done.stderr


def test_killed_at_any_moment_and_continued(before, tmp_path):
    outs = [tmp_path / f"{number}" for number in range(5)]
    for each in outs:
        shutil.copytree(before / "old", each)
    undisturbed, *killed = outs
    record_and_kill(before / "in", undisturbed, killed, overwrite=True, **NEW)
    old, new = content(before / "old"), content(before / "new")
    assert content(undisturbed) == new
    whole = 0
    for each in killed:
        if (each / "metadata.json").exists():
            assert content(each) == old
            assert verify(each, deep=True) == []
            whole += 1
        record(before / "in", each, overwrite=True, **NEW)
        assert content(each) == new
        assert not (each / "_work").exists()
    assert 2 <= whole < len(killed)


@pytest.mark.parametrize(
    "beam_args", [(), ("--runner=DirectRunner", "--direct_num_workers=1")]
)
def test_all_files_are_those_of_a_new_data_set(before, out, beam_args):
    record(before / "in", out, overwrite=True, beam_args=beam_args, **NEW)
    assert content(out) == content(before / "new")
    assert not (out / "_work").exists()


@pytest.mark.parametrize("work", [{}, {"work_dir": "work"}])
def test_a_new_data_set_without_a_window_replaces_nothing(before, out, tmp_path, work):
    old = content(before / "old")
    work = {name: tmp_path / folder for name, folder in work.items()}
    for _ in range(2):  # the second one continues
        with raises(InputError, naming=["keep", "overwrite"]):
            record(before / "in", out, overwrite=True, **NOTHING, **work)
        assert content(out) == old
    # The command of the old data set, and another one, find it as it was.
    assert record(before / "in", out, **OLD) == Metadata.load(before / "old")
    record(before / "in", out, overwrite=True, **NEW, **work)
    assert content(out) == content(before / "new")
    assert not any(folder.exists() for folder in work.values())


def test_too_many_rejects_replace_nothing(before, out, tmp_path):
    sounds = Path(shutil.copytree(before / "in", tmp_path / "in"))
    (sounds / "cat" / "bad.wav").write_bytes(b"RIFF")
    with raises(TooManyRejected, naming=["bad.wav", "stays as it was before"]):
        record(sounds, out, overwrite=True, **NEW)
    assert content(out) == content(before / "old")
    record(sounds, out, overwrite=True, max_rejected=1, **NEW)
    assert "bad.wav" in (out / "rejected.jsonl").read_text()
