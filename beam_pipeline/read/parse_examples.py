"""Parses serialised examples into tensors, by the specs in the metadata.

Where all examples have the same shapes, a batch of them is parsed at once. Others are
parsed one by one, see :mod:`.parse_elements`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from beam_pipeline.errors import InputError
from beam_pipeline.examples.feature_description import describe_features
from beam_pipeline.examples.spec import LISTS, FeatureSpec
from beam_pipeline.read.choices import Parsing
from beam_pipeline.read.parse_elements import (
    decode_bytes,
    make_element_parser,
    restore_structure,
)
from beam_pipeline.read.scales import Scale

NUM_CLASSES = "num_classes"

PARSING_THREADS = 4
PARSED_TOGETHER = 16


def make_parser(parsing: Parsing, scales: Mapping[str, Scale]) -> Callable[[Any], Any]:
    """Returns a function from serialised examples to elements.

    It takes a batch of them if ``parsing.is_fixed``, otherwise a single one.

    Raises
    ------
    InputError
        If TensorFlow does not have the dtype of a feature.
    """
    for name, spec in parsing.specs.items():
        try:
            tf.dtypes.as_dtype(spec.tensor_dtype)
        except TypeError as error:
            raise InputError(
                f"Feature {name} has the dtype {spec.dtype}, but TensorFlow does not "
                "have this dtype. Leave the feature out of `features`."
            ) from error
    read = _batch_parser(parsing) if parsing.is_fixed else make_element_parser(parsing)

    def parse(serialised: Any) -> Any:
        example = read(serialised)
        for name, (mean, factor) in scales.items():
            dtype = parsing.specs[name].dtype
            example[name] = (example[name] - mean.astype(dtype)) * factor.astype(dtype)
        if parsing.as_tuple:
            return tuple(example[name] for name in parsing.as_tuple)
        if parsing.structure is not None:
            return restore_structure(parsing.structure, example)
        example = {name: example[name] for name in parsing.components}
        if parsing.num_classes and NUM_CLASSES not in example:
            number = tf.constant(parsing.num_classes, tf.int64)
            example[NUM_CLASSES] = tf.fill(tf.shape(serialised), number)
        return example

    return parse


def _batch_parser(parsing: Parsing) -> Callable[[Any], dict[str, Any]]:
    specs = parsing.specs
    stored = describe_features(specs).context

    def parse(serialised: Any) -> dict[str, Any]:
        values = tf.io.parse_example(serialised, stored)
        return {name: _restore(spec, values[name]) for name, spec in specs.items()}

    return parse


def _restore(spec: FeatureSpec, stored: Any) -> Any:
    """Returns a batch of one feature with the dtype and shape of its spec."""
    if spec.encoding in LISTS:
        return tf.cast(stored, spec.tensor_dtype)
    values = decode_bytes(spec, stored)
    return tf.reshape(values, tf.concat([tf.shape(stored), spec.sizes], 0))
