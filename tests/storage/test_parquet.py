"""Tables in Parquet files: their checksums, and which threads read them.

A thread of Arrow that still releases a buffer of Python's while the interpreter ends
aborts the process: exit status 134, some time after the work is done. So Parquet is
read by the thread that asks for it, and by none of Arrow's.
"""

import io
import struct
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_pipeline import record
from beam_pipeline.inputs.table_files import (
    ColumnType,
    column_types,
    open_table,
    read_rows,
)
from beam_pipeline.read.audit import audit
from beam_pipeline.storage import files
from beam_pipeline.storage.pages import read_parquet, write_parquet
from tests.sounds import write_corpus


@pytest.fixture
def table():
    rng = np.random.default_rng(0)
    return pa.table(
        {
            "path": [f"bird{k % 7}/{k}.wav" for k in range(300)],
            "start": rng.integers(0, 1 << 40, 300),
            "level_db": rng.normal(size=300).astype(np.float32),
        }
    )


def test_a_flipped_bit_in_a_value_is_found(table, tmp_path):
    path = tmp_path / "table.parquet"
    write_parquet(str(path), table.schema, [table])
    assert read_parquet(str(path)).equals(table)
    content = path.read_bytes()
    footer = len(content) - 8 - struct.unpack("<I", content[-8:-4])[0]
    found = 0
    for position in range(4, footer, 5):
        damaged = bytearray(content)
        damaged[position] ^= 1 << position % 8
        path.write_bytes(damaged)
        try:
            read = read_parquet(str(path))
        except (OSError, ValueError):
            found += 1
        else:  # what a page's header says of its extremes
            assert read.equals(table), position
    assert found > 0.9 * len(range(4, footer, 5))


# Threads

ROWS = 10_000


class WatchedFile(io.FileIO):
    """A file that notes which threads read it."""

    def __init__(self, path, threads):
        super().__init__(path)
        self.threads = threads

    def read(self, size=-1):
        self.threads.add(threading.get_ident())
        return super().read(size)


def watched(monkeypatch):
    """The threads that read files from now on."""
    found = set()
    monkeypatch.setattr(files, "open_read", lambda path: WatchedFile(path, found))
    return found


def test_manifests_are_read_by_the_calling_thread(tmp_path, monkeypatch):
    threads = watched(monkeypatch)
    columns = {name: [float(i) for i in range(ROWS)] for name in ("snr", "pitch")}
    content = pa.table({"path": [f"{i}.wav" for i in range(ROWS)], **columns})
    pq.write_table(content, tmp_path / "m.parquet", row_group_size=1000)
    table = open_table(str(tmp_path / "m.parquet"))
    assert table.names == ("path", "snr", "pitch")
    assert column_types([table], ["snr"]) == {"snr": ColumnType("float32")}
    assert sum(1 for _ in read_rows(table)) == ROWS
    assert threads == {threading.get_ident()}


def test_data_sets_are_read_by_the_calling_thread(tmp_path, monkeypatch):
    write_corpus(tmp_path / "in", clips=2)
    record(tmp_path / "in", tmp_path / "out", win_len=800, workers=1)
    threads = watched(monkeypatch)
    audit(tmp_path / "out")
    assert threads == {threading.get_ident()}
