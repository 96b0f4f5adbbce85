"""``verify --deep``: every example, every planned window and every file beside them.

::

    shard --read once--> SHA-256, members, records --parse--> examples, in blocks
                                                              |  features by their specs
    recipe --arithmetic--> planned windows  <--compare-->     |  windows by the tables
    metadata               counts, classes  <--compare-->     |  counts
                           statistics       <--compare-->     v  statistics

A thread reads a shard; it holds a block of its examples. No code of the recipe runs.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from beam_pipeline.dataset.class_seconds import class_seconds_problems
from beam_pipeline.dataset.metadata import Metadata, ShardEntry
from beam_pipeline.dataset.output_folder import MANIFEST, METADATA
from beam_pipeline.dataset.planned_windows import PlannedWindows, plan_problems
from beam_pipeline.dataset.problem_lines import Lines
from beam_pipeline.errors import DamagedRecord, InputError, RecipeError
from beam_pipeline.inputs.sources import Input
from beam_pipeline.read.example_check import Checked, ExampleCheck, Expected
from beam_pipeline.read.member_records import ExamplePlaces, MemberReader
from beam_pipeline.read.sampled_windows import choose_examples, sample_problems
from beam_pipeline.read.side_files import (
    axis_problems,
    reject_problems,
    schema_problems,
    statistic_problems,
)
from beam_pipeline.read.sizes import usable_cores
from beam_pipeline.read.verify import (
    ShardCheck,
    folder_problems,
)
from beam_pipeline.read.window_table import read_tables
from beam_pipeline.storage import files

MOST_DAMAGED = 20


class _Task(NamedTuple):
    split: str
    first: int
    shard: ShardEntry
    expected: Expected | None


class _Result(NamedTuple):
    split: str
    lines: list[str]
    checked: Checked


@dataclass(frozen=True)
class Sample:
    """Which windows to decode again from the sources.

    Attributes
    ----------
    inputs : sequence of Input
        Those that the data set was recorded from, in their order.
    count, seed : int
        How many, and the seed that chooses them.
    """

    inputs: Sequence[Input]
    count: int = 100
    seed: int = 0


def find_deep_problems(
    folder: str, metadata: Metadata, sample: Sample | None = None
) -> Iterator[str]:
    """Yields a line for each difference between any two parts of a data set.

    Besides what :func:`.find_problems` compares: each example is parsed, and its
    features are those of the metadata; windows, clips and rejects are those of the
    recipe, each once, in their splits and positions; counts of classes and statistics
    are those of the examples; ``schema.pbtxt`` describes the features. A damaged
    example is named by its file, the
    byte where its member begins, and its number. Nothing tells whether ``writer`` and
    ``ignored_files`` in the metadata are true.

    Memory holds a block of examples for each thread, and some 30 bytes for each window.

    Parameters
    ----------
    sample : Sample, optional
        Windows that are decoded again and compared byte for byte, if the tables fit
        the recipe. Only this runs the recipe. Default: none.
    """
    root = files.absolute(folder)
    planned: PlannedWindows | None = None
    tables_fit = False
    yield from schema_problems(root, metadata)
    yield from axis_problems(metadata)
    if metadata.recipe is not None:
        try:
            planned = _read_planned(root, metadata)
        except InputError as error:
            yield str(error)
        else:
            try:
                found = [
                    *plan_problems(planned, metadata),
                    *class_seconds_problems(planned, metadata),
                ]
                tables_fit = not found
                yield from found
            except (RecipeError, OverflowError) as error:  # rates, copies
                yield f"{MANIFEST}: {error}"
            yield from reject_problems(root, metadata, planned)
    check = ShardCheck(root, metadata)
    yield from check.index_problems
    tasks = list(_tasks(metadata, planned))
    with ThreadPoolExecutor(usable_cores()) as pool:
        results = pool.map(
            lambda task: _check_shard(root, metadata, check, task), tasks
        )
        merged: dict[str, Checked] = {}
        for result in results:
            yield from result.lines
            merged[result.split] = _merge(merged.get(result.split), result.checked)
    for split, checked in merged.items():
        yield from _split_problems(split, checked, metadata)
    yield from folder_problems(root, metadata, check.index)
    if sample is not None and planned is not None and tables_fit:
        chosen = choose_examples(
            planned, list(metadata.splits), sample.count, sample.seed
        )
        yield from sample_problems(root, metadata, planned, sample.inputs, chosen)


def _read_planned(root: str, metadata: Metadata) -> PlannedWindows:
    text = files.read_bytes(files.join(root, METADATA))
    tables = read_tables(root, metadata, hashlib.sha256(text).hexdigest())
    assert tables is not None  # there is a recipe
    try:
        return PlannedWindows.of(*tables)
    except ValueError as error:
        raise InputError(
            f"{error}. Restore both files, or record the data set again."
        ) from error


def _tasks(metadata: Metadata, planned: PlannedWindows | None) -> Iterator[_Task]:
    for split, entry in metadata.splits.items():
        expected = None if planned is None else Expected(planned, split, metadata)
        first = 0
        for shard in entry.shards:
            yield _Task(split, first, shard, expected)
            first += shard.examples


def _check_shard(
    root: str, metadata: Metadata, check: ShardCheck, task: _Task
) -> _Result:
    """Reads a shard once."""
    shard = task.shard
    examples = ExampleCheck(metadata, shard.file, task.split, task.first, task.expected)
    lines = list(check.problems(shard, examples.add))
    examples.flush()
    lines += examples.checked.lines
    if examples.checked.examples < shard.examples:
        lines += _damaged_members(root, check, task)
    return _Result(task.split, lines, examples.checked)


def _damaged_members(root: str, check: ShardCheck, task: _Task) -> Iterator[str]:
    """Yields a line for each member that cannot be read, if the index shows them.

    Reading from the beginning ends at the first of them.
    """
    index = (check.index or {}).get(task.shard.file)
    if index is None:
        return
    size = files.size(files.join(root, task.shard.file))
    try:
        index.check()
    except ValueError:
        return
    places, reader = ExamplePlaces([index]), MemberReader(root)
    lines = Lines(MOST_DAMAGED, task.shard.file)
    for number in range(len(index.offsets)):
        span = index.span(number)
        which = f"example {task.first + span.first} of {task.split}"
        if span.examples > 1:
            last = task.first + span.first + span.examples - 1
            which = f"examples {task.first + span.first} to {last} of {task.split}"
        where = f"{task.shard.file}: {which}, at byte {span.offset}"
        if size != index.bytes:
            if span.offset + span.size > size:
                lines.add(f"{where}: the file ends before")
            continue
        numbers = np.arange(span.first, span.first + span.examples)
        try:
            for wanted in places.find(numbers):
                for _ in reader.read(wanted):
                    pass
        except DamagedRecord as error:
            lines.add(f"{where}: {error.args[-1]}")
        except InputError as error:
            lines.add(str(error))
            break
    yield from lines


def _merge(before: Checked | None, checked: Checked) -> Checked:
    if before is None:
        return checked
    before.statistics.merge(checked.statistics)
    before.classes.update(checked.classes)
    before.examples += checked.examples
    return before


def _split_problems(split: str, checked: Checked, metadata: Metadata) -> Iterator[str]:
    """Compares the counts and statistics of a split, if all its examples were read."""
    entry = metadata.splits[split]
    if checked.examples != entry.examples:
        return
    where = f"{METADATA}: split {split}"
    if checked.classes and entry.examples_per_class:
        found = Counter(checked.classes)
        for label in sorted({*entry.examples_per_class, *found}):
            recorded = entry.examples_per_class.get(label, 0)
            if recorded != found[label]:
                yield (
                    f"{where}: class {label!r} has {recorded} examples; the shards "
                    f"have {found[label]}"
                )
    recorded_statistics: Any = entry.statistics.get("features", {})
    for name, found_values in checked.statistics.to_json()["features"].items():
        yield from statistic_problems(
            recorded_statistics[name], found_values, f"{where}: statistics of {name}"
        )
