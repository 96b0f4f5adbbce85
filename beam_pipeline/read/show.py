"""Some examples of a data set, as text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.errors import AudioTFRecordsError, InputError
from beam_pipeline.examples.decoding import decode_examples
from beam_pipeline.read.choices import Piece, choose_splits
from beam_pipeline.read.example_view import describe_value
from beam_pipeline.read.records import open_records
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import read_any_records


def some_examples(
    folder: str,
    metadata: Metadata,
    count: int,
    split: str | None = None,
    **chosen: str | None,
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields the decoded examples of :func:`some_records`, with their positions."""
    for position, record in some_records(folder, metadata, count, split, **chosen):
        try:
            (example,) = decode_examples([record], metadata.features)
        except (ValueError, TypeError, AudioTFRecordsError) as error:
            raise InputError(
                f"{folder}: example {position} cannot be read: {error}. To check every "
                f"example, run `audio-tfrecords verify --deep {folder}`."
            ) from error
        yield position, example


def some_records(
    folder: str,
    metadata: Metadata,
    count: int,
    split: str | None = None,
    *,
    clip: str | None = None,
    where: str | None = None,
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
        If there is no such split or record; or, with ``clip`` or ``where``, if the data
        set has no index of members.
    OptionError
        If the condition cannot be read.
    """
    name = shown_split(metadata, split)
    if clip is None and where is None:
        pieces = choose_splits(metadata, name).pieces(metadata)
        return _records_at(folder, pieces, count)
    records = open_records(folder, name)
    own = records.numbers
    if clip is not None:
        records = records.of_clip(clip)
    if where is not None:
        records = records.where(where)
    if not len(records):
        raise InputError(f"Split {name} has no such example.")
    spread = _spread(len(records), count)
    numbers = np.flatnonzero(np.isin(own, records.numbers))[spread].tolist()
    return zip(numbers, records.serialised(spread), strict=True)


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


def _spread(total: int, count: int) -> list[int]:
    """Returns ``count`` numbers below ``total``, evenly; fewer if there are fewer."""
    return sorted({i * total // count for i in range(count)} if total else set())


def _records_at(
    folder: str, pieces: Sequence[Piece], count: int
) -> Iterator[tuple[int, bytes]]:
    """Yields records with their positions; needs no index of members."""
    wanted = _spread(sum(piece.take for piece in pieces), count)
    first = 0
    for shard, skip, take in pieces:
        positions = [i for i in wanted if first <= i < first + take]
        if positions:
            path = files.join(files.absolute(folder), shard.file)
            try:
                with files.open_read(path) as file:
                    stop = skip + positions[-1] - first + 1
                    records = islice(read_any_records(file), skip, stop)
                    found = [r for i, r in enumerate(records, first) if i in positions]
            except (OSError, ValueError) as error:
                raise _unreadable(path, str(error)) from error
            if len(found) < len(positions):
                raise _unreadable(path, f"it has fewer than {shard.examples} examples")
            yield from zip(positions, found, strict=True)
        first += take


def _unreadable(path: str, problem: str) -> InputError:
    return InputError(
        f"{path} cannot be read: {problem}. To check every shard, run `audio-tfrecords "
        "verify` on the folder."
    )


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
