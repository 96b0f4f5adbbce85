"""``record_dataset``: writes a ``tf.data.Dataset`` in any state."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from beam_pipeline.arrays import numpy_dtype
from beam_pipeline.dataset.element_set import ShardSizes, keep_specs
from beam_pipeline.dataset.metadata import Elements
from beam_pipeline.elements.record_examples import Block, Request, write_elements
from beam_pipeline.elements.values import STORED_DTYPES
from beam_pipeline.encodings import INT64_LIST
from beam_pipeline.errors import InputError
from beam_pipeline.examples.spec import (
    FeatureSpec,
    Leaf,
    Node,
    Shape,
    Structure,
    add_feature,
    dense_shape,
    feature_name,
    indices,
    row_splits,
)

# Elements are drawn together up to this number, and up to these bytes.
_TOGETHER = 256
_BLOCK_BYTES = 4 << 20


def record_dataset(
    dataset: tf.data.Dataset,
    output_dir: str | os.PathLike[str] = ".",
    elements_per_file: int | None = None,
    num_elems: int | None = None,
    *,
    encodings: Mapping[str, str] | None = None,
    sequences: Sequence[str] = (),
    overwrite: bool = False,
    progress: bool | None = None,
    **sizes: Any,
) -> str:
    """Writes a ``tf.data.Dataset`` in any state as sharded GZIP TFRecords.

    ::

        folder = record_dataset(ds, "records/", elements_per_file=1000)
        same = replay_dataset(folder)

    :func:`replay_dataset` returns the same elements in the same structure. Elements may
    be dicts and tuples, nested, of tensors of any shape and any dtype of numpy, of
    texts, and of ragged and sparse tensors. A batch is one element: to write its
    examples one by one, give ``dataset.unbatch()``, and ``batch_size`` to
    :func:`replay_dataset`. Memory holds one block of elements.

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
        data set has fewer elements, a warning says so.
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
    **sizes
        ``shard_bytes``: instead of ``elements_per_file``, the bytes of a shard before
        GZIP; default: 128 MiB. ``num_shards``: instead of them, the number of shards,
        whose sizes differ by one at most. ``member_bytes``: the bytes of a GZIP member
        before GZIP, at least one element; :func:`open_records` reads a member for any
        element of it, so larger ones compress better and smaller ones are read faster;
        default: 16 KiB. ``compression``: ``gzip``, or ``none``, which is larger and
        read several times as fast.

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
    request = Request(
        output_dir,
        ShardSizes(elements_per_file=elements_per_file, **sizes),
        num_elems,
        encodings,
        sequences,
        overwrite,
        progress,
    )
    wanted = dataset if num_elems is None else dataset.take(num_elems)
    count = int(wanted.cardinality())
    if count == tf.data.INFINITE_CARDINALITY:
        raise InputError(
            "The data set has no end. Give `num_elems`, the number of elements to "
            "write, or leave out `repeat()`."
        )
    structure, specs = describe_elements(dataset.element_spec)
    return write_elements(
        request,
        Elements("record_dataset", structure=structure),
        specs,
        lambda specs: _blocks(wanted, structure, specs),
        count if count >= 0 else None,
        keep_specs,
    )


def _blocks(
    dataset: tf.data.Dataset, structure: Structure, specs: Mapping[str, FeatureSpec]
) -> Iterator[Block]:
    """Draws the elements: many at once if they all have the same shape."""
    if not all(spec.is_fixed for spec in specs.values()):
        for element in dataset.prefetch(2):
            columns = element_columns(element, structure, specs)
            yield 1, {name: [value] for name, value in columns.items()}
        return
    size = sum(_bytes(spec) for spec in specs.values())
    together = max(1, min(_TOGETHER, _BLOCK_BYTES // size))
    for batch in dataset.batch(together).prefetch(1):
        columns = element_columns(batch, structure, specs)
        yield len(next(iter(columns.values()))), columns


def _bytes(spec: FeatureSpec) -> int:
    item = 64 if spec.dtype == "string" else numpy_dtype(spec.dtype).itemsize
    return max(1, math.prod(spec.sizes) * item)


def describe_elements(element_spec: Any) -> tuple[Structure, dict[str, FeatureSpec]]:
    """Returns the structure of elements, and the features that store them.

    Raises
    ------
    InputError
        If a component cannot be stored; the error names it.
    """
    specs: dict[str, FeatureSpec] = {}
    return _describe(element_spec, (), specs), specs


def _describe(
    found: Any, path: tuple[Any, ...], specs: dict[str, FeatureSpec]
) -> Structure:
    if isinstance(found, Mapping):
        keys = tuple(found)
        for key in keys:
            if not isinstance(key, str | int) or isinstance(key, bool):
                raise InputError(
                    f"{_component(path)} has the key {key!r}, which metadata.json "
                    "cannot hold. Keys must be texts or whole numbers."
                )
        below = tuple(_describe(found[key], (*path, key), specs) for key in keys)
        return Node("dict", keys, below)
    if isinstance(found, tuple):
        names = getattr(found, "_fields", None)
        below = tuple(
            _describe(child, (*path, key), specs)
            for key, child in zip(names or range(len(found)), found, strict=True)
        )
        if names is None:
            return Node("tuple", tuple(range(len(found))), below)
        return Node("namedtuple", tuple(names), below, type(found).__name__)
    if found is None or found == tf.type_spec_from_value(None):
        return Leaf("none")
    kind = _KINDS.get(type(found))
    if kind is None:
        raise InputError(
            f"{_component(path)} is a {type(found).__name__}, which cannot be stored. "
            "Tensors, ragged tensors and sparse tensors can, in dicts and tuples. Turn "
            "the component into one of them with `dataset.map`, or leave it out."
        )
    name = feature_name(path, specs, getattr(found, "ragged_rank", 0))
    for feature, part in _parts(kind, name, found):
        if part.dtype.name not in STORED_DTYPES:
            raise InputError(
                f"{_component(path)} has the dtype {part.dtype.name}, which cannot be "
                f"stored. These can: {', '.join(STORED_DTYPES)}. Cast it with "
                "`dataset.map`, or leave it out."
            )
        are_splits = kind == "ragged" and feature != name
        encoding = INT64_LIST if are_splits else None
        add_feature(specs, feature, part.dtype.name, _shape(part.shape), encoding)
    if kind == "tensor":
        return Leaf(kind, name)
    if kind == "sparse":
        return Leaf(kind, name, _shape(found.shape))
    splits_dtype = found.row_splits_dtype.name
    return Leaf(kind, name, _shape(found.shape), found.ragged_rank, splits_dtype)


_KINDS = {
    tf.TensorSpec: "tensor",
    tf.RaggedTensorSpec: "ragged",
    tf.SparseTensorSpec: "sparse",
}


def _parts(kind: str, name: str, component: Any) -> Iterator[tuple[str, Any]]:
    """Yields the features of a component, and the tensor of each, or its spec."""
    first, *others = tf.nest.flatten(component, expand_composites=True)
    if kind == "sparse":
        values, shape = others
        yield from ((name, values), (indices(name), first), (dense_shape(name), shape))
        return
    yield name, first
    for axis, splits in enumerate(others):
        yield row_splits(name, axis), splits


def _shape(shape: Any) -> Shape | None:
    return None if shape.rank is None else tuple(shape.as_list())


def _component(path: Sequence[Any]) -> str:
    return f"Component {'/'.join(map(str, path))!r}" if path else "The element"


def element_columns(
    element: Any, structure: Structure, specs: Mapping[str, FeatureSpec]
) -> dict[str, Any]:
    """Returns the features of one element as numpy values; of a batch, if it is one."""
    columns: dict[str, Any] = {}
    for name, tensor in _tensors(element, structure):
        kind = object if tensor.dtype == tf.string else None
        columns[name] = value = np.asarray(tensor.numpy(), kind)
        shape_in = specs[name].shape_in
        if shape_in is not None:
            columns[shape_in] = np.array(value.shape, np.int64)
    return columns


def _tensors(value: Any, structure: Structure) -> Iterator[tuple[str, Any]]:
    """Yields the features of an element, and the tensors with their values."""
    if isinstance(structure, Node):
        for key, child in zip(structure.keys, structure.children, strict=True):
            part = getattr(value, key) if structure.kind == "namedtuple" else value[key]
            yield from _tensors(part, child)
        return
    if structure.kind != "none":
        yield from _parts(structure.kind, structure.feature, value)
