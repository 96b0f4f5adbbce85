"""A recorded data set as ``tf.data``, from its ``metadata.json`` alone.

Inflating takes most of the time, so several shards are always read at once: as streams
that read ahead and take turns of a whole shard, which keeps the order on disk, or one
record each by turns, which mixes them. Records are batched first and parsed together.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from beam_pipeline import files
from beam_pipeline.errors import InputError, RecipeError
from beam_pipeline.features import BYTES_LIST, FLOAT_LIST, INT64_LIST, RAW, FeatureSpec
from beam_pipeline.metadata import METADATA, Metadata, ShardEntry, SplitEntry
from beam_pipeline.plan import DEFAULT_SPLIT

READ_AHEAD_BYTES = 256 << 20
SHUFFLE_BYTES = 128 << 20
MIXED_SHARDS = 16
PARSING_THREADS = 4
PARSED_TOGETHER = 16

_NUM_CLASSES = "num_classes"
_TEXT_BYTES = 64
_STAT_THREADS = 32

# tf.io.decode_raw knows no unsigned integers of these widths.
_DECODED_AS = {"uint32": "int32", "uint64": "int64"}


class Scale(NamedTuple):
    """``(x - mean) * factor``; each for the whole feature or for its last axis."""

    mean: np.ndarray
    factor: np.ndarray


class Piece(NamedTuple):
    """Consecutive examples of one shard."""

    shard: ShardEntry
    skip: int
    take: int


def replay(
    records: str,
    *,
    split: str | None = None,
    features: Sequence[str] | None = None,
    as_supervised: tuple[str, str] | None = None,
    batch_size: int | None = None,
    drop_remainder: bool = False,
    shuffle: bool | int = False,
    seed: int = 0,
    repeat: bool | int = False,
    shard: tuple[int, int] | None = None,
    deterministic: bool = True,
    normalize: bool | Sequence[str] = False,
) -> tf.data.Dataset:
    """Reads a recorded data set as ``tf.data``.

    ::

        ds = replay("records/", split="train", batch_size=32, shuffle=True,
                    as_supervised=("log_mel", "target"))

    Elements are dicts of tensors with the dtypes and shapes in the metadata, of known
    cardinality. Where there are classes, every example also has their number, the
    int64 scalar ``num_classes``.

    Parameters
    ----------
    records : str
        The data set's folder, on any file system that TensorFlow reads.
    split : str, optional
        May be left out where there is only one.
    features : sequence of str, optional
        Those to read, beside ``num_classes``. Default: all.
    as_supervised : (str, str), optional
        Elements are tuples of these two features; only they are parsed.
    batch_size : int, optional
        Adds a first axis to every tensor. Default: single examples, which are much
        slower to iterate over in Python.
    drop_remainder : bool
        Leaves out a last batch that is smaller; then the first axis is static too.
    shuffle : bool or int
        Other order in every pass. True: a buffer of 128 MiB of examples, at least a
        batch; an int: a buffer of so many examples. It is filled from up to 16 shards
        by turns, because a shard holds the windows of one clip next to each other.
        False: the order on disk, holding up to 256 MiB that were read ahead.
    seed : int
        Of the shuffled order, together with ``tf.random.set_seed``.
    repeat : bool or int
        True: endless; an int: so many passes, each complete, as if without ``repeat``.
    shard : (int, int), optional
        ``(index, count)`` for one of several trainers: examples ``index * n // count``
        up to ``(index + 1) * n // count`` of the split's ``n``. They share out every
        example, as evenly as possible, however many files there are.
    deterministic : bool
        False: whichever example is ready first. That helps where files are on storage
        of uneven speed; ``shuffle`` is then not repeatable.
    normalize : bool or sequence of str
        True: every floating-point feature of transforms becomes ``(x - mean) / std``
        with the statistics of the split ``train`` (or of the only one), bin by bin
        where there are such; names: only these. What is constant becomes 0. Complex
        and integer features stay as they are; to name one is an error.

    Raises
    ------
    InputError
        If there is no data set, no such split or feature, or a shard is missing or has
        another size than the metadata say. A shard of the right size whose content is
        damaged raises ``tf.errors.DataLossError`` when it is read; TensorFlow does not
        name the file there, but ``audio-tfrecords verify`` does.
    RecipeError
        If another argument has a value that cannot be.
    """
    check_values(batch_size, drop_remainder, shuffle, repeat, shard, normalize)
    folder = files.absolute(os.fspath(records))
    metadata = load_metadata(folder)
    entry = choose_split(metadata, split)
    specs = choose_features(metadata, features, as_supervised)
    scales = choose_scales(metadata, specs, normalize)
    pieces = cut_shards(entry.shards, *(shard or (0, 1)))
    check_files(folder, [piece.shard for piece in pieces])

    total = sum(piece.take for piece in pieces)
    size = example_bytes(metadata.features.values())
    if shuffle:
        room = max(SHUFFLE_BYTES // size, batch_size or 1)
        room = min(room if shuffle is True else shuffle, max(total, 1))
        examples = read_mixed(folder, pieces, deterministic, seed)
        examples = examples.shuffle(room, seed, reshuffle_each_iteration=True)
    elif deterministic:
        examples = read_in_order(folder, pieces, size)
    else:
        examples = read_mixed(folder, pieces, deterministic)
    examples = examples.apply(tf.data.experimental.assert_cardinality(total))

    batches = examples.batch(batch_size or PARSED_TOGETHER, drop_remainder).map(
        make_parser(specs, scales, len(metadata.classes), as_supervised),
        num_parallel_calls=min(_cores(), PARSING_THREADS),
        deterministic=deterministic,
    )
    if batch_size is None:
        batches = batches.unbatch().apply(
            tf.data.experimental.assert_cardinality(total)
        )
    if repeat:
        batches = batches.repeat(None if repeat is True else repeat)
    ahead = 2 if batch_size else 4 * PARSED_TOGETHER
    return batches.prefetch(ahead).with_options(_options(deterministic, shard))


def check_values(
    batch_size: int | None,
    drop_remainder: bool,
    shuffle: bool | int,
    repeat: bool | int,
    shard: tuple[int, int] | None,
    normalize: bool | Sequence[str],
) -> None:
    """Raises :class:`RecipeError` if an argument's value makes no sense."""
    if batch_size is not None and batch_size < 1:
        raise RecipeError("batch_size", "must be at least 1", batch_size)
    if drop_remainder and batch_size is None:
        raise RecipeError("drop_remainder", "needs a batch_size", drop_remainder)
    if shuffle < 0:
        raise RecipeError("shuffle", "must be True, False or a size", shuffle)
    if repeat < 0:
        raise RecipeError("repeat", "must be True, False or a number", repeat)
    if shard is not None and not (len(shard) == 2 and 0 <= shard[0] < shard[1]):
        raise RecipeError("shard", "must be (index, count), 0 <= index < count", shard)
    if not isinstance(normalize, bool | Sequence):
        raise RecipeError("normalize", "must be True, False or names", normalize)


def load_metadata(folder: str) -> Metadata:
    """Reads a data set's metadata through TensorFlow's file systems.

    Raises
    ------
    InputError
        If the folder holds no finished data set.
    """
    path = files.join(folder, METADATA)
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            text = file.read()
    except tf.errors.NotFoundError as error:
        raise InputError(
            f"{folder} holds no finished data set: there is no {METADATA} in it. "
            "If a run was interrupted, give its command again."
        ) from error
    except tf.errors.OpError as error:
        raise InputError(f"{path} cannot be read: {error.message}") from error
    return Metadata.parse(text, path)


def choose_split(metadata: Metadata, split: str | None) -> SplitEntry:
    """The split of this name, or the only one."""
    if split is None and len(metadata.splits) != 1:
        names = ", ".join(metadata.splits)
        raise InputError(f"split: the data set has {names}; name one of them.")
    name = next(iter(metadata.splits)) if split is None else split
    _check_name("split", name, metadata.splits)
    return metadata.splits[name]


def choose_features(
    metadata: Metadata,
    features: Sequence[str] | None,
    as_supervised: tuple[str, str] | None,
) -> dict[str, FeatureSpec]:
    """The specs of the features to parse, in the metadata's order."""
    if as_supervised is not None:
        if features is not None:
            raise InputError("features and as_supervised: give only one of them.")
        if isinstance(as_supervised, str) or len(as_supervised) != 2:
            raise RecipeError("as_supervised", "must be two names", as_supervised)
        features = as_supervised
    if features is None:
        features = list(metadata.features)
    elif isinstance(features, str):
        features = [features]
    for name in features:
        _check_name("feature", name, metadata.features)
    if not features:
        raise RecipeError("features", "must name at least one", features)
    specs = {n: spec for n, spec in metadata.features.items() if n in features}
    for name, spec in specs.items():
        try:
            tf.dtypes.as_dtype(spec.dtype)
        except TypeError as error:
            raise InputError(
                f"feature {name} is of {spec.dtype}, which TensorFlow does not have. "
                "Leave it out of features."
            ) from error
    return specs


def choose_scales(
    metadata: Metadata,
    specs: Mapping[str, FeatureSpec],
    normalize: bool | Sequence[str],
) -> dict[str, Scale]:
    """What to subtract from features, and what to multiply the rest by."""
    if normalize is False:
        return {}
    splits = metadata.splits
    name = DEFAULT_SPLIT if set(splits) == {DEFAULT_SPLIT} else "train"
    if name not in splits:
        raise InputError(
            f"normalize: the data set has no split train, only {', '.join(splits)}."
        )
    if splits[name].examples == 0:
        raise InputError(
            f"normalize: split {name} has no example, so there is no mean of it. Leave "
            "normalize out, or record the data set with examples in it."
        )
    statistics = splits[name].statistics.get("features", {})
    floats = ("float16", "float32", "float64")
    if normalize is True:
        chosen = [n for n in specs if n in statistics and specs[n].dtype in floats]
    else:
        chosen = [normalize] if isinstance(normalize, str) else list(normalize)
    scales = {}
    for feature in chosen:
        _check_name("feature", feature, specs)
        if feature not in statistics or specs[feature].dtype not in floats:
            raise InputError(
                f"normalize: feature {feature} is of {specs[feature].dtype}, which has "
                "no mean to subtract."
            )
        of = statistics[feature].get("bins") or statistics[feature]
        mean, std = (np.array(of[key], np.float64) for key in ("mean", "std"))
        # A constant differs from its mean by no more than rounding.
        constant = std <= 1e-7 * np.abs(mean)
        factor = np.where(constant, 0.0, 1 / np.where(constant, 1.0, std))
        scales[feature] = Scale(mean, factor)
    return scales


def _check_name(kind: str, name: str, known: Iterable[str]) -> None:
    names = list(known)
    if name not in names:
        close = difflib.get_close_matches(name, names, 1)
        hint = f" Did you mean {close[0]!r}?" if close else ""
        raise InputError(f"There is no {kind} {name!r}, only {', '.join(names)}.{hint}")


def cut_shards(shards: Sequence[ShardEntry], index: int, count: int) -> list[Piece]:
    """What the trainer ``index`` of ``count`` reads.

    >>> a, b = ShardEntry("a", 4, 0, ""), ShardEntry("b", 2, 0, "")
    >>> [(p.shard.file, p.skip, p.take) for p in cut_shards([a, b], 1, 2)]
    [('a', 3, 1), ('b', 0, 2)]
    """
    total = sum(shard.examples for shard in shards)
    start, stop = index * total // count, (index + 1) * total // count
    pieces, first = [], 0
    for shard in shards:
        skip = max(start - first, 0)
        take = min(stop - first, shard.examples) - skip
        if take > 0:
            pieces.append(Piece(shard, skip, take))
        first += shard.examples
    return pieces


def check_files(folder: str, shards: Sequence[ShardEntry]) -> None:
    """Raises :class:`InputError` if a shard is missing or of a wrong size."""

    def check(shard: ShardEntry) -> None:
        path = files.join(folder, shard.file)
        try:
            size = tf.io.gfile.stat(path).length
        except tf.errors.OpError as error:
            raise InputError(f"{path} cannot be read: {error.message}") from error
        if size != shard.bytes:
            raise InputError(
                f"{path} has {size} bytes, but {METADATA} says {shard.bytes}: it was "
                f"damaged or replaced. `audio-tfrecords verify {folder}` checks all."
            )

    with ThreadPoolExecutor(_STAT_THREADS) as pool:
        list(pool.map(check, shards))


def example_bytes(specs: Iterable[FeatureSpec]) -> int:
    """Roughly the length of a serialised example."""
    return sum(
        _TEXT_BYTES
        if spec.encoding == BYTES_LIST
        else math.prod(spec.shape) * np.dtype(spec.dtype).itemsize
        for spec in specs
    )


def read_in_order(folder: str, pieces: Sequence[Piece], size: int) -> tf.data.Dataset:
    """Serialised examples as on disk, from several shards at once.

    The shards are dealt out to streams, one a core, which all read ahead and take turns
    of a whole shard. A stream that may not hold a shard until its turn gains little, so
    large shards have fewer streams.
    """
    largest = size * max((piece.take for piece in pieces), default=1)
    streams = min(_cores(), max(READ_AHEAD_BYTES // largest, 2), max(len(pieces), 1))
    held = max(READ_AHEAD_BYTES // streams // size, 1)

    def turn(stream: Any, examples: Any) -> tf.data.Dataset:
        return tf.data.Dataset.from_tensors(stream).repeat(examples)

    takes = np.array([piece.take for piece in pieces], np.int64)
    turns = np.arange(len(pieces), dtype=np.int64) % streams
    return tf.data.Dataset.choose_from_datasets(
        [
            _piece_dataset(folder, pieces[i::streams]).flat_map(_read).prefetch(held)
            for i in range(streams)
        ],
        tf.data.Dataset.from_tensor_slices((turns, takes)).flat_map(turn),
    )


def read_mixed(
    folder: str, pieces: Sequence[Piece], deterministic: bool, seed: int | None = None
) -> tf.data.Dataset:
    """Serialised examples from many shards by turns; with a seed, shards shuffled."""
    dataset = _piece_dataset(folder, pieces)
    if seed is not None:
        dataset = dataset.shuffle(
            max(len(pieces), 1), seed, reshuffle_each_iteration=True
        )
    mixed = min(MIXED_SHARDS, max(len(pieces), 1))
    return dataset.interleave(
        _read,
        cycle_length=mixed,
        num_parallel_calls=min(_cores(), mixed),
        deterministic=deterministic,
    )


def _piece_dataset(folder: str, pieces: Sequence[Piece]) -> tf.data.Dataset:
    paths = [files.join(folder, piece.shard.file) for piece in pieces]
    return tf.data.Dataset.from_tensor_slices(
        (
            tf.constant(paths, tf.string),
            tf.constant([piece.skip for piece in pieces], tf.int64),
            tf.constant([piece.take for piece in pieces], tf.int64),
        )
    )


def _read(path: Any, skip: Any, take: Any) -> tf.data.Dataset:
    return tf.data.TFRecordDataset(path, "GZIP").skip(skip).take(take)


def make_parser(
    specs: Mapping[str, FeatureSpec],
    scales: Mapping[str, Scale],
    num_classes: int,
    as_supervised: tuple[str, str] | None,
) -> Callable[[Any], Any]:
    """A function from a batch of serialised examples to their tensors."""
    stored = {
        name: tf.io.FixedLenFeature(
            () if spec.encoding == RAW else spec.shape, _STORED_AS[spec.encoding]
        )
        for name, spec in specs.items()
    }

    def parse(serialised: Any) -> Any:
        values = tf.io.parse_example(serialised, stored)
        example = {name: _restore(spec, values[name]) for name, spec in specs.items()}
        for name, (mean, factor) in scales.items():
            dtype = specs[name].dtype
            example[name] = (example[name] - mean.astype(dtype)) * factor.astype(dtype)
        if as_supervised is not None:
            return tuple(example[name] for name in as_supervised)
        if num_classes and _NUM_CLASSES not in specs:
            number = tf.constant(num_classes, tf.int64)
            example[_NUM_CLASSES] = tf.fill(tf.shape(serialised), number)
        return example

    return parse


_STORED_AS = {
    FLOAT_LIST: tf.float32,
    INT64_LIST: tf.int64,
    BYTES_LIST: tf.string,
    RAW: tf.string,
}


def _restore(spec: FeatureSpec, stored: Any) -> Any:
    """A batch of one feature as it was before it was stored."""
    if spec.encoding != RAW:
        return tf.cast(stored, spec.dtype)
    decoded_as = _DECODED_AS.get(spec.dtype, spec.dtype)
    values = tf.io.decode_raw(stored, decoded_as)
    if decoded_as != spec.dtype:
        values = tf.bitcast(values, spec.dtype)
    return tf.reshape(values, tf.concat([tf.shape(stored), spec.shape], 0))


def _options(deterministic: bool, shard: tuple[int, int] | None) -> tf.data.Options:
    options = tf.data.Options()
    options.deterministic = deterministic
    # Autotuning finds no better numbers than those above, and where an epoch ends its
    # thread is often waited for, which can take as long as half the epoch did.
    options.autotune.enabled = False
    # Streams that are not first in turn start at once, too.
    options.experimental_warm_start = True
    # A strategy of tf.distribute must not share out files: they are few and uneven,
    # and share out nothing where the caller did.
    policy = tf.data.experimental.AutoShardPolicy
    options.experimental_distribute.auto_shard_policy = (
        policy.DATA if shard is None else policy.OFF
    )
    return options


def _cores() -> int:
    """The cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
