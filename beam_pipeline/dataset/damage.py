"""What is damaged in a data set, as far as it shows without its inputs."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from beam_pipeline.dataset.member_index import ShardMembers
from beam_pipeline.dataset.metadata import Metadata, ShardEntry
from beam_pipeline.dataset.output_folder import MANIFEST, SCHEMA, WINDOWS
from beam_pipeline.dataset.planned_windows import PlannedWindows, plan_problems
from beam_pipeline.dataset.schema import schema_problem
from beam_pipeline.dataset.shard_scan import members_of, scan_shard
from beam_pipeline.storage import files
from beam_pipeline.storage.parquet import read_parquet

_THREADS = 4


class Damage(NamedTuple):
    """Which files must be made again.

    Attributes
    ----------
    shards : list of ShardEntry
        Those that are missing, damaged, or not the ones in the metadata.
    members : dict
        The members of all other shards, by file.
    schema, windows, manifest : bool
    """

    shards: list[ShardEntry]
    members: dict[str, ShardMembers]
    schema: bool
    windows: bool
    manifest: bool


def find_damage(root: str, metadata: Metadata) -> Damage:
    """Reads every shard, and looks at the files beside them."""

    def members(entry: ShardEntry) -> ShardMembers | None:
        try:
            return members_of(entry, scan_shard(root, entry))
        except (OSError, ValueError):
            return None

    entries = list(metadata.shards())
    with ThreadPoolExecutor(_THREADS) as pool:
        found = list(pool.map(members, entries))
    whole = {some.file: some for some in found if some is not None}
    damaged = [entry for entry in entries if entry.file not in whole]
    manifest, windows = _damaged_tables(root, metadata)

    def other_schema(text: bytes) -> bool:
        return schema_problem(text, metadata.features, metadata.classes) is not None

    schema = is_damaged(root, SCHEMA, other_schema)
    return Damage(damaged, whole, schema, windows, manifest)


def is_damaged(root: str, name: str, differs: Callable[[bytes], bool]) -> bool:
    """Whether a file is missing, or its content differs from what it must be."""
    try:
        return differs(files.read_bytes(files.join(root, name)))
    except FileNotFoundError:
        return True


def _damaged_tables(root: str, metadata: Metadata) -> tuple[bool, bool]:
    """Whether the manifest, and the table of windows, must be made again.

    Windows that do not fit a manifest that can be read are wrong themselves: whether
    the manifest is right, only the inputs show.
    """
    manifest, windows = (_read_table(files.join(root, n)) for n in (MANIFEST, WINDOWS))
    if windows is None or manifest is None:
        return manifest is None, windows is None
    try:
        planned = PlannedWindows.of(windows, manifest)
        lines = list(plan_problems(planned, metadata))
    except (ValueError, KeyError, TypeError):
        return False, True
    return False, any(WINDOWS in line for line in lines)


def _read_table(path: str) -> Any:
    """Returns the table in a file; None if it is missing or damaged."""
    try:
        return read_parquet(path)
    except (OSError, ValueError):
        return None
