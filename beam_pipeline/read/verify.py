"""Compares a data set with its metadata."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from beam_pipeline.dataset.member_index import MemberIndex, ShardIndex
from beam_pipeline.dataset.metadata import Metadata, ShardEntry
from beam_pipeline.dataset.output_folder import (
    INDEX,
    METADATA,
    WORK_FOLDER,
    check_no_folders,
)
from beam_pipeline.errors import InputError, VerificationError
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import (
    ScannedMember,
    is_compressed,
    scan_members,
)

_INDEX_AGAIN = "Make it again with `audio-tfrecords index`."
_NUMBERED = re.compile(r"-of-\d{5}.*\.tfrecord(\.gz)?$")


def load_metadata(folder: str) -> Metadata:
    """Reads the metadata of a data set that is to be verified.

    Raises
    ------
    InputError
        If there is no data set, or a folder has the name of one of its files.
    VerificationError
        If its metadata are damaged.
    """
    try:
        metadata = Metadata.load(folder)
    except InputError as error:
        if not files.exists(files.join(files.absolute(folder), METADATA)):
            raise
        raise VerificationError([str(error)]) from error
    check_no_folders(files.absolute(folder), metadata.splits)
    return metadata


def find_problems(folder: str, metadata: Metadata) -> Iterator[str]:
    """Reads every shard to its end and yields one line for each difference.

    Compares sizes, SHA-256, the checksum of every record, the number of records in each
    shard and split, and the index of members, if there is one. Finds shards that are
    not in the metadata.
    """
    root = files.absolute(folder)
    check = ShardCheck(root, metadata)
    yield from check.index_problems
    for split in metadata.splits.values():
        for shard in split.shards:
            yield from check.problems(shard)
    yield from folder_problems(root, metadata, check.index)


def folder_problems(
    root: str, metadata: Metadata, index: Mapping[str, ShardIndex] | None
) -> Iterator[str]:
    """Yields one line for each difference that shows without reading shards."""
    known = set()
    for name, split in metadata.splits.items():
        known |= {shard.file for shard in split.shards}
        total = sum(shard.examples for shard in split.shards)
        if total != split.examples:
            yield (
                f"{METADATA}: split {name}: its shards have {total} examples together, "
                f"but the split has {split.examples}"
            )
    for file in sorted({*(index or ())} - known):
        yield f"{INDEX}: has an entry for {file}, which is not in {METADATA}"
    for file in files.list_files(root):
        is_unfinished = file.startswith(f"{WORK_FOLDER}/")
        if file not in known and not is_unfinished and _NUMBERED.search(file):
            yield f"{file}: a shard that is not in {METADATA}"


class ShardCheck:
    """Compares the shards of a data set with its metadata and its index of members.

    Attributes
    ----------
    index : mapping or None
        The index by shard; None if there is none, or it is damaged.
    index_problems : list of str
        A line if the index is damaged.
    """

    def __init__(self, root: str, metadata: Metadata):
        self._root = root
        entries = [s for split in metadata.splits.values() for s in split.shards]
        self._names = {shard.sha256: shard.file for shard in entries}
        self.index: Mapping[str, ShardIndex] | None = None
        self.index_problems: list[str] = []
        try:
            self.index = MemberIndex.load(root).shards
        except FileNotFoundError:
            pass  # data sets of earlier versions have none
        except InputError as error:
            self.index_problems.append(str(error))

    def problems(
        self, shard: ShardEntry, use: Callable[[int, bytes], None] | None = None
    ) -> Iterator[str]:
        """Reads a shard to its end and yields one line for each difference.

        Parameters
        ----------
        use : callable, optional
            Called with where the member of each record begins, and with the record.
        """
        index = None if self.index is None else self.index.get(shard.file)
        if self.index is not None and index is None:
            yield f"{INDEX}: has no entry for {shard.file}. {_INDEX_AGAIN}"
        path = files.join(self._root, shard.file)
        size = files.size(path)
        if size < 0:
            yield f"{shard.file}: is missing"
            return
        sha256 = hashlib.sha256()
        members: list[ScannedMember] = []
        compressed = is_compressed(shard.file)
        try:
            with files.open_read(path) as file:
                members.extend(
                    scan_members(file, sha256, compressed=compressed, use=use)
                )
        except (ValueError, OSError) as error:
            if size != shard.bytes:
                yield f"{shard.file}: has {size} bytes; expected {shard.bytes}"
            yield f"{shard.file}: {error}"
            return
        if sha256.hexdigest() != shard.sha256:
            other = self._names.get(sha256.hexdigest())
            what = f"it is {other}" if other else "it was changed or replaced"
            yield (
                f"{shard.file}: its SHA-256 differs ({size} bytes; expected "
                f"{shard.bytes}): {what}"
            )
        records = sum(member.records for member in members)
        if records != shard.examples:
            yield f"{shard.file}: has {records} records; expected {shard.examples}"
        elif index is not None and sha256.hexdigest() == shard.sha256:
            yield from _index_problems(shard, members, index)


def _index_problems(
    shard: ShardEntry, members: Sequence[ScannedMember], index: ShardIndex
) -> Iterator[str]:
    """Yields a line if the index of a shard differs from its members."""
    listed = ShardEntry(index.file, index.examples, index.bytes, index.sha256)
    if listed != shard:
        yield f"{INDEX}: is not of this {shard.file}. {_INDEX_AGAIN}"
        return
    found = [member for member in members if member.records]
    if len(found) != len(index.offsets):
        yield (
            f"{INDEX}: lists {len(index.offsets)} members of {shard.file}, which has "
            f"{len(found)}. {_INDEX_AGAIN}"
        )
        return
    for number, member in enumerate(found):
        span = index.span(number)
        if (span.offset, span.examples) != (member.offset, member.records):
            yield (
                f"{INDEX}: member {number} of {shard.file} is {span.examples} examples "
                f"at byte {span.offset}; the shard has {member.records} at byte "
                f"{member.offset}. {_INDEX_AGAIN}"
            )
            return
