"""Tries a recipe on the first clip, before any worker starts."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from beam_pipeline.errors import InputError, RecipeError
from beam_pipeline.examples.event_targets import named_no_event
from beam_pipeline.examples.format import Corpus, ExampleFormat
from beam_pipeline.inputs.listing import list_sources
from beam_pipeline.inputs.rows import SourceRow
from beam_pipeline.inputs.sources import Input
from beam_pipeline.plan.clips import Clip, check_copies
from beam_pipeline.recipe.clip_sections import LABEL_SOURCES
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage.private_folder import temporary_folder

if TYPE_CHECKING:
    from beam_pipeline.pipeline.job import Job

FIRST_ROWS = 20


def check_transforms(
    recipe: Recipe, inputs: Sequence[Input], time_limit: float | None
) -> None:
    """Runs every transform on silence with the shape of the first readable clip.

    Raises
    ------
    InputError
        If the inputs hold no audio file.
    RecipeError
        If a transform fails.
    """
    check_label_column(recipe, inputs)
    shares = recipe.splits.hashed_shares()
    named = [entry.split for entry in inputs if entry.split]
    check_copies(recipe.augmentation.copies, shares or named)
    rows = (row for row in list_sources(inputs, recipe) if row is not None)
    first = list(islice(rows, FIRST_ROWS))
    # These would read whole clips.
    recipe = recipe.replace(fingerprint=False, hash_files=False)
    if not first:
        locations = ", ".join(entry.location for entry in inputs)
        raise InputError(f"There is no audio file in {locations}. Check `input`.")
    clip = _first_clip(first, recipe, inputs, time_limit)
    if clip is None:
        return
    labels = set() if clip.label is None else {clip.label}
    if recipe.events.source is not None:
        # This clip may have no event.
        labels = {event.label for event in clip.events} or {"?"}
        labels.update(named_no_event(recipe.events))
    rate, channels = clip.sample_rate_hz, clip.channels
    corpus = Corpus(
        tuple(sorted(labels)),
        {rate: 1},
        {channels: 1},
        dict.fromkeys([("Hz", rate), ("channels", channels)], clip.filepath),
    )
    ExampleFormat.of(corpus, recipe, inputs[0].columns)


def _first_clip(
    rows: Sequence[SourceRow],
    recipe: Recipe,
    inputs: Sequence[Input],
    time_limit: float | None,
) -> Clip | None:
    """Returns the first clip that a decoder opens; a bad one must not end the run."""
    from beam_pipeline.pipeline.job import Job
    from beam_pipeline.run.workers import Workers

    with temporary_folder() as work:
        job = Job(tuple(inputs), "", work, recipe)
        with Workers(time_limit) as processes:
            return processes.call(partial(_probe_first, rows, job), job, "probe")


def _probe_first(rows: Sequence[SourceRow], job: Job, _: int) -> Clip | None:
    from beam_pipeline.plan.poison_clips import read_poison_clips
    from beam_pipeline.plan.prober import Prober

    prober = Prober(job.inputs, job.recipe, read_poison_clips(job.work_folder))
    probed = map(prober.probe, rows)
    return next((clip for clip in probed if isinstance(clip, Clip)), None)


def check_label_column(recipe: Recipe, inputs: Sequence[Input]) -> None:
    """Raises RecipeError if both a column and events give the classes.

    The recipe itself does not check this: the metadata of data sets that exist may have
    both, and must stay readable.
    """
    label_from = recipe.labels.label_from
    if recipe.events.source is None or label_from in LABEL_SOURCES:
        return
    if any(e.table is not None and label_from in e.table.names for e in inputs):
        raise RecipeError(
            "label_from",
            "must not be a column if `events` is given, because the events give the "
            "classes; leave `label_from` out (`columns` can name the column instead)",
            label_from,
        )
