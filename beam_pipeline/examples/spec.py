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
    """One feature: how it looks in memory and how it is stored.

    Attributes
    ----------
    dtype : str
        A numpy name, or ``string``.
    shape : tuple of int
        Of one example.
    encoding : str
        ``float_list``, ``int64_list``, ``bytes_list``, or ``raw``: little-endian
        C-order bytes in a ``bytes_list``.
    axes : list of dict
        For spectra: what the last axes mean.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    encoding: str
    description: str = ""
    axes: tuple[Mapping[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The spec as the metadata holds it, without its name."""
        return {
            "dtype": self.dtype,
            "shape": list(self.shape),
            "encoding": self.encoding,
            "description": self.description,
            **({"axes": list(self.axes)} if self.axes else {}),
        }

    @classmethod
    def from_json(cls, name: str, values: Mapping[str, Any]) -> FeatureSpec:
        """The spec that :meth:`to_json` wrote."""
        return cls(
            name,
            values["dtype"],
            tuple(values["shape"]),
            values["encoding"],
            values.get("description", ""),
            tuple(values.get("axes", ())),
        )


def dtype_name(values: npt.NDArray[Any]) -> str:
    if values.dtype.kind in "SU" and values.ndim == 1:
        return "string"
    # Extended precision is another format on other machines.
    if values.dtype.kind not in "biufc" or values.dtype.char in "gG":
        raise RecipeError(
            TRANSFORM.field,
            "returns a type that cannot be stored; return numbers, or one text each",
            str(values.dtype),
        )
    return str(values.dtype.name)


def encoding_of(values: npt.NDArray[Any]) -> str:
    if values.dtype.kind in "SU":
        return BYTES_LIST
    if values.dtype == np.float32:
        return FLOAT_LIST
    is_short = values.ndim == 1 or (values.ndim == 2 and values.shape[1] <= SHORT_LIST)
    # uint64 holds values that int64_list cannot.
    if is_short and values.dtype.kind in "biu" and values.dtype != np.uint64:
        return INT64_LIST
    return RAW
