"""Compares the files of a data set with its metadata."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TypeVar

from beam_pipeline.dataset.metadata import OWN_SHA256, Metadata, ShardEntry
from beam_pipeline.dataset.output_folder import INDEX, METADATA, WORK_FOLDER
from beam_pipeline.dataset.shard_scan import scan_shard
from beam_pipeline.errors import InputError, VerificationError
from beam_pipeline.hashing import json_sha256
from beam_pipeline.storage import files
from beam_pipeline.text import parse_json

_T = TypeVar("_T")

_NUMBERED = re.compile(r"-of-\d{5}.*\.tfrecord(\.gz)?$")
_REMEDIES = {INDEX: ". Make it again with `audio-tfrecords index`."}


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
        return Metadata.load(folder)
    except InputError as error:
        if not files.exists(files.join(files.absolute(folder), METADATA)):
            raise
        raise VerificationError([str(error)]) from error


def find_problems(folder: str, metadata: Metadata) -> Iterator[str]:
    """Reads every file to its end and yields one line for each difference.

    Compares the size and the SHA-256 of each file, the checksums of every record, and
    the number of records in each shard and split. Finds shards that are not in the
    metadata.
    """
    root = files.absolute(folder)
    yield from problems_beside_shards(root, metadata)
    for shard in metadata.shards():
        yield from shard_problems(root, metadata, shard)


def problems_beside_shards(root: str, metadata: Metadata) -> Iterator[str]:
    """Yields one line for each difference that shows without reading shards."""
    values = parse_json(files.read_bytes(files.join(root, METADATA)))
    if values.pop(OWN_SHA256, None) != json_sha256(values):
        yield f"{METADATA}: was changed: `{OWN_SHA256}` is not that of its values"
    for name, split in metadata.splits.items():
        total = sum(shard.examples for shard in split.shards)
        if total != split.examples:
            yield (
                f"{METADATA}: split {name}: its shards have {total} examples together, "
                f"but the split has {split.examples}"
            )
    for name, entry in metadata.files.items():
        found, problem = _tried(files.hash_of, files.join(root, name))
        if found is not None and found != (entry.bytes, entry.sha256):
            problem = _other_content(found[0], entry.bytes)
        if problem is not None:
            yield f"{name}: {problem}{_REMEDIES.get(name, '')}"
    known = {shard.file for shard in metadata.shards()}
    for file in files.list_files(root):
        is_unfinished = file.startswith(f"{WORK_FOLDER}/")
        if file not in known and not is_unfinished and _NUMBERED.search(file):
            yield f"{file}: a shard that is not in {METADATA}"


def shard_problems(
    root: str,
    metadata: Metadata,
    shard: ShardEntry,
    use: Callable[[int, bytes], None] | None = None,
) -> Iterator[str]:
    """Reads a shard to its end and yields one line for each difference.

    Parameters
    ----------
    use : callable, optional
        See :func:`.scan_shard`.
    """
    path = files.join(root, shard.file)
    found, problem = _tried(lambda path: scan_shard(path, use), path)
    size = files.size(path)
    if found is None:
        if 0 <= size != shard.bytes:
            yield f"{shard.file}: has {size} bytes; expected {shard.bytes}"
        yield f"{shard.file}: {problem}"
        return
    if found.sha256 != shard.sha256:
        names = {entry.sha256: entry.file for entry in metadata.shards()}
        other = names.get(found.sha256)
        yield f"{shard.file}: {_other_content(size, shard.bytes, other)}"
    if found.examples != shard.examples:
        yield f"{shard.file}: has {found.examples} records; expected {shard.examples}"


def _tried(read: Callable[[str], _T], path: str) -> tuple[_T, None] | tuple[None, str]:
    """Returns what is read of a file, or why it cannot be read."""
    try:
        return read(path), None
    except FileNotFoundError:
        return None, "is missing"
    except IsADirectoryError:
        return None, "is a folder. Move it away"
    except (OSError, ValueError, InputError) as error:
        return None, str(error)


def _other_content(size: int, expected: int, other: str | None = None) -> str:
    what = f"it is {other}" if other else "it was changed or replaced"
    return f"its SHA-256 differs ({size} bytes; expected {expected}): {what}"
