"""Lays out the records of files of members as shards, and joins each shard."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from typing import BinaryIO, NamedTuple

import numpy as np

from beam_pipeline.plan.shard_names import shard_name
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


class Piece(NamedTuple):
    """Members that follow each other in a file from ``offset`` on.

    ``sizes`` and ``counts`` are their bytes and their records. If ``skip`` is not None,
    it is one member, of which the shard takes ``counts`` records, from ``skip`` on.
    """

    path: str
    offset: int
    sizes: Integers
    counts: Integers
    skip: int | None = None


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
    tables = [each.members for each in made]
    members = np.concatenate([np.zeros((0, 3), np.int64), *tables])
    file_of = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    # Where each member begins, by examples; and in its file.
    first = np.concatenate([[0], np.cumsum(members[:, 0])])
    offset = np.concatenate(
        [np.zeros(0, np.int64), *(np.cumsum(t[:, 2]) - t[:, 2] for t in tables)]
    )
    bounds = _bounds(members, first, sizes)
    shards = len(bounds) - 1
    for k, (start, stop) in enumerate(pairwise(bounds)):
        low = int(np.searchsorted(first, start, "right")) - 1
        span = slice(low, int(np.searchsorted(first, stop, "left")))
        skips = np.maximum(start - first[span], 0)
        takes = np.minimum(stop - first[span], members[span, 0]) - skips
        is_cut = takes < members[span, 0]
        pieces = tuple(
            Piece(
                made[file_of[low + i]].path,
                int(offset[low + i]),
                members[low + i : low + j, 2],
                takes[i:j],
                int(skips[i]) if is_cut[i] else None,
            )
            for i, j in _runs(file_of[span], is_cut)
        )
        shard = Shard(shard_name(split, k, shards), split, k, stop - start)
        whole = made[file_of[low]] if len(pieces) == 1 else None
        is_whole = whole is not None and len(takes) == len(whole.members)
        yield JoinedShard(
            shard,
            shard.name + sizes.suffix,
            pieces,
            whole.sha256 if whole and is_whole and not is_cut.any() else "",
        )


def _runs(file_of: Integers, is_cut: Integers) -> Iterator[tuple[int, int]]:
    """Yields where runs of whole members of one file start and end.

    A member that is cut is a run of its own.
    """
    if len(is_cut):
        ends = np.diff(file_of).astype(bool) | is_cut[1:] | is_cut[:-1]
        yield from pairwise([0, *(np.flatnonzero(ends) + 1).tolist(), len(is_cut)])


def _bounds(members: Integers, first: Integers, sizes: ShardSizes) -> Sequence[int]:
    """Returns the first example of each shard, and the number of examples."""
    by_bytes = [0]
    filled = 0
    for i, raw in enumerate(members[:, 1].tolist()):
        if filled and filled + raw > sizes.limit:
            by_bytes.append(int(first[i]))
            filled = 0
        filled += raw
    examples = int(first[-1])
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
        ((draft, _, sizes, counts, _),) = pieces
        size, members = int(sizes.sum()), Members(sizes, counts)
    else:
        draft = files.draft_path(
            folder, f"{uuid.uuid4().hex}-{file.rpartition('/')[2]}"
        )
        with files.writing(draft):
            writer = MemberWriter(open(draft, "wb"), False)  # noqa: SIM115
        members = Members.of(_write_pieces(pieces, writer))
        if not pieces and is_compressed(file):
            # A file without any bytes would not be GZIP.
            writer.write_member(compress_member(b""))
        writer.close()
        size, sha256 = writer.bytes_written, writer.sha256()
    files.move(draft, files.join(output, file))
    return ShardInfo(shard, file, shard.examples, size, sha256, members=members.pack())


def _write_pieces(
    pieces: Sequence[Piece], writer: MemberWriter
) -> Iterator[tuple[int, int]]:
    """Writes pieces; yields the bytes and the records of each of their members."""
    for path, of_file in groupby(pieces, key=lambda piece: piece.path):
        with files.open_read(path) as reader:
            for piece in of_file:
                before = writer.bytes_written
                for block in _piece_bytes(reader, piece):
                    writer.write_member(block)
                new = [writer.bytes_written - before]
                sizes = piece.sizes.tolist() if piece.skip is None else new
                yield from zip(sizes, piece.counts.tolist(), strict=True)


def _piece_bytes(reader: BinaryIO, piece: Piece) -> Iterator[bytes]:
    reader.seek(piece.offset)
    left = int(piece.sizes.sum())
    if piece.skip is not None:
        member = inflate_member(reader.read(left))
        bounds = record_bounds(member)
        stop = piece.skip + int(piece.counts[0])
        yield compress_member(member[bounds[piece.skip] : bounds[stop]])
        return
    while left:
        block = reader.read(min(left, 1 << 20))
        if not block:
            raise ValueError(f"{piece.path} ends before its member does")
        left -= len(block)
        yield block
