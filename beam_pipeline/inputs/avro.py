"""Manifests in Avro's object container files, read as a stream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from beam_pipeline.errors import InputError
from beam_pipeline.storage import files

AVRO_SUFFIXES = (".avro",)


def avro_names(location: str) -> tuple[str, ...]:
    """Returns the names of the fields of an Avro file's records.

    Raises
    ------
    InputError
        If it is not Avro, or its values are not records.
    """
    with _opened(location) as reader:
        schema = reader.writer_schema
        fields = schema.get("fields") if isinstance(schema, Mapping) else None
        if fields is None:
            raise InputError(
                f"{location} holds values that are not records. Each row of a manifest "
                "must be a record with a field for each column."
            )
        return tuple(field["name"] for field in fields)


def avro_rows(location: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Yields (number, record) of an Avro file, from number 1.

    Raises
    ------
    InputError
        If a record cannot be read.
    """
    with _opened(location) as reader:
        yield from enumerate(reader, 1)


_KINDS = {
    **dict.fromkeys(("int", "long", "float", "double"), "NaN"),
    "string": "text",
    **dict.fromkeys(("bytes", "fixed"), "bytes"),
}


def avro_types(location: str) -> dict[str, tuple[str, bool]]:
    """Returns what the schema says of the fields, see :func:`.tables.declared_types`.

    Raises
    ------
    InputError
        See :func:`avro_names`.
    """
    with _opened(location) as reader:
        found = {f["name"]: _kind(f["type"]) for f in reader.writer_schema["fields"]}
    return {name: kind for name, kind in found.items() if kind is not None}


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
    kind = _KINDS.get(schema)
    return None if kind is None else (kind, False)


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
