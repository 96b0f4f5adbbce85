"""Manifests: tables with one clip on each row, read as a stream.

CSV and TSV with any delimiter, with or without a header, JSONL, Parquet and Avro; a
table in memory becomes a Parquet file first. The package reads a manifest twice: once
before the job starts, for the types of its columns and for every bad row, and once in
the job. At most one batch of rows is in memory.

The type of a column follows from all of its values:

======================================  =================================
values of a column                      type
======================================  =================================
whole numbers                           int64
other numbers                           float32; float64 to keep digits
bytes                                   bytes
anything else                           string
lists of one of these                   a list, of one length or of any
======================================  =================================
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, BinaryIO, NamedTuple, TextIO

import numpy as np

from beam_pipeline.arrays import BYTES, STRING, TEXTS
from beam_pipeline.errors import InputError
from beam_pipeline.storage import files
from beam_pipeline.storage.pages import open_parquet
from beam_pipeline.text import parse_json

CSV_SUFFIXES = (".csv", ".tsv")
JSON_SUFFIXES = (".jsonl", ".ndjson")
PARQUET_SUFFIXES = (".parquet", ".pq")
AVRO_SUFFIXES = (".avro",)
PATH_OR_ROWS = "a path, a list of dicts or a data frame"
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
            found = [field["name"] for field in reader.writer_schema["fields"]]
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
            row = parse_json(line, object_pairs_hook=_all_different)
        except ValueError as error:
            raise InputError(f"{location}, line {number}: {error}.") from error
        if not isinstance(row, dict):
            raise InputError(
                f"{location}, line {number}: this line must be an object like "
                f'{{"path": "a.wav"}}, not {type(row).__name__}.'
            )
        yield number, row


def _all_different(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Returns a JSON object; ValueError if it has a key twice."""
    made: dict[str, Any] = {}
    for name, value in pairs:
        if name in made:
            raise ValueError(f"it has the key {name!r} twice; leave one of them out")
        made[name] = value
    return made


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


# Columns

INT64, FLOAT32, FLOAT64 = "int64", "float32", "float64"
# float32 holds every whole number up to this one, and float64 up to the other.
MOST_WHOLE_FLOAT32 = 2**24
MOST_WHOLE_FLOAT64 = 2**53
MOST_FLOAT32 = 3.4028234663852886e38
# No file holds more frames: at 8 bits, these are a terabyte.
MOST_KNOWN = 2**40


class ColumnType(NamedTuple):
    """What each value of a column is.

    Attributes
    ----------
    dtype : str
        ``int64``, ``float32``, ``float64``, ``string`` or ``bytes``.
    shape : tuple
        ``()``: a single value. ``(n,)``: a list of n values. ``(None,)``: a list of any
        length.
    """

    dtype: str
    shape: tuple[int | None, ...] = ()

    @property
    def is_one_number(self) -> bool:
        """Whether a value is one number."""
        return not self.shape and self.dtype not in TEXTS


Column = tuple[str, ColumnType]

# Kinds of values. A number is WHOLE or a FLOAT; LARGE if it is an integer that float32
# may not hold; a FRACTION is LONG if float32 loses digits of it.
TEXT, RAW_BYTES, NESTED, MISSING, NAN = "text", "bytes", "nested", "missing", "NaN"
WHOLE, FLOAT, LARGE, FRACTION, LONG = "whole", "float", "large", "fraction", "long"
# Those of types whose values are alike; texts, and all else that has none, are TEXT.
_KIND_OF = {
    type(None): MISSING, bytes: RAW_BYTES, dict: NESTED, list: NESTED, tuple: NESTED,
}  # fmt: skip


def column_types(
    tables: Sequence[Table], names: Sequence[str]
) -> dict[str, ColumnType]:
    """Finds the type of each column that examples hold, from all values of all tables.

    A column of whole numbers is int64, of other numbers float32, or float64 if float32
    would lose digits, and of anything else text. If numbers are missing, they are NaN
    and the column is not int64; but with whole numbers beyond 2**24, which may be keys,
    it is text. Lists of such values are lists of one type. Lists of lists, and lists
    beside single values, are text.

    What a Parquet file declares counts for columns without a value.
    """
    seen = {name: _Seen() for name in names}
    declared: dict[str, Any] = {}
    for table in tables:
        rows = read_rows(table)
        while batch := [row for _, row in islice(rows, BATCH_ROWS)]:
            for name, column in seen.items():
                column.add([row.get(name) for row in batch])
        declared |= declared_types(table)
    return {name: column.type(declared.get(name)) for name, column in seen.items()}


class _Seen:
    """The kinds of a column's values so far."""

    def __init__(self) -> None:
        self._kinds: set[str] = set()
        self._entries: set[str] = set()  # of lists
        self._lengths: set[int] = set()  # two of them show that they differ

    def add(self, values: Sequence[Any]) -> None:
        """Adds some values."""
        lists = [value for value in values if isinstance(value, list | tuple)]
        self._lengths.update(islice({len(value) for value in lists}, 2))
        for entries in lists:
            if NESTED not in self._entries:
                # Lists come from files that have types: a text in them is a text.
                self._entries |= _kinds(entries, reads_text=False)
        if TEXT not in self._kinds:  # text stays text
            single = values
            if lists:
                single = [v for v in values if not isinstance(v, list | tuple)]
            self._kinds |= _kinds(single)

    def type(self, declared: Any) -> ColumnType:
        """Returns the type; ``declared`` is that of Arrow, if a file declares one."""
        kind, is_list = _declared_kind(declared)
        single = self._kinds - {MISSING, NAN}
        if NESTED in self._kinds | self._entries or (self._lengths and single):
            return ColumnType(STRING)
        if self._lengths or (is_list and not single):
            is_fixed = len(self._lengths) == 1 and not self._kinds
            size = next(iter(self._lengths)) if is_fixed else None
            return ColumnType(
                _dtype_of(self._entries or {kind}, are_entries=True), (size or None,)
            )
        return ColumnType(_dtype_of(self._kinds if single else {*self._kinds, kind}))


def _declared_kind(declared: Any) -> tuple[str, bool]:
    """Returns the kind of a type of Arrow, and whether values are lists."""
    if declared is None:
        return MISSING, False
    from pyarrow import types

    is_list = types.is_list(declared) or types.is_large_list(declared)
    kind = declared.value_type if is_list else declared
    if types.is_dictionary(kind):
        kind = kind.value_type
    if types.is_integer(kind) or types.is_floating(kind):
        return NAN, is_list
    if types.is_binary(kind) or types.is_large_binary(kind):
        return RAW_BYTES, is_list
    is_text = types.is_string(kind) or types.is_large_string(kind)
    return TEXT if is_text else MISSING, is_list


def _dtype_of(kinds: set[str], are_entries: bool = False) -> str:
    """Returns the type of single values, or of the entries of lists, of some kinds."""
    known = kinds - {MISSING, NAN}
    if known & {TEXT, RAW_BYTES}:
        return BYTES if known == {RAW_BYTES} else STRING
    if not known:
        return FLOAT32 if are_entries or NAN in kinds else STRING
    if known == kinds and FLOAT not in known:
        return INT64
    if LARGE not in known:
        return FLOAT64 if LONG in known else FLOAT32
    # With gaps, large integers may be keys, which a float would change. Lists are
    # measurements.
    are_keys = known != kinds and FRACTION not in known and not are_entries
    return STRING if are_keys else FLOAT64


def _kinds(values: Sequence[Any], reads_text: bool = True) -> set[str]:
    """Returns the kinds of values.

    With ``reads_text``, texts may be numbers, as in CSV.
    """
    by_type: dict[type, list[Any]] = {}
    for value in values:
        by_type.setdefault(type(value), []).append(value)
    kinds: set[str] = set()
    for kind, some in by_type.items():
        if kind is str and reads_text:
            numbers = [_number_or_text(text) for text in set(some)]
            kinds |= _kinds(numbers, reads_text=False)
        elif kind is float:
            kinds |= _kinds_of_floats(np.array(some, np.float64))
        elif kind is int or kind is bool:
            low, high = min(some), max(some)
            kinds.add(WHOLE if fits_int64(low) and fits_int64(high) else TEXT)
            if max(-low, high) > MOST_WHOLE_FLOAT32:
                kinds.add(LARGE)
        else:
            kinds.add(_KIND_OF.get(kind, TEXT))
    return kinds


def _number_or_text(text: str) -> int | float | str | None:
    """Returns the number that a text of a table stands for; None if it is empty."""
    if text == "":
        return None
    with suppress(ValueError):
        whole = int(text)
        digits = text.lstrip("+-")
        is_code = digits not in ("0", digits.lstrip("0"))  # 007
        return text if is_code or not is_number(text) else whole
    with suppress(ValueError):
        number = float(text)
        return number if math.isfinite(number) and is_number(text) else text
    return text


def _kinds_of_floats(values: Any) -> set[str]:
    kinds = {NAN} if (is_nan := np.isnan(values)).any() else set()
    values = values[~is_nan]
    is_round = np.isfinite(values) & (np.trunc(values) == values)
    if (np.abs(values[is_round]) > MOST_WHOLE_FLOAT32).any():
        kinds.add(LARGE)
    fractions = values[~is_round]
    with np.errstate(over="ignore"):
        exact = fractions.astype(np.float32) == fractions
    kinds |= {FLOAT} if values.size else set()
    kinds |= {FRACTION} if fractions.size else set()
    are_long = any(map(_loses_digits, fractions[~exact].tolist()))
    return kinds | {LONG} if are_long else kinds


def _loses_digits(value: float) -> bool:
    """Whether float32 loses digits of a number, of at most seven."""
    with np.errstate(over="ignore"):
        return float(f"{np.float32(value):.7g}") != value


def is_number(value: Any) -> bool:
    """Whether a value may be a number; Python also reads 1_2 and non-ASCII digits."""
    return not isinstance(value, str) or ("_" not in value and value.isascii())


def is_missing(value: Any) -> bool:
    """Whether a cell is empty."""
    return value is None or value == "" or value != value


def fits_int64(value: int) -> bool:
    """Whether 64 bits hold a whole number."""
    return -(2**63) <= value < 2**63


def optional_whole(values: Row, name: str | None, least: int = 1) -> int | None:
    """Returns a column's value as a whole number; None if it is missing."""
    number = optional_number(values, name)
    if number is None:
        return None
    if number != int(number) or not least <= number <= MOST_KNOWN:
        raise ValueError(
            f"has {name} {number:g}, which is not a whole number from {least} to 2**40"
        )
    return int(number)


def optional_number(values: Row, name: str | None) -> float | None:
    """Returns a column's value as a finite number; None without a value or a column."""
    value = None if name is None else values.get(name)
    return None if name is None or is_missing(value) else finite_number(name, value)


def finite_number(name: str, value: Any, most: float = MOST_FLOAT32) -> float:
    """Returns a column's value as a finite number; float32 can hold it by default.

    Raises
    ------
    ValueError
        If it is not one.
    """
    try:
        number = float(value) if is_number(value) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or abs(number) > most:
        raise ValueError(f"has {value!r} in column {name}, but it must be a number")
    return number


def convert(name: str, value: Any, kind: ColumnType) -> Any:
    """Converts a table's value to what an example holds; a list becomes a tuple.

    Raises
    ------
    ValueError
        If the value is not of this type.
    """
    if not kind.shape:
        return _single(name, value, kind.dtype)
    is_list = isinstance(value, list | tuple)
    values: Any = () if not is_list and is_missing(value) else value
    if not isinstance(values, list | tuple):
        raise ValueError(
            f"has {value!r} in column {name}, but all other values are lists"
        )
    (size,) = kind.shape
    if size is not None and len(values) != size:
        raise ValueError(
            f"has a list of {len(values)} values in column {name}, but each must have "
            f"{size}"
        )
    return tuple(_single(name, entry, kind.dtype) for entry in values)


def _single(name: str, value: Any, dtype: str) -> Any:
    if dtype == STRING:
        return _stored_text(name, value)
    if dtype == BYTES:
        if isinstance(value, bytes):
            return value
        if not is_missing(value):
            raise ValueError(f"has {value!r} in column {name}, but it must be bytes")
        return b""
    if dtype in (FLOAT32, FLOAT64):
        if is_missing(value):
            return math.nan
        most = MOST_FLOAT32 if dtype == FLOAT32 else math.inf
        number = finite_number(name, value, most)
        _check_digits(name, value, number)
        return number
    assert dtype == INT64
    try:
        whole = int(value)
        if not fits_int64(whole):
            raise ValueError
        return whole
    except (TypeError, ValueError):
        raise ValueError(
            f"has {value!r} in column {name}, but it must be a 64-bit whole number"
        ) from None


def _stored_text(name: str, value: Any) -> str:
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    if isinstance(value, bytes):
        raise ValueError(
            f"has bytes in column {name}, but other values are not bytes; store texts "
            "as texts, or all values as bytes"
        )
    # A data frame with gaps holds whole numbers as floats.
    whole = isinstance(value, float) and value.is_integer()
    return "" if is_missing(value) else str(int(value) if whole else value)


def _check_digits(name: str, value: Any, number: float) -> None:
    """Raises ValueError if float64 does not hold a whole number exactly."""
    if abs(number) < MOST_WHOLE_FLOAT64 or isinstance(value, float):
        return
    try:
        whole = int(value)
    except ValueError:  # a text with a fraction or an exponent
        return
    if whole != number:
        raise ValueError(
            f"has {whole} in column {name}, which float64 would change to "
            f"{number:.0f}; other values there are fractions, so give all of them as "
            "text, or leave the column out with `columns`"
        )


def target_value(name: str, value: Any) -> float:
    """Returns a number to predict, which must not be missing."""
    if value in (None, ""):
        raise ValueError(
            f"has an empty column {name}, but `target_columns` needs a number there"
        )
    return finite_number(name, value)
