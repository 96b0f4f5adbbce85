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
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
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
    """The features of examples, as far as they were seen.

    Parameters
    ----------
    first : sequence of mapping
        The first examples: they decide the features and their encodings.
    dtypes : mapping
        Feature to dtype; these features may be missing in the first examples.

    Attributes
    ----------
    specs : dict
        The specs by name; :meth:`values` widens the shapes and what may be missing.
    """

    def __init__(self, first: Sequence[Mapping[str, Any]], dtypes: Mapping[str, Any]):
        self._dtypes = {name: checked_dtype(name, dtypes[name]) for name in dtypes}
        self._names: dict[Path, str] = {}
        self.specs: dict[str, FeatureSpec] = {}
        flat = [dict(_flat(example, ())) for example in first]
        for path in _paths(flat, dtypes):
            name = feature_name(path, self.specs)
            self._names[path] = name
            found = [example.get(path) for example in flat]
            arrays = {
                number: _of_example(number, as_array, name, value)
                for number, value in enumerate(found)
                if value is not None
            }
            if not arrays and name not in self._dtypes:
                raise InputError(
                    f"Feature {name} is None in the first {len(first)} examples, so "
                    f"its type is unknown. Give `dtypes`, for example "
                    f"dtypes={{{name!r}: 'float32'}}."
                )
            dtype = self._dtypes.get(name) or common_dtype(name, list(arrays.values()))
            for number, array in arrays.items():
                _of_example(number, cast, name, array, dtype)
            optional = len(arrays) < len(found) or not found
            self._add(name, list(arrays.values()), dtype, optional)

    def _add(
        self, name: str, arrays: Sequence[Array], dtype: str, optional: bool
    ) -> None:
        shapes = list(dict.fromkeys(array.shape for array in arrays))
        shape: Shape | None = shapes[0] if shapes else ()
        for other in shapes[1:]:
            shape = merge_shapes(shape, other)
        is_list = all(isinstance(array, PythonValues) for array in arrays)
        encoding = encoding_for(dtype, shape)
        if is_list and numpy_dtype(dtype).kind in "bi":
            encoding = INT64_LIST
        add_feature(
            self.specs,
            name,
            dtype,
            shape,
            encoding,
            optional=optional,
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
                self._refuse(path, number)
        made: dict[str, Any] = {}
        for path, name in self._names.items():
            value = flat.get(path)
            spec = self.specs[name]
            if value is None:
                if not spec.optional:
                    self.specs[name] = replace(spec, optional=True)
                    self._optional_shape(spec)
                array = None
            else:
                array = _of_example(number, as_array, name, value)
                array = _of_example(number, cast, name, array, spec.dtype)
                if array.shape != spec.shape:
                    self._widen(spec, array.shape, number)
            made[name] = array
            if spec.shape_in is not None:
                made[spec.shape_in] = None if array is None else np.array(array.shape)
        return made

    def _refuse(self, path: Path, number: int) -> None:
        name = "/".join(path)
        for known in self._names:
            if _is_above(known, path) or _is_above(path, known):
                raise InputError(f"Example {number}: {_dict_and_value(known, path)}")
        raise InputError(
            f"Example {number} has the feature {name!r}, which the first examples do "
            f"not have. Give `dtypes`, for example dtypes={{{name!r}: 'float32'}}."
        )

    def _optional_shape(self, spec: FeatureSpec) -> None:
        if spec.shape_in is not None:
            shapes = self.specs[spec.shape_in]
            self.specs[spec.shape_in] = replace(shapes, optional=True)

    def _widen(self, spec: FeatureSpec, shape: tuple[int, ...], number: int) -> None:
        """Lets a spec cover another shape, if its encoding can."""
        merged = merge_shapes(spec.shape, shape)
        only_first = (
            merged is not None and None not in merged[1:] and 0 not in shape[1:]
        )
        has_shape = spec.encoding in (TENSOR, *IMAGES) or spec.shape_in is not None
        if not (only_first or (has_shape and not spec.sequence)):
            raise InputError(
                f"Example {number}: feature {spec.name} has the shape {shape}, but the "
                f"examples before have {_shape_text(spec.shape)}. Only the size of the "
                "first axis may change later; let the first examples show the other "
                "changes, or record such arrays in a data set of their own."
            )
        self.specs[spec.name] = replace(spec, shape=merged)

    @property
    def structure(self) -> Structure:
        """The structure of an example: dicts within dicts."""
        return _structure(
            [(path, Leaf("tensor", name)) for path, name in self._names.items()]
        )


def _of_example(number: int, function: Callable[..., Array], *args: Any) -> Array:
    """Calls a function; its error names the example."""
    try:
        return function(*args)
    except InputError as error:
        raise InputError(f"Example {number}: {error}") from error


def _paths(flat: Sequence[Mapping[Path, Any]], dtypes: Iterable[str]) -> list[Path]:
    """Returns the paths of the features, in the order in which they appear.

    Raises
    ------
    InputError
        If a value is a dict in one example, and not in another.
    """
    paths = {path: None for example in flat for path in example}
    present = {
        p for example in flat for p, value in example.items() if value is not None
    }
    above: dict[Path, Path] = {}
    for path in paths:
        above.update((path[:k], path) for k in range(1, len(path)))
    for path in list(paths):
        if path in above and path in present:
            raise InputError(_dict_and_value(above[path], path))
        if path in above:  # None instead of a dict: all of it is missing
            del paths[path]
    names = {"/".join(path) for path in paths}
    paths.update((tuple(name.split("/")), None) for name in dtypes if name not in names)
    return list(paths)


def _is_above(path: Path, other: Path) -> bool:
    return len(path) < len(other) and other[: len(path)] == path


def _dict_and_value(path: Path, other: Path) -> str:
    """Says that a key has a dict in one example, and a value in another."""
    outer, inner = sorted(("/".join(path), "/".join(other)), key=len)
    return (
        f"{outer!r} is a value in one example, and a dict with {inner!r} in another. "
        "Give the value another name."
    )


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
        if not _is_name(key):
            where = f" in {'/'.join(path)!r}" if path else ""
            raise InputError(
                "The names of features must be texts, which UTF-8 can encode and which "
                f"hold no zero; got {key!r}{where}."
            )
        yield from _flat(value, (*path, key))


def _is_name(key: Any) -> bool:
    if not isinstance(key, str):
        return False
    # Readers in C end a name at a zero.
    return "\0" not in key and key == key.encode(errors="replace").decode()


def _shape_text(shape: Shape | None) -> str:
    return "any shape" if shape is None else str(shape).replace("None", "any")
