"""Tables in Parquet files, read within the limit of memory that their size allows.

A value that repeats takes no bytes on disk: a file of 1 KB may have a billion rows, or
one long text in each of a million. So texts are read as numbers of distinct ones, and
become texts when their length is known. So are texts in lists.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from beam_pipeline.storage import files
from beam_pipeline.storage.limits import too_long

# Of the dictionaries that Arrow makes of texts while it reads them.
_INDEX_BITS = 32
# Of each list, beside its entries.
_LENGTH_BYTES = 4


@contextmanager
def create_parquet(path: str, schema: Any, **options: Any) -> Iterator[Any]:
    """Gives a ``pyarrow.parquet.ParquetWriter``; the file is there when it is whole.

    Each page has a checksum, which :func:`open_parquet` compares.

    Parameters
    ----------
    schema : pyarrow.Schema
    **options
        Of the writer.
    """
    import pyarrow.parquet as pq

    draft = files.draft_of(path)
    with pq.ParquetWriter(
        draft, schema, compression="zstd", write_page_checksum=True, **options
    ) as writer:
        yield writer
    files.move(draft, path)


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
            parquet = pq.ParquetFile(file, pre_buffer=False)
            names = _names_of_texts(parquet)
            file.seek(0)
            yield pq.ParquetFile(
                file,
                pre_buffer=False,
                read_dictionary=names,
                page_checksum_verification=True,
            )
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
        has columns of objects, or of lists of lists; see also :func:`open_parquet`.
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
            group = parquet.metadata.row_group(k)
            names = [field.name for field in wanted]
            entries = _entry_bytes(group, wanted)
            _check(held + max(group.total_byte_size, entries), size)
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
        wanted = [f for f in parquet.schema_arrow if f.name in columns]
        width = sum(map(_width, wanted))
        for k in range(parquet.num_row_groups):
            group = parquet.metadata.row_group(k)
            length = group.num_rows * width + _entry_bytes(group, wanted)
            _check(max(length, group.total_byte_size), size)
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
    import pyarrow as pa

    held = 0
    for k, field in enumerate(table.schema):
        is_list = _is_list(field.type)
        kind = field.type.value_type if is_list else field.type
        if not _is_dictionary_of_texts(kind):
            continue
        column = table.column(k)
        held += _length_of_texts(column, is_list)
        _check(held, size)
        if kind.index_type.bit_width < _INDEX_BITS:
            continue  # it was written as a dictionary
        plain = pa.list_(kind.value_type) if is_list else kind.value_type
        table = table.set_column(k, field.with_type(plain), column.cast(plain))
    return table


def declared_kinds(path: str) -> dict[str, tuple[str, bool]]:
    """Returns the columns of numbers, texts and bytes, also those without a value.

    Returns
    -------
    dict
        From names to ``NaN``, ``text`` or ``bytes``, and whether values are lists.
    """
    import pyarrow as pa

    with open_parquet(path) as parquet:
        schema = parquet.schema_arrow
    found = {}
    for field in schema:
        is_list = _is_list(field.type)
        kind = field.type.value_type if is_list else field.type
        if pa.types.is_dictionary(kind):
            kind = kind.value_type
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            found[field.name] = "NaN", is_list
        elif _is_text(kind):
            is_bytes = pa.types.is_binary(kind)
            found[field.name] = "bytes" if is_bytes else "text", is_list
    return found


def _names_of_texts(parquet: Any) -> list[str]:
    """Returns the paths of the columns of texts, and of lists of texts."""
    kinds = {field.name: field.type for field in parquet.schema_arrow}
    names = []
    for k in range(parquet.metadata.num_columns):
        path = parquet.metadata.schema.column(k).path
        kind = kinds.get(path, kinds.get(_list_of(path)))
        if kind is not None and _is_list(kind):
            kind = kind.value_type
        if kind is not None and _is_text(kind):
            names.append(path)
    return names


def _list_of(path: str) -> str:
    """Returns the column of lists whose entries have a path: ``tags.list.element``."""
    return path.rsplit(".", 2)[0]


def _is_text(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_binary(kind))


def _is_list(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list(kind))


def _is_dictionary_of_texts(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_dictionary(kind)) and _is_text(kind.value_type)


def _length_of_texts(column: Any, is_list: bool) -> int:
    """Returns the bytes of all texts of a column of dictionaries, or of lists."""
    import pyarrow.compute as pc

    total = 0
    for chunk in getattr(column, "chunks", [column]):
        texts = chunk.flatten() if is_list else chunk
        lengths = pc.binary_length(texts.dictionary).take(texts.indices)
        total += pc.sum(lengths).as_py() or 0
    return total


def _width(field: Any) -> int:
    """Returns the bytes of a value in memory; of a list, those that say its length."""
    kind = field.type
    if _is_list(kind):
        _width_of_entry(field)
        return _LENGTH_BYTES
    return _bytes_of(kind, field)


def _width_of_entry(field: Any) -> int:
    return _bytes_of(field.type.value_type, field)


def _bytes_of(kind: Any, field: Any) -> int:
    try:
        width: int = kind.bit_width
    except ValueError as error:
        raise ValueError(
            f"its column {field.name!r:.80} is of type {field.type!s:.80}"
        ) from error
    return max(width // 8, 1)


def _entry_bytes(group: Any, wanted: Sequence[Any]) -> int:
    """Returns the bytes of the entries of all lists of a group of rows in memory."""
    widths = {f.name: _width_of_entry(f) for f in wanted if _is_list(f.type)}
    total = 0
    for k in range(group.num_columns if widths else 0):
        column = group.column(k)
        total += column.num_values * widths.get(_list_of(column.path_in_schema), 0)
    return total


def _check(length: int, size: int) -> None:
    problem = too_long(length, size)
    if problem is not None:
        raise ValueError(problem)
