"""``record_dataset``: writes a ``tf.data.Dataset`` in any state."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import tensorflow as tf

from beam_pipeline.dataset.metadata import Elements
from beam_pipeline.elements.tensors import (
    Description,
    describe_elements,
    element_columns,
)
from beam_pipeline.elements.writing import (
    Block,
    check_endless,
    check_num_elems,
    counted,
    with_encodings,
    write_elements,
)
from beam_pipeline.errors import InputError
from beam_pipeline.examples.spec import FeatureSpec, numpy_dtype
from beam_pipeline.write.member_files import ShardSizes

# Elements are drawn together up to this number, and up to these bytes.
_TOGETHER = 256
_BLOCK_BYTES = 4 << 20


def record_dataset(
    dataset: tf.data.Dataset,
    output_dir: str | os.PathLike[str] = ".",
    elements_per_file: int | None = None,
    num_elems: int | None = None,
    *,
    shard_bytes: int | None = None,
    num_shards: int | None = None,
    multiple_of: int = 1,
    member_bytes: int | None = None,
    compression: str = "gzip",
    encodings: Mapping[str, str] | None = None,
    sequences: Sequence[str] = (),
    overwrite: bool = False,
    progress: bool | None = None,
) -> str:
    """Writes a ``tf.data.Dataset`` in any state as sharded GZIP TFRecords.

    ::

        folder = record_dataset(ds, "records/", elements_per_file=1000)
        same = replay_dataset(folder)

    :func:`replay_dataset` returns the same elements in the same structure. Elements may
    be dicts and tuples, nested, of tensors of any shape and any dtype of numpy, of
    texts, and of ragged and sparse tensors. If the last step of the data set is
    ``batch``, the examples of the batches are written one by one, and
    :func:`replay_dataset` makes the same batches; any other batch is written as one
    element. Memory holds one block of elements.

    Parameters
    ----------
    dataset : tf.data.Dataset
    output_dir : path
        A folder that is new or empty, or holds an unfinished data set of elements; on
        any file system of this package.
    elements_per_file : int, optional
        Elements in a shard; the last shard has the rest.
    num_elems : int, optional
        How many elements to write. Default: all. An endless data set needs it. If the
        data set has fewer elements, a warning says so. Both numbers count single
        examples, if batches are written one by one.
    shard_bytes : int, optional
        Instead of ``elements_per_file``: the bytes of a shard before GZIP. Default:
        128 MiB.
    num_shards : int, optional
        Instead of them: the number of shards. Their sizes differ by one at most.
    multiple_of : int
        The number of shards becomes a multiple of this number, for example of the
        number of accelerators that read them; their sizes differ by one at most.
    member_bytes : int, optional
        The bytes of a GZIP member before GZIP, at least one element. To read any
        element, :func:`open_records` reads its member: larger members compress better,
        smaller ones are read faster. Default: 16 KiB.
    compression : str
        ``gzip`` or ``none``, which is larger and read several times as fast.
    encodings : mapping, optional
        Name of a feature to its encoding: ``raw``, ``tensor`` (as of
        ``tf.io.serialize_tensor``), ``png``, ``jpeg`` or ``int64_list``. Names are the
        keys on the way to a component, joined by ``/``.
    sequences : sequence of str
        Features whose first axis becomes the steps of a ``tf.train.SequenceExample``.
    overwrite : bool
        Replaces a data set in ``output_dir``.
    progress : bool, optional
        Whether to show a progress bar. Default: in a terminal or a notebook.

    Returns
    -------
    str
        The absolute path of the folder.

    Raises
    ------
    InputError
        If a component cannot be stored, or the data set has no end; before anything is
        written.
    OptionError, OutputError
        If an argument or the folder cannot be used; before anything is written.
    """
    if not isinstance(dataset, tf.data.Dataset):
        raise InputError(
            f"record_dataset needs a tf.data.Dataset; got {type(dataset).__name__}. "
            "`record_examples` writes an iterable of dicts."
        )
    sizes = ShardSizes(
        elements_per_file,
        shard_bytes,
        num_shards,
        multiple_of,
        member_bytes,
        compression,
    )
    batch = find_batch(dataset)
    unbatched = dataset if batch is None else dataset.unbatch()
    check_endless(dataset.cardinality() == tf.data.INFINITE_CARDINALITY, num_elems)
    known = int(dataset.cardinality()) if batch is None else batch.examples
    total = check_num_elems(num_elems, None if known < 0 else known)
    structure, specs = describe_elements(unbatched.element_spec)
    specs = with_encodings(specs, encodings or {}, sequences)
    if num_elems is not None:
        unbatched = unbatched.take(num_elems)
    options = {
        "num_elems": num_elems,
        **sizes.to_json(),
        "encodings": dict(encodings or {}),
        "sequences": list(sequences),
    }
    blocks = _blocks(unbatched, Description(structure, specs))
    elements = Elements("record_dataset", options, structure)
    if batch is not None:
        elements = replace(
            elements, batch_size=batch.size, drop_remainder=batch.drop_remainder
        )
    return write_elements(
        counted(blocks, num_elems),
        specs,
        output_dir,
        elements,
        sizes,
        total=total,
        overwrite=overwrite,
        progress=progress,
    )


class Batch(NamedTuple):
    """The size of batches, and whether a smaller last one is left out.

    ``examples`` is the number of examples in all batches; negative if it is not known.
    """

    size: int
    drop_remainder: bool
    examples: int


# These steps change neither the elements nor how many a batch has.
_PASSING = ("_PrefetchDataset", "_OptionsDataset", "CacheDataset", "_ModelDataset")
_BATCHING = ("_BatchDataset", "_ParallelBatchDataset")


def find_batch(dataset: tf.data.Dataset) -> Batch | None:
    """Returns how a data set was batched, if its last step is ``batch``.

    None if there is another step after it, or if the examples of a batch have no fixed
    shape: then a reader could not make the same batches of them.
    """
    while type(dataset).__name__ in _PASSING:
        (dataset,) = dataset._inputs()
    size = getattr(dataset, "_batch_size", None)
    if type(dataset).__name__ not in _BATCHING or size is None:
        return None
    specs = tf.nest.flatten(dataset.element_spec)
    if not all(
        isinstance(spec, tf.TensorSpec)
        and spec.shape.rank
        and spec.shape[1:].is_fully_defined()
        and spec.shape[1:].num_elements()  # TensorFlow crashes on unbatching none
        for spec in specs
    ):
        return None
    (single,) = dataset._inputs()
    examples = int(single.cardinality())
    drops = bool(dataset._drop_remainder)
    if drops and examples >= 0:
        examples -= examples % int(size)
    return Batch(int(size), drops, examples)


def _blocks(dataset: tf.data.Dataset, described: Description) -> Iterator[Block]:
    """Draws the elements: many at once if they all have the same shape."""
    structure, specs = described
    if not all(spec.is_fixed for spec in specs.values()):
        for element in dataset.prefetch(2):
            columns = element_columns(element, structure, specs)
            yield Block(1, {name: [value] for name, value in columns.items()})
        return
    size = sum(_bytes(spec) for spec in specs.values())
    together = max(1, min(_TOGETHER, _BLOCK_BYTES // size))
    for batch in dataset.batch(together).prefetch(1):
        columns = element_columns(batch, structure, specs)
        yield Block(len(next(iter(columns.values()))), columns)


def _bytes(spec: FeatureSpec) -> int:
    item = 64 if spec.dtype == "string" else numpy_dtype(spec.dtype).itemsize
    return max(1, math.prod(spec.sizes) * item)
