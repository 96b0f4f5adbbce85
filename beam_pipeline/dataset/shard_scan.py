"""Reads a whole shard: whether it is the one in the metadata, and its members."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from beam_pipeline.dataset.member_index import ShardMembers
from beam_pipeline.dataset.metadata import ShardEntry
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import ScannedMember, is_compressed, scan_members


class OtherShard(ValueError):
    """A shard can be read, but is not the one in the metadata."""


def scan_shard(root: str, entry: ShardEntry) -> list[ScannedMember]:
    """Reads a shard of a data set to its end and returns its members.

    Raises
    ------
    OtherShard
        If its SHA-256 is not that in the metadata.
    ValueError, OSError
        If it cannot be read.
    """
    sha256 = hashlib.sha256()
    with files.open_read(files.join(root, entry.file)) as file:
        compressed = is_compressed(entry.file)
        found = list(scan_members(file, sha256, compressed=compressed))
    if sha256.hexdigest() != entry.sha256:
        raise OtherShard("its SHA-256 differs")
    return found


def members_of(entry: ShardEntry, found: Sequence[ScannedMember]) -> ShardMembers:
    """Returns the members of a shard as the index lists them."""
    held = [member for member in found if member.records]
    return ShardMembers(
        entry.file,
        entry.examples,
        entry.bytes,
        entry.sha256,
        np.array([member.offset for member in held], np.int64),
        np.array([member.records for member in held], np.int64),
    )
