"""Checks that a class writes what it reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from beam_pipeline.dataset.output_folder import EXAMPLES_CSV
from beam_pipeline.errors import InputError
from beam_pipeline.storage import files
from beam_pipeline.storage.private_folder import temporary_folder
from beam_pipeline.tfrecorder import factory
from beam_pipeline.tfrecorder.example import Example
from beam_pipeline.tfrecorder.fields import Field
from beam_pipeline.tfrecorder.recording import examples_of

_MISSING: Any = object()


def assert_example_serialize_deserialize_is_ok(
    example: Example | Sequence[Example],
    tfrecords_files_max_size_in_bytes: float = 1e6,
    **kwargs: Any,
) -> bool:
    """Records examples in a temporary folder, and compares what comes back.

    The examples are written to a CSV file, made again from its rows, loaded, split,
    stored and read. Each attribute of each chunk must come back equal, with its dtype
    and shape, to that of the given example.

    Parameters
    ----------
    example : Example, or a sequence of them
    tfrecords_files_max_size_in_bytes : float
        The largest size of a file.
    **kwargs
        The keywords of ``from_csv_row``, ``load`` and ``split``.

    Returns
    -------
    bool
        True.

    Raises
    ------
    AssertionError
        If a value, or the number of examples, is another.
    OptionError, InputError, ExampleError
        If the class or the values cannot be recorded.
    """
    examples = [example] if isinstance(example, Example) else list(example)
    if not examples:
        raise InputError("There are no examples to check.")
    cls = type(examples[0])
    with temporary_folder() as folder:
        listed = files.join(folder, EXAMPLES_CSV)
        Example.to_csv_file(listed, examples)
        records = files.join(folder, "records")
        factory.generate_and_save_tfrecords_files_for_examples_file(
            records,
            cls,
            listed,
            examples_tfrecord_file_max_size_in_bytes=tfrecords_files_max_size_in_bytes,
            **kwargs,
        )
        with (
            open(listed, "rb") as given,
            open(factory.get_examples_list_filepaths(records), "rb") as logged,
        ):
            ours, theirs = given.read(), logged.read()
        if ours.count(b"\n") == theirs.count(b"\n") and ours != theirs:
            raise AssertionError(
                f"{cls.__name__}: rows of from_csv_row() differ from those that "
                f"to_csv_row() returned: {theirs!r} instead of {ours!r}"
            )
        found = factory.generate_dataset(factory.get_tfrecord_filepaths(records), cls)
        pairs = zip_longest(_chunks(examples, kwargs), found, fillvalue=_MISSING)
        for number, (chunk, values) in enumerate(pairs):
            if chunk is _MISSING or values is _MISSING:
                more = "more" if chunk is _MISSING else "fewer"
                raise AssertionError(
                    f"{cls.__name__}: there are {more} examples in the files than the "
                    f"{number} before"
                )
            _compare(number, chunk, values)
    return True


def _chunks(examples: Sequence[Example], kwargs: dict[str, Any]) -> Iterator[Example]:
    cls = type(examples[0])
    for source in examples_of(examples, cls, kwargs, log_in_csv_file=False):
        yield from source.chunks


def _compare(number: int, chunk: Any, values: Sequence[Any]) -> None:
    declared = chunk.get_tfrecordable_ordered_dict()
    for (name, field), tensor in zip(declared.items(), values, strict=True):
        value = getattr(chunk, name)
        expected = _as_read(field, value)
        found = np.asarray(tensor)
        if expected is not None and not _are_equal(expected, found):
            raise AssertionError(
                f"{type(chunk).__name__}.{name} of example {number} is {value!r}, but "
                f"was read as {found!r}"
            )


def _as_read(field: Field, value: Any) -> Any:
    """Returns the array that a reader should return; None for a value left out."""
    if value is None and field.optional:
        return None
    stored = field.encodable(value)
    return np.array(stored, object) if isinstance(stored, bytes) else stored


def _are_equal(expected: Any, found: Any) -> bool:
    if expected.dtype.kind == "O":
        return bool(expected[()] == found[()])
    return (
        expected.dtype.name == found.dtype.name
        and expected.shape == found.shape
        and np.array_equal(expected, found, equal_nan=expected.dtype.kind in "fc")
    )
