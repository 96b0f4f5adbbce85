"""One block's way from its sources to parts, without Beam.

A block is some sources of examples: rows of a table, or a file of records. How many
examples they give shows only when they are read.
"""

from __future__ import annotations

import json
import pickle
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from beam_pipeline.examples.spec import FeatureSpec, Shape, merge_shapes
from beam_pipeline.marks import Marks
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import FramedRecords
from beam_pipeline.write.parts import Part, PartWriter, ShardSizes
from beam_pipeline.write.statistics import DataStatistics


class Encoded(NamedTuple):
    """Some serialised examples of one split.

    Attributes
    ----------
    split : str
    records : sequence of bytes, or FramedRecords
    columns : mapping
        The values of their features: one array for all examples; a list with an array,
        or None, for each; or a tuple of arrays for some examples each.
    lines : sequence of str
        Lines of the split's table of sources.
    sources : int
        How many sources these examples come from.
    skipped : sequence of str
        For each source that gave no example on purpose, the reason.
    """

    split: str
    records: Sequence[bytes] | FramedRecords
    columns: Mapping[str, Any]
    lines: Sequence[str] = ()
    sources: int = 0
    skipped: Sequence[str] = ()


class BlockEncoder(Protocol):
    """Makes examples of sources; workers have a copy each."""

    @property
    def specs(self) -> Sequence[FeatureSpec]:
        """The features, with None for the sizes that sources decide."""

    def encode(self, sources: Any) -> Iterator[Encoded]:
        """Yields the examples of a block, in their order."""


class BlockRef(NamedTuple):
    """The place of a block among all blocks, and of its pickled sources in a file."""

    order: int
    path: str
    offset: int
    size: int


@dataclass(frozen=True)
class BlockResult:
    """What was written of some blocks.

    Attributes
    ----------
    parts : tuple of Part
    statistics : tuple of (str, int, str)
        Split, place of the block, and the file with the state of their
        :class:`.DataStatistics`.
    shapes : mapping
        Feature to the shape that covers all its arrays.
    missing : frozenset of str
        Features that some examples lack.
    tables : tuple of (str, int, str)
        Split, place of the block, and the file with its lines of the split's table.
    skipped : tuple of (str, int, int, str)
        Split, place of the block, the number of its sources that gave no example on
        purpose, and the reason of the first.
    sources, examples, blocks : int
        How many of them there were.
    """

    parts: tuple[Part, ...] = ()
    statistics: tuple[tuple[str, int, str], ...] = ()
    shapes: Mapping[str, Shape | None] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    tables: tuple[tuple[str, int, str], ...] = ()
    skipped: tuple[tuple[str, int, int, str], ...] = ()
    sources: int = 0
    examples: int = 0
    blocks: int = 0


def store_blocks(
    blocks: Iterable[Any], path: str, dump: Callable[[Any], bytes] = pickle.dumps
) -> list[BlockRef]:
    """Writes the sources of blocks into one file; returns where each is."""
    refs, offset = [], 0
    draft = files.draft_path(path.rpartition("/")[0], uuid.uuid4().hex)
    with open(draft, "wb") as file:
        for order, sources in enumerate(blocks):
            pickled = dump(sources)
            refs.append(BlockRef(order, path, offset, len(pickled)))
            file.write(pickled)
            offset += len(pickled)
    files.move(draft, path)
    return refs


def load_block(ref: BlockRef) -> Any:
    """Returns the sources of a block."""
    with files.open_read(ref.path) as file:
        file.seek(ref.offset)
        return pickle.loads(file.read(ref.size))


def write_block(
    ref: BlockRef, encoder: BlockEncoder, sizes: ShardSizes, parts_folder: str
) -> BlockResult:
    """Writes the examples of one block into parts.

    Parameters
    ----------
    parts_folder : str
        Where the parts go; on any file system.
    """
    drafts = parts_folder
    if not files.is_local(parts_folder):
        drafts = files.draft_path(parts_folder, uuid.uuid4().hex)
    writers: dict[str, PartWriter] = {}
    statistics: dict[str, DataStatistics] = {}
    lines: dict[str, list[str]] = {}
    skipped: dict[str, list[str]] = {}
    seen = _Seen(encoder.specs)
    sources = 0
    with ExitStack() as stack:
        for encoded in encoder.encode(load_block(ref)):
            split = encoded.split
            if split not in writers:
                writers[split] = PartWriter(drafts, split, ref.order, sizes)
                stack.callback(writers[split].abandon)
                statistics[split] = DataStatistics.of(encoder.specs, has_windows=False)
            writers[split].write_all(encoded.records)
            if encoded.columns:
                statistics[split].add(encoded.columns)
                seen.add(encoded.columns)
            lines.setdefault(split, []).extend(encoded.lines)
            skipped.setdefault(split, []).extend(encoded.skipped)
            sources += encoded.sources
            Marks.add(encoded.sources, 0.0)
        parts = [part for writer in writers.values() for part in writer.close()]
    return BlockResult(
        tuple(_share(part, parts_folder) for part in parts),
        tuple(
            (split, ref.order, _write_state(of_split, parts_folder))
            for split, of_split in statistics.items()
        ),
        seen.shapes,
        frozenset(seen.missing),
        tuple(
            (split, ref.order, _write_lines(rows, parts_folder))
            for split, rows in lines.items()
            if rows
        ),
        tuple(
            (split, ref.order, len(reasons), reasons[0])
            for split, reasons in skipped.items()
            if reasons
        ),
        sources,
        sum(int(part.members[:, 0].sum()) for part in parts),
        blocks=1,
    )


def _share(part: Part, folder: str) -> Part:
    """Moves a part to where every worker can read it."""
    name = part.path.rpartition("/")[2]
    path = files.join(folder, name)
    if path != part.path:
        files.move(part.path, path)
    return part._replace(path=path)


def _write_lines(lines: Sequence[str], folder: str) -> str:
    path = files.join(folder, f"{uuid.uuid4().hex}.csv")
    files.write_bytes(path, "".join(lines).encode())
    return path


def _write_state(statistics: DataStatistics, folder: str) -> str:
    path = files.join(folder, f"{uuid.uuid4().hex}.json")
    files.write_bytes(path, json.dumps(statistics.state()).encode())
    return path


def merge_statistics(
    result: BlockResult, split: str, specs: Iterable[FeatureSpec]
) -> DataStatistics:
    """Returns the statistics of a split: those of its blocks, from left to right."""
    merged = DataStatistics.of(specs, has_windows=False)
    for of_split, _, path in result.statistics:
        if of_split == split:
            state = json.loads(files.read_bytes(path))
            merged.merge(DataStatistics.from_state(state))
    return merged


class _Seen:
    """Shapes of the features whose sizes sources decide."""

    def __init__(self, specs: Iterable[FeatureSpec]):
        self._names = [spec.name for spec in specs if not spec.has_fixed_shape]
        self._all = [spec.name for spec in specs]
        self.shapes: dict[str, Shape | None] = {}
        self.missing: set[str] = set()

    def add(self, columns: Mapping[str, Any]) -> None:
        for name in self._all:
            values = columns.get(name)
            if isinstance(values, list) and any(value is None for value in values):
                self.missing.add(name)
        for name in self._names:
            values = columns.get(name, ())
            if isinstance(values, np.ndarray | tuple):
                for piece in values if isinstance(values, tuple) else (values,):
                    self._add(name, piece.shape[1:])
                continue
            for shape in {np.shape(value) for value in values if value is not None}:
                self._add(name, shape)

    def _add(self, name: str, shape: tuple[int, ...]) -> None:
        known = self.shapes.get(name, shape)
        self.shapes[name] = merge_shapes(known, shape)


def merge_results(several: Iterable[BlockResult]) -> BlockResult:
    """Returns the results of all blocks together; the order does not matter."""
    parts: list[Part] = []
    tables: list[tuple[str, int, str]] = []
    statistics: list[tuple[str, int, str]] = []
    shapes: dict[str, Shape | None] = {}
    missing: set[str] = set()
    skipped: list[tuple[str, int, int, str]] = []
    sources = examples = blocks = 0
    for result in several:
        parts += result.parts
        tables += result.tables
        statistics += result.statistics
        for name, shape in result.shapes.items():
            shapes[name] = merge_shapes(shapes.get(name, shape), shape)
        missing |= result.missing
        skipped += result.skipped
        sources += result.sources
        examples += result.examples
        blocks += result.blocks
    return BlockResult(
        tuple(sorted(parts, key=lambda part: (part.split, part.order))),
        tuple(sorted(statistics)),
        shapes,
        frozenset(missing),
        tuple(sorted(tables)),
        tuple(sorted(skipped)),
        sources,
        examples,
        blocks,
    )


def observed_specs(
    specs: Iterable[FeatureSpec], result: BlockResult
) -> list[FeatureSpec]:
    """Returns the specs with the shapes that all examples together have."""
    made = []
    for spec in specs:
        shape = result.shapes.get(spec.name, spec.shape)
        optional = spec.optional or spec.name in result.missing
        if optional and shape:  # where it is missing, its first axis is empty
            shape = (None, *shape[1:])
        made.append(replace(spec, shape=shape, optional=optional))
    return made
