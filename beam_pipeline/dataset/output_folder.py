"""The output folder: the names of its files, and which files there are ours.

::

    metadata.json                   the data set is complete if this file exists
    schema.pbtxt
    manifest.parquet
    windows.parquet
    members.index                   see :mod:`.member_index`
    rejected.jsonl                  exists after a failed run, too
    log.txt                         of typed examples only, as is the next one
    train/examples.csv
    train/train-00000-of-00012...   a folder for each split, if there are splits
    _work/                          see :mod:`.work_folder`; deleted at the end
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable
from contextlib import suppress

from beam_pipeline.plan.shard_names import is_shard_name
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import PLAIN_SUFFIX, SUFFIX

METADATA = "metadata.json"
SCHEMA = "schema.pbtxt"
MANIFEST = "manifest.parquet"
INDEX = "members.index"
WINDOWS = "windows.parquet"
REJECTED = "rejected.jsonl"
LOG = "log.txt"
EXAMPLES_CSV = "examples.csv"
WORK_FOLDER = "_work"


_BESIDE = (
    METADATA, SCHEMA, MANIFEST, WINDOWS, INDEX, REJECTED, LOG,
)  # fmt: skip
_DRAFT = re.compile(r"\.tmp(-[0-9a-f]+)?$")


def without_draft(name: str) -> str:
    """Returns the name of a file that a run was writing when it ended."""
    return _DRAFT.sub("", name)


def is_shard_file(name: str) -> bool:
    """Whether a path below the output folder is a possible name of a shard."""
    for suffix in (SUFFIX, PLAIN_SUFFIX):
        if name.endswith(suffix):
            return is_shard_name(name.removesuffix(suffix))
    return False


def is_ours(name: str) -> bool:
    """Whether a path below the output folder is a possible name of one of our files.

    So is that of a file that a run was writing when it ended.
    """
    name = without_draft(name)
    split, _, file = name.rpartition("/")
    is_csv = file == EXAMPLES_CSV and "/" not in split
    return name in _BESIDE or is_csv or is_shard_file(name)


def stale_shards(output: str, current: Iterable[str]) -> list[str]:
    """Returns the shards in an output folder that are not among the current ones."""
    current = set(current)
    return [name for name in files.list_files(output) if _is_stale(name, current)]


def delete_stale(output: str, current: Iterable[str]) -> None:
    """Deletes the shards of earlier plans of a run, and files that it has not finished.

    If inputs change between two runs, the plan changes, and with it the names of the
    shards and perhaps the splits. A file is deleted only if its name is exactly that of
    a shard, in the folder of its split or beside the metadata, or that of a draft of
    ours. A runner may call this twice: files that are gone already are no error.

    Parameters
    ----------
    output : str
        The output folder. The caller must have claimed it.
    current : iterable of str
        The shards that stay, relative to ``output``.
    """
    current = set(current)
    stale = [
        name
        for name in files.list_files(output)
        if _is_stale(name, current) or _is_draft(name)
    ]
    files.delete(files.join(output, name) for name in stale)
    if files.is_local(output):
        for folder in {name.rpartition("/")[0] for name in stale} - {""}:
            with suppress(OSError):  # the folder holds other files
                os.rmdir(files.join(output, folder))


def _is_stale(name: str, current: Container[str]) -> bool:
    return name not in current and is_shard_file(name)


def _is_draft(name: str) -> bool:
    """Whether a run was writing the file beside the shards when it was killed."""
    return name != without_draft(name) and is_ours(name)
