"""Reads files of records as a ``tf.data.Dataset`` of tuples."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import tensorflow as tf

from beam_pipeline.dataset.folders import METADATA
from beam_pipeline.dataset.metadata import data_sets_of
from beam_pipeline.dataset.side_by_side import check_features
from beam_pipeline.errors import InputError
from beam_pipeline.examples.spec import FeatureSpec, merge_shapes
from beam_pipeline.examples.structure import component_names
from beam_pipeline.process import usable_cores
from beam_pipeline.read.parse import (
    PARSING_THREADS,
    Parsing,
    make_element_parser,
    make_parser,
)
from beam_pipeline.read.streams import (
    MIXED_SHARDS,
    file_parts,
    first_record,
    read_examples,
)

_READ_AHEAD = 64


def stream(
    paths: Sequence[str],
    declared: Sequence[FeatureSpec] | None,
    shuffled_files: int | None,
    threads: int | None,
    seed: int,
) -> tf.data.Dataset:
    """Reads files; see :func:`beam_pipeline.tfrecorder.factory.generate_dataset`."""
    parse = make_tuple_parser(_choose_specs(paths, declared))
    _, record = first_record(paths) if shuffled_files else ("", b"")
    examples = read_examples(
        file_parts(paths),
        len(record),
        shuffle=shuffled_files is not None,
        seed=seed,
        least=shuffled_files or 1,
        mixed=min(shuffled_files or 1, MIXED_SHARDS),
    )
    return examples.map(
        parse,
        num_parallel_calls=threads or min(usable_cores(), PARSING_THREADS),
        deterministic=True,
    ).prefetch(_READ_AHEAD)


def _choose_specs(
    paths: Sequence[str], declared: Sequence[FeatureSpec] | None
) -> Sequence[FeatureSpec]:
    """Returns the specs in the metadata of the files; else those that a class declares.

    Raises
    ------
    InputError
        If there are neither, or if the files hold other features than the class
        declares, or than other files: their bytes alone would read as garbage.
    """
    found = data_sets_of(paths)
    if not (declared or found):
        raise InputError(
            f"No {METADATA} says what the files hold. Give `example_class`; "
            "`replay_files` reads records of other programs."
        )
    each = [metadata.features for metadata in found.values()]
    wanted = {spec.name: spec for spec in declared or each[0].values()}
    first = "the class" if declared else next(iter(found))
    remedy = "Read other data sets alone, with the class that recorded them."
    for folder, specs in zip(found, each, strict=True):
        check_features(first, wanted, folder, specs, ["dtype"], remedy)
    # Each data set knows the shapes of its own examples.
    shapes = {n: [specs[n].shape for specs in each or [wanted]] for n in wanted}
    stored = each[0] if each else wanted
    return [replace(stored[n], shape=reduce(merge_shapes, shapes[n])) for n in wanted]


def make_tuple_parser(specs: Sequence[FeatureSpec]) -> Callable[[Any], tuple[Any, ...]]:
    """Returns a function from one serialised example to a tuple of tensors.

    The tensors are in the order of the specs. Shapes of arrays are not among them. What
    is optional reads as 0, or empty, in examples that lack it.
    """
    by_name = {spec.name: spec for spec in specs}
    names = tuple(component_names(by_name, None))
    scalars = [spec for spec in specs if spec.optional and spec.shape == ()]
    missing = {spec.name: b"" if spec.is_text else 0 for spec in scalars}
    parsing = Parsing(by_name, names=names, is_tuple=True, missing=missing)
    return make_parser(parsing, {}, make_element_parser(parsing))
