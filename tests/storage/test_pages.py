"""pages.py: collections against lists and dicts in memory; damaged tables; threads.

A thread of Arrow that still releases a buffer of Python's while the interpreter ends
aborts the process: exit status 134, some time after the work is done. So Parquet is
read by the thread that asks for it, and by none of Arrow's.
"""

import io
import os
import struct
import threading

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline import record
from beam_pipeline.errors import OutputError
from beam_pipeline.inputs.table_files import (
    ColumnType,
    column_types,
    open_table,
    read_rows,
)
from beam_pipeline.read.audit import audit
from beam_pipeline.storage import files, pages
from beam_pipeline.storage.pages import (
    FirstValues,
    SortedValues,
    read_parquet,
    write_parquet,
)
from tests.raising import raises
from tests.sounds import write_corpus

# Lone surrogates, too: they are in names that are not UTF-8.
TEXTS = st.text(st.characters(codec=None), max_size=3)
KEYS = st.tuples(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2), TEXTS, TEXTS)


def first_of(value):
    return value[0]


def number_of(value):
    return value[:1]


# SortedValues


@settings(max_examples=50, deadline=None)
@given(st.lists(KEYS, max_size=20), st.integers(0, 20), st.integers(1, 3))
def test_values_are_in_the_order_of_their_keys(keys, at, width):
    pairs = [(key[:width], number) for number, key in enumerate(keys)]
    values = SortedValues(first_of, pairs[:at])
    assert list(values) == sorted(pairs[:at], key=first_of)
    values.extend(iter(pairs[at:]))
    ordered = sorted(pairs, key=first_of)  # stable, as SortedValues
    assert list(values) == list(values) == ordered
    assert [values[k] for k in range(len(values))] == ordered


def test_values_beyond_the_memory_of_a_collection(monkeypatch):
    """They are in a file without a name, which ends with the process."""
    monkeypatch.setattr(pages, "CACHE_KIB", 64)
    values = SortedValues(number_of, ((n, "x" * 1000) for n in range(500, 0, -1)))
    opened = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    unnamed = [path for path in opened if os.path.lexists(path)
               and os.readlink(path).endswith(" (deleted)")]  # fmt: skip
    assert max(os.stat(path).st_size for path in unnamed) > 400_000
    assert [n for n, _ in values] == list(range(1, 501))


def test_a_full_disk_is_told():
    values = SortedValues(number_of)
    values._database.execute("PRAGMA max_page_count = 10")
    with raises(OutputError, naming=["TMPDIR", "disk is full"]):
        values.extend((n, os.urandom(1000)) for n in range(100))


# FirstValues


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3), TEXTS)))
def test_the_first_value_of_each_key(pairs):
    found, wanted = FirstValues(), {}
    assert not vars(found)  # a database is opened for the first value
    for number, (key, text) in enumerate(pairs):
        value = (number, text.encode(errors="replace").decode())
        assert found.setdefault(key, value) == wanted.setdefault(key, value)


# Tables in Parquet


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


ROWS = 10_000


class WatchedFile(io.FileIO):
    """A file that notes which threads read it."""

    def __init__(self, path, threads):
        super().__init__(path)
        self.threads = threads

    def read(self, size=-1):
        self.threads.add(threading.get_ident())
        return super().read(size)


def test_tables_are_read_by_the_calling_thread(tmp_path, monkeypatch):
    """Manifests of inputs, and the tables of data sets."""
    write_corpus(tmp_path / "in", clips=2)
    record(tmp_path / "in", tmp_path / "out", win_len=800, workers=1)
    threads = set()
    monkeypatch.setattr(files, "open_read", lambda path: WatchedFile(path, threads))
    columns = {name: [float(i) for i in range(ROWS)] for name in ("snr", "pitch")}
    content = pa.table({"path": [f"{i}.wav" for i in range(ROWS)], **columns})
    pq.write_table(content, tmp_path / "m.parquet", row_group_size=1000)
    table = open_table(str(tmp_path / "m.parquet"))
    assert table.names == ("path", "snr", "pitch")
    assert column_types([table], ["snr"]) == {"snr": ColumnType("float32")}
    assert sum(1 for _ in read_rows(table)) == ROWS
    audit(tmp_path / "out")
    assert threads == {threading.get_ident()}
