"""Runs that add to a finished data set: their recipe, their inputs and their claim."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from beam_pipeline.dataset.addition import (
    describe_addition,
    recipe_of,
    recorded_recipe,
)
from beam_pipeline.dataset.claim import check_output, job_stamp
from beam_pipeline.dataset.claim_addition import ADDITION, claim_addition
from beam_pipeline.dataset.generations import newest_file
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import MANIFEST, REJECTED, SCHEMA, WINDOWS
from beam_pipeline.dataset.recorded_columns import with_recorded_types
from beam_pipeline.dataset.warn import warn_of_estimates
from beam_pipeline.errors import OutputError
from beam_pipeline.inputs.sources import Input
from beam_pipeline.pipeline.job import Job
from beam_pipeline.recipe.canonical import split_options
from beam_pipeline.recipe.options import RunOptions
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files


def options_to_add(
    output: str, recipe: Recipe | None, given: Mapping[str, Any]
) -> tuple[Recipe, RunOptions]:
    """Returns the recipe of the data set in the output, and the options of a run.

    Raises
    ------
    OptionError
        If an option is wrong, or is not that of the data set.
    InputError
        If there is no data set to which files can be added.
    """
    asked, run = split_options(recipe or recipe_of(output), given)
    return recorded_recipe(output, asked, run)[0], run


@contextmanager
def claimed_to_add(
    job: Job, inputs: Sequence[Input], run: RunOptions
) -> Iterator[Job | None]:
    """Claims the work folder of a job, and yields the job as an addition.

    Yields None if an earlier run has finished the addition.

    Parameters
    ----------
    inputs : sequence of Input
        Those of the job, with the rows that were given in memory at their own place.
    """
    output = job.output.rstrip("/")
    check_output(output, inputs)
    _, changed = recorded_recipe(output, job.recipe, run)
    addition = describe_addition(output, run, inputs, changed)
    check_undamaged(output, addition.before)
    warn_of_estimates(output, addition.before)
    before = addition.before
    typed = tuple(with_recorded_types(entry, before) for entry in job.inputs)
    job = replace(job, inputs=typed, addition=addition)
    stamp = job_stamp(output, job.work_folder, job.recipe, job.inputs)
    stamp[ADDITION] = addition.stamp()
    if not claim_addition(output, job.work_folder, stamp):
        yield None
        return
    for given, entry in zip(inputs, job.inputs, strict=True):
        if given.location != entry.location:
            files.write_bytes(entry.location, files.read_bytes(given.location))
    yield job


def check_undamaged(output: str, metadata: Metadata) -> None:
    """Checks that the files of a data set are there, and that shards have their sizes.

    Only on this machine: a store needs a request for each. Data sets of earlier
    versions have no ``statistics.json``.

    Raises
    ------
    OutputError
        If a file is damaged: a repair needs the data set as it was recorded.
    """
    if not files.is_local(output):
        return
    beside = [newest_file(metadata, name) for name in (MANIFEST, WINDOWS, REJECTED)]
    sizes = {entry.file: entry.bytes for entry in metadata.shards()}
    for name in (*beside, SCHEMA, *sizes):
        found = files.size(files.join(output, name))
        if found < 0 or found != sizes.get(name, found):
            what = "is missing" if found < 0 else f"has {found} bytes"
            wanted = f", not {sizes[name]}" if found >= 0 else ""
            raise OutputError(
                f"{output} is damaged, so nothing is added to it: {name} {what}"
                f"{wanted}. `audio-tfrecords verify --repair` makes it again, if files "
                "were never added."
            )
