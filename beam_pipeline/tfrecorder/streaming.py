"""Reads files of records as a ``tf.data.Dataset`` of tuples."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import tensorflow as tf

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import METADATA
from beam_pipeline.errors import InputError
from beam_pipeline.examples.spec import (
    BYTES_LIST,
    FLOAT_LIST,
    RAW,
    FeatureSpec,
    merge_shapes,
)
from beam_pipeline.read.parse import PARSING_THREADS, Parsing, make_element_parser
from beam_pipeline.read.sizes import SHUFFLE_BYTES, usable_cores
from beam_pipeline.read.streams import (
    MIXED_SHARDS,
    file_parts,
    first_record,
    read_in_order,
    read_mixed,
)
from beam_pipeline.storage import files

_LOGGER = logging.getLogger("beam_pipeline.tfrecorder")

_READ_AHEAD = 64


def stream(
    paths: Sequence[str],
    specs: Sequence[FeatureSpec] | None,
    *,
    shuffled_files: int | None = None,
    threads: int | None = None,
    seed: int = 0,
) -> tf.data.Dataset:
    """Reads files; see :func:`beam_pipeline.tfrecorder.factory.generate_dataset`."""
    if specs is None:
        specs = specs_beside(paths)
    else:
        _check_class(specs, paths)
    path, record = first_record(paths)
    parse = make_parser(_as_stored(specs, path, record) if record else specs)
    if shuffled_files is None:
        dataset = read_in_order(file_parts(paths))
    else:
        room = max(SHUFFLE_BYTES // max(len(record), 1), shuffled_files)
        mixed = min(shuffled_files, MIXED_SHARDS)
        dataset = read_mixed(file_parts(paths), True, seed, mixed).shuffle(
            room, seed, reshuffle_each_iteration=True
        )
    return dataset.map(
        parse,
        num_parallel_calls=threads or min(usable_cores(), PARSING_THREADS),
        deterministic=True,
    ).prefetch(_READ_AHEAD)


def _check_class(specs: Sequence[FeatureSpec], paths: Sequence[str]) -> None:
    """Raises InputError if another class recorded the files.

    Only files with ``metadata.json`` show it; their bytes alone would read as garbage.
    """
    try:
        recorded = {spec.name: spec for spec in specs_beside(paths)}
    except InputError:
        return  # files of another writer
    for spec in specs:
        found = recorded.get(spec.name)
        if found is None and spec.shape_in is None and not spec.optional:
            raise InputError(
                f"The files hold no feature {spec.name}; {METADATA} lists "
                f"{', '.join(recorded)}. Give the class that recorded them."
            )
        if found is not None and found.dtype != spec.dtype:
            raise InputError(
                f"Feature {spec.name} was recorded as {found.dtype}, but the class "
                f"declares {spec.dtype}. Give the class that recorded the files."
            )


def specs_beside(paths: Sequence[str]) -> tuple[FeatureSpec, ...]:
    """Returns the specs in ``metadata.json``, in the files' folders or above them.

    Raises
    ------
    InputError
        If there are no files or no metadata, or if the folders' features differ.
    """
    if not paths:
        raise InputError("There are no files. Give `example_class`, or files.")
    found: list[tuple[FeatureSpec, ...]] = []
    for folder in dict.fromkeys(path.rpartition("/")[0] for path in paths):
        above = folder.rpartition("/")[0]
        holds = [f for f in (folder, above) if files.exists(files.join(f, METADATA))]
        if not holds:
            raise InputError(
                f"Neither {folder} nor the folder above it has {METADATA}, which says "
                "what the files hold. Give `example_class`."
            )
        found.append(tuple(Metadata.load(holds[0]).features.values()))
    first = [replace(spec, shape=None) for spec in found[0]]
    if any([replace(spec, shape=None) for spec in specs] != first for specs in found):
        raise InputError(
            "The files are of data sets with different features. Read them as two "
            "datasets, or give `example_class`."
        )
    # Each data set knows the shapes of its own examples.
    return tuple(
        replace(same[0], shape=reduce(merge_shapes, (spec.shape for spec in same)))
        for same in zip(*found, strict=True)
    )


def _as_stored(
    specs: Sequence[FeatureSpec], path: str, record: bytes
) -> list[FeatureSpec]:
    """Returns the specs as a record stores them, which another program may have made.

    Raises
    ------
    InputError
        If the record is not a ``tf.train.Example``, or its features are of other types.
    """
    from google.protobuf.message import DecodeError

    try:
        stored = tf.train.Example.FromString(record).features.feature
    except DecodeError as error:
        raise InputError(f"{path} does not hold tf.train.Examples: {error}") from error
    made = []
    for spec in specs:
        found = stored[spec.name].WhichOneof("kind") if spec.name in stored else None
        is_double = spec.encoding == RAW and (spec.shape, spec.dtype) == ((), "float64")
        if is_double and found == FLOAT_LIST:  # rounded by another writer
            spec = replace(spec, encoding=FLOAT_LIST)
        expected = BYTES_LIST if spec.encoding == RAW else spec.encoding
        if found not in (None, expected):
            raise InputError(
                f"{path} holds feature {spec.name} as {found}, but its type "
                f"{spec.dtype} is stored as {expected}. Give the class that recorded "
                "the file."
            )
        if found is None and not spec.optional:
            if not any(spec.name == other.shape_in for other in specs):
                _LOGGER.warning(
                    "%s has no feature %s; it reads as 0, or empty", path, spec.name
                )
            spec = replace(spec, optional=True)
        elif found is not None and spec.shape_in not in (None, *stored):
            # The array is flat, or has the only shape that fits its spec.
            is_flat = spec.shape is None or spec.shape.count(None) > 1
            shape = (None,) if is_flat else spec.shape
            spec = replace(spec, shape=shape, shape_in=None)
        made.append(spec)
    shapes = {spec.shape_in for spec in specs} - {spec.shape_in for spec in made}
    return [spec for spec in made if spec.name not in shapes]


def make_parser(specs: Sequence[FeatureSpec]) -> Callable[[Any], tuple[Any, ...]]:
    """Returns a function from one serialised example to a tuple of tensors.

    The tensors are in the order of the specs. Shapes of arrays are not among them. What
    is optional reads as 0, or empty, in examples that lack it.
    """
    shapes = {spec.shape_in for spec in specs}
    names = [spec.name for spec in specs if spec.name not in shapes]
    scalars = [spec for spec in specs if spec.optional and spec.shape == ()]
    missing = {spec.name: b"" if spec.is_text else 0 for spec in scalars}
    read = make_element_parser(
        Parsing({spec.name: spec for spec in specs}, missing=missing)
    )

    def parse(serialised: Any) -> tuple[Any, ...]:
        found = read(serialised)
        return tuple(found[name] for name in names)

    return parse
