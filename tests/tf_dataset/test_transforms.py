"""Transforms in ``ds.map``, bit for bit what they are outside."""

import numpy as np
import pytest
import tensorflow as tf

from beam_pipeline import record, replay
from beam_pipeline.tf_dataset import as_tf, dataset_signal_slice_windows, signal_dataset
from beam_pipeline.tf_dataset.signals import construct_metadata
from beam_pipeline.transforms import LogMel
from beam_pipeline.transforms.base import apply_transform
from beam_pipeline.transforms.steps import parse_transform
from tests.raising import raises
from tests.sounds import RATE, write_sound
from tests.transform_checks import ONE_CALL_OF_EACH, noise

FRAMES = 8000
HZ = 16000


def elements(signals, **more):
    count = len(signals)
    return tf.data.Dataset.from_tensor_slices(
        {
            "signal": signals,
            "fs": np.full(count, HZ, np.int32),
            "filepath": [f"{number}.wav" for number in range(count)],
            "win_start_idx": np.arange(count, dtype=np.int32) * 100,
            **more,
        }
    )


def mapped(ds, *args, **options):
    return list(ds.map(as_tf(*args, **options)).as_numpy_iterator())


@pytest.mark.parametrize("call", ONE_CALL_OF_EACH)
def test_every_transform_gives_the_bytes_that_are_recorded(call):
    windows = noise(3, FRAMES)
    wanted = apply_transform(parse_transform(call), windows, HZ)
    function = as_tf(call, sample_rate=HZ, batched=True)
    batch = tf.function(function)(tf.constant(windows))
    assert batch.dtype.as_numpy_dtype == wanted.dtype
    assert batch.shape == wanted.shape
    np.testing.assert_array_equal(batch, wanted)
    one = as_tf(call, sample_rate=HZ)(windows[1])
    np.testing.assert_array_equal(one, wanted[1])


@pytest.mark.parametrize(
    "call", ["log_mel()|delta()", "lufs()", "resample(rate_hz=8000)"]
)
def test_channels(call):
    windows = noise(2, 2, FRAMES)
    wanted = apply_transform(parse_transform(call), windows, HZ)
    found = mapped(elements(windows), call, sample_rate=HZ)
    np.testing.assert_array_equal([x["signal"] for x in found], wanted)
    batch = mapped(elements(windows).batch(2), call, batched=True, sample_rate=HZ)
    np.testing.assert_array_equal(batch[0]["signal"], wanted)


def test_a_data_set_has_what_record_stores(tmp_path):
    """Files of three depths of bits, from disk to features."""
    for number, subtype in enumerate(("PCM_16", "PCM_24", "FLOAT")):
        write_sound(tmp_path / f"in/{number}_x.wav", 5000, seed=number, subtype=subtype)
    text = "log_mel(n_mels=20,n_fft=256,hop=128)|delta()"
    record(tmp_path / "in", tmp_path / "out", win_len=2048, order="listed",
           features={"signal": "identity()", "m": text})  # fmt: skip
    stored = list(replay(str(tmp_path / "out")).as_numpy_iterator())
    df = construct_metadata(tmp_path / "in")
    for dtype in ("float32", "int32"):
        ds = signal_dataset(df, signal_dtype=dtype)
        ds = dataset_signal_slice_windows(ds, 2048)
        ds = ds.map(as_tf(text, into="m", sample_rate=RATE)).map(as_tf("identity()"))
        for ours, theirs in zip(ds.as_numpy_iterator(), stored, strict=True):
            assert ours["win_start_idx"] == theirs["win_start_idx"]
            if dtype == "float32" or ours["index"] < 2:  # floats are rounded to int32
                np.testing.assert_array_equal(ours["m"], theirs["m"])
                np.testing.assert_array_equal(ours["signal"], theirs["signal"])


def test_tensors_and_dicts():
    windows = noise(2, FRAMES)
    wanted = apply_transform(LogMel(n_mels=8), windows, HZ)
    plain = tf.data.Dataset.from_tensor_slices(windows)
    found = list(plain.map(as_tf(LogMel(n_mels=8), sample_rate=HZ)))
    np.testing.assert_array_equal(found, wanted)
    ds = elements(windows)
    replaced = ds.map(as_tf(LogMel(n_mels=8), sample_rate=HZ))
    assert set(replaced.element_spec) == set(ds.element_spec)
    added = ds.map(as_tf("log_mel(n_mels=8)", into="mel", sample_rate=HZ))
    for number, (a, b) in enumerate(zip(replaced, added, strict=True)):
        np.testing.assert_array_equal(a["signal"], wanted[number])
        np.testing.assert_array_equal(b["mel"], wanted[number])
        np.testing.assert_array_equal(b["signal"], windows[number])
    other = ds.map(lambda x: {"left": x["signal"], "fs": x["fs"]})
    assert set(other.map(as_tf("rms()", "left")).element_spec) == {"left", "fs"}


@pytest.mark.parametrize("dtype", ["int16", "int32"])
def test_integers_count_as_full_scale(dtype):
    one = -float(np.iinfo(dtype).min)
    whole = np.rint(noise(FRAMES) * one).astype(dtype)
    wanted = apply_transform(LogMel(), np.float32(whole / one)[np.newaxis], HZ)[0]
    np.testing.assert_array_equal(as_tf("log_mel()", sample_rate=HZ)(whole), wanted)


def test_a_callable_of_ones_own():
    def peak(windows):
        assert not windows.flags.writeable
        return np.abs(windows).max(axis=-1).astype(">f8")

    windows = noise(3, 50)
    ds = elements(windows).map(as_tf(peak))
    assert ds.element_spec["signal"] == tf.TensorSpec((), tf.float64)
    found = [x["signal"] for x in ds.as_numpy_iterator()]
    np.testing.assert_array_equal(found, np.abs(windows).max(axis=-1))
    texts = elements(windows).map(as_tf(lambda w: np.full(len(w), "é"), into="text"))
    assert [x["text"].decode() for x in texts.as_numpy_iterator()] == ["é"] * 3
    batch = (
        elements(windows)
        .batch(3)
        .map(as_tf(lambda w: np.full(len(w), b"e"), into="text", batched=True))
    )
    assert next(batch.as_numpy_iterator())["text"].tolist() == [b"e"] * 3


def spec_of(ds, call, **options):
    return ds.map(as_tf(call, **options)).element_spec["signal"].shape.as_list()


def test_static_shapes():
    ds = elements(noise(2, 4800))
    assert spec_of(ds, "log_mel(n_mels=8)", sample_rate=HZ) == [15, 8]
    assert spec_of(ds, "rms()", sample_rate=HZ) == [15]
    assert spec_of(ds, "resample(rate_hz=8000)", sample_rate=HZ) == [2400]
    batch = ds.batch(2, drop_remainder=True)
    options = {"batched": True, "sample_rate": HZ}
    assert spec_of(batch, "log_mel(n_mels=8)", **options) == [2, 15, 8]
    assert spec_of(ds.batch(2), "rms()", batched=True) == [None, 15]


def test_signals_of_unknown_length():
    def signals():
        for frames in (3000, 5000):
            yield {"signal": noise(frames), "fs": np.int32(HZ)}

    spec = {"signal": tf.TensorSpec((None,), tf.float32),
            "fs": tf.TensorSpec((), tf.int32)}  # fmt: skip
    ds = tf.data.Dataset.from_generator(signals, output_signature=spec)
    call = "log_mel(n_mels=8)"
    assert spec_of(ds, call, sample_rate=HZ) == [None, None]
    made = mapped(ds, call, sample_rate=HZ)
    for found, given in zip(made, signals(), strict=True):
        wanted = apply_transform(LogMel(n_mels=8), given["signal"][np.newaxis], HZ)[0]
        np.testing.assert_array_equal(found["signal"], wanted)


def test_rates():
    ds = elements(noise(2, 4800))
    changed = mapped(ds, "downsample(ratio=4)|resample(rate_hz=8000)", sample_rate=HZ)
    assert [x["fs"] for x in changed] == [8000, 8000]
    assert changed[0]["fs"].dtype == np.int32
    kept = mapped(ds, "downsample(ratio=4)", into="low", sample_rate=HZ)
    assert [x["fs"] for x in kept] == [HZ, HZ]
    low = {"batched": True, "sample_rate": HZ}
    (batch,) = mapped(ds.batch(2), "downsample(ratio=4)", **low)
    assert batch["fs"].tolist() == [4000, 4000]
    with raises(tf.errors.OpError, naming=["0.wav", HZ, 8000]):
        mapped(ds, "log_mel()", sample_rate=8000)
    mixed = ds.map(lambda x: {**x, "fs": x["fs"] + x["win_start_idx"]})
    with raises(tf.errors.OpError, naming=[HZ, HZ + 100]):
        mapped(mixed.batch(2), "log_mel()", **low)
    np.testing.assert_array_equal(as_tf("rms()")(noise(4800)).shape, [15])


def test_failures_name_the_window():
    def fails(windows):
        if windows.max() > 3:
            raise ArithmeticError("too loud")
        return windows

    windows = noise(3, 50)
    windows[1, 5] = 4
    with raises(tf.errors.OpError, naming=["too loud", "1.wav", "fails", 100]):
        mapped(elements(windows), fails)

    with raises(tf.errors.OpError, naming=["too loud", "frame 100"]):
        mapped(elements(windows).batch(3), fails, batched=True)
