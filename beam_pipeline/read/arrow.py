"""Records as tables of Arrow, which pandas, Polars, DuckDB and Parquet read.

::

    number, text                    a value
    array of one shape              a tensor (fixed_shape_tensor), or fixed-size lists
    arrays of different shapes,     lists of lists, null where an example
    or that examples may lack       lacks the feature

The values of arrays of numbers are those that were read, without a copy.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_pipeline.arrays import BYTES, numpy_dtype
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.read.choices import check_name


def arrow_schema(
    specs: Mapping[str, FeatureSpec], tensors: bool, binary: Sequence[str] = ()
) -> Any:
    """Returns the schema of Arrow for the features of a data set.

    A complex number becomes two real ones, on an axis at the end. ``bfloat16``
    and its kin become float32.

    Parameters
    ----------
    tensors : bool
        Whether arrays of one shape are tensors; else they are fixed-size lists.
    binary : sequence of str
        Features whose texts are bytes.

    Raises
    ------
    InputError
        If examples have arrays with different numbers of axes, or there is no feature
        of a name in ``binary``.
    OptionError
        If such a feature holds numbers.
    """
    names = (binary,) if isinstance(binary, str) else binary
    for name in names:
        check_name("feature", name, specs)
        if not specs[name].is_text:
            raise OptionError("binary", "must name features of texts or bytes", name)
    return pa.schema(
        [
            pa.field(
                name,
                _type_of(spec, tensors, name in names or spec.dtype == BYTES),
                metadata={"description": spec.description} if spec.description else {},
            )
            for name, spec in specs.items()
        ]
    )


def _type_of(spec: FeatureSpec, tensors: bool, is_binary: bool) -> Any:
    if spec.shape is None:
        raise InputError(
            f"The feature {spec.name} has no type in Arrow, because its number of axes "
            "differs between examples. Choose others with open_records(features=...)."
        )
    shape: tuple[int | None, ...] = spec.shape
    if spec.is_text:
        kind = pa.binary() if is_binary else pa.string()
    else:
        values = _real(np.zeros(1, numpy_dtype(spec.dtype)))
        kind, shape = pa.from_numpy_dtype(values.dtype), (*shape, *values.shape[1:])
    is_fixed = spec.is_fixed and not spec.is_text
    if shape and is_fixed and tensors:
        return pa.fixed_shape_tensor(kind, shape)
    for size in reversed(shape):
        kind = pa.list_(kind, size) if is_fixed else pa.list_(kind)
    return kind


def record_batches(
    batches: Iterator[Mapping[str, Any]], schema: Any, specs: Mapping[str, FeatureSpec]
) -> Iterator[Any]:
    """Yields batches of records as those of Arrow.

    Parameters
    ----------
    batches : iterator of mapping
        As :meth:`.Records.read` returns them.
    schema : pyarrow.Schema
        From :func:`arrow_schema`.

    Raises
    ------
    InputError
        If a text is not UTF-8, and its feature is not one of bytes.
    """
    for batch in batches:
        columns = []
        for field in schema:
            try:
                columns.append(_column(batch[field.name], specs[field.name], field))
            except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeDecodeError) as error:
                raise InputError(
                    f"The feature {field.name} has a text that is not valid UTF-8 "
                    f"({error}). Name it in binary=[...], which makes bytes of its "
                    "texts."
                ) from error
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _column(values: Any, spec: FeatureSpec, field: Any) -> Any:
    """Returns the values of a feature in a batch as an array of Arrow."""
    if isinstance(values, np.ndarray) and spec.is_fixed and not spec.is_text:
        numbers = _real(values)
        if numbers.ndim == 1:
            return pa.array(numbers, field.type)
        if isinstance(field.type, pa.FixedShapeTensorType):
            return pa.FixedShapeTensorArray.from_numpy_ndarray(numbers)
        made = pa.array(numbers.reshape(-1))
        for size in reversed(numbers.shape[1:]):
            made = pa.FixedSizeListArray.from_arrays(made, size)
        return made
    depth, kind = 0, field.type
    while pa.types.is_list(kind):
        depth, kind = depth + 1, kind.value_type
    is_binary = pa.types.is_binary(kind)
    return pa.array([_nested(value, depth, is_binary) for value in values], field.type)


def _nested(value: Any, depth: int, is_binary: bool) -> Any:
    """Returns a value, or an array of ``depth`` axes as lists of arrays of one axis."""
    if value is None:
        return None
    if isinstance(value, str | bytes):
        return value.encode() if is_binary and isinstance(value, str) else value
    array = _real(np.asarray(value))
    if depth == 0:
        return array.item()
    if depth == 1 and array.dtype != object:
        return array
    return [_nested(row, depth - 1, is_binary) for row in array]


def _real(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Returns numbers of a dtype that Arrow has."""
    if values.dtype.kind == "c":
        real = values.real.dtype
        parts: npt.NDArray[Any] = np.ascontiguousarray(values).view(real)
        return parts.reshape(*values.shape, 2)
    return values.astype(np.float32) if values.dtype.kind == "V" else values
