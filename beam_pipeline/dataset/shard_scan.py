"""Reads a whole shard: its SHA-256, its records and its members."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from beam_pipeline.dataset.member_index import ShardMembers
from beam_pipeline.dataset.metadata import ShardEntry
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import ScannedMember, is_compressed, scan_members


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
