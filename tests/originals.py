"""What two older libraries write, in their formats and with their way of working.

``write_like_tf_dataset`` is ``record_dataset`` of tf_dataset: one element at a time, in
eager mode. ``write_like_tfrecorder`` is the engine of TFRecorder: one source example at
a time. Both write uncompressed records. The code is ours; only formats and order of
work are theirs.
"""

from __future__ import annotations

import csv
import json
import os
import random
import secrets
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

SPEC_FILE = "TF_RECORD_FEATURES_SPEC.json"
BATCHED_FILE = "batched"


# tf_dataset


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


# TFRecorder


def write_like_tfrecorder(
    save_directory: str | os.PathLike[str],
    example_class: Any,
    csv_path: str | os.PathLike[str],
    *,
    ratio: float = 0.8,
    file_bytes: int = 1_000_000,
    seed: int = 0,
    **kwargs: Any,
) -> dict[str, int]:
    """Writes the folders ``train`` and ``eval`` of the examples in a CSV file.

    Parameters
    ----------
    example_class : class
        With ``from_csv_row(row, **kwargs)``, and in its instances ``load(**kwargs)``,
        ``split(**kwargs)``, ``to_csv_row()`` and ``release()``. ``FIELDS`` are pairs of
        an attribute and one of ``int``, ``float``, ``text`` and ``array``, in order.
    file_bytes : int
        A file ends before the record that would make it longer.
    kwargs
        Given to the hooks of the class.

    Returns
    -------
    dict
        Name of the folder to its number of source examples.
    """
    with open(csv_path, newline="") as file:
        examples = [
            example_class.from_csv_row(row, **kwargs) for row in csv.reader(file)
        ]
    random.Random(seed).shuffle(examples)
    train = int(len(examples) * ratio)
    parts = {"train": examples[:train], "eval": examples[train:]}
    for name, part in parts.items():
        folder = Path(save_directory, name)
        folder.mkdir(parents=True, exist_ok=True)
        _write_examples(folder, part, file_bytes, kwargs)
    return {name: len(part) for name, part in parts.items()}


def _write_examples(
    folder: Path, examples: Sequence[Any], file_bytes: int, kwargs: dict[str, Any]
) -> None:
    chunks_written, file_number, size = 0, 0, 0
    began = time.perf_counter()
    writer = tf.io.TFRecordWriter(str(folder / "0.tfr"))
    try:
        for done, example in enumerate(examples, 1):
            example.load(**kwargs)
            _append_rows(folder / "examples.csv", [example])
            chunks = example.split(**kwargs)
            if len(chunks) > 1:
                example.release()
            for chunk in chunks:
                record = tfrecorder_record(chunk)
                if size + len(record) > file_bytes:
                    writer.close()
                    file_number, size = file_number + 1, 0
                    writer = tf.io.TFRecordWriter(str(folder / f"{file_number}.tfr"))
                writer.write(record)
                writer.flush()
                size += len(record)
                chunks_written += 1
                chunk.release()
            if done % max(10, len(examples) // 10) == 0:
                left = (time.perf_counter() - began) / done * (len(examples) - done)
                print(
                    f"{done} of {len(examples)} examples, {chunks_written} chunks, "
                    f"{file_number + 1} files, {left:.0f} s left"
                )
    finally:
        writer.close()


def _append_rows(path: Path, examples: Iterable[Any]) -> None:
    with path.open("a", newline="") as file:
        csv.writer(file).writerows(example.to_csv_row() for example in examples)


def tfrecorder_record(example: Any) -> bytes:
    """Returns the fields of an example as a serialised message; arrays are flat."""
    features = {}
    for name, kind in example.FIELDS:
        value = getattr(example, name)
        if kind == "int":
            numbers = tf.train.Int64List(value=[value])
            features[name] = tf.train.Feature(int64_list=numbers)
        elif kind == "float":
            floats = tf.train.FloatList(value=[value])
            features[name] = tf.train.Feature(float_list=floats)
        else:
            data = value.tobytes() if kind == "array" else value.encode()
            texts = tf.train.BytesList(value=[data])
            features[name] = tf.train.Feature(bytes_list=texts)
    message = tf.train.Example(features=tf.train.Features(feature=features))
    return bytes(message.SerializeToString())
