"""Tables in Parquet files, read within the limit of memory that their size allows.

A value that repeats takes no bytes on disk: a file of 1 KB may have a billion rows, or
one long text in each of a million. So texts are read as numbers of distinct ones, and
become texts when their length is known.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from beam_pipeline.storage import files
from beam_pipeline.storage.limits import too_long

# Of the dictionaries that Arrow makes of texts while it reads them.
_INDEX_BITS = 32


@contextmanager
def open_parquet(path: str) -> Iterator[Any]:
    """Opens a Parquet file as ``pyarrow.parquet.ParquetFile``; texts are dictionaries.

    :func:`as_texts` turns these into texts. Read it with ``use_threads=False``.
    Otherwise, or with ``pre_buffer``, Arrow's threads read the file and release its
    Python buffers. If that happens while the interpreter shuts down, the process
    aborts.

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
            schema = pq.ParquetFile(file, pre_buffer=False).schema_arrow
            names = [f.name for f in schema if _is_text(f.type)]
            file.seek(0)
            yield pq.ParquetFile(file, pre_buffer=False, read_dictionary=names)
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error


def read_parquet(path: str, columns: Sequence[str] | None = None) -> Any:
    """Returns the table in a Parquet file.

    Parameters
    ----------
    columns : sequence of str, optional
        Default: all.

    Raises
    ------
    ValueError
        If the table takes more memory than :func:`.most_bytes` allows for its file, or
        has columns of lists; see also :func:`open_parquet`.
    OSError
        See :func:`open_parquet`.
    """
    import pyarrow as pa

    size = files.size(path)
    with open_parquet(path) as parquet:
        schema = parquet.schema_arrow
        wanted = [f for f in schema if columns is None or f.name in columns]
        width = sum(_width(field) for field in wanted)
        _check(parquet.metadata.num_rows * width, size)
        tables, held = [], 0
        for k in range(parquet.num_row_groups):
            unpacked = parquet.metadata.row_group(k).total_byte_size
            _check(held + unpacked, size)
            names = [field.name for field in wanted]
            tables.append(parquet.read_row_group(k, names, use_threads=False))
            held += tables[-1].nbytes
            _check(held, size)
        if not tables:
            return pa.schema(wanted).empty_table()
        return as_texts(pa.concat_tables(tables), size)


def read_row_groups(path: str, columns: Sequence[str]) -> Iterator[Any]:
    """Yields some columns of a Parquet file, as a table for each group of rows.

    Raises
    ------
    ValueError, OSError
        As :func:`read_parquet`, if a group of rows takes too much memory.
    """
    size = files.size(path)
    with open_parquet(path) as parquet:
        width = sum(_width(f) for f in parquet.schema_arrow if f.name in columns)
        for k in range(parquet.num_row_groups):
            group = parquet.metadata.row_group(k)
            _check(max(group.num_rows * width, group.total_byte_size), size)
            table = parquet.read_row_group(k, list(columns), use_threads=False)
            yield as_texts(table, size)


def as_texts(table: Any, size: int) -> Any:
    """Returns a table, or a batch, with texts in place of dictionaries of texts.

    Parameters
    ----------
    size : int
        The bytes of its file.

    Raises
    ------
    ValueError
        If the texts take too much memory.
    """
    held = 0
    for k, field in enumerate(table.schema):
        if not _is_dictionary_of_texts(field.type):
            continue
        column = table.column(k)
        held += _length_of_texts(column)
        _check(held, size)
        if field.type.index_type.bit_width < _INDEX_BITS:
            continue  # it was written as a dictionary
        plain = field.with_type(field.type.value_type)
        table = table.set_column(k, plain, column.cast(plain.type))
    return table


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _is_dictionary_of_texts(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_dictionary(kind)) and _is_text(kind.value_type)


def _length_of_texts(column: Any) -> int:
    """Returns the bytes of all texts of a column of dictionaries."""
    import pyarrow.compute as pc

    chunks = getattr(column, "chunks", [column])
    total = 0
    for chunk in chunks:
        lengths = pc.binary_length(chunk.dictionary).take(chunk.indices)
        total += pc.sum(lengths).as_py() or 0
    return total


def _width(field: Any) -> int:
    """Returns the bytes of a value in memory."""
    try:
        width: int = field.type.bit_width
    except ValueError as error:
        raise ValueError(
            f"its column {field.name!r:.80} is of type {field.type!s:.80}"
        ) from error
    return max(width // 8, 1)


def _check(length: int, size: int) -> None:
    problem = too_long(length, size)
    if problem is not None:
        raise ValueError(problem)
