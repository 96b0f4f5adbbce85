"""Reads files of records in parallel, and parses examples into tensors by their specs.

TensorFlow reads local files. This package reads those of stores and other file systems,
with the credentials and retries of ``record``. Where all examples have the same shapes,
a batch of them is parsed at once; others are parsed one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import tensorflow as tf

from beam_pipeline.arrays import BYTES
from beam_pipeline.codecs import BYTES_LIST, INT8, JPEG, LISTS, PNG, TENSOR
from beam_pipeline.dataset.metadata import Metadata
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
from beam_pipeline.parameters import check_whole
from beam_pipeline.process import usable_cores
from beam_pipeline.read.choices import (
    READ_AHEAD_BYTES,
    SHUFFLE_BYTES,
    check_name,
    choose_features,
)
from beam_pipeline.read.scales import Scale
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import is_gzip, read_any_records

NUM_CLASSES = "num_classes"

PARSING_THREADS = 4
PARSED_TOGETHER = 16

_TO_THE_END = 2**31 - 1
# tf.io.decode_raw does not support unsigned integers of these widths.
_DECODED_AS = {"uint32": "int32", "uint64": "int64"}


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
    leaves : tuple of Leaf
        The components that several features store together.
    """

    specs: Mapping[str, FeatureSpec]
    structure: Structure | None = None
    names: tuple[str, ...] = ()
    is_tuple: bool = False
    missing: Mapping[str, Any] = field(default_factory=dict)
    num_classes: int = 0
    leaves: tuple[Leaf, ...] = ()

    @property
    def is_fixed(self) -> bool:
        """Whether all examples have the same shapes, so that batches parse at once."""
        return all(leaf.kind in ("tensor", "none") for leaf in self.leaves) and all(
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
            raise OptionError(
                "as_supervised",
                "must name two features or more, for example ('log_mel', 'target'); "
                f"the features are {', '.join(names)}",
                as_supervised,
            )
        if features is not None:
            raise InputError("Give either `features` or `as_supervised`, not both.")
    encoded = [encoded] if isinstance(encoded, str) else list(encoded)
    for name in [*encoded, *(missing or ())]:
        check_name("feature", name, names)
    is_tuple = as_supervised is not None
    chosen = choose_features(metadata, as_supervised if is_tuple else features)
    specs = needed_features(chosen, metadata.features, structure)
    specs |= {name: _as_bytes(specs[name]) for name in encoded if name in specs}
    ordered = chosen if is_tuple else [name for name in names if name in chosen]
    return Parsing(
        specs,
        structure if features is None and not is_tuple else None,
        tuple(ordered),
        is_tuple,
        dict(missing or {}),
        len(metadata.classes),
        () if structure is None else tuple(leaves(structure)),
    )


def _as_bytes(spec: FeatureSpec) -> FeatureSpec:
    """Returns the spec of a feature that stays as it is stored."""
    if spec.encoding in LISTS:
        return spec
    shape = (None,) if spec.sequence else ()
    return replace(spec, dtype=BYTES, shape=shape, encoding=BYTES_LIST, shape_in=None)


def make_parser(
    parsing: Parsing,
    scales: Mapping[str, Scale],
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
    if read is None:
        make_read = _batch_parser if parsing.is_fixed else make_element_parser
        read = make_read(parsing)

    def parse(serialised: Any) -> Any:
        example = read(serialised)
        for name, (mean, factor) in scales.items():
            dtype = parsing.specs[name].dtype
            example[name] = (example[name] - mean.astype(dtype)) * factor.astype(dtype)
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
    return make_parser(parsing, {}, make_element_parser(parsing))


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


def _batch_parser(parsing: Parsing) -> Callable[[Any], dict[str, Any]]:
    specs = parsing.specs
    stored = describe_features(specs).context

    def parse(serialised: Any) -> dict[str, Any]:
        values = tf.io.parse_example(serialised, stored)
        return {
            name: _restore_batch(spec, values[name]) for name, spec in specs.items()
        }

    return parse


def _restore_batch(spec: FeatureSpec, stored: Any) -> Any:
    """Returns a batch of one feature with the dtype and shape of its spec."""
    if spec.encoding in LISTS:
        return tf.cast(stored, spec.tensor_dtype)
    values = decode_bytes(spec, stored)
    return tf.reshape(values, tf.concat([tf.shape(stored), spec.sizes], 0))


def decode_raw(values: Any, dtype: str) -> Any:
    """Returns little-endian bytes as numbers, with an axis for them at the end."""
    decoded_as = _DECODED_AS.get(dtype, dtype)
    numbers = tf.io.decode_raw(values, decoded_as)
    return numbers if decoded_as == dtype else tf.bitcast(numbers, dtype)


def decode_bytes(spec: FeatureSpec, values: Any) -> Any:
    """Returns the bytes of arrays as numbers, with an axis for them at the end."""
    if spec.encoding == INT8:
        scale = tf.io.decode_raw(tf.strings.substr(values, 0, 4), tf.float32)
        levels = tf.io.decode_raw(tf.strings.substr(values, 4, _TO_THE_END), tf.int8)
        return tf.cast(levels, tf.float32) * scale
    return tf.cast(decode_raw(values, spec.stored_dtype), spec.dtype)


def make_element_parser(parsing: Parsing) -> Callable[[Any], dict[str, Any]]:
    """Returns a function from one serialised example to its components by name."""
    specs, missing = parsing.specs, parsing.missing
    stored, steps = describe_features(specs, missing)
    parts = {
        leaf.feature: leaf
        for leaf in parsing.leaves
        if leaf.kind in ("ragged", "sparse") and leaf.feature in specs
    }
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
            found = tf.io.parse_single_example(serialised, stored)
        values: dict[str, Any] = {}
        for name in ordered:
            shape = values.get(specs[name].shape_in or "")
            values[name] = _restore(specs[name], found[name], shape, name in missing)
        return {
            **values,
            **{name: _composite(leaf, values) for name, leaf in parts.items()},
        }

    return parse


def _restore(spec: FeatureSpec, stored: Any, shape: Any, has_default: bool) -> Any:
    """Returns the value of one feature of one example."""
    if spec.codec.holds_shape:
        return _decode(spec, stored)
    values = stored.values if isinstance(stored, tf.SparseTensor) else stored
    if spec.encoding not in LISTS:
        values = decode_bytes(spec, values)
    elif spec.encoding != BYTES_LIST:
        values = tf.cast(values, spec.dtype)
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
        From how many files examples are mixed. Default, and most: ``MIXED_SHARDS``.
    """
    if not isinstance(shuffle, bool):
        check_whole("shuffle", shuffle, 0)
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
    together = min(mixed or MIXED_SHARDS, MIXED_SHARDS, max(len(parts), 1))
    if seed is not None:
        room = max(len(parts), 1)
        dataset = dataset.shuffle(room, seed, reshuffle_each_iteration=True)
    return dataset.interleave(
        _reader(parts),
        cycle_length=together,
        num_parallel_calls=min(usable_cores(), together),
        deterministic=deterministic,
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
