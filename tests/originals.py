"""What an older library writes, in its format and with its way of working.

``write_like_tf_dataset`` is ``record_dataset`` of tf_dataset: one element at a time, in
eager mode, uncompressed. The code is ours; only format and order of work are theirs.
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
    *,
    loses: bool = False,
) -> str:
    """Writes the elements of a dataset, which are dicts of tensors.

    Parameters
    ----------
    dataset : tf.data.Dataset
        If ``batch`` made it, the size is written to the file ``batched``, and single
        elements are recorded.
    loses : bool
        True: an element is thrown away whenever a file is full, as in the library. One
        difference stays: if a multiple of ``elements_per_file + 1`` elements is given,
        the library never ends; this function ends with an empty file.

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

    elements = iter(dataset)
    number, waiting = 0, next(elements, None)
    while waiting is not None:
        number += 1
        with tf.io.TFRecordWriter(_random_path(folder)) as writer:
            count = 0
            while waiting is not None and count < elements_per_file:
                count += 1
                print(
                    f"Processing batch: {count} of {elements_per_file} in file {number}"
                )
                writer.write(_tf_dataset_record(waiting))
                waiting = next(elements, None)
        if loses and count == elements_per_file and waiting is not None:
            waiting = next(elements, None)
            if waiting is None:
                Path(_random_path(folder)).touch()
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
