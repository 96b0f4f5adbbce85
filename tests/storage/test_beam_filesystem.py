"""A whole run on a file system of Beam that is neither local nor a store."""

import os

from apache_beam.io.filesystem import FileMetadata
from apache_beam.io.localfilesystem import LocalFileSystem
from apache_beam.options.pipeline_options import PipelineOptions

from beam_pipeline import open_records, record, verify
from beam_pipeline.errors import OutputError
from beam_pipeline.storage import claim, files
from beam_pipeline.storage.claim import claimed
from tests.data_sets import contents
from tests.raising import raises
from tests.sounds import write_corpus

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
