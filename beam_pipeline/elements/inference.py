"""Features of dicts: their dtypes, shapes and encodings follow from the values.

======================================  =================================
value                                   feature
======================================  =================================
int, bool, or a list of them            int64, bool: an ``int64_list``
float, or a list of them                float32: a ``float_list``
str or bytes, or a list of them         string: a ``bytes_list``
numpy array or scalar                   its dtype and shape
dict                                    a feature for each key, ``outer/inner``
None, or no such key                    missing in this example
======================================  =================================

A list may differ in length between examples, an array in the size of its first axis.
The first examples decide the features, their types and encodings. What all of them
have, such as lengths, shows when they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from beam_pipeline.elements.values import (
    Array,
    PythonValues,
    as_array,
    cast,
    checked_dtype,
    common_dtype,
)
from beam_pipeline.errors import InputError
from beam_pipeline.examples.spec import (
    IMAGES,
    INT64_LIST,
    TENSOR,
    FeatureSpec,
    Shape,
    encoding_for,
    merge_shapes,
    needs_shape,
    numpy_dtype,
)
from beam_pipeline.examples.structure import (
    Leaf,
    Node,
    Structure,
    add_feature,
    feature_name,
)

Path = tuple[str, ...]


class Inference:
    """The features of examples, by the first of them.

    Parameters
    ----------
    first : sequence of mapping
        The first examples: they decide the features and their encodings.
    dtypes : mapping
        Feature to dtype; these features may be missing in the first examples.

    Attributes
    ----------
    specs : dict
        The specs by name.
    """

    def __init__(self, first: Sequence[Mapping[str, Any]], dtypes: Mapping[str, Any]):
        dtypes = {n: checked_dtype(f"dtypes: {n}", dtypes[n]) for n in dtypes}
        self._names: dict[Path, str] = {}
        self.specs: dict[str, FeatureSpec] = {}
        flat = [dict(_flat(example, ())) for example in first]
        paths = list(dict.fromkeys(path for example in flat for path in example))
        known = {"/".join(path) for path in paths}
        paths += [tuple(name.split("/")) for name in dtypes if name not in known]
        parents = {path[:k] for path in paths for k in range(1, len(path))}
        for path in paths:
            values = {
                number: example[path]
                for number, example in enumerate(flat)
                if example.get(path) is not None
            }
            if path in parents:
                if values:
                    raise InputError(
                        f"{'/'.join(path)!r} is a value in one example, and a dict in "
                        "another. Give the value another name."
                    )
                continue  # None instead of a dict: all of it is missing
            name = self._names[path] = feature_name(path, self.specs)
            if not values and name not in dtypes:
                raise InputError(
                    f"Feature {name} is None in the first {len(first)} examples, so "
                    f"its type is unknown. Give `dtypes`, for example "
                    f"dtypes={{{name!r}: 'float32'}}."
                )
            self._add(name, values, dtypes.get(name), len(values) < len(flat))

    def _add(
        self, name: str, values: Mapping[int, Any], dtype: str | None, optional: bool
    ) -> None:
        """Adds a feature with some values, by the numbers of their examples."""
        arrays = {
            number: _of_example(number, as_array, name, value)
            for number, value in values.items()
        }
        dtype = dtype or common_dtype(name, list(arrays.values()))
        for number, array in arrays.items():
            _of_example(number, cast, name, array, dtype)
        shapes: list[Shape | None] = [array.shape for array in arrays.values()]
        shape = reduce(merge_shapes, dict.fromkeys(shapes)) if shapes else ()
        is_list = all(isinstance(array, PythonValues) for array in arrays.values())
        is_whole = numpy_dtype(dtype).kind in "bi"
        add_feature(
            self.specs,
            name,
            dtype,
            shape,
            INT64_LIST if is_list and is_whole else encoding_for(dtype, shape),
            optional=optional or not values,
            has_shape=needs_shape(shape) or None in (shape or ())[1:],
        )

    def values(self, example: Mapping[str, Any], number: int) -> dict[str, Any]:
        """Returns the features of an example; None for those that it lacks.

        Raises
        ------
        InputError
            If the example has another feature, or one of another type or shape.
        """
        flat = dict(_flat(example, ()))
        for path, value in flat.items():
            if path not in self._names and value is not None:
                name = "/".join(path)
                raise InputError(
                    f"Example {number} has the feature {name!r}, which the first "
                    "examples do not have. Give `dtypes`, for example "
                    f"dtypes={{{name!r}: 'float32'}}."
                )
        made: dict[str, Any] = {}
        for path, name in self._names.items():
            array, spec = None, self.specs[name]
            if flat.get(path) is not None:
                array = _of_example(number, as_array, name, flat[path])
                array = _of_example(number, cast, name, array, spec.dtype)
                if array.shape != spec.shape:
                    _check_shape(spec, array.shape, number)
            made[name] = array
            if spec.shape_in is not None:
                made[spec.shape_in] = None if array is None else np.array(array.shape)
        return made

    @property
    def structure(self) -> Structure:
        """The structure of an element: dicts within dicts."""
        return _structure(
            [(path, Leaf("tensor", name)) for path, name in self._names.items()]
        )


def _check_shape(spec: FeatureSpec, shape: tuple[int, ...], number: int) -> None:
    """Raises InputError if the encoding of a feature cannot have this shape, too."""
    merged = merge_shapes(spec.shape, shape)
    only_first = merged is not None and None not in merged[1:] and 0 not in shape[1:]
    has_shape = spec.encoding in (TENSOR, *IMAGES) or spec.shape_in is not None
    if not (only_first or (has_shape and not spec.sequence)):
        before = str(spec.shape).replace("None", "any")
        raise InputError(
            f"Example {number}: feature {spec.name} has the shape {shape}, but the "
            f"first examples have {before}. Only the size of the first axis may change "
            "later; let the first examples show the other changes, or record such "
            "arrays in a data set of their own."
        )


def _of_example(number: int, function: Callable[..., Array], *args: Any) -> Array:
    """Calls a function; its error names the example."""
    try:
        return function(*args)
    except InputError as error:
        raise InputError(f"Example {number}: {error}") from error


def _structure(pairs: Sequence[tuple[Path, Leaf]]) -> Node:
    below: dict[str, list[tuple[Path, Leaf]]] = {}
    for path, leaf in pairs:
        below.setdefault(path[0], []).append((path[1:], leaf))
    children = [
        group[0][1] if group[0][0] == () else _structure(group)
        for group in below.values()
    ]
    return Node("dict", tuple(below), tuple(children))


def _flat(example: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if not isinstance(example, Mapping):
        yield path, example
        return
    for key, value in example.items():
        # Readers in C end a name at a zero.
        if (
            not isinstance(key, str)
            or "\0" in key
            or key != key.encode(errors="replace").decode()
        ):
            where = f" in {'/'.join(path)!r}" if path else ""
            raise InputError(
                "The names of features must be texts, which UTF-8 can encode and which "
                f"hold no zero; got {key!r}{where}."
            )
        yield from _flat(value, (*path, key))
