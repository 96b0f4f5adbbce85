"""Records of tf_dataset as the features of our layout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.examples.decoding import arrow_columns
from beam_pipeline.examples.spec import (
    INT64_LIST,
    FeatureSpec,
    Shape,
    encoding_for,
    needs_shape,
)
from beam_pipeline.examples.structure import feature_name, shape_feature
from beam_pipeline.examples.tensor_proto import decode_tensor
from beam_pipeline.read.original_records import OriginalSpec


def natural_specs(original: Iterable[OriginalSpec]) -> dict[str, FeatureSpec]:
    """Returns the features that store elements of tf_dataset in our layout.

    A float32 array becomes a ``float_list``, for example, and not a serialised tensor.
    """
    specs: dict[str, FeatureSpec] = {}
    for of in original:
        shape_in = None
        if needs_shape(of.shape):
            shape_in = feature_name((shape_feature(of.name),), specs)
            specs[shape_in] = FeatureSpec(
                shape_in, "int64", (len(of.shape),), INT64_LIST, f"shape of {of.name}"
            )
        encoding = encoding_for(of.dtype, of.shape)
        specs[of.name] = FeatureSpec(
            of.name, of.dtype, of.shape, encoding, shape_in=shape_in
        )
    return specs


def decode_originals(
    records: Sequence[bytes],
    original: Iterable[OriginalSpec],
    specs: Mapping[str, FeatureSpec],
) -> dict[str, Any]:
    """Returns the features of some records of tf_dataset, as the encoder takes them.

    Parameters
    ----------
    original : iterable of OriginalSpec
        The features to decode.
    specs : mapping
        The specs of :func:`natural_specs`.

    Raises
    ------
    ValueError
        If a record lacks a feature, or it has another dtype or shape.
    """
    stored = arrow_columns(records, sequences=False)
    columns: dict[str, Any] = {}
    for of in original:
        parts = [_tensors(stored, part, of) for part in of.stored]
        arrays = parts[0] if len(parts) == 1 else _joined(of, *parts)
        fixed = None not in of.shape
        columns[of.name] = np.stack(arrays) if fixed else arrays
        shape_in = specs[of.name].shape_in
        if shape_in is not None:
            columns[shape_in] = [np.array(a.shape, np.int64) for a in arrays]
    return columns


def _tensors(
    stored: Mapping[str, Any], part: str, of: OriginalSpec
) -> list[npt.NDArray[Any]]:
    """Returns the tensors of one stored feature."""
    column = stored.get(part)
    if column is None or column.null_count:
        raise ValueError(f"a record lacks feature {part}")
    arrays = []
    for texts in column.to_pylist():
        if len(texts) != 1 or not isinstance(texts[0], bytes):
            raise ValueError(f"feature {part} is not the bytes of one tensor")
        try:
            array = decode_tensor(texts[0], of.stored_dtype)
        except ValueError as error:
            raise ValueError(f"feature {part}: {error}") from error
        if not _fits(array.shape, of.shape):
            raise ValueError(
                f"feature {part} has the shape {array.shape}, not {of.shape}"
            )
        arrays.append(array)
    return arrays


def _fits(shape: tuple[int, ...], wanted: Shape) -> bool:
    return len(shape) == len(wanted) and all(
        size is None or n == size for n, size in zip(shape, wanted, strict=True)
    )


def _joined(
    of: OriginalSpec,
    reals: Sequence[npt.NDArray[Any]],
    imags: Sequence[npt.NDArray[Any]],
) -> list[npt.NDArray[Any]]:
    """Returns complex arrays from their parts, bit by bit."""
    arrays = []
    for real, imag in zip(reals, imags, strict=True):
        if real.shape != imag.shape:
            raise ValueError(
                f"the parts of feature {of.name} have the shapes {real.shape} and "
                f"{imag.shape}"
            )
        array = np.empty(real.shape, of.dtype)
        array.real, array.imag = real, imag
        arrays.append(array)
    return arrays
