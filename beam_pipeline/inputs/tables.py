"""Manifests: tables with one clip on each row, read as a stream.

CSV and TSV with any delimiter, with or without a header, JSONL, Parquet and Avro; and
tables in memory, which become files first. The package reads a manifest twice: once
before the job starts, for the types of its columns and for every bad row, and once in
the job. At most one batch of rows is in memory.

The file of a table in memory has lines of JSON: first an object with the names of the
columns, and with those whose type is a number; then one for each row. JSON has no
bytes: ``{"base64": ...}`` stands for them, and ``{"object": ...}`` for a mapping. A
missing value is null.
"""

from __future__ import annotations

import base64
import codecs
import csv
import hashlib
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO, NamedTuple

from beam_pipeline.errors import InputError
from beam_pipeline.storage import files
from beam_pipeline.storage.parquet import declared_kinds, open_parquet
from beam_pipeline.text import parse_json

AVRO_SUFFIXES = (".avro",)
ROWS_SUFFIXES = (".memory-rows",)
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
    if suffix in _TYPED:
        return Table(location, _checked(_TYPED[suffix].names(location), location))
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
        return Table(location, _checked(names, location), delimiter, False)
    try:
        header = next(csv.reader(io.StringIO(head, newline=""), delimiter=delimiter))
    except csv.Error as error:
        raise InputError(f"{location}, line 1: {error}.") from error
    return Table(
        location, _checked(tuple(name.strip() for name in header), location), delimiter
    )


def _checked(given: Iterable[str], location: str) -> tuple[str, ...]:
    names = tuple(given)
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
    if suffix in _TYPED:
        yield from _TYPED[suffix].rows(table.location)
        return
    with files.open_read(table.location) as file:
        if suffix in JSON_SUFFIXES:
            yield from json_lines(file, table.location)
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


def json_lines(file: BinaryIO, location: str) -> Iterator[tuple[int, Row]]:
    """Yields (number, object) for each line of JSON that is not empty."""
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
    return _TYPED[suffix].declared(table.location) if suffix in _TYPED else {}


# Avro


def _avro_fields(location: str) -> dict[str, Any]:
    """Maps the names of the fields of an Avro file's records to their schemas."""
    with _opened(location) as reader:
        schema = reader.writer_schema
        fields = schema.get("fields") if isinstance(schema, Mapping) else None
        if fields is None:
            raise InputError(
                f"{location} holds values that are not records. Each row of a manifest "
                "must be a record with a field for each column."
            )
        return {field["name"]: field["type"] for field in fields}


def _avro_rows(location: str) -> Iterator[tuple[int, Row]]:
    with _opened(location) as reader:
        yield from enumerate(reader, 1)


def _avro_kinds(location: str) -> dict[str, tuple[str, bool]]:
    kinds = {name: _kind(each) for name, each in _avro_fields(location).items()}
    return {name: kind for name, kind in kinds.items() if kind is not None}


_KINDS = {
    **dict.fromkeys(("int", "long", "float", "double"), "NaN"),
    "string": "text",
    **dict.fromkeys(("bytes", "fixed"), "bytes"),
}


def _kind(schema: Any) -> tuple[str, bool] | None:
    if isinstance(schema, list):  # a union, which null is often a part of
        kinds = [_kind(each) for each in schema if each != "null"]
        return kinds[0] if len(kinds) == 1 else None
    if isinstance(schema, Mapping):
        if schema["type"] == "array":
            inner = _kind(schema["items"])
            return None if inner is None or inner[1] else (inner[0], True)
        # A logical type, such as a date, is another one in Python.
        return None if "logicalType" in schema else _kind(schema["type"])
    return (_KINDS[schema], False) if schema in _KINDS else None


@contextmanager
def _opened(location: str) -> Iterator[Any]:
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


# Tables in memory

_BASE64, _OBJECT = "base64", "object"

# Methods that convert a data frame of polars, pyarrow or pandas to dicts.
_ROWS_OF: dict[str, tuple[str, ...]] = {
    "to_dicts": (),
    "to_pylist": (),
    "to_dict": ("records",),
}


def is_rows(value: Any) -> bool:
    """Whether a value is a table in memory: a data frame, or a list of dicts."""
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(row, Mapping) for row in value)
    return any(hasattr(value, name) for name in _ROWS_OF)


def write_rows(table: Any, folder: str) -> str:
    """Writes a table in memory into a local folder; returns the file's path.

    The file's name is a hash of its content, so the same rows are the same input.

    Parameters
    ----------
    table
        A list of dicts, or a data frame of pandas, polars or pyarrow.

    Raises
    ------
    InputError
        If the table is empty, or a value is of a type that no example can hold.
    """
    rows = table
    for name, arguments in _ROWS_OF.items():
        if hasattr(table, name) and not isinstance(table, list | tuple):
            rows = getattr(table, name)(*arguments)
            break
    names = list(dict.fromkeys(str(name) for row in rows for name in row))
    if not names:
        raise InputError("The table given as input has no rows.")
    numbers = {str(name) for name in _number_columns(table)}
    digest = hashlib.blake2b(digest_size=8)
    draft = os.path.join(folder, "rows")
    with open(draft, "wb") as file:
        for line in _lines(rows, names, numbers):
            digest.update(line)
            file.write(line)
    path = os.path.join(folder, digest.hexdigest() + ROWS_SUFFIXES[0])
    os.replace(draft, path)
    return path


def _lines(rows: Any, names: list[str], numbers: set[str]) -> Iterator[bytes]:
    head = {"names": names, "numbers": sorted(numbers)}
    yield json.dumps(head, ensure_ascii=False).encode() + b"\n"
    for number, row in enumerate(rows, 1):
        values = {str(name): value for name, value in row.items()}
        made = {name: _to_json(values.get(name), name, number) for name in names}
        yield json.dumps(made, ensure_ascii=False).encode() + b"\n"


def _number_columns(table: Any) -> Iterator[Any]:
    """Yields the columns of a data frame whose type is a number."""
    if hasattr(table, "to_arrow"):  # of polars
        table = table.to_arrow()
    if hasattr(table, "to_pylist"):
        numbers = ("int", "uint", "float", "double", "halffloat", "decimal")
        yield from (f.name for f in table.schema if str(f.type).startswith(numbers))
    elif hasattr(table, "dtypes"):
        for name, dtype in table.dtypes.items():
            if getattr(dtype, "kind", "O") in "iuf":
                yield name


def _memory_head(location: str) -> dict[str, list[str]]:
    """Returns the names of the columns, and the ``numbers`` among them."""
    with files.open_read(location) as file:
        head: dict[str, list[str]] = parse_json(file.readline())
    return head


def _memory_numbers(location: str) -> dict[str, tuple[str, bool]]:
    return dict.fromkeys(_memory_head(location)["numbers"], ("NaN", False))


def memory_rows(location: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yields (number, row), from number 1."""
    with files.open_read(location) as file:
        file.readline()
        for number, line in enumerate(file, 1):
            row = parse_json(line)
            yield number, {name: _from_json(value) for name, value in row.items()}


def _to_json(value: Any, name: str, number: int) -> Any:
    if hasattr(value, "tolist"):  # from numpy
        value = value.tolist()
    if type(value).__name__ == "NAType":  # pandas.NA, which has no truth value
        return None
    if isinstance(value, list | tuple):
        return [_to_json(entry, name, number) for entry in value]
    if isinstance(value, Mapping):
        made = {str(key): _to_json(v, name, number) for key, v in value.items()}
        return {_OBJECT: made}
    if isinstance(value, bytes | bytearray | memoryview):
        return {_BASE64: base64.b64encode(value).decode()}
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float) or value != value:
        return value if value == value else None
    if hasattr(value, "isoformat"):  # a date
        return value.isoformat()
    raise InputError(
        f"Row {number} of the table given as input has {value!r} in column {name}. "
        "This value is neither text, nor a number, nor bytes, nor a list of these."
    )


def _from_json(value: Any) -> Any:
    if isinstance(value, list):
        return [_from_json(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    if _BASE64 in value:
        return base64.b64decode(value[_BASE64])
    return {name: _from_json(entry) for name, entry in value[_OBJECT].items()}


class _Typed(NamedTuple):
    """A format whose files say what their columns are: its functions of a path."""

    names: Callable[[str], Iterable[str]]
    rows: Callable[[str], Iterator[tuple[int, Row]]]
    declared: Callable[[str], Mapping[str, tuple[str, bool]]]


_PARQUET = _Typed(_parquet_names, _parquet_rows, declared_kinds)
_TYPED = {
    **dict.fromkeys(PARQUET_SUFFIXES, _PARQUET),
    **dict.fromkeys(AVRO_SUFFIXES, _Typed(_avro_fields, _avro_rows, _avro_kinds)),
    **dict.fromkeys(
        ROWS_SUFFIXES,
        _Typed(lambda path: _memory_head(path)["names"], memory_rows, _memory_numbers),
    ),
}
