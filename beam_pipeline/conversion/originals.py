"""Records of tf_dataset as the features of our layout."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.examples.decoding import arrow_columns
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.examples.structure import add_feature
from beam_pipeline.read.original_records import OriginalSpec, decode_part


def natural_specs(original: Iterable[OriginalSpec]) -> dict[str, FeatureSpec]:
    """Returns the features that store elements of tf_dataset in our layout.

    A float32 array becomes a ``float_list``, for example, and not a serialised tensor.
    """
    specs: dict[str, FeatureSpec] = {}
    for of in original:
        add_feature(specs, of.name, of.dtype, of.shape)
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
        arrays, *imaginary = (_tensors(stored, part, of) for part in of.stored)
        if imaginary:
            arrays = [
                _complex(of, *pair) for pair in zip(arrays, *imaginary, strict=True)
            ]
        columns[of.name] = arrays if None in of.shape else np.stack(arrays)
        shape_in = specs[of.name].shape_in
        if shape_in is not None:
            columns[shape_in] = [array.shape for array in arrays]
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
            arrays.append(decode_part(of, texts[0]))
        except ValueError as error:
            raise ValueError(f"feature {part}: {error}") from error
    return arrays


def _complex(
    of: OriginalSpec, real: npt.NDArray[Any], imag: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """Returns a complex array from its parts, bit by bit."""
    if real.shape != imag.shape:
        raise ValueError(
            f"the parts of feature {of.name} have the shapes {real.shape} and "
            f"{imag.shape}"
        )
    array = np.empty(real.shape, of.dtype)
    array.real, array.imag = real, imag
    return array
