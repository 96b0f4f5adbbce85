"""Reads shards in parallel, as streams of serialised examples.

TensorFlow reads local files, and those of the file systems that it knows. This package
reads ``s3://`` and ``gs://``, with the credentials and retries of ``record``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import tensorflow as tf

from beam_pipeline.read.cores import usable_cores
from beam_pipeline.read.sizes import READ_AHEAD_BYTES
from beam_pipeline.read.split_choice import Piece
from beam_pipeline.storage import files
from beam_pipeline.storage.object_store import is_in_store
from beam_pipeline.storage.tfrecord import is_compressed, read_any_records

MIXED_SHARDS = 16
# Records that cross from Python to TensorFlow together.
_STORE_BLOCK = 64


def read_in_order(folder: str, pieces: Sequence[Piece], size: int) -> tf.data.Dataset:
    """Reads serialised examples in the order on disk, from several shards at once.

    There is one stream for each core. Stream k of n reads the shards k, k + n, ...
    ahead, and the streams take turns of a whole shard. A stream helps only if it can
    hold a shard until its turn, so large shards have fewer streams.
    """
    largest = size * max((piece.take for piece in pieces), default=1)
    streams = min(
        usable_cores(), max(READ_AHEAD_BYTES // largest, 2), max(len(pieces), 1)
    )
    held = max(READ_AHEAD_BYTES // streams // size, 1)

    def turn(stream: Any, examples: Any) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensors(stream).repeat(examples)

    read = _reader_for(folder)
    takes = np.array([piece.take for piece in pieces], np.int64)
    turns = np.arange(len(pieces), dtype=np.int64) % streams
    return tf.data.Dataset.choose_from_datasets(
        [
            _piece_dataset(folder, pieces[i::streams]).flat_map(read).prefetch(held)
            for i in range(streams)
        ],
        tf.data.Dataset.from_tensor_slices((turns, takes)).flat_map(turn),
    )


def read_mixed(
    folder: str, pieces: Sequence[Piece], deterministic: bool, seed: int | None = None
) -> tf.data.Dataset:
    """Reads serialised examples from up to 16 shards by turns.

    With a seed, the order of the shards is shuffled in every pass.
    """
    dataset = _piece_dataset(folder, pieces)
    if seed is not None:
        dataset = dataset.shuffle(
            max(len(pieces), 1), seed, reshuffle_each_iteration=True
        )
    mixed = min(MIXED_SHARDS, max(len(pieces), 1))
    return dataset.interleave(
        _reader_for(folder),
        cycle_length=mixed,
        num_parallel_calls=min(usable_cores(), mixed),
        deterministic=deterministic,
    )


def _piece_dataset(folder: str, pieces: Sequence[Piece]) -> tf.data.Dataset:
    paths = [files.join(folder, piece.shard.file) for piece in pieces]
    kinds = ["GZIP" if is_compressed(path) else "" for path in paths]
    return tf.data.Dataset.from_tensor_slices(
        (
            tf.constant(paths, tf.string),
            tf.constant(kinds, tf.string),
            tf.constant([piece.skip for piece in pieces], tf.int64),
            tf.constant([piece.take for piece in pieces], tf.int64),
        )
    )


def _reader_for(folder: str) -> Any:
    return _read_store if is_in_store(folder) else _read


def _read(path: Any, kind: Any, skip: Any, take: Any) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(path, kind).skip(skip).take(take)


def _read_store(path: Any, kind: Any, skip: Any, take: Any) -> tf.data.Dataset:
    blocks = tf.data.Dataset.from_generator(
        _store_blocks,
        args=(path, skip, take),
        output_signature=tf.TensorSpec([None], tf.string),
    )
    return blocks.unbatch()


def _store_blocks(path: bytes, skip: int, take: int) -> Iterator[list[bytes]]:
    name = path.decode()
    with files.open_read(name) as file:
        records = islice(read_any_records(file), skip, skip + take)
        try:
            while block := list(islice(records, _STORE_BLOCK)):
                yield block
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
