"""Lays out the records of files of members as shards, and joins each shard."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import BinaryIO, NamedTuple

import numpy as np

from beam_pipeline.inputs.splits import shard_name
from beam_pipeline.plan.shards import Shard, ShardInfo
from beam_pipeline.storage import files
from beam_pipeline.storage.gzip_members import (
    Integers,
    Members,
    MemberWriter,
    compress_member,
    inflate_member,
)
from beam_pipeline.storage.tfrecord import is_compressed, record_bounds
from beam_pipeline.write.member_files import MemberFile, ShardSizes

_BLOCK = 1 << 20


class Piece(NamedTuple):
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

    ``file`` is its name. ``whole`` is the SHA-256 of the only file that makes it; empty
    if there are several, or only some members of one.
    """

    shard: Shard
    file: str
    pieces: tuple[Piece, ...]
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
        yield JoinedShard(shard, shard.name + sizes.suffix, pieces, whole)


def _piece(file: MemberFile, start: int, stop: int) -> Piece:
    """Returns the records ``start .. stop - 1`` of a file."""
    ends = np.cumsum(file.members[:, 0])
    low = int(np.searchsorted(ends, start, "right"))
    high = int(np.searchsorted(ends, stop, "left")) + 1
    skip = start - int(ends[low] - file.members[low, 0])
    offset = int(file.members[:low, 2].sum())
    return Piece(file.path, offset, file.members[low:high], skip, stop - start)


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
    joined: JoinedShard, output: str, folder: str, *, may_move: bool = False
) -> ShardInfo:
    """Writes a shard from its pieces.

    Parameters
    ----------
    output : str
        The output folder.
    folder : str
        A folder for the unfinished file.
    may_move : bool
        Whether a local file that is the whole shard is moved instead of copied. A
        runner may write a shard twice, so the files must then stay.
    """
    shard, file, pieces, sha256 = joined
    if may_move and sha256 and files.is_local(pieces[0].path):
        draft, table = pieces[0].path, pieces[0].members
        members = Members(table[:, 2], table[:, 0])
        size = int(members.sizes.sum())
    else:
        name = f"{uuid.uuid4().hex}-{file.rpartition('/')[2]}"
        draft = files.draft_path(folder, name)
        with files.writing(draft):
            writer = MemberWriter(open(draft, "wb"), False)  # noqa: SIM115
        members = Members.of(pair for piece in pieces for pair in _copy(piece, writer))
        if not pieces and is_compressed(file):
            # A file without any bytes would not be GZIP.
            writer.write_member(compress_member(b""))
        writer.close()
        size, sha256 = writer.bytes_written, writer.sha256()
    files.move(draft, files.join(output, file))
    return ShardInfo(shard, file, shard.examples, size, sha256, members=members.pack())


def _copy(piece: Piece, writer: MemberWriter) -> Iterator[tuple[int, int]]:
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
            member = inflate_member(_read(reader, size, piece))
            bounds, first = record_bounds(member), 0 if low else piece.skip
            stop = first + int(taken[low])
            content = compress_member(member[bounds[first] : bounds[stop]])
            yield writer.write_member(content), int(taken[low])


def _read(reader: BinaryIO, size: int, piece: Piece) -> bytes:
    content = reader.read(size)
    if len(content) < size:
        raise ValueError(f"{piece.path} ends before its member does")
    return content
