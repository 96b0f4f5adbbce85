"""``members.index``: where the members of each shard begin.

A GZIP file may consist of several members, which every reader takes as one stream. The
members of our shards hold whole records, so that an example can be read without what
is before it, if the start of its member is known. Shards without GZIP have the same
members, as they are. The file is::

    ATFRMEM1                  8 bytes
    length of the header      uint64
    header                    JSON, see members.schema.json; padded to 8 bytes
    arrays                    uint32 or uint64
    CRC-32C of all before     uint32

All numbers are little-endian. For each shard, the header says where two arrays start,
in entries: the offset of each member in the shard; and the number of its first example
in the shard, unless all members but the last hold the same number of examples.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.metadata import ShardEntry
from beam_pipeline.dataset.output_folder import INDEX
from beam_pipeline.errors import InputError
from beam_pipeline.storage import files
from beam_pipeline.storage.gzip_members import Members
from beam_pipeline.storage.tfrecord import ScannedMember, is_compressed, scan_members
from beam_pipeline.text import parse_json, shorter, typed

if TYPE_CHECKING:
    from beam_pipeline.plan.shards import ShardInfo

INDEX_VERSION = 1

_MAGIC = b"ATFRMEM1"
_ALIGNMENT = 8
_CHECKSUM = 4
_ENTRY_BYTES = (4, 8)
_OF_SHARD = ("file", "examples", "bytes", "sha256")

Integers = npt.NDArray[Any]


@dataclass(frozen=True)
class _Shard:
    """A shard in the header."""

    file: str
    examples: int
    bytes: int
    sha256: str
    members: int
    per_member: int | None
    offsets: int
    firsts: int | None = None


@dataclass(frozen=True)
class _Header:
    entry_bytes: int
    entries: int
    shards: tuple[_Shard, ...]


class ShardMembers(NamedTuple):
    """A written shard and its members.

    Attributes
    ----------
    file : str
        Relative to the folder of the data set.
    examples, bytes, sha256
        Of the whole shard, as in the metadata.
    offsets : numpy.ndarray, shape (members,), integer
        Where each member begins in the file. Members without examples are left out.
    counts : numpy.ndarray, shape (members,), integer
        The examples of each member.
    """

    file: str
    examples: int
    bytes: int
    sha256: str
    offsets: Integers
    counts: Integers

    @classmethod
    def of(cls, info: ShardInfo) -> ShardMembers:
        """Returns the members of a shard that a worker has written."""
        sizes, counts = Members.unpack(info.members)
        offsets = np.cumsum(sizes) - sizes
        held = counts > 0
        return cls(
            info.file,
            info.examples,
            info.bytes,
            info.sha256,
            offsets[held],
            counts[held],
        )


class Span(NamedTuple):
    """The bytes of one member of a shard, and its examples ``first .. first + n - 1``.

    ``number`` counts the members of the shard.
    """

    number: int
    offset: int
    size: int
    first: int
    examples: int


@dataclass(frozen=True)
class ShardIndex:
    """The members of one shard.

    Attributes
    ----------
    file, examples, bytes, sha256
        Of the shard, as in the metadata.
    offsets : numpy.ndarray, shape (members,)
    per_member : int or None
        The examples of each member but the last; None if they differ.
    firsts : numpy.ndarray, shape (members,), or None
        The first example of each member; None if ``per_member`` is given.
    """

    file: str
    examples: int
    bytes: int
    sha256: str
    offsets: Integers
    per_member: int | None
    firsts: Integers | None

    def member_of(self, positions: Integers) -> Integers:
        """Returns the number of the member that holds each position of the shard."""
        if self.per_member is not None:
            return positions // self.per_member
        assert self.firsts is not None
        return np.searchsorted(self.firsts, positions, "right") - 1

    def span(self, member: int) -> Span:
        """Returns where a member is."""
        offset, last = int(self.offsets[member]), member + 1 == len(self.offsets)
        end = self.bytes if last else int(self.offsets[member + 1])
        if self.per_member is not None:
            first = member * self.per_member
            stop = self.examples if last else first + self.per_member
        else:
            assert self.firsts is not None
            first = int(self.firsts[member])
            stop = self.examples if last else int(self.firsts[member + 1])
        return Span(member, offset, end - offset, first, stop - first)

    def check(self) -> None:
        """Raises ValueError unless the members are in the shard, in their order."""
        count, offsets = len(self.offsets), self.offsets
        if not _ascends(offsets) or (count and int(offsets[-1]) >= self.bytes):
            raise ValueError(
                f"the offsets of the members of the shard {self.file} do not increase "
                f"up to its {self.bytes} bytes"
            )
        if self.per_member is not None:
            most = count * self.per_member
            fits = most - self.per_member < self.examples <= most
            fits = fits and self.per_member <= self.examples
        else:
            firsts = self.firsts
            assert firsts is not None
            fits = count > 0 and int(firsts[0]) == 0 and _ascends(firsts)
            fits = fits and int(firsts[-1]) < self.examples
        if not fits and (count or self.examples):
            raise ValueError(
                f"the members of the shard {self.file} do not have its "
                f"{self.examples} examples"
            )


def _ascends(numbers: Integers) -> bool:
    return bool((numbers[1:] > numbers[:-1]).all())


@dataclass(frozen=True)
class MemberIndex:
    """The index of a data set: its shards by file.

    Its arrays are mapped from the file, or in memory if the file is not local.
    """

    shards: dict[str, ShardIndex]

    @classmethod
    def load(cls, folder: str, name: str = INDEX) -> MemberIndex:
        """Reads the index of a data set.

        Raises
        ------
        FileNotFoundError
            If it has none.
        InputError
            If the file is damaged.
        """
        path = files.join(folder, name)
        content: Any
        if files.is_local(path):
            # An empty file cannot be mapped.
            content = np.memmap(path, np.uint8, "r") if os.path.getsize(path) else b""
        else:
            content = np.frombuffer(files.read_bytes(path), np.uint8)
        try:
            return cls({shard.file: shard for shard in _parse(content)})
        except ValueError as error:
            raise damaged(folder, error, name) from error


def damaged(folder: str, problem: ValueError, name: str = INDEX) -> InputError:
    """Returns the error for an index that is damaged, or of other shards."""
    return InputError(
        f"{files.join(folder, name)} is not an index of members: {problem}. Delete "
        f"it, and make it again with `audio-tfrecords index {folder}`."
    )


def _parse(content: Any) -> Iterable[ShardIndex]:
    start, end = len(_MAGIC) + 8, len(content) - _CHECKSUM
    if bytes(content[: len(_MAGIC)]) != _MAGIC:
        raise ValueError("it does not begin with ATFRMEM1")
    if end < start:
        raise ValueError(f"it has only {len(content)} bytes")
    if google_crc32c.value(content[:end]) != _number(content[end:]):
        raise ValueError("its checksum is wrong")
    length = _number(content[len(_MAGIC) : start])
    if length > end - start:
        raise ValueError(f"its header has {length} bytes, but the file is shorter")
    header = _parse_header(bytes(content[start : start + length]))
    dtype = np.dtype(f"<u{header.entry_bytes}")
    body = content[start + length : end]
    if len(body) != header.entries * dtype.itemsize:
        raise ValueError(
            f"its arrays have {len(body)} bytes instead of "
            f"{header.entries * dtype.itemsize}"
        )
    entries = body.view(dtype) if len(body) else np.zeros(0, dtype)
    for shard in header.shards:
        firsts = None
        if shard.per_member is None:
            firsts = _slice(entries, shard.firsts or 0, shard.members)
        yield ShardIndex(
            shard.file,
            shard.examples,
            shard.bytes,
            shard.sha256,
            _slice(entries, shard.offsets, shard.members),
            shard.per_member,
            firsts,
        )


def _number(content: Any) -> int:
    return int.from_bytes(bytes(content), "little")


def _parse_header(text: bytes) -> _Header:
    values: Any = parse_json(text)
    version = values.get("format_version") if isinstance(values, dict) else None
    if version != INDEX_VERSION:
        raise ValueError(f"its format version is {shorter(repr(version))}")
    header: _Header = typed(_Header, values, "its header")
    if header.entry_bytes not in _ENTRY_BYTES:
        raise ValueError(f"its entries have {header.entry_bytes} bytes")
    for shard in header.shards:
        if shard.firsts is None if shard.per_member is None else shard.per_member < 1:
            raise ValueError(
                f"the shard {shard.file} has per_member {shard.per_member}, and firsts "
                f"{shard.firsts}"
            )
    return header


def _slice(entries: Integers, start: int, count: int) -> Integers:
    found = entries[start : start + count]
    if len(found) != count:
        raise ValueError("a shard has more members than the arrays have entries")
    return found


def write_index(folder: str, shards: Iterable[ShardMembers], name: str = INDEX) -> None:
    """Writes an index of some shards; the same shards give the same bytes."""
    listed, arrays, entries = [], list[Integers](), 0
    for shard in shards:
        members, per_member = len(shard.offsets), _common_count(shard.counts)
        described: dict[str, Any] = {
            **{name: getattr(shard, name) for name in _OF_SHARD},
            "members": members,
            "per_member": per_member,
            "offsets": entries,
        }
        of_shard = [shard.offsets]
        if per_member is None:
            described["firsts"] = entries + members
            counts = np.asarray(shard.counts, np.int64)
            of_shard.append(np.cumsum(counts) - counts)
        arrays += map(_narrow, of_shard)
        entries += members * len(of_shard)
        listed.append(described)
    most = max((int(array[-1]) for array in arrays if len(array)), default=0)
    entry_bytes = 4 if most < 1 << 32 else 8
    header = json.dumps(
        {
            "format_version": INDEX_VERSION,
            "entry_bytes": entry_bytes,
            "entries": entries,
            "shards": listed,
        }
    ).encode()
    header += b" " * (-len(header) % _ALIGNMENT)
    dtype = f"<u{entry_bytes}"
    path, checksum = files.join(folder, name), 0
    with files.replacing(path) as file:
        for piece in chain(
            [_MAGIC, struct.pack("<Q", len(header)), header],
            (array.astype(dtype).tobytes() for array in arrays),
        ):
            checksum = google_crc32c.extend(checksum, piece)
            file.write(piece)
        file.write(struct.pack("<I", checksum))


def _narrow(numbers: Integers) -> Integers:
    """Returns ascending numbers in 32 bits if these hold them, to save memory."""
    fits = not len(numbers) or int(numbers[-1]) < 1 << 32
    return np.asarray(numbers, np.uint32 if fits else np.uint64)


def _common_count(counts: Integers) -> int | None:
    """Returns the number of examples of every member but the last; None: they differ.

    The last member may hold fewer.
    """
    if not len(counts):
        return 1
    first = int(counts[0])
    equal = bool(np.all(counts[:-1] == first)) and counts[-1] <= first
    return first if equal else None


class ScannedShard(NamedTuple):
    """What a shard holds."""

    sha256: str
    members: list[ScannedMember]

    @property
    def examples(self) -> int:
        """The number of its records."""
        return sum(member.records for member in self.members)

    def indexed(self, entry: ShardEntry) -> ShardMembers:
        """Returns its members as the index lists them."""
        held = [member for member in self.members if member.records]
        return ShardMembers(
            entry.file,
            entry.examples,
            entry.bytes,
            entry.sha256,
            np.array([member.offset for member in held], np.int64),
            np.array([member.records for member in held], np.int64),
        )


def scan_shard(
    path: str, use: Callable[[int, bytes], None] | None = None
) -> ScannedShard:
    """Reads a shard to its end, and checks the checksums of each record.

    Parameters
    ----------
    use : callable, optional
        Called with where the member of each record begins, and with the record.

    Raises
    ------
    ValueError, OSError
        If it cannot be read.
    """
    sha256 = hashlib.sha256()
    with files.open_read(path) as file:
        found = scan_members(file, sha256, compressed=is_compressed(path), use=use)
        members = list(found)
    return ScannedShard(sha256.hexdigest(), members)
