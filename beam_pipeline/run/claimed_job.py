"""The job of ``record`` while it holds the claim on its output."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from beam_pipeline.dataset.job_start import (
    Asked,
    Case,
    case_of,
    check_output,
    check_recorded_recipe,
    check_work_folder,
    data_set_in,
    job_stamp,
    look_at,
    nothing_left,
    start,
)
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import (
    METADATA,
    REJECTED,
    WORK_FOLDER,
    finish_switch,
)
from beam_pipeline.dataset.rejects import check_any_accepted, read_rejects
from beam_pipeline.dataset.work_folder import (
    NOTHING_NEW,
    clear_work,
    is_claimed,
    place_rows,
    recorded_metadata,
)
from beam_pipeline.errors import DataSetWarning, StoreError
from beam_pipeline.pipeline.job import Job
from beam_pipeline.recipe.options import RunOptions
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import claimed, has_claims
from beam_pipeline.storage.private_folder import temporary_folder

# How a data set in an output differs from the one that a job would record.
Difference = Callable[[Job], str | None]


@contextmanager
def claimed_job(
    job: Job, run: RunOptions, difference: Difference
) -> Iterator[Job | None]:
    """Claims the output of a job while the block runs; yields the job as it has to run.

    Yields None if the output already holds the data set that the job would record.

    Parameters
    ----------
    job : Job
        Its inputs are as the user gave them, rows in memory among them.
    difference : callable
        Returns how the data set in the output differs from the one that the job would
        record; None if it does not differ.

    Raises
    ------
    OutputError
        If the output, or the work folder, cannot be used; nothing is changed then.
    """
    output, work = job.output.rstrip("/") or "/", job.work_folder
    own = files.join(output, WORK_FOLDER)
    if work != own:
        check_work_folder(work, output, job.inputs)
    check_output(output, job.inputs)
    keeps = not (run.overwrite or run.is_template())
    seen = data_set_in(output)
    differs = difference(job) if keeps and seen else ""
    if differs is None and not (is_claimed(own) or is_claimed(work)):
        yield None
        return
    placed = tuple(place_rows(entry, work) for entry in job.inputs)
    stamp = job_stamp(output, work, job.recipe, placed, job.skip_recorded)
    asked = Asked(output, work, stamp, run.overwrite, differs or None)
    if differs is not None and not has_claims(output):
        case_of(look_at(output, work), asked)  # may refuse, before anything is written
    # Workers of an engine may go on after this process.
    goes_on = partial(is_claimed, work) if run.has_runner() else bool
    with claimed(output, goes_on) as claim, nothing_left(work, claim):
        is_switched = finish_switch(output, claim)
        found = look_at(output, work)
        if keeps and found.data_set not in (None, seen):
            differs = difference(job)  # another run was faster
            asked = asked._replace(difference=differs)
        if (is_switched and found.stamp == stamp) or (keeps and differs is None):
            if work == own and (is_switched or found.replaces is None):
                clear_work(work, claim)
            yield None
            return
        case = case_of(found, asked)
        if case is Case.REPAIR:
            check_recorded_recipe(output, job.recipe)
        in_store = not files.is_local(output)
        if found.data_set and run.overwrite and in_store and not run.has_runner():
            _check_any_recorded(job, run.time_limit)
        start(case, found, asked, claim)
        for given, entry in zip(job.inputs, placed, strict=True):
            if given is not entry:
                claim.write(entry.location, files.read_bytes(given.location))
        continues = case is Case.CONTINUE and found.replaces is not None
        replaces = case is Case.REPLACE or continues
        repairs = not replaces and files.exists(recorded_metadata(output))
        with continuing():
            yield replace(
                job, inputs=placed, claim=claim, replaces=replaces, repairs=repairs
            )


def _check_any_recorded(job: Job, time_limit: float | None) -> None:
    """Checks that a job can record clips, before it replaces a data set.

    Raises
    ------
    TooManyRejected, InputError
        If the headers show that none can be recorded.
    """
    from beam_pipeline.run.local import plan_local

    with temporary_folder() as work:
        made = plan_local(replace(job, output="", work_folder=work), time_limit)
    check_any_accepted(made.summary, made.rejects)


@contextmanager
def continuing() -> Iterator[None]:
    """Adds to the error of a store the advice to continue the run."""
    try:
        yield
    except StoreError as error:
        if len(error.args) > 2:
            raise
        advice = "Finished shards are kept: give the same command again to continue."
        raise StoreError(*error.args, advice) from error


def nothing_new(job: Job) -> Metadata | None:
    """Ends a run that had nothing to record beside other data sets: no folder is left.

    Warns if clips were rejected.

    Returns
    -------
    Metadata or None
        Without splits. None if the run had something to record.
    """
    work, path = job.work_folder, files.join(job.output, METADATA)
    if not files.exists(files.join(work, NOTHING_NEW)):
        return None
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
    clear_work(work, job.claim)
    if not files.exists(path):
        job.claim.discard(files.join(job.output, REJECTED))
    number = len({each["path"] for each in rejects})
    return Metadata(job.recipe, {}, (), {}, clips=number, rejected=number)
