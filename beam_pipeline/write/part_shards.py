"""Lays out parts as shards, and joins the pieces of each shard."""

from __future__ import annotations

import hashlib
import io
import uuid
from collections.abc import Iterable, Iterator, Sequence
from typing import BinaryIO, NamedTuple

import numpy as np

from beam_pipeline.plan.shards import Shard, ShardInfo, shard_name
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import (
    SUFFIX,
    compress_member,
    inflate,
    record_bounds,
)
from beam_pipeline.write.parts import Part, ShardSizes


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


def empty_shard(split: str) -> ShardParts:
    """Returns the only shard of a split without examples."""
    return ShardParts(Shard(shard_name(split, 0, 1), split, 0, 0), ())


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
    if may_move and shard.whole and files.is_local(output):
        size = shard.pieces[0].size
        files.move(shard.pieces[0].path, target)
        return ShardInfo(planned, file, planned.examples, size, shard.whole)
    draft = files.draft_path(folder, f"{uuid.uuid4().hex}{SUFFIX}")
    sha256 = hashlib.sha256()
    size = 0
    with open(draft, "wb") as writer:
        if not shard.pieces:
            # A file without any bytes would not be GZIP.
            size = writer.write(compress_member(b""))
            sha256.update(compress_member(b""))
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
