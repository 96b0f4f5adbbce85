"""A recorded data set as ``tf.data``, from its ``metadata.json`` alone.

Inflating takes most of the time, so several shards are always read at once. To keep the
order on disk, streams read ahead and take turns of a whole shard; to mix shards, they
take turns of one record. Records are batched first and then parsed together.

Folders that ``record_dataset`` of the library tf_dataset wrote are read, too::

    TF_RECORD_FEATURES_SPEC.json    an entry for each stored feature
    batched                         the batch size, if the data set had batches
    x8a2k1.tfrecord, ...            uncompressed; the names are random

Each feature of their examples is one ``bytes`` value: a serialised TensorProto, which
:mod:`beam_pipeline.storage.wire` decodes. A complex feature ``k`` is stored as two,
``k_real`` and ``k_imag``. Unlike the library's own reader, this one reads files in
sorted order, shuffles, rejoins every complex feature, keeps the dtype of each, reads
all digits of the batch size, and keeps the last batch if it is smaller.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import tensorflow as tf

from beam_pipeline.codecs import TENSOR
from beam_pipeline.dataset.folders import METADATA
from beam_pipeline.dataset.metadata import Metadata, check_files
from beam_pipeline.dataset.side_by_side import Folders, open_data_sets
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.parameters import check_flag, check_whole
from beam_pipeline.read.choices import (
    Split,
    check_share,
    choose_splits,
    cut_shards,
    memory_bytes,
    shards_of,
)
from beam_pipeline.read.parse import (
    PARSED_TOGETHER,
    FilePart,
    Parsing,
    choose_parsing,
    make_element_parser,
    make_parser,
    parse_dataset,
    read_examples,
)
from beam_pipeline.read.scales import Scale, choose_scales, choose_statistics
from beam_pipeline.storage import files
from beam_pipeline.storage.files import PathLike
from beam_pipeline.storage.tfrecord import is_compressed
from beam_pipeline.storage.wire import DTYPES
from beam_pipeline.text import parse_json, typed


def replay(
    records: Folders,
    split: Split | None = None,
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
    statistics: Split | PathLike | None = None,
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
    read, scales = None, dict[str, Scale]()
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
        metadata, parts, read = _open_original(folder)
        batch_size = batch_size or original_batch_size(folder)
        parsing = choose_parsing(metadata, features, as_supervised)
    else:
        data = open_data_sets(records)
        folder, metadata = data.folders[0], data.metadata
        splits = choose_splits(metadata, split)
        parsing = choose_parsing(metadata, features, as_supervised, encoded, missing)
        scaled_by = choose_statistics(metadata, splits, statistics)
        scales = choose_scales(parsing.specs, normalize, scaled_by)
        share = (0, 1) if shard is None else check_share("shard", shard)
        pieces = cut_shards(shards_of(metadata, splits), *share)
        check_files(folder, [piece.shard for piece in pieces])
        parts = [
            FilePart(
                files.join(folder, piece.shard.file),
                is_compressed(piece.shard.file),
                piece.skip,
                piece.take,
            )
            for piece in pieces
        ]
    if batch_size is not None:
        check_whole("batch_size", batch_size)
    if check_flag("drop_remainder", drop_remainder) and batch_size is None:
        raise OptionError("drop_remainder", "needs `batch_size`", drop_remainder)
    if not isinstance(repeat, bool):
        check_whole("repeat", repeat)
    examples = read_examples(
        parts,
        memory_bytes(metadata, metadata.features.values()),
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


def is_original(records: Folders) -> TypeGuard[files.PathLike]:
    """Whether a folder is one that only tf_dataset describes."""
    if not isinstance(records, str | os.PathLike):
        return False
    folder = files.absolute(os.fspath(records))
    return find_original(folder) and not files.exists(files.join(folder, METADATA))


def _open_original(folder: str) -> tuple[Metadata, list[FilePart], Any]:
    """Returns what tf_dataset's folder holds, its files, and how a record is read."""
    specs, paths = original_specs(folder), original_files(folder)
    parse = make_element_parser(Parsing(specs.stored))

    def read(serialised: Any) -> dict[str, Any]:
        found = parse(serialised)
        return {
            name: found[name]
            if name in specs.stored
            else tf.complex(found[name + REAL], found[name + IMAG])
            for name in specs.features
        }

    parts = [FilePart(path, is_compressed=False) for path in paths]
    return Metadata(None, specs.features, (), {}), parts, read


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


# Folders of the library tf_dataset

SPEC_FILE = "TF_RECORD_FEATURES_SPEC.json"
BATCHED_FILE = "batched"
SUFFIX = ".tfrecord"

_PARTS = {"complex64": "float32", "complex128": "float64"}
REAL, IMAG = "_real", "_imag"


class OriginalSpecs(NamedTuple):
    """What tf_dataset's folder holds.

    Attributes
    ----------
    features : dict
        Name to :class:`.FeatureSpec`, for each feature of the elements, in the order of
        the file.
    stored : dict
        The same of the features in the records: each is a serialised tensor. A complex
        feature ``k`` is not among them if ``k_real`` and ``k_imag`` store it.
    """

    features: dict[str, FeatureSpec]
    stored: dict[str, FeatureSpec]


def find_original(folder: str) -> bool:
    """Whether a folder holds the description of a data set of tf_dataset."""
    return files.exists(files.join(files.absolute(folder), SPEC_FILE))


def original_files(folder: str) -> list[str]:
    """Returns the paths of the records, sorted by name as text.

    tf_dataset read them in the order in which the file system lists them. That order
    differs between machines, and the random names hold no other.

    Raises
    ------
    InputError
        If there are none.
    """
    folder = files.absolute(folder)
    names = [n for n in files.list_files(folder) if n.endswith(SUFFIX) and "/" not in n]
    if not names:
        raise InputError(
            f"{folder} has the file {SPEC_FILE}, but no file with the suffix {SUFFIX}. "
            "Give the folder that holds both."
        )
    return [files.join(folder, name) for name in names]


def original_batch_size(folder: str) -> int | None:
    """Returns the size of the batches that were recorded; None for single elements.

    tf_dataset read only the first digit of the size.

    Raises
    ------
    InputError
        If the file ``batched`` holds anything but a whole number from 1 on.
    """
    path = files.join(files.absolute(folder), BATCHED_FILE)
    if not files.exists(path):
        return None
    text = files.read_bytes(path).decode(errors="backslashreplace").strip()
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise InputError(
            f"{path} must hold the batch size, a whole number from 1 on; got "
            f"{text[:40]!r}. Write the size into it, or delete the file to read single "
            "elements."
        )
    return int(text)


@dataclass(frozen=True)
class _Entry:
    """What the file says: the dtypes in memory and in the records, and the shape."""

    previous_dtype: str
    dtype: str
    shape: tuple[int | None, ...]


def original_specs(folder: str) -> OriginalSpecs:
    """Returns the features of a folder's elements, and those of its records.

    The dtype in memory counts: tf_dataset lists int32 as int64, but stores the tensor
    as it was.

    Raises
    ------
    InputError
        If ``TF_RECORD_FEATURES_SPEC.json`` is missing or damaged.
    """
    path = files.join(files.absolute(folder), SPEC_FILE)
    specs = OriginalSpecs({}, {})
    try:
        values = parse_json(files.read_bytes(path))
        if not isinstance(values, dict) or not values:
            raise ValueError("it must be an object with an entry for each feature")
        for name in values:
            entry: _Entry = typed(_Entry, values[name], f"entry {name!r}")
            dtype = entry.previous_dtype.removeprefix("tf.")
            if dtype not in DTYPES:
                raise ValueError(f"entry {name!r}: {dtype!r} is no dtype")
            base, stored_dtype = name, dtype
            if dtype in _PARTS and entry.dtype != entry.previous_dtype:
                base, stored_dtype = name.removesuffix(REAL), _PARTS[dtype]
                base = base.removesuffix(IMAG)
                parts = base + REAL, base + IMAG
                if values.get(parts[0]) != values.get(parts[1]) or name not in parts:
                    raise ValueError(
                        f"entry {name!r}: a complex feature has two equal entries, "
                        f"{parts[0]!r} and {parts[1]!r}"
                    )
            spec = FeatureSpec(base, dtype, entry.shape, TENSOR)
            stored = FeatureSpec(name, stored_dtype, entry.shape, TENSOR)
            is_other = base in specs.stored if base != name else name in specs.features
            if is_other or specs.features.setdefault(base, spec) != spec:
                raise ValueError(f"two entries describe the feature {base!r}")
            specs.stored[name] = stored
    except (FileNotFoundError, ValueError) as error:
        raise InputError(
            f"{path} is not the description of a data set of tf_dataset: {error}. "
            "Restore the file."
        ) from error
    return specs
