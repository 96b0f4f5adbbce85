"""Manifests: tables with one clip on each row, read as a stream.

CSV and TSV with any delimiter, with or without a header, JSONL, Parquet and Avro; a
table in memory becomes a Parquet file first. The package reads a manifest twice: once
before the job starts, for the types of its columns and for every bad row, and once in
the job. At most one batch of rows is in memory.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, TextIO

from beam_pipeline.errors import InputError
from beam_pipeline.storage import files
from beam_pipeline.storage.pages import open_parquet
from beam_pipeline.text import parse_json

CSV_SUFFIXES = (".csv", ".tsv")
JSON_SUFFIXES = (".jsonl", ".ndjson")
PARQUET_SUFFIXES = (".parquet", ".pq")
AVRO_SUFFIXES = (".avro",)
MANIFEST_SUFFIXES = (*CSV_SUFFIXES, *JSON_SUFFIXES, *PARQUET_SUFFIXES, *AVRO_SUFFIXES)

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

    @property
    def suffix(self) -> str:
        """The end of its name, in lower case, which says what the format is."""
        return os.path.splitext(self.location)[1].lower()


def is_manifest(path: str) -> bool:
    """Whether a path has the suffix of a manifest."""
    return Table(path, ()).suffix in MANIFEST_SUFFIXES


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
    table = Table(location, ())
    if table.suffix in CSV_SUFFIXES:
        return _open_csv(table, delimiter, names)
    if table.suffix in PARQUET_SUFFIXES:
        with _parquet(location) as parquet:
            found = parquet.schema_arrow.names
    elif table.suffix in AVRO_SUFFIXES:
        with _avro(location) as reader:
            schema = reader.writer_schema
            if not isinstance(schema, Mapping) or "fields" not in schema:
                raise InputError(
                    f"{location} holds values that are not records. Each row of a "
                    "manifest must be a record with a field for each column."
                )
            found = [field["name"] for field in schema["fields"]]
    else:
        # Any line may bring a column that those before it lack.
        found = [*dict.fromkeys(name for _, row in read_rows(table) for name in row)]
        if not found:
            raise InputError(f"{location} holds no rows.")
    return Table(location, _checked(found, location))


def _open_csv(
    table: Table, delimiter: str | None, names: Sequence[str] | None
) -> Table:
    with files.open_read(table.location) as file:
        head = file.read(SNIFFED_BYTES).decode("utf-8-sig", "replace")
        line = head.partition("\n")[0].rstrip("\r")
        if "\0" in line:  # UTF-16
            raise _not_utf8(file, table.location)
    if not line.strip():
        raise InputError(f"{table.location} is empty, or its first line is empty.")
    if delimiter is None:
        delimiter = "\t" if table.suffix == ".tsv" else max(DELIMITERS, key=line.count)
    has_header = names is None
    if names is None:
        lines = io.StringIO(head, newline="")
        _, header = next(split_lines(lines, table.location, delimiter))
        names = [name.strip() for name in header]
    return Table(table.location, _checked(names, table.location), delimiter, has_header)


def _checked(names: Sequence[str], where: str) -> tuple[str, ...]:
    for name in names:
        if not name or list(names).count(name) > 1:
            what = f"the column {name!r} twice" if name else "a column without a name"
            raise InputError(
                f"{where} has {what}: its columns are {', '.join(map(repr, names))}. "
                "If it has no header, give `column_names`."
            )
    return tuple(names)


def read_rows(table: Table) -> Iterator[tuple[int, Row]]:
    """Yields (number, row). The number is the line's; in Parquet and Avro, the row's.

    Raises
    ------
    InputError
        If a row cannot be parsed.
    """
    location = table.location
    if table.suffix in PARQUET_SUFFIXES:
        with _parquet(location) as parquet:
            batches = parquet.iter_batches(BATCH_ROWS, use_threads=False)
            yield from enumerate(
                (row for some in batches for row in some.to_pylist()), 1
            )
    elif table.suffix in AVRO_SUFFIXES:
        with _avro(location) as reader:
            yield from enumerate(reader, 1)
    else:
        with files.open_read(location) as file, decoded(file, location) as text:
            if table.suffix in JSON_SUFFIXES:
                yield from json_lines(text, location)
                return
            lines = split_lines(text, location, table.delimiter)
            if table.has_header:
                next(lines)
            yield from named(lines, table.names, location)


@contextmanager
def decoded(file: BinaryIO, location: str) -> Iterator[TextIO]:
    """Yields a file's text, which is UTF-8; the file stays open.

    Raises
    ------
    InputError
        If it is not UTF-8; it names the first such line.
    """
    text = io.TextIOWrapper(file, "utf-8-sig", newline="")
    try:
        yield text
    except UnicodeDecodeError as error:
        raise _not_utf8(file, location) from error
    finally:
        text.detach()


def _not_utf8(file: BinaryIO, location: str) -> InputError:
    file.seek(0)
    for number, line in enumerate(file, 1):
        try:
            line.decode()
        except UnicodeDecodeError as error:
            shown = line[max(0, error.start - 20) : error.end + 20]
            return InputError(
                f"{location}, line {number}: not UTF-8, at {shown!r}. Save the table "
                "as UTF-8."
            )
    return InputError(f"{location}: not UTF-8. Save the table as UTF-8.")


def split_lines(
    text: Iterable[str], location: str, delimiter: str, has_quotes: bool = True
) -> Iterator[tuple[int, list[str]]]:
    """Yields (line, values) of each row of CSV; empty lines are left out.

    The line is the row's first; a row with quotes may have several.
    """
    reader = csv.reader(
        text,
        delimiter=delimiter,
        quoting=csv.QUOTE_MINIMAL if has_quotes else csv.QUOTE_NONE,
        strict=True,
    )
    line = 1
    try:
        for values in reader:
            if values:
                yield line, values
            line = reader.line_num + 1
    except csv.Error as error:
        hint = "; check for a missing closing quote" if has_quotes else ""
        raise InputError(f"{location}, line {line}: {error}{hint}.") from error


def named(
    lines: Iterable[tuple[int, list[str]]], names: Sequence[str], location: str
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the values of rows by the names of their columns."""
    for line, values in lines:
        if len(values) != len(names):
            raise InputError(
                f"{location}, line {line}: this line has {len(values)} values, but the "
                f"table has {len(names)} columns ({', '.join(names)})."
            )
        yield line, dict(zip(names, values, strict=True))


def json_lines(
    lines: Iterable[str], location: str
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (number, object) for each line of JSON that is not empty."""
    for number, line in enumerate(lines, 1):
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


@contextmanager
def _parquet(location: str) -> Iterator[Any]:
    try:
        with open_parquet(location) as parquet:
            yield parquet
    except ValueError as error:
        raise InputError(f"{location} cannot be read as Parquet: {error}") from error


@contextmanager
def _avro(location: str) -> Iterator[Any]:
    """Opens a file as ``fastavro.reader``, whose errors become InputError."""
    import fastavro

    with files.open_read(location) as file:
        try:
            yield fastavro.reader(file)
        except InputError:
            raise
        # What fastavro raises for a damaged file is of many types.
        except Exception as error:
            raise InputError(
                f"{location} cannot be read as Avro: {type(error).__name__}: {error}"
            ) from error


def declared_types(table: Table) -> dict[str, Any]:
    """Returns the types of Arrow of a Parquet file's columns; else none."""
    if table.suffix not in PARQUET_SUFFIXES:
        return {}
    with _parquet(table.location) as parquet:
        schema = parquet.schema_arrow
    return dict(zip(schema.names, schema.types, strict=True))


# Tables in memory

# What data frames of polars, pyarrow and pandas have.
_FRAMES = ("to_arrow", "to_pylist", "to_dict")


def is_rows(value: Any) -> bool:
    """Whether a value is a table in memory: a data frame, or a list of dicts."""
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(row, Mapping) for row in value)
    return any(hasattr(value, name) for name in _FRAMES)


def write_rows(table: Any, folder: str) -> str:
    """Writes a table in memory into a local folder as Parquet; returns the path.

    The file's name is a hash of its content, so the same rows are the same input.

    Parameters
    ----------
    table
        A list of dicts, or a data frame of pandas, polars or pyarrow. A column with
        values of several types is text, and so are mappings and dates.

    Raises
    ------
    InputError
        If the table has no columns, or a value is of a type that no example can hold.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if hasattr(table, "to_arrow"):
        table = table.to_arrow()
    if isinstance(table, list | tuple):
        rows = [{str(name): value for name, value in row.items()} for row in table]
        names = [*dict.fromkeys(name for row in rows for name in row)]
        columns = [[row.get(name) for row in rows] for name in names]
    elif hasattr(table, "column_names"):
        names, columns = table.column_names, table.columns
    else:
        names, columns = table.columns, [each for _, each in table.items()]
    if not len(columns):
        raise InputError("The table given as input has no rows.")
    known = _checked([*map(str, names)], "The table given as input")
    arrays = [_column(*each) for each in zip(known, columns, strict=True)]
    content = io.BytesIO()
    pq.write_table(pa.table(arrays, known), content)
    digest = hashlib.blake2b(content.getbuffer(), digest_size=8).hexdigest()
    path = os.path.join(folder, digest + PARQUET_SUFFIXES[0])
    with open(path, "wb") as file:
        file.write(content.getbuffer())
    return path


def _column(name: str, values: Any) -> Any:
    """Returns a column of Arrow; a text for each value if Arrow has no type for all."""
    import pyarrow as pa

    array = values
    try:
        if not isinstance(values, pa.Array | pa.ChunkedArray):
            array = pa.array(values, from_pandas=True)
        if not (pa.types.is_temporal(array.type) or pa.types.is_struct(array.type)):
            return array
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        pass
    values = values.to_pylist() if hasattr(values, "to_pylist") else [*values]
    texts = [_text(value, name, number) for number, value in enumerate(values, 1)]
    return pa.array(texts, pa.string())


def _text(value: Any, name: str, number: int) -> str | None:
    """Returns a value as text; None if it is missing."""
    if type(value).__name__ in ("NAType", "NaTType", "NoneType"):
        return None
    if isinstance(value, float) and value != value:
        return None
    if hasattr(value, "tolist"):  # from numpy
        value = value.tolist()
    if isinstance(value, list | tuple | Mapping):
        return json.dumps(value, ensure_ascii=False, default=str)
    if hasattr(value, "isoformat"):
        return str(value.isoformat())
    if isinstance(value, str | int | float | os.PathLike):
        return str(value)
    raise InputError(
        f"Row {number} of the table given as input has {value!r} in column {name}. "
        "This value is neither text, nor a number, nor bytes, nor a list of these."
    )
