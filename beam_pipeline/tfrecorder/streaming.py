"""Reads files of records as a ``tf.data.Dataset`` of tuples."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
import tensorflow as tf

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import METADATA
from beam_pipeline.errors import InputError
from beam_pipeline.examples.spec import (
    BYTES_LIST,
    FLOAT_LIST,
    INT64_LIST,
    RAW,
    FeatureSpec,
    merge_shapes,
)
from beam_pipeline.read.parse import PARSING_THREADS, decode_raw
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
    parse = make_parser(specs, _stored_kinds(specs, path, record))

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


def _stored_kinds(
    specs: Iterable[FeatureSpec], path: str, record: bytes
) -> dict[str, str]:
    """Returns how a record stores each feature, as ``float_list`` and so on.

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
    kinds = {name: feature.WhichOneof("kind") for name, feature in stored.items()}
    for spec in specs:
        expected = BYTES_LIST if spec.encoding == RAW else spec.encoding
        found = kinds.get(spec.name)
        if record and found is None and spec.shape_in is None and not spec.optional:
            _LOGGER.warning(
                "%s has no feature %s; it reads as 0, or empty", path, spec.name
            )
        if found not in (None, expected) and not _is_old_double(spec, found):
            raise InputError(
                f"{path} holds feature {spec.name} as {found}, but its type "
                f"{spec.dtype} is stored as {expected}. Give the class that recorded "
                "the file."
            )
    return kinds


def _is_old_double(spec: FeatureSpec, stored: str | None) -> bool:
    """Whether another writer rounded a double to a float."""
    is_scalar = spec.encoding == RAW and spec.shape == ()
    return is_scalar and spec.dtype == "float64" and stored == FLOAT_LIST


def make_parser(
    specs: Sequence[FeatureSpec], kinds: dict[str, str] | None = None
) -> Callable[[Any], tuple[Any, ...]]:
    """Returns a function from one serialised example to a tuple of tensors.

    Parameters
    ----------
    specs : sequence of FeatureSpec
        In the order of the tuple. Shapes of arrays are not in the tuple.
    kinds : dict, optional
        How the features are stored, where another writer did.
    """
    shapes = {spec.shape_in for spec in specs}
    values = [spec for spec in specs if spec.name not in shapes]
    description = {}
    for spec in values:
        old = _is_old_double(spec, (kinds or {}).get(spec.name))
        description[spec.name] = (
            tf.io.FixedLenFeature((), tf.float32, 0.0) if old else _description(spec)
        )
        if spec.shape_in is not None:
            description[spec.shape_in] = tf.io.FixedLenSequenceFeature(
                (), tf.int64, allow_missing=True
            )

    def parse(serialised: Any) -> tuple[Any, ...]:
        found = tf.io.parse_single_example(serialised, description)
        return tuple(
            _restore(spec, found[spec.name], found.get(spec.shape_in))
            for spec in values
        )

    return parse


def _description(spec: FeatureSpec) -> Any:
    """Returns what TensorFlow parses, with the value of a missing feature."""
    if spec.encoding == INT64_LIST:
        return tf.io.FixedLenFeature((), tf.int64, 0)
    if spec.encoding == FLOAT_LIST:
        return tf.io.FixedLenFeature((), tf.float32, 0.0)
    missing = b""
    if spec.encoding == RAW and (spec.is_fixed or spec.shape == ()):
        missing = np.zeros(spec.sizes, spec.dtype).tobytes()
    return tf.io.FixedLenFeature((), tf.string, missing)


def _restore(spec: FeatureSpec, stored: Any, shape: Any) -> Any:
    """Returns a feature with its dtype and shape."""
    if spec.encoding != RAW or stored.dtype != tf.string:
        return tf.cast(stored, spec.dtype)
    values = decode_raw(stored, spec.dtype)
    if shape is None:
        known = (None,) if spec.shape is None else spec.shape
        if spec.optional and known:
            known = (None, *known[1:])
        sizes = [-1 if n is None else n for n in known]
        return tf.ensure_shape(tf.reshape(values, sizes), known)
    # Without its shape an array is flat, or has the only shape that fits its spec.
    flat = (None,)
    declared = spec.shape if spec.shape and spec.shape.count(None) < 2 else flat
    sizes = tf.constant([-1 if n is None else n for n in declared], tf.int64)
    values = tf.reshape(
        values, tf.cond(tf.size(shape) > 0, lambda: shape, lambda: sizes)
    )
    return tf.ensure_shape(values, spec.shape)
