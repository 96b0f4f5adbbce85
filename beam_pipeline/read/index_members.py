"""Makes the index of members of a finished data set, by reading its shards."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import partial

from beam_pipeline.dataset.member_index import ShardMembers, scan_shard, write_index
from beam_pipeline.dataset.metadata import Metadata, ShardEntry
from beam_pipeline.errors import InputError
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import ScannedMember

# Reading an example inflates its whole member. Larger members are not indexed, unless
# they hold a single example.
MOST_MEMBER_BYTES = 16 << 20

_THREADS = 4


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
        members = list(pool.map(partial(read_members, root), metadata.shards()))
    write_index(root, members)
    return sum(len(shard.offsets) for shard in members)


def read_members(root: str, entry: ShardEntry) -> ShardMembers:
    """Reads a shard of a data set to its end and returns its members.

    Raises
    ------
    InputError
        See :func:`index_data_set`.
    """
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
        _check_member(path, root, member)
    return found.indexed(entry)


def _check_member(path: str, root: str, member: ScannedMember) -> None:
    """Raises InputError if a member does not allow reading at random."""
    problem = None
    if not member.is_whole:
        problem = "a record continues in the next GZIP member"
    elif member.records > 1 and member.size > MOST_MEMBER_BYTES:
        problem = (
            f"its GZIP member at byte {member.offset} holds {member.records} examples "
            f"of {member.size >> 20} MiB together, which would be inflated for each "
            "of them"
        )
    if problem is not None:
        raise InputError(
            f"{path} cannot be read at random: {problem}. Rewrite the data set: "
            f"`audio-tfrecords convert {root} NEW_FOLDER`."
        )
