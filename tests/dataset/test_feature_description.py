"""Metadata.feature_description: plain TensorFlow parses what it describes."""

import numpy as np
import tensorflow as tf

from beam_pipeline import Metadata, record_examples


def records_of(folder):
    paths = [f"{folder}/{shard.file}" for shard in Metadata.load(folder).shards()]
    return tf.data.TFRecordDataset(paths, "GZIP")


def test_every_kind_of_feature(tmp_path):
    rows = [
        {
            "scalar": n,
            "fixed": [1.5, 2.5],
            "list": [1] * n,
            "texts": ["a"] * n,
            "raw": np.full((2, 2), n - 0.5j, np.complex64),
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
    assert batch["scalar"].numpy().tolist() == [0, 1, 2]
    assert batch["fixed"].numpy().tolist() == [[1.5, 2.5]] * 3
    raw = tf.io.decode_raw(batch["raw"], tf.complex64).numpy().reshape(3, 2, 2)
    np.testing.assert_array_equal(raw, [row["raw"] for row in rows])
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
