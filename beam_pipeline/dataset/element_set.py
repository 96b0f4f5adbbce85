"""A data set of elements: what it will be, its blocks, its shards, and its end.

::

    element_output -> blocks -> lay_out -> shards -> finish_elements
    claim             files     old data             metadata.json
                                set goes

    StoredBlock -> SourceEncoder -> Encoded -> write_encoded -> BlockResult
                                                  \\
                                                   receipt: statistics, table, shapes

A block is some sources of examples: rows of a table, or a file of records. How many
examples they give shows only when they are read. What grows with the sources is in a
receipt, which a runner that repeats a block writes again.

The source of elements cannot be asked for some of them again: what fails is deleted,
and never continued. See :func:`.element_output` for the beginning.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, NamedTuple, Protocol

import numpy as np

from beam_pipeline.dataset import folders
from beam_pipeline.dataset.job import ElementOutput, make_room, writer_versions
from beam_pipeline.dataset.metadata import (
    Elements,
    Metadata,
    ShardIndex,
    SplitEntry,
    shard_entry,
    write_index,
)
from beam_pipeline.errors import IncompleteRun
from beam_pipeline.examples.spec import FeatureSpec, Shape, merge_shapes
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.planning.shards import ShardInfo
from beam_pipeline.process import Marks, OneThread
from beam_pipeline.storage import files, pages
from beam_pipeline.storage.pages import Place
from beam_pipeline.write import member_files
from beam_pipeline.write.member_files import (
    JoinedShard,
    MemberFile,
    MemberFileWriter,
    ShardSizes,
)
from beam_pipeline.write.statistics import DataStatistics

# Compressing takes longer than all else; it leaves the interpreter to the writer.
COMPRESSING_THREADS = 2


class Encoded(NamedTuple):
    """Some serialised examples of one split.

    Attributes
    ----------
    split : str
    records : sequence of bytes
    columns : mapping
        The values of their features: one array for all examples; or a list with an
        array, or None, for each.
    lines : sequence of str
        Lines of the split's table of sources.
    sources : int
        How many sources these examples come from.
    skipped : sequence of str
        For each source that gave no example on purpose, the reason.
    """

    split: str
    records: Sequence[bytes]
    columns: Mapping[str, Any]
    lines: Sequence[str] = ()
    sources: int = 0
    skipped: Sequence[str] = ()


class SourceEncoder(Protocol):
    """Makes examples of sources; workers have a copy each."""

    @property
    def specs(self) -> Sequence[FeatureSpec]:
        """The features, with None for the sizes that sources decide."""

    def encode(self, sources: Any) -> Iterator[Encoded]:
        """Yields the examples of a block, in their order."""


class StoredBlock(NamedTuple):
    """The place of a block among all blocks, and of its pickled sources in a page."""

    order: int
    place: Place


@dataclass(frozen=True, eq=False)
class BlockResult:
    """What was written of a block.

    Attributes
    ----------
    order : int
        Its place among all blocks.
    made : mapping
        Split to its files of members, in order.
    sources : int
        How many sources it had.
    receipt : str
        The path of its receipt: a packed (dict of split to OfSplit, Seen).
    """

    order: int
    made: Mapping[str, Sequence[MemberFile]]
    sources: int
    receipt: str

    @property
    def examples(self) -> int:
        """The number of examples in all files."""
        return sum(each.records for of_split in self.made.values() for each in of_split)


@dataclass
class OfSplit:
    """What is noted of the examples of a split.

    ``lines`` are those of its table of sources. ``skipped`` sources gave no example on
    purpose; ``first_skipped`` is the reason of the first.
    """

    statistics: DataStatistics
    lines: list[str] = field(default_factory=list)
    skipped: int = 0
    first_skipped: str = ""


class Seen:
    """The shapes of features whose sizes sources decide, and what examples lack.

    Attributes
    ----------
    shapes : dict
        Feature to the shape that covers all its arrays.
    missing : set of str
        Features that some examples lack.
    """

    def __init__(self) -> None:
        self.shapes: dict[str, Shape | None] = {}
        self.missing: set[str] = set()

    def add(self, specs: Iterable[FeatureSpec], columns: Mapping[str, Any]) -> None:
        """Adds the features of some examples."""
        for spec in specs:
            values = columns.get(spec.name)
            if isinstance(values, list):
                for shape in {np.shape(v) for v in values if v is not None}:
                    self.cover(spec.name, shape)
                if any(value is None for value in values):
                    self.missing.add(spec.name)
            elif values is not None and not spec.has_fixed_shape:
                self.cover(spec.name, values.shape[1:])

    def cover(self, name: str, shape: Shape | None) -> None:
        """Widens the shape of a feature."""
        self.shapes[name] = merge_shapes(self.shapes.get(name, shape), shape)


def observed_specs(specs: Iterable[FeatureSpec], seen: Seen) -> list[FeatureSpec]:
    """Returns the specs with the shapes that all examples together have."""
    made = []
    for spec in specs:
        shape = seen.shapes.get(spec.name, spec.shape)
        if spec.sequence:  # its steps may always differ in number
            shape = spec.shape
        optional = spec.optional or spec.name in seen.missing
        if optional and shape:  # where it is missing, its first axis is empty
            shape = (None, *shape[1:])
        made.append(replace(spec, shape=shape, optional=optional))
    return made


def keep_specs(specs: Iterable[FeatureSpec], seen: Seen) -> list[FeatureSpec]:
    """Returns the specs as they are, because something describes the features."""
    return list(specs)


# Returns the specs that the metadata hold, from those of the encoder and what all
# examples have shown.
Settle = Callable[[Iterable[FeatureSpec], Seen], list[FeatureSpec]]


def count_sources(receipts: str) -> int:
    """Returns the number of sources in all blocks that have a receipt."""
    if not files.is_folder(receipts):
        return 0
    names = (name.partition("-")[2] for name in files.list_files(receipts))
    return sum(int(sources) for sources in names if sources.isdecimal())


def store_blocks(
    blocks: Iterable[Any],
    target: ElementOutput,
    dump: Callable[[Any], bytes] = pickle.dumps,
) -> tuple[StoredBlock, ...]:
    """Writes the sources of blocks into pages; returns where each is."""
    writer = pages.PageWriter(target.drafts)
    for sources in blocks:
        writer.add(dump(sources))
    places = pages.Pages(target.drafts, writer.finish()).places()
    return tuple(StoredBlock(order, place) for order, place in enumerate(places))


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
        See ``Settle``.
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
    settle: Settle = observed_specs
    measured: frozenset[str] | None = None
    copied: Mapping[str, str] = field(default_factory=dict)
    sources: int | None = None


def write_block(
    block: StoredBlock, encoder: SourceEncoder, job: ElementSet
) -> BlockResult:
    """Writes the examples of one block."""
    sources = pickle.loads(pages.read_place(block.place, job.target.drafts))

    def report(encoded: Encoded, _: int) -> None:
        Marks.add(encoded.sources, 0.0)

    with OneThread.held():  # sums depend on the number of threads
        return write_encoded(job, encoder.encode(sources), report, block.order)


def write_encoded(
    job: ElementSet,
    encoded: Iterable[Encoded],
    report: Callable[[Encoded, int], None],
    order: int = 0,
    *,
    drafts: str | None = None,
    known: Iterable[int] = (),
) -> BlockResult:
    """Writes the examples of one block, and the receipt of what is noted of them.

    Other threads compress, and add to the statistics, at most two additions behind.

    Parameters
    ----------
    report : callable
        Called with some examples when they are written, and the number of files that
        are finished.
    order : int
        The place of the block among all.
    drafts : str, optional
        Where the files go, on any file system. Default: where those of the job do.
    known : iterable of int
        See :class:`.MemberFileWriter`.
    """
    folder, sources, seen = drafts or job.target.drafts, 0, Seen()
    writers: dict[str, MemberFileWriter] = {}
    splits: dict[str, OfSplit] = {}
    adding: deque[Future[None]] = deque()

    def add(statistics: DataStatistics, columns: Mapping[str, Any]) -> None:
        statistics.add(columns)
        seen.add(job.specs, columns)

    with ExitStack() as stack:
        pool = stack.enter_context(ThreadPoolExecutor(COMPRESSING_THREADS))
        # One thread, because the order of additions decides rounding.
        beside = stack.enter_context(ThreadPoolExecutor(1))
        for some in encoded:
            split = some.split
            if split not in splits:
                splits[split] = OfSplit(DataStatistics.of(job.specs))
                writers[split] = MemberFileWriter(folder, job.sizes, pool, known)
                stack.callback(writers[split].abandon)
            noted = splits[split]
            if some.columns:
                adding.append(beside.submit(add, noted.statistics, some.columns))
                if len(adding) > 2:
                    adding.popleft().result()
            writers[split].write_all(some.records)
            noted.lines += some.lines
            noted.first_skipped = noted.first_skipped or next(iter(some.skipped), "")
            noted.skipped += len(some.skipped)
            sources += some.sources
            report(some, sum(writer.files for writer in writers.values()))
            del some  # before the next source is loaded
        for addition in adding:
            addition.result()
        made = {
            split: [_shared(each, folder) for each in writer.close()]
            for split, writer in writers.items()
        }
    path = files.join(job.target.receipts, f"{order}-{sources}")
    files.write_bytes(path, pages.packed((splits, seen)))
    return BlockResult(order, made, sources, path)


def _shared(made: MemberFile, folder: str) -> MemberFile:
    """Moves a file to where every worker can read it."""
    path = files.join(folder, made.path.rpartition("/")[2])
    if path != made.path:
        files.move(made.path, path)
    return made._replace(path=path)


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
        yield from member_files.cut_shards(split, made, job.sizes)


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
        member_files.join_shard(
            shard, job.sizes, target.output, target.drafts, may_move=True
        )
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
    folders.delete_stale(output, (info.file for info in written))
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
    return metadata.save(output, (folders.SCHEMA, folders.INDEX))


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
            splits, of_block = pages.unpacked(files.read_bytes(result.receipt))
            for name, shape in of_block.shapes.items():
                seen.cover(name, shape)
            seen.missing |= of_block.missing
            for split, noted in splits.items():
                merged[split].merge(noted.statistics)
                if noted.lines and split not in tables:
                    folder = "" if split == DEFAULT_SPLIT else split
                    path = files.join(job.target.output, folder, folders.EXAMPLES_CSV)
                    tables[split] = stack.enter_context(files.replacing(path))
                for line in noted.lines:
                    tables[split].write(line.encode())
                if noted.skipped:
                    first = {"sources": 0, "first": noted.first_skipped}
                    skipped.setdefault(split, first)["sources"] += noted.skipped
    return merged, dict(sorted(skipped.items())), seen
