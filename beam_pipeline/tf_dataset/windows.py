"""Cuts the signals of a data set into windows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf

from beam_pipeline.errors import OptionError
from beam_pipeline.tf_dataset.structure import check_rank, in_graph, is_batched
from beam_pipeline.transforms.params import whole


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
    check_rank(dataset, data_key)
    for name, flag in (("deterministic", deterministic), ("pad", pad)):
        if not isinstance(flag, bool):
            raise OptionError(name, "must be True or False", flag)
    win_len = whole("win_len", win_len)
    block_length = whole("block_length", block_length)
    cycle = 1
    if max_windows_per_signal is not None:
        cycle = whole("max_windows_per_signal", max_windows_per_signal)
    seed = int(seed)

    @in_graph
    def cut(place: Any, element: Mapping[str, Any]) -> tf.data.Dataset:
        signal = element[data_key]
        frames = tf.shape(signal)[0]
        start = tf.constant(0)
        if not deterministic:
            most = tf.maximum(1, tf.minimum(win_len, frames // 2))
            start = tf.random.stateless_uniform(
                [], (seed, place), minval=0, maxval=most, dtype=tf.int32
            )
        if pad:
            first = -((-start) % win_len)
            zeros = [[-first, (start - frames) % win_len]]
            zeros += [[0, 0]] * (signal.shape.rank - 1)
            signal = tf.pad(signal, zeros)
            count = tf.shape(signal)[0] // win_len
        else:
            first = start
            count = (frames - start) // win_len
            signal = signal[start : start + count * win_len]
        windows = tf.reshape(signal, [-1, win_len, *signal.shape[1:]])
        numbers = tf.range(count)
        if not deterministic:
            # Another stream of random numbers than that of the start.
            key = tf.stack([tf.constant(seed, tf.int64), -1 - place])
            numbers = tf.random.experimental.stateless_shuffle(numbers, key)
        if max_windows_per_signal is not None:
            numbers = numbers[:cycle]
        if not deterministic:
            windows = tf.gather(windows, numbers)
        elif max_windows_per_signal is not None:
            windows = windows[:cycle]
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
