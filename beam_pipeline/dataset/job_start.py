"""How a run starts: what it finds in its output decides what it does there.

::

    data set                    unfinished run       what the run does
    --------------------------  -------------------  -------------------------------
    none                        none                 BEGIN
    none, but was               none                 REPAIR: `verify --repair` has
                                                     deleted damaged shards
    none                        of the same job      CONTINUE
    none                        of another job       an error; with `overwrite` BEGIN
    none                        left nothing         BEGIN
    that of this job            any                  DONE
    another one                 any                  an error; with `overwrite` REPLACE,
                                                     or CONTINUE what replaces it
    files of others             any                  an error

Elements only BEGIN or REPLACE. Runs with equal stamps are of the same job, see
:mod:`.job`. Only the run that holds the claim on the output starts, see
:mod:`beam_pipeline.storage.claim`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from functools import cache, partial
from itertools import islice
from typing import Any, NamedTuple

from beam_pipeline.dataset import folders
from beam_pipeline.dataset.job import (
    Job,
    differences,
    job_stamp,
    recipe_differences,
)
from beam_pipeline.dataset.metadata import Metadata, to_text
from beam_pipeline.dataset.replace import (
    WHOLE,
    delete_data_set,
    finish_switch,
    new_folder,
    put_in_place,
)
from beam_pipeline.errors import OutputError, StoreError
from beam_pipeline.hashing import bytes_sha256
from beam_pipeline.inputs.sources import Input
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.recipe.run_options import RunOptions
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import (
    CLAIMS,
    UNCLAIMED,
    WORK_FOLDER,
    Claim,
    claimed,
    has_claims,
)
from beam_pipeline.text import parse_json

# In the stamp of a job: the SHA-256 of the metadata of the data set that it replaces.
_REPLACES = "replaces"
# In the stamp of elements, whose source cannot be asked again: False.
_CONTINUES = "continues"

# In the folder of drafts: the data set that was in the store is deleted.
_ROOM_MADE = "room-made"


class Case(Enum):
    """What a run does in its output."""

    DONE = "nothing: the data set of this job is there"
    BEGIN = "what is there, if anything, may go: it is deleted, and the job begins"
    CONTINUE = "an unfinished run of the same job is there: its shards stay"
    REPAIR = "a data set is there that lost damaged shards: the others stay"
    REPLACE = "a data set is there, which stays until the new one is whole"


class OutputState(NamedTuple):
    """What an output and a work folder hold.

    Attributes
    ----------
    held : list of str
        The files in the output that no run has in work.
    data_set : str or None
        The SHA-256 of ``metadata.json``, if the data set is complete.
    difference : str or None
        How that data set differs from the one that the job would record; None if it
        does not differ. Empty if nobody has compared them.
    stamp : dict or None
        The stamp of an unfinished run; empty if it cannot be read. None if there is no
        unfinished run.
    replaces : str or None
        Which data set that run replaces.
    is_useless : bool
        Whether that run left nothing that a later one could continue.
    is_damaged : bool
        Whether a data set waits for shards that were deleted, to be made again.
    is_switched : bool
        Whether the data set of that run has just taken its place.
    """

    held: list[str]
    data_set: str | None = None
    difference: str | None = ""
    stamp: dict[str, Any] | None = None
    replaces: str | None = None
    is_useless: bool = False
    is_damaged: bool = False
    is_switched: bool = False


class Asked(NamedTuple):
    """What a job wants of its output.

    Attributes
    ----------
    output, work : str
        The output, and the folder for unfinished files.
    stamp : mapping
        See :func:`.job_stamp`; for elements, who records them.
    overwrite : bool
        Whether a data set, or an unfinished run of another job, may be replaced.
    """

    output: str
    work: str
    stamp: Mapping[str, Any]
    overwrite: bool

    @property
    def continues(self) -> bool:
        """Whether the job goes on where another run of it ended."""
        return bool(self.stamp.get(_CONTINUES, True))


class ElementOutput(NamedTuple):
    """Where a data set is written, and folders in the work folder of its output.

    ``output`` is a folder of the claim, out of which the whole data set comes into its
    place; in a store it is that place. ``drafts`` has files that are not finished, and
    ``receipts`` those of blocks.
    """

    output: str
    work: str
    drafts: str
    receipts: str
    claim: Claim = UNCLAIMED


@contextmanager
def started(
    job: Job, run: RunOptions, compare: Callable[[Job], str | None]
) -> Iterator[Job | None]:
    """Claims the output of a job while the block runs, and yields the job to run there.

    Yields None if the output already holds the data set that the job would record.

    Parameters
    ----------
    job : Job
        With the inputs as the user gave them, rows in memory among them.
    run : RunOptions
        With a runner, workers of its engine may go on after this process.
    compare : callable
        Returns how the data set in the output differs from the one that a job would
        record; None if it does not differ. It is not asked if the job overwrites, or
        becomes a template: then, a data set there is another one.

    Raises
    ------
    OutputError
        If the output, or the work folder, cannot be used; nothing is changed then.
    """
    output, work = job.output_folder, job.work_folder
    check_folders(output, work, job.inputs)
    placed = replace(job, inputs=tuple(_placed_rows(each, work) for each in job.inputs))
    asked = Asked(output, work, job_stamp(placed), run.overwrite)

    @cache
    def compared(data_set: str | None) -> str | None:
        if data_set is None or run.overwrite or run.is_template():
            return ""
        return compare(job)

    def look() -> OutputState:
        found = look_at(output, work)
        return found._replace(difference=compared(found.data_set))

    found = look()
    is_claimed = has_claims(output)
    # A run that was killed at its very end has left its claim, and files of it.
    is_left = is_claimed and files.is_local(output)
    if found.difference is None and found.stamp is None and not is_left:
        yield None
        return
    if not is_claimed:
        case_of(found, asked)  # may refuse, before anything is written
    goes_on = partial(folders.has_run, work) if run.has_runner() else bool
    with claimed(output, goes_on) as claim:
        is_switched = finish_switch(output, claim)
        found = look()._replace(is_switched=is_switched)  # another run may have come
        case = case_of(found, asked)
        if case is Case.REPAIR:
            check_recorded_recipe(output, job.recipe)
        start(case, found, asked, claim)
        if case is Case.DONE:
            yield None
            return
        for given, entry in zip(job.inputs, placed.inputs, strict=True):
            if given is not entry:
                claim.write(entry.location, files.read_bytes(given.location))
        continues = case is Case.CONTINUE
        replaces = case is Case.REPLACE or (continues and found.replaces is not None)
        repairs = case is Case.REPAIR or (continues and found.is_damaged)
        yield replace(
            placed, claim=claim, replaces=replaces, repairs=repairs and not replaces
        )


@contextmanager
def element_output(
    output: str | os.PathLike[str], recorded_by: str, overwrite: bool
) -> Iterator[ElementOutput]:
    """Claims an output for elements while the block runs; empties its work folder then.

    The source of elements cannot be asked for some of them again, so nothing is
    continued: if the block fails, what it has written is deleted. With ``overwrite``, a
    data set in the folder stays until the new one is whole; in a store, until the block
    calls :func:`make_room`.

    Raises
    ------
    InputError, OutputError
        If the folder cannot be used, see :func:`case_of` and :func:`.claimed`; nothing
        in it is changed then.
    """
    folder = files.given_path("output", output)
    work = files.join(folder, WORK_FOLDER)
    is_local = files.is_local(folder)
    _check_can_be_folder(folder, "the output")
    with claimed(folder) as claim:
        finish_switch(folder, claim)
        found = look_at(folder, work)
        stamp = {"recorded_by": recorded_by, _CONTINUES: False}
        asked = Asked(folder, work, stamp, overwrite)
        start(case_of(found, asked), found, asked, claim)
        # A run that wakes up late writes where the next one finds nothing.
        own = claim.folder if is_local else work
        written = os.path.join(own, "written") if is_local else folder
        drafts, receipts = (
            files.join(own, folders.DRAFTS),
            files.join(own, folders.RECEIPTS),
        )
        try:
            yield ElementOutput(written, work, drafts, receipts, claim)
            if is_local:
                put_in_place(written, folder, claim)
        except BaseException as error:
            store_fails = not is_local and isinstance(error, StoreError)
            if claim.is_held() and not store_fails:
                if not is_local and _made_room(folder, work):
                    delete_data_set(folder, list(_held_files(folder, work)), claim)
                folders.clear_work(work, claim)
            raise
        folders.clear_finished(work, claim)


def make_room(output: str, work: str, claim: Claim) -> None:
    """Deletes the data set in a store that a finished one replaces; only once."""
    done = files.join(work, folders.DRAFTS, _ROOM_MADE)
    if not files.is_local(output) and not files.exists(done):
        delete_data_set(output, list(_held_files(output, work)), claim)
        claim.write(done, b"")


def _made_room(output: str, work: str) -> bool:
    """Whether what is in the output belongs to the run that failed."""
    kept = files.exists(files.join(output, folders.METADATA))
    return not kept or files.exists(files.join(work, folders.DRAFTS, _ROOM_MADE))


# The case of a run


def look_at(output: str, work: str) -> OutputState:
    """Returns what an output and a work folder hold."""
    held = list(islice(_held_files(output, work), 100_000))
    metadata = files.join(output, folders.METADATA)
    data_set = None
    if files.exists(metadata):
        data_set = bytes_sha256(files.read_bytes(metadata))
    is_damaged = files.exists(folders.recorded_metadata(output))
    if not folders.has_run(work):
        return OutputState(held, data_set, is_damaged=is_damaged)
    stamp = _read_stamp(files.join(work, folders.JOB_FILE))
    replaces = stamp.pop(_REPLACES, None)
    has_failed = files.exists(files.join(work, folders.ERROR_FILE))
    is_useless = has_failed and not files.is_folder(files.join(work, folders.RECEIPTS))
    is_useless = is_useless or not stamp.get(_CONTINUES, True)
    return OutputState(held, data_set, "", stamp, replaces, is_useless, is_damaged)


def _held_files(output: str, work: str) -> Iterator[str]:
    """The files in the output that belong to no claim and to no run in work."""
    if not files.exists(output) and not files.is_folder(output):
        return
    own = [
        f"{WORK_FOLDER}/{name}"
        for name in (folders.METADATA, CLAIMS, folders.NEW, WHOLE)
    ]
    if files.join(output, WORK_FOLDER) == work:
        own = [WORK_FOLDER]
    for name in files.list_files(output):
        if not any(name == each or name.startswith(f"{each}/") for each in own):
            yield name


def _read_stamp(job_file: str) -> dict[str, Any]:
    """Returns the stamp of an unfinished run; an empty one if it cannot be read."""
    try:
        stamp = parse_json(files.read_bytes(job_file))
    except ValueError:  # the machine went down while the file was written
        return {}
    return stamp if isinstance(stamp, dict) else {}


def case_of(found: OutputState, asked: Asked) -> Case:
    """Returns the case of a run, from what it has found.

    Raises
    ------
    OutputError
        If the output holds what the run must not delete.
    """
    is_same, is_free = found.stamp == asked.stamp, found.data_set is None
    if found.difference is None or (found.is_switched and is_same):
        return Case.DONE
    replaces_it = asked.overwrite and found.replaces == found.data_set
    if is_same and asked.continues and (is_free or replaces_it):
        return Case.CONTINUE
    if is_free and not asked.overwrite:
        if found.stamp is None and found.is_damaged:
            return Case.REPAIR
        if found.stamp is not None and not found.is_useless:
            raise _other_run(found.stamp, asked)
    may_go = asked.overwrite or (is_free and found.is_useless)
    foreign = [name for name in found.held if not folders.is_ours(name)]
    if foreign or not (may_go or set(found.held) <= {folders.REJECTED}):
        raise _other_files(foreign, found, asked)
    # A store cannot rename, so there only elements are written elsewhere before.
    waits = files.is_local(asked.output) or not asked.continues
    return Case.REPLACE if waits and not is_free else Case.BEGIN


def _other_run(old: Mapping[str, Any], asked: Asked) -> OutputError:
    others = differences(old, asked.stamp) or ["it is of another kind"]
    return OutputError(
        f"{asked.work} holds an unfinished run of another job: {'; '.join(others)}. To "
        "finish it, give its command again. To replace it, give `overwrite`. To keep "
        "it, give another `output` or `work_dir`."
    )


def _other_files(
    foreign: Sequence[str], found: OutputState, asked: Asked
) -> OutputError:
    what = f"a data set, and {found.difference}" if found.difference else "a data set"
    if foreign:
        what = f"files that do not belong to a data set, for example {foreign[0]}"
    hint = "" if foreign else ", or give `overwrite` to replace it"
    folder = "`output`" if asked.continues else "folder"
    return OutputError(f"{asked.output} holds {what}. Give another {folder}{hint}.")


def start(case: Case, found: OutputState, asked: Asked, claim: Claim) -> None:
    """Prepares output and work folder for a run, and writes its stamp."""
    output, work, stamp = asked.output, asked.work, dict(asked.stamp)
    if case is Case.DONE:
        own = work == files.join(output, WORK_FOLDER)
        if own and (found.is_switched or found.replaces is None):
            folders.clear_work(work, claim)
        return
    if case in (Case.CONTINUE, Case.REPAIR):
        # This run makes its own plan, its own error, and shards that lost windows.
        lost = [n for n in folders.receipts(work) if n.endswith(folders.LOST)]
        paths = [files.join(folders.RECEIPTS, name) for name in lost]
        for path in (folders.PLAN_FILE, folders.ERROR_FILE, *paths):
            claim.discard(files.join(work, path))
        if case is Case.CONTINUE:
            return
    else:
        if case is Case.BEGIN:
            delete_data_set(output, found.held, claim)
        if found.stamp is not None:
            folders.clear_work(work, claim)
        claim.discard(new_folder(output), is_folder=True)
        claim.discard(folders.recorded_metadata(output))
    if case is Case.REPLACE:
        stamp[_REPLACES] = found.data_set
    claim.write(files.join(work, folders.JOB_FILE), to_text(stamp))


# What is checked before


def check_folders(output: str, work: str, inputs: Sequence[Input]) -> None:
    """Checks the output and the work folder that a user chose.

    Raises
    ------
    OutputError
        If the output cannot be a folder, or is inside an input; if the work folder and
        an input or the output contain each other; or if the work folder holds files of
        others.
    """
    _check_can_be_folder(output, "`output`")
    sources = [("`input`", entry.location) for entry in inputs]
    for _, source in sources:
        if files.is_inside(output, source):
            raise OutputError(
                f"`output` {output} is inside `input` {source}. Give an `output` "
                "outside the `input`."
            )
    if work == files.join(output, WORK_FOLDER):
        return
    for what, other in (("`output`", output), *sources):
        if files.is_inside(work, other) or files.is_inside(other, work):
            raise OutputError(
                f"`work_dir` {work} and {what} {other} must be separate, but one is "
                "inside the other or they are the same. A complete run empties its "
                "`work_dir`. Give another `work_dir`."
            )
    foreign = folders.foreign_file(work)
    if foreign is not None:
        raise OutputError(
            f"`work_dir` {work} holds files that do not belong to a run, for example "
            f"{foreign}. Give a new or empty folder."
        )


def _check_can_be_folder(output: str, what: str) -> None:
    if not files.is_local(output) or os.path.isdir(output):
        return
    if os.path.lexists(output):
        raise OutputError(
            f"{output} is a file, or a link that leads nowhere; {what} must be a "
            "folder."
        )


def check_recorded_recipe(output: str, recipe: Recipe) -> None:
    """Raises OutputError unless a recipe makes the shards that a data set has lost."""
    path = folders.recorded_metadata(output)
    metadata = Metadata.parse(files.read_bytes(path), path)
    if others := recipe_differences(recipe, metadata):
        raise OutputError(
            f"{output} holds a data set of which damaged shards were deleted, and it "
            f"has another recipe: {'; '.join(others)}. To make them again, give the "
            f"command that recorded it, or `recipe` {path}. To replace the data set, "
            "give `overwrite`."
        )


def _placed_rows(entry: Input, work: str) -> Input:
    """Returns the input as workers read it: rows in memory become a file."""
    if not entry.in_memory or entry.table is None:
        return entry
    location = files.join(work, folders.ROWS, entry.location.rpartition("/")[2])
    return replace(
        entry, location=location, table=replace(entry.table, location=location)
    )
