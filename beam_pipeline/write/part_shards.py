"""Lays out parts as shards, and joins the pieces of each shard."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise
from typing import BinaryIO, NamedTuple

import numpy as np

from beam_pipeline.plan.shard_names import shard_name
from beam_pipeline.plan.shards import Shard, ShardInfo
from beam_pipeline.storage import files
from beam_pipeline.storage.gzip_members import (
    Integers,
    Members,
    compress_member,
    inflate_member,
)
from beam_pipeline.storage.tfrecord import is_compressed, record_bounds
from beam_pipeline.write.parts import Part, ShardSizes


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


class ShardParts(NamedTuple):
    """A shard and the pieces that make it.

    ``suffix`` is the end of its name. ``whole`` is the SHA-256 of the only part that
    makes it; empty if there are several, or only some members of one.
    """

    shard: Shard
    pieces: tuple[Piece, ...]
    suffix: str
    whole: str = ""


def empty_shard(split: str, suffix: str) -> ShardParts:
    """Returns the only shard of a split without examples."""
    return ShardParts(Shard(shard_name(split, 0, 1), split, 0, 0), (), suffix)


def cut_shards(
    split: str, parts: Iterable[Part], sizes: ShardSizes
) -> Iterator[ShardParts]:
    """Lays out the parts of a split as shards, in their order."""
    ordered = sorted(parts, key=lambda part: part.order)
    tables = [part.members for part in ordered]
    members = np.concatenate([np.zeros((0, 3), np.int64), *tables])
    part_of = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    # Where each member begins, by examples; and in its file.
    first = np.concatenate([[0], np.cumsum(members[:, 0])])
    offset = np.concatenate(
        [np.zeros(0, np.int64), *(np.cumsum(t[:, 2]) - t[:, 2] for t in tables)]
    )
    bounds = _bounds(members, first, sizes)
    shards = len(bounds) - 1
    for k in range(shards):
        start, stop = bounds[k], bounds[k + 1]
        shard = Shard(shard_name(split, k, shards), split, k, stop - start)
        low = int(np.searchsorted(first, start, "right")) - 1
        high = int(np.searchsorted(first, stop, "left"))
        span = slice(low, high)
        skips = np.maximum(start - first[span], 0)
        takes = np.minimum(stop - first[span], members[span, 0]) - skips
        is_cut = takes < members[span, 0]
        pieces = tuple(
            Piece(
                ordered[part_of[low + i]].path,
                int(offset[low + i]),
                members[low + i : low + j, 2],
                takes[i:j],
                int(skips[i]) if is_cut[i] else None,
            )
            for i, j in _runs(part_of[span], is_cut)
        )
        whole = _whole(pieces, ordered[part_of[low]])
        yield ShardParts(shard, pieces, sizes.suffix, whole)


def _runs(part_of: Integers, is_cut: Integers) -> Iterator[tuple[int, int]]:
    """Yields where runs of whole members of one part start and end.

    A member that is cut is a run of its own.
    """
    ends = np.diff(part_of).astype(bool) | is_cut[1:] | is_cut[:-1]
    return pairwise([0, *(np.flatnonzero(ends) + 1).tolist(), len(is_cut)])


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
    if sizes.elements_per_file is None and not sizes.is_even:
        return [*by_bytes, examples] if examples else [0]
    return sizes.bounds(examples, len(by_bytes))


def _whole(pieces: Sequence[Piece], part: Part) -> str:
    """Returns the SHA-256 of a part, if it is the only one and all of it is used."""
    is_one = len(pieces) == 1 and pieces[0].skip is None
    return part.sha256 if is_one and len(pieces[0].sizes) == len(part.members) else ""


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
    file = planned.name + shard.suffix
    target = files.join(output, file)
    if may_move and shard.whole and files.is_local(shard.pieces[0].path):
        (piece,) = shard.pieces
        size = int(piece.sizes.sum())
        files.move(piece.path, target)
        members = Members(piece.sizes, piece.counts)
        return _info(planned, file, size, shard.whole, members)
    draft = files.draft_path(folder, f"{uuid.uuid4().hex}{shard.suffix}")
    sha256 = hashlib.sha256()
    sizes: list[int] = []
    counts: list[int] = []
    with open(draft, "wb") as writer:
        for path, pieces in groupby(shard.pieces, key=lambda piece: piece.path):
            with files.open_read(path) as reader:
                for piece in pieces:
                    before = writer.tell()
                    for block in _piece_bytes(reader, piece):
                        writer.write(block)
                        sha256.update(block)
                    is_cut = piece.skip is not None
                    new = [writer.tell() - before]
                    sizes += new if is_cut else piece.sizes.tolist()
                    counts += piece.counts.tolist()
        if not shard.pieces and is_compressed(file):
            empty = compress_member(b"")  # a file without any bytes would not be GZIP
            writer.write(empty)
            sha256.update(empty)
        size = writer.tell()
    files.move(draft, target)
    members = Members.of(zip(sizes, counts, strict=True))
    return _info(planned, file, size, sha256.hexdigest(), members)


def _info(
    shard: Shard, file: str, size: int, sha256: str, members: Members
) -> ShardInfo:
    return ShardInfo(shard, file, shard.examples, size, sha256, members=members.pack())


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
