"""Records of unknown number: files of members first, which become shards later.

::

    records -> MemberFileWriter -> MemberFile -> cut_shards -> join_shard -> shard

Each GZIP member has some whole records. Without GZIP, each record is a member, as it
is. Members can be copied from file to file as they are. So workers write files of
members before anyone knows how many examples there are, and then each shard is put
together from the members of its examples. Only a member that a shard's bound goes
through is compressed again.

The records of a member depend only on their place in their block, and the bound of a
shard only on the number of examples or bytes before it. So the bytes of a shard do not
depend on the number of workers.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict
from itertools import chain, pairwise, repeat
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.examples.encoding import check_lengths
from beam_pipeline.inputs.splits import shard_name
from beam_pipeline.parameters import Choice, Declared, WholeNumber, parameter
from beam_pipeline.permutation import Integers
from beam_pipeline.planning.shards import (
    DEFAULT_SHARD_BYTES,
    MEMBER_BYTES,
    Shard,
    ShardInfo,
)
from beam_pipeline.recipe.recipe import COMPRESSIONS, GZIP, NO_COMPRESSION, check_one_of
from beam_pipeline.storage import files, tfrecord
from beam_pipeline.storage.tfrecord import Members, MemberWriter

# A shard with a limit in bytes ends with a member, up to this share below its limit.
_MEMBERS_PER_SHARD = 16
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
    multiple_of : int
        The number of shards is a multiple of this; shards are then as even as with
        ``num_shards``.
    member_bytes : int or None
        The bytes of a GZIP member before GZIP, unless a single example has more.
        Default: 16 KiB.
    compression : str
        ``gzip``, ``gzip:1`` to ``gzip:9``, or ``none``.
    """

    elements_per_file: int | None = parameter(None, WholeNumber())
    shard_bytes: int | None = parameter(None, WholeNumber())
    num_shards: int | None = parameter(None, WholeNumber())
    multiple_of: int = parameter(1, WholeNumber())
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
    def is_even(self) -> bool:
        """Whether the number of shards decides their sizes."""
        return self.num_shards is not None or self.multiple_of > 1

    @property
    def is_by_bytes(self) -> bool:
        """Whether only the bytes before it decide where a shard ends."""
        return self.elements_per_file is None and not self.is_even

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

    def known(self, examples: int | None) -> Iterator[int]:
        """Yields the examples of each shard, as far as that is known before it ends.

        Parameters
        ----------
        examples : int or None
            The number of examples, if it is known.
        """
        if self.num_shards is not None and examples is not None:
            bounds = self.bounds(examples, 1)
            yield from (stop - start for start, stop in pairwise(bounds))
        elif self.elements_per_file is not None and not self.is_even:
            yield from repeat(self.elements_per_file)

    def bounds(self, examples: int, shards: int) -> list[int]:
        """Returns the first example of each shard, and the number of examples.

        Parameters
        ----------
        examples : int
        shards : int
            The number of shards that ``limit`` alone would make.
        """
        if self.elements_per_file is not None:
            shards = -(-examples // self.elements_per_file)
        if not self.is_even:
            size = self.elements_per_file or examples
            return [min(k * size, examples) for k in range(shards + 1)]
        shards = self.num_shards or shards
        shards = -(-shards // self.multiple_of) * self.multiple_of
        shards = min(shards, examples)
        return [k * examples // max(shards, 1) for k in range(shards + 1)]


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
        Where the files are meant to be; on any file system. They are drafts for it,
        see :func:`beam_pipeline.storage.files.draft_path`.
    sizes : ShardSizes
    pool : executor
        Its threads compress members while this thread goes on.
    examples : iterable of int, optional
        How many records each file gets, as far as it is known.
    """

    def __init__(
        self,
        folder: str,
        sizes: ShardSizes,
        pool: Executor,
        examples: Iterable[int] = (),
    ):
        self._folder = folder
        self._suffix, self._compression = sizes.suffix, sizes.compression
        self._member_limit = sizes.member_limit
        self._limit = sizes.limit if sizes.is_by_bytes else 0
        # After the last given number, the file takes everything.
        self._rooms = chain(examples, repeat(0))
        self._room = next(self._rooms)
        self._pool = pool
        self._made: list[MemberFile] = []
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
        for record in records:
            size = len(record) + tfrecord.FRAME_BYTES
            if self._records and self._length + size > self._member_limit:
                self._end_member()
            self._pieces += tfrecord.frame_parts(record)
            self._records += 1
            self._length += size
            if self._examples + self._records == self._room:
                self._end_file()
                self._room = next(self._rooms)

    @property
    def files(self) -> int:
        """The number of finished files."""
        return len(self._made)

    def _end_member(self) -> None:
        if not self._records:
            return
        member, records = b"".join(self._pieces), self._records
        self._pieces, self._length, self._records = [], 0, 0
        if self._raw and 0 < self._limit < self._raw + len(member):
            self._close_file()
        self._group.append((member, records))
        self._examples += records
        self._raw += len(member)
        self._group_bytes += len(member)
        if self._group_bytes >= _GROUP_BYTES:
            self._end_group()

    def _end_group(self) -> None:
        """Has the members that wait compressed, and writes those that are."""
        if self._group:
            work = self._pool.submit(_contents, self._group, self._compression)
            self._compressing.append(work)
            self._group, self._group_bytes = [], 0
            self._write(_GROUPS_AHEAD)

    def _write(self, ahead: int) -> None:
        """Writes the groups that were compressed; ``ahead`` may wait."""
        if self._file is None and self._compressing:
            name = f"{uuid.uuid4().hex}{self._suffix}"
            self._path = files.draft_path(self._folder, name)
            self._file = MemberWriter.create(self._path)
        while len(self._compressing) > ahead:
            group, contents = self._compressing.popleft().result()
            assert self._file is not None
            with files.writing(self._path):
                self._file.write_member(b"".join(contents))
            self._members += [
                (records, len(member), len(content))
                for (member, records), content in zip(group, contents, strict=True)
            ]

    def _end_file(self) -> None:
        self._end_member()
        self._close_file()

    def _close_file(self) -> None:
        """Ends the file with the members that are complete."""
        self._end_group()
        self._write(0)
        if self._file is None:
            return
        with files.writing(self._path):
            self._file.close()
        table = np.array(self._members, np.int64).reshape(-1, 3)
        self._made.append(MemberFile(self._path, table, self._file.sha256()))
        self._file, self._members = None, []
        self._examples = self._raw = 0

    def close(self) -> list[MemberFile]:
        """Ends the last file; returns all."""
        self._end_file()
        return self._made

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
    by_bytes, examples, filled = [0], 0, 0
    for each in made:
        for records, raw, _ in each.members.tolist():
            if filled and filled + raw > sizes.limit:
                by_bytes.append(examples)
                filled = 0
            examples += records
            filled += raw
    if not examples:
        return [0, 0]
    if sizes.is_by_bytes:
        return [*by_bytes, examples]
    return sizes.bounds(examples, len(by_bytes))


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
