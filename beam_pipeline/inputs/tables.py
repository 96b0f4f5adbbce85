"""Manifests: tables with one clip on each row, read as a stream.

CSV and TSV with any delimiter, with or without a header, JSONL, Parquet and Avro. The
package reads a manifest twice: once before the job starts, for the types of its columns
and for every bad row, and once in the job. At most one batch of rows is in memory.
"""

from __future__ import annotations

import codecs
import csv
import hashlib
import io
import json
import math
import os
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from beam_pipeline.errors import InputError
from beam_pipeline.inputs.avro import AVRO_SUFFIXES, avro_names, avro_rows
from beam_pipeline.storage import files
from beam_pipeline.storage.json_text import parse_json
from beam_pipeline.storage.parquet import as_texts, open_parquet

CSV_SUFFIXES = (".csv", ".tsv")
JSON_SUFFIXES = (".jsonl", ".ndjson")
PARQUET_SUFFIXES = (".parquet", ".pq")
MANIFEST_SUFFIXES = (
    *CSV_SUFFIXES, *JSON_SUFFIXES, *PARQUET_SUFFIXES, *AVRO_SUFFIXES
)  # fmt: skip

DELIMITERS = ",;\t|"
SNIFFED_BYTES = 1 << 16
BATCH_ROWS = 4096
# Types of columns.
INT64, FLOAT32, FLOAT64, STRING = "int64", "float32", "float64", "string"
# float32 holds every whole number up to this one.
MOST_WHOLE_FLOAT32 = 2**24

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
    """Reads the format of a manifest from its beginning.

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
    if suffix in JSON_SUFFIXES:
        first = next(read_rows(Table(location, ())), None)
        if first is None:
            raise InputError(f"{location} holds no rows.")
        return Table(location, _checked(tuple(first[1]), location))
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
    with files.open_read(table.location) as file:
        if suffix in JSON_SUFFIXES:
            yield from _json_rows(file, table.location)
        else:
            yield from _csv_rows(file, table)


def is_rows(value: Any) -> bool:
    """Whether a value is a table in memory: a data frame, or a list of dicts."""
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(row, Mapping) for row in value)
    return any(hasattr(value, name) for name in _ROWS_OF)


def write_rows(table: Any, folder: str) -> str:
    """Writes a table in memory as JSONL into a local folder; returns the file's path.

    The file's name is a hash of its content, so the same rows are the same input.

    Parameters
    ----------
    table
        A list of dicts, or a data frame of pandas, polars or pyarrow.

    Raises
    ------
    InputError
        If the table is empty, or a value is neither text nor a number.
    """
    rows = table
    for name, arguments in _ROWS_OF.items():
        if hasattr(table, name) and not isinstance(table, list | tuple):
            rows = getattr(table, name)(*arguments)
            break
    names = list(dict.fromkeys(str(name) for row in rows for name in row))
    if not names:
        raise InputError("The table given as input has no rows.")
    digest = hashlib.blake2b(digest_size=8)
    draft = os.path.join(folder, "rows")
    with open(draft, "wb") as file:
        for number, row in enumerate(rows, 1):
            values = {str(name): value for name, value in row.items()}
            plain = {n: _plain(values.get(n), n, number) for n in names}
            line = json.dumps(plain, ensure_ascii=False).encode() + b"\n"
            digest.update(line)
            file.write(line)
    path = os.path.join(folder, f"{digest.hexdigest()}.jsonl")
    os.replace(draft, path)
    return path


# Methods that convert a data frame of polars, pyarrow or pandas to dicts.
_ROWS_OF: dict[str, tuple[str, ...]] = {
    "to_dicts": (),
    "to_pylist": (),
    "to_dict": ("records",),
}


def _plain(value: Any, name: str, number: int) -> Any:
    """Converts a value to JSON; a missing value is null."""
    if hasattr(value, "tolist"):  # from numpy
        value = value.tolist()
    if type(value).__name__ == "NAType":  # pandas.NA, which has no truth value
        return None
    if isinstance(value, list | tuple):
        return [_plain(entry, name, number) for entry in value]
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
        "This value is neither text nor a number."
    )


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
    number, size = 0, files.size(location)
    try:
        with open_parquet(location) as parquet:
            for batch in parquet.iter_batches(BATCH_ROWS, use_threads=False):
                for row in as_texts(batch, size).to_pylist():
                    number += 1
                    yield number, row
    except ValueError as error:
        raise InputError(
            f"{location}, after row {number}: cannot be read as Parquet: {error}"
        ) from error


def column_types(table: Table, names: Sequence[str]) -> dict[str, str]:
    """Finds the type of each column that examples hold, from all its values.

    A column of whole numbers is int64, of other numbers float32, or float64 if float32
    would lose digits, and of anything else text. If numbers are missing, they are NaN
    and the column is not int64; but with whole numbers beyond 2**24, which may be keys,
    it is text.
    """
    kinds: dict[str, set[str]] = {name: set() for name in names}
    for _, row in read_rows(table):
        for name, found in kinds.items():
            if "text" not in found:  # text stays text
                found.add(_kind_of(row.get(name)))
    return {name: _TYPE_OF[_widest(found)] for name, found in kinds.items()}


def is_number(value: Any) -> bool:
    """Whether a value may be a number; Python also reads 1_2 and non-ASCII digits."""
    return not isinstance(value, str) or ("_" not in value and value.isascii())


def fits_int64(value: int) -> bool:
    """Whether 64 bits hold a whole number."""
    return -(2**63) <= value < 2**63


_TYPE_OF = {"text": STRING, "number": FLOAT32, "long": FLOAT64, "whole": INT64}


def _widest(found: set[str]) -> str:
    if "text" in found or found <= {"missing"}:
        return "text"
    if found <= {"whole", "large"}:
        return "whole"
    # With missing values the type is float32, which would change large whole numbers.
    fractions = found & {"number", "long"}
    if not found & {"large", "large round"}:
        return "long" if "long" in found else "number"
    return "text" if "missing" in found and not fractions else "long"


def _kind_of_float(value: float) -> str:
    if not value.is_integer():
        return "number" if _survives_float32(value) else "long"
    return "round" if abs(value) <= MOST_WHOLE_FLOAT32 else "large round"


def _survives_float32(value: float) -> bool:
    """Whether float32 holds a number, or all digits of a number of at most seven."""
    try:
        (narrow,) = struct.unpack("f", struct.pack("f", value))
    except OverflowError:
        return False
    return bool(narrow == value) or float(f"{narrow:.7g}") == value


def _kind_of_whole(value: int) -> str:
    if not fits_int64(value):
        return "text"
    return "whole" if abs(value) <= MOST_WHOLE_FLOAT32 else "large"


def _kind_of(value: Any) -> str:
    if value is None or value == "":
        return "missing"
    if isinstance(value, bool | int):
        return _kind_of_whole(value)
    if isinstance(value, float):
        return _kind_of_float(value) if value == value else "missing"
    if not isinstance(value, str) or not is_number(value):
        return "text"
    try:
        whole = int(value)
        # 007 is a code, not a number.
        is_code = value.lstrip("+-") not in ("0", value.lstrip("+-0"))
        return "text" if is_code else _kind_of_whole(whole)
    except ValueError:
        pass
    try:
        number = float(value)
    except ValueError:
        return "text"
    return _kind_of_float(number) if math.isfinite(number) else "text"
