"""Records of unknown number: parts are written first, and laid out as shards later.

::

    records -> PartWriter -> Part -> cut_shards -> ShardParts -> join_pieces -> shard

A part is a file of GZIP members, each with some whole records. Without GZIP, each
record is a member, as it is. Members can be copied from file to file as they are. So
workers write parts before anyone knows how many examples there are, and then each shard
is put together from the members of its examples. Only a member that a shard's bound
goes through is compressed again.

The records of a member depend only on their place in their block, and the bound of a
shard only on the number of examples or bytes before it. So the bytes of a shard do not
depend on the number of workers.
"""

from __future__ import annotations

import hashlib
import uuid
from collections import deque
from collections.abc import Iterable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass
from itertools import chain, pairwise, repeat
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import InputError
from beam_pipeline.plan.shards import DEFAULT_SHARD_BYTES, MEMBER_BYTES
from beam_pipeline.recipe.values import (
    COMPRESSIONS,
    GZIP,
    check_choice,
    check_one_of,
    check_whole,
)
from beam_pipeline.storage import files
from beam_pipeline.storage.gzip_members import compress_member
from beam_pipeline.storage.tfrecord import (
    FRAME_BYTES,
    FramedRecords,
    frame_parts,
    suffix_for,
)

# A shard with a limit in bytes ends with a member, up to this share below its limit.
_MEMBERS_PER_SHARD = 16
# What readers of protobuf accept.
MOST_RECORD_BYTES = 2**31 - 1
# A thread compresses the members of about this many bytes at once.
_GROUP_BYTES = 256 << 10
# Groups that threads compress, or have compressed, while one waits to be written.
_GROUPS_AHEAD = 8


@dataclass(frozen=True, slots=True)
class ShardSizes:
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
        ``gzip`` or ``none``.
    """

    elements_per_file: int | None = None
    shard_bytes: int | None = None
    num_shards: int | None = None
    multiple_of: int = 1
    member_bytes: int | None = None
    compression: str = GZIP

    def __post_init__(self) -> None:
        ways = ("elements_per_file", "shard_bytes", "num_shards")
        for name in ways:
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name))
        check_one_of({name: getattr(self, name) for name in ways})
        check_whole("multiple_of", self.multiple_of)
        if self.member_bytes is not None:
            check_whole("member_bytes", self.member_bytes)
        check_choice("compression", self.compression, COMPRESSIONS)

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
    def member_limit(self) -> int:
        """The bytes of a member before GZIP; 0: each example is one."""
        if self.compression != GZIP:
            return 0
        asked = self.member_bytes or MEMBER_BYTES
        return min(asked, self.limit // _MEMBERS_PER_SHARD)

    @property
    def suffix(self) -> str:
        """The end of the name of a shard."""
        return suffix_for(self.compression)

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


class Part(NamedTuple):
    """A file of members. ``order`` is its place among the parts of its split.

    ``members`` has a row for each member: its records, their bytes before GZIP, and its
    own bytes; int64.
    """

    split: str
    order: tuple[int, ...]
    path: str
    members: npt.NDArray[np.int64]
    sha256: str


class PartWriter:
    """Writes the records of a block, in their order, to one part or several.

    Parameters
    ----------
    folder : str
        Where the files are made; a local folder.
    split, order : str, int
        The split of the records, and the place of their block in it.
    sizes : ShardSizes
    examples : iterable of int, optional
        How many records each part gets. Default: all records go to one part, unless
        ``by_bytes`` is True. Then a part ends where a shard of these bytes would.
    pool : executor, optional
        Its threads compress members while this thread goes on.
    """

    def __init__(
        self,
        folder: str,
        split: str,
        order: int,
        sizes: ShardSizes,
        examples: Iterable[int] = (),
        by_bytes: bool = False,
        pool: Executor | None = None,
    ):
        self._folder = folder
        self._split = split
        self._order = order
        self._sizes = sizes
        # After the last given number, the part takes everything.
        self._rooms = chain(examples, repeat(0))
        self._room = next(self._rooms)
        self._by_bytes = by_bytes
        self._pool = pool
        self._parts: list[Part] = []
        self._file: BinaryIO | None = None
        self._start()

    def _start(self) -> None:
        # Of the part: its members, which have been written.
        self._members: list[tuple[int, int, int]] = []
        self._compressing: deque[tuple[list[int], list[int], Future[list[bytes]]]]
        self._compressing = deque()
        self._sha256 = hashlib.sha256()
        self._examples = self._raw = 0
        # Of the group: its members' ends and records. The last member is not complete.
        self._buffer = bytearray()
        self._ends: list[int] = [0]
        self._counts: list[int] = []
        self._records = 0

    def write(self, record: bytes) -> None:
        """Adds a record."""
        if len(record) > MOST_RECORD_BYTES:
            raise InputError(
                f"An example of split {self._split} has {len(record):,} bytes, but "
                f"protobuf and TensorFlow read at most {MOST_RECORD_BYTES:,}. Cut it "
                "into several."
            )
        if self._records and self._room_in_member() < len(record) + FRAME_BYTES:
            self._end_member()
        for piece in frame_parts(record):
            self._buffer += piece
        self._add(1)

    def write_all(self, records: Iterable[bytes] | FramedRecords) -> None:
        """Adds several records."""
        if not isinstance(records, FramedRecords):
            for record in records:
                self.write(record)
            return
        view, size, left = memoryview(records.data), records.size, records.records
        while left:
            if self._records and self._room_in_member() < size:
                self._end_member()
            count = min(left, max(self._room_in_member() // size, 1))
            if self._room:
                count = min(count, self._room - self._examples - self._records)
            self._buffer += view[: count * size]
            view = view[count * size :]
            left -= count
            self._add(count)

    def _room_in_member(self) -> int:
        return self._sizes.member_limit - (len(self._buffer) - self._ends[-1])

    def _add(self, records: int) -> None:
        """Counts records; ends the part if it has as many as it shall have."""
        self._records += records
        if self._examples + self._records == self._room:
            self._end_part()
            self._room = next(self._rooms)

    @property
    def files(self) -> int:
        """The number of finished parts."""
        return len(self._parts)

    def _end_member(self) -> None:
        if not self._records:
            return
        start, records = self._ends[-1], self._records
        raw = len(self._buffer) - start
        if self._by_bytes and self._raw and self._raw + raw > self._sizes.limit:
            last = self._buffer[start:]
            del self._buffer[start:]
            self._records = 0
            self._end_part()
            self._buffer = last
        self._ends.append(len(self._buffer))
        self._counts.append(records)
        self._examples += records
        self._raw += raw
        self._records = 0
        if len(self._buffer) >= _GROUP_BYTES:
            self._end_group()

    def _end_group(self) -> None:
        """Compresses and writes the members that are complete."""
        if not self._counts:
            return
        if self._file is None:
            files.make_folder(self._folder)
            name = f"{uuid.uuid4().hex}{self._sizes.suffix}"
            self._file = open(files.join(self._folder, name), "wb")  # noqa: SIM115
        counts, ends, buffer = self._counts, self._ends, self._buffer
        self._counts, self._ends, self._buffer = [], [0], bytearray()
        if self._sizes.compression != GZIP:
            self._put(counts, ends, [bytes(buffer)])
        elif self._pool is None:
            self._put(counts, ends, _compress_members(buffer, ends))
        else:
            future = self._pool.submit(_compress_members, buffer, ends)
            self._compressing.append((counts, ends, future))
            self._put_compressed(_GROUPS_AHEAD)

    def _put_compressed(self, ahead: int) -> None:
        """Writes the groups that threads have compressed; ``ahead`` may wait."""
        while len(self._compressing) > ahead:
            counts, ends, future = self._compressing.popleft()
            self._put(counts, ends, future.result())

    def _put(
        self, counts: Sequence[int], ends: Sequence[int], contents: Sequence[bytes]
    ) -> None:
        assert self._file is not None
        with files.writing(self._file.name):
            for content in contents:
                self._file.write(content)
                self._sha256.update(content)
        raws = [stop - start for start, stop in pairwise(ends)]
        sizes = raws
        if self._sizes.compression == GZIP:
            sizes = [len(content) for content in contents]
        self._members += zip(counts, raws, sizes, strict=True)

    def _end_part(self) -> None:
        self._end_member()
        self._end_group()
        if self._file is None:
            return
        self._put_compressed(0)
        self._file.close()
        self._parts.append(
            Part(
                self._split,
                (self._order, len(self._parts)),
                self._file.name,
                np.array(self._members, np.int64).reshape(-1, 3),
                self._sha256.hexdigest(),
            )
        )
        self._file = None
        self._start()

    def close(self) -> list[Part]:
        """Ends the last part; returns all parts."""
        self._end_part()
        return self._parts

    def abandon(self) -> None:
        """Closes the file that is open; the caller deletes the folder."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _compress_members(buffer: bytearray, ends: Sequence[int]) -> list[bytes]:
    with memoryview(buffer) as view:
        return [compress_member(view[start:stop]) for start, stop in pairwise(ends)]
