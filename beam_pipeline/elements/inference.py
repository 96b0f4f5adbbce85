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

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.examples.spec import (
    INT64_LIST,
    FeatureSpec,
    Shape,
    encoding_for,
    merge_shapes,
    numpy_dtype,
)
from beam_pipeline.examples.structure import (
    Leaf,
    Node,
    Structure,
    feature_name,
    shape_feature,
)

_PYTHON_DTYPES = {"b": "bool", "i": "int64", "f": "float32", "c": "complex64"}

Array = npt.NDArray[Any]
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

    def __init__(self, first: Sequence[Mapping[str, Any]], dtypes: Mapping[str, str]):
        self._dtypes = dict(dtypes)
        self._names: dict[Path, str] = {}
        self.specs: dict[str, FeatureSpec] = {}
        flat = [dict(_flat(example, ())) for example in first]
        paths = dict.fromkeys(path for example in flat for path in example)
        for name in dtypes:
            paths.setdefault(tuple(name.split("/")))
        for path in paths:
            name = feature_name(path, self.specs)
            self._names[path] = name
            found = [example.get(path) for example in flat]
            arrays = [self._array(name, v) for v in found if v is not None]
            if not arrays and name not in dtypes:
                raise InputError(
                    f"Feature {name} is None in the first {len(first)} examples, so "
                    f"its type is unknown. Give `dtypes`, for example "
                    f"dtypes={{{name!r}: 'float32'}}."
                )
            self._add(name, arrays, len(arrays) < len(found))

    def _add(self, name: str, arrays: Sequence[Array], optional: bool) -> None:
        dtype = self._dtypes.get(name) or _common_dtype(name, arrays)
        shapes = list(dict.fromkeys(array.shape for array in arrays))
        shape: Shape | None = shapes[0] if shapes else ()
        for other in shapes[1:]:
            shape = merge_shapes(shape, other)
        is_list = len(arrays) > 0 and all(_is_list(array) for array in arrays)
        encoding = encoding_for(dtype, shape)
        if is_list and numpy_dtype(dtype).kind in "bi":
            encoding = INT64_LIST
        shape_in = None
        if shape is None or None in shape[1:]:
            shape_in = feature_name((shape_feature(name),), self.specs)
            self.specs[shape_in] = FeatureSpec(
                shape_in,
                "int64",
                (None if shape is None else len(shape),),
                INT64_LIST,
                f"shape of {name}",
                optional=optional,
            )
        self.specs[name] = FeatureSpec(
            name, dtype, shape, encoding, shape_in=shape_in, optional=optional
        )

    def _array(self, name: str, value: Any) -> Array:
        array = as_array(name, value)
        wanted = self._dtypes.get(name)
        return array if wanted is None else _cast(name, array, wanted)

    def values(self, example: Mapping[str, Any], number: int) -> dict[str, Any]:
        """Returns the features of an example; None for those that it lacks.

        Raises
        ------
        InputError
            If the example has another feature, or one of another type or shape.
        """
        flat = dict(_flat(example, ()))
        for path in flat:
            if path not in self._names:
                name = "/".join(path)
                raise InputError(
                    f"Example {number} has the feature {name!r}, which the first "
                    f"examples do not have. Give `dtypes`, for example "
                    f"dtypes={{{name!r}: 'float32'}}."
                )
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
                array = _cast(name, as_array(name, value), spec.dtype, number)
                if array.shape != spec.shape:
                    self._widen(spec, array.shape, number)
            made[name] = array
            if spec.shape_in is not None:
                made[spec.shape_in] = None if array is None else np.array(array.shape)
        return made

    def _optional_shape(self, spec: FeatureSpec) -> None:
        if spec.shape_in is not None:
            shapes = self.specs[spec.shape_in]
            self.specs[spec.shape_in] = replace(shapes, optional=True)

    def _widen(self, spec: FeatureSpec, shape: tuple[int, ...], number: int) -> None:
        """Lets a spec cover another shape, if its encoding can."""
        merged = merge_shapes(spec.shape, shape)
        only_first = merged is not None and None not in merged[1:]
        if spec.shape_in is None and not (only_first and 0 not in shape[1:]):
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
        if not isinstance(key, str):
            where = f" in {'/'.join(path)!r}" if path else ""
            raise InputError(
                f"The names of features must be texts; got {key!r}{where}."
            )
        yield from _flat(value, (*path, key))


class _List(np.ndarray):
    """Values that were no numpy array."""


def _is_list(array: Array) -> bool:
    return isinstance(array, _List)


def as_array(name: str, value: Any) -> Array:
    """Returns a value of a feature as an array that can be stored.

    Raises
    ------
    InputError
        If it cannot be stored.
    """
    if isinstance(value, np.ndarray | np.generic):
        array = np.asarray(value)
    else:
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise InputError(
                f"Feature {name}: {_short(value)} is a list of lists of different "
                "lengths. Record a tf.data.Dataset of ragged tensors instead."
            ) from error
        if array.dtype.kind in _PYTHON_DTYPES and not hasattr(value, "__array__"):
            if array.size == 0:
                return array.astype(np.float32).view(_Empty)
            array = array.astype(_PYTHON_DTYPES[array.dtype.kind]).view(_List)
    if array.dtype.kind in "SU":
        return _texts(array)
    if array.dtype.kind == "O" and all(
        isinstance(item, str | bytes) for item in array.ravel().tolist()
    ):
        return array
    if array.dtype.kind not in "biufc" and str(array.dtype) != "bfloat16":
        raise InputError(
            f"Feature {name}: {_short(value)} cannot be stored. Give numbers, texts, "
            "bytes, lists or numpy arrays of them."
        )
    if array.dtype.char in "gG":
        raise InputError(
            f"Feature {name} has the dtype {array.dtype}, whose format differs between "
            "machines. Convert it to float64 or complex128."
        )
    return array


class _Empty(_List):
    """An empty list, which fits every dtype."""


def _texts(array: Array) -> Array:
    """Returns texts as objects: numpy's own texts lose zeros at their ends."""
    return array.astype(object)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:60]}... ({type(value).__name__})"


def _dtype_of(array: Array) -> str:
    return "string" if array.dtype.kind == "O" else str(array.dtype.name)


def _common_dtype(name: str, arrays: Sequence[Array]) -> str:
    found = {_dtype_of(a) for a in arrays if not isinstance(a, _Empty)}
    python = {_dtype_of(a) for a in arrays if _is_list(a) and not isinstance(a, _Empty)}
    if len(found) > 1 and found == python and "string" not in found:
        return "float32" if "float32" in found else "int64"
    if len(found) > 1:
        raise InputError(
            f"Feature {name} has several types: {', '.join(sorted(found))}. Convert "
            "the values to one of them, or give `dtypes`."
        )
    return found.pop() if found else "float32"


def _cast(name: str, array: Array, dtype: str, number: int | None = None) -> Array:
    """Returns the values with a dtype, if it holds every one of them."""
    if _dtype_of(array) == dtype:
        return array
    where = "" if number is None else f"Example {number}: "
    try:
        wanted = numpy_dtype(dtype)
    except (TypeError, AttributeError) as error:
        raise OptionError("dtypes", f"no dtype for {name}", dtype) from error
    if isinstance(array, _Empty):
        return np.zeros(array.shape, wanted)
    if dtype != "string" and _dtype_of(array) != "string":
        with np.errstate(all="ignore"):
            cast = array.astype(wanted)
        exact = cast.astype(array.dtype) == array
        # Python's floats become float32 in any case.
        if np.all(exact | (array != array)):
            return cast
        if _is_list(array) and array.dtype.kind == wanted.kind == "f":
            return cast
    raise InputError(
        f"{where}feature {name} is {dtype}, but {_short(array.tolist())} is "
        f"{_dtype_of(array)} and does not fit."
    )


def _shape_text(shape: Shape | None) -> str:
    return "any shape" if shape is None else str(shape).replace("None", "any")
