"""Lines about differences: the first of each kind, and how many more there are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt


class Lines:
    """Gathers lines; of those beyond ``most``, it keeps only the number."""

    def __init__(self, most: int, what: str):
        self._most = most
        self._what = what
        self._lines: list[str] = []
        self._more = 0

    def add(self, line: str) -> None:
        """Adds a line."""
        if len(self._lines) < self._most:
            self._lines.append(line)
        else:
            self._more += 1

    def __iter__(self) -> Iterator[str]:
        yield from self._lines
        if self._more:
            yield f"{self._what}: {self._more} more problems"


def differ(found: Any, expected: Any) -> npt.NDArray[np.bool_]:
    """Returns where two columns differ, as objects or as numbers; NaN equals NaN.

    Values may be arrays, of one shape or of several.
    """
    if _are_arrays(found) or _are_arrays(expected):
        pairs = zip(found, expected, strict=True)
        return np.array([_arrays_differ(a, b) for a, b in pairs], np.bool_)
    found, expected = np.asarray(found), np.asarray(expected)
    if found.dtype == object or expected.dtype == object:
        pairs = zip(found.tolist(), expected.tolist(), strict=True)
        return np.array([a != b for a, b in pairs], np.bool_)
    same: npt.NDArray[np.bool_] = np.equal(found, expected)
    if found.dtype.kind == "f" and expected.dtype.kind == "f":
        same |= np.isnan(found) & np.isnan(expected)
    return ~same


def _are_arrays(column: Any) -> bool:
    return len(column) > 0 and isinstance(column[0], np.ndarray)


def _arrays_differ(found: Any, expected: Any) -> bool:
    found, expected = np.asarray(found), np.asarray(expected)
    is_float = found.dtype.kind == "f" and expected.dtype.kind == "f"
    return not np.array_equal(found, expected, equal_nan=is_float)
