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
