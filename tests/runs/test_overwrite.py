"""A data set that is replaced stays whole until the new one is ready."""

import json
import shutil
from pathlib import Path

import pytest

from beam_pipeline import Metadata, record, verify
from beam_pipeline.errors import InputError, TooManyRejected
from tests.data_sets import contents
from tests.processes import run_python
from tests.raising import raises
from tests.sounds import write_corpus

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
