"""What examples hold: the specs of features, which writer and reader share.

A spec has the dtype, the shape and the encoding of a feature. An example holds a flat
set of features. Each may be an element of nested dicts and tuples, with features as
leaves; the metadata keep this structure as JSON, and a reader rebuilds the element from
it::

    {"dict": [["signal", {"tensor": "signal"}], ["label", {"tuple": [...]}]]}

The names of features are the keys on the way to a leaf, joined by ``/``; the places of
tuples are numbers. A single value without a key is named ``element``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np

from beam_pipeline.arrays import STRING, TEXTS, numpy_dtype
from beam_pipeline.encodings import (
    BYTES_LIST,
    CODECS,
    ENCODINGS,
    FLOAT_LIST,
    INT64_LIST,
    LISTS,
    RAW,
    Codec,
)

SHORT_LIST = 16

Shape = tuple[int | None, ...]

# The metadata hold these texts, so they stay as they are.
DESCRIPTIONS = {
    "class": "the clip's class",
    "target": "index of the class in the sorted list of classes",
    "filepath": "the clip's file, relative to its input",
    "index": "the clip's place in the listing of the inputs",
    "win_start_idx": "first frame of the window in the clip, at the output rate",
    "fs": "output sample rate, Hz",
    "valid_frames": "frames of the window before the padding",
    "copy": "0: the window as it is; k: its k-th augmented copy",
}


# In the metadata of each feature; the other fields are there if they have a value.
_ALWAYS_HELD = ("dtype", "shape", "encoding", "description")


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """One feature: its type in memory, and its encoding in a file.

    Attributes
    ----------
    dtype : str
        The name of a numpy dtype, ``string`` or ``bytes``.
    shape : tuple of int or None, or None
        The shape in one example. A size that differs between examples is None; the
        shape is None if the number of axes differs.
    encoding : str
        One of :mod:`beam_pipeline.encodings`.
    axes : tuple of mapping
        The meaning of the last axes; spectra have it.
    shape_in : str or None
        The feature with the shape of each example's array, where its values alone do
        not show it.
    optional : bool
        Whether examples may lack the feature.
    sequence : bool
        Whether the first axis is the steps of a ``tf.train.SequenceExample``.
    rate_hz : int or None
        The sample rate of a signal, if its encoding needs one.
    """

    name: str
    dtype: str
    shape: Shape | None
    encoding: str
    description: str = ""
    axes: tuple[Mapping[str, Any], ...] = ()
    shape_in: str | None = None
    optional: bool = False
    sequence: bool = False
    rate_hz: int | None = None

    @property
    def has_fixed_shape(self) -> bool:
        """Whether the shape is the same in all examples."""
        return self.shape is not None and None not in self.shape

    @property
    def is_text(self) -> bool:
        """Whether the values are texts or bytes."""
        return self.dtype in TEXTS

    @property
    def tensor_dtype(self) -> str:
        """The dtype of TensorFlow, which has one for texts and bytes."""
        return STRING if self.is_text else self.dtype

    @property
    def sizes(self) -> tuple[int, ...]:
        """The shape; 0 stands for the sizes that differ between examples."""
        return tuple(size or 0 for size in self.shape or ())

    @property
    def is_fixed(self) -> bool:
        """Whether every example has the feature, with the same shape and some values.

        TensorFlow counts a list without values as missing.
        """
        is_there = self.has_fixed_shape and 0 not in self.sizes
        return is_there and not (self.optional or self.sequence)

    @property
    def entry_shape(self) -> Shape | None:
        """The shape of one example's array; of a step of it, if it is a sequence."""
        return self.shape[1:] if self.shape and self.sequence else self.shape

    @property
    def codec(self) -> Codec:
        """How an example holds the values."""
        return CODECS[self.encoding]

    @property
    def stored_in(self) -> str:
        """Which of the ``LISTS`` of an example holds the values."""
        return self.codec.stored_in

    @property
    def stored_dtype(self) -> str:
        """The dtype of the values in a file, if the codec stores an array."""
        return self.codec.stored_dtype or self.dtype

    def to_json(self) -> dict[str, Any]:
        """Returns the spec as the metadata hold it, without its name."""
        values = {each.name: getattr(self, each.name) for each in fields(self)[1:]}
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
            if value or name in _ALWAYS_HELD
        }


def encoding_for(dtype: str, shape: Shape | None) -> str:
    """Returns the default encoding of a feature.

    float32 becomes a ``float_list`` and text a ``bytes_list``. Integers become an
    ``int64_list`` if they are few, or if they are a list of int64 of any length. Other
    arrays are ``raw``, because a list would widen them.
    """
    if dtype in TEXTS:
        return BYTES_LIST
    if dtype == "float32":
        return FLOAT_LIST
    if dtype == "uint64" or numpy_dtype(dtype).kind not in "biu":
        return RAW
    is_short = shape == () or (
        shape is not None
        and len(shape) == 1
        and (shape[0] or SHORT_LIST + 1) <= SHORT_LIST
    )
    return INT64_LIST if is_short or (dtype == "int64" and shape == (None,)) else RAW


def described(name: str) -> FeatureSpec:
    """Returns the spec of a feature in ``DESCRIPTIONS``, which no transform makes."""
    dtype = STRING if name in ("class", "filepath") else "int64"
    return FeatureSpec(name, dtype, (), encoding_for(dtype, ()), DESCRIPTIONS[name])


def encoding_problem(spec: FeatureSpec, encoding: str) -> str | None:
    """Says why examples cannot hold a feature in an encoding; None if they can.

    >>> encoding_problem(FeatureSpec("x", "uint8", (59, 64), RAW), "png")
    """
    if encoding not in CODECS:
        return f"must be one of {', '.join(ENCODINGS)}"
    problem = CODECS[encoding].problem(spec.dtype, spec.shape, spec.rate_hz)
    if problem is None:
        return None
    return f"its values are {spec.dtype} of shape {spec.shape}, but they {problem}"


def needs_shape(shape: Shape | None) -> bool:
    """Whether the number of values alone does not show the shape."""
    if shape is None:
        return True
    if None not in shape:
        return False
    return shape.count(None) > 1 or 0 in shape


def merge_shapes(a: Shape | None, b: Shape | None) -> Shape | None:
    """Returns the shape that covers both; None for another number of axes.

    >>> merge_shapes((2, 3), (4, 3))
    (None, 3)
    """
    if a is None or b is None or len(a) != len(b):
        return None
    return tuple(m if m == n else None for m, n in zip(a, b, strict=True))


class FeatureDescription(NamedTuple):
    """Names to ``tf.io`` features: of an example or a context, and of its steps."""

    context: dict[str, Any]
    sequences: dict[str, Any]


def describe_features(
    specs: Mapping[str, FeatureSpec], missing: Mapping[str, Any] | None = None
) -> FeatureDescription:
    """Returns the ``tf.io`` feature of each spec.

    ==============================================  ===============================
    feature                                         described as
    ==============================================  ===============================
    of the same shape in all examples, in a list    ``FixedLenFeature(shape)``
    one array as bytes (``raw``, ``png`` ...)       ``FixedLenFeature((), string)``
    of different shapes, empty, or missing          ``VarLenFeature``
    a single value with an entry in ``missing``     ``FixedLenFeature`` with it
    a sequence                                      ``FixedLenSequenceFeature``
    ==============================================  ===============================
    """
    import tensorflow as tf

    kinds = {FLOAT_LIST: tf.float32, INT64_LIST: tf.int64}
    found = FeatureDescription({}, {})
    for name, spec in specs.items():
        kind = kinds.get(spec.encoding, tf.string)
        is_list = spec.encoding in LISTS
        if spec.sequence:
            inner = spec.sizes[1:] if is_list else ()
            found.sequences[name] = tf.io.FixedLenSequenceFeature(
                inner, kind, allow_missing=spec.optional
            )
        elif spec.is_fixed or not (spec.optional or is_list):
            shape = spec.sizes if is_list else ()
            found.context[name] = tf.io.FixedLenFeature(shape, kind)
        elif spec.optional and spec.shape == () and name in (missing or {}):
            default = (missing or {})[name]
            if not is_list:
                default = np.asarray(default, spec.stored_dtype).tobytes()
            value = tf.constant(default, kind)
            found.context[name] = tf.io.FixedLenFeature((), kind, value)
        else:
            found.context[name] = tf.io.VarLenFeature(kind)
    return found


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
        shape_in = feature_name((f"{name}/shape",), specs)
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
