"""A folder that ``record_dataset`` of tf_dataset wrote, as ``tf.data``.

Unlike the library's own reader, this one reads files in sorted order and several at
once, shuffles, rejoins every complex feature, keeps the dtype of each, reads all digits
of the batch size, and keeps the last batch if it is smaller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from beam_pipeline.dataset.original_folder import (
    SPEC_FILE,
    OriginalSpec,
    original_batch_size,
    original_files,
    original_specs,
)
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.examples.tensor_proto import decode_tensor
from beam_pipeline.read.parse import PARSING_THREADS
from beam_pipeline.read.sizes import SHUFFLE_BYTES, usable_cores
from beam_pipeline.read.streams import (
    LEAST_RECORD_BYTES,
    read_files_in_order,
    read_mixed_files,
)
from beam_pipeline.storage import files

_TEXT_BYTES = 64
_PREFETCHED = 16


def read_original(
    folder: str,
    *,
    shuffle: bool | int = False,
    seed: int = 0,
) -> tf.data.Dataset:
    """Reads a folder that ``record_dataset`` of tf_dataset wrote.

    Elements are dicts of tensors with the dtypes and shapes in
    ``TF_RECORD_FEATURES_SPEC.json``. The number of elements is not known before they
    are read.

    Parameters
    ----------
    folder : str
        The folder, on this machine or in an object store.
    shuffle : bool or int
        True: shuffles in another order in every pass, with a buffer of 128 MiB, filled
        from up to 16 files by turns. An int: with a buffer of this many elements.
        False: file by file in the sorted order of their names, which are random.
    seed : int
        Seed of the shuffled order, together with ``tf.random.set_seed``.

    Returns
    -------
    tf.data.Dataset
        If the recorded data set had batches, elements are batches of the same size,
        formed anew after shuffling. The last batch holds the remaining elements. The
        library's reader dropped them. For batches of static shape, call
        ``.unbatch().batch(size, drop_remainder=True)``.

    Raises
    ------
    InputError
        If a file is missing or damaged, or the first record contradicts the
        description.
    OptionError
        If ``shuffle`` is negative.
    """
    if shuffle < 0:
        raise OptionError("shuffle", "must be True, False or a buffer size", shuffle)
    specs = original_specs(folder)
    paths = original_files(folder)
    batch_size = original_batch_size(folder)
    sizes = [files.size(path) for path in paths]
    check_first_record(paths, sizes, specs)

    if shuffle:
        room = SHUFFLE_BYTES // max(element_bytes(specs), 1)
        room = max(room, batch_size or 1) if shuffle is True else shuffle
        # The buffer takes memory even where there are no records to fill it.
        room = min(room, sum(sizes) // LEAST_RECORD_BYTES + 1)
        records = read_mixed_files(paths, True, seed)
        records = records.shuffle(room, seed, reshuffle_each_iteration=True)
    else:
        records = read_files_in_order(paths, sizes)
    elements = records.map(
        make_original_parser(specs),
        num_parallel_calls=min(usable_cores(), PARSING_THREADS),
        deterministic=True,
    )
    if batch_size is not None:
        elements = elements.batch(batch_size)
    return elements.prefetch(2 if batch_size else _PREFETCHED).with_options(_options())


def element_bytes(specs: Mapping[str, OriginalSpec]) -> int:
    """Returns the approximate size of an element in bytes."""
    size = 0
    for spec in specs.values():
        item = _TEXT_BYTES if spec.dtype == "string" else tf.as_dtype(spec.dtype).size
        size += item * math.prod(length or 1 for length in spec.shape)
    return size


def check_first_record(
    paths: Sequence[str], sizes: Sequence[int], specs: Mapping[str, OriginalSpec]
) -> None:
    """Raises :class:`InputError` if the first record does not have these features."""
    path = next((p for p, size in zip(paths, sizes, strict=True) if size), None)
    if path is None:
        return
    stored = {part for spec in specs.values() for part in spec.stored}
    try:
        records = list(tf.data.TFRecordDataset(path).take(1).as_numpy_iterator())
        # A file that ends inside a header has no record, and TensorFlow no error.
        values = tf.io.parse_single_example(
            records[0] if records else b"\0",
            {part: tf.io.FixedLenFeature((), tf.string, "") for part in stored},
        )
    except tf.errors.OpError as error:
        raise InputError(
            f"{path} does not begin with an uncompressed record of tf_dataset: "
            f"{error.message} Restore the file, or move it to another folder."
        ) from error
    for spec in specs.values():
        for part in spec.stored:
            problem = _contradiction(spec, values[part].numpy())
            if problem:
                raise InputError(
                    f"{path}: the first record contradicts entry {part!r} of "
                    f"{SPEC_FILE}: {problem}. Put the {SPEC_FILE} that was written "
                    "with the records beside them."
                )


def _contradiction(spec: OriginalSpec, data: bytes) -> str:
    """Returns how a stored tensor differs from its spec; empty if it does not."""
    if not data:
        return "the record does not have this feature"
    try:
        array = decode_tensor(data, spec.stored_dtype)
    except ValueError as error:
        return str(error)
    if not tf.TensorShape(spec.shape).is_compatible_with(array.shape):
        return f"the tensor has the shape {array.shape}, not {spec.shape}"
    return ""


def make_original_parser(
    specs: Mapping[str, OriginalSpec],
) -> Callable[[Any], dict[str, Any]]:
    """Returns a function that turns one serialised element into tensors."""
    stored = {
        part: tf.io.FixedLenFeature((), tf.string)
        for spec in specs.values()
        for part in spec.stored
    }

    def parse(serialised: Any) -> dict[str, Any]:
        values = tf.io.parse_single_example(serialised, stored)
        element = {}
        for name, spec in specs.items():
            parts = [
                tf.io.parse_tensor(values[part], spec.stored_dtype)
                for part in spec.stored
            ]
            tensor = parts[0] if len(parts) == 1 else tf.complex(*parts)
            element[name] = tf.ensure_shape(tensor, spec.shape)
        return element

    return parse


def _options() -> tf.data.Options:
    options = tf.data.Options()
    options.autotune.enabled = False
    # A strategy of tf.distribute must not shard by files, which may be few.
    policy = tf.data.experimental.AutoShardPolicy
    options.experimental_distribute.auto_shard_policy = policy.DATA
    return options
