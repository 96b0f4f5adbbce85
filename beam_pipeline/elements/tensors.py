"""Elements of a ``tf.data.Dataset``: their structure, and their values as features."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from beam_pipeline.elements.values import STORED_DTYPES
from beam_pipeline.errors import InputError
from beam_pipeline.examples.spec import INT64_LIST, FeatureSpec, Shape
from beam_pipeline.examples.structure import (
    Leaf,
    Node,
    Structure,
    add_feature,
    dense_shape,
    feature_name,
    indices,
    row_splits,
)


class Description(NamedTuple):
    """The structure of elements, and the features that store them."""

    structure: Structure
    specs: dict[str, FeatureSpec]


def describe_elements(element_spec: Any) -> Description:
    """Returns how elements with this ``element_spec`` are stored.

    Raises
    ------
    InputError
        If a component cannot be stored; the error names it.
    """
    specs: dict[str, FeatureSpec] = {}
    structure = _describe(element_spec, (), specs)
    return Description(structure, specs)


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
    if found is None or type(found).__name__ == "NoneTensorSpec":
        return Leaf("none")
    name = feature_name(path, specs, getattr(found, "ragged_rank", 0))
    if isinstance(found, tf.TensorSpec):
        _add_values(name, found.dtype, _shape(found.shape), path, specs)
        return Leaf("tensor", name)
    if isinstance(found, tf.RaggedTensorSpec):
        return _describe_ragged(name, found, path, specs)
    if isinstance(found, tf.SparseTensorSpec):
        _add_values(name, found.dtype, (None,), path, specs)
        shape = _shape(found.shape)
        rank = None if shape is None else len(shape)
        add_feature(specs, indices(name), "int64", (None, rank))
        add_feature(specs, dense_shape(name), "int64", (rank,))
        return Leaf("sparse", name, shape)
    raise InputError(
        f"{_component(path)} is a {type(found).__name__}, which cannot be stored. "
        "Tensors, ragged tensors and sparse tensors can, in dicts and tuples. Turn the "
        "component into one of them with `dataset.map`, or leave it out."
    )


def _describe_ragged(
    name: str,
    found: Any,
    path: tuple[Any, ...],
    specs: dict[str, FeatureSpec],
) -> Leaf:
    shape, rank = _shape(found.shape), found.ragged_rank
    inner: Shape | None = None
    if found.flat_values_spec is not None:
        inner = _shape(found.flat_values_spec.shape)
    elif shape is not None:
        inner = (shape[0] if rank == 0 else None, *shape[rank + 1 :])
    _add_values(name, found.dtype, inner, path, specs)
    dtype = found.row_splits_dtype.name
    for axis in range(rank):
        size = shape[0] if axis == 0 and shape is not None else None
        splits = None if size is None else size + 1
        add_feature(specs, row_splits(name, axis), dtype, (splits,), INT64_LIST)
    return Leaf("ragged", name, shape, rank, dtype)


def _shape(shape: Any) -> Shape | None:
    return None if shape.rank is None else tuple(shape.as_list())


def _component(path: Sequence[Any]) -> str:
    return f"Component {'/'.join(map(str, path))!r}" if path else "The element"


def _add_values(
    name: str,
    dtype: Any,
    shape: Shape | None,
    path: Sequence[Any],
    specs: dict[str, FeatureSpec],
) -> None:
    if dtype.name not in STORED_DTYPES:
        raise InputError(
            f"{_component(path)} has the dtype {dtype.name}, which cannot be stored. "
            f"These can: {', '.join(STORED_DTYPES)}. Cast it with `dataset.map`, or "
            "leave it out."
        )
    add_feature(specs, name, dtype.name, shape)


def element_columns(
    element: Any, structure: Structure, specs: Mapping[str, FeatureSpec]
) -> dict[str, Any]:
    """Returns the features of one element as numpy values; of a batch, if it is one."""
    columns: dict[str, Any] = {}
    for name, tensor in _tensors(element, structure):
        value = tensor.numpy()
        if not isinstance(value, np.ndarray):  # of a scalar text, it is bytes
            value = np.asarray(value, object if isinstance(value, bytes) else None)
        columns[name] = value
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
    name = structure.feature
    if structure.kind == "sparse":
        yield name, value.values
        yield indices(name), value.indices
        yield dense_shape(name), value.dense_shape
    elif structure.kind == "ragged" and not isinstance(value, tf.Tensor):
        yield name, value.flat_values
        for axis, splits in enumerate(value.nested_row_splits):
            yield row_splits(name, axis), splits
    elif structure.kind != "none":
        yield name, value
