"""Batches of :mod:`.batches` or :mod:`.mixing` as ``tf.data``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from beam_pipeline.errors import InputError
from beam_pipeline.examples.spec import FeatureSpec


def dataset_of(
    batches: Iterable[Mapping[str, Any]],
    specs: Mapping[str, FeatureSpec],
    size: int | None,
) -> tf.data.Dataset:
    """Returns batches as dicts of tensors; each pass over them is the next epoch.

    Parameters
    ----------
    batches : iterable
        A new iteration gives the next epoch, or the rest of one.
    specs : mapping
        Of the features of a batch.
    size : int or None
        The examples of a batch, if all batches have as many.

    Raises
    ------
    InputError
        If tensors cannot hold a feature.
    """
    signature = {name: _tensor_spec(spec, size) for name, spec in specs.items()}

    def generate() -> Iterator[dict[str, Any]]:
        for batch in batches:
            yield {
                name: _ragged(values, specs[name])
                if isinstance(signature[name], tf.RaggedTensorSpec)
                else values
                for name, values in batch.items()
            }

    options = tf.data.Options()
    # A prefetch that TensorFlow adds would hold a batch that the caller does not have;
    # the batches are read ahead already.
    options.experimental_optimization.inject_prefetch = False
    options.autotune.enabled = False
    policy = tf.data.experimental.AutoShardPolicy.OFF
    options.experimental_distribute.auto_shard_policy = policy
    made = tf.data.Dataset.from_generator(generate, output_signature=signature)
    return made.with_options(options)


def _tensor_spec(spec: FeatureSpec, size: int | None) -> Any:
    """Returns the type of a feature in a batch."""
    rank = 0 if spec.shape is None else len(spec.shape)
    first_differs = rank > 0 and None not in (spec.shape or ())[1:]
    is_known = spec.has_fixed_shape or (first_differs and not spec.is_text)
    if spec.optional or spec.sequence or not is_known:
        raise InputError(
            f"to_tf: examples may lack the feature {spec.name}, or its arrays differ "
            "in more than their first axis, so no tensor holds a batch of it. Choose "
            "other features with open_records(features=...), or use `replay`."
        )
    shape = (size, *(spec.shape or ()))
    dtype = tf.as_dtype(spec.tensor_dtype)
    if spec.has_fixed_shape:
        return tf.TensorSpec(shape, dtype)
    return tf.RaggedTensorSpec(shape, dtype, ragged_rank=1)


def _ragged(arrays: Any, spec: FeatureSpec) -> tf.RaggedTensor:
    """Returns arrays whose first axes differ in length as one tensor."""
    flat = np.concatenate(list(arrays))
    return tf.RaggedTensor.from_row_lengths(flat, [len(array) for array in arrays])
