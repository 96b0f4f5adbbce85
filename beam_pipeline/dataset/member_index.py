"""``members.index``: where the members of each shard begin.

A GZIP file may consist of several members, which every reader takes as one stream. The
members of our shards hold whole records, so that an example can be read without what
is before it, if the start of its member is known. Shards without GZIP have the same
members, as they are. The file is::

    ATFRMEM1                  8 bytes
    length of the header      uint64
    header                    JSON, see members.schema.json; padded to 8 bytes
    arrays                    uint64
    CRC-32C of all before     uint32

All numbers are little-endian. Shard after shard, there are two arrays, each with an
entry for each member and one more: where each member begins in the file, and the number
of its first example in the shard; at last, the file's bytes, and its examples.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import google_crc32c
import numpy as np

from beam_pipeline.dataset.folders import INDEX
from beam_pipeline.dataset.metadata import ShardEntry
from beam_pipeline.errors import InputError
from beam_pipeline.permutation import Integers
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import Members
from beam_pipeline.text import parse_json, typed

if TYPE_CHECKING:
    from beam_pipeline.planning.shards import ShardInfo

_MAGIC = b"ATFRMEM1"
_ALIGNMENT = 8
_CHECKSUM = 4


@dataclass(frozen=True, slots=True)
class _Shard(ShardEntry):
    """A shard in the header, and the number of its members."""

    members: int


@dataclass(frozen=True)
class _Header:
    shards: tuple[_Shard, ...]


class Span(NamedTuple):
    """The bytes of a member, and its examples ``first .. first + examples - 1``."""

    offset: int
    size: int
    first: int
    examples: int


@dataclass(frozen=True)
class ShardIndex(ShardEntry):
    """The members of one shard; those without examples are left out.

    Attributes
    ----------
    offsets : numpy.ndarray, shape (members + 1,), integer
        Where each member begins in the file, and the file's bytes.
    firsts : numpy.ndarray, shape (members + 1,), integer
        The first example of each member, and the shard's examples.
    """

    offsets: Integers
    firsts: Integers

    @classmethod
    def make(
        cls,
        shard: ShardInfo | ShardEntry | ShardIndex,
        offsets: Integers,
        counts: Integers,
    ) -> ShardIndex:
        """Returns the index of a shard, whose members hold ``counts`` examples each."""
        held = counts > 0
        return cls(
            shard.file,
            shard.examples,
            shard.bytes,
            shard.sha256,
            np.append(offsets[held], shard.bytes).astype(np.int64),
            np.append(0, np.cumsum(counts[held])).astype(np.int64),
        )

    @classmethod
    def of(cls, info: ShardInfo) -> ShardIndex:
        """Returns the members of a shard that a worker has written."""
        sizes, counts = Members.unpack(info.members)
        offsets = np.cumsum(sizes) - sizes
        return cls.make(info, offsets, counts)

    def member_of(self, positions: Any) -> Any:
        """Returns the number of the member that holds each position of the shard."""
        if len(self.firsts) == self.examples + 1:  # each holds one
            return positions
        # Of the same type, or numpy would convert the whole array.
        positions = self.firsts.dtype.type(positions)
        return np.searchsorted(self.firsts, positions, "right") - 1

    def span(self, member: int) -> Span:
        """Returns where a member is."""
        offset, end = self.offsets[member : member + 2].tolist()
        first, stop = self.firsts[member : member + 2].tolist()
        return Span(offset, end - offset, first, stop - first)

    def check(self) -> None:
        """Raises ValueError unless the members are in the shard, in their order."""
        for name, array, end, least in (
            ("offsets", self.offsets, self.bytes, int(self.offsets[0])),
            ("first examples", self.firsts, self.examples, 0),
        ):
            ascends = bool((array[1:] > array[:-1]).all())
            if not ascends or int(array[0]) != least or int(array[-1]) != end:
                raise ValueError(
                    f"the {name} of the members of the shard {self.file} do not "
                    f"increase up to its {self.bytes} bytes and {self.examples} "
                    "examples"
                )


def load_index(folder: str) -> dict[str, ShardIndex]:
    """Reads the index of a data set; returns its shards by file.

    Their arrays are mapped from the file, or in memory if the file is not local.

    Raises
    ------
    FileNotFoundError
        If it has none.
    InputError
        If the file is damaged.
    """
    path = files.join(folder, INDEX)
    content: Any
    if files.is_local(path):
        # An empty file cannot be mapped.
        content = np.memmap(path, np.uint8, "r") if os.path.getsize(path) else []
        content = np.asarray(content, np.uint8)  # slices of the subclass are slow
    else:
        content = np.frombuffer(files.read_bytes(path), np.uint8)
    try:
        return {shard.file: shard for shard in _parse(content)}
    except ValueError as error:
        raise damaged_index(folder, error) from error


def damaged_index(folder: str, problem: ValueError) -> InputError:
    """Returns the error for an index that is damaged, or of other shards."""
    return InputError(
        f"{files.join(folder, INDEX)} cannot be used: {problem}. "
        f"`audio-tfrecords convert {folder} NEW_FOLDER` makes a data set with a "
        "new index."
    )


def _parse(content: Any) -> Iterator[ShardIndex]:
    start, end = len(_MAGIC) + 8, len(content) - _CHECKSUM
    if bytes(content[: len(_MAGIC)]) != _MAGIC or end < start:
        raise ValueError("it does not begin with ATFRMEM1 and a header")
    if google_crc32c.value(content[:end]) != _number(content[end:]):
        raise ValueError("its checksum is wrong")
    stop = start + _number(content[len(_MAGIC) : start])
    values = parse_json(bytes(content[start:stop]))
    header: _Header = typed(_Header, values, "its header")
    body, expected = content[stop:end], sum(2 * (s.members + 1) for s in header.shards)
    if len(body) != expected * _ALIGNMENT:
        raise ValueError(
            f"its arrays have {len(body)} bytes instead of {expected * _ALIGNMENT}"
        )
    arrays = body.view("<u8")
    for shard in header.shards:
        here, arrays = np.split(arrays, [2 * (shard.members + 1)])
        yield ShardIndex(
            shard.file, shard.examples, shard.bytes, shard.sha256, *here.reshape(2, -1)
        )


def _number(content: Any) -> int:
    return int.from_bytes(bytes(content), "little")


def write_index(folder: str, shards: Iterable[ShardIndex]) -> None:
    """Writes an index of some shards; the same shards give the same bytes."""
    listed, arrays = [], list[Integers]()
    for shard in shards:
        members = len(shard.offsets) - 1
        facts = shard.file, shard.examples, shard.bytes, shard.sha256
        listed.append(_Shard(*facts, members))
        arrays += shard.offsets, shard.firsts
    header = json.dumps(asdict(_Header(tuple(listed)))).encode()
    header += b" " * (-len(header) % _ALIGNMENT)
    path, checksum = files.join(folder, INDEX), 0
    with files.replacing(path) as file:
        for piece in chain(
            [_MAGIC, struct.pack("<Q", len(header)), header],
            (array.astype("<u8").tobytes() for array in arrays),
        ):
            checksum = google_crc32c.extend(checksum, piece)
            file.write(piece)
        file.write(struct.pack("<I", checksum))
