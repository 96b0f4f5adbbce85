"""What an older library writes, in its format and with its way of working.

``write_like_tf_dataset`` is ``record_dataset`` of tf_dataset: one element at a time, in
eager mode, uncompressed. The code is ours; only format and order of work are theirs.
The library throws an element away whenever a file is full, which this does not do.
"""

from __future__ import annotations

import json
import os
import secrets
from pathlib import Path
from typing import Any

import tensorflow as tf

SPEC_FILE = "TF_RECORD_FEATURES_SPEC.json"
BATCHED_FILE = "batched"


def write_like_tf_dataset(
    dataset: tf.data.Dataset,
    output_dir: str | os.PathLike[str],
    elements_per_file: int = 2,
) -> str:
    """Writes the elements of a dataset, which are dicts of tensors.

    Parameters
    ----------
    dataset : tf.data.Dataset
        If ``batch`` made it, the size is written to the file ``batched``, and single
        elements are recorded.

    Returns
    -------
    str
        The absolute path of ``output_dir``.
    """
    folder = os.path.abspath(output_dir)
    if not os.path.isdir(folder):
        os.mkdir(folder)
    batch_size = getattr(dataset, "_batch_size", None)
    if batch_size is not None:
        Path(folder, BATCHED_FILE).write_text(str(int(batch_size)))
        dataset = dataset.unbatch()
    first = next(iter(dataset))
    spec_path = Path(folder, SPEC_FILE)
    if not spec_path.exists():
        spec_path.write_text(json.dumps(tf_dataset_spec(first)))

    for index, element in enumerate(dataset):
        number, count = divmod(index, elements_per_file)
        if count == 0:
            writer = tf.io.TFRecordWriter(_random_path(folder))
        print(f"Processing batch: {count} of {elements_per_file} in file {number}")
        writer.write(_tf_dataset_record(element))
        if count == elements_per_file - 1:
            writer.close()
    writer.close()
    print("Done!")
    return folder


def tf_dataset_spec(element: dict[str, tf.Tensor]) -> dict[str, dict[str, Any]]:
    """Returns the content of the JSON file for elements like this one."""
    spec = {}
    for name, value in element.items():
        previous = value.dtype
        for key, part in _complex_parts(name, value).items():
            stored = tf.int64 if previous == tf.int32 else part.dtype
            sequence = previous.is_complex or part.shape.rank > 1
            spec[key] = {
                "fnc": "FixedLenSequence" if sequence else "FixedLen",
                "dtype": f"tf.{stored.name}",
                "shape": part.shape.as_list(),
                "previous_dtype": f"tf.{previous.name}",
            }
    return spec


def _tf_dataset_record(element: dict[str, tf.Tensor]) -> bytes:
    features = {}
    for name, value in element.items():
        for key, part in _complex_parts(name, value).items():
            data = tf.io.serialize_tensor(part).numpy()
            features[key] = tf.train.Feature(
                bytes_list=tf.train.BytesList(value=[data])
            )
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return bytes(example.SerializeToString())


def _complex_parts(name: str, value: tf.Tensor) -> dict[str, tf.Tensor]:
    if not value.dtype.is_complex:
        return {name: value}
    return {f"{name}_real": tf.math.real(value), f"{name}_imag": tf.math.imag(value)}


def _random_path(folder: str) -> str:
    return os.path.join(folder, f"{secrets.token_hex(4)}.tfrecord")
