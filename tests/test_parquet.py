"""Parquet is read by the thread that asks for it, and by none of Arrow's.

A thread of Arrow that still releases a buffer of Python's while the interpreter ends
aborts the process: exit status 134, some time after the work is done.
"""

import io
import threading

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_pipeline import record
from beam_pipeline.inputs.column_values import ColumnType, column_types
from beam_pipeline.inputs.tables import open_table, read_rows
from beam_pipeline.read.audit import audit, describe_overlaps, read_clips
from beam_pipeline.storage import files
from tests.sounds import write_corpus

ROWS = 10_000


class WatchedFile(io.FileIO):
    """A file that notes which threads read it."""

    def __init__(self, path, threads):
        super().__init__(path)
        self.threads = threads

    def read(self, size=-1):
        self.threads.add(threading.get_ident())
        return super().read(size)


@pytest.fixture
def threads(monkeypatch):
    """The threads that have read files."""
    found = set()
    monkeypatch.setattr(files, "open_read", lambda path: WatchedFile(path, found))
    return found


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    folder = tmp_path_factory.mktemp("parquet")
    write_corpus(folder / "in", clips=2)
    record(folder / "in", folder / "out", win_len=800, workers=1)
    return folder / "out"


def write_manifest(path):
    columns = {name: [float(i) for i in range(ROWS)] for name in ("snr", "pitch")}
    table = pa.table({"path": [f"{i}.wav" for i in range(ROWS)], **columns})
    pq.write_table(table, path, row_group_size=1000)
    return str(path)


def test_a_file_watched_as_these_tests_do_shows_arrows_threads(tmp_path, threads):
    path = write_manifest(tmp_path / "m.parquet")
    with files.open_read(path) as file:
        assert pq.ParquetFile(file).read().num_rows == ROWS
    assert threads - {threading.get_ident()}


def test_manifests_are_read_by_the_calling_thread(tmp_path, threads):
    table = open_table(write_manifest(tmp_path / "m.parquet"))
    assert table.names == ("path", "snr", "pitch")
    assert column_types(table, ["snr"]) == {"snr": ColumnType("float32")}
    assert sum(1 for _ in read_rows(table)) == ROWS
    assert threads == {threading.get_ident()}


@pytest.mark.parametrize("read", [describe_overlaps, audit])
def test_data_sets_are_read_by_the_calling_thread(records, threads, read):
    read(records)
    assert threads == {threading.get_ident()}


def test_an_audits_columns_are_read_by_the_calling_thread(records, threads):
    assert read_clips(records, "path,class")[1].num_rows == 6
    assert threads == {threading.get_ident()}
