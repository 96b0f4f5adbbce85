"""The work folder of a run: its files.

::

    metadata.json    those of a data set whose damaged shards are made again
    job.json         the job: recipe, inputs and versions; written by the submitter
    rows/            the rows of tables that were given in memory
    plan.json        the number of examples and seconds, once the headers are read
    receipts/        one file for each finished shard
    plans/           the plan of a run on an engine, in pages
    drafts/          unfinished shards *
    phases/          elements that one phase on this machine stores for the next one *
    poison_clips/    one file for each clip that ended or stalled its process, twice
    verdict.json     the error that ended the job
    new/             finished shards, while a data set in the output stays as it is
    rejected.jsonl   the rejects of a run that leaves a data set as it is
    nothing-new.jsonl    the rejects of a run that had nothing to record

A run deletes these files when the data set is complete, and no others. What has a *
belongs to one call alone. If output and work folder are local, it is in the folder of
the claim instead: a run that wakes up late writes where the next one finds nothing.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

from beam_pipeline import errors
from beam_pipeline.dataset.output_folder import METADATA, NEW, REJECTED, without_draft
from beam_pipeline.errors import AudioTFRecordsError, InputError
from beam_pipeline.planning.poison_clips import POISON_CLIPS
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import UNCLAIMED, WORK_FOLDER, Claim
from beam_pipeline.text import hidden, parse_json

JOB_FILE = "job.json"
PLAN_FILE = "plan.json"
VERDICT_FILE = "verdict.json"
RECEIPTS = "receipts"
INCOMPLETE = "incomplete"
PLANS = "plans"
DRAFTS = "drafts"
PHASES = "phases"
ROWS = "rows"
NOTHING_NEW = "nothing-new.jsonl"
OURS = (
    JOB_FILE, PLAN_FILE, VERDICT_FILE, RECEIPTS, INCOMPLETE, PLANS, DRAFTS, PHASES,
    ROWS, POISON_CLIPS, NEW, REJECTED, NOTHING_NEW,
)  # fmt: skip

CONTINUE = "Give the same command again to continue."


def recorded_metadata(output: str) -> str:
    """The path of the metadata of a data set whose damaged shards are made again.

    It is in the output, whatever the work folder of the run is.
    """
    return files.join(output, WORK_FOLDER, METADATA)


def receipt_path(shard_name: str, work_folder: str, is_whole: bool = True) -> str:
    """The path of the receipt of a shard, which may have lost windows."""
    folder = RECEIPTS if is_whole else INCOMPLETE
    return files.join(work_folder, folder, f"{shard_name.replace('/', '.')}.json")


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


@contextmanager
def keeping_verdict(work_folder: str, claim: Claim) -> Iterator[None]:
    """Writes an error that the block raises into the work folder, and raises it again.

    Runners pass on the text of an error at best. The submitter reads the verdict and
    raises the error itself.
    """
    try:
        yield
    except AudioTFRecordsError as error:
        verdict = {"error": type(error).__name__, "args": error.args}
        content = hidden(json.dumps(verdict, default=str)).encode()
        claim.write(files.join(work_folder, VERDICT_FILE), content)
        raise


def read_verdict(work_folder: str) -> AudioTFRecordsError | None:
    """Returns the error that ended the last run; None if there is no verdict."""
    verdict = read_json(files.join(work_folder, VERDICT_FILE))
    if verdict is None:
        return None
    kind = getattr(errors, str(verdict.get("error")), None)
    arguments = verdict.get("args")
    is_error = isinstance(kind, type) and issubclass(kind, AudioTFRecordsError)
    if is_error and kind is not None and isinstance(arguments, list):
        error: AudioTFRecordsError = kind(*arguments)
        return error
    raise damaged(files.join(work_folder, VERDICT_FILE), "it is no error of ours")


def read_json(path: str) -> Mapping[str, Any] | None:
    """Returns the object in a file of a run; None if there is no file."""
    try:
        values = parse_json(files.read_bytes(path))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise damaged(path, error) from error
    if not isinstance(values, dict):
        raise damaged(path, "it is no object")
    return values


def damaged(path: str, problem: object) -> InputError:
    """Returns the error for a file that no run has written as it is."""
    return InputError(
        f"{path} is not a file of a run: {problem}. Delete it, and give the command of "
        "the run again."
    )
