"""The rows of batches: taken from several batches, and normalised."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.read.read_ahead import Batch
from beam_pipeline.read.scales import Scale


def gather(
    parts: Sequence[Future[Batch]],
    part_of: npt.NDArray[np.int64],
    row_of: npt.NDArray[np.int64],
) -> Batch:
    """Returns a batch whose example ``i`` is row ``row_of[i]`` of ``part_of[i]``."""
    used = [int(part) for part in np.unique(part_of)]
    batches = {part: parts[part].result() for part in used}
    rows = [(part, np.flatnonzero(part_of == part)) for part in used]
    made: Batch = {}
    for name, values in batches[used[0]].items():
        column: Any
        if isinstance(values, np.ndarray):
            column = np.empty((len(part_of), *values.shape[1:]), values.dtype)
            for part, places in rows:
                column[places] = batches[part][name][row_of[places]]
        else:
            column = [None] * len(part_of)
            for place, (part, row) in enumerate(zip(part_of, row_of, strict=True)):
                column[place] = batches[int(part)][name][int(row)]
        made[name] = column
    return made


def normalise(batch: Batch, scales: Mapping[str, Scale]) -> Batch:
    """Returns the batch with ``(x - mean) * factor`` for features with scales."""
    for name, (mean, factor) in scales.items():
        values = batch[name]
        if isinstance(values, np.ndarray):
            batch[name] = _scaled(values, mean, factor)
        else:
            batch[name] = [
                None if value is None else _scaled(value, mean, factor)
                for value in values
            ]
    return batch


def _scaled(values: Any, mean: np.ndarray, factor: np.ndarray) -> Any:
    dtype = values.dtype
    return (values - mean.astype(dtype)) * factor.astype(dtype)
