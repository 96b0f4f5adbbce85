"""Some examples of a data set, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.errors import InputError
from beam_pipeline.read.choices import choose_splits
from beam_pipeline.read.example_view import describe_value
from beam_pipeline.read.records import Records, open_records


def some_examples(
    folder: str,
    metadata: Metadata,
    count: int,
    split: str | None = None,
    **chosen: str | None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the examples of :func:`some_records`, with their positions."""
    records, positions = _spread_over(folder, metadata, count, split, **chosen)
    for place, position in positions.items():
        try:
            found = records[place]
            yield position, {n: found[n] for n in metadata.features if n in found}
        except ValueError as error:
            raise InputError(
                f"{folder}: example {position} cannot be read: {error}. To check every "
                f"example, run `audio-tfrecords verify --deep {folder}`."
            ) from error


def some_records(
    folder: str,
    metadata: Metadata,
    count: int,
    split: str | None = None,
    **chosen: str | None,
) -> Iterator[tuple[int, bytes]]:
    """Yields some records of a split, with their positions in it.

    They are spread evenly: neighbours are often windows of one clip, so the first
    examples would show little.

    Parameters
    ----------
    split : str, optional
        See :func:`shown_split`.
    clip : str, optional
        Only records of the file with this path relative to its input.
    where : str, optional
        Only records that meet this condition, see :meth:`.Records.where`.

    Raises
    ------
    InputError
        If there is no such split or record, or the data set has no index of members.
    OptionError
        If the condition cannot be read.
    """
    records, positions = _spread_over(folder, metadata, count, split, **chosen)
    return zip(positions.values(), records.serialised([*positions]), strict=True)


def _spread_over(
    folder: str,
    metadata: Metadata,
    count: int,
    split: str | None,
    *,
    clip: str | None = None,
    where: str | None = None,
) -> tuple[Records, dict[int, int]]:
    """Returns records, and the positions in the split of ``count`` of them."""
    name = shown_split(metadata, split)
    every = records = open_records(folder, name)
    if clip is not None:
        records = records.of_clip(clip)
    if where is not None:
        records = records.where(where)
    total = len(records)
    if not total and len(every):
        raise InputError(f"Split {name} has no such example.")
    places = sorted({i * total // count for i in range(count)} if total else set())
    positions = np.flatnonzero(np.isin(every.numbers, records.numbers))
    return records, {place: int(positions[place]) for place in places}


def shown_split(metadata: Metadata, split: str | None = None) -> str:
    """Returns the chosen split; by default ``train``, or else the largest.

    Raises
    ------
    InputError, OptionError
        See :func:`.choose_splits`.
    """
    splits = metadata.splits
    if split is None and "train" in splits:
        return "train"
    if split is None:
        return max(splits, key=lambda name: splits[name].examples)
    choose_splits(metadata, split)
    return split


def example_text(record: bytes, metadata: Metadata) -> str:
    """Returns a record as protobuf text, features sorted; it ends in a newline.

    ``print`` of a ``tf.train.Example`` gives the same text, but in any order.
    """
    import tensorflow as tf
    from google.protobuf import text_format

    has_steps = any(spec.sequence for spec in metadata.features.values())
    kind = tf.train.SequenceExample if has_steps else tf.train.Example
    return str(text_format.MessageToString(kind.FromString(record)))


def describe_example(example: Mapping[str, Any]) -> str:
    """Returns one line for each feature: its dtype, shape, first values and range."""
    width = max((len(name) for name in example), default=0)
    return "\n".join(
        f"  {name:{width}}  {describe_value(value)}" for name, value in example.items()
    )
