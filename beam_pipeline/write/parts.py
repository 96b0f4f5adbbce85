"""Records of unknown number: parts are written first, and laid out as shards later.

::

    records -> PartWriter -> Part -> cut_shards -> ShardParts -> join_pieces -> shard

A part is a file of GZIP members, each with some whole records. Members can be copied
from file to file as they are, and files of members are plain GZIP to every reader. So
workers write parts before anyone knows how many examples there are, and then each shard
is put together from the members of its examples. Only a member that a shard's bound
goes through is compressed again.

The records of a member depend only on their place in their block, and the bound of a
shard only on the number of examples or bytes before it. So the bytes of a shard do not
depend on the number of workers.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections import deque
from collections.abc import Iterable
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from itertools import chain, repeat
from typing import BinaryIO, NamedTuple

from beam_pipeline.errors import InputError
from beam_pipeline.plan.shards import DEFAULT_SHARD_BYTES
from beam_pipeline.recipe.values import check_one_of, check_whole
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import (
    FRAME_BYTES,
    SUFFIX,
    FramedRecords,
    compress_member,
    frame_parts,
)

# Files of members of this size are 0.5 % larger than files of a single member.
MEMBER_BYTES = 256 << 10
# A shard with a limit in bytes ends with a member, up to this share below its limit.
_MEMBERS_PER_SHARD = 16
# What readers of protobuf accept.
MOST_RECORD_BYTES = 2**31 - 1
# Members that threads compress, or have compressed, while one waits to be written.
_MEMBERS_AHEAD = 8


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
    """

    elements_per_file: int | None = None
    shard_bytes: int | None = None
    num_shards: int | None = None
    multiple_of: int = 1

    def __post_init__(self) -> None:
        ways = ("elements_per_file", "shard_bytes", "num_shards")
        for name in ways:
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name))
        check_one_of({name: getattr(self, name) for name in ways})
        check_whole("multiple_of", self.multiple_of)

    @property
    def limit(self) -> int:
        """The bytes of a shard, if neither examples nor shards are counted."""
        return self.shard_bytes or DEFAULT_SHARD_BYTES

    @property
    def is_even(self) -> bool:
        """Whether the number of shards decides their sizes."""
        return self.num_shards is not None or self.multiple_of > 1

    @property
    def member_bytes(self) -> int:
        """The bytes of a member, before GZIP."""
        return max(1, min(MEMBER_BYTES, self.limit // _MEMBERS_PER_SHARD))

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


class Member(NamedTuple):
    """One GZIP member: its records, their bytes, and its own bytes."""

    examples: int
    raw: int
    size: int


class Part(NamedTuple):
    """A file of members. ``order`` is its place among the parts of its split."""

    split: str
    order: tuple[int, ...]
    path: str
    members: tuple[Member, ...]
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
        self._written = 0
        self._start()

    def _start(self) -> None:
        self._members: list[Member] = []
        self._compressing: deque[tuple[int, int, Future[bytes]]] = deque()
        self._sha256 = hashlib.sha256()
        self._buffer = bytearray()
        self._records = self._examples = self._raw = 0

    def write(self, record: bytes) -> None:
        """Adds a record."""
        if len(record) > MOST_RECORD_BYTES:
            raise InputError(
                f"An example of split {self._split} has {len(record):,} bytes, but "
                f"protobuf and TensorFlow read at most {MOST_RECORD_BYTES:,}. Cut it "
                "into several."
            )
        size = len(record) + FRAME_BYTES
        if self._records and len(self._buffer) + size > self._sizes.member_bytes:
            self._end_member()
        for piece in frame_parts(record):
            self._buffer += piece
        self._records += 1
        if self._examples + self._records == self._room:
            self._end_part()
            self._room = next(self._rooms)

    def write_all(self, records: Iterable[bytes] | FramedRecords) -> None:
        """Adds several records."""
        if not isinstance(records, FramedRecords):
            for record in records:
                self.write(record)
            return
        view, size, left = memoryview(records.data), records.size, records.records
        while left:
            if self._records and len(self._buffer) + size > self._sizes.member_bytes:
                self._end_member()
            fitting = (self._sizes.member_bytes - len(self._buffer)) // size
            count = min(left, max(fitting, 1))
            if self._room:
                count = min(count, self._room - self._examples - self._records)
            self._buffer += view[: count * size]
            view = view[count * size :]
            self._records += count
            left -= count
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
        raw = len(self._buffer)
        if self._by_bytes and self._raw and self._raw + raw > self._sizes.limit:
            buffer, records = self._buffer, self._records
            self._buffer, self._records = bytearray(), 0
            self._end_part()
            self._buffer, self._records = buffer, records
        if self._file is None:
            os.makedirs(self._folder, exist_ok=True)
            path = files.join(self._folder, f"{uuid.uuid4().hex}{SUFFIX}")
            self._file = open(path, "wb")  # noqa: SIM115
        data, self._buffer = self._buffer, bytearray()
        if self._pool is None:
            self._put(self._records, raw, compress_member(data))
        else:
            future = self._pool.submit(compress_member, data)
            self._compressing.append((self._records, raw, future))
            self._put_compressed(_MEMBERS_AHEAD)
        self._examples += self._records
        self._raw += raw
        self._records = 0

    def _put_compressed(self, ahead: int) -> None:
        """Writes the members that threads have compressed; ``ahead`` may wait."""
        while len(self._compressing) > ahead:
            records, raw, future = self._compressing.popleft()
            self._put(records, raw, future.result())

    def _put(self, records: int, raw: int, compressed: bytes) -> None:
        assert self._file is not None
        self._file.write(compressed)
        self._sha256.update(compressed)
        self._members.append(Member(records, raw, len(compressed)))

    def _end_part(self) -> None:
        self._end_member()
        if self._file is None:
            return
        self._put_compressed(0)
        self._file.close()
        self._parts.append(
            Part(
                self._split,
                (self._order, len(self._parts)),
                self._file.name,
                tuple(self._members),
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
