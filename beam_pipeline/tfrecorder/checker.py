"""Checks that a class writes what it reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_pipeline.dataset.output_folder import EXAMPLES_CSV
from beam_pipeline.errors import InputError
from beam_pipeline.storage import files
from beam_pipeline.storage.private_folder import temporary_folder
from beam_pipeline.tfrecorder import factory
from beam_pipeline.tfrecorder.example import Example
from beam_pipeline.tfrecorder.recording import examples_of


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
        given = files.read_bytes(listed).splitlines()
        logged = files.read_bytes(factory.get_examples_list_filepaths(records))
        if len(given) == len(logged.splitlines()) and given != logged.splitlines():
            raise AssertionError(
                f"{cls.__name__}: rows of from_csv_row() differ from those that "
                f"to_csv_row() returned: {logged!r} instead of {given!r}"
            )
        sources = examples_of(examples, cls, kwargs, log_in_csv_file=False)
        chunks = [chunk for source in sources for chunk in source.chunks]
        paths = factory.get_tfrecord_filepaths(records)
        found = list(factory.generate_dataset(paths, cls))
        if len(found) != len(chunks):
            raise AssertionError(
                f"{cls.__name__}: the files hold {len(found)} examples instead of "
                f"{len(chunks)}"
            )
        for number, (chunk, values) in enumerate(zip(chunks, found, strict=True)):
            _compare(number, chunk, values)
    return True


def _compare(number: int, chunk: Example, values: Sequence[Any]) -> None:
    declared = chunk.get_tfrecordable_ordered_dict()
    for (name, field), tensor in zip(declared.items(), values, strict=True):
        value = getattr(chunk, name)
        if value is None and field.optional:
            continue
        stored = field.encodable(value)
        expected = np.array(stored, object) if isinstance(stored, bytes) else stored
        found = np.asarray(tensor)
        if (expected.dtype.name, expected.shape) != (found.dtype.name, found.shape) or (
            not np.array_equal(expected, found, equal_nan=expected.dtype.kind in "fc")
        ):
            raise AssertionError(
                f"{type(chunk).__name__}.{name} of example {number} is {value!r}, but "
                f"was read as {found!r}"
            )
