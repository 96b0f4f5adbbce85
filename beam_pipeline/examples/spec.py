"""The spec of a feature: its dtype, shape and encoding. Writer and reader share it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.expressions import TRANSFORM

FLOAT_LIST, INT64_LIST, BYTES_LIST, RAW = (
    "float_list",
    "int64_list",
    "bytes_list",
    "raw",
)
SHORT_LIST = 16

# The metadata hold these texts, so they stay as they are.
DESCRIPTIONS = {
    "class": "the clip's class",
    "target": "index of the class in the sorted list of classes",
    "filepath": "the clip's file, relative to its input",
    "index": "the clip's place in the listing of the inputs",
    "win_start_idx": "first frame of the window in the clip, at the output rate",
    "fs": "output sample rate, Hz",
    "copy": "0: the window as it is; k: its k-th augmented copy",
}


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """One feature: its type in memory, and its encoding in a file.

    Attributes
    ----------
    dtype : str
        The name of a numpy dtype, or ``string``.
    shape : tuple of int
        The shape in one example.
    encoding : str
        ``float_list``, ``int64_list``, ``bytes_list``, or ``raw``: little-endian
        C-order bytes in a ``bytes_list``.
    axes : tuple of mapping
        The meaning of the last axes; spectra have it.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    encoding: str
    description: str = ""
    axes: tuple[Mapping[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Returns the spec as the metadata hold it, without its name."""
        return {
            "dtype": self.dtype,
            "shape": list(self.shape),
            "encoding": self.encoding,
            "description": self.description,
            **({"axes": list(self.axes)} if self.axes else {}),
        }

    @classmethod
    def from_json(cls, name: str, values: Mapping[str, Any]) -> FeatureSpec:
        """Returns the spec that :meth:`to_json` wrote."""
        return cls(
            name,
            values["dtype"],
            tuple(values["shape"]),
            values["encoding"],
            values.get("description", ""),
            tuple(values.get("axes", ())),
        )


def dtype_name(values: npt.NDArray[Any]) -> str:
    """Returns the dtype of a feature with these values.

    Raises
    ------
    RecipeError
        If no encoding can store the values.
    """
    if values.dtype.kind in "SU" and values.ndim == 1:
        return "string"
    # Extended precision has different formats on different machines.
    if values.dtype.kind not in "biufc" or values.dtype.char in "gG":
        raise RecipeError(
            TRANSFORM.field,
            "returns a type that cannot be stored; return numbers, or one text for "
            "each window",
            str(values.dtype),
        )
    return str(values.dtype.name)


def encoding_of(values: npt.NDArray[Any]) -> str:
    """Returns the encoding of a feature with these values, shape (n, ...)."""
    if values.dtype.kind in "SU":
        return BYTES_LIST
    if values.dtype == np.float32:
        return FLOAT_LIST
    is_short = values.ndim == 1 or (values.ndim == 2 and values.shape[1] <= SHORT_LIST)
    # Large uint64 values do not fit into int64_list.
    if is_short and values.dtype.kind in "biu" and values.dtype != np.uint64:
        return INT64_LIST
    return RAW
