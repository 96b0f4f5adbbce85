"""A data set of elements: what it will be, its blocks, its shards, and its end.

::

    element_output -> blocks -> lay_out -> shards -> finish_elements
    claim             files     old data             metadata.json
                                set goes

    StoredBlock -> ElementSet.encode -> Encoded -> write_encoded -> BlockResult
                                                  \\
                                                   receipt: statistics, table, shapes

    Encoded -> MemberFileWriter -> MemberFile -> cut_shards -> join_shard -> shard

A block is some sources of examples: rows of a table, or a file of records. How many
examples they give shows only when they are read. What grows with the sources is in a
receipt, which a runner that repeats a block writes again.

So examples go to files of members first, which become shards later. Each GZIP member
has some whole records. Without GZIP, each record is a member, as it is. Members can be
copied from file to file as they are: each shard is put together from the members of its
examples. Only a member that a shard's bound goes through is compressed again.

The records of a member depend only on their place in their block, and the bound of a
shard only on the number of examples or bytes before it. So the bytes of a shard do not
depend on the number of workers.

The source of elements cannot be asked for some of them again: what fails is deleted,
and never continued. See :func:`.element_output` for the beginning.
"""

from __future__ import annotations

import pickle
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from itertools import pairwise
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.arrays import Integers
from beam_pipeline.dataset import folders
from beam_pipeline.dataset.job import ElementOutput, make_room, writer_versions
from beam_pipeline.dataset.metadata import Elements, Metadata, ShardEntry, SplitEntry
from beam_pipeline.errors import IncompleteRun
from beam_pipeline.examples.serialisation import check_lengths
from beam_pipeline.examples.spec import FeatureSpec, Shape, merge_shapes
from beam_pipeline.inputs.splits import DEFAULT_SPLIT, shard_name
from beam_pipeline.parameters import Choice, Declared, WholeNumber, parameter
from beam_pipeline.planning.shards import (
    DEFAULT_SHARD_BYTES,
    MEMBER_BYTES,
    Shard,
    ShardInfo,
)
from beam_pipeline.process import Marks, OneThread
from beam_pipeline.recipe.recipe import COMPRESSIONS, GZIP, NO_COMPRESSION, check_one_of
from beam_pipeline.storage import files, pages, tfrecord
from beam_pipeline.storage.pages import Place
from beam_pipeline.storage.tfrecord import Members, MemberWriter
from beam_pipeline.write.statistics import DataStatistics

# A shard with a limit in bytes ends with a member, up to this share below its limit.
_MEMBERS_PER_SHARD = 16
# Compressing takes longer than all else; it leaves the interpreter to the writer.
COMPRESSING_THREADS = 2
# A thread compresses the members of about this many bytes at once.
_GROUP_BYTES = 256 << 10
# Groups that threads compress, or have compressed, while one waits to be written.
_GROUPS_AHEAD = 8


class ShardSizes(Declared, kw_only=False):
    """Where shards end. At most one of the first three is given.

    Attributes
    ----------
    elements_per_file : int or None
        The examples in a shard; the last one has the rest.
    shard_bytes : int or None
        No shard has more bytes before GZIP, unless a single example has. A shard may
        end up to a sixteenth below. Default: 128 MiB.
    num_shards : int or None
        The number of shards; their examples differ by one at most.
    member_bytes : int or None
        The bytes of a GZIP member before GZIP, unless a single example has more.
        Default: 16 KiB.
    compression : str
        ``gzip``, ``gzip:1`` to ``gzip:9``, or ``none``.
    """

    elements_per_file: int | None = parameter(None, WholeNumber())
    shard_bytes: int | None = parameter(None, WholeNumber())
    num_shards: int | None = parameter(None, WholeNumber())
    member_bytes: int | None = parameter(None, WholeNumber())
    compression: str = parameter(GZIP, Choice(COMPRESSIONS))

    def check(self) -> None:
        """Checks that at most one of the first three is given."""
        ways = ("elements_per_file", "shard_bytes", "num_shards")
        check_one_of({name: getattr(self, name) for name in ways})

    def to_json(self) -> dict[str, Any]:
        """Returns the sizes as the metadata hold them."""
        return asdict(self)

    @property
    def limit(self) -> int:
        """The bytes of a shard, if neither examples nor shards are counted."""
        return self.shard_bytes or DEFAULT_SHARD_BYTES

    @property
    def is_by_bytes(self) -> bool:
        """Whether only the bytes before it decide where a shard ends."""
        return self.elements_per_file is None and self.num_shards is None

    @property
    def member_limit(self) -> int:
        """The bytes of a member before GZIP; 0: each example is one."""
        if self.compression == NO_COMPRESSION:
            return 0
        asked = self.member_bytes or MEMBER_BYTES
        return min(asked, self.limit // _MEMBERS_PER_SHARD)

    @property
    def suffix(self) -> str:
        """The end of the name of a shard."""
        return tfrecord.suffix_for(self.compression)


# Members before GZIP, and their records.
_Group = list[tuple[bytes, int]]


class MemberFile(NamedTuple):
    """A file of members.

    ``members`` has a row for each: its records, their bytes before GZIP, and its own
    bytes; int64.
    """

    path: str
    members: npt.NDArray[np.int64]
    sha256: str

    @property
    def records(self) -> int:
        """The number of its records."""
        return int(self.members[:, 0].sum())


class MemberFileWriter:
    """Writes records, in their order, to one file of members or several.

    A file ends where a shard of ``sizes`` would end if its first record were the first
    of a shard. So a file may become a shard as it is.

    Parameters
    ----------
    folder : str
        Where finished files are, for every worker; on any file system.
    sizes : ShardSizes
    pool : executor
        Its threads compress members while this thread goes on.

    Attributes
    ----------
    made : list of MemberFile
        The files that are finished.
    """

    def __init__(self, folder: str, sizes: ShardSizes, pool: Executor):
        self._folder, self._sizes, self._pool = folder, sizes, pool
        # The most examples and bytes of a file; 0: any number.
        self._room = sizes.elements_per_file or 0
        self._limit = sizes.limit if sizes.is_by_bytes else 0
        self.made: list[MemberFile] = []
        self._file: MemberWriter | None = None
        self._path = ""
        # Of the file: its members, as soon as they are written.
        self._members: list[tuple[int, int, int]] = []
        self._examples = self._raw = 0
        # Of the member that is not complete: its content in pieces.
        self._pieces: list[bytes] = []
        self._length = self._records = 0
        # Complete members: some that wait, and groups that threads compress.
        self._group: _Group = []
        self._group_bytes = 0
        self._compressing: deque[Future[tuple[_Group, list[bytes]]]] = deque()

    def write_all(self, records: Sequence[bytes]) -> None:
        """Adds records.

        Raises
        ------
        InputError
            If readers would not accept one of them.
        """
        check_lengths(records)
        most = self._sizes.member_limit
        for record in records:
            size = len(record) + tfrecord.FRAME_BYTES
            if self._records and self._length + size > most:
                self._end_member()
            self._pieces += tfrecord.frame_parts(record)
            self._records += 1
            self._length += size
            if self._examples + self._records == self._room:
                self._end_file()

    def _end_member(self) -> None:
        if not self._records:
            return
        member, records = b"".join(self._pieces), self._records
        self._pieces, self._length, self._records = [], 0, 0
        if self._raw and 0 < self._limit < self._raw + len(member):
            self._end_file()
        self._examples += records
        self._raw += len(member)
        self._group.append((member, records))
        self._group_bytes += len(member)
        if self._group_bytes >= _GROUP_BYTES:
            self._write(_GROUPS_AHEAD)

    def _write(self, ahead: int) -> None:
        """Has the members that wait compressed; writes all groups but ``ahead``."""
        if self._group:
            compression = self._sizes.compression
            work = self._pool.submit(_contents, self._group, compression)
            self._compressing.append(work)
            self._group, self._group_bytes = [], 0
        while len(self._compressing) > ahead:
            group, contents = self._compressing.popleft().result()
            if self._file is None:
                name = f"{uuid.uuid4().hex}{self._sizes.suffix}"
                self._path = files.draft_path(self._folder, name)
                self._file = MemberWriter.create(self._path)
            with files.writing(self._path):
                self._file.write_member(b"".join(contents))
            self._members += [
                (records, len(member), len(content))
                for (member, records), content in zip(group, contents, strict=True)
            ]

    def _end_file(self) -> None:
        """Ends the file, with all members that are complete."""
        self._end_member()
        self._write(0)
        if self._file is None:
            return
        with files.writing(self._path):
            self._file.close()
        path = files.join(self._folder, self._path.rpartition("/")[2])
        if path != self._path:
            files.move(self._path, path)
        table = np.array(self._members, np.int64).reshape(-1, 3)
        self.made.append(MemberFile(path, table, self._file.sha256()))
        self._file, self._members = None, []
        self._examples = self._raw = 0

    def close(self) -> list[MemberFile]:
        """Ends the last file; returns all."""
        self._end_file()
        return self.made

    def abandon(self) -> None:
        """Closes the file that is open; the caller deletes the folder."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _contents(group: _Group, compression: str) -> tuple[_Group, list[bytes]]:
    """Returns some members, and the bytes of each in its file."""
    return group, [tfrecord.compress_member(member, compression) for member, _ in group]


_BLOCK = 1 << 20


class MemberRange(NamedTuple):
    """Records that follow each other in a file of members.

    ``members`` are those that hold them, as in :class:`.MemberFile`; the first begins
    at ``offset``. Of the records in them, ``records`` are taken, from ``skip`` on.
    """

    path: str
    offset: int
    members: Integers
    skip: int
    records: int


class JoinedShard(NamedTuple):
    """A shard and the pieces that make it.

    ``whole`` is the SHA-256 of the only file that makes it; empty if there are several,
    or only some members of one.
    """

    shard: Shard
    pieces: tuple[MemberRange, ...]
    whole: str = ""


def cut_shards(
    split: str, made: Sequence[MemberFile], sizes: ShardSizes
) -> Iterator[JoinedShard]:
    """Lays out the records of a split as shards; one is empty if there are none.

    Parameters
    ----------
    made : sequence of MemberFile
        In the order of their records.
    """
    first = np.cumsum([0, *(each.records for each in made)])
    bounds = _bounds(made, sizes)
    shards = len(bounds) - 1
    for k, (start, stop) in enumerate(pairwise(bounds)):
        low = int(np.searchsorted(first, start, "right")) - 1
        high = int(np.searchsorted(first, stop, "left"))
        pieces = tuple(
            _piece(each, max(start - at, 0), min(stop - at, each.records))
            for each, at in zip(made[low:high], first[low:high].tolist(), strict=True)
        )
        is_whole = len(pieces) == 1 and pieces[0].records == made[low].records
        shard = Shard(shard_name(split, k, shards), split, k, stop - start)
        whole = made[low].sha256 if is_whole else ""
        yield JoinedShard(shard, pieces, whole)


def _piece(file: MemberFile, start: int, stop: int) -> MemberRange:
    """Returns the records ``start .. stop - 1`` of a file."""
    ends = np.cumsum(file.members[:, 0])
    low = int(np.searchsorted(ends, start, "right"))
    high = int(np.searchsorted(ends, stop, "left")) + 1
    skip = start - int(ends[low] - file.members[low, 0])
    offset = int(file.members[:low, 2].sum())
    return MemberRange(file.path, offset, file.members[low:high], skip, stop - start)


def _bounds(made: Sequence[MemberFile], sizes: ShardSizes) -> Sequence[int]:
    """Returns the first example of each shard, and the number of examples."""
    examples = sum(each.records for each in made)
    if not examples:
        return [0, 0]
    if sizes.elements_per_file is not None:
        return [*range(0, examples, sizes.elements_per_file), examples]
    if sizes.num_shards is not None:
        shards = min(sizes.num_shards, examples)
        return [k * examples // shards for k in range(shards + 1)]
    bounds, first, filled = [0], 0, 0
    for records, raw, _ in np.concatenate([each.members for each in made]).tolist():
        if filled and filled + raw > sizes.limit:
            bounds.append(first)
            filled = 0
        first += records
        filled += raw
    return [*bounds, examples]


def join_shard(
    joined: JoinedShard,
    sizes: ShardSizes,
    output: str,
    folder: str,
    *,
    may_move: bool = False,
) -> ShardInfo:
    """Writes a shard from its pieces.

    Parameters
    ----------
    sizes : ShardSizes
        Those of its pieces.
    output : str
        The output folder.
    folder : str
        A folder for the unfinished file.
    may_move : bool
        Whether a local file that is the whole shard is moved instead of copied. A
        runner may write a shard twice, so the files must then stay.
    """
    shard, pieces, sha256 = joined
    file, compression = shard.name + sizes.suffix, sizes.compression
    if may_move and sha256 and files.is_local(pieces[0].path):
        draft, table = pieces[0].path, pieces[0].members
        members = Members(table[:, 2], table[:, 0])
        size = int(members.sizes.sum())
    else:
        name = f"{uuid.uuid4().hex}-{file.rpartition('/')[2]}"
        draft = files.draft_path(folder, name)
        writer = MemberWriter.create(draft)
        members = Members.of(
            pair for piece in pieces for pair in _copy(piece, compression, writer)
        )
        if not pieces:
            # A file without any bytes would not be GZIP.
            writer.write_member(tfrecord.compress_member(b"", compression))
        writer.close()
        size, sha256 = writer.bytes_written, writer.sha256()
    files.move(draft, files.join(output, file))
    return ShardInfo(shard, file, shard.examples, size, sha256, members=members.pack())


def _copy(
    piece: MemberRange, compression: str, writer: MemberWriter
) -> Iterator[tuple[int, int]]:
    """Writes the records of a piece; yields the bytes and the records of each member.

    A member of which only some records are taken is compressed again.
    """
    counts, sizes = piece.members[:, 0], piece.members[:, 2]
    taken = counts.copy()
    taken[0] -= piece.skip
    taken[-1] -= taken.sum() - piece.records
    # Only the first and the last member may be cut.
    ends = sorted({0, 1, len(counts) - 1, len(counts)})
    with files.open_read(piece.path) as reader:
        reader.seek(piece.offset)
        for low, high in pairwise(ends):
            size = int(sizes[low:high].sum())
            if (taken[low:high] == counts[low:high]).all():
                while size:
                    size -= writer.write_member(_read(reader, min(size, _BLOCK), piece))
                members = sizes[low:high].tolist(), counts[low:high].tolist()
                yield from zip(*members, strict=True)
                continue
            packed = _read(reader, size, piece)
            length = tfrecord.content_length(packed)
            member = tfrecord.inflate_members(packed, length)
            bounds, first = tfrecord.record_bounds(member), 0 if low else piece.skip
            stop = first + int(taken[low])
            content = tfrecord.compress_member(
                member[bounds[first] : bounds[stop]], compression
            )
            yield writer.write_member(content), int(taken[low])


def _read(reader: BinaryIO, size: int, piece: MemberRange) -> bytes:
    content = reader.read(size)
    if len(content) < size:
        raise ValueError(f"{piece.path} ends before its member does")
    return content


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


# Yields the examples of the sources of a block, in their order; workers have a copy.
Encode = Callable[[Any], Iterator[Encoded]]


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

    ``lines`` are those of its table of sources. ``skipped`` has the reason of each
    source that gave no example on purpose.
    """

    statistics: DataStatistics
    lines: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


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


# Returns the specs that the metadata hold, from those of the job and what all
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
        The features, with None for the sizes that sources decide.
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
    encode : callable or None
        See ``Encode``; None if there are no blocks.
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
    encode: Encode | None = None


def write_block(block: StoredBlock, job: ElementSet) -> BlockResult:
    """Writes the examples of one block."""
    assert job.encode is not None
    sources = pickle.loads(pages.read_place(block.place, job.target.drafts))

    def report(encoded: Encoded, _: int) -> None:
        Marks.add(encoded.sources, 0.0)

    with OneThread.held():  # sums depend on the number of threads
        return write_encoded(job, job.encode(sources), report, block.order)


def write_encoded(
    job: ElementSet,
    encoded: Iterable[Encoded],
    report: Callable[[Encoded, int], None],
    order: int = 0,
    *,
    drafts: str | None = None,
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
                writers[split] = MemberFileWriter(folder, job.sizes, pool)
                stack.callback(writers[split].abandon)
            noted = splits[split]
            if some.columns:
                adding.append(beside.submit(add, noted.statistics, some.columns))
                if len(adding) > 2:
                    adding.popleft().result()
            writers[split].write_all(some.records)
            noted.lines += some.lines
            noted.skipped += some.skipped
            sources += some.sources
            report(some, sum(len(writer.made) for writer in writers.values()))
            del some  # before the next source is loaded
        for addition in adding:
            addition.result()
        made = {split: writer.close() for split, writer in writers.items()}
    path = files.join(job.target.receipts, f"{order}-{sources}")
    files.write_bytes(path, pages.packed((splits, seen)))
    return BlockResult(order, made, sources, path)


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
    folders.delete_stale(output, (info.file for info in written))
    metadata = Metadata(
        None,
        specs,
        job.classes,
        {
            split: SplitEntry(
                sum(info.examples for info in of_split),
                statistics=statistics[split].to_json(),
                shards=tuple(map(ShardEntry.like, of_split)),
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
    return metadata.save(output, (folders.SCHEMA, folders.INDEX), written)


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
                    first = {"sources": 0, "first": noted.skipped[0]}
                    skipped.setdefault(split, first)["sources"] += len(noted.skipped)
    return merged, dict(sorted(skipped.items())), seen
