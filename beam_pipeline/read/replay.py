"""Recorded data sets as ``tf.data``, from their ``metadata.json`` alone.

::

    files of shards -> serialised examples -> components -> elements, or batches
                       read_examples          make_parser   parse_dataset

Inflating takes most of the time, so several shards are always read at once. To keep the
order on disk, streams read ahead and take turns of a whole shard; to mix shards, they
take turns of one record. TensorFlow reads local files. This package reads those of
stores and other file systems, with the credentials and retries of ``record``. Where all
examples have the same shapes, a batch of them is parsed at once; others are parsed one
by one.

Folders that ``record_dataset`` of the library tf_dataset wrote are read, too::

    TF_RECORD_FEATURES_SPEC.json    an entry for each stored feature
    batched                         the batch size, if the data set had batches
    x8a2k1.tfrecord, ...            uncompressed; the names are random

Each feature of their examples is one ``bytes`` value: a serialised TensorProto, which
:mod:`beam_pipeline.storage.protobuf` decodes. A complex feature ``k`` is stored as two,
``k_real`` and ``k_imag``. Unlike the library's own reader, this one reads files in
sorted order, shuffles, rejoins every complex feature, keeps the dtype of each, reads
all digits of the batch size, and keeps the last batch if it is smaller.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import tensorflow as tf

from beam_pipeline.arrays import BYTES, numpy_dtype
from beam_pipeline.dataset.folders import METADATA
from beam_pipeline.dataset.metadata import Metadata, ShardEntry, check_files
from beam_pipeline.dataset.side_by_side import Folders, open_data_sets
from beam_pipeline.encodings import BYTES_LIST, INT8, JPEG, LISTS, PNG, TENSOR
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.examples.spec import (
    FeatureSpec,
    Leaf,
    Structure,
    component_names,
    dense_shape,
    describe_features,
    indices,
    leaves,
    needed_features,
    rebuild,
    row_splits,
)
from beam_pipeline.parameters import check_flag, check_whole
from beam_pipeline.process import usable_cores
from beam_pipeline.read import choices
from beam_pipeline.storage import files
from beam_pipeline.storage.files import PathLike
from beam_pipeline.storage.protobuf import DTYPES
from beam_pipeline.storage.tfrecord import is_compressed, is_gzip, read_any_records
from beam_pipeline.text import parse_json, typed

NUM_CLASSES = "num_classes"

PARSING_THREADS = 4
PARSED_TOGETHER = 16
MIXED_SHARDS = 16
# The parallel interleave also starts on files whose turn is not near.
STARTED_PER_STREAM = 3
# An example in a buffer takes at least so many bytes.
LEAST_BYTES = 64
# Records that cross from Python to TensorFlow together.
_STORE_BLOCK = 64
_OPENING_THREADS = 32
_ALL = -1  # what `take` calls all of a dataset

_TO_THE_END = 2**31 - 1
# tf.io.decode_raw does not support unsigned integers of these widths.
_DECODED_AS = {"uint32": "int32", "uint64": "int64"}

# What tf_dataset's folder has.
SPEC_FILE = "TF_RECORD_FEATURES_SPEC.json"
BATCHED_FILE = "batched"
SUFFIX = ".tfrecord"
_PARTS = {"complex64": "float32", "complex128": "float64"}
REAL, IMAG = "_real", "_imag"


def replay(
    records: Folders,
    split: choices.Split | None = None,
    *,
    features: Sequence[str] | None = None,
    as_supervised: Sequence[str] | None = None,
    batch_size: int | None = None,
    drop_remainder: bool = False,
    shuffle: bool | int = False,
    seed: int = 0,
    repeat: bool | int = False,
    shard: tuple[int, int] | None = None,
    deterministic: bool = True,
    normalize: bool | Sequence[str] = False,
    statistics: choices.Split | PathLike | None = None,
    encoded: Sequence[str] = (),
    missing: Mapping[str, Any] | None = None,
) -> tf.data.Dataset:
    """Reads a recorded data set as ``tf.data``.

    ::

        ds = replay("records/", split="train", batch_size=32, shuffle=True,
                    as_supervised=("log_mel", "target"))

    Elements are dicts of tensors with the dtypes and shapes in the metadata. If the
    data set has classes, each element also has their number, the int64 scalar
    ``num_classes``. A data set of :func:`record_dataset` gives the elements that it was
    recorded from, in their structure and batches.

    Parameters
    ----------
    records : path or sequence of paths
        The data set's folder: local, in ``s3://`` or ``gs://``, or on another file
        system of Beam. Several data sets that belong together are read as
        one: in each split, one after the other.
    split : str or list of str, optional
        Required if the data set has several. ``"fold0+fold2"`` or ``["fold0",
        "fold2"]`` are several, one after the other; ``"!fold1"`` are all others.
    features : sequence of str, optional
        The features to read, besides ``num_classes``. Default: all.
    as_supervised : sequence of str, optional
        Two features or more: elements are tuples of them, and only they are parsed. Not
        together with ``features``.
    batch_size : int, optional
        Adds a first axis to every tensor; tensors of different shapes become ragged.
        Default: single examples, which are much slower to iterate over in Python.
    drop_remainder : bool
        Leaves out a last batch that is smaller; the first axis is then static. Needs
        ``batch_size``.
    shuffle : bool or int
        Shuffles in another order in every pass. True: with a buffer of 128 MiB of
        examples, at least a batch. An int: with a buffer of this many examples. The
        buffer is filled from up to 16 shards by turns, because a shard holds the
        windows of one clip next to each other. False: the order on disk; up to 256 MiB
        are read ahead. For a uniformly random order, or to continue in the middle of an
        epoch, use ``open_records(...).batches(..., shuffle="global").to_tf()``.
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
        with the ``statistics`` of these splits; bin by bin if the metadata have bins.
        Names: only these features. Constant values become 0. Complex and integer
        features stay as they are; naming one raises an error.
    statistics : str, list of str or path, optional
        The splits whose mean and standard deviation ``normalize`` uses: merged if
        there are several. Default: ``train``; of folds, and without splits, those
        of ``split``. So ``split="fold1", statistics="!fold1"`` is for evaluation. A
        folder is another data set, whose training split counts.
    encoded : sequence of str
        Features that stay as they are stored, for example the bytes of a JPEG.
    missing : mapping, optional
        The value of a single number or text in the examples that lack it. Without it,
        such a feature is a list of one value, or of none.

    Returns
    -------
    tf.data.Dataset
        Of known cardinality. Its attribute ``class_names`` lists the classes, as in
        Keras; datasets that are made from it with ``map`` and the like have none.

    Raises
    ------
    InputError
        If there is no data set, no split or feature of this name; or if a shard is
        missing or has another size than in the metadata. A shard of the
        right size with damaged content raises ``tf.errors.DataLossError`` when it is
        read; TensorFlow does not name the file there, but ``audio-tfrecords verify``
        does.
    OptionError
        If another argument has a wrong value.
    """
    read, scales = None, dict[str, choices.Scale]()
    if is_original(records):
        for name, value in (
            ("split", split), ("shard", shard), ("normalize", normalize),
            ("statistics", statistics), ("encoded", encoded), ("missing", missing),
        ):  # fmt: skip
            if value:
                raise OptionError(
                    name,
                    "does not apply to a folder that tf_dataset wrote; record it anew "
                    "with `record_dataset` first",
                    value,
                )
        folder = files.given_path("records", records)
        metadata, parts, read, size = open_original(folder)
        batch_size = batch_size or size
        parsing = choose_parsing(metadata, features, as_supervised)
    else:
        data = open_data_sets(records)
        folder, metadata = data.folders[0], data.metadata
        splits = choices.choose_splits(metadata, split)
        parsing = choose_parsing(metadata, features, as_supervised, encoded, missing)
        scaled_by = choices.choose_statistics(metadata, splits, statistics)
        scales = choices.choose_scales(parsing.specs, normalize, scaled_by)
        share = (0, 1) if shard is None else choices.check_share("shard", shard)
        parts = _parts_of(folder, choices.shards_of(metadata, splits), *share)
    if batch_size is not None:
        check_whole("batch_size", batch_size)
    if check_flag("drop_remainder", drop_remainder) and batch_size is None:
        raise OptionError("drop_remainder", "needs `batch_size`", drop_remainder)
    if not isinstance(repeat, bool):
        check_whole("repeat", repeat)
    examples = read_examples(
        parts,
        choices.memory_bytes(metadata, metadata.features.values()),
        shuffle=shuffle,
        seed=seed,
        deterministic=deterministic,
        least=batch_size or 1,
    )
    batches = parse_dataset(
        examples,
        parsing,
        make_parser(parsing, scales, read),
        batch_size=batch_size,
        drop_remainder=drop_remainder,
        deterministic=deterministic,
    )
    if repeat:
        batches = batches.repeat(None if repeat is True else repeat)
    ahead = 2 if batch_size else 4 * PARSED_TOGETHER
    dataset = batches.prefetch(ahead).with_options(_options(deterministic, shard))
    dataset.class_names = list(metadata.classes)
    return dataset


def replay_dataset(
    record_dir: str | os.PathLike[str] = ".",
    shuffle: bool | int = False,
    **options: Any,
) -> tf.data.Dataset:
    """Reads a data set of :func:`record_dataset`; :func:`replay` under another name.

    It also reads a folder that ``record_dataset`` of the package ``tf_dataset`` wrote,
    with ``TF_RECORD_FEATURES_SPEC.json``.

    Parameters
    ----------
    record_dir : path
    shuffle : bool or int
        See :func:`replay`.
    **options
        The other keywords of :func:`replay`.
    """
    return replay(record_dir, shuffle=shuffle, **options)


def _parts_of(
    folder: str, shards: Sequence[ShardEntry], index: int, count: int
) -> list[FilePart]:
    """Returns what the trainer ``index`` of ``count`` reads; checks these files."""
    total = sum(shard.examples for shard in shards)
    start, stop = index * total // count, (index + 1) * total // count
    parts, read, first = list[FilePart](), list[ShardEntry](), 0
    for shard in shards:
        skip = max(start - first, 0)
        take = min(stop - first, shard.examples) - skip
        first += shard.examples
        if take > 0:
            path = files.join(folder, shard.file)
            parts.append(FilePart(path, is_compressed(path), skip, take))
            read.append(shard)
    check_files(folder, read)
    return parts


# Folders of tf_dataset


def is_original(records: Folders) -> TypeGuard[PathLike]:
    """Whether a folder is one that only tf_dataset describes."""
    if not isinstance(records, str | os.PathLike):
        return False
    folder = files.absolute(os.fspath(records))
    has = [files.exists(files.join(folder, name)) for name in (SPEC_FILE, METADATA)]
    return has == [True, False]


def open_original(folder: str) -> tuple[Metadata, list[FilePart], Any, int | None]:
    """Returns what tf_dataset's folder holds.

    Returns
    -------
    metadata : Metadata
        With the features of its elements.
    parts : list of FilePart
        Its files, sorted by name as text. tf_dataset read them in the order in which
        the file system lists them, which differs between machines; the random names
        hold no other.
    read : callable
        From a serialised example to its features by name.
    batch_size : int or None
        Of the batches that were recorded; None for single elements. tf_dataset read
        only its first digit.

    Raises
    ------
    InputError
        If a file of it is missing or damaged.
    """
    features, stored = original_specs(folder)
    parse = make_component_parser(Parsing(stored))

    def read(serialised: Any) -> dict[str, Any]:
        found = parse(serialised)
        for name in features.keys() - stored.keys():
            found[name] = tf.complex(found[name + REAL], found[name + IMAG])
        return found

    names = [n for n in files.list_files(folder) if n.endswith(SUFFIX) and "/" not in n]
    if not names:
        raise InputError(
            f"{folder} has the file {SPEC_FILE}, but no file with the suffix {SUFFIX}. "
            "Give the folder that holds both."
        )
    parts = [FilePart(files.join(folder, n), is_compressed=False) for n in names]
    path, size = files.join(folder, BATCHED_FILE), None
    if files.exists(path):
        try:
            size = check_whole("the batch size", int(files.read_bytes(path)))
        except ValueError as error:
            raise InputError(
                f"{path}: {error}. Write the batch size into it, or delete the file to "
                "read single elements."
            ) from error
    return Metadata(None, features, (), {}), parts, read, size


@dataclass(frozen=True)
class _Entry:
    """What the file says: the dtypes in memory and in the records, and the shape."""

    previous_dtype: str
    dtype: str
    shape: tuple[int | None, ...]


def original_specs(
    folder: str,
) -> tuple[dict[str, FeatureSpec], dict[str, FeatureSpec]]:
    """Returns the features of a folder's elements, and those of its records, by name.

    In the records, each is a serialised tensor. A complex feature ``k`` is not among
    them if ``k_real`` and ``k_imag`` store it. The dtype in memory counts: tf_dataset
    lists int32 as int64, but stores the tensor as it was.

    Raises
    ------
    InputError
        If ``TF_RECORD_FEATURES_SPEC.json`` is missing or damaged.
    """
    path = files.join(folder, SPEC_FILE)
    features, stored = dict[str, FeatureSpec](), dict[str, FeatureSpec]()
    try:
        values = parse_json(files.read_bytes(path))
        entries = typed(Mapping[str, _Entry], values, "entries")
        if not entries:
            raise ValueError("it must have an entry for each feature")
        for name, entry in entries.items():
            dtype = entry.previous_dtype.removeprefix("tf.")
            if dtype not in DTYPES:
                raise ValueError(f"entry {name!r}: {dtype!r} is no dtype")
            base, stored_dtype = name, dtype
            if dtype in _PARTS and entry.dtype != entry.previous_dtype:
                stored_dtype = _PARTS[dtype]
                base = name.removesuffix(REAL).removesuffix(IMAG)
                parts = base + REAL, base + IMAG
                if entries.get(parts[0]) != entries.get(parts[1]) or base in entries:
                    raise ValueError(
                        f"entry {name!r}: a complex feature has two equal entries, "
                        f"{parts[0]!r} and {parts[1]!r}, and no other"
                    )
            features[base] = FeatureSpec(base, dtype, entry.shape, TENSOR)
            stored[name] = FeatureSpec(name, stored_dtype, entry.shape, TENSOR)
    except (FileNotFoundError, ValueError) as error:
        raise InputError(
            f"{path} is not the description of a data set of tf_dataset: {error}. "
            "Restore the file."
        ) from error
    return features, stored


# Parsing: from serialised examples to elements


@dataclass(frozen=True)
class Parsing:
    """What becomes of a serialised example.

    Attributes
    ----------
    specs : mapping
        The features to parse, in the metadata's order.
    structure : Structure or None
        The structure of the result; None: a dict or a tuple of ``names``.
    names : tuple of str
        The features of the result, if it has no structure.
    is_tuple : bool
    missing : mapping
        The values of features in the examples that lack them.
    num_classes : int
        Added to a dict, if it is not 0.
    composites : tuple of Leaf
        The components that several features store together.
    """

    specs: Mapping[str, FeatureSpec]
    structure: Structure | None = None
    names: tuple[str, ...] = ()
    is_tuple: bool = False
    missing: Mapping[str, Any] = field(default_factory=dict)
    num_classes: int = 0
    composites: tuple[Leaf, ...] = ()

    @property
    def is_fixed(self) -> bool:
        """Whether all examples have the same shapes, so that batches parse at once."""
        return not self.composites and all(
            spec.is_fixed and not spec.codec.holds_shape for spec in self.specs.values()
        )


def choose_parsing(
    metadata: Metadata,
    features: Sequence[str] | None,
    as_supervised: Sequence[str] | None,
    encoded: Sequence[str] = (),
    missing: Mapping[str, Any] | None = None,
) -> Parsing:
    """Returns how examples are parsed, from the arguments of ``replay``."""
    structure, names = metadata.structure, metadata.components
    if as_supervised is not None:
        if not isinstance(as_supervised, list | tuple) or len(as_supervised) < 2:
            need = f"must name two features or more, of {', '.join(names)}"
            raise OptionError("as_supervised", need, as_supervised)
        if features is not None:
            raise InputError("Give either `features` or `as_supervised`, not both.")
    encoded = choices.names_in("encoded", encoded) if encoded else ()
    missing = missing or {}
    if not isinstance(missing, Mapping):
        raise OptionError("missing", "must be a mapping of names to values", missing)
    for name in [*encoded, *missing]:
        choices.check_name("feature", name, names)
    is_tuple = as_supervised is not None
    chosen = choices.choose_features(metadata, as_supervised if is_tuple else features)
    specs = needed_features(chosen, metadata.features, structure)
    specs |= {name: _as_bytes(specs[name]) for name in encoded if name in specs}
    ordered = chosen if is_tuple else [name for name in names if name in chosen]
    return Parsing(
        specs,
        structure if features is None and not is_tuple else None,
        tuple(ordered),
        is_tuple,
        {n: _held(specs[n], value) for n, value in missing.items() if n in specs},
        len(metadata.classes),
        tuple(
            leaf
            for leaf in ([] if structure is None else leaves(structure))
            if leaf.kind in ("ragged", "sparse") and leaf.feature in specs
        ),
    )


def _held(spec: FeatureSpec, value: Any) -> Any:
    """Returns what stands for a missing value; refuses what its dtype cannot hold."""
    if spec.is_text and isinstance(value, str | bytes):
        return value
    with suppress(TypeError, ValueError, OverflowError), np.errstate(all="ignore"):
        held = np.asarray(value).astype(numpy_dtype(spec.dtype))
        is_whole = held.dtype.kind in "biu"
        if held == value if is_whole else np.isinf(held) == np.isinf(value):
            return held.item()
    need = f"must be {spec.dtype} for the feature {spec.name}"
    raise OptionError("missing", need, value)


def _as_bytes(spec: FeatureSpec) -> FeatureSpec:
    """Returns the spec of a feature that stays as it is stored."""
    if spec.encoding in LISTS:
        return spec
    shape = (None,) if spec.sequence else ()
    return replace(spec, dtype=BYTES, shape=shape, encoding=BYTES_LIST, shape_in=None)


def make_parser(
    parsing: Parsing,
    scales: Mapping[str, choices.Scale],
    read: Callable[..., Any] | None = None,
) -> Callable[[Any], Any]:
    """Returns a function from serialised examples to elements.

    It takes a batch of them if ``parsing.is_fixed``, otherwise a single one. ``read``
    gives the components of a record of another writer by name.

    Raises
    ------
    InputError
        If TensorFlow does not have the dtype of a feature.
    """
    read = read or make_component_parser(parsing)

    def parse(serialised: Any) -> Any:
        example = choices.normalise(read(serialised), scales)
        if parsing.structure is not None:
            return rebuild(
                parsing.structure,
                lambda leaf: None if leaf.kind == "none" else example[leaf.feature],
            )
        if parsing.is_tuple:
            return tuple(example[name] for name in parsing.names)
        example = {name: example[name] for name in parsing.names}
        if parsing.num_classes and NUM_CLASSES not in example:
            number = tf.constant(parsing.num_classes, tf.int64)
            example[NUM_CLASSES] = tf.fill(tf.shape(serialised), number)
        return example

    return parse


def make_tuple_parser(specs: Sequence[FeatureSpec]) -> Callable[[Any], tuple[Any, ...]]:
    """Returns a function from one serialised example to a tuple of tensors.

    The tensors are in the order of the specs. Shapes of arrays are not among them. What
    is optional reads as 0, or empty, in examples that lack it.
    """
    by_name = {spec.name: spec for spec in specs}
    names = tuple(component_names(by_name, None))
    scalars = [spec for spec in specs if spec.optional and spec.shape == ()]
    missing = {spec.name: b"" if spec.is_text else 0 for spec in scalars}
    parsing = Parsing(by_name, names=names, is_tuple=True, missing=missing)
    return make_parser(parsing, {})


def parse_dataset(
    examples: tf.data.Dataset,
    parsing: Parsing,
    parse: Callable[[Any], Any],
    *,
    batch_size: int | None,
    drop_remainder: bool,
    deterministic: bool,
) -> tf.data.Dataset:
    """Returns the elements, or batches of them, of serialised examples."""
    threads = min(usable_cores(), PARSING_THREADS)
    if parsing.is_fixed:
        batches = examples.batch(batch_size or PARSED_TOGETHER, drop_remainder)
        batches = batches.map(parse, threads, deterministic)
        if batch_size is not None:
            return batches
        total = examples.cardinality()  # which unbatch forgets
        elements = batches.unbatch()
        is_known = total != tf.data.UNKNOWN_CARDINALITY
        known = tf.data.experimental.assert_cardinality(total)
        return elements.apply(known) if is_known else elements
    elements = examples.map(parse, threads, deterministic)
    if batch_size is None:
        return elements
    return elements.ragged_batch(batch_size, drop_remainder)


def make_component_parser(parsing: Parsing) -> Callable[[Any], dict[str, Any]]:
    """Returns a function from a serialised example to its components by name.

    It takes any number of examples at once if ``parsing.is_fixed``.
    """
    specs, missing, composites = parsing.specs, parsing.missing, parsing.composites
    stored, steps = describe_features(specs, missing)
    # Shapes first: the arrays need them.
    shapes = {spec.shape_in for spec in specs.values()}
    ordered = sorted(specs, key=lambda name: name not in shapes)

    def parse(serialised: Any) -> dict[str, Any]:
        if steps:
            found, lists = tf.io.parse_single_sequence_example(
                serialised, stored, steps
            )
            found = {**found, **lists}
        else:
            found = tf.io.parse_example(serialised, stored)
        values: dict[str, Any] = {}
        for name in ordered:
            shape = values.get(specs[name].shape_in or "")
            values[name] = _restore(specs[name], found[name], shape, name in missing)
        return values | {leaf.feature: _composite(leaf, values) for leaf in composites}

    return parse


def _restore(spec: FeatureSpec, stored: Any, shape: Any, has_default: bool) -> Any:
    """Returns the value of one feature: of an example, or of several if it is fixed."""
    if spec.codec.holds_shape:
        return _decode(spec, stored)
    values = stored.values if isinstance(stored, tf.SparseTensor) else stored
    if spec.encoding in LISTS:
        values = tf.cast(values, spec.tensor_dtype)
    else:
        values = _decode_bytes(spec, values)
        if spec.is_fixed:
            return tf.reshape(values, tf.concat([tf.shape(stored), spec.sizes], 0))
    if spec.is_fixed:
        return values
    if spec.optional and spec.shape == ():
        return tf.reshape(values, () if has_default else (-1,))
    if shape is None:
        sizes = (None,) if spec.shape is None else spec.shape
        if spec.optional or spec.sequence:
            sizes = (None, *sizes[1:])
        shape = [-1 if size is None else size for size in sizes]
        values = tf.reshape(values, shape)
        return tf.ensure_shape(values, sizes)
    if not spec.optional:
        return tf.ensure_shape(tf.reshape(values, shape), spec.shape)
    # In an example that lacks it, the array has no values and no shape.
    rank = None if spec.shape is None else len(spec.shape)
    lacks = (tf.size(values) == 0) & (tf.size(shape) == 0)
    none = tf.constant([0] if rank is None else [0, *spec.sizes[1:]], shape.dtype)
    shape = tf.cond(lacks, lambda: none, lambda: shape)
    values = tf.reshape(values, shape)
    return values if rank is None else tf.ensure_shape(values, [None] * rank)


def _decode_bytes(spec: FeatureSpec, values: Any) -> Any:
    """Returns the bytes of arrays as numbers, with an axis for them at the end."""
    if spec.encoding == INT8:
        scale = tf.io.decode_raw(tf.strings.substr(values, 0, 4), tf.float32)
        levels = tf.io.decode_raw(tf.strings.substr(values, 4, _TO_THE_END), tf.int8)
        return tf.cast(levels, tf.float32) * scale
    dtype = spec.stored_dtype
    numbers = tf.io.decode_raw(values, _DECODED_AS.get(dtype, dtype))
    if dtype in _DECODED_AS:
        numbers = tf.bitcast(numbers, dtype)
    return tf.cast(numbers, spec.dtype)


def _decode(spec: FeatureSpec, stored: Any) -> Any:
    """Returns the array of a feature that is stored as one text of bytes."""
    dtype, shape = tf.as_dtype(spec.tensor_dtype), spec.entry_shape

    def decode(value: Any) -> Any:
        if spec.encoding == TENSOR:
            return tf.io.parse_tensor(value, dtype)
        if spec.encoding not in (PNG, JPEG):  # TensorFlow has no operation for it
            read = partial(spec.codec.decode, dtype=spec.dtype, shape=shape)
            return tf.numpy_function(read, [value], dtype, stateful=False)
        rank = None if shape is None else len(shape)
        grey = rank == 2
        channels = 1 if grey else (spec.sizes[-1] if rank == 3 else 0)
        if spec.encoding == PNG:
            image = tf.io.decode_png(value, channels, dtype)
        else:
            # The same values as of other decoders, for a few microseconds more.
            image = tf.io.decode_jpeg(value, channels, dct_method="INTEGER_ACCURATE")
        return image[:, :, 0] if grey else image

    if isinstance(stored, tf.SparseTensor):
        empty = tf.zeros([0] * len(spec.shape or (0,)), dtype)
        values = stored.values
        found = tf.cond(tf.size(values) > 0, lambda: decode(values[0]), lambda: empty)
        return tf.ensure_shape(found, [None] * len(spec.shape) if spec.shape else None)
    if spec.sequence:
        decoded = tf.map_fn(decode, stored, fn_output_signature=dtype)
    else:
        decoded = decode(stored)
    return tf.ensure_shape(decoded, spec.shape)


def _composite(leaf: Leaf, values: Mapping[str, Any]) -> Any:
    """Returns a ragged or sparse tensor from its parts."""
    name = leaf.feature
    if leaf.kind == "sparse":
        rank = None if leaf.shape is None else [len(leaf.shape)]
        shape = tf.ensure_shape(values[dense_shape(name)], rank)
        sparse = tf.SparseTensor(values[indices(name)], values[name], shape)
        if leaf.shape is not None:
            sparse.set_shape(leaf.shape)
        return sparse
    ragged = values[name]
    for axis in reversed(range(leaf.ragged_rank)):
        splits = tf.cast(values[row_splits(name, axis)], leaf.splits_dtype)
        uniform = None if leaf.shape is None else leaf.shape[axis + 1]
        if uniform is None:
            ragged = tf.RaggedTensor.from_row_splits(ragged, splits, validate=False)
        else:
            ragged = tf.RaggedTensor.from_uniform_row_length(
                ragged,
                tf.constant(uniform, leaf.splits_dtype),
                nrows=tf.shape(splits, leaf.splits_dtype)[0] - 1,
                validate=False,
            )
    return ragged


# Reading: from files to serialised examples


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


def read_files(
    paths: Sequence[str], *, shuffle: bool | int = False, **order: Any
) -> tf.data.Dataset:
    """Reads serialised examples of whole files, in the order of :func:`read_examples`.

    The content of the files says whether they are compressed.

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
        parts = list(pool.map(part, paths))
    size = 0
    if shuffle:
        firsts = (record for each in parts for record in read_in_order([each]).take(1))
        size = len(next(firsts, tf.constant(b"")).numpy())
    return read_examples(parts, size, shuffle=shuffle, **order)


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
        From how many files examples are mixed, by turns, if they are shuffled or not
        ``deterministic``. Default, and most: ``MIXED_SHARDS``.
    """
    if not isinstance(shuffle, bool):
        check_whole("shuffle", shuffle, 0)
    # TensorFlow takes seeds of 64 bits.
    seed = (check_whole("seed", seed, None) + 2**63) % 2**64 - 2**63
    total = None
    if all(part.take != _ALL for part in parts):
        total = sum(part.take for part in parts)
    paths, most = _paths(parts), max(len(parts), 1)
    if shuffle:  # the order of the files, too
        paths = paths.shuffle(most, seed, reshuffle_each_iteration=True)
    if shuffle or not deterministic:
        together = min(mixed or MIXED_SHARDS, MIXED_SHARDS, most)
        examples = paths.interleave(
            _reader(parts),
            cycle_length=together,
            num_parallel_calls=min(usable_cores(), together),
            deterministic=deterministic,
        )
    else:
        examples = read_in_order(parts, size)
    if shuffle:
        room = int(shuffle)
        if shuffle is True:
            room = max(choices.SHUFFLE_BYTES // max(size, LEAST_BYTES), least)
        if total is not None:  # what stays empty takes memory, too
            room = min(room, max(total, 1))
        examples = examples.shuffle(room, seed, reshuffle_each_iteration=True)
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
    held = max(choices.READ_AHEAD_BYTES // STARTED_PER_STREAM // size, 1)
    streams = max(min(usable_cores(), held // max(most, 1), len(parts)), 1)

    def read_ahead(*part: Any) -> tf.data.Dataset:
        return read(*part).prefetch(held)

    return paths.interleave(
        read if streams > 1 else read_ahead,
        cycle_length=streams,
        block_length=max(most, 1),
        num_parallel_calls=streams,
        deterministic=True,
    )


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


def _options(deterministic: bool, shard: tuple[int, int] | None) -> tf.data.Options:
    options = tf.data.Options()
    options.deterministic = deterministic
    # Autotuning finds no better numbers than these constants, and the end of an epoch
    # often waits for its thread, for up to half the time of the epoch.
    options.autotune.enabled = False
    # Streams start to read before their first turn.
    options.experimental_warm_start = True
    policy = tf.data.experimental.AutoShardPolicy
    if shard is not None:  # it is shared out already
        chosen = policy.OFF
    elif deterministic:  # files may be few and uneven
        chosen = policy.DATA
    else:  # by data, each worker must have the same order
        chosen = policy.FILE
    options.experimental_distribute.auto_shard_policy = chosen
    return options


# Batches of numpy arrays as tensors


def dataset_of(
    batches: Iterable[Mapping[str, Any]],
    specs: Mapping[str, FeatureSpec],
    size: int | None,
) -> tf.data.Dataset:
    """Returns batches as dicts of tensors; each pass over them is the next epoch.

    Parameters
    ----------
    batches : iterable
        A new iteration gives the next epoch, or the rest of one.
    specs : mapping
        Of the features of a batch.
    size : int or None
        The examples of a batch, if all batches have as many.

    Raises
    ------
    InputError
        If tensors cannot hold a feature.
    """
    signature = {name: _tensor_spec(spec, size) for name, spec in specs.items()}

    def generate() -> Iterator[dict[str, Any]]:
        for batch in batches:
            yield {
                name: _ragged(values, specs[name])
                if isinstance(signature[name], tf.RaggedTensorSpec)
                else values
                for name, values in batch.items()
            }

    options = tf.data.Options()
    # A prefetch that TensorFlow adds would hold a batch that the caller does not have;
    # the batches are read ahead already.
    options.experimental_optimization.inject_prefetch = False
    options.autotune.enabled = False
    policy = tf.data.experimental.AutoShardPolicy.OFF
    options.experimental_distribute.auto_shard_policy = policy
    made = tf.data.Dataset.from_generator(generate, output_signature=signature)
    return made.with_options(options)


def _tensor_spec(spec: FeatureSpec, size: int | None) -> Any:
    """Returns the type of a feature in a batch."""
    rank = 0 if spec.shape is None else len(spec.shape)
    first_differs = rank > 0 and None not in (spec.shape or ())[1:]
    is_known = spec.has_fixed_shape or (first_differs and not spec.is_text)
    if spec.optional or spec.sequence or not is_known:
        raise InputError(
            f"to_tf: examples may lack the feature {spec.name}, or its arrays differ "
            "in more than their first axis, so no tensor holds a batch of it. Choose "
            "other features with open_records(features=...), or use `replay`."
        )
    shape = (size, *(spec.shape or ()))
    dtype = tf.as_dtype(spec.tensor_dtype)
    if spec.has_fixed_shape:
        return tf.TensorSpec(shape, dtype)
    return tf.RaggedTensorSpec(shape, dtype, ragged_rank=1)


def _ragged(arrays: Any, spec: FeatureSpec) -> tf.RaggedTensor:
    """Returns arrays whose first axes differ in length as one tensor."""
    flat = np.concatenate(list(arrays))
    return tf.RaggedTensor.from_row_lengths(flat, [len(array) for array in arrays])
