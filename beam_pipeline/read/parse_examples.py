"""Parses serialised examples into tensors, by the specs in the metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from beam_pipeline.examples.spec import (
    BYTES_LIST,
    FLOAT_LIST,
    INT64_LIST,
    RAW,
    FeatureSpec,
)

NUM_CLASSES = "num_classes"

PARSING_THREADS = 4
PARSED_TOGETHER = 16

# tf.io.decode_raw does not support unsigned integers of these widths.
_DECODED_AS = {"uint32": "int32", "uint64": "int64"}

_STORED_AS = {
    FLOAT_LIST: tf.float32,
    INT64_LIST: tf.int64,
    BYTES_LIST: tf.string,
    RAW: tf.string,
}


class Scale(NamedTuple):
    """``(x - mean) * factor``: scalars, or arrays for the feature's last axis."""

    mean: np.ndarray
    factor: np.ndarray


def make_parser(
    specs: Mapping[str, FeatureSpec],
    scales: Mapping[str, Scale],
    num_classes: int,
    as_supervised: tuple[str, str] | None,
) -> Callable[[Any], Any]:
    """Returns a function that turns a batch of serialised examples into tensors."""
    stored = {
        name: tf.io.FixedLenFeature(
            () if spec.encoding == RAW else spec.shape, _STORED_AS[spec.encoding]
        )
        for name, spec in specs.items()
    }

    def parse(serialised: Any) -> Any:
        values = tf.io.parse_example(serialised, stored)
        example = {name: _restore(spec, values[name]) for name, spec in specs.items()}
        for name, (mean, factor) in scales.items():
            dtype = specs[name].dtype
            example[name] = (example[name] - mean.astype(dtype)) * factor.astype(dtype)
        if as_supervised is not None:
            return tuple(example[name] for name in as_supervised)
        if num_classes and NUM_CLASSES not in specs:
            number = tf.constant(num_classes, tf.int64)
            example[NUM_CLASSES] = tf.fill(tf.shape(serialised), number)
        return example

    return parse


def _restore(spec: FeatureSpec, stored: Any) -> Any:
    """Returns a batch of one feature with the dtype and shape of its spec."""
    if spec.encoding != RAW:
        return tf.cast(stored, spec.dtype)
    decoded_as = _DECODED_AS.get(spec.dtype, spec.dtype)
    values = tf.io.decode_raw(stored, decoded_as)
    if decoded_as != spec.dtype:
        values = tf.bitcast(values, spec.dtype)
    return tf.reshape(values, tf.concat([tf.shape(stored), spec.shape], 0))
