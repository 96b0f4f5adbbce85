"""Some examples of a data set, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.errors import InputError
from beam_pipeline.examples.decoding import decode_examples
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import read_records


def some_examples(
    folder: str, metadata: Metadata, count: int, split: str | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields examples that are spread evenly over a split, with their positions in it.

    Neighbours are often windows of one clip, so the first examples would show little.

    Raises
    ------
    InputError
        If no split has this name.
    """
    name = split or next(iter(metadata.splits))
    if name not in metadata.splits:
        raise InputError(
            f"No split is named {name!r}. The splits are {', '.join(metadata.splits)}."
        )
    total = metadata.splits[name].examples
    wanted = sorted({i * total // count for i in range(count)} if total else set())
    first = 0
    for shard in metadata.splits[name].shards:
        positions = [i for i in wanted if first <= i < first + shard.examples]
        if positions:
            path = files.join(files.absolute(folder), shard.file)
            with files.open_read(path) as file:
                records = islice(read_records(file), positions[-1] - first + 1)
                found = [r for i, r in enumerate(records, first) if i in positions]
            yield from zip(
                positions, decode_examples(found, metadata.features), strict=True
            )
        first += shard.examples


def describe_example(example: Mapping[str, Any]) -> str:
    """Returns one line for each feature: its dtype, shape, first values and range."""
    width = max(len(name) for name in example)
    return "\n".join(
        f"  {name:{width}}  {_describe_value(value)}" for name, value in example.items()
    )


def _describe_value(value: Any) -> str:
    if isinstance(value, str):
        return repr(value)
    array = np.asarray(value)
    if array.ndim == 0:
        return f"{array}"
    flat = array.reshape(-1)
    start = np.array2string(flat[:4], precision=4, separator=", ")[1:-1]
    text = f"{array.dtype} {array.shape} [{start}{', ...' if flat.size > 4 else ''}]"
    if array.dtype.kind in "biuf":
        text += f" from {flat.min():.4g} to {flat.max():.4g}"
    return text
