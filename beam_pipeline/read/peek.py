"""Some examples of a data set, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.errors import InputError
from beam_pipeline.examples.encoding import decode_examples
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import read_records


def some_examples(
    folder: str, metadata: Metadata, count: int, split: str | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Examples spread evenly over a split, each with its place in it.

    Neighbours are often windows of one clip; these show more of what there is.

    Raises
    ------
    InputError
        If there is no such split.
    """
    name = split or next(iter(metadata.splits))
    if name not in metadata.splits:
        raise InputError(
            f"There is no split {name!r}, only {', '.join(metadata.splits)}."
        )
    total = metadata.splits[name].examples
    wanted = sorted({i * total // count for i in range(count)} if total else set())
    first = 0
    for shard in metadata.splits[name].shards:
        places = [i for i in wanted if first <= i < first + shard.examples]
        if places:
            path = files.join(files.absolute(folder), shard.file)
            with files.open_read(path) as file:
                records = islice(read_records(file), places[-1] - first + 1)
                found = [r for i, r in enumerate(records, first) if i in places]
            yield from zip(
                places, decode_examples(found, metadata.features), strict=True
            )
        first += shard.examples


def describe_example(example: Mapping[str, Any]) -> str:
    """One line a feature: its type, shape, and values or what they amount to."""
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
