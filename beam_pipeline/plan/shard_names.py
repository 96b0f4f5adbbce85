"""The names of shards, for writers and readers.

A data set consists of generations: 0 is what was recorded first, and each append adds
one. The names of a later generation carry its number: ``train-a001-00000-of-00002``.
"""

from __future__ import annotations

import re

from beam_pipeline.inputs.splits import DEFAULT_SPLIT

_SHARD_NAME = re.compile(
    r"([^/]+/)?(?P<split>[^/]+?)(-a(?P<generation>[0-9]{3,}))?"
    r"-(?P<k>[0-9]{5,})-of-(?P<shards>[0-9]{5,})"
)


def generation_mark(generation: int) -> str:
    """Returns what the names of a generation's files have in addition."""
    return f"-a{generation:03d}" if generation else ""


def shard_name(split: str, k: int, shards: int, generation: int = 0) -> str:
    """Returns the name of shard ``k`` of ``shards``, without a suffix."""
    folder = "" if split == DEFAULT_SPLIT else f"{split}/"
    return f"{folder}{split}{generation_mark(generation)}-{k:05d}-of-{shards:05d}"


def generation_of(name: str) -> int | None:
    """Returns the generation of a shard; None if :func:`shard_name` gives no such name.

    ``name`` has no suffix.
    """
    found = _SHARD_NAME.fullmatch(name)
    if found is None:
        return None
    split, k, shards = found["split"], int(found["k"]), int(found["shards"])
    generation = int(found["generation"] or 0)
    is_planned = split.isidentifier() and k < shards
    if is_planned and shard_name(split, k, shards, generation) == name:
        return generation
    return None
