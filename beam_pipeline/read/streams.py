"""Reads shards in parallel, as streams of serialised examples.

TensorFlow reads local files, and those of the file systems that it knows. This package
reads ``s3://`` and ``gs://``, with the credentials and retries of ``record``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import Any

import tensorflow as tf

from beam_pipeline.errors import InputError
from beam_pipeline.read.choices import Piece
from beam_pipeline.read.sizes import READ_AHEAD_BYTES, usable_cores
from beam_pipeline.storage import files
from beam_pipeline.storage.object_store import is_in_store
from beam_pipeline.storage.tfrecord import is_compressed, is_gzip, read_any_records

MIXED_SHARDS = 16
# The parallel interleave also starts on files whose turn is not near.
STARTED_PER_STREAM = 3
# The length and both checksums.
LEAST_RECORD_BYTES = 16
# Records that cross from Python to TensorFlow together.
_STORE_BLOCK = 64
_OPENING_THREADS = 32
_GZIP = "GZIP"
_ALL = -1  # what `take` calls all of a dataset


def read_in_order(folder: str, pieces: Sequence[Piece], size: int) -> tf.data.Dataset:
    """Reads serialised examples in the order on disk, from several shards at once.

    ``size`` is about that of an example, in bytes.
    """
    most = max((piece.take for piece in pieces), default=1)
    dataset = _piece_dataset(folder, pieces)
    return _in_order(dataset, _reader_for(folder), most, size)


def read_mixed(
    folder: str, pieces: Sequence[Piece], deterministic: bool, seed: int | None = None
) -> tf.data.Dataset:
    """Reads serialised examples from up to 16 shards by turns.

    With a seed, the order of the shards is shuffled in every pass.
    """
    return _mix(
        _piece_dataset(folder, pieces),
        _reader_for(folder),
        min(MIXED_SHARDS, max(len(pieces), 1)),
        deterministic,
        seed,
    )


def read_files(paths: Sequence[str]) -> tf.data.Dataset:
    """Reads serialised examples from any TFRecord files, one after the other.

    Their content, not their names, says whether they are compressed.

    Raises
    ------
    InputError
        If a file cannot be opened.
    """
    return _file_dataset(paths).flat_map(_reader_for(*paths))


def read_mixed_files(
    paths: Sequence[str],
    deterministic: bool,
    seed: int | None = None,
    mixed: int = MIXED_SHARDS,
) -> tf.data.Dataset:
    """Reads serialised examples from up to ``mixed`` TFRecord files by turns.

    See :func:`read_mixed` and :func:`read_files`.
    """
    together = min(mixed, max(len(paths), 1))
    dataset = _file_dataset(paths)
    return _mix(dataset, _reader_for(*paths), together, deterministic, seed)


def first_record(paths: Sequence[str]) -> tuple[str, bytes]:
    """Returns the first record, and its file; files without records are skipped."""
    for path in paths:
        for record in read_files([path]).take(1):
            return path, record.numpy()
    return "", b""


def read_files_in_order(paths: Sequence[str], sizes: Sequence[int]) -> tf.data.Dataset:
    """Reads TFRecord files without compression like :func:`read_in_order`."""
    dataset = _dataset(paths, [""] * len(paths), [0] * len(paths), [_ALL] * len(paths))
    most = max(max(sizes) // LEAST_RECORD_BYTES, 1)
    return _in_order(dataset, _reader_for(*paths), most, LEAST_RECORD_BYTES)


def _in_order(
    dataset: tf.data.Dataset, read: Any, most: int, size: int
) -> tf.data.Dataset:
    """Reads files one after the other, and the next ones ahead.

    The interleave starts the files of its cycle, and twice as many after them. Where
    all of these fit into memory, a cycle takes a whole file from each of its streams.
    Otherwise files are taken one by one, and each that is started holds its part of
    the memory.

    Parameters
    ----------
    most : int
        No file has more examples.
    size : int
        About the bytes of an example.
    """
    streams = READ_AHEAD_BYTES // (STARTED_PER_STREAM * most * size)
    streams = min(usable_cores(), streams, max(int(dataset.cardinality()), 1))
    if streams > 1:
        return dataset.interleave(
            read,
            cycle_length=streams,
            block_length=most,
            num_parallel_calls=streams,
            deterministic=True,
        )
    held = max(READ_AHEAD_BYTES // STARTED_PER_STREAM // size, 1)

    def read_ahead(*piece: Any) -> tf.data.Dataset:
        return read(*piece).prefetch(held)

    return dataset.interleave(
        read_ahead, cycle_length=1, num_parallel_calls=1, deterministic=True
    )


def _mix(
    dataset: tf.data.Dataset,
    read: Any,
    mixed: int,
    deterministic: bool,
    seed: int | None,
) -> tf.data.Dataset:
    """Reads ``mixed`` files of a dataset by turns; a seed shuffles them first."""
    if seed is not None:
        count = max(int(dataset.cardinality()), 1)
        dataset = dataset.shuffle(count, seed, reshuffle_each_iteration=True)
    return dataset.interleave(
        read,
        cycle_length=mixed,
        num_parallel_calls=min(usable_cores(), mixed),
        deterministic=deterministic,
    )


def _piece_dataset(folder: str, pieces: Sequence[Piece]) -> tf.data.Dataset:
    paths = [files.join(folder, piece.shard.file) for piece in pieces]
    kinds = [_GZIP if is_compressed(path) else "" for path in paths]
    return _dataset(paths, kinds, [p.skip for p in pieces], [p.take for p in pieces])


def _file_dataset(paths: Sequence[str]) -> tf.data.Dataset:
    with ThreadPoolExecutor(_OPENING_THREADS) as pool:
        kinds = list(pool.map(_kind, paths))
    return _dataset(paths, kinds, [0] * len(paths), [_ALL] * len(paths))


def _kind(path: str) -> str:
    """Returns what TensorFlow calls the compression of a file."""
    try:
        if is_in_store(path):
            opened = files.open_read(path)
        else:
            opened = tf.io.gfile.GFile(path, "rb")
        with opened as file:
            return _GZIP if is_gzip(file) else ""
    except tf.errors.OpError as error:
        raise InputError(f"{path} cannot be read: {error.message}") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error}") from error


def _dataset(
    paths: Sequence[str], kinds: Sequence[str], skip: Sequence[int], take: Sequence[int]
) -> tf.data.Dataset:
    """Returns a dataset of what the readers read."""
    return tf.data.Dataset.from_tensor_slices(
        (
            tf.constant(paths, tf.string),
            tf.constant(kinds, tf.string),
            tf.constant(skip, tf.int64),
            tf.constant(take, tf.int64),
        )
    )


def _reader_for(*paths: str) -> Any:
    return _read_store if any(map(is_in_store, paths)) else _read


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
