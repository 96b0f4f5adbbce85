"""Compares a data set with its metadata."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from typing import Any

from beam_pipeline.dataset.metadata import Metadata, ShardEntry
from beam_pipeline.dataset.output_folder import METADATA
from beam_pipeline.errors import InputError, VerificationError
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import SUFFIX, read_records

_KINDS = {"file": str, "examples": int, "bytes": int, "sha256": str}


def load_metadata(folder: str) -> Metadata:
    """Reads the metadata of a data set that is to be verified.

    Raises
    ------
    InputError
        If there is no data set.
    VerificationError
        If its metadata are damaged.
    """
    try:
        metadata = Metadata.load(folder)
    except InputError as error:
        if not files.exists(files.join(files.absolute(folder), METADATA)):
            raise
        raise VerificationError([str(error)]) from error
    problems = list(_wrong_kinds(metadata))
    if problems:
        raise VerificationError(problems)
    return metadata


def _wrong_kinds(metadata: Metadata) -> Iterator[str]:
    """Yields a line for each entry that has a wrong type and so cannot be compared."""
    for name, split in metadata.splits.items():
        entries: list[tuple[str, str, type, Any]]
        entries = [(f"split {name}", "examples", int, split.examples)]
        for number, shard in enumerate(split.shards):
            where = f"split {name}: shard {number}"
            entries += [
                (where, k, kind, getattr(shard, k)) for k, kind in _KINDS.items()
            ]
        for where, key, kind, value in entries:
            if type(value) is not kind:
                yield (
                    f"{METADATA}: {where}: {key} must be {kind.__name__}; got {value!r}"
                )


def find_problems(folder: str, metadata: Metadata) -> Iterator[str]:
    """Reads every shard to its end and yields one line for each difference.

    Compares sizes, SHA-256, the checksum of every record, and the number of records in
    each shard and split, and finds shards that are not in the metadata.
    """
    root = files.absolute(folder)
    known = set()
    names = {s.sha256: s.file for e in metadata.splits.values() for s in e.shards}
    for name, split in metadata.splits.items():
        for shard in split.shards:
            known.add(shard.file)
            yield from _shard_problems(files.join(root, shard.file), shard, names)
        total = sum(shard.examples for shard in split.shards)
        if total != split.examples:
            yield (
                f"{METADATA}: split {name}: its shards have {total} examples together, "
                f"but the split has {split.examples}"
            )
    for file in files.list_files(root):
        if (
            file.endswith(SUFFIX)
            and file not in known
            and re.search(r"-of-\d{5}", file)
        ):
            yield f"{file}: a shard that is not in {METADATA}"


def _shard_problems(
    path: str, shard: ShardEntry, names: Mapping[str, str]
) -> Iterator[str]:
    """Yields one line for each difference; ``names`` maps SHA-256 to shards."""
    size = files.size(path)
    if size < 0:
        yield f"{shard.file}: is missing"
        return
    sha256 = hashlib.sha256()
    records = 0
    try:
        with files.open_read(path) as file:
            for _ in read_records(file, sha256):
                records += 1
    except (ValueError, OSError) as error:
        if size != shard.bytes:
            yield f"{shard.file}: has {size} bytes; expected {shard.bytes}"
        yield f"{shard.file}: {error}"
        return
    if sha256.hexdigest() != shard.sha256:
        other = names.get(sha256.hexdigest())
        what = f"it is {other}" if other else "it was changed or replaced"
        yield (
            f"{shard.file}: its SHA-256 differs ({size} bytes; expected "
            f"{shard.bytes}): {what}"
        )
    if records != shard.examples:
        yield f"{shard.file}: has {records} records; expected {shard.examples}"
