"""What ``tf.io`` needs to parse examples, from the specs of their features."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from beam_pipeline.examples.spec import FLOAT_LIST, INT64_LIST, LISTS, FeatureSpec


class FeatureDescription(NamedTuple):
    """Names to ``tf.io`` features: of an example or a context, and of its steps."""

    context: dict[str, Any]
    sequences: dict[str, Any]


def describe_features(
    specs: Mapping[str, FeatureSpec], missing: Mapping[str, Any] | None = None
) -> FeatureDescription:
    """Returns the ``tf.io`` feature of each spec.

    ==============================================  ===============================
    feature                                         described as
    ==============================================  ===============================
    of the same shape in all examples, in a list    ``FixedLenFeature(shape)``
    one array as bytes (``raw``, ``png`` ...)       ``FixedLenFeature((), string)``
    of different shapes, empty, or missing          ``VarLenFeature``
    a single value with an entry in ``missing``     ``FixedLenFeature`` with it
    a sequence                                      ``FixedLenSequenceFeature``
    ==============================================  ===============================
    """
    import tensorflow as tf

    kinds = {FLOAT_LIST: tf.float32, INT64_LIST: tf.int64}
    found = FeatureDescription({}, {})
    for name, spec in specs.items():
        kind = kinds.get(spec.encoding, tf.string)
        is_list = spec.encoding in LISTS
        if spec.sequence:
            inner = spec.sizes[1:] if is_list else ()
            found.sequences[name] = tf.io.FixedLenSequenceFeature(
                inner, kind, allow_missing=spec.optional
            )
        elif spec.is_fixed or not (spec.optional or is_list):
            shape = spec.sizes if is_list else ()
            found.context[name] = tf.io.FixedLenFeature(shape, kind)
        elif spec.optional and spec.shape == () and name in (missing or {}):
            default = tf.constant((missing or {})[name], kind)
            found.context[name] = tf.io.FixedLenFeature((), kind, default)
        else:
            found.context[name] = tf.io.VarLenFeature(kind)
    return found
