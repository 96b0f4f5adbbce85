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
import io
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import BinaryIO, NamedTuple

import numpy as np

from beam_pipeline.plan.shards import DEFAULT_SHARD_BYTES, Shard, ShardInfo, shard_name
from beam_pipeline.recipe.values import check_one_of, check_whole
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import (
    SUFFIX,
    compress_member,
    frame_record,
    inflate,
    record_bounds,
)

# Files of members of this size are 0.5 % larger than files of a single member.
MEMBER_BYTES = 256 << 10
# A shard with a limit in bytes ends with a member, up to this share below its limit.
_MEMBERS_PER_SHARD = 16


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


class Piece(NamedTuple):
    """Members that follow each other in a file, or some records of one member.

    ``take`` is None for all records from ``skip`` on.
    """

    path: str
    offset: int
    size: int
    skip: int = 0
    take: int | None = None


class ShardParts(NamedTuple):
    """A shard and the pieces that make it. ``whole`` is the SHA-256 of a single part.

    It is empty if the shard is not exactly one part.
    """

    shard: Shard
    pieces: tuple[Piece, ...]
    whole: str = ""


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
    """

    def __init__(
        self,
        folder: str,
        split: str,
        order: int,
        sizes: ShardSizes,
        examples: Iterable[int] = (),
        by_bytes: bool = False,
    ):
        self._folder = folder
        self._split = split
        self._order = order
        self._sizes = sizes
        # After the last given number, the part takes everything.
        self._rooms = chain(examples, repeat(0))
        self._room = next(self._rooms)
        self._by_bytes = by_bytes
        self._parts: list[Part] = []
        self._file: BinaryIO | None = None
        self._written = 0
        self._start()

    def _start(self) -> None:
        self._members: list[Member] = []
        self._sha256 = hashlib.sha256()
        self._buffer = bytearray()
        self._records = self._examples = self._raw = 0

    def write(self, record: bytes) -> None:
        """Adds a record."""
        framed = frame_record(record)
        limit = self._sizes.member_bytes
        if self._records and len(self._buffer) + len(framed) > limit:
            self._end_member()
        self._buffer += framed
        self._records += 1
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
        if self._by_bytes and self._members and self._raw + raw > self._sizes.limit:
            buffer, records = self._buffer, self._records
            self._buffer, self._records = bytearray(), 0
            self._end_part()
            self._buffer, self._records = buffer, records
        if self._file is None:
            os.makedirs(self._folder, exist_ok=True)
            path = files.join(self._folder, f"{uuid.uuid4().hex}{SUFFIX}")
            self._file = open(path, "wb")  # noqa: SIM115
        compressed = compress_member(bytes(self._buffer))
        self._file.write(compressed)
        self._sha256.update(compressed)
        self._members.append(Member(self._records, raw, len(compressed)))
        self._examples += self._records
        self._raw += raw
        self._records = 0
        self._buffer.clear()

    def _end_part(self) -> None:
        self._end_member()
        if self._file is None:
            return
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


def cut_shards(
    split: str, parts: Iterable[Part], sizes: ShardSizes
) -> Iterator[ShardParts]:
    """Lays out the parts of a split as shards, in their order."""
    ordered = sorted(parts, key=lambda part: part.order)
    members = np.array(
        [
            (number, *member)
            for number, part in enumerate(ordered)
            for member in part.members
        ],
        np.int64,
    ).reshape(-1, 4)
    # Where each member begins, by examples; and in its file.
    first = np.concatenate([[0], np.cumsum(members[:, 1])])
    offsets = [
        np.concatenate([[0], np.cumsum([m.size for m in part.members])[:-1]])
        for part in ordered
    ]
    offset = np.concatenate([*offsets, [0]]).astype(np.int64)
    bounds = _bounds(members, first, sizes)
    shards = len(bounds) - 1
    for k in range(shards):
        start, stop = bounds[k], bounds[k + 1]
        shard = Shard(shard_name(split, k, shards), split, k, stop - start)
        low = int(np.searchsorted(first, start, "right")) - 1
        high = int(np.searchsorted(first, stop, "left"))
        pieces: list[Piece] = []
        for i in range(low, high):
            part = ordered[int(members[i, 0])]
            skip = max(start - int(first[i]), 0)
            take = min(stop, int(first[i + 1])) - int(first[i]) - skip
            size, at = int(members[i, 3]), int(offset[i])
            if take < members[i, 1]:
                pieces.append(Piece(part.path, at, size, skip, take))
            elif pieces and pieces[-1][:1] == (part.path,) and pieces[-1].take is None:
                pieces[-1] = pieces[-1]._replace(size=at + size - pieces[-1].offset)
            else:
                pieces.append(Piece(part.path, at, size))
        yield ShardParts(shard, tuple(pieces), _whole(pieces, ordered, members, low))


def _bounds(members: np.ndarray, first: np.ndarray, sizes: ShardSizes) -> Sequence[int]:
    """Returns the first example of each shard, and the number of examples."""
    by_bytes = [0]
    filled = 0
    for i, raw in enumerate(members[:, 2].tolist()):
        if filled and filled + raw > sizes.limit:
            by_bytes.append(int(first[i]))
            filled = 0
        filled += raw
    examples = int(first[-1])
    if sizes.elements_per_file is None and not sizes.is_even:
        return [*by_bytes, examples] if examples else [0]
    return sizes.bounds(examples, len(by_bytes))


def _whole(
    pieces: Sequence[Piece], ordered: Sequence[Part], members: np.ndarray, low: int
) -> str:
    """Returns the SHA-256 of the only part of a shard; empty if there are others."""
    if len(pieces) != 1 or pieces[0].take is not None:
        return ""
    part = ordered[int(members[low, 0])]
    size = sum(member.size for member in part.members)
    return part.sha256 if pieces[0].size == size else ""


def join_pieces(
    shard: ShardParts, output: str, folder: str, *, may_move: bool = False
) -> ShardInfo:
    """Writes a shard from the pieces of its parts.

    Parameters
    ----------
    output : str
        The output folder.
    folder : str
        A folder for the unfinished file.
    may_move : bool
        Whether a part that is the whole shard is moved instead of copied. A runner may
        write a shard twice, so parts must then stay.
    """
    planned = shard.shard
    file = planned.name + SUFFIX
    target = files.join(output, file)
    if may_move and shard.whole:
        size = shard.pieces[0].size
        files.move(shard.pieces[0].path, target)
        return ShardInfo(planned, file, planned.examples, size, shard.whole)
    draft = files.draft_path(folder, f"{uuid.uuid4().hex}{SUFFIX}")
    sha256 = hashlib.sha256()
    size = 0
    with open(draft, "wb") as writer:
        for path in dict.fromkeys(piece.path for piece in shard.pieces):
            with files.open_read(path) as reader:
                for piece in (p for p in shard.pieces if p.path == path):
                    for block in _piece_bytes(reader, piece):
                        writer.write(block)
                        sha256.update(block)
                        size += len(block)
    files.move(draft, target)
    return ShardInfo(planned, file, planned.examples, size, sha256.hexdigest())


def _piece_bytes(reader: BinaryIO, piece: Piece) -> Iterator[bytes]:
    reader.seek(piece.offset)
    if piece.take is not None:
        member = b"".join(inflate(io.BytesIO(reader.read(piece.size))))
        bounds = record_bounds(member)
        start, stop = bounds[piece.skip], bounds[piece.skip + piece.take]
        yield compress_member(member[start:stop])
        return
    left = piece.size
    while left:
        block = reader.read(min(left, 1 << 20))
        if not block:
            raise ValueError(f"{piece.path} ends before its member does")
        left -= len(block)
        yield block
