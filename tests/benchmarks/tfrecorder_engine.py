"""What TFRecorder's engine writes: one source example at a time, uncompressed.

The code is ours; only the format and the order of work are those of the library.
"""

from __future__ import annotations

import csv
import os
import random
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf


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
