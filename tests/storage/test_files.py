"""Local files, and what a run leaves in the temporary folder: nothing with data."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from beam_pipeline import plan, record, record_examples, verify
from beam_pipeline.run.engine import temporary_files
from beam_pipeline.storage.files import temporary_folder
from tests.processes import run_python
from tests.sounds import write_corpus


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def test_runs_leave_no_temporary_files(tmp_path, temporary):
    sounds, out = str(tmp_path / "in"), tmp_path / "out"
    write_corpus(tmp_path / "in", clips=1)
    runner = ["--runner=DirectRunner"]
    plan(sounds, win_len=500)
    record(sounds, str(out), win_len=500)
    assert verify(out, deep=True, input=sounds) == []
    record(sounds, str(out), win_len=500)
    record(sounds, str(tmp_path / "beam"), win_len=500, beam_args=runner)
    record_examples([{"x": 1}], tmp_path / "elements")
    (own,) = temporary.iterdir()
    assert own.name == f"audio-tfrecords-{os.getuid()}"
    assert own.stat().st_mode & 0o777 == 0o700
    assert not any(path.is_file() for path in own.rglob("*"))


def test_the_temporary_folder_is_that_of_before(temporary):
    for of_shell in (None, str(temporary)):
        if of_shell is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = of_shell
        with temporary_files():
            inside = tempfile.gettempdir()
            assert os.environ["TMPDIR"] == inside
            assert os.stat(inside).st_mode & 0o777 == 0o700
        assert not os.path.exists(inside)
        assert tempfile.gettempdir() == str(temporary)
        assert os.environ.get("TMPDIR") == of_shell


_KILLED = """
import os, signal, sys
from beam_pipeline.storage.files import folder_of_process, temporary_folder

with temporary_folder() as folder:
    for path in (folder, folder_of_process()):
        open(os.path.join(path, "rows"), "w").close()
    print(folder, folder_of_process(), sep="|", flush=True)
    os.kill(os.getpid(), int(sys.argv[1])) if sys.argv[1:] else sys.stdin.read()
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_what_a_killed_process_has_left_is_deleted_by_the_next_one(temporary, number):
    command = [sys.executable, "-c", _KILLED]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as alive:
        used = alive.stdout.readline().rstrip().split("|")
        killed = run_python("-c", _KILLED, int(number), status=-number)
        left = killed.stdout.rstrip().split("|")
        assert len(used) == len(left) == 2
        assert all(map(os.path.exists, [*used, *left]))
        with temporary_folder() as own:
            assert all(map(os.path.exists, [*used, own]))
            assert not any(map(os.path.exists, left))
        alive.stdin.close()
    with temporary_folder() as own:
        assert [*temporary.rglob("process-*")] == [Path(own).parent]
