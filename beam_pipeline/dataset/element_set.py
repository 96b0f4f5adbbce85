"""A data set of elements: what it will be, its shards, and its end.

::

    element_output -> blocks -> lay_out -> shards -> finish_elements
    claim             files     old data             metadata.json
                                set goes

How many examples there are shows only when they are written. The source of elements
cannot be asked for some of them again: what fails is deleted, and never continued. See
:func:`.element_output` for the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

from beam_pipeline.dataset.job import writer_versions
from beam_pipeline.dataset.job_start import make_room
from beam_pipeline.dataset.member_index import ShardIndex, write_index
from beam_pipeline.dataset.metadata import Elements, Metadata, SplitEntry, shard_entry
from beam_pipeline.dataset.output_folder import (
    EXAMPLES_CSV,
    INDEX,
    SCHEMA,
    delete_stale,
)
from beam_pipeline.errors import IncompleteRun
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.planning.shards import ShardInfo
from beam_pipeline.storage import files
from beam_pipeline.storage.pages import unpacked
from beam_pipeline.write.element_blocks import (
    BlockResult,
    ElementOutput,
    Seen,
    observed_specs,
)
from beam_pipeline.write.member_files import (
    JoinedShard,
    ShardSizes,
    cut_shards,
    join_shard,
)
from beam_pipeline.write.statistics import DataStatistics


@dataclass(frozen=True)
class ElementSet:
    """What a data set of elements will be.

    Attributes
    ----------
    target : ElementOutput
    specs : tuple of FeatureSpec
        Those of the encoder.
    sizes : ShardSizes
    splits : tuple of str
        The names of all splits; some may stay empty.
    elements : Elements
        What the metadata say of the job.
    blocks : int
        How many there are.
    classes : tuple of str
    settle : callable
        Returns the specs that the metadata hold, from those of the encoder and what all
        examples have shown.
    measured : frozenset of str or None
        The features whose statistics the metadata hold; None: all numeric ones.
    copied : mapping
        Name in the output to the path of a file that is copied there.
    sources : int or None
        The number of sources in all blocks; None if they are counted as they are read.
    """

    target: ElementOutput
    specs: tuple[FeatureSpec, ...]
    sizes: ShardSizes
    splits: tuple[str, ...]
    elements: Elements
    blocks: int = 1
    classes: tuple[str, ...] = ()
    settle: Callable[[Iterable[FeatureSpec], Seen], list[FeatureSpec]] = observed_specs
    measured: frozenset[str] | None = None
    copied: Mapping[str, str] = field(default_factory=dict)
    sources: int | None = None


def lay_out(job: ElementSet, results: Iterable[BlockResult]) -> Iterator[JoinedShard]:
    """Yields the shards; in a store, deletes the data set that they replace.

    A runner may call it twice.

    Raises
    ------
    IncompleteRun
        If blocks or sources are missing; nothing is deleted then.
    """
    results = _in_order(job, results)
    make_room(job.target.output, job.target.work, job.target.claim)
    for split in job.splits:
        made = [each for result in results for each in result.made.get(split, ())]
        yield from cut_shards(split, made, job.sizes)


def _in_order(job: ElementSet, results: Iterable[BlockResult]) -> list[BlockResult]:
    results = sorted(results, key=lambda result: result.order)
    _check_equal("blocks", len(results), job.blocks)
    found = sum(result.sources for result in results)
    _check_equal("source examples", found, job.sources)
    return results


def _check_equal(what: str, found: int, expected: int | None) -> None:
    if expected is not None and found != expected:
        raise IncompleteRun(
            f"The runner lost data between two steps: there are {found} {what} instead "
            f"of {expected}. No data set was written. Give the same call again, on "
            "another runner if this one loses data often."
        )


def join_elements(job: ElementSet, results: Sequence[BlockResult]) -> str:
    """Makes shards of what all blocks wrote here, and finishes the data set."""
    target = job.target
    infos = [
        join_shard(shard, job.sizes, target.output, target.drafts, may_move=True)
        for shard in lay_out(job, results)
    ]
    return finish_elements(job, infos, results)


def finish_elements(
    job: ElementSet, infos: Iterable[ShardInfo], results: Iterable[BlockResult]
) -> str:
    """Writes the files beside the shards, then the metadata; returns their path.

    A runner may call it twice.

    Raises
    ------
    IncompleteRun
        If sources or examples are missing. There are no metadata then.
    """
    output, results = job.target.output, _in_order(job, results)
    shards: dict[str, list[ShardInfo]] = {split: [] for split in job.splits}
    for info in sorted(infos, key=lambda info: info.shard.number):
        shards[info.shard.split].append(info)
    written = [info for of_split in shards.values() for info in of_split]
    stored = sum(info.examples for info in written)
    _check_equal("examples in shards", stored, sum(r.examples for r in results))
    statistics, skipped, seen = _merge_receipts(job, results)
    for name, path in job.copied.items():
        files.write_bytes(files.join(output, name), files.read_bytes(path))
    specs = {spec.name: spec for spec in job.settle(job.specs, seen)}
    elements = job.elements
    if skipped:
        options = {**elements.options, "skipped": skipped}
        elements = replace(elements, options=options)
    delete_stale(output, (info.file for info in written))
    metadata = Metadata(
        None,
        specs,
        job.classes,
        {
            split: SplitEntry(
                sum(info.examples for info in of_split),
                statistics=statistics[split].to_json(),
                shards=tuple(map(shard_entry, of_split)),
            )
            for split, of_split in shards.items()
        },
        writer=writer_versions(
            (spec.encoding for spec in specs.values()),
            compression=job.sizes.compression,
        ),
        elements=elements,
    )
    job.target.claim.check()
    write_index(output, map(ShardIndex.of, written))
    return metadata.save(output, (SCHEMA, INDEX))


def _merge_receipts(
    job: ElementSet, results: Iterable[BlockResult]
) -> tuple[dict[str, DataStatistics], dict[str, dict[str, Any]], Seen]:
    """Writes the tables of sources from all receipts; returns what else they say.

    One receipt after the other is read, in the order of blocks, which decides how
    statistics are rounded. The second dict has, by split, the number of skipped
    sources, and why the first was.
    """
    chosen = job.measured
    measured = [s for s in job.specs if chosen is None or s.name in chosen]
    merged = {split: DataStatistics.of(measured) for split in job.splits}
    skipped: dict[str, dict[str, Any]] = {}
    seen, tables = Seen(), dict[str, BinaryIO]()
    with ExitStack() as stack:
        for result in results:
            splits, of_block = unpacked(files.read_bytes(result.receipt))
            for name, shape in of_block.shapes.items():
                seen.cover(name, shape)
            seen.missing |= of_block.missing
            for split, noted in splits.items():
                merged[split].merge(noted.statistics)
                if noted.lines and split not in tables:
                    folder = "" if split == DEFAULT_SPLIT else split
                    path = files.join(job.target.output, folder, EXAMPLES_CSV)
                    tables[split] = stack.enter_context(files.replacing(path))
                for line in noted.lines:
                    tables[split].write(line.encode())
                if noted.skipped:
                    first = {"sources": 0, "first": noted.first_skipped}
                    skipped.setdefault(split, first)["sources"] += noted.skipped
    return merged, dict(sorted(skipped.items())), seen
