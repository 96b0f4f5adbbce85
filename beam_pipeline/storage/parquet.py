"""Tables in Parquet files: written as a whole, and read with their checksums."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from beam_pipeline.storage import files

_T = TypeVar("_T")


def write_parquet(
    path: str, schema: Any, tables: Iterable[Any], **options: Any
) -> None:
    """Writes tables into one Parquet file; it is there when it is whole.

    Each page has a checksum, which :func:`open_parquet` compares.

    Parameters
    ----------
    schema : pyarrow.Schema
    tables : iterable of pyarrow.Table
        Each becomes a group of rows.
    **options
        Of ``pyarrow.parquet.ParquetWriter``.
    """
    import pyarrow.parquet as pq

    with (
        files.replacing(path) as file,
        pq.ParquetWriter(
            file, schema, compression="zstd", write_page_checksum=True, **options
        ) as writer,
    ):
        for table in tables:
            writer.write_table(table)


def in_groups(
    parts: Iterable[_T], rows_of: Callable[[_T], int], least: int
) -> Iterator[list[_T]]:
    """Yields parts of a table that have at least so many rows together."""
    waiting: list[_T] = []
    rows = 0
    for part in parts:
        waiting.append(part)
        rows += rows_of(part)
        if rows >= least:
            yield waiting
            waiting, rows = [], 0
    if rows:
        yield waiting


@contextmanager
def open_parquet(path: str) -> Iterator[Any]:
    """Opens a Parquet file as ``pyarrow.parquet.ParquetFile``.

    Read it with ``use_threads=False``. Otherwise, or with ``pre_buffer``, Arrow's
    threads read the file and release its Python buffers. If that happens while the
    interpreter shuts down, the process aborts.

    Raises
    ------
    ValueError
        If it is not Parquet, or Arrow cannot read it; also while the block reads it.
    OSError
        If it cannot be opened, or is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with files.open_read(path) as file:
            yield pq.ParquetFile(
                file, pre_buffer=False, page_checksum_verification=True
            )
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error


def read_parquet(path: str, columns: Sequence[str] | None = None) -> Any:
    """Returns the table in a Parquet file, or some of its columns.

    Raises
    ------
    ValueError, OSError
        See :func:`open_parquet`.
    """
    with open_parquet(path) as parquet:
        names = parquet.schema_arrow.names
        wanted = [name for name in names if columns is None or name in columns]
        return parquet.read(wanted, use_threads=False)


def read_row_groups(path: str, columns: Sequence[str]) -> Iterator[Any]:
    """Yields some columns of a Parquet file, as a table for each group of rows.

    Raises
    ------
    ValueError, OSError
        See :func:`open_parquet`.
    """
    with open_parquet(path) as parquet:
        for k in range(parquet.num_row_groups):
            yield parquet.read_row_group(k, list(columns), use_threads=False)
