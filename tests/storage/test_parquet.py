"""Tests the checksums of tables in Parquet files."""

import struct

import numpy as np
import pyarrow as pa
import pytest

from beam_pipeline.dataset.windows import write_windows
from beam_pipeline.storage.parquet import create_parquet, read_parquet


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
    with create_parquet(str(path), table.schema) as writer:
        writer.write_table(table)
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


def test_nothing_is_there_before_the_table_is_whole(table, tmp_path):
    path = tmp_path / "table.parquet"
    with create_parquet(str(path), table.schema) as writer:
        writer.write_table(table)
        assert not path.exists()
    assert path.exists()


def test_windows_of_no_shard(tmp_path):
    write_windows(str(tmp_path / "windows.parquet"), [])
    assert len(read_parquet(str(tmp_path / "windows.parquet"))) == 0
