"""Groups whose split is not that of their hash, as a recipe holds them.

A group is known by the first 48 bits of its key, which are eight characters of
Base64. So the recipe holds no names, and eight characters for each moved group::

    eval=9k3XnQ2bAAEgf0zu,test=-Zq01x_v
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from typing import Any

from beam_pipeline.errors import RecipeError

_KEY_BYTES = 6
_GROUPS = re.compile("([A-Za-z0-9_-]{8})+")


def moved_key(key: int) -> int:
    """Returns the 48 bits of a group's key by which a recipe knows it."""
    return key >> 16


def moves_text(moves: Mapping[int, str]) -> str:
    """Returns the text that :func:`parse_moves` parses; empty without groups."""
    parts = []
    for split in sorted(set(moves.values())):
        keys = sorted(key for key, name in moves.items() if name == split)
        content = b"".join(key.to_bytes(_KEY_BYTES, "big") for key in keys)
        parts.append(f"{split}={base64.urlsafe_b64encode(content).decode()}")
    return ",".join(parts)


def parse_moves(name: str, text: Any) -> dict[int, str]:
    """Parses groups and their splits.

    Raises
    ------
    RecipeError
        If the text has another form, or a group occurs twice.
    """
    if not isinstance(text, str):
        raise RecipeError(name, "must be text", text)
    moves: dict[int, str] = {}
    for part in text.split(",") if text else ():
        split, equals, encoded = part.partition("=")
        if not (split and equals and _GROUPS.fullmatch(encoded)):
            raise RecipeError(
                name,
                "must be SPLIT=GROUPS, as in the recipe of a data set's metadata.json, "
                "with eight characters of Base64 for each group",
                part,
            )
        content = base64.urlsafe_b64decode(encoded)
        for start in range(0, len(content), _KEY_BYTES):
            key = int.from_bytes(content[start : start + _KEY_BYTES], "big")
            if moves.setdefault(key, split) != split:
                raise RecipeError(name, "names a group in two splits", text)
    return moves


def moves_json(name: str, given: Any) -> Any:
    """Returns moves as the text that ``metadata.json`` holds."""
    return moves_text(given) if isinstance(given, Mapping) else given
