"""Mixup in ``tf.data``: as :mod:`.mixup`, in operations of TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.read.choices import Parsing
from beam_pipeline.read.cores import usable_cores
from beam_pipeline.read.mixup import NOTHING_TO_MIX, NOTHING_TO_WEIGH, TARGETS
from beam_pipeline.read.parse_examples import PARSING_THREADS

# Seeds of TensorFlow are below this.
_SEED_END = 1 << 31
# For each batch, three random operations draw with two numbers each.
_SEEDS_DRAWN = 6


def mix_batches(
    batches: tf.data.Dataset, parsing: Parsing, alpha: float, seed: int
) -> tf.data.Dataset:
    """Returns batches whose examples are mixed in pairs, anew in every pass.

    ::

        y[i] = w[i] x[i] + (1 - w[i]) x[p[i]]

    Parameters
    ----------
    batches : tf.data.Dataset
        Dicts or tuples of batches, as ``parsing`` says.
    alpha : float
        Weights have the distribution Beta(alpha, alpha).

    Raises
    ------
    InputError
        If nothing can be mixed, or the target has no classes.
    OptionError
        If elements have another structure, so that features have no names.
    """
    if parsing.structure is not None:
        raise OptionError(
            "mixup", "needs `features` or `as_supervised` for this data set", alpha
        )
    names = parsing.as_tuple or tuple(batches.element_spec)
    spec = batches.element_spec
    _check(_named(names, spec), parsing)

    def mix(element: Any, seeds: Any) -> Any:
        mixed = _mixed(_named(names, element), alpha, seeds, parsing.num_classes)
        return tuple(mixed.values()) if parsing.as_tuple else mixed

    seeds = tf.data.Dataset.random(seed % _SEED_END, rerandomize_each_iteration=True)
    return tf.data.Dataset.zip(batches, seeds.batch(_SEEDS_DRAWN)).map(
        mix, min(usable_cores(), PARSING_THREADS)
    )


def _named(names: tuple[str, ...], element: Any) -> dict[str, Any]:
    """Returns the features of an element, or their specs, by name."""
    values = [element[name] for name in names] if isinstance(element, dict) else element
    return dict(zip(names, values, strict=True))


def _check(specs: Mapping[str, Any], parsing: Parsing) -> None:
    if not any(_is_float(spec) and name not in TARGETS for name, spec in specs.items()):
        raise InputError(NOTHING_TO_MIX)
    target = specs.get("target")
    if target is None or _is_float(target):
        return
    is_number = isinstance(target, tf.TensorSpec) and target.shape.rank == 1
    if not (is_number and target.dtype.is_integer and parsing.num_classes):
        raise InputError(NOTHING_TO_WEIGH)


def _is_float(values: Any) -> bool:
    is_dense = isinstance(values, tf.Tensor | tf.TensorSpec)
    return is_dense and bool(values.dtype.is_floating)


def _mixed(
    batch: Mapping[str, Any], alpha: float, seeds: Any, classes: int
) -> dict[str, Any]:
    made = dict(batch)
    for name in TARGETS:
        if name in made and not _is_float(made[name]):
            values = made[name]
            is_class = name == "target"  # -1 gives a row of zeros
            hot = tf.one_hot(values, classes) if is_class else values
            made[name] = tf.cast(hot, tf.float32)
    names = [name for name, values in made.items() if _is_float(values)]
    weights, partners = draw_pairs(tf.shape(made[names[0]])[0], alpha, seeds)
    for name in names:
        values = made[name]
        ones = tf.ones(tf.rank(values) - 1, tf.int32)
        weight = tf.reshape(weights, tf.concat([[-1], ones], 0))
        weight = tf.cast(weight, values.dtype)
        others = tf.gather(values, partners)
        mixed = weight * values + (1 - weight) * others
        made[name] = tf.ensure_shape(mixed, values.shape)
    return made


def draw_pairs(size: Any, alpha: float, seeds: Any) -> tuple[Any, Any]:
    """Returns the weight of each example of a batch, and its partner's number.

    Weights have the distribution Beta(alpha, alpha), float64; the partners are a
    permutation. All depends on ``seeds`` alone, six int64.
    """
    # X / (X + Y) is Beta(a, a) if X and Y are Gamma(a), and Gamma(a) is Gamma(a + 1)
    # times U**(1 / a). The logarithms of these do not underflow for small a.
    shape = [2, size]
    gamma = tf.random.stateless_gamma(shape, seeds[:2], alpha + 1, dtype=tf.float64)
    uniform = 1 - tf.random.stateless_uniform(shape, seeds[2:4], dtype=tf.float64)
    logs = tf.math.log(gamma) + tf.math.log(uniform) / alpha
    order = tf.random.stateless_uniform([size], seeds[4:], dtype=tf.float64)
    return tf.sigmoid(logs[0] - logs[1]), tf.argsort(order)
