"""Metadata.feature_description: plain TensorFlow parses what it describes."""

import numpy as np
import pytest
import tensorflow as tf

from beam_pipeline import Metadata, record, record_examples, replay
from tests.sounds import write_sound

VALUES = {tf.float32: 0.0, tf.int64: 0, tf.string: b""}


def records_of(folder, split=None):
    entry = Metadata.load(folder).splits[split or "records"]
    paths = [f"{folder}/{shard.file}" for shard in entry.shards]
    return tf.data.TFRecordDataset(paths, "GZIP")


@pytest.mark.runs
def test_a_data_set_of_audio(tmp_path):
    for k, name in enumerate(("a", "b")):
        write_sound(tmp_path / "in" / name / "x.wav", 2000, seed=k)
    folder = str(tmp_path / "out")
    features = {
        "signal": "identity()",
        "stft": "stft(n_fft=64)",
        "half": "downsample(ratio=2)",
    }
    record(
        str(tmp_path / "in"),
        folder,
        win_len=500,
        features=features,
        splits="train=.5,test=.5",
    )
    metadata = Metadata.load(folder)
    description = metadata.feature_description()
    assert set(description) == set(metadata.features)
    assert description["target"] == tf.io.FixedLenFeature((), tf.int64)
    assert description["signal"] == tf.io.FixedLenFeature((500,), tf.float32)
    assert description["stft"] == tf.io.FixedLenFeature((), tf.string)
    for split in metadata.splits:
        ours = list(replay(folder, split=split))
        batch = tf.io.parse_example(list(records_of(folder, split)), description)
        for k, example in enumerate(ours):
            for name, values in batch.items():
                found = values[k]
                if metadata.features[name].encoding == "raw":
                    found = tf.io.decode_raw(found, metadata.features[name].dtype)
                    found = tf.reshape(found, example[name].shape)
                np.testing.assert_array_equal(found, example[name])


def test_every_kind_of_feature(tmp_path):
    rows = [
        {
            "scalar": n,
            "fixed": [1.5, 2.5],
            "list": [1] * n,
            "texts": ["a"] * n,
            "raw": np.zeros((2, 2)),
            "image": np.zeros((2, 2 + n), np.uint8),
            "ragged": np.zeros((n, 1 + n), np.float32),
            "optional": n if n else None,
            "optional_array": np.zeros((2, 2)) if n else None,
            "none": np.zeros((0, 2)),
        }
        for n in range(3)
    ]
    folder = record_examples(rows, tmp_path / "out", encodings={"image": "png"})
    description = Metadata.load(folder).feature_description()
    fixed, varied = tf.io.FixedLenFeature, tf.io.VarLenFeature
    assert description == {
        "scalar": fixed((), tf.int64),
        "fixed": fixed((2,), tf.float32),
        "list": varied(tf.int64),
        "texts": varied(tf.string),
        "raw": fixed((), tf.string),
        "image": fixed((), tf.string),
        "image/shape": fixed((2,), tf.int64),
        "ragged": varied(tf.float32),
        "ragged/shape": fixed((2,), tf.int64),
        "optional": varied(tf.int64),
        "optional_array": varied(tf.string),
        "none": fixed((), tf.string),
    }
    batch = tf.io.parse_example(list(records_of(folder)), description)
    assert batch["list"].dense_shape.numpy().tolist() == [3, 2]
    assert batch["optional"].values.numpy().tolist() == [1, 2]
    assert batch["ragged/shape"].numpy().tolist() == [[0, 1], [1, 2], [2, 3]]


def test_sequences(tmp_path):
    rows = [
        {"n": 0, "steps": [[1, 2]], "words": ["a", "b"], "some": None},
        {"n": 1, "steps": [[3, 4], [5, 6]], "words": [], "some": [0.5]},
    ]
    names = ["steps", "words", "some"]
    folder = record_examples(rows, tmp_path / "out", sequences=names)
    context, steps = Metadata.load(folder).feature_description()
    sequence = tf.io.FixedLenSequenceFeature
    assert context == {"n": tf.io.FixedLenFeature((), tf.int64)}
    assert steps == {
        "steps": sequence((2,), tf.int64),
        "words": sequence((), tf.string),
        "some": sequence((), tf.float32, allow_missing=True),
    }
    for record_, row in zip(records_of(folder), rows, strict=True):
        _, found = tf.io.parse_single_sequence_example(record_, context, steps)
        assert found["steps"].numpy().tolist() == row["steps"]
        assert found["some"].numpy().tolist() == (row["some"] or [])
