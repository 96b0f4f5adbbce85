"""Reads files of records in parallel, as streams of serialised examples.

TensorFlow reads local files. This package reads those of stores and other file systems,
with the credentials and retries of ``record``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any, NamedTuple

import tensorflow as tf

from beam_pipeline.errors import InputError
from beam_pipeline.process import usable_cores
from beam_pipeline.read.choices import READ_AHEAD_BYTES, SHUFFLE_BYTES
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import is_gzip, read_any_records

MIXED_SHARDS = 16
# The parallel interleave also starts on files whose turn is not near.
STARTED_PER_STREAM = 3
# An example in a buffer takes at least so many bytes.
LEAST_BYTES = 64
# Records that cross from Python to TensorFlow together.
_STORE_BLOCK = 64
_OPENING_THREADS = 32
_ALL = -1  # what `take` calls all of a dataset


class FilePart(NamedTuple):
    """Consecutive records of a file.

    Attributes
    ----------
    path : str
    is_compressed : bool
    skip, take : int
        The records ``skip .. skip + take - 1``. A ``take`` of -1: all that follow.
    """

    path: str
    is_compressed: bool
    skip: int = 0
    take: int = _ALL


def file_parts(paths: Sequence[str]) -> list[FilePart]:
    """Returns whole TFRecord files; their content says whether they are compressed.

    Raises
    ------
    InputError
        If a file cannot be opened.
    """

    def part(path: str) -> FilePart:
        try:
            with files.open_read(path) as file:
                return FilePart(path, is_gzip(file))
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error}") from error

    with ThreadPoolExecutor(_OPENING_THREADS) as pool:
        return list(pool.map(part, paths))


def read_examples(
    parts: Sequence[FilePart],
    size: int,
    *,
    shuffle: bool | int = False,
    seed: int = 0,
    deterministic: bool = True,
    least: int = 1,
    mixed: int | None = None,
) -> tf.data.Dataset:
    """Reads serialised examples of files.

    Parameters
    ----------
    parts : sequence of FilePart
    size : int
        About the bytes of an example.
    shuffle, seed, deterministic
        As in :func:`.replay`.
    least : int
        The least examples in the buffer of ``shuffle=True``.
    mixed : int, optional
        From how many files examples are mixed. Default: ``MIXED_SHARDS``.
    """
    total: int | None = sum(part.take for part in parts)
    if any(part.take == _ALL for part in parts):
        total = None
    if shuffle:
        room = int(shuffle)
        if shuffle is True:
            room = max(SHUFFLE_BYTES // max(size, LEAST_BYTES), least)
        if total is not None:  # what stays empty takes memory, too
            room = min(room, max(total, 1))
        examples = read_mixed(parts, deterministic, seed, mixed)
        examples = examples.shuffle(room, seed, reshuffle_each_iteration=True)
    elif deterministic:
        examples = read_in_order(parts, size)
    else:
        examples = read_mixed(parts, deterministic)
    if total is None:
        return examples
    return examples.apply(tf.data.experimental.assert_cardinality(total))


def read_in_order(parts: Sequence[FilePart], size: int = 1) -> tf.data.Dataset:
    """Reads serialised examples file after file, from several of them at once.

    The interleave starts the files of its cycle, and twice as many after them. Where
    all of these fit into memory, a cycle takes a whole part from each of its streams.
    Otherwise parts are taken one by one, and each that is started holds its part of the
    memory. If nobody knows how many examples there are, nothing is read ahead.

    Parameters
    ----------
    parts : sequence of FilePart
    size : int
        About the bytes of an example.
    """
    paths, read = _paths(parts), _reader(parts)
    most = max((part.take for part in parts), default=_ALL)
    if most == _ALL:
        return paths.flat_map(read)
    held = max(READ_AHEAD_BYTES // STARTED_PER_STREAM // size, 1)
    streams = min(usable_cores(), held // max(most, 1), len(parts))
    if streams > 1:
        return paths.interleave(
            read,
            cycle_length=streams,
            block_length=most,
            num_parallel_calls=streams,
            deterministic=True,
        )

    def read_ahead(*part: Any) -> tf.data.Dataset:
        return read(*part).prefetch(held)

    return paths.interleave(
        read_ahead, cycle_length=1, num_parallel_calls=1, deterministic=True
    )


def read_mixed(
    parts: Sequence[FilePart],
    deterministic: bool,
    seed: int | None = None,
    mixed: int | None = None,
) -> tf.data.Dataset:
    """Reads serialised examples from up to ``mixed`` files by turns.

    With a seed, the order of the files is shuffled in every pass.
    """
    dataset = _paths(parts)
    together = min(mixed or MIXED_SHARDS, max(len(parts), 1))
    if seed is not None:
        room = max(len(parts), 1)
        dataset = dataset.shuffle(room, seed, reshuffle_each_iteration=True)
    return dataset.interleave(
        _reader(parts),
        cycle_length=together,
        num_parallel_calls=min(usable_cores(), together),
        deterministic=deterministic,
    )


def first_record(paths: Sequence[str]) -> tuple[str, bytes]:
    """Returns the first record, and its file; files without records are skipped."""
    for path in paths:
        for record in read_in_order(file_parts([path])).take(1):
            return path, record.numpy()
    return "", b""


def _paths(parts: Sequence[FilePart]) -> tf.data.Dataset:
    """Returns a dataset of what the readers read."""
    kinds = ["GZIP" if part.is_compressed else "" for part in parts]
    return tf.data.Dataset.from_tensor_slices(
        (
            tf.constant([part.path for part in parts], tf.string),
            tf.constant(kinds, tf.string),
            tf.constant([part.skip for part in parts], tf.int64),
            tf.constant([part.take for part in parts], tf.int64),
        )
    )


def _reader(parts: Sequence[FilePart]) -> Any:
    return _read if all(files.is_local(part.path) for part in parts) else _read_store


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
        end = None if take == _ALL else skip + take
        records = islice(read_any_records(file), skip, end)
        try:
            while block := list(islice(records, _STORE_BLOCK)):
                yield block
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from error
