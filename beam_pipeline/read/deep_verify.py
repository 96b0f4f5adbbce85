"""``verify --deep``: parses every example, and compares it with its row of the tables.

::

    shard --read once--> SHA-256, records --parse--> examples, in blocks
                                                     |  features by their specs
    manifest.parquet, windows.parquet  <--compare--> v  clips and windows

A thread reads a shard; it holds a block of its examples. No code of the recipe runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from beam_pipeline.dataset.member_index import MemberIndex
from beam_pipeline.dataset.metadata import Metadata, ShardEntry
from beam_pipeline.dataset.output_folder import MANIFEST, METADATA, WINDOWS
from beam_pipeline.dataset.problem_lines import Lines
from beam_pipeline.dataset.recorded_windows import RecordedWindows
from beam_pipeline.errors import DamagedRecord, InputError
from beam_pipeline.inputs.sources import Input
from beam_pipeline.read.decode_again import choose_examples, sample_problems
from beam_pipeline.read.example_check import ExampleCheck, Expected
from beam_pipeline.read.members import ExamplePlaces, MemberReader
from beam_pipeline.read.sizes import usable_cores
from beam_pipeline.read.table import read_recorded
from beam_pipeline.read.verify import problems_beside_shards, shard_problems
from beam_pipeline.storage import files

MOST_DAMAGED = 20


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


class _Task(NamedTuple):
    split: str
    first: int
    shard: ShardEntry
    expected: Expected | None


def find_deep_problems(
    folder: str, metadata: Metadata, sample: Sample | None = None
) -> Iterator[str]:
    """Yields a line for each difference between the parts of a data set.

    Besides what :func:`.find_problems` compares: each example is parsed, and its
    features are those of the metadata; clip, window and class are those of its row in
    the tables. A damaged example is named by its file, the byte where its member
    begins, and its number.

    Memory holds a block of examples for each thread, and some 30 bytes for each window.

    Parameters
    ----------
    sample : Sample, optional
        Windows that are decoded again and compared byte for byte, if the tables can be
        read. Only this runs the recipe. Default: none.
    """
    root = files.absolute(folder)
    yield from problems_beside_shards(root, metadata)
    recorded: RecordedWindows | None = None
    if metadata.recipe is not None:
        try:
            recorded = read_recorded(root, metadata)
        except InputError as error:
            yield str(error)
    if recorded is not None:
        found = list(_count_problems(recorded, metadata))
        yield from found
        if found:
            recorded = None
    with ThreadPoolExecutor(usable_cores()) as pool:
        check = partial(_check_shard, root, metadata)
        for lines in pool.map(check, _tasks(metadata, recorded)):
            yield from lines
    if sample is not None and recorded is not None:
        chosen = choose_examples(recorded, metadata, sample.count, sample.seed)
        yield from sample_problems(root, metadata, recorded, sample.inputs, chosen)


def _count_problems(recorded: RecordedWindows, metadata: Metadata) -> Iterator[str]:
    """Compares the numbers of examples in the tables with those of the splits."""
    for split, entry in metadata.splits.items():
        rows = len(recorded.of_split(split))
        if rows != entry.examples:
            yield (
                f"{METADATA}: split {split}: examples is {entry.examples}; {WINDOWS} "
                f"and {MANIFEST} have {rows}"
            )


def _tasks(metadata: Metadata, recorded: RecordedWindows | None) -> Iterator[_Task]:
    for split, entry in metadata.splits.items():
        expected = None if recorded is None else Expected(recorded, split, metadata)
        first = 0
        for shard in entry.shards:
            yield _Task(split, first, shard, expected)
            first += shard.examples


def _check_shard(root: str, metadata: Metadata, task: _Task) -> list[str]:
    """Reads a shard once; returns the lines of its problems."""
    shard = task.shard
    examples = ExampleCheck(metadata, shard.file, task.split, task.first, task.expected)
    lines = list(shard_problems(root, metadata, shard, examples.add))
    examples.flush()
    lines += examples.lines
    if examples.checked < shard.examples:
        lines += _damaged_members(root, task)
    return lines


def _damaged_members(root: str, task: _Task) -> Iterator[str]:
    """Yields a line for each member that cannot be read, if the index shows them.

    Reading from the beginning ends at the first of them.
    """
    try:
        index = MemberIndex.load(root).shards[task.shard.file]
        index.check()
    except (FileNotFoundError, InputError, KeyError, ValueError):
        return
    size = files.size(files.join(root, task.shard.file))
    places, reader = ExamplePlaces([index]), MemberReader([root])
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
