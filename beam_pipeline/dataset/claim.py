"""The claim of a run on its output folder: keeps other runs out, and other files safe.

A run writes its job into the work folder. A later run of the same job continues there;
a run of another job is refused.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from itertools import islice
from typing import Any

from beam_pipeline.audio.av_library import is_installed
from beam_pipeline.dataset.job_difference import (
    job_differences,
    option_differences,
)
from beam_pipeline.dataset.metadata import Metadata, to_text
from beam_pipeline.dataset.output_folder import METADATA, REJECTED, is_ours
from beam_pipeline.dataset.rejects import read_rejects
from beam_pipeline.dataset.side_by_side import as_recorded
from beam_pipeline.dataset.work_folder import (
    DRAFTS,
    JOB_FILE,
    NOTHING_NEW,
    PHASES,
    PLAN_FILE,
    PLANS,
    RECEIPTS,
    ROWS,
    VERDICT_FILE,
    WORK_FOLDER,
    clear_work,
    foreign_file,
    is_claimed,
    recorded_metadata,
)
from beam_pipeline.dataset.writer_versions import code_of, writer_versions
from beam_pipeline.errors import (
    DataSetWarning,
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
from beam_pipeline.text import parse_json

# In the stamp of a run: the SHA-256 of the metadata of the data set that it replaces.
REPLACES = "replaces"

# In the folder of drafts: the data set that was there is deleted.
_ROOM_MADE = "room-made"


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


def claim_output(
    output: str,
    work: str,
    recipe: Recipe,
    inputs: Sequence[Input],
    overwrite: bool,
    difference: str | None = None,
    skip_recorded: Sequence[str] = (),
) -> bool:
    """Claims the output folder; returns whether a data set there stays until the end.

    A data set that ``overwrite`` replaces stays until the new one is ready. In a store,
    where nothing can be renamed, it is deleted at once.

    Parameters
    ----------
    difference : str, optional
        How the data set in the folder differs from the one that the job would record;
        for the error.
    skip_recorded : sequence of str
        The folders of the data sets whose clips the job leaves out.

    Raises
    ------
    OutputError
        If the folder holds anything but an unfinished run of the same job; with
        ``overwrite``, if it holds files that do not belong to a data set.
    """
    # As it is read again, for comparisons.
    stamp = json.loads(
        json.dumps(job_stamp(output, work, recipe, inputs, skip_recorded))
    )
    check_output(output, inputs)
    held = list(islice(_held_files(output, work), 100_000))
    found = read_stamp(files.join(work, JOB_FILE)) if is_claimed(work) else None
    begun = found.pop(REPLACES, None) if isinstance(found, dict) else None
    replaced = _data_set_to_keep(output, work, held) if overwrite else None
    goes_on = METADATA not in held or (replaced is not None and begun == replaced)
    if goes_on and found == stamp:
        # This run makes its own plan, and its own verdict.
        files.delete(files.join(work, name) for name in (PLAN_FILE, VERDICT_FILE))
        return begun is not None
    is_free = METADATA not in held and not (overwrite or is_claimed(work))
    if is_free and files.exists(recorded_metadata(output)):
        _check_recorded_recipe(output, recipe)
        files.delete(files.join(work, name) for name in (PLAN_FILE, VERDICT_FILE))
        files.write_bytes(files.join(work, JOB_FILE), to_text(stamp))
        return False
    if is_claimed(work) and METADATA not in held:
        # A run that failed before its first whole shard leaves nothing to continue.
        failed = files.exists(files.join(work, VERDICT_FILE))
        overwrite |= failed and not files.is_folder(files.join(work, RECEIPTS))
        if not overwrite:
            raise _other_run(output, work, found, stamp)
    if set(held) != {REJECTED}:
        _check_held(output, held, overwrite, difference)
    if replaced is None:
        _replace(output, work, held, stamp)
    else:
        _replace(output, work, (), {**stamp, REPLACES: replaced})
    return replaced is not None


def _data_set_to_keep(output: str, work: str, held: Sequence[str]) -> str | None:
    """Returns the SHA-256 of the metadata of a data set that can stay until the end."""
    if METADATA in held and files.is_local(output) and files.is_local(work):
        return bytes_sha256(files.read_bytes(files.join(output, METADATA)))
    return None


def _check_recorded_recipe(output: str, recipe: Recipe) -> None:
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


def _other_run(
    output: str, work: str, found: Any, stamp: Mapping[str, Any]
) -> OutputError:
    target = found.get("output", output) if isinstance(found, dict) else output
    if target != output:
        return OutputError(
            f"`work_dir` {work} holds an unfinished run that writes to {target}. Give "
            "another `work_dir`, or give `overwrite` to discard that run."
        )
    others = job_differences(found, stamp) or ["it cannot be read"]
    return OutputError(
        f"{output} holds an unfinished run of another job: {'; '.join(others)}. To "
        "finish it, give its command again. To replace it, give `overwrite`. To keep "
        "it, give another `output`."
    )


def job_stamp(
    output: str,
    work: str,
    recipe: Recipe,
    inputs: Sequence[Input],
    skip_recorded: Sequence[str] = (),
) -> dict[str, Any]:
    """Returns what must be equal for a run to continue another one."""
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
    return stamp


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


def claim_for_elements(
    output: str, work: str, recorded_by: str, overwrite: bool
) -> None:
    """Claims the output folder of a data set of elements.

    The source of elements cannot be asked for some of them again, so an unfinished data
    set of elements is not continued but replaced.

    Raises
    ------
    OutputError
        If the folder holds anything else; with ``overwrite``, if it holds files that do
        not belong to a data set.
    """
    if files.is_local(output):
        _check_can_be_folder(output, "the output")
    held = list(islice(_held_files(output, work), 100_000))
    if is_claimed(work) and METADATA not in held:
        found = read_stamp(files.join(work, JOB_FILE))
        if not isinstance(found, dict) or "recipe" not in found:
            overwrite = True
        elif not overwrite:
            raise OutputError(
                f"{output} holds an unfinished run of `record`. Give another folder, "
                "or give `overwrite` to discard that run."
            )
    _check_held(output, held, overwrite, folder="folder")
    # A whole data set stays until the new one is ready; see make_room.
    doomed = [] if METADATA in held else held
    _replace(output, work, doomed, {"recorded_by": recorded_by})


def leaves_data_set(work: str) -> bool:
    """Whether a work folder holds an unfinished run that replaces a data set."""
    found = read_stamp(files.join(work, JOB_FILE)) if is_claimed(work) else None
    return isinstance(found, dict) and REPLACES in found


def make_room(output: str, work: str) -> None:
    """Deletes the data set that a finished one replaces; only once."""
    done = files.join(work, DRAFTS, _ROOM_MADE)
    if files.exists(done):
        return
    _delete_held(output, filter(is_ours, _held_files(output, work)))
    files.write_bytes(done, b"")


def _delete_held(output: str, held: Iterable[str]) -> None:
    """Deletes a data set, the metadata first: without them it is not complete."""
    for name in sorted(held, key=lambda name: name != METADATA):
        files.delete([files.join(output, name)])


def _check_held(
    output: str,
    held: Sequence[str],
    overwrite: bool,
    difference: str | None = None,
    folder: str = "`output`",
) -> None:
    """Raises OutputError if files in the output folder must not be deleted."""
    foreign = [name for name in held if not is_ours(name)]
    if held and (foreign or not overwrite):
        what = f"a data set, and {difference}" if difference else "a data set"
        if foreign:
            what = f"files that do not belong to a data set, for example {foreign[0]}"
        hint = "" if foreign else ", or give `overwrite` to replace it"
        raise OutputError(f"{output} holds {what}. Give another {folder}{hint}.")


def _replace(
    output: str, work: str, held: Sequence[str], stamp: Mapping[str, Any]
) -> None:
    """Deletes the files in the output folder, and writes the job to the work folder."""
    _delete_held(output, held)
    if is_claimed(work):
        clear_work(work)
    if files.exists(recorded_metadata(output)):
        files.delete([recorded_metadata(output)])
    files.write_bytes(files.join(work, JOB_FILE), to_text(stamp))


def read_stamp(job_file: str) -> Any:
    try:
        return parse_json(files.read_bytes(job_file))
    except ValueError:  # the machine went down while the file was written
        return None


def _held_files(output: str, work: str) -> Iterator[str]:
    """The files in the output folder, without those of its own work folder."""
    if not files.exists(output) and not files.is_folder(output):
        return
    own = files.join(output, WORK_FOLDER) == work
    for name in files.list_files(output):
        is_recorded = name == f"{WORK_FOLDER}/{METADATA}"
        if not (is_recorded or (own and name.startswith(WORK_FOLDER + "/"))):
            yield name


@contextmanager
def nothing_left(output: str, work: str) -> Iterator[None]:
    """Takes the claim back if the block fails before the job has a plan.

    It does so only for errors after which no job can still run on an engine.
    """
    made = _missing_folders(output, work)
    try:
        yield
    except (EngineError, InputError, RecipeError, StoreError) as error:
        if not _store_fails(error, work) and _is_unused(work):
            clear_work(work)
            _delete_empty(made)
        raise


@contextmanager
def claimed_for_elements(
    output: str, work: str, recorded_by: str, overwrite: bool
) -> Iterator[None]:
    """Claims the output folder of a data set of elements while the block runs.

    If the block fails, everything that it has written is deleted: nothing of it can be
    continued. The work folder is empty at the end.

    Raises
    ------
    OutputError
        See :func:`claim_for_elements`.
    """
    made = _missing_folders(output, work)
    claim_for_elements(output, work, recorded_by, overwrite)
    try:
        yield
    except BaseException as error:
        if not _store_fails(error, work):
            written = []
            if made_room(output, work):
                written = list(filter(is_ours, _held_files(output, work)))
            _delete_held(output, written)
            clear_work(work)
            folders = {name.rpartition("/")[0] for name in written} - {""}
            if files.is_local(output):
                _delete_empty([*(files.join(output, name) for name in folders), *made])
        raise
    clear_work(work)


def has_nothing_new(work: str) -> bool:
    """Whether a run has ended that had nothing to record."""
    return files.exists(files.join(work, NOTHING_NEW))


def nothing_new(output: str, work: str, recipe: Recipe) -> Metadata:
    """Ends a run that had nothing to record beside other data sets: no folder is left.

    Warns if clips were rejected.

    Returns
    -------
    Metadata
        Without splits.
    """
    rejects = read_rejects(work, NOTHING_NEW)
    if rejects:
        first = [f"  {each['path']}: {each['reason']}" for each in rejects[:10]]
        more = [f"  ... and {len(rejects) - 10} more"] if len(rejects) > 10 else []
        warnings.warn(
            "\n".join(
                ["Nothing was recorded. These clips were rejected:", *first, *more]
            ),
            DataSetWarning,
            stacklevel=3,  # of `record`
        )
    clear_work(work)
    if not files.exists(files.join(output, METADATA)):
        files.delete([files.join(output, REJECTED)])
        if files.is_local(output):
            _delete_empty([output])
    number = len({each["path"] for each in rejects})
    return Metadata(recipe, {}, (), {}, clips=number, rejected=number)


def made_room(output: str, work: str) -> bool:
    """Whether what is in the output belongs to the run that failed."""
    kept = files.exists(files.join(output, METADATA))
    return not kept or files.exists(files.join(work, DRAFTS, _ROOM_MADE))


def _missing_folders(output: str, work: str) -> list[str]:
    """Returns the local folders that a claim makes, the innermost first."""
    made = []
    for folder in (work, output):
        while files.is_local(folder) and not os.path.isdir(folder):
            made.append(folder)
            folder = os.path.dirname(folder)
    return made


def _delete_empty(folders: Iterable[str]) -> None:
    for folder in folders:
        with suppress(OSError):  # it holds files, or is gone
            os.rmdir(folder)


def _store_fails(error: BaseException, work: str) -> bool:
    """Whether the work folder is in a store that cannot be used."""
    return isinstance(error, StoreError) and not files.is_local(work)


def _is_unused(work: str) -> bool:
    """Whether a claimed work folder holds nothing that a later run could continue."""
    if not is_claimed(work):
        return False
    names = {name.partition("/")[0] for name in files.list_files(work)}
    return names - {METADATA} <= {
        JOB_FILE, VERDICT_FILE, PLANS, PHASES, ROWS, POISON_CLIPS,
    }  # fmt: skip
