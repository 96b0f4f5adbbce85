"""How many bytes examples take, and how much memory and how many cores readers use."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from beam_pipeline.examples.spec import BYTES_LIST, FeatureSpec, numpy_dtype

if TYPE_CHECKING:
    from beam_pipeline.dataset.metadata import Metadata

READ_AHEAD_BYTES = 256 << 20
SHUFFLE_BYTES = 128 << 20

_TEXT_BYTES = 64

# Stands for a size that differs between examples.
_GUESSED_SIZE = 256
# How many times the bytes in a shard an example takes, about, after GZIP.
_INFLATED = 2


def decoded_bytes(specs: Iterable[FeatureSpec]) -> int:
    """Returns the approximate size of an example in bytes, serialised or in memory."""
    return sum(
        _TEXT_BYTES
        if spec.encoding == BYTES_LIST
        else math.prod(n or _GUESSED_SIZE for n in spec.shape or (None,))
        * numpy_dtype(spec.dtype).itemsize
        for spec in specs
    )


def memory_bytes(metadata: Metadata, specs: Iterable[FeatureSpec]) -> int:
    """Returns about how many bytes these features of an example take in memory.

    If sizes differ between examples, the shards tell more about them than the specs.
    """
    specs = list(specs)
    size = decoded_bytes(specs)
    if all(spec.has_fixed_shape for spec in specs):
        return size
    splits = metadata.splits.values()
    stored = sum(shard.bytes for split in splits for shard in split.shards)
    examples = sum(split.examples for split in splits)
    return max(size, _INFLATED * stored // max(examples, 1))


def usable_cores() -> int:
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
