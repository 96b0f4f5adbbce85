"""The structure of an element: nested dicts and tuples, with features as leaves.

An example holds a flat set of features. The metadata keep the structure of the element
that each example was, as JSON; a reader rebuilds the element from it::

    {"dict": [["signal", {"tensor": "signal"}], ["label", {"tuple": [...]}]]}

The names of features are the keys on the way to a leaf, joined by ``/``; the places of
tuples are numbers. A single value without a key is named ``element``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from beam_pipeline.codecs import INT64_LIST
from beam_pipeline.examples.spec import FeatureSpec, Shape, encoding_for, needs_shape

ONLY = "element"


@dataclass(frozen=True, slots=True)
class Leaf:
    """One component of an element, and the features that store it.

    Attributes
    ----------
    kind : str
        ``tensor``: an array. ``ragged``: an array whose rows differ in length.
        ``sparse``: the values of an array that are not zero, and their places.
        ``none``: nothing, stored in no feature.
    feature : str
        The values: of the array; the flat values of the ragged array; those of the
        sparse array. ``row_splits(feature, i)``, ``indices(feature)`` and
        ``dense_shape(feature)`` name the other features.
    shape : tuple of int or None, or None
        The static shape of a ragged or sparse array; a tensor's is in its spec.
    ragged_rank : int
        The number of axes whose rows may differ in length.
    splits_dtype : str
        The dtype of the row splits.
    """

    kind: str
    feature: str = ""
    shape: Shape | None = None
    ragged_rank: int = 0
    splits_dtype: str = "int64"

    def to_json(self) -> dict[str, Any]:
        """Returns the leaf as JSON values."""
        values: dict[str, Any] = {self.kind: self.feature or None}
        if self.kind in ("ragged", "sparse"):
            values["shape"] = None if self.shape is None else list(self.shape)
        if self.kind == "ragged":
            values["ragged_rank"] = self.ragged_rank
            values["splits_dtype"] = self.splits_dtype
        return values


@dataclass(frozen=True, slots=True)
class Node:
    """A dict, a tuple or a named tuple.

    Attributes
    ----------
    kind : str
        ``dict``, ``tuple`` or ``namedtuple``.
    keys : tuple
        The keys of a dict, the names of a named tuple, the places of a tuple.
    children : tuple
        The nodes and leaves below, in the order of ``keys``.
    name : str
        The name of the named tuple's type.
    """

    kind: str
    keys: tuple[Any, ...]
    children: tuple[Node | Leaf, ...]
    name: str = ""

    def to_json(self) -> dict[str, Any]:
        """Returns the node as JSON values."""
        below = [child.to_json() for child in self.children]
        if self.kind == "tuple":
            return {"tuple": below}
        pairs = [list(pair) for pair in zip(self.keys, below, strict=True)]
        return {self.kind: pairs, **({"name": self.name} if self.name else {})}


Structure = Node | Leaf


def structure_from_json(values: Mapping[str, Any]) -> Structure:
    """Returns the structure with these JSON values.

    Raises
    ------
    ValueError
        If the values describe no structure.
    """
    if "tuple" in values:
        below = tuple(map(structure_from_json, values["tuple"]))
        return Node("tuple", tuple(range(len(below))), below)
    for kind in ("dict", "namedtuple"):
        if kind in values:
            keys = tuple(key for key, _ in values[kind])
            below = tuple(structure_from_json(child) for _, child in values[kind])
            return Node(kind, keys, below, values.get("name", ""))
    for kind in ("tensor", "ragged", "sparse", "none"):
        if kind in values:
            shape = values.get("shape")
            return Leaf(
                kind,
                values[kind] or "",
                None if shape is None else tuple(shape),
                values.get("ragged_rank", 0),
                values.get("splits_dtype", "int64"),
            )
    raise ValueError(f"unknown kind of structure: {', '.join(values)}")


def leaves(structure: Structure) -> Iterator[Leaf]:
    """Yields the leaves, in the order of the structure."""
    if isinstance(structure, Leaf):
        yield structure
    else:
        for child in structure.children:
            yield from leaves(child)


def rebuild(structure: Structure, value_of: Callable[[Leaf], Any]) -> Any:
    """Returns an element of this structure; ``value_of`` gives the value of a leaf."""
    if isinstance(structure, Leaf):
        return value_of(structure)
    values = [rebuild(child, value_of) for child in structure.children]
    if structure.kind == "dict":
        return dict(zip(structure.keys, values, strict=True))
    if structure.kind == "namedtuple":
        from collections import namedtuple

        # A type of the same name and fields is the same structure to TensorFlow.
        return namedtuple(structure.name, structure.keys)(*values)
    return tuple(values)


def row_splits(feature: str, axis: int) -> str:
    """Returns the feature with the row splits of one axis of a ragged array."""
    return f"{feature}/row_splits_{axis}"


def indices(feature: str) -> str:
    """Returns the feature with the places of a sparse array's values."""
    return f"{feature}/indices"


def dense_shape(feature: str) -> str:
    """Returns the feature with the shape of a sparse array."""
    return f"{feature}/dense_shape"


def shape_feature(feature: str) -> str:
    """Returns the feature with the shape of each example's array."""
    return f"{feature}/shape"


def feature_name(
    path: Sequence[Any], taken: Mapping[str, Any], ragged_rank: int = 0
) -> str:
    """Returns the name of the feature at a path of keys, unlike those that are taken.

    The features that belong to it, if it is ragged or sparse, are not taken, either.

    >>> feature_name(("a", "b"), {}), feature_name(("a/b",), {"a/b": None})
    ('a/b', 'a/b#2')
    """
    name = "/".join(map(str, path)) or ONLY
    for k in itertools.count(1):
        unlike = name if k == 1 else f"{name}#{k}"
        parts = [row_splits(unlike, axis) for axis in range(ragged_rank)]
        if not {unlike, indices(unlike), dense_shape(unlike), *parts} & set(taken):
            return unlike
    raise AssertionError("numbers end")


def add_feature(
    specs: dict[str, FeatureSpec],
    name: str,
    dtype: str,
    shape: Shape | None,
    encoding: str | None = None,
    *,
    optional: bool = False,
    has_shape: bool | None = None,
) -> None:
    """Adds a feature, after the one with the shape of its arrays, if there is one.

    Parameters
    ----------
    specs : dict
        The features by name.
    encoding : str, optional
        Default: that of :func:`.encoding_for`.
    has_shape : bool, optional
        Whether the shape of each array is stored. Default: if the number of its values
        does not show it.
    """
    shape_in = None
    if needs_shape(shape) if has_shape is None else has_shape:
        shape_in = feature_name((shape_feature(name),), specs)
        specs[shape_in] = FeatureSpec(
            shape_in,
            "int64",
            (None if shape is None else len(shape),),
            INT64_LIST,
            f"shape of {name}",
            optional=optional,
        )
    specs[name] = FeatureSpec(
        name,
        dtype,
        shape,
        encoding or encoding_for(dtype, shape),
        shape_in=shape_in,
        optional=optional,
    )


def needed_features(
    components: Iterable[str],
    specs: Mapping[str, FeatureSpec],
    structure: Structure | None,
) -> dict[str, FeatureSpec]:
    """Returns the specs of components, and of the features that belong to them."""
    names = set(components)
    for leaf in leaves(structure) if structure is not None else ():
        if leaf.feature in names and leaf.kind == "ragged":
            names |= {row_splits(leaf.feature, i) for i in range(leaf.ragged_rank)}
        elif leaf.feature in names and leaf.kind == "sparse":
            names |= {indices(leaf.feature), dense_shape(leaf.feature)}
    names |= {
        specs[name].shape_in or name
        for name in names
        if not specs[name].has_fixed_shape
    }
    return {name: spec for name, spec in specs.items() if name in names}


def component_names(
    specs: Mapping[str, FeatureSpec], structure: Structure | None
) -> list[str]:
    """Returns the features that are components, and not parts of others."""
    if structure is not None:
        return [leaf.feature for leaf in leaves(structure) if leaf.feature]
    shapes = {spec.shape_in for spec in specs.values()}
    return [name for name in specs if name not in shapes]
