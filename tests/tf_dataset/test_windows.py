"""Windows of the signals of a data set, against slices in numpy and our own plan."""

import numpy as np
import pytest
import tensorflow as tf

from beam_pipeline.examples.windows import WindowPlan, count_windows, window_starts
from beam_pipeline.tf_dataset import dataset_signal_slice_windows


def counting(frames, channels=None, dtype=np.int32):
    """A signal without a sample of 0."""
    shape = frames if channels is None else (frames, channels)
    return np.arange(1, np.prod(shape) + 1).reshape(shape).astype(dtype)


def signals(*lengths, dtype=np.int32, channels=None):
    def elements():
        for index, frames in enumerate(lengths):
            yield {
                "signal": counting(frames, channels, dtype), "index": np.int64(index),
                "class": f"class {index}", "pair": np.array([index, 7], np.int32),
            }  # fmt: skip

    shape = (None,) if channels is None else (None, channels)
    spec = {
        "signal": tf.TensorSpec(shape, dtype),
        "index": tf.TensorSpec((), tf.int64),
        "class": tf.TensorSpec((), tf.string),
        "pair": tf.TensorSpec((2,), tf.int32),
    }
    return tf.data.Dataset.from_generator(elements, output_signature=spec)


def cut(*lengths, dtype=np.int32, channels=None, **options):
    ds = dataset_signal_slice_windows(
        signals(*lengths, dtype=dtype, channels=channels), **options
    )
    return list(ds.as_numpy_iterator())


LENGTHS = (0, 1, 3, 4, 5, 7, 8, 9, 40)


def of_signal(windows, index):
    return [x for x in windows if x["index"] == index]


@pytest.mark.parametrize("pad", [False, True])
def test_windows_are_those_that_are_recorded(pad):
    plan = WindowPlan(4, 4, "pad" if pad else "drop")
    windows = cut(*LENGTHS, win_len=4, pad=pad)
    assert [x["index"] for x in windows] == sorted(x["index"] for x in windows)
    for index, frames in enumerate(LENGTHS):
        count = count_windows(frames, plan)
        starts = window_starts(frames, plan, 0, count).tolist()
        own = of_signal(windows, index)
        assert [x["win_start_idx"] for x in own] == starts
        padded = np.pad(np.arange(1, frames + 1), (0, 4))
        for start, window in zip(starts, own, strict=True):
            assert window["signal"].tolist() == padded[start : start + 4].tolist()
            assert window["win_len"] == 4
            assert window["sig_len"] == 4 * count


@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize(
    ("win_len", "seed", "dtype", "channels"),
    [(1, 0, "int16", 1), (2, 2**40, "complex64", 2), (4, -3, "float64", None),
     (9, 7, "int32", None)],
)  # fmt: skip
def test_random_windows(win_len, pad, seed, dtype, channels):
    lengths = (*range(12), 17, 18, 19, 26, 27, 28, 40)
    options = {"win_len": win_len, "pad": pad, "deterministic": False, "seed": seed}
    every = cut(*lengths, dtype=dtype, channels=channels, **options)
    for index, frames in enumerate(lengths):
        windows = of_signal(every, index)
        starts = sorted(x["win_start_idx"] for x in windows)
        padded = np.pad(counting(frames, channels, dtype), win_len)
        padded = padded[:, win_len:-win_len] if channels else padded
        for window in windows:
            at = window["win_start_idx"] + win_len
            wanted = padded[at : at + win_len]
            np.testing.assert_array_equal(window["signal"], wanted, strict=True)
            assert window["signal"].any()
            assert window["sig_len"] == win_len * len(windows)
        assert (np.diff(starts) == win_len).all()
        if pad and frames:
            assert -win_len < starts[0] <= 0
            assert starts[-1] < frames <= starts[-1] + win_len
        elif starts:
            assert 0 <= starts[0] < max(1, min(win_len, frames // 2))
            assert starts[-1] + win_len <= frames < starts[-1] + 2 * win_len


def test_random_windows_are_random_and_repeatable():
    def order(**options):
        windows = cut(400, 400, win_len=7, deterministic=False, **options)
        return [(x["index"], x["win_start_idx"]) for x in windows]

    first = order(seed=3)
    assert first == order(seed=3)
    assert first != order(seed=4)
    assert first != sorted(first)
    per_signal = [[s for index, s in first if index == i] for i in (0, 1)]
    assert per_signal[0] != per_signal[1]
    alike = cut(*[70] * 9, win_len=7, deterministic=False)
    orders = [[x["win_start_idx"] // 7 for x in of_signal(alike, i)] for i in range(9)]
    # Each has 9 windows, or 10 if it starts at 0; all orders differ.
    assert len(set(map(tuple, orders))) == 9
    many = cut(*[40] * 60, win_len=7, deterministic=False)
    assert {x["win_start_idx"] % 7 for x in many} == set(range(7))


def test_repeated_signals_are_cut_anew():
    ds = dataset_signal_slice_windows(
        signals(100).repeat(2), win_len=5, deterministic=False
    )
    starts = [x["win_start_idx"] for x in ds.as_numpy_iterator()]
    half = len(starts) // 2
    assert starts[:half] != starts[half:]


def test_only_the_first_windows():
    windows = cut(20, 3, 20, 20, win_len=4, max_windows_per_signal=2)
    found = [(x["index"], x["win_start_idx"]) for x in windows]
    assert sorted(found) == [(0, 0), (0, 4), (2, 0), (2, 4), (3, 0), (3, 4)]
    blocks = cut(20, 20, win_len=4, max_windows_per_signal=2, block_length=2)
    assert [x["index"] for x in blocks] == [0, 0, 1, 1]
    turns = cut(20, 20, win_len=4, max_windows_per_signal=2)
    assert [x["index"] for x in turns] == [0, 1, 0, 1]
    some = cut(40, win_len=4, max_windows_per_signal=3, deterministic=False)
    assert len(some) == 3
    assert [x["win_start_idx"] for x in some] != sorted(
        x["win_start_idx"] for x in some
    )
