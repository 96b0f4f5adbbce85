"""How a job starts: what it finds in its output, which case that is, what it does then.

::

    look_at(output)  ->  Found  ->  case_of(found, ...)  ->  Case  ->  start(case, ...)

A run writes its job into the work folder. A later run of the same job continues there;
one of another job is refused. Only the run that holds the claim on the output looks at
it and starts, see
:mod:`beam_pipeline.storage.claim`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from enum import Enum
from itertools import islice
from typing import Any, NamedTuple

from beam_pipeline.audio.av_library import is_installed
from beam_pipeline.dataset.job_difference import (
    job_differences,
    option_differences,
)
from beam_pipeline.dataset.metadata import Metadata, to_text
from beam_pipeline.dataset.output_folder import (
    CLAIMS,
    METADATA,
    NEW,
    REJECTED,
    WHOLE,
    WORK_FOLDER,
    delete_data_set,
    finish_switch,
    is_ours,
    new_folder,
)
from beam_pipeline.dataset.side_by_side import as_recorded
from beam_pipeline.dataset.work_folder import (
    DRAFTS,
    JOB_FILE,
    PHASES,
    PLAN_FILE,
    PLANS,
    RECEIPTS,
    ROWS,
    VERDICT_FILE,
    clear_work,
    foreign_file,
    is_claimed,
    recorded_metadata,
)
from beam_pipeline.dataset.writer_versions import code_of, writer_versions
from beam_pipeline.errors import (
    EngineError,
    InputError,
    OutputError,
    RecipeError,
    StoreError,
)
from beam_pipeline.hashing import bytes_sha256
from beam_pipeline.inputs.sources import Input
from beam_pipeline.plan.poison_clips import POISON_CLIPS
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import (
    Claim,
    claimed,
    delete_empty,
    missing_folders,
)
from beam_pipeline.text import parse_json

# In the stamp of a job: the SHA-256 of the metadata of the data set that it replaces.
REPLACES = "replaces"

# In the folder of drafts: the data set that was in the store is deleted.
_ROOM_MADE = "room-made"


class Case(Enum):
    """What a job does in its output."""

    BEGIN = "what is there, if anything, may go: it is deleted, and the job begins"
    CONTINUE = "an unfinished run of the same job is there: its shards stay"
    REPAIR = "a data set is there that lost damaged shards: the others stay"
    REPLACE = "a data set is there, which stays until the new one is whole"


class Found(NamedTuple):
    """What an output and a work folder hold.

    Attributes
    ----------
    held : list of str
        The files in the output that no run has in work.
    data_set : str or None
        The SHA-256 of ``metadata.json``, if the data set is complete.
    has_run : bool
        Whether an unfinished run left its job.
    stamp : dict or None
        The stamp of that job; None if it cannot be read.
    replaces : str or None
        Which data set that run replaces.
    is_useless : bool
        Whether that run left nothing that a later one could continue.
    is_damaged : bool
        Whether a data set waits for shards that were deleted, to be made again.
    """

    held: list[str]
    data_set: str | None
    has_run: bool
    stamp: dict[str, Any] | None
    replaces: str | None
    is_useless: bool
    is_damaged: bool


class Asked(NamedTuple):
    """What a job wants of its output.

    Attributes
    ----------
    output, work : str
        The output, and the folder for unfinished files.
    stamp : mapping
        See :func:`job_stamp`.
    overwrite : bool
        Whether a data set, or an unfinished run of another job, may be replaced.
    difference : str, optional
        How the data set in the output differs from the one that the job would record.
    """

    output: str
    work: str
    stamp: Mapping[str, Any]
    overwrite: bool
    difference: str | None = None


def look_at(output: str, work: str) -> Found:
    """Returns what an output and a work folder hold."""
    held = list(islice(_held_files(output, work), 100_000))
    has_run = is_claimed(work)
    stamp = read_stamp(files.join(work, JOB_FILE)) if has_run else None
    of_elements = stamp is not None and "recipe" not in stamp
    has_failed = has_run and files.exists(files.join(work, VERDICT_FILE))
    return Found(
        held,
        data_set_in(output),
        has_run,
        stamp,
        None if stamp is None else stamp.pop(REPLACES, None),
        # The source of elements cannot be asked for some of them again.
        (has_failed and not files.is_folder(files.join(work, RECEIPTS))) or of_elements,
        files.exists(recorded_metadata(output)),
    )


def data_set_in(output: str) -> str | None:
    """Returns the SHA-256 of the metadata of a complete data set; None without one."""
    path = files.join(output, METADATA)
    return bytes_sha256(files.read_bytes(path)) if files.exists(path) else None


def case_of(found: Found, asked: Asked) -> Case:
    """Returns the case of a job, from what it has found.

    Raises
    ------
    OutputError
        If the output holds what the job must not delete.
    """
    is_same = found.has_run and found.stamp == asked.stamp
    if found.data_set is None:
        if is_same and "recipe" in asked.stamp:
            return Case.CONTINUE
        if found.is_damaged and not (asked.overwrite or found.has_run):
            return Case.REPAIR
        if found.has_run and not (asked.overwrite or found.is_useless):
            raise _other_run(found, asked)
    elif is_same and asked.overwrite and found.replaces == found.data_set:
        return Case.CONTINUE
    may_go = asked.overwrite or (found.data_set is None and found.is_useless)
    foreign = [name for name in found.held if not is_ours(name)]
    if foreign or not (may_go or set(found.held) <= {REJECTED}):
        raise _other_files(foreign, asked)
    # A store cannot rename, so there only elements are written elsewhere before.
    waits = files.is_local(asked.output) or "recipe" not in asked.stamp
    keeps = found.data_set is not None and waits
    return Case.REPLACE if keeps else Case.BEGIN


def start(case: Case, found: Found, asked: Asked, claim: Claim) -> None:
    """Prepares output and work folder for a job, and writes its stamp."""
    work, stamp = asked.work, dict(asked.stamp)
    if case in (Case.CONTINUE, Case.REPAIR):
        # This run makes its own plan, and its own verdict.
        for name in (PLAN_FILE, VERDICT_FILE):
            claim.discard(files.join(work, name))
        if case is Case.CONTINUE:
            return
    else:
        if case is Case.BEGIN:
            delete_data_set(asked.output, found.held, claim)
        if found.has_run:
            clear_work(work, claim)
        claim.discard_folder(new_folder(asked.output))
        claim.discard(recorded_metadata(asked.output))
    if case is Case.REPLACE:
        stamp[REPLACES] = found.data_set
    if not files.create(files.join(work, JOB_FILE), to_text(stamp)):
        raise OutputError(
            f"Another run has begun to use `work_dir` {work}. Give another one."
        )


def _other_run(found: Found, asked: Asked) -> OutputError:
    output, old = asked.output, found.stamp or {}
    if old.get("output", output) != output:
        return OutputError(
            f"`work_dir` {asked.work} holds an unfinished run that writes to "
            f"{old['output']}. Give another `work_dir`, or give `overwrite` to discard "
            "that run."
        )
    if "recipe" not in asked.stamp:
        return OutputError(
            f"{output} holds an unfinished run of `record`. Give another folder, or "
            "give `overwrite` to discard that run."
        )
    others = job_differences(old, asked.stamp) or ["it cannot be read"]
    return OutputError(
        f"{output} holds an unfinished run of another job: {'; '.join(others)}. To "
        "finish it, give its command again. To replace it, give `overwrite`. To keep "
        "it, give another `output`."
    )


def _other_files(foreign: Sequence[str], asked: Asked) -> OutputError:
    what = f"a data set, and {asked.difference}" if asked.difference else "a data set"
    if foreign:
        what = f"files that do not belong to a data set, for example {foreign[0]}"
    hint = "" if foreign else ", or give `overwrite` to replace it"
    folder = "`output`" if "recipe" in asked.stamp else "folder"
    return OutputError(f"{asked.output} holds {what}. Give another {folder}{hint}.")


def _held_files(output: str, work: str) -> Iterator[str]:
    """The files in the output that belong to no claim and to no run in work."""
    if not files.exists(output) and not files.is_folder(output):
        return
    own = [WORK_FOLDER] if files.join(output, WORK_FOLDER) == work else []
    own += [f"{WORK_FOLDER}/{name}" for name in (METADATA, CLAIMS, NEW, WHOLE)]
    for name in files.list_files(output):
        if not any(name == each or name.startswith(f"{each}/") for each in own):
            yield name


def read_stamp(job_file: str) -> dict[str, Any] | None:
    """Returns the stamp of an unfinished run; None if it cannot be read."""
    try:
        stamp = parse_json(files.read_bytes(job_file))
    except ValueError:  # the machine went down while the file was written
        return None
    return stamp if isinstance(stamp, dict) else None


def job_stamp(
    output: str,
    work: str,
    recipe: Recipe,
    inputs: Sequence[Input],
    skip_recorded: Sequence[str] = (),
) -> dict[str, Any]:
    """Returns what must be equal for a run to continue another one, as JSON has it."""
    stamp: dict[str, Any] = {
        "recipe": recipe.to_json(),
        "inputs": [asdict(entry) for entry in inputs],
        # Which clips need ffmpeg is not known yet.
        "writer": writer_versions(
            recipe.features.encodings.values(),
            ffmpeg=is_installed(),
        ),
        "code": code_of(recipe),
        "skip_recorded": {
            folder: bytes_sha256(files.read_bytes(files.join(folder, METADATA)))
            for folder in skip_recorded
        },
    }
    if work != files.join(output, WORK_FOLDER):
        # Two outputs may be given the same work folder.
        stamp["output"] = output
    as_json: dict[str, Any] = json.loads(json.dumps(stamp))
    return as_json


def check_work_folder(work: str, output: str, inputs: Sequence[Input]) -> None:
    """Checks a work folder that the user chose.

    Raises
    ------
    OutputError
        If the work folder and an input or the output contain each other, or if the
        work folder holds other files.
    """
    for what, other in [
        ("`output`", output),
        *(("`input`", entry.location) for entry in inputs),
    ]:
        a, b = f"{work.rstrip('/')}/", f"{other.rstrip('/')}/"
        if a.startswith(b) or b.startswith(a):
            raise OutputError(
                f"`work_dir` {work} and {what} {other} must be separate, but one is "
                "inside the other or they are the same. A complete run empties its "
                "`work_dir`. Give another `work_dir`."
            )
    foreign = foreign_file(work)
    if foreign is not None:
        raise OutputError(
            f"`work_dir` {work} holds files that do not belong to a run, for example "
            f"{foreign}. Give a new or empty folder."
        )


def check_output(output: str, inputs: Sequence[Input]) -> None:
    """Raises OutputError if the output cannot be a folder, or is inside an input."""
    if not files.is_local(output):
        return
    _check_can_be_folder(output, "`output`")
    real = os.path.realpath(output)
    for entry in inputs:
        folder = entry.location
        if files.is_local(folder):
            folder = os.path.realpath(folder)
        if (real + os.sep).startswith(folder.rstrip(os.sep) + os.sep):
            raise OutputError(
                f"`output` {output} is inside `input` {entry.location}. Give an "
                "`output` outside the `input`."
            )


def _check_can_be_folder(output: str, what: str) -> None:
    if os.path.isfile(output):
        raise OutputError(f"{output} is a file; {what} must be a folder.")
    if os.path.islink(output) and not os.path.exists(output):
        raise OutputError(
            f"{output} is a link to {os.readlink(output)}, which does not exist. Make "
            "that folder, or delete the link."
        )


def check_recorded_recipe(output: str, recipe: Recipe) -> None:
    """Raises OutputError unless a recipe makes the shards that a data set has lost."""
    path = recorded_metadata(output)
    metadata = Metadata.parse(files.read_bytes(path), path)
    assert metadata.recipe is not None
    asked = as_recorded(recipe, metadata)
    others = option_differences(metadata.recipe.to_json(), asked.to_json())
    if others:
        raise OutputError(
            f"{output} holds a data set of which damaged shards were deleted, and it "
            f"has another recipe: {'; '.join(others)}. To make them again, give the "
            f"command that recorded it, or `recipe` {path}. To replace the data set, "
            "give `overwrite`."
        )


@contextmanager
def nothing_left(work: str, claim: Claim) -> Iterator[None]:
    """Deletes the files of a run if the block fails before the job has a plan.

    It does so only for errors after which no job can still run on an engine.
    """
    missing = missing_folders(work)
    try:
        yield
    except (EngineError, InputError, RecipeError, StoreError) as error:
        if not _store_fails(error, work) and claim.is_held() and _is_unused(work):
            clear_work(work, claim)
            delete_empty(missing)
        raise


@contextmanager
def started_for_elements(
    output: str, recorded_by: str, overwrite: bool
) -> Iterator[Claim]:
    """Claims an output for elements while the block runs, and starts.

    The source of elements cannot be asked for some of them again, so nothing is
    continued: if the block fails, all that it has written is deleted. The work folder
    is empty at the end.

    Raises
    ------
    OutputError
        See :func:`case_of`, and :func:`.claimed`.
    """
    work = files.join(output, WORK_FOLDER)
    if files.is_local(output):
        _check_can_be_folder(output, "the output")
    with claimed(output) as claim:
        finish_switch(output, claim)
        found = look_at(output, work)
        asked = Asked(output, work, {"recorded_by": recorded_by}, overwrite)
        start(case_of(found, asked), found, asked, claim)
        try:
            yield claim
        except BaseException as error:
            if claim.is_held() and not _store_fails(error, work):
                if not files.is_local(output) and made_room(output, work):
                    held = list(_held_files(output, work))
                    delete_data_set(output, held, claim)
                clear_work(work, claim)
            raise
        clear_work(work, claim)


def make_room(output: str, work: str, claim: Claim) -> None:
    """Deletes the data set in a store that a finished one replaces; only once."""
    done = files.join(work, DRAFTS, _ROOM_MADE)
    if not files.is_local(output) and not files.exists(done):
        delete_data_set(output, list(_held_files(output, work)), claim)
        claim.write(done, b"")


def made_room(output: str, work: str) -> bool:
    """Whether what is in the output belongs to the run that failed."""
    kept = files.exists(files.join(output, METADATA))
    return not kept or files.exists(files.join(work, DRAFTS, _ROOM_MADE))


def _store_fails(error: BaseException, work: str) -> bool:
    """Whether the work folder is in a store that cannot be used."""
    return isinstance(error, StoreError) and not files.is_local(work)


def _is_unused(work: str) -> bool:
    """Whether a claimed work folder holds nothing that a later run could continue."""
    if not is_claimed(work):
        return False
    names = {name.partition("/")[0] for name in files.list_files(work)}
    return names - {METADATA, CLAIMS} <= {
        JOB_FILE, VERDICT_FILE, PLANS, PHASES, ROWS, POISON_CLIPS,
    }  # fmt: skip
