"""What a run leaves in the temporary folder: nothing that holds data."""

import os
import tempfile

import pytest

from beam_pipeline import record, record_examples, verify
from beam_pipeline.api import plan
from beam_pipeline.run.engine import temporary_files
from tests.sounds import write_corpus

pytestmark = pytest.mark.runs


@pytest.fixture
def temporary(tmp_path, monkeypatch):
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setenv("TMPDIR", str(folder))
    return folder


def files_in(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


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
    assert files_in(own) == []


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
