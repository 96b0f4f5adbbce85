"""How many bytes examples take, and how many a reader may hold."""

from __future__ import annotations

import math
from collections.abc import Iterable

from beam_pipeline.examples.spec import BYTES_LIST, FeatureSpec, numpy_dtype

READ_AHEAD_BYTES = 256 << 20
SHUFFLE_BYTES = 128 << 20

_TEXT_BYTES = 64

# Stands for a size that differs between examples.
_GUESSED_SIZE = 256


def example_bytes(specs: Iterable[FeatureSpec]) -> int:
    """Returns the approximate size of an example in bytes, serialised or in memory."""
    return sum(
        _TEXT_BYTES
        if spec.encoding == BYTES_LIST
        else math.prod(n or _GUESSED_SIZE for n in spec.shape or (None,))
        * numpy_dtype(spec.dtype).itemsize
        for spec in specs
    )
