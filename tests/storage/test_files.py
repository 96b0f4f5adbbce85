"""Temporary files, of which a run leaves none; and a file system of Beam."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from apache_beam.io.filesystem import FileMetadata
from apache_beam.io.localfilesystem import LocalFileSystem
from apache_beam.options.pipeline_options import PipelineOptions

from beam_pipeline import open_records, plan, record, record_examples, verify
from beam_pipeline.errors import OutputError
from beam_pipeline.run.engine import temporary_files
from beam_pipeline.storage import claim, files
from beam_pipeline.storage.claim import claimed
from beam_pipeline.storage.files import temporary_folder
from tests.data_sets import contents
from tests.processes import run_python
from tests.raising import raises
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


# A file system of Beam that is neither local nor a store

DISK = LocalFileSystem(PipelineOptions([]))


class FolderSystem(LocalFileSystem):
    """Local files under another scheme, as a cluster's file system would have them."""

    @classmethod
    def scheme(cls):
        return "folder"

    def join(self, base, *paths):
        return "/".join([base.rstrip("/"), *paths])

    def match(self, patterns, limits=None):
        found = DISK.match(list(map(_local, patterns)), limits)
        for result in found:
            result.metadata_list = [
                FileMetadata(
                    f"folder:/{each.path}",
                    each.size_in_bytes,
                    each.last_updated_in_seconds,
                )
                for each in result.metadata_list
            ]
        return found

    def create(self, path, *args, **options):
        os.makedirs(os.path.dirname(_local(path)), exist_ok=True)
        return DISK.create(_local(path), *args, **options)

    def open(self, path, *args, **options):
        return DISK.open(_local(path), *args, **options)

    def rename(self, sources, targets):
        DISK.rename(list(map(_local, sources)), list(map(_local, targets)))

    def delete(self, paths):
        DISK.delete(list(map(_local, paths)))


def _local(path):
    return path.removeprefix("folder:/")


def test_a_run_on_a_file_system_of_beam(tmp_path):
    write_corpus(tmp_path / "in", clips=2)
    remote, options = f"folder:/{tmp_path}/remote", {"win_len": 500, "num_shards": 2}
    record(tmp_path / "in", tmp_path / "out", **options)
    record(f"folder:/{tmp_path}/in", remote, **options)
    found = contents(tmp_path / "remote")
    wanted = contents(tmp_path / "out")
    assert {name: found[name] for name in wanted} == wanted
    assert verify(remote, deep=True) == []
    assert len(open_records(remote)) == len(open_records(tmp_path / "out"))


def test_claims_and_names_that_are_taken(tmp_path, monkeypatch):
    for name in ("PATIENCE_S", "BEAT_S"):
        monkeypatch.setattr(claim, name, 0.1)
    remote = f"folder:/{tmp_path}/remote"
    assert [files.create(f"{remote}/x", bytes([k])) for k in (1, 2)] == [True, False]
    assert files.read_bytes(f"{remote}/x") == b"\1"
    refusal = raises(OutputError, naming=[remote, os.getpid()])
    with claimed(remote), refusal, claimed(remote):
        pass
