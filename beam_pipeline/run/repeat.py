"""Whether a finished data set is just what a job would record: then nothing is to do."""

from __future__ import annotations

import functools
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import islice

import apache_beam as beam

from beam_pipeline.dataset.claim import sources_of_code
from beam_pipeline.dataset.manifest import (
    equal_manifests,
    manifest_fields,
    write_manifest,
)
from beam_pipeline.dataset.metadata import Metadata, ShardEntry, writer_versions
from beam_pipeline.dataset.output_folder import MANIFEST, REJECTED
from beam_pipeline.dataset.rejects import rejects_text
from beam_pipeline.dataset.work_folder import PHASES
from beam_pipeline.errors import InputError
from beam_pipeline.inputs.event_files import events_file
from beam_pipeline.inputs.sources import Input, locate
from beam_pipeline.pipeline.graph import write_shards
from beam_pipeline.pipeline.job import Job
from beam_pipeline.plan.batch import Batch
from beam_pipeline.plan.clips import Clip, Reject
from beam_pipeline.plan.segments import ShardTask, ShardWork
from beam_pipeline.plan.shards import Shard
from beam_pipeline.plan.summary import PlanSummary
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.recipe.values import allowed_rejects
from beam_pipeline.run.local import plan_phase
from beam_pipeline.run.phases import in_memory_pipeline, kept
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import SUFFIX, read_records

# What is made once more to see whether inputs give what a data set holds.
SHARDS_AGAIN = 8
EXAMPLES_AGAIN = 8


def difference_to_finished(job: Job) -> str | None:
    """What of a finished data set is another than a job would make; None if nothing.

    A data set tells neither where its inputs were nor when they were changed. So this
    makes the plan once more, from headers, which writes nothing to the output. Equal
    must be

    - the recipe, the versions of the libraries, and the number of rejects allowed;
    - the plan: each clip's name, part, class, split, group, columns, length, rate,
      channels and format, in order; the rejects by header with their reasons; the
      number of ignored files; and the names of the shards;
    - the sizes of the shards in the folder;
    - the first examples of some shards, which are made once more from the inputs.

    And each file that a shard was made of must have been changed, renamed or put in
    its place before the shard was written, by the times of the file systems: of audio,
    of events, and of the modules with transforms of the user's own. A time that nobody
    knows counts as later.

    So a difference can stay unseen in these cases alone: a whole folder, or a folder
    above it, was put in another's place by renaming it, or --input names another one,
    and its files have the same names and headers, are older than the data set, and
    give the same first examples; a store or a copy of the data set tells other times;
    a file was changed after it was read, while its shard was still being written; a
    module that a transform's own module imports was changed. In turn, what is the same
    may be taken for a change: where files were copied or their rights changed since,
    and on a processor that computes other last bits.
    """
    try:
        metadata = Metadata.load(job.output)
    except InputError as error:
        return str(error).rstrip(".")
    return _difference_of_run(job, metadata) or _difference_of_plan(job, metadata)


def _difference_of_run(job: Job, metadata: Metadata) -> str | None:
    """What differs before the inputs are looked at."""
    wanted = job.recipe
    if wanted.splits.salt is None and wanted.splits.hashed_shares() is not None:
        # It may have been chosen; the plan tells.
        wanted = wanted.replace(split_salt=metadata.recipe.splits.salt)
    old, new = metadata.recipe.to_json(), wanted.to_json()
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            return f"its {name} is {old.get(name)!r}, not {new.get(name)!r}"
    writer = writer_versions()
    for name in sorted({*writer, *metadata.writer}):
        before, now = metadata.writer.get(name), writer.get(name)
        if before != now:
            return f"it was recorded with {name} {before}; here is {now}"
    if metadata.rejected > allowed_rejects(job.max_rejected, metadata.clips):
        return (
            f"{metadata.rejected} of its {metadata.clips} clips were rejected, and "
            f"--max-rejected is {job.max_rejected}"
        )
    for entry in _shards_of(metadata):
        if files.size(files.join(job.output, entry.file)) != entry.bytes:
            return f"its shard {entry.file} is missing or damaged"
    return None


def _difference_of_plan(job: Job, metadata: Metadata) -> str | None:
    """What differs between the plan as it is now and what was recorded."""
    with tempfile.TemporaryDirectory(prefix="audio-tfrecords-again-") as work:
        # Fingerprints decode every clip, and matter here only where that failed.
        prints = job.recipe.audio.fingerprint and metadata.rejected > 0
        again = replace(
            job,
            output=files.join(work, "records", ""),
            work_folder=work,
            recipe=job.recipe.replace(fingerprint=prints),
        )
        folder = files.join(work, PHASES)
        plan_phase(again, folder)
        summary: PlanSummary = next(kept(folder, "summary"))
        rejects: list[Reject] = list(kept(folder, "rejects"))
        if (
            _differs_in_counts(summary, metadata)
            or _differs_in_rejects(rejects, job.output)
            or _differs_in_clips(kept(folder, "manifest"), again, job.output)
        ):
            return "it is not of these inputs as they are now"
        late = _changed_since(kept(folder, "work"), job)
        if late is not None:
            return f"{late} may have been changed since it was recorded"
        some = list(islice(kept(folder, "work"), SHARDS_AGAIN))
        write_again(some, again, EXAMPLES_AGAIN)
        for shard in (each.task.shard for each in some):
            if _differs_in_examples(shard, metadata, again.output, job.output):
                return f"these inputs do not give the examples of shard {shard.name}"
    return None


def _shards_of(metadata: Metadata) -> list[ShardEntry]:
    return [shard for split in metadata.splits.values() for shard in split.shards]


def _differs_in_counts(summary: PlanSummary, metadata: Metadata) -> bool:
    layouts = summary.layouts
    planned = {
        split: [layout.shard(k).name + SUFFIX for k in range(layout.shards)]
        for split, layout in layouts.items()
    }
    recorded = {
        split: [shard.file for shard in entry.shards]
        for split, entry in metadata.splits.items()
    }
    counts = summary.listing.clips, summary.listing.ignored, summary.salt
    return planned != recorded or counts != (
        metadata.clips,
        metadata.ignored,
        metadata.recipe.splits.salt,
    )


def _differs_in_rejects(rejects: Sequence[Reject], output: str) -> bool:
    """Whether a clip is rejected that was not; late ones are among the clips, too."""
    try:
        content = files.read_bytes(files.join(output, REJECTED))
    except FileNotFoundError:
        return True
    lines = Counter(rejects_text(rejects).splitlines())
    return not lines <= Counter(content.splitlines())


def _differs_in_clips(
    parts: Iterable[tuple[str, int, bytes]], again: Job, output: str
) -> bool:
    path = files.join(again.work_folder, MANIFEST)
    fields = manifest_fields(again.recipe.audio.fingerprint, again.inputs[0].columns)
    write_manifest(path, parts, fields)
    there = files.join(output, MANIFEST)
    return not files.exists(there) or not equal_manifests(path, there)


def _changed_since(shards: Iterable[ShardWork], job: Job) -> str | None:
    """A file that may be another one than a shard was made of."""
    changed = functools.lru_cache(1 << 20)(_changed_ns)
    code = dict.fromkeys(sources_of_code(job.recipe).values(), 0)
    for work in shards:
        file = files.join(job.output, work.task.shard.name + SUFFIX)
        written = files.modified_ns_of(file)
        used = dict(code)
        for segment in work.task.segments:
            used.update(_files_of_clip(segment.clip, job.inputs, job.recipe))
        for path, known in used.items():
            if not 0 < changed(path, known) < written:
                return path
    return None


def _changed_ns(path: str, known: int) -> int:
    """When a file was changed; 0 where nobody knows. A store has told it already."""
    if known and not files.is_local(path):
        return known
    try:
        return files.changed_ns(path)
    except FileNotFoundError:
        return 0


def _files_of_clip(
    clip: Clip, inputs: Sequence[Input], recipe: Recipe
) -> dict[str, int]:
    """What a clip's examples are made of, with the times that the plan knows."""
    used = {locate(inputs, clip.source, clip.filepath): clip.modified_ns}
    if recipe.events.source is not None:
        root = inputs[clip.source].root
        used[events_file(clip.filepath, root, recipe.events)] = 0
    return used


def _differs_in_examples(
    shard: Shard, metadata: Metadata, made: str, recorded: str
) -> bool:
    """Whether the first examples of a shard, made again, are not those recorded."""
    file = shard.name + SUFFIX
    (entry,) = (entry for entry in _shards_of(metadata) if entry.file == file)
    old = _first_records(files.join(recorded, file))
    new = _first_records(files.join(made, file))
    # Of a shard that has lost or left out windows, fewer come of as many places.
    is_whole = entry.examples == shard.examples
    return old[: len(new)] != new or (is_whole and len(new) < len(old))


def _first_records(path: str) -> list[bytes]:
    if not files.exists(path):
        return []
    try:
        with files.open_read(path) as file:
            return list(islice(read_records(file), EXAMPLES_AGAIN))
    except ValueError:  # damaged
        return []


def write_again(shards: Sequence[ShardWork], job: Job, examples: int) -> None:
    """Writes shards that end after so many places, or as soon as planned."""
    work = [shard._replace(task=first_places(shard.task, examples)) for shard in shards]
    with in_memory_pipeline() as pipeline:
        write_shards(pipeline | "Again" >> beam.Create(work, reshuffle=False), job)


def first_places(task: ShardTask, examples: int) -> ShardTask:
    """The same shard as if it ended after so many places."""
    examples = min(examples, task.shard.examples)
    segments = Batch(
        segment._replace(examples=min(segment.examples, examples - segment.position))
        for segment in task.segments
        if segment.position < examples
    )
    return ShardTask(task.shard._replace(examples=examples), segments)
