"""Batches, order and form of the elements: what a model needs last."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from beam_pipeline.errors import OptionError
from beam_pipeline.tf_dataset.structure import grab, in_graph, spec_of
from beam_pipeline.transforms.params import whole


def dataset_batch(
    ds: tf.data.Dataset, batch_size: int, drop_remainder: bool = True
) -> tf.data.Dataset:
    """Joins ``batch_size`` elements to one, with a first axis; leaves out a rest."""
    size = whole("batch_size", batch_size)
    return ds.batch(size, drop_remainder=drop_remainder)


def dataset_unbatch(ds: tf.data.Dataset) -> tf.data.Dataset:
    """Splits batches into their elements."""
    return ds.unbatch()


def dataset_shuffle(
    ds: tf.data.Dataset,
    shuffle_buffer_size: int,
    reshuffle_each_iteration: bool = True,
    seed: int | None = None,
) -> tf.data.Dataset:
    """Shuffles with a buffer of ``shuffle_buffer_size`` elements.

    Parameters
    ----------
    reshuffle_each_iteration : bool
        Whether each pass has another order.
    seed : int, optional
        For the same order in each run. Default: another one in each.
    """
    size = whole("shuffle_buffer_size", shuffle_buffer_size)
    return ds.shuffle(size, seed, reshuffle_each_iteration=reshuffle_each_iteration)


def dataset_repeat(ds: tf.data.Dataset, count: int | None = None) -> tf.data.Dataset:
    """Repeats a data set ``count`` times; None: without end."""
    return ds.repeat(count)


def dataset_prefetch(ds: tf.data.Dataset, n_prefetch: int = 1) -> tf.data.Dataset:
    """Prepares up to ``n_prefetch`` elements before they are asked for."""
    return ds.prefetch(n_prefetch)


def dataset_onehot(
    ds: tf.data.Dataset, target_key: str = "target", num_classes: int | None = None
) -> tf.data.Dataset:
    """Makes int64 vectors of whole targets: 1 at the target, 0 elsewhere.

    Parameters
    ----------
    ds : tf.data.Dataset
        Dicts, batched or not.
    target_key : str
        The key of the target.
    num_classes : int, optional
        The length of the vectors. Default: ``num_classes`` of the first element, which
        is read for it.

    Raises
    ------
    OptionError
        A ValueError: if targets are not whole numbers.
    """
    if not spec_of(ds, target_key).dtype.is_integer:
        raise OptionError("target_key", "must name whole numbers", target_key)
    if num_classes is None:
        spec_of(ds, "num_classes")
        first = grab(ds.map(in_graph(lambda element: element["num_classes"])))
        num_classes = int(first.max())
    depth = whole("num_classes", num_classes)

    @in_graph
    def run(element: dict[str, Any]) -> dict[str, Any]:
        vector = tf.one_hot(element[target_key], depth, dtype=tf.int64)
        return {**element, target_key: vector}

    return ds.map(run)


def dataset_flatten(ds: tf.data.Dataset, key: str) -> tf.data.Dataset:
    """Joins all axes but the first, (n, a, b) to (n, a * b), as a Keras layer does.

    A value without axes gets one; a value with one axis, (n,), becomes (n, 1).
    """
    spec_of(ds, key)

    @in_graph
    def run(element: dict[str, Any]) -> dict[str, Any]:
        value = element[key]
        shape = value.shape
        if shape.rank == 0:
            return {**element, key: tf.reshape(value, [1])}
        rows = tf.shape(value)[0] if shape[0] is None else shape[0]
        size = shape[1:].num_elements() if shape.rank is not None else None
        # A size of -1 cannot be found where there are no rows.
        columns = -1 if size is None else size
        return {**element, key: tf.reshape(value, [rows, columns])}

    return ds.map(run)


def dataset_set_shapes(ds: tf.data.Dataset) -> tf.data.Dataset:
    """Gives all elements the shapes of the first one, which is read for it.

    An element of another shape raises an error when it is read.
    """
    first = next(iter(ds), None)
    if first is None:
        raise OptionError("ds", "holds no element")
    shapes = tf.nest.map_structure(lambda tensor: tensor.shape, first)

    @in_graph
    def run(*element: Any) -> Any:
        value = element[0] if len(element) == 1 else element
        return tf.nest.map_structure(tf.ensure_shape, value, shapes)

    return ds.map(run)


def dataset_compact(
    ds: tf.data.Dataset,
    compact_x_key: str | Sequence[str] = "signal",
    compact_y_key: str | Sequence[str] = "target",
    num_parallel_calls: int | None = 4,
) -> tf.data.Dataset:
    """Turns dicts into the pairs ``(x, y)`` that ``model.fit`` takes.

    Parameters
    ----------
    compact_x_key, compact_y_key : str or sequence of str
        The key of x, and that of y. With several keys, x or y is a tuple.
    num_parallel_calls : int, optional
        The number of elements to treat at once.

    Raises
    ------
    OptionError
        A ValueError: if elements lack a key.
    """
    for key in (*_keys(compact_x_key), *_keys(compact_y_key)):
        spec_of(ds, key)

    def pick(element: dict[str, Any], keys: str | Sequence[str]) -> Any:
        values = tuple(element[key] for key in _keys(keys))
        return values[0] if len(values) == 1 else values

    @in_graph
    def run(element: dict[str, Any]) -> tuple[Any, Any]:
        return pick(element, compact_x_key), pick(element, compact_y_key)

    return ds.map(run, num_parallel_calls=num_parallel_calls)


def _keys(keys: str | Sequence[str]) -> Sequence[str]:
    return [keys] if isinstance(keys, str) else keys
