"""The elements of a data set: dicts of tensors, one of which is the signal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import numpy as np
import tensorflow as tf

from beam_pipeline.errors import OptionError, did_you_mean

_Function = TypeVar("_Function", bound=Callable[..., Any])

# Scalars in every element that this package makes. In a batch they have an axis.
SCALARS = (
    "index", "filepath", "fs", "num_classes", "win_start_idx", "win_len", "sig_len",
)  # fmt: skip


def in_graph(function: _Function) -> _Function:
    """Marks a function for ``ds.map`` that TensorFlow takes as it is.

    Otherwise AutoGraph, which nothing here needs, would hide errors in its own.
    """
    return cast(_Function, tf.autograph.experimental.do_not_convert(function))


def grab(dataset: tf.data.Dataset) -> Any:
    """Returns the first element, as numpy arrays in the data set's structure.

    Raises
    ------
    OptionError
        If the data set is empty.
    """
    for element in dataset.as_numpy_iterator():
        return element
    raise OptionError("dataset", "holds no element")


def shapes(element: Any) -> Any:
    """Returns the shape of each value of an element, in the element's structure.

    Examples
    --------
    >>> shapes({"signal": np.zeros((3, 2)), "target": 1})
    {'signal': (3, 2), 'target': ()}
    """
    if isinstance(element, Mapping):
        return {name: shapes(value) for name, value in element.items()}
    if isinstance(element, list | tuple):
        return type(element)(shapes(value) for value in element)
    return tuple(np.shape(element))


def info(
    element: Mapping[str, Any], return_dict: bool = False, print_: bool = True
) -> dict[str, Any] | None:
    """Prints the type, and the shape or the value, of each tensor of an element.

    Parameters
    ----------
    element : mapping
        An element, or :func:`grab` of a data set. Values may be mappings, too.
    return_dict : bool
        Whether to return the size, shape and dtype of each tensor by its name.
    print_ : bool
        Whether to print.
    """
    found: dict[str, Any] = {}
    for name, value in element.items():
        if isinstance(value, Mapping):
            found[name] = info(value, return_dict=True, print_=print_)
            continue
        tensor = tf.convert_to_tensor(value)
        shape = tuple(tensor.shape)
        dtype = tensor.dtype.name
        found[name] = {"size": int(np.prod(shape)), "shape": shape, "dtype": dtype}
        if print_:
            shown = shape or tensor.numpy()
            print(f"{name}: {dtype} {shown}")
    return found if return_dict else None


def spec_of(dataset: tf.data.Dataset, key: str) -> tf.TensorSpec:
    """Returns the spec of one key of the elements.

    Raises
    ------
    OptionError
        If elements are not dicts, or lack the key.
    """
    spec = dataset.element_spec
    if not isinstance(spec, Mapping):
        raise OptionError(
            "dataset", "must have dicts of tensors as elements", type(spec).__name__
        )
    if key not in spec:
        close = did_you_mean(key, spec)
        hint = f"did you mean {close}? " if close else ""
        raise OptionError(
            "data_key",
            f"is not a key of the elements; {hint}they have {', '.join(sorted(spec))}",
            key,
        )
    return spec[key]


def is_batched(dataset: tf.data.Dataset) -> bool:
    """Whether elements are batches: what is a scalar in single ones has an axis.

    Elements without any of ``SCALARS`` count as single.
    """
    spec = dataset.element_spec
    known = isinstance(spec, Mapping)
    ranks = [spec[name].shape.rank for name in SCALARS if known and name in spec]
    return bool(ranks) and all(rank is not None and rank > 0 for rank in ranks)


def map_signals(
    dataset: tf.data.Dataset,
    function: Callable[[Any], Any],
    data_key: str,
    num_parallel_calls: int | None,
    dtype: str,
    frames_after: Callable[[int], int] = lambda frames: frames,
) -> tf.data.Dataset:
    """Replaces each signal by a function of it; in batches, each by itself.

    Parameters
    ----------
    function : callable
        From a tensor of shape (n,) or (n, channels) to one of ``dtype``.
    frames_after : callable
        From the frames of a signal to those of the result.
    """
    batched = is_batched(dataset)

    @in_graph
    def run(element: dict[str, Any]) -> dict[str, Any]:
        signal = element[data_key]
        shape = signal.shape.as_list()
        if batched:
            result = tf.map_fn(function, signal, fn_output_signature=dtype)
        else:
            result = function(signal)
        time = int(batched)
        if shape[time] is not None:
            shape[time] = frames_after(shape[time])
        return {**element, data_key: tf.ensure_shape(result, shape)}

    return dataset.map(run, num_parallel_calls=num_parallel_calls)


def check_rank(dataset: tf.data.Dataset, data_key: str, most: int = 2) -> None:
    """Checks that a signal has shape (n,), or (n, channels) if ``most`` is 2.

    Raises
    ------
    OptionError
        If it has another, or an unknown, number of axes.
    """
    rank = spec_of(dataset, data_key).shape.rank
    rank = None if rank is None else rank - is_batched(dataset)
    if rank is None or not 1 <= rank <= most:
        wanted = "(n,)" if most == 1 else "(n,) or (n, channels)"
        raise OptionError(
            "dataset",
            f"must have signals of shape {wanted}; those of {data_key} have "
            f"{'an unknown number of' if rank is None else rank} axes",
        )


def full_scale(dtype: tf.DType) -> int:
    """Returns the value of an integer type that stands for a sample of 1.0."""
    if dtype.is_unsigned:
        raise OptionError("dataset", "must have signed or real samples", dtype.name)
    return 1 << (8 * int(dtype.size) - 1)


def as_real(signal: Any) -> Any:
    """Returns real samples as float64; integers are divided by their full scale."""
    samples = tf.cast(signal, tf.float64)
    if signal.dtype.is_integer:
        samples /= full_scale(signal.dtype)
    return samples


def as_samples(signal: Any) -> Any:
    """Returns samples as float64, or as complex128 if they are complex."""
    if signal.dtype.is_complex:
        return tf.cast(signal, tf.complex128)
    return as_real(signal)


def length_of(signal: Any, axis: int = 0) -> Any:
    """Returns the length of an axis: a number if it is static, or else a tensor."""
    static = signal.shape[axis]
    return tf.shape(signal)[axis] if static is None else static
