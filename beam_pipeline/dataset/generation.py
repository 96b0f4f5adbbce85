"""What one run has added to a data set, as the metadata describe it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Generation:
    """What one run has added to a data set.

    Attributes
    ----------
    added_by : str
        ``record``, ``append`` or ``retry``.
    clips, known : int
        Number of clips that it listed; and of others, which the data set had already.
    writer : mapping
        The versions that wrote its shards.
    options : mapping
        The options of the recipe, as JSON values, that were others than before.
    replaced : sequence of int
        Rows of the manifests before this one of rejected clips that it tried again.
    """

    added_by: str
    clips: int
    known: int = 0
    writer: Mapping[str, str] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    replaced: Sequence[int] = ()
