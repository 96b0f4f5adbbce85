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

All numbers are little-endian. Shard after shard, there are two arrays, each with an
entry for each member and one more: where each member begins in the file, and the number
of its first example in the shard; at last, the file's bytes, and its examples.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

import google_crc32c
import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.metadata import Metadata, ShardEntry
from beam_pipeline.dataset.output_folder import INDEX
from beam_pipeline.errors import InputError
from beam_pipeline.storage import files
from beam_pipeline.storage.gzip_members import Members
from beam_pipeline.storage.tfrecord import ScannedMember, is_compressed, scan_members
from beam_pipeline.text import parse_json, shorter, typed

if TYPE_CHECKING:
    from beam_pipeline.plan.shards import ShardInfo

INDEX_VERSION = 1

# Reading an example inflates its whole member. Larger members are not indexed, unless
# they hold a single example.
MOST_MEMBER_BYTES = 16 << 20

_MAGIC = b"ATFRMEM1"
_ALIGNMENT = 8
_CHECKSUM = 4
_ENTRY_BYTES = (4, 8)
_THREADS = 4

Integers = npt.NDArray[Any]


@dataclass(frozen=True)
class _Shard:
    """A shard in the header."""

    file: str
    examples: int
    bytes: int
    sha256: str
    members: int


@dataclass(frozen=True)
class _Header:
    entry_bytes: int
    shards: tuple[_Shard, ...]


class Span(NamedTuple):
    """The bytes of a member, and its examples ``first .. first + examples - 1``."""

    offset: int
    size: int
    first: int
    examples: int


@dataclass(frozen=True)
class ShardIndex:
    """The members of one shard; those without examples are left out.

    Attributes
    ----------
    file : str
        Relative to the folder of the data set.
    examples, bytes, sha256
        Of the whole shard, as in the metadata.
    offsets : numpy.ndarray, shape (members + 1,), integer
        Where each member begins in the file, and the file's bytes.
    firsts : numpy.ndarray, shape (members + 1,), integer
        The first example of each member, and the shard's examples.
    """

    file: str
    examples: int
    bytes: int
    sha256: str
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
        raise damaged(folder, error) from error


def damaged(folder: str, problem: ValueError) -> InputError:
    """Returns the error for an index that is damaged, or of other shards."""
    return InputError(
        f"{files.join(folder, INDEX)} is not an index of members: {problem}. Delete "
        f"it, and make it again with `audio-tfrecords index {folder}`."
    )


def _parse(content: Any) -> Iterator[ShardIndex]:
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
    entries = sum(2 * (shard.members + 1) for shard in header.shards)
    body = content[start + length : end]
    if len(body) != entries * header.entry_bytes:
        raise ValueError(
            f"its arrays have {len(body)} bytes instead of "
            f"{entries * header.entry_bytes}"
        )
    dtype, at = np.dtype(f"<u{header.entry_bytes}"), 0
    for shard in header.shards:
        stop = at + 2 * (shard.members + 1) * dtype.itemsize
        offsets, firsts = body[at:stop].view(dtype).reshape(2, -1)
        yield ShardIndex(
            shard.file, shard.examples, shard.bytes, shard.sha256, offsets, firsts
        )
        at = stop


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
    return header


def write_index(folder: str, shards: Iterable[ShardIndex]) -> None:
    """Writes an index of some shards; the same shards give the same bytes."""
    listed, arrays = [], list[Integers]()
    for shard in shards:
        members = len(shard.offsets) - 1
        described = _Shard(
            shard.file, shard.examples, shard.bytes, shard.sha256, members
        )
        listed.append(vars(described))
        arrays += map(_narrow, (shard.offsets, shard.firsts))
    most = max((int(array[-1]) for array in arrays), default=0)
    entry_bytes = 4 if most < 1 << 32 else 8
    header = json.dumps(
        {
            "format_version": INDEX_VERSION,
            "entry_bytes": entry_bytes,
            "shards": listed,
        }
    ).encode()
    header += b" " * (-len(header) % _ALIGNMENT)
    path, checksum = files.join(folder, INDEX), 0
    with files.replacing(path) as file:
        for piece in chain(
            [_MAGIC, struct.pack("<Q", len(header)), header],
            (array.astype(f"<u{entry_bytes}").tobytes() for array in arrays),
        ):
            checksum = google_crc32c.extend(checksum, piece)
            file.write(piece)
        file.write(struct.pack("<I", checksum))


def _narrow(numbers: Integers) -> Integers:
    """Returns ascending numbers in 32 bits if these hold them, to save memory."""
    return np.asarray(numbers, np.uint32 if int(numbers[-1]) < 1 << 32 else np.uint64)


def index_data_set(folder: str) -> int:
    """Writes ``members.index`` for a data set; returns the number of its members.

    Raises
    ------
    InputError
        If there is no data set; if a shard is missing, damaged or not the one in the
        metadata; or if its members do not allow reading at random. Nothing is written.
    """
    root = files.absolute(folder)
    metadata = Metadata.load(root)
    with ThreadPoolExecutor(_THREADS) as pool:
        shards = list(pool.map(lambda e: _read_members(root, e), metadata.shards()))
    write_index(root, shards)
    return sum(len(shard.offsets) - 1 for shard in shards)


def _read_members(root: str, entry: ShardEntry) -> ShardIndex:
    """Reads a shard of a data set to its end and returns its members."""
    path = files.join(root, entry.file)
    try:
        found = scan_shard(path)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read: {error}. Record the data set again."
        ) from error
    if found.sha256 != entry.sha256:
        raise InputError(
            f"{path} is not the shard in the metadata: its SHA-256 differs. To check "
            f"every shard, run `audio-tfrecords verify {root}`."
        )
    for member in found.members:
        problem = None
        if not member.is_whole:
            problem = "a record continues in the next GZIP member"
        elif member.records > 1 and member.size > MOST_MEMBER_BYTES:
            problem = (
                f"its GZIP member at byte {member.offset} holds {member.records} "
                f"examples of {member.size >> 20} MiB together, which would be "
                "inflated for each of them"
            )
        if problem is not None:
            raise InputError(
                f"{path} cannot be read at random: {problem}. Rewrite the data set: "
                f"`audio-tfrecords convert {root} NEW_FOLDER`."
            )
    offsets = np.array([member.offset for member in found.members], np.int64)
    counts = np.array([member.records for member in found.members], np.int64)
    return ShardIndex.make(entry, offsets, counts)


class ScannedShard(NamedTuple):
    """What a shard holds."""

    sha256: str
    members: list[ScannedMember]

    @property
    def examples(self) -> int:
        """The number of its records."""
        return sum(member.records for member in self.members)


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
