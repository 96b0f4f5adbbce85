"""Checks that a class writes what it reads."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_pipeline.tfrecorder.example import (
    ClassEncoder,
    Example,
    IgnoreExampleException,
    csv_line,
    declared_fields,
)
from beam_pipeline.tfrecorder.factory import RowEncoder, Source


def assert_example_serialize_deserialize_is_ok(
    example: Example | Sequence[Example],
    tfrecords_files_max_size_in_bytes: float = 1e6,
    **kwargs: Any,
) -> bool:
    """Makes examples again from their rows of CSV, and compares what comes back.

    Each example, and the one that is made of its row, is loaded and split. Each
    attribute of each chunk must come back from the record of the other equal, with its
    dtype and shape.

    Parameters
    ----------
    example : Example, or a sequence of them
    tfrecords_files_max_size_in_bytes : float
        Has no effect, because nothing is written.
    **kwargs
        The keywords of ``from_csv_row``, ``load`` and ``split``.

    Returns
    -------
    bool
        True.

    Raises
    ------
    AssertionError
        If a value, a row, or the number of chunks is another.
    OptionError, InputError, ExampleError
        If the class or the values cannot be recorded.
    """
    examples = [example] if isinstance(example, Example) else list(example)
    cls = type(examples[0])
    encoder = RowEncoder(cls, kwargs, log_in_csv_file=True)
    for number, given in enumerate(examples):
        (row,) = csv.reader(io.StringIO(csv_line(given.to_csv_row())))
        line, chunks = _load(encoder, given)
        again, made = _load(encoder, row)
        if (line, len(chunks)) != (again, len(made)):
            raise AssertionError(
                f"{cls.__name__}: example {number} has {len(chunks)} chunks and the "
                f"row {line!r}; made of this row, it has {len(made)} and {again!r}"
            )
        records, _ = ClassEncoder(cls).encode(made)
        for chunk, record in zip(chunks, records, strict=True):
            _compare(number, chunk, cls.parse_from_string(record))
    return True


def _load(encoder: RowEncoder, source: Source) -> tuple[str | None, Sequence[Example]]:
    try:
        return encoder.load(source)
    except IgnoreExampleException:
        return None, ()


def _compare(number: int, chunk: Example, values: Sequence[Any]) -> None:
    declared = declared_fields(type(chunk)).items()
    for (name, field), tensor in zip(declared, values, strict=True):
        value, found = getattr(chunk, name), np.asarray(tensor)
        expected = field.stored(name, value)
        is_alike = (expected.dtype, expected.shape) == (found.dtype, found.shape)
        if not is_alike or (
            not np.array_equal(expected, found, equal_nan=found.dtype.kind in "fc")
        ):
            raise AssertionError(
                f"{type(chunk).__name__}.{name} of example {number} is {value!r}, but "
                f"was read as {found!r}"
            )
