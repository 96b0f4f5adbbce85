"""What other libraries do instead of each transform; see ``transforms``."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Case:
    """A transform, and by their names functions of (windows, rate) that do the same.

    ``one_by_one`` are those that take a single window, so that a loop is their way.
    """

    expression: str
    others: Mapping[str, Callable] = field(default_factory=dict)
    one_by_one: Mapping[str, Callable] = field(default_factory=dict)
