"""Whether a finished data set is what a job would record, so that nothing is to do.

A data set holds neither the location of its inputs nor the times of their changes. So
this makes the plan again, from headers, in a temporary folder. These must be equal:

- the recipe and the versions of the libraries;
- the plan: the clips in order, with name, part, class, split, group, columns, length,
  rate, channels and format of each; the rejects by header, with their reasons; the
  number of ignored files; the names of the shards;
- the names and the sizes of the shards in the folder;
- the first examples of some shards, which are made again from the inputs.

There must be no more rejects than the job allows. And each file that a shard was made
from must be older than the shard: audio, events, and the modules of user-defined
transforms. A file is as old as its last change, move or renaming, by the times of its
file system. A file whose time is not known counts as newer.

A difference can stay unnoticed only in these cases:

- A whole folder was replaced by renaming another one, or ``input`` names another
  folder; its files have the same names and headers, are older than the data set, and
  give the same first examples.
- An object store, or a copy of the data set, shows other times.
- A file was changed after it was read, and before its shard was written.
- A module was changed that the module of a transform imports.

Equal inputs can count as changed if files were copied, if their permissions were
changed, or if the processor rounds differently.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

import apache_beam as beam

from beam_pipeline.audio.av_library import LIBRARY
from beam_pipeline.dataset.job_difference import option_differences
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import MANIFEST, stale_shards
from beam_pipeline.dataset.rejects import check_any_accepted
from beam_pipeline.dataset.reused_recipe import as_recorded
from beam_pipeline.dataset.writer_versions import writer_versions
from beam_pipeline.errors import InputError
from beam_pipeline.pipeline.graph import write_shards
from beam_pipeline.pipeline.job import Job
from beam_pipeline.plan.segments import ShardTask, ShardWork
from beam_pipeline.plan.shards import Shard
from beam_pipeline.recipe.values import allowed_rejects
from beam_pipeline.run.local import in_ipython, in_memory_pipeline
from beam_pipeline.run.plan_again import (
    PlanAgain,
    find_newer,
    plan_difference,
    planned_again,
)
from beam_pipeline.run.workers import Workers
from beam_pipeline.storage import files
from beam_pipeline.storage.pages import Batch
from beam_pipeline.storage.tfrecord import read_any_records, suffix_for
from beam_pipeline.write.shard import mixed_order

# How a data set differs; the text continues "... holds a data set, and".
OTHER_RECIPE = "it has another recipe"
OTHER_INPUTS = "it has other inputs, or its inputs have changed"
NEWER_FILE = "{} may have been changed since it was recorded"
DAMAGED_SHARD = "its shard {} is missing or damaged"
OTHER_EXAMPLES = "these inputs do not give the examples of shard {}"

# The first examples of the first shards are made again.
SHARDS_AGAIN = 8
EXAMPLES_AGAIN = 8
# Of a mixed shard, fewer: each is in another strip, from whose begin one decodes.
MIXED_AGAIN = 2


def difference_to_finished(job: Job, time_limit: float | None) -> str | None:
    """Returns how the data set in the output differs from the one the job would record.

    None if they do not differ. Nothing is written to the output. The text continues the
    sentence "the folder holds a data set, and ...".
    """
    try:
        metadata = Metadata.load(job.output)
    except InputError as error:
        return str(error).rstrip(".")
    return _difference_by_metadata(job, metadata) or _difference_by_plan(
        job, metadata, time_limit
    )


def check_replacement(job: Job, time_limit: float | None) -> None:
    """Checks that a job can record clips, before it replaces a data set.

    Raises
    ------
    TooManyRejected, InputError
        If the headers show that none can be recorded.
    """
    with planned_again(job, False, time_limit) as plan:
        check_any_accepted(plan.summary, list(plan.rejects()))


def _difference_by_metadata(job: Job, metadata: Metadata) -> str | None:
    """The difference that shows without the inputs."""
    if metadata.recipe is None:
        return "it was not recorded from audio files"
    # The plan is compared with the recorded splits and classes later.
    recipe = as_recorded(job.recipe, metadata)
    others = option_differences(metadata.recipe.to_json(), recipe.to_json())
    if others:
        return f"{OTHER_RECIPE}: {'; '.join(others)}"
    # If no clip needed ffmpeg, and now one does, the plan differs.
    versions = writer_versions(
        recipe.features.encodings.values(),
        ffmpeg=LIBRARY in metadata.writer,
        backend=recipe.features.backend,
    )
    for name in sorted({*versions, *metadata.writer}):
        before, now = metadata.writer.get(name), versions.get(name)
        if before != now:
            return f"it was recorded with {name} {before}, but {now} is in use here"
    if metadata.rejected > allowed_rejects(job.max_rejected, metadata.clips):
        return (
            f"{metadata.rejected} of its {metadata.clips} clips were rejected, and "
            f"`max_rejected` is {job.max_rejected}"
        )
    for entry in metadata.shards():
        if files.size(files.join(job.output, entry.file)) != entry.bytes:
            return DAMAGED_SHARD.format(entry.file)
    known = {entry.file for entry in metadata.shards()}
    for name in stale_shards(job.output, known):
        return f"{name} in its folder is not one of its shards"
    return None


def _difference_by_plan(
    job: Job, metadata: Metadata, time_limit: float | None
) -> str | None:
    """The difference that shows with the inputs."""
    # Fingerprints cost time. Here they matter only if a clip failed, perhaps in them.
    with planned_again(job, metadata.rejected > 0, time_limit) as plan:
        try:
            difference = plan_difference(plan, metadata, job.output)
        except (OSError, ValueError) as error:
            return f"its {MANIFEST} cannot be read ({error})"
        if difference is not None:
            return f"{OTHER_INPUTS} ({difference})"
        newer = _find_newer(plan, job)
        if newer is not None:
            return NEWER_FILE.format(newer)
        works = list(islice(plan.work(), SHARDS_AGAIN))
        first = {work.task.shard: _first_examples(work.task) for work in works}
        again = [work._replace(task=first[work.task.shard].task) for work in works]
        with Workers(time_limit) as processes:
            write = partial(_write, again, plan.job)
            processes.call(write, plan.job, "writer", apart=in_ipython())
        recorded = {entry.file: entry for entry in metadata.shards()}
        suffix = suffix_for(job.recipe.shards.compression)
        for shard, each in first.items():
            file = shard.name + suffix
            old = _first_records(files.join(job.output, file), len(each.places))
            new = _first_records(
                files.join(plan.job.output, file), each.task.shard.examples
            )
            whole = recorded[file].examples == shard.examples
            if not _equal_examples(old, new, shard, each, whole):
                return OTHER_EXAMPLES.format(shard.name)
    return None


def _find_newer(plan: PlanAgain, job: Job) -> str | None:
    """Returns a file that may be newer than a shard that was made from it."""
    suffix = suffix_for(job.recipe.shards.compression)
    for work in plan.work():
        shard = files.join(job.output, work.task.shard.name + suffix)
        newer = next(find_newer(work, job, files.modified_ns_of(shard)), None)
        if newer is not None:
            return newer
    return None


def _write(shards: Sequence[ShardWork], job: Job, _: int) -> None:
    with in_memory_pipeline() as pipeline:
        write_shards(pipeline | "Again" >> beam.Create(shards, reshuffle=False), job)


class FirstExamples(NamedTuple):
    """What gives the first examples of a shard.

    Attributes
    ----------
    task : ShardTask
        Makes them in planned order; those of a mixed shard, and others before them.
    places : list of int
        Which examples of the task are the first ones of the shard, in order.
    """

    task: ShardTask
    places: list[int]


def _first_examples(task: ShardTask) -> FirstExamples:
    """Returns the task of the first examples of a shard.

    Each segment begins where it did, because the last bits of a resampled window depend
    on that, and ends behind the last example that is needed.
    """
    shard = task.shard
    if shard.mix_seed is None:
        first = range(min(EXAMPLES_AGAIN, shard.examples))
    else:
        first = mixed_order(shard)[:MIXED_AGAIN].tolist()
    segments, made = [], list[int]()
    for segment in task.segments:
        positions = range(segment.position, segment.position + segment.examples)
        needed = [position for position in first if position in positions]
        if needed:
            count = max(needed) + 1 - segment.position
            segments.append(segment._replace(examples=count, position=len(made)))
            made += positions[:count]
    cut = shard._replace(examples=len(made), mix_seed=None)
    places = [made.index(position) for position in first]
    return FirstExamples(ShardTask(cut, Batch(segments)), places)


def _equal_examples(
    old: list[bytes], new: list[bytes], shard: Shard, again: FirstExamples, whole: bool
) -> bool:
    """Whether the first examples of a shard, made again, are those recorded.

    If windows were lost or left out, the recorded shard is not whole, and its first
    positions give fewer examples than there are in it. Of a mixed shard it is not known
    which of them are missing, only how many.
    """
    lost = again.task.shard.examples - len(new)
    if not lost:
        return old == [new[place] for place in again.places]
    if whole:
        return False
    if shard.mix_seed is None:
        return old[: len(new)] == new
    sure = max(0, len(again.places) - lost)
    return len(old) >= sure and set(old[:sure]) <= set(new)


def _first_records(path: str, count: int) -> list[bytes]:
    """The first records of a shard; none if it is missing or damaged."""
    try:
        with files.open_read(path) as file:
            return list(islice(read_any_records(file), count))
    except (FileNotFoundError, ValueError):
        return []
