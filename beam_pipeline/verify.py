"""Whether a data set is what its metadata says."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator

from beam_pipeline import files
from beam_pipeline.metadata import Metadata, ShardEntry
from beam_pipeline.tfrecord import SUFFIX, read_records


def find_problems(folder: str, metadata: Metadata) -> Iterator[str]:
    """Reads every shard to its end; yields one line for each difference.

    Sizes, SHA-256, the checksum of every record, the number of records in each shard
    and split, and shards that the metadata do not know.
    """
    root = files.absolute(folder)
    known = set()
    for name, split in metadata.splits.items():
        for shard in split.shards:
            known.add(shard.file)
            yield from _shard_problems(files.join(root, shard.file), shard)
        total = sum(shard.examples for shard in split.shards)
        if total != split.examples:
            yield (
                f"split {name}: its shards hold {total} examples, and it says "
                f"{split.examples}"
            )
    for file in files.list_files(root):
        if (
            file.endswith(SUFFIX)
            and file not in known
            and re.search(r"-of-\d{5}", file)
        ):
            yield f"{file}: a shard that the metadata do not know"


def _shard_problems(path: str, shard: ShardEntry) -> Iterator[str]:
    size = files.size(path)
    if size < 0:
        yield f"{shard.file}: is missing"
        return
    if size != shard.bytes:
        yield f"{shard.file}: has {size} bytes, and should have {shard.bytes}"
    sha256 = hashlib.sha256()
    records = 0
    try:
        with files.open_read(path) as file:
            for _ in read_records(file, sha256):
                records += 1
    except (ValueError, OSError) as error:
        yield f"{shard.file}: {error}"
        return
    if sha256.hexdigest() != shard.sha256:
        yield f"{shard.file}: its SHA-256 differs: the file was changed"
    if records != shard.examples:
        yield f"{shard.file}: has {records} records, and should have {shard.examples}"
