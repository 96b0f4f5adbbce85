"""The output folder of a data set, the work folder of its run, and their files.

::

    metadata.json                   the data set is complete if this file exists
    schema.pbtxt
    manifest.parquet
    windows.parquet
    members.index                   see :mod:`.metadata`
    rejected.jsonl                  exists after a failed run, too
    log.txt                         of typed examples only, as is the next one
    train/examples.csv
    train/train-00000-of-00012...   a folder for each split, if there are splits
    _work/                          deleted at the end

The work folder, which may also be elsewhere::

    metadata.json    those of a data set whose damaged shards are made again
    job.json         the job: recipe, inputs and versions; written by the submitter
    rows/            the rows of tables that were given in memory
    plan.json        the number of examples and seconds, once the headers are read
    receipts/        one file for each finished shard; NAME.lost.json: it lost windows
    plans/           the plan of a run on an engine, in pages
    drafts/          unfinished shards *
    phases/          elements that one phase on this machine stores for the next one *
    poison_clips/    one file for each clip that ended or stalled its process; see
                     :mod:`beam_pipeline.planning.clips`
    error.json       the error that ended the job
    new/             finished shards, while a data set in the output stays as it is
    rejected.jsonl   the rejects of a run that leaves a data set as it is
    nothing-new.jsonl    the rejects of a run that had nothing to record

A run deletes these files when the data set is complete, and no others. What has a *
belongs to one call alone. If output and work folder are local, it is in the folder of
the claim instead: a run that wakes up late writes where the next one finds nothing.

A data set in a local output is replaced by a new one, which is whole before::

    _work/new/      the new data set; whole once its metadata.json is there
    _work/whole/    the same folder, when the data set of before is deleted

A run that is killed before ``new`` is whole leaves the data set of before. After that,
the next run that claims the output finishes the switch, whatever its job is. Only on
this machine: a store cannot rename.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from beam_pipeline import errors
from beam_pipeline.errors import AudioTFRecordsError, IncompleteRun, InputError
from beam_pipeline.inputs.splits import shard_name
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import POISON_CLIPS, UNCLAIMED, WORK_FOLDER, Claim
from beam_pipeline.storage.tfrecord import PLAIN_SUFFIX, SUFFIX
from beam_pipeline.text import hidden, parse_json, shown, typed

_T = TypeVar("_T")

METADATA = "metadata.json"
SCHEMA = "schema.pbtxt"
MANIFEST = "manifest.parquet"
INDEX = "members.index"
WINDOWS = "windows.parquet"
REJECTED = "rejected.jsonl"
LOG = "log.txt"
EXAMPLES_CSV = "examples.csv"
# In the work folder of the output, wherever that of the run is; see :mod:`.replace`.
NEW = "new"

# What readers open beside the shards of audio files, and the metadata.
BESIDE = SCHEMA, MANIFEST, WINDOWS, INDEX, REJECTED
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
    return name in (METADATA, LOG, *BESIDE) or is_csv or is_shard_file(name)


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
        if (is_shard_file(name) and name not in current)
        or (name != without_draft(name) and is_ours(name))
    ]
    for name in stale:
        claim.discard(files.join(output, name))
    if files.is_local(output):
        for folder in {name.rpartition("/")[0] for name in stale} - {""}:
            with suppress(OSError):  # the folder holds other files
                os.rmdir(files.join(output, folder))


JOB_FILE = "job.json"
PLAN_FILE = "plan.json"
ERROR_FILE = "error.json"
RECEIPTS = "receipts"
LOST = ".lost.json"
PLANS = "plans"
DRAFTS = "drafts"
PHASES = "phases"
ROWS = "rows"
NOTHING_NEW = "nothing-new.jsonl"
OURS = (
    JOB_FILE, PLAN_FILE, ERROR_FILE, RECEIPTS, PLANS, DRAFTS, PHASES,
    ROWS, POISON_CLIPS, NEW, REJECTED, NOTHING_NEW,
)  # fmt: skip

CONTINUE = "Give the same command again to continue."


def recorded_metadata(output: str) -> str:
    """The path of the metadata of a data set whose damaged shards are made again.

    It is in the output, whatever the work folder of the run is.
    """
    return files.join(output, WORK_FOLDER, METADATA)


def receipt_path(shard_name: str, work_folder: str, is_whole: bool = True) -> str:
    """The path of the receipt of a shard; another one if it has lost windows."""
    name = shard_name.replace("/", ".") + (".json" if is_whole else LOST)
    return files.join(work_folder, RECEIPTS, name)


def receipts(work_folder: str) -> list[str]:
    """Returns the names of the receipts of a run."""
    folder = files.join(work_folder, RECEIPTS)
    return list(files.list_files(folder)) if files.is_folder(folder) else []


def new_draft(start: str, suffix: str, work_folder: str, claim: Claim) -> str:
    """Returns a path for an unfinished shard of this process."""
    name = f"{start}{uuid.uuid4().hex}.{os.getpid()}{suffix}"
    return files.draft_path(files.join(claim.stage(work_folder), DRAFTS), name)


def delete_drafts_of(process: int, work_folder: str, claim: Claim) -> None:
    """Deletes the unfinished shards of a process that died."""
    folder = files.join(claim.stage(work_folder), DRAFTS)
    files.delete_drafts(folder, f"*.{process}.*")


def delete_all_drafts(work_folder: str) -> None:
    """Deletes the unfinished shards that a run left in its local work folder.

    A run that goes on uses none of them.
    """
    files.delete_drafts(files.join(work_folder, DRAFTS), "*.tfrecord*")


def has_run(work_folder: str) -> bool:
    """Whether a work folder has an unfinished run."""
    return files.exists(files.join(work_folder, JOB_FILE))


def foreign_file(work_folder: str) -> str | None:
    """Returns a file that no run has written; None if there is none."""
    if not files.is_folder(work_folder):
        return None
    names = islice(files.list_files(work_folder), 100_000)
    return next(
        (n for n in names if without_draft(n).partition("/")[0] not in OURS), None
    )


def clear_work(work_folder: str, claim: Claim = UNCLAIMED) -> None:
    """Deletes the files of a run, and the work folder if it is empty then."""
    for name in OURS:
        path = files.join(work_folder, name)
        if "." in name:
            claim.discard(path)
            if files.is_local(path):  # what a process was writing when it was killed
                files.delete_drafts(work_folder, f"{name}.tmp-*")
        else:
            claim.discard(path, is_folder=True)
    if files.is_local(work_folder):
        with suppress(OSError):  # it holds other files, or does not exist
            os.rmdir(work_folder)


def clear_finished(work_folder: str, claim: Claim) -> None:
    """Deletes the files of a run whose data set is whole.

    If another run has taken the output over meanwhile, the next one deletes them.
    """
    with suppress(IncompleteRun):
        clear_work(work_folder, claim)


@dataclass(frozen=True)
class _StoredError:
    """``error.json``: the name of an error's class, and its fields."""

    error: str
    args: tuple[Any, ...]


@contextmanager
def storing_error(work_folder: str, claim: Claim) -> Iterator[None]:
    """Writes an error that the block raises into the work folder, and raises it again.

    Runners pass on the text of an error at best. The submitter reads the file and
    raises the error itself.
    """
    try:
        yield
    except AudioTFRecordsError as error:
        stored = _StoredError(type(error).__name__, error.args)
        content = hidden(json.dumps(vars(stored), default=str)).encode()
        claim.write(files.join(work_folder, ERROR_FILE), content)
        raise


def read_run_error(work_folder: str) -> AudioTFRecordsError | None:
    """Returns the error that ended the last run; None if there is none."""
    return read_stored(files.join(work_folder, ERROR_FILE), _error_of)


def _error_of(values: Any) -> AudioTFRecordsError:
    stored: _StoredError = typed(_StoredError, values, "")
    kind = getattr(errors, stored.error, None)
    if isinstance(kind, type) and issubclass(kind, AudioTFRecordsError):
        return kind(*stored.args)
    raise ValueError(f"{shown(stored.error)} is no error of ours")


def read_stored(path: str, parse: Callable[[Any], _T]) -> _T | None:
    """Returns what a function makes of a run's file of JSON; None if there is no file.

    Raises
    ------
    InputError
        If no run has written the file as it is: if it is no JSON, or if the function
        raises ValueError.
    """
    try:
        return parse(parse_json(files.read_bytes(path)))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise InputError(
            f"{path} is not a file of a run: {error}. Delete it, and give the command "
            "of the run again."
        ) from error


# Replacing a data set

WHOLE = "whole"


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
        # The metadata last: then the data set is complete.
        for name in sorted(files.list_files(whole), key=METADATA.__eq__):
            claim.check()  # a run that took the output over has moved the file itself
            files.move(files.join(whole, name), files.join(output, name))
    claim.discard(whole, is_folder=True)
    return True


def delete_data_set(output: str, held: Sequence[str], claim: Claim) -> None:
    """Deletes the files of a data set, the metadata first: then it is not complete."""
    for name in sorted(filter(is_ours, held), key=METADATA.__ne__):
        claim.discard(files.join(output, name))
