"""Compares a sample of a data set's examples with what its sources give, byte by byte.

This runs the recipe: its transforms, and the modules of a person's own that it names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.planned_windows import PlannedWindows
from beam_pipeline.errors import DamagedRecord, InputError
from beam_pipeline.examples.record_parser import ExampleMaker, RecordParser
from beam_pipeline.inputs.rows import SourceRow
from beam_pipeline.inputs.sources import Input
from beam_pipeline.read.decode_again import DecodeAgain
from beam_pipeline.read.split_source import SplitSource
from beam_pipeline.write.one_thread import OneThread


class Sampled(NamedTuple):
    """An example to compare: its number in the split, and its row of windows."""

    split: str
    number: int
    row: int


def choose_examples(
    planned: PlannedWindows, splits: Sequence[str], count: int, seed: int
) -> list[Sampled]:
    """Returns a random sample of the examples of all splits, in their order."""
    rows = {split: planned.of_split(split) for split in splits}
    ends = np.cumsum([len(some) for some in rows.values()])
    total = int(ends[-1]) if len(ends) else 0
    some = np.random.default_rng(seed).permutation(total)[:count]
    chosen = []
    for place in np.sort(some).tolist():
        k = int(np.searchsorted(ends, place, "right"))
        split = splits[k]
        number = place - int(ends[k] - len(rows[split]))
        chosen.append(Sampled(split, number, int(rows[split][number])))
    return chosen


def sample_problems(
    folder: str,
    metadata: Metadata,
    planned: PlannedWindows,
    inputs: Sequence[Input],
    chosen: Sequence[Sampled],
) -> Iterator[str]:
    """Yields a line for each chosen example that the sources give no longer.

    Parameters
    ----------
    folder : str
        Absolute.
    inputs : sequence of Input
        Those that the data set was recorded from, in their order.

    Raises
    ------
    RecipeError
        If a transform of the recipe cannot be had here.
    """
    if not chosen:
        return
    assert metadata.recipe is not None
    recipe = metadata.recipe.replace(fingerprint=False)
    again = DecodeAgain(recipe, metadata, planned, inputs)
    yield from again.feature_problems()
    splits = dict.fromkeys(each.split for each in chosen)
    try:
        sources = {split: SplitSource(folder, split, None) for split in splits}
    except InputError as error:
        yield str(error)
        return
    listed = again.listed((each.row for each in chosen), whole_groups=True)
    OneThread.begin()
    try:
        for each in chosen:
            yield from _compare(again, each, listed, sources[each.split])
    finally:
        OneThread.end()


def _compare(
    again: DecodeAgain,
    each: Sampled,
    listed: Mapping[int, SourceRow],
    source: SplitSource,
) -> Iterator[str]:
    clip_row = int(again.planned.clip[each.row])
    path = again.planned.manifest["path"][clip_row]
    start = int(again.planned.start[each.row])
    where = (
        f"{path}: the window at frame {start} (example {each.number} of {each.split})"
    )
    try:
        clip = again.measured(again.clip(clip_row, listed), listed)
        made = again.record(clip, each.row)
    except ValueError as error:
        yield f"{where}: {error}"
        return
    try:
        (stored,) = source.serialised(np.array([each.number]))
    except (DamagedRecord, InputError) as error:
        yield str(error)
        return
    if stored != made:
        names = _differing(stored, made, source.metadata)
        yield f"{where}: decoded again, it differs in {', '.join(names)}"


def _differing(stored: bytes, made: bytes, metadata: Metadata) -> list[str]:
    """Returns the features that differ between two records."""
    parser = RecordParser(metadata.features, metadata.features)
    maker = ExampleMaker(parser, metadata.features)
    try:
        one, other = (
            maker.make(parser.stored(record, 0, len(record)), dict)
            for record in (stored, made)
        )
    except ValueError as error:
        return [f"its form ({error})"]
    names = sorted({*one, *other})
    same = [n for n in names if n in one and n in other]
    wrong = [n for n in same if not np.array_equal(one[n], other[n])]
    return [*wrong, *(n for n in names if n not in same)] or ["its bytes alone"]
