"""The names of shards, for writers and readers."""

from __future__ import annotations

import re

from beam_pipeline.inputs.splits import DEFAULT_SPLIT

_SHARD_NAME = re.compile(
    r"([^/]+/)?(?P<split>[^/]+?)-(?P<k>[0-9]{5,})-of-(?P<shards>[0-9]{5,})"
)


def shard_name(split: str, k: int, shards: int) -> str:
    """Returns the name of shard ``k`` of ``shards``, without a suffix."""
    folder = "" if split == DEFAULT_SPLIT else f"{split}/"
    return f"{folder}{split}-{k:05d}-of-{shards:05d}"


def is_shard_name(name: str) -> bool:
    """Whether :func:`shard_name` gives a name, which has no suffix."""
    found = _SHARD_NAME.fullmatch(name)
    if found is None:
        return False
    split, k, shards = found["split"], int(found["k"]), int(found["shards"])
    is_planned = split.isidentifier() and k < shards
    return is_planned and shard_name(split, k, shards) == name
