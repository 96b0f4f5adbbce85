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

A new data set takes the place of another one at once::

    _work/new/      the new data set; whole once its metadata.json is there
    _work/whole/    the same folder, when the data set of before is deleted

A run that is killed before ``new`` is whole leaves the data set of before. After that,
the next run that claims the output finishes the switch, whatever its job is. Only on
this machine: a store cannot rename.
"""

from __future__ import annotations

import os
import re
from collections.abc import Container, Iterable, Sequence
from contextlib import suppress

from beam_pipeline.inputs.splits import shard_name
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import UNCLAIMED, WORK_FOLDER, Claim
from beam_pipeline.storage.tfrecord import PLAIN_SUFFIX, SUFFIX

METADATA = "metadata.json"
SCHEMA = "schema.pbtxt"
MANIFEST = "manifest.parquet"
INDEX = "members.index"
WINDOWS = "windows.parquet"
REJECTED = "rejected.jsonl"
LOG = "log.txt"
EXAMPLES_CSV = "examples.csv"
# In the work folder of the output, wherever that of the run is; see finish_switch.
NEW = "new"
WHOLE = "whole"

_BESIDE = (
    METADATA, SCHEMA, MANIFEST, WINDOWS, INDEX, REJECTED, LOG,
)  # fmt: skip
_SHARD = re.compile(
    r"([^/]+/)?(?P<split>[^/]+?)-(?P<k>[0-9]{5,})-of-(?P<shards>[0-9]{5,})"
    rf"(?P<suffix>{re.escape(SUFFIX)}|{re.escape(PLAIN_SUFFIX)})"
)
_DRAFT = re.compile(r"\.tmp(-[0-9a-f]+)?$")


def without_draft(name: str) -> str:
    """Returns the name of a file that a run was writing when it ended."""
    return _DRAFT.sub("", name)


def is_shard_file(name: str) -> bool:
    """Whether a path below the output folder is a possible name of a shard."""
    found = _SHARD.fullmatch(name)
    if found is None:
        return False
    split, k, shards = found["split"], int(found["k"]), int(found["shards"])
    planned = shard_name(split, k, shards) + found["suffix"]
    return split.isidentifier() and k < shards and name == planned


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


def delete_stale(output: str, current: Iterable[str], claim: Claim = UNCLAIMED) -> None:
    """Deletes the shards of earlier plans of a run, and files that it has not finished.

    If inputs change between two runs, the plan changes, and with it the names of the
    shards and perhaps the splits. A file is deleted only if its name is exactly that of
    a shard, in the folder of its split or beside the metadata, or that of a draft of
    ours. A runner may call this twice: files that are gone already are no error.

    Parameters
    ----------
    output : str
        The output folder.
    current : iterable of str
        The shards that stay, relative to ``output``.
    claim : Claim
        The claim on the output.
    """
    current = set(current)
    stale = [
        name
        for name in files.list_files(output)
        if _is_stale(name, current) or _is_draft(name)
    ]
    for name in stale:
        claim.discard(files.join(output, name))
    if files.is_local(output):
        for folder in {name.rpartition("/")[0] for name in stale} - {""}:
            with suppress(OSError):  # the folder holds other files
                os.rmdir(files.join(output, folder))


def _is_stale(name: str, current: Container[str]) -> bool:
    return name not in current and is_shard_file(name)


def _is_draft(name: str) -> bool:
    """Whether a run was writing the file beside the shards when it was killed."""
    return name != without_draft(name) and is_ours(name)


def new_folder(output: str) -> str:
    """The folder of a data set that will replace the one in a local output."""
    return files.join(output, WORK_FOLDER, NEW)


def put_in_place(written: str, output: str, claim: Claim) -> None:
    """Makes a whole data set the one in a local output."""
    claim.check()
    os.rename(written, new_folder(output))
    finish_switch(output, claim)


def finish_switch(output: str, claim: Claim) -> bool:
    """Puts the new data set in its place, if it is whole; returns whether it was.

    Parameters
    ----------
    claim : Claim
        The claim on the output.
    """
    if not files.is_local(output):
        return False
    new, whole = new_folder(output), files.join(output, WORK_FOLDER, WHOLE)
    if os.path.exists(files.join(new, METADATA)):
        delete_data_set(output, list(files.list_files(output)), claim)
        claim.check()
        os.rename(new, whole)
    if not os.path.isdir(whole):
        return False
    # A run that slept may have renamed a folder that was not whole.
    if not os.path.exists(files.join(output, METADATA)):
        for name in sorted(files.list_files(whole), key=METADATA.__eq__):
            claim.check()  # a run that took the output over has moved the file itself
            files.move(files.join(whole, name), files.join(output, name))
    claim.discard(whole, is_folder=True)
    return True


def delete_data_set(output: str, held: Sequence[str], claim: Claim) -> None:
    """Deletes the files of a data set, the metadata first: then it is not complete."""
    for name in sorted(filter(is_ours, held), key=METADATA.__ne__):
        claim.discard(files.join(output, name))
