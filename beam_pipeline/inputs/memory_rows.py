"""Tables in memory, as files that the processes of a run read.

A file has lines of JSON: first an object with the names of the columns, and with those
whose type is a number; then one for each row. JSON has no bytes: ``{"base64": ...}``
stands for them, and ``{"object": ...}`` for a mapping. A missing value is null.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from beam_pipeline.errors import InputError
from beam_pipeline.storage import files
from beam_pipeline.text import parse_json

ROWS_SUFFIXES = (".memory-rows",)

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


def _number_columns(table: Any) -> Iterable[Any]:
    """Yields the columns of a data frame whose type is a number."""
    if hasattr(table, "to_pylist"):
        numbers = ("int", "uint", "float", "double", "halffloat", "decimal")
        yield from (f.name for f in table.schema if str(f.type).startswith(numbers))
    elif hasattr(table, "to_dicts"):
        yield from (name for name, dtype in table.schema.items() if dtype.is_numeric())
    elif hasattr(table, "dtypes"):
        for name, dtype in table.dtypes.items():
            if getattr(dtype, "kind", "O") in "iuf":
                yield name


def memory_head(location: str) -> dict[str, list[str]]:
    """Returns the names of the columns, and the ``numbers`` among them."""
    with files.open_read(location) as file:
        head: dict[str, list[str]] = parse_json(file.readline())
    return head


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
