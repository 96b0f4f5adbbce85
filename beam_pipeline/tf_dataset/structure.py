"""The elements of a data set: their form, their windows, order and batches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from beam_pipeline.errors import OptionError, check_feature
from beam_pipeline.parameters import check_whole

Array = npt.NDArray[Any]

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


def in_python(
    function: Callable[..., Sequence[Any]],
    tensors: Sequence[Any],
    dtypes: Sequence[tf.DType],
    shapes: Sequence[Any],
) -> list[Any]:
    """Calls a function of arrays on tensors, eagerly or in a graph.

    It returns a sequence of arrays, with these types. Their shapes are static as far as
    ``shapes`` say.
    """
    # A single result, if it is eager, comes without its list.
    results = tf.nest.flatten(tf.numpy_function(function, tensors, dtypes))
    return [
        tf.ensure_shape(result, shape)
        for result, shape in zip(results, shapes, strict=True)
    ]


def map_key(
    dataset: tf.data.Dataset,
    key: str,
    function: Callable[[Any], Any],
    num_parallel_calls: int | None = None,
    into: str | None = None,
) -> tf.data.Dataset:
    """Replaces one value of each element by a function of it; or adds it as ``into``.

    Raises
    ------
    OptionError
        If elements lack the key.
    """
    spec_of(dataset, key)

    @in_graph
    def run(element: dict[str, Any]) -> dict[str, Any]:
        return {**element, into or key: function(element[key])}

    return dataset.map(run, num_parallel_calls=num_parallel_calls)


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
    return tf.nest.map_structure(lambda value: tuple(np.shape(value)), element)


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
        If elements lack the key.
    """
    spec = dataset.element_spec
    check_feature("data_key", key, sorted(spec))
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
    function: Callable[[Array], Array],
    data_key: str,
    num_parallel_calls: int | None,
    dtype: tf.DType | None = None,
    frames_after: Callable[[int], int] = lambda frames: frames,
) -> tf.data.Dataset:
    """Replaces each signal by a function of it; in batches, each by itself.

    Parameters
    ----------
    function : callable
        From an array of shape (n,) or (n, channels), float64 or complex128, to another.
    dtype : tf.DType, optional
        The type of the results. Default: float32, or complex64 for complex signals.
    frames_after : callable
        From the frames of a signal to those of the result.
    """
    spec, batched = signal_spec(dataset, data_key), is_batched(dataset)
    shape = spec.shape.as_list()
    if shape[batched] is not None:
        shape[batched] = frames_after(shape[batched])
    dtype = dtype or (tf.complex64 if spec.dtype.is_complex else tf.float32)

    def call(signals: Array) -> list[Array]:
        rows = signals if batched else signals[np.newaxis]
        made = np.stack([function(row) if len(row) else row for row in rows])
        return [(made if batched else made[0]).astype(dtype.as_numpy_dtype)]

    def run(signals: Any) -> Any:
        return in_python(call, [as_samples(signals)], [dtype], [shape])[0]

    return map_key(dataset, data_key, run, num_parallel_calls)


def signal_spec(
    dataset: tf.data.Dataset, data_key: str, most: int = 2
) -> tf.TensorSpec:
    """Returns the spec of signals of shape (n,), or (n, channels) if ``most`` is 2.

    Raises
    ------
    OptionError
        If they have another, or an unknown, number of axes, or unsigned samples.
    """
    spec = spec_of(dataset, data_key)
    rank = None if spec.shape.rank is None else spec.shape.rank - is_batched(dataset)
    if rank is None or not 1 <= rank <= most:
        wanted = "(n,)" if most == 1 else "(n,) or (n, channels)"
        raise OptionError(
            "dataset",
            f"must have signals of shape {wanted}; those of {data_key} have "
            f"{'an unknown number of' if rank is None else rank} axes",
        )
    return spec


def full_scale(dtype: tf.DType) -> int:
    """Returns the value of an integer type that stands for a sample of 1.0."""
    if dtype.is_unsigned:
        raise OptionError("dataset", "must have signed or real samples", dtype.name)
    return 1 << (8 * int(dtype.size) - 1)


def as_samples(signal: Any, dtype: tf.DType = tf.float64) -> Any:
    """Returns samples as floats, or complex128; integers are divided by full scale."""
    if signal.dtype.is_complex:
        return tf.cast(signal, tf.complex128)
    samples = tf.cast(signal, dtype)
    return samples / full_scale(signal.dtype) if signal.dtype.is_integer else samples


def dataset_signal_slice_windows(
    dataset: tf.data.Dataset,
    win_len: int = 1024,
    block_length: int = 1,
    pad: bool = False,
    deterministic: bool = True,
    max_windows_per_signal: int | None = None,
    num_parallel_calls: int | None = None,
    data_key: str = "signal",
    *,
    seed: int = 0,
) -> tf.data.Dataset:
    """Cuts each signal into windows of ``win_len`` frames, which do not overlap.

    ::

        pad=False    window k = frames start + k * win_len ...; the frames before
                     start, and those after the last whole window, are left out
        pad=True     zeros before and after make the first and the last window whole:
                     left = (-start) mod win_len,  right = (start - n) mod win_len,
                     window k = frames k * win_len - left ...; no frame is left out,
                     and no window holds only zeros

    With ``deterministic``, ``start = 0`` and windows come in their order. Otherwise
    ``start`` is random in ``[0, min(win_len, n // 2))``, and the windows of a signal
    are shuffled. Both depend on ``seed`` and the place of the signal in the data set
    alone. So every pass is the same; for another order in each pass, repeat the
    signals before they are cut (``infinite=True``).

    ======= ======= ============================== =========================
    n       win_len windows with pad=False         with pad=True
    ======= ======= ============================== =========================
    3       4       none                           1: 3 frames and a zero
    4       4       1                              1
    5       4       1: frames 0-3                  2: the second has 3 zeros
    ======= ======= ============================== =========================

    Parameters
    ----------
    dataset : tf.data.Dataset
        Dicts with a signal of shape (n,) or (n, channels) and any type. Not batched.
    win_len : int
        Frames in a window.
    block_length : int
        With ``max_windows_per_signal``: windows of a signal that come in a row.
    pad, deterministic : bool
        See above.
    max_windows_per_signal : int, optional
        Only the first so many windows of each signal, after shuffling. As many
        signals take turns of ``block_length`` windows. Default: all windows of a
        signal, then those of the next.
    num_parallel_calls : int, optional
        The number of signals to cut at once; the order stays.
    data_key : str
        The key of the signal.
    seed : int
        Seed of the random order.

    Returns
    -------
    tf.data.Dataset
        For each window, the values of its signal's element and

        ================= ====== =================================================
        ``signal``        same   shape (win_len,) or (win_len, channels)
        ``win_start_idx`` int32  first frame in the signal; negative in the zeros
        ``win_len``       int32
        ``sig_len``       int32  frames of the signal in windows, zeros included
        ================= ====== =================================================

    Raises
    ------
    OptionError
        A ValueError: if the data set is batched, or an argument is wrong.

    Examples
    --------
    >>> signals = tf.data.Dataset.from_tensors({"signal": [1, 2, 3, 4, 5]})
    >>> for window in dataset_signal_slice_windows(signals, 2, pad=True):
    ...     print(window["win_start_idx"].numpy(), window["signal"].numpy())
    0 [1 2]
    2 [3 4]
    4 [5 0]
    """
    if is_batched(dataset):
        raise OptionError(
            "dataset", "must not be batched; use dataset_unbatch(ds) first"
        )
    signal_spec(dataset, data_key)
    win_len = check_whole("win_len", win_len)
    cycle = max_windows_per_signal or 1

    @in_graph
    def cut(place: Any, element: Mapping[str, Any]) -> tf.data.Dataset:
        signal = element[data_key]
        frames = tf.shape(signal)[0]
        first = tf.constant(0)
        if not deterministic:
            most = tf.maximum(1, tf.minimum(win_len, frames // 2))
            first = tf.random.stateless_uniform(
                [], (seed, place), minval=0, maxval=most, dtype=tf.int32
            )
        if pad:
            right = (first - frames) % win_len
            first = -((-first) % win_len)
            zeros = [[-first, right]] + [[0, 0]] * (signal.shape.rank - 1)
            signal = tf.pad(signal, zeros)
        else:
            signal = signal[first:]
        count = tf.shape(signal)[0] // win_len
        signal = signal[: count * win_len]
        windows = tf.reshape(signal, [-1, win_len, *signal.shape[1:]])
        numbers = tf.range(count)
        if not deterministic:
            # Another stream of random numbers than that of the start.
            key = tf.stack([tf.constant(seed, tf.int64), -1 - place])
            numbers = tf.random.experimental.stateless_shuffle(numbers, key)
        numbers = numbers[:max_windows_per_signal]
        windows = (
            windows[:max_windows_per_signal]
            if deterministic
            else tf.gather(windows, numbers)
        )
        # What all windows share is not copied for each.
        shared = {
            **{name: value for name, value in element.items() if name != data_key},
            "win_len": tf.constant(win_len, tf.int32),
            "sig_len": count * win_len,
        }
        own = {data_key: windows, "win_start_idx": first + numbers * win_len}
        return tf.data.Dataset.from_tensor_slices(own).map(
            in_graph(lambda window: dict(sorted({**shared, **window}.items())))
        )

    return dataset.enumerate().interleave(
        cut,
        cycle_length=cycle,
        block_length=block_length,
        # TensorFlow refuses more than the signals that take turns.
        num_parallel_calls=num_parallel_calls and min(num_parallel_calls, cycle),
    )


def dataset_batch(
    ds: tf.data.Dataset, batch_size: int, drop_remainder: bool = True
) -> tf.data.Dataset:
    """Joins ``batch_size`` elements to one, with a first axis; leaves out a rest."""
    size = check_whole("batch_size", batch_size)
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
    return ds.shuffle(
        shuffle_buffer_size, seed, reshuffle_each_iteration=reshuffle_each_iteration
    )


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
    """
    if num_classes is None:
        spec_of(ds, "num_classes")
        first = grab(ds.map(in_graph(lambda element: element["num_classes"])))
        num_classes = int(first.max())
    return map_key(
        ds, target_key, lambda target: tf.one_hot(target, num_classes, dtype=tf.int64)
    )


def dataset_flatten(ds: tf.data.Dataset, key: str) -> tf.data.Dataset:
    """Joins all axes but the first, (n, a, b) to (n, a * b), as a Keras layer does.

    A value without axes gets one; a value with one axis, (n,), becomes (n, 1).
    """

    def run(value: Any) -> Any:
        shape = value.shape
        if shape.rank == 0:
            return tf.reshape(value, [1])
        rows = tf.shape(value)[0] if shape[0] is None else shape[0]
        size = shape[1:].num_elements() if shape.rank is not None else None
        # A size of -1 cannot be found where there are no rows.
        return tf.reshape(value, [rows, -1 if size is None else size])

    return map_key(ds, key, run)


def dataset_set_shapes(ds: tf.data.Dataset) -> tf.data.Dataset:
    """Gives all elements the shapes of the first one, which is read for it.

    An element of another shape raises an error when it is read.
    """
    first = grab(ds)

    @in_graph
    def run(*element: Any) -> Any:
        value = element[0] if len(element) == 1 else element
        return tf.nest.map_structure(
            lambda tensor, like: tf.ensure_shape(tensor, np.shape(like)), value, first
        )

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
    sides = [
        [keys] if isinstance(keys, str) else keys
        for keys in (compact_x_key, compact_y_key)
    ]
    for key in chain(*sides):
        spec_of(ds, key)

    @in_graph
    def run(element: dict[str, Any]) -> tuple[Any, ...]:
        values = [tuple(element[key] for key in keys) for keys in sides]
        return tuple(each if len(each) > 1 else each[0] for each in values)

    return ds.map(run, num_parallel_calls=num_parallel_calls)


def as_stored(value: Any) -> Array:
    """Returns a value as an array that TensorFlow takes: text as Python's bytes."""
    array = np.asarray(value)
    if array.dtype.kind == "U":
        array = np.char.encode(array, "utf-8")
    if array.dtype.kind == "S":
        return array.astype(object)
    return array.astype(array.dtype.newbyteorder("="), copy=False)
