"""Features of whole clips: which sizes depend on the length of the clip.

A transform runs on silence of two lengths. The sizes that differ are None in the spec::

    signal     (65536,)    and (165539,)      ->  (None,)
    log_mel    (253, 64)   and (643, 64)      ->  (None, 64)
    lufs       ()          and ()             ->  ()
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from beam_pipeline.errors import RecipeError
from beam_pipeline.examples.spec import (
    FLAC,
    IMAGES,
    TENSOR,
    FeatureSpec,
    encoding_for,
    merge_shapes,
    needs_shape,
)
from beam_pipeline.transforms.steps import TRANSFORM

# By how many frames one length is longer: more than any hop, and odd.
MORE_FRAMES = 100_003

_Axis = Mapping[str, Any]


def of_any_length(short: FeatureSpec, long: FeatureSpec) -> FeatureSpec:
    """Returns the spec of a feature of clips of any length, from two lengths.

    Raises
    ------
    RecipeError
        If the type or the number of axes depends on the length.
    """
    assert short.shape is not None
    assert long.shape is not None
    if short.dtype != long.dtype or len(short.shape) != len(long.shape):
        raise RecipeError(
            TRANSFORM.field,
            f"returns {short.dtype} {short.shape} for a short clip, but {long.dtype} "
            f"{long.shape} for a long one; the type and the number of axes must be the "
            "same for all clips",
            short.name,
        )
    shape = merge_shapes(short.shape, long.shape)
    return replace(
        short,
        shape=shape,
        encoding=encoding_for(short.dtype, shape),
        axes=_merge_axes(short.axes, long.axes),
    )


def check_holds_shape(spec: FeatureSpec) -> None:
    """Raises RecipeError if examples would not show the shape of their arrays."""
    if needs_shape(spec.shape) and spec.encoding not in (TENSOR, FLAC, *IMAGES):
        raise RecipeError(
            f"encodings: {spec.name}",
            f"must be tensor, because several sizes of its shape {spec.shape} depend "
            "on the length of the clip",
            spec.encoding,
        )


def fits_shape(found: tuple[int, ...], spec: FeatureSpec) -> bool:
    """Whether an array has the shape of a spec, and some values."""
    known = spec.shape or ()
    return (
        len(found) == len(known)
        and 0 not in found
        and all(meant in (None, size) for meant, size in zip(known, found, strict=True))
    )


def _merge_axes(short: tuple[_Axis, ...], long: tuple[_Axis, ...]) -> tuple[_Axis, ...]:
    """Returns the axes, with null for a size that differs; none if more differs."""
    merged = []
    for one, other in zip(short, long, strict=False):
        if one != other:
            one, other = {**one, "size": None}, {**other, "size": None}
        merged.append(one)
        if one != other:
            return ()
    return tuple(merged) if len(short) == len(long) else ()
