"""Manifests: tables with one clip on each row, read as a stream.

CSV and TSV with any delimiter, with or without a header, JSONL, Parquet and Avro; and
tables in memory, which become files first. The
package reads a manifest twice: once before the job starts, for the types of its columns
and for every bad row, and once in the job. At most one batch of rows is in memory.
"""

from __future__ import annotations

import codecs
import csv
import io
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from beam_pipeline.errors import InputError
from beam_pipeline.inputs.avro import (
    AVRO_SUFFIXES,
    avro_names,
    avro_rows,
    avro_types,
)
from beam_pipeline.inputs.memory_rows import ROWS_SUFFIXES, memory_head, memory_rows
from beam_pipeline.storage import files
from beam_pipeline.storage.parquet import declared_kinds, open_parquet
from beam_pipeline.text import parse_json

CSV_SUFFIXES = (".csv", ".tsv")
JSON_SUFFIXES = (".jsonl", ".ndjson")
PARQUET_SUFFIXES = (".parquet", ".pq")
MANIFEST_SUFFIXES = (
    *CSV_SUFFIXES, *JSON_SUFFIXES, *PARQUET_SUFFIXES, *AVRO_SUFFIXES, *ROWS_SUFFIXES
)  # fmt: skip

DELIMITERS = ",;\t|"
SNIFFED_BYTES = 1 << 16
BATCH_ROWS = 4096

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Table:
    """A manifest and its format: the names of its columns, and how CSV is written."""

    location: str
    names: tuple[str, ...]
    delimiter: str = ","
    has_header: bool = True


def is_manifest(path: str) -> bool:
    """Whether a path has the suffix of a manifest."""
    return os.path.splitext(path)[1].lower() in MANIFEST_SUFFIXES


def open_table(
    location: str, delimiter: str | None = None, names: Sequence[str] | None = None
) -> Table:
    """Reads the format of a manifest from its beginning; of JSONL, from all lines.

    Parameters
    ----------
    delimiter : str, optional
        The delimiter of CSV. Default: a tab in ``.tsv``; in other files, the one of
        ``, ; tab |`` that occurs most often in the first line.
    names : sequence of str, optional
        The columns of a CSV file that has no header.

    Raises
    ------
    InputError
        If the manifest is empty, or a column's name is missing or occurs twice.
    """
    suffix = os.path.splitext(location)[1].lower()
    if suffix in PARQUET_SUFFIXES:
        found = _parquet_names(location)
        return Table(location, _checked(found, location))
    if suffix in AVRO_SUFFIXES:
        return Table(location, _checked(avro_names(location), location))
    if suffix in ROWS_SUFFIXES:
        return Table(
            location, _checked(tuple(memory_head(location)["names"]), location)
        )
    if suffix in JSON_SUFFIXES:
        # Any line may bring a column that those before it lack.
        rows = (row for _, row in read_rows(Table(location, ())))
        names = tuple(dict.fromkeys(name for row in rows for name in row))
        if not names:
            raise InputError(f"{location} holds no rows.")
        return Table(location, _checked(names, location))
    with files.open_read(location) as file:
        head = file.read(SNIFFED_BYTES).decode("utf-8-sig", "replace")
    line = head.partition("\n")[0].rstrip("\r")
    if not line.strip():
        raise InputError(f"{location} is empty, or its first line is empty.")
    if delimiter is None:
        counts = {mark: line.count(mark) for mark in DELIMITERS}
        most = max(DELIMITERS, key=counts.__getitem__)
        delimiter = "\t" if suffix == ".tsv" else most
    if names is not None:
        return Table(location, _checked(tuple(names), location), delimiter, False)
    try:
        header = next(csv.reader(io.StringIO(head, newline=""), delimiter=delimiter))
    except csv.Error as error:
        raise InputError(f"{location}, line 1: {error}.") from error
    return Table(
        location, _checked(tuple(name.strip() for name in header), location), delimiter
    )


def _checked(names: tuple[str, ...], location: str) -> tuple[str, ...]:
    for name in names:
        if not name or names.count(name) > 1:
            what = f"the column {name!r} twice" if name else "a column without a name"
            raise InputError(
                f"{location} has {what}: its columns are "
                f"{', '.join(map(repr, names))}. If it has no header, give "
                "`column_names`."
            )
    return names


def read_rows(table: Table) -> Iterator[tuple[int, Row]]:
    """Yields (number, row). The number is the line's; in Parquet and Avro, the row's.

    Raises
    ------
    InputError
        If a row cannot be parsed.
    """
    suffix = os.path.splitext(table.location)[1].lower()
    if suffix in PARQUET_SUFFIXES:
        yield from _parquet_rows(table.location)
        return
    if suffix in AVRO_SUFFIXES:
        yield from avro_rows(table.location)
        return
    if suffix in ROWS_SUFFIXES:
        yield from memory_rows(table.location)
        return
    with files.open_read(table.location) as file:
        if suffix in JSON_SUFFIXES:
            yield from _json_rows(file, table.location)
        else:
            yield from _csv_rows(file, table)


def _csv_rows(file: BinaryIO, table: Table) -> Iterator[tuple[int, Row]]:
    text = io.TextIOWrapper(file, "utf-8-sig", newline="")
    reader = csv.reader(text, delimiter=table.delimiter, strict=True)
    names, width = table.names, len(table.names)
    try:
        if table.has_header:
            next(reader)
        for values in reader:
            if len(values) == width:
                yield reader.line_num, dict(zip(names, values, strict=True))
            elif values:
                raise InputError(
                    f"{table.location}, line {reader.line_num}: this line has "
                    f"{len(values)} values, but the table has {width} columns "
                    f"({', '.join(names)})."
                )
    except UnicodeDecodeError as error:
        raise _not_utf8(table.location) from error
    except csv.Error as error:
        raise InputError(
            f"{table.location}, line {reader.line_num + 1}: {error}."
        ) from error
    finally:
        text.detach()  # leaves the file open


def _json_rows(file: BinaryIO, location: str) -> Iterator[tuple[int, Row]]:
    for number, line in enumerate(_decoded(file, location), 1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except ValueError as error:
            raise InputError(f"{location}, line {number}: {error}.") from error
        if not isinstance(row, dict):
            raise InputError(
                f"{location}, line {number}: this line must be an object like "
                f'{{"path": "a.wav"}}, not {type(row).__name__}.'
            )
        yield number, row


def _decoded(file: BinaryIO, location: str) -> Iterator[str]:
    try:
        yield from codecs.iterdecode(file, "utf-8-sig")
    except UnicodeDecodeError as error:
        raise _not_utf8(location) from error


def _not_utf8(location: str) -> InputError:
    """Returns the error for a table that is not UTF-8, with the first such line."""
    with files.open_read(location) as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                shown = line[max(0, error.start - 20) : error.end + 20]
                return InputError(
                    f"{location}, line {number}: not UTF-8, at {shown!r}. Save the "
                    "table as UTF-8."
                )
    return InputError(f"{location}: not UTF-8. Save the table as UTF-8.")


def _parquet_names(location: str) -> tuple[str, ...]:
    try:
        with open_parquet(location) as parquet:
            return tuple(parquet.schema_arrow.names)
    except ValueError as error:
        raise InputError(f"{location} cannot be read as Parquet: {error}") from error


def _parquet_rows(location: str) -> Iterator[tuple[int, Row]]:
    number = 0
    try:
        with open_parquet(location) as parquet:
            for batch in parquet.iter_batches(BATCH_ROWS, use_threads=False):
                for row in batch.to_pylist():
                    number += 1
                    yield number, row
    except ValueError as error:
        raise InputError(
            f"{location}, after row {number}: cannot be read as Parquet: {error}"
        ) from error


def declared_types(table: Table) -> Mapping[str, tuple[str, bool]]:
    """Returns what a file says of its columns, even if they have no value.

    Returns
    -------
    mapping
        From names to a kind, ``NaN`` for numbers, ``text`` or ``bytes``, and whether
        values are lists. Columns of other types are left out; CSV and JSONL have none.
    """
    suffix = os.path.splitext(table.location)[1].lower()
    if suffix in PARQUET_SUFFIXES:
        return declared_kinds(table.location)
    if suffix in AVRO_SUFFIXES:
        return avro_types(table.location)
    if suffix in ROWS_SUFFIXES:
        return dict.fromkeys(memory_head(table.location)["numbers"], ("NaN", False))
    return {}
