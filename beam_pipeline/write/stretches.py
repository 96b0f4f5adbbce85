"""Stretches of a shard: some of its positions, written to a file, and joined later.

A worker that gets all records of a shard in order writes one stretch, which is the
whole shard. If a runner breaks this up, stretches are joined. A member that continues
from one stretch into the next is compressed again as a whole, so that a shard has the
same bytes however it was written. Stretches of a mixed shard are always joined: its
examples change places then.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from beam_pipeline.errors import IncompleteRun
from beam_pipeline.plan.shards import Shard
from beam_pipeline.storage import files
from beam_pipeline.storage.gzip_members import (
    MemberWriter,
    compress_member,
    inflate_member,
)
from beam_pipeline.storage.tfrecord import frame_parts, is_compressed
from beam_pipeline.write.members import Integers, Members, pack_columns
from beam_pipeline.write.mixed_shards import (
    PlannedRecords,
    mixed_members,
    mixed_order,
)
from beam_pipeline.write.observations import merge_observations
from beam_pipeline.write.window_rows import WindowRows, join_rows

_PARTS_OF_RECORD = 3  # header, data, checksum


@dataclass(frozen=True, slots=True)
class PlacedRecords:
    """Records for the positions ``position .. position + span - 1`` of a shard.

    Attributes
    ----------
    offsets : sequence of int, optional
        The position of each record, from ``position`` on. There are fewer records than
        positions if windows were lost, or ``left_out``. Default: the first positions.
    seen : mapping, optional
        The observations of the shard's windows since the last ``seen``; most elements
        have none.
    rows : WindowRows, optional
        A row for each position.
    clip : int
        The row of the clip of these positions.
    """

    shard: Shard
    position: int
    span: int
    records: Sequence[bytes]
    left_out: int = 0
    seen: Mapping[str, Any] | None = None
    offsets: Sequence[int] | None = None
    rows: WindowRows | None = None
    clip: int = 0


class _Member(NamedTuple):
    """A member in a stretch: its number in the shard, its bytes, its records."""

    number: int
    size: int
    records: int


@dataclass(frozen=True, slots=True)
class StretchFile:
    """A finished file with the records of some positions of a shard.

    ``clips`` has the row of the clip of each position, if the shard is mixed. With
    ``is_mixed``, the examples have changed their places already.
    """

    shard: Shard
    position: int
    span: int
    examples: int
    left_out: int
    seen: Mapping[str, Any] | None
    path: str
    bytes: int
    sha256: str
    crc32c: int
    members: Sequence[_Member]
    rows: Sequence[WindowRows]
    clips: Integers
    is_mixed: bool = False


@dataclass(slots=True)
class Stretch:
    """An open file for consecutive positions of one shard.

    If the shard is mixed, that file is beside ``path``, and has the records as they
    come, each of them as a member; see :mod:`.mixed_shards`.
    """

    shard: Shard
    position: int
    path: str
    _file: str = field(init=False)
    _per_member: int = field(init=False)
    _writer: MemberWriter = field(init=False)
    _span: int = 0
    _examples: int = 0
    _left_out: int = 0
    _seen: Mapping[str, Any] | None = None
    _rows: list[WindowRows] = field(default_factory=list)
    _clips: list[tuple[int, int]] = field(default_factory=list)  # clip, positions
    _members: list[_Member] = field(default_factory=list)
    # Of the member that is not complete: its number, and its records.
    _number: int = -1
    _records: list[bytes] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._file, compressed = self.path, is_compressed(self.path)
        self._per_member = self.shard.per_member
        if self.shard.mix_seed is not None:
            self._file, compressed = f"{self.path}.planned", False
            self._per_member = 1
        with files.writing(self._file):
            file = open(self._file, "wb")  # noqa: SIM115
        self._writer = MemberWriter(file, compressed)

    def continued_by(self, element: PlacedRecords) -> bool:
        """Whether these records follow those that were written."""
        end = self.position + self._span
        return element.shard == self.shard and element.position == end

    def is_whole(self) -> bool:
        """Whether every position of the shard was written."""
        return self._span == self.shard.examples

    def write(self, element: PlacedRecords) -> None:
        """Writes records.

        Raises
        ------
        IncompleteRun
            If they are beyond the end of the shard.
        """
        end = element.position + element.span
        if end > self.shard.examples:
            raise IncompleteRun(
                f"Shard {self.shard.name} has {self.shard.examples} positions, but "
                f"got a record for position {end - 1}. The runner mixed two plans. "
                "Run the job again."
            )
        offsets = element.offsets or range(element.span)
        for offset, record in zip(offsets, element.records, strict=False):
            number = (element.position + offset) // self._per_member
            if number != self._number:
                self._end_member()
                self._number = number
            self._records += frame_parts(record)
            self._examples += 1
        self._span += element.span
        self._left_out += element.left_out
        self._seen = merge_observations(self._seen, element.seen)
        if element.rows is not None:
            self._rows.append(element.rows)
        if self.shard.mix_seed is not None:
            self._clips.append((element.clip, element.span))

    def _end_member(self) -> None:
        if self._records:
            with files.writing(self._file):
                size = self._writer.write_member(b"".join(self._records))
            records = len(self._records) // _PARTS_OF_RECORD
            self._members.append(_Member(self._number, size, records))
            self._records = []

    def close(self) -> StretchFile:
        """Ends the file; mixes the examples of a shard that is whole."""
        self._end_member()
        with files.writing(self._file):
            self._writer.close()
        clips, spans = np.array(self._clips, np.int64).reshape(-1, 2).T
        written = StretchFile(
            self.shard,
            self.position,
            self._span,
            self._examples,
            self._left_out,
            self._seen,
            self._file,
            self._writer.bytes_written,
            self._writer.sha256(),
            self._writer.crc32c,
            self._members,
            self._rows,
            np.repeat(clips, spans),
        )
        if self._file == self.path or not self.is_whole():
            return written
        mixed = join_stretches([written], self.path)
        os.remove(self._file)
        return mixed

    def abandon(self) -> None:
        """Closes and deletes the file."""
        with suppress(OSError, ValueError):  # the disk is full; the file is closed
            self._writer.close()
        for path in {self._file, self.path}:
            with suppress(FileNotFoundError):
                os.remove(path)


def join_stretches(stretches: Iterable[StretchFile], draft: str) -> StretchFile:
    """Joins the stretches of one shard, which must fill each position once.

    Parameters
    ----------
    draft : str
        The path of the joined file; local.

    Raises
    ------
    IncompleteRun
        If positions are missing, or filled twice.
    """
    ordered = sorted(stretches, key=lambda some: (some.position, some.span))
    shard, end = ordered[0].shard, 0
    for some in ordered:
        if some.position != end:
            raise IncompleteRun(
                f"Shard {shard.name} needs a record for position {end}, but got one "
                f"for position {some.position}. The runner lost or repeated records. "
                "Run the job again."
            )
        end += some.span
    if end != shard.examples:
        raise IncompleteRun(
            f"Shard {shard.name} got {end} of {shard.examples} records. The runner "
            "lost records. Run the job again."
        )
    rows = [rows for some in ordered for rows in some.rows]
    clips = np.concatenate([some.clips for some in ordered])
    mixes = shard.mix_seed is not None and not ordered[0].is_mixed
    if not mixes:
        writer, members = _join_members(ordered, draft)
    else:
        order = mixed_order(shard)
        writer, members = _mix_members(ordered, order, draft)
        clips = clips[order]
        if rows:
            rows = [WindowRows(*(column[order] for column in join_rows(rows)))]
    return StretchFile(
        shard,
        0,
        end,
        sum(some.examples for some in ordered),
        sum(some.left_out for some in ordered),
        functools.reduce(merge_observations, (some.seen for some in ordered)),
        draft,
        writer.bytes_written,
        writer.sha256(),
        writer.crc32c,
        members,
        rows,
        clips,
        mixes,
    )


def _join_members(
    ordered: Sequence[StretchFile], draft: str
) -> tuple[MemberWriter, list[_Member]]:
    """Writes the members in their order; returns their writer, and them."""
    compressed = is_compressed(draft)
    joined: list[_Member] = []
    with files.writing(draft), open(draft, "wb") as file:
        writer = MemberWriter(file, compressed=False)  # they are compressed
        numbered = groupby(_read_members(ordered), key=lambda found: found[0].number)
        for number, found in numbered:
            members, contents = zip(*found, strict=True)
            content = contents[0]
            if len(contents) > 1 and compressed:
                content = compress_member(b"".join(map(inflate_member, contents)))
            elif len(contents) > 1:
                content = b"".join(contents)
            records = sum(member.records for member in members)
            joined.append(_Member(number, writer.write_member(content), records))
        if not joined and compressed:
            # Every window was lost or left out.
            writer.write_member(compress_member(b""))
    return writer, joined


def _mix_members(
    ordered: Sequence[StretchFile], order: Integers, draft: str
) -> tuple[MemberWriter, list[_Member]]:
    """Writes the members of a mixed shard; returns their writer, and them."""
    found = []
    for some in ordered:
        members = np.array([(m.number, m.size) for m in some.members], np.int64)
        found.append(PlannedRecords(some.path, *members.reshape(-1, 2).T))
    mixed: list[_Member] = []
    with files.writing(draft), open(draft, "wb") as file:
        writer = MemberWriter(file, is_compressed(draft))
        for number, records in mixed_members(ordered[0].shard, order, found):
            size = writer.write_member(b"".join(records))
            mixed.append(_Member(number, size, len(records)))
        writer.close()
    return writer, mixed


def _read_members(ordered: Sequence[StretchFile]) -> Iterator[tuple[_Member, bytes]]:
    for some in ordered:
        with files.open_read(some.path) as file:
            for member in some.members:
                yield member, file.read(member.size)


def members_text(some: StretchFile) -> str:
    """Returns the members of a whole shard as a receipt holds them."""
    return Members.of((member.size, member.records) for member in some.members).pack()


def rows_text(some: StretchFile) -> str:
    """Returns the rows of a whole shard as a receipt holds them; empty without rows."""
    return join_rows(some.rows).pack() if some.rows else ""


def clips_text(some: StretchFile) -> str:
    """Returns the clips of a whole shard as a receipt holds them; empty if not mixed.

    Receipts have them where the windows of a clip are not together.
    """
    return pack_columns([some.clips]) if some.shard.mix_seed is not None else ""
