"""Batches of values that cross a shuffle together, pickled as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

_T = TypeVar("_T")


class Batch(tuple[_T, ...]):
    """Values that cross a shuffle together; Beam pickles a list's values one by one.

    Named tuples of one kind are pickled as columns, which halves the time.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        kinds = set(map(type, self))
        kind = kinds.pop() if len(kinds) == 1 else object
        if hasattr(kind, "_make"):
            return _of_columns, (kind, *map(Batch, zip(*self, strict=True)))
        return Batch, (tuple(self),)


def _of_columns(kind: Callable[..., _T], *columns: Iterable[Any]) -> Batch[_T]:
    return Batch(map(kind, *columns))
