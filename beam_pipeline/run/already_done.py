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

import functools
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice

import apache_beam as beam

from beam_pipeline.audio.av_library import LIBRARY
from beam_pipeline.dataset.claim import sources_of_code
from beam_pipeline.dataset.manifest import (
    equal_manifests,
    manifest_fields,
    write_manifest,
)
from beam_pipeline.dataset.metadata import Metadata, ShardEntry, writer_versions
from beam_pipeline.dataset.output_folder import MANIFEST, REJECTED, stale_shards
from beam_pipeline.dataset.rejects import reject_line, sort_rejects
from beam_pipeline.dataset.work_folder import PHASES
from beam_pipeline.errors import InputError
from beam_pipeline.inputs.event_files import events_file
from beam_pipeline.inputs.sources import locate
from beam_pipeline.pipeline.graph import write_shards
from beam_pipeline.pipeline.job import Job
from beam_pipeline.plan.batch import Batch
from beam_pipeline.plan.clips import Clip, Reject
from beam_pipeline.plan.segments import ShardTask, ShardWork
from beam_pipeline.plan.summary import PlanSummary
from beam_pipeline.recipe.values import allowed_rejects
from beam_pipeline.run.local_plan import plan_phase
from beam_pipeline.run.phases import in_memory_pipeline
from beam_pipeline.run.stored import stored, stored_work
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import read_any_records, suffix_for

# How a data set differs; the text continues "... holds a data set, and".
OTHER_INPUTS = "it has other inputs, or its inputs have changed"
NEWER_FILE = "{} may have been changed since it was recorded"
DAMAGED_SHARD = "its shard {} is missing or damaged"
OTHER_EXAMPLES = "these inputs do not give the examples of shard {}"

# The first examples of the first shards are made again.
SHARDS_AGAIN = 8
EXAMPLES_AGAIN = 8


def difference_to_finished(job: Job) -> str | None:
    """Returns how the data set in the output differs from the one the job would record.

    None if they do not differ. Nothing is written to the output. The text continues the
    sentence "the folder holds a data set, and ...".
    """
    try:
        metadata = Metadata.load(job.output)
    except InputError as error:
        return str(error).rstrip(".")
    return _difference_by_metadata(job, metadata) or _difference_by_plan(job, metadata)


def _difference_by_metadata(job: Job, metadata: Metadata) -> str | None:
    """The difference that shows without the inputs."""
    recipe = job.recipe
    if metadata.recipe is None:
        return "it was not recorded from audio files"
    if recipe.splits.salt is None and recipe.splits.hashed_shares() is not None:
        # The recorded salt may be a chosen one. The plan is compared with it later.
        recipe = recipe.replace(split_salt=metadata.recipe.splits.salt)
    old, new = metadata.recipe.to_json(), recipe.to_json()
    for name in sorted({*old, *new}):
        if old.get(name) != new.get(name):
            return _other_value(name, old.get(name), new.get(name))
    # If no clip needed ffmpeg, and now one does, the plan differs.
    versions = writer_versions(
        recipe.features.encodings.values(), ffmpeg=LIBRARY in metadata.writer
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
    for entry in _shards_of(metadata):
        if files.size(files.join(job.output, entry.file)) != entry.bytes:
            return DAMAGED_SHARD.format(entry.file)
    known = {entry.file for entry in _shards_of(metadata)}
    for name in stale_shards(job.output, known):
        return f"{name} in its folder is not one of its shards"
    return None


def _other_value(name: str, old: object, new: object) -> str:
    if old is None:
        return f"it was recorded without `{name}`; here it is {new!r}"
    other = "; here it is not given" if new is None else f", not {new!r}"
    return f"it was recorded with `{name}` = {old!r}{other}"


def _difference_by_plan(job: Job, metadata: Metadata) -> str | None:
    """The difference that shows with the inputs."""
    with tempfile.TemporaryDirectory(prefix="audio-tfrecords-again-") as work:
        # A fingerprint decodes a whole clip. Here it matters only if that can fail.
        fingerprint = job.recipe.audio.fingerprint and metadata.rejected > 0
        again = replace(
            job,
            output=files.join(work, "records", ""),
            work_folder=work,
            recipe=job.recipe.replace(fingerprint=fingerprint),
        )
        folder = files.join(work, PHASES)
        files.make_folder(folder)
        summary = plan_phase(again, folder)
        if not (
            _equal_counts(summary, metadata)
            and _equal_rejects(stored(folder, "rejects"), job.output)
            and _equal_clips(stored(folder, "manifest"), again, job.output)
        ):
            return OTHER_INPUTS
        newer = _find_newer(stored_work(0, folder, 1), job)
        if newer is not None:
            return NEWER_FILE.format(newer)
        some = list(islice(stored_work(0, folder, 1), SHARDS_AGAIN))
        _write_first(some, again)
        recorded = {entry.file: entry for entry in _shards_of(metadata)}
        suffix = suffix_for(job.recipe.shards.compression)
        for shard in (each.task.shard for each in some):
            whole = recorded[shard.name + suffix].examples == shard.examples
            if not _equal_examples(
                shard.name + suffix, job.output, again.output, whole
            ):
                return OTHER_EXAMPLES.format(shard.name)
    return None


def _shards_of(metadata: Metadata) -> Iterator[ShardEntry]:
    for split in metadata.splits.values():
        yield from split.shards


def _equal_counts(summary: PlanSummary, metadata: Metadata) -> bool:
    """Whether the plan has the recorded shards, salt, and numbers of files."""
    assert metadata.recipe is not None  # compared before
    suffix = suffix_for(metadata.recipe.shards.compression)
    planned = {
        split: [layout.shard(k).name + suffix for k in range(layout.shards)]
        for split, layout in summary.layouts.items()
    }
    recorded = {
        split: [shard.file for shard in entry.shards]
        for split, entry in metadata.splits.items()
    }
    assert metadata.recipe is not None  # compared before
    listing, salt = summary.listing, metadata.recipe.splits.salt
    return (planned, listing.clips, listing.ignored, summary.salt) == (
        recorded, metadata.clips, metadata.ignored, salt
    )  # fmt: skip


def _equal_rejects(rejects: Iterable[Reject], output: str) -> bool:
    """Whether each reject by header was recorded; those by decoding come on top."""
    path = files.join(output, REJECTED)
    if not files.exists(path):
        return False
    with files.open_read(path) as recorded:
        # Both are in the order of rows: each search begins where the last one ended.
        return all(reject_line(r) in recorded for r in sort_rejects(rejects))


def _equal_clips(
    parts: Iterable[tuple[str, int, bytes]], again: Job, output: str
) -> bool:
    """Whether the plan has the recorded clips."""
    path, recorded = (files.join(f, MANIFEST) for f in (again.work_folder, output))
    fields = manifest_fields(again.recipe.audio.fingerprint, again.inputs[0].columns)
    write_manifest(path, parts, fields)
    return files.exists(recorded) and equal_manifests(path, recorded)


def _find_newer(shards: Iterable[ShardWork], job: Job) -> str | None:
    """Returns a file that may be newer than a shard that was made from it."""
    changed_ns = functools.lru_cache(1 << 20)(_changed_ns)
    suffix = suffix_for(job.recipe.shards.compression)
    code = dict.fromkeys(sources_of_code(job.recipe).values(), 0)
    for work in shards:
        shard = files.join(job.output, work.task.shard.name + suffix)
        written_ns = files.modified_ns_of(shard)
        used = dict(code)
        for segment in work.task.segments:
            used.update(_files_of_clip(segment.clip, job))
        for path, known_ns in used.items():
            if not 0 < changed_ns(path, known_ns) < written_ns:
                return path
    return None


def _files_of_clip(clip: Clip, job: Job) -> dict[str, int]:
    """The files of a clip, with their times as far as the plan has them; or 0."""
    used = {locate(job.inputs, clip.source, clip.filepath): clip.modified_ns}
    events = job.recipe.events
    if events.source is not None:
        used[events_file(clip.filepath, job.inputs[clip.source].root, events)] = 0
    return used


def _changed_ns(path: str, known_ns: int) -> int:
    """The time of a file's last change; 0 if it is not known."""
    if known_ns and not files.is_local(path):  # a store has only this one time
        return known_ns
    try:
        return files.changed_ns(path)
    except FileNotFoundError:
        return 0


def _write_first(shards: Sequence[ShardWork], job: Job) -> None:
    """Writes the first examples of some shards, each as if it ended after them."""
    cut = [shard._replace(task=_first_positions(shard.task)) for shard in shards]
    with in_memory_pipeline() as pipeline:
        write_shards(pipeline | "Again" >> beam.Create(cut, reshuffle=False), job)


def _first_positions(task: ShardTask) -> ShardTask:
    end = min(EXAMPLES_AGAIN, task.shard.examples)
    segments = Batch(
        segment._replace(examples=min(segment.examples, end - segment.position))
        for segment in task.segments
        if segment.position < end
    )
    return ShardTask(task.shard._replace(examples=end), segments)


def _equal_examples(file: str, recorded: str, made: str, whole: bool) -> bool:
    """Whether the first examples of a shard, made again, are those recorded.

    If windows were lost or left out, the recorded shard is not whole, and the first
    positions give fewer examples than there are in it.
    """
    old, new = (_first_records(files.join(folder, file)) for folder in (recorded, made))
    return old[: len(new)] == new and (not whole or len(new) >= len(old))


def _first_records(path: str) -> list[bytes]:
    """The first records of a shard; none if it is missing or damaged."""
    try:
        with files.open_read(path) as file:
            return list(islice(read_any_records(file), EXAMPLES_AGAIN))
    except (FileNotFoundError, ValueError):
        return []
