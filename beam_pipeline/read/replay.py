"""A recorded data set as ``tf.data``, from its ``metadata.json`` alone.

Inflating takes most of the time, so several shards are always read at once. To keep the
order on disk, streams read ahead and take turns of a whole shard; to mix shards, they
take turns of one record. Records are batched first and then parsed together.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import tensorflow as tf

from beam_pipeline.dataset.metadata import Metadata, ShardEntry, SplitEntry
from beam_pipeline.dataset.output_folder import METADATA
from beam_pipeline.errors import InputError, OptionError, did_you_mean
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.read.parse_examples import (
    PARSED_TOGETHER,
    PARSING_THREADS,
    Scale,
    make_parser,
)
from beam_pipeline.read.shard_streams import (
    SHUFFLE_BYTES,
    cut_shards,
    example_bytes,
    read_in_order,
    read_mixed,
    usable_cores,
)
from beam_pipeline.storage import files

_STAT_THREADS = 32


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

    Elements are dicts of tensors with the dtypes and shapes in the metadata. If the
    data set has classes, each element also has their number, the int64 scalar
    ``num_classes``.

    Parameters
    ----------
    records : str
        The data set's folder, on any file system that TensorFlow reads.
    split : str, optional
        Required if the data set has several.
    features : sequence of str, optional
        The features to read, besides ``num_classes``. Default: all.
    as_supervised : (str, str), optional
        Two features: elements are tuples of them, and only they are parsed. Not
        together with ``features``.
    batch_size : int, optional
        Adds a first axis to every tensor. Default: single examples, which are much
        slower to iterate over in Python.
    drop_remainder : bool
        Leaves out a last batch that is smaller; the first axis is then static. Needs
        ``batch_size``.
    shuffle : bool or int
        Shuffles in another order in every pass. True: with a buffer of 128 MiB of
        examples, at least a batch. An int: with a buffer of this many examples. The
        buffer is filled from up to 16 shards by turns, because a shard holds the
        windows of one clip next to each other. False: the order on disk; up to 256 MiB
        are read ahead.
    seed : int
        Seed of the shuffled order, together with ``tf.random.set_seed``.
    repeat : bool or int
        True: endless. An int: this many passes, each of them complete.
    shard : (int, int), optional
        ``(index, count)``, for one of several trainers: the examples from
        ``index * n // count`` up to ``(index + 1) * n // count`` of the split's ``n``.
        Each example goes to one trainer, whatever the number of files.
    deterministic : bool
        False: in the order in which examples are ready. This helps with storage of
        uneven speed; ``shuffle`` is then not repeatable.
    normalize : bool or sequence of str
        True: every floating-point feature of transforms becomes ``(x - mean) / std``,
        with the statistics of the split ``train``, or of the only split; bin by bin if
        the metadata have bins. Names: only these features. Constant values become 0.
        Complex and integer features stay as they are; naming one raises an error.

    Returns
    -------
    tf.data.Dataset
        Of known cardinality.

    Raises
    ------
    InputError
        If there is no data set, no split or feature of this name, or a shard is missing
        or has another size than in the metadata. A shard of the right size with damaged
        content raises ``tf.errors.DataLossError`` when it is read; TensorFlow does not
        name the file there, but ``audio-tfrecords verify`` does.
    OptionError
        If another argument has a wrong value.
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
        num_parallel_calls=min(usable_cores(), PARSING_THREADS),
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
    """Raises :class:`OptionError` if an argument has a wrong value."""
    if batch_size is not None and batch_size < 1:
        raise OptionError("batch_size", "must be at least 1", batch_size)
    if drop_remainder and batch_size is None:
        raise OptionError("drop_remainder", "needs `batch_size`", drop_remainder)
    if shuffle < 0:
        raise OptionError("shuffle", "must be True, False or a buffer size", shuffle)
    if repeat < 0:
        raise OptionError("repeat", "must be True, False or a number of passes", repeat)
    if shard is not None and not (len(shard) == 2 and 0 <= shard[0] < shard[1]):
        raise OptionError(
            "shard", "must be (index, count) with 0 <= index < count", shard
        )
    if not isinstance(normalize, bool | Sequence):
        raise OptionError(
            "normalize", "must be True, False or names of features", normalize
        )


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
            f"{folder} holds no finished data set: it has no {METADATA}. "
            "If a run was interrupted, give its command again."
        ) from error
    except tf.errors.OpError as error:
        raise InputError(f"{path} cannot be read: {error.message}") from error
    return Metadata.parse(text, path)


def choose_split(metadata: Metadata, split: str | None) -> SplitEntry:
    """Returns the split of this name; without a name, the only split."""
    if split is None and len(metadata.splits) != 1:
        names = ", ".join(metadata.splits)
        raise InputError(
            f"The data set has the splits {names}. Choose one with `split`."
        )
    name = next(iter(metadata.splits)) if split is None else split
    _check_name("split", name, metadata.splits)
    return metadata.splits[name]


def choose_features(
    metadata: Metadata,
    features: Sequence[str] | None,
    as_supervised: tuple[str, str] | None,
) -> dict[str, FeatureSpec]:
    """Returns the specs of the features to parse, in the metadata's order."""
    if as_supervised is not None:
        if features is not None:
            raise InputError("Give either `features` or `as_supervised`, not both.")
        if (
            isinstance(as_supervised, str)
            or not isinstance(as_supervised, Sequence)
            or len(as_supervised) != 2
        ):
            raise OptionError(
                "as_supervised",
                "must name two features, for example ('log_mel', 'target'); the "
                "features are " + ", ".join(metadata.features),
                as_supervised,
            )
        features = as_supervised
    if features is None:
        features = list(metadata.features)
    elif isinstance(features, str):
        features = [features]
    for name in features:
        _check_name("feature", name, metadata.features)
    if not features:
        raise OptionError("features", "must name at least one", features)
    specs = {n: spec for n, spec in metadata.features.items() if n in features}
    for name, spec in specs.items():
        try:
            tf.dtypes.as_dtype(spec.dtype)
        except TypeError as error:
            raise InputError(
                f"Feature {name} has the dtype {spec.dtype}, but TensorFlow does not "
                "have this dtype. Leave the feature out of `features`."
            ) from error
    return specs


def choose_scales(
    metadata: Metadata,
    specs: Mapping[str, FeatureSpec],
    normalize: bool | Sequence[str],
) -> dict[str, Scale]:
    """Returns for each feature to normalise what to subtract, and the factor after."""
    if normalize is False:
        return {}
    splits = metadata.splits
    name = DEFAULT_SPLIT if set(splits) == {DEFAULT_SPLIT} else "train"
    if name not in splits:
        raise InputError(
            "normalize: the data set has no split named train. Its splits are "
            f"{', '.join(splits)}."
        )
    if splits[name].examples == 0:
        raise InputError(
            f"normalize: split {name} has no examples, so it has no mean. Leave out "
            "`normalize`, or record a data set with examples in this split."
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
                f"normalize: feature {feature} has the dtype {specs[feature].dtype}; "
                "only floating-point features of transforms can be normalised."
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
        close = did_you_mean(name, names)
        hint = f" Did you mean {close!r}?" if close else ""
        raise InputError(f"There is no {kind} {name!r}, only {', '.join(names)}.{hint}")


def check_files(folder: str, shards: Sequence[ShardEntry]) -> None:
    """Raises :class:`InputError` if a shard is missing or has a wrong size."""

    def check(shard: ShardEntry) -> None:
        path = files.join(folder, shard.file)
        try:
            size = tf.io.gfile.stat(path).length
        except tf.errors.OpError as error:
            raise InputError(f"{path} cannot be read: {error.message}") from error
        if size != shard.bytes:
            raise InputError(
                f"{path} has {size} bytes, but {METADATA} says {shard.bytes}. The "
                "shard was damaged or replaced. To check every shard, run "
                f"`audio-tfrecords verify {folder}`."
            )

    with ThreadPoolExecutor(_STAT_THREADS) as pool:
        list(pool.map(check, shards))


def _options(deterministic: bool, shard: tuple[int, int] | None) -> tf.data.Options:
    options = tf.data.Options()
    options.deterministic = deterministic
    # Autotuning finds no better numbers than these constants, and the end of an epoch
    # often waits for its thread, for up to half the time of the epoch.
    options.autotune.enabled = False
    # Streams start to read before their first turn.
    options.experimental_warm_start = True
    # A strategy of tf.distribute must not shard by files, which are few and uneven. If
    # the caller gave `shard`, it must not shard at all.
    policy = tf.data.experimental.AutoShardPolicy
    options.experimental_distribute.auto_shard_policy = (
        policy.DATA if shard is None else policy.OFF
    )
    return options
