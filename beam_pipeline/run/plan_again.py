"""The plan of a data set that exists, made again from its inputs, to be compared.

A data set holds neither the location of its inputs nor the times of their changes. Its
metadata, manifest and rejects say what the plan was.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from beam_pipeline.dataset.code_stamp import sources_of_code
from beam_pipeline.dataset.manifest import (
    manifest_difference,
    manifest_fields,
    write_manifest,
)
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import MANIFEST, REJECTED
from beam_pipeline.dataset.rejects import reject_line, sort_rejects
from beam_pipeline.dataset.work_folder import PHASES
from beam_pipeline.inputs.event_files import events_file
from beam_pipeline.inputs.sources import locate
from beam_pipeline.pipeline.job import Job
from beam_pipeline.pipeline.planner import planned_rejects, planned_work, read_plan
from beam_pipeline.plan.clips import Clip, Reject
from beam_pipeline.plan.segments import ShardWork
from beam_pipeline.plan.summary import PlanSummary
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.run.local_plan import plan_here
from beam_pipeline.run.workers import Workers
from beam_pipeline.storage import files
from beam_pipeline.storage.pages import Pages
from beam_pipeline.storage.tfrecord import suffix_for


@dataclass(frozen=True)
class PlanAgain:
    """A plan in a folder of its own.

    Attributes
    ----------
    job : Job
        The job, with its output and its work folder in that folder.
    phase : str
        The folder of the plan.
    summary : PlanSummary
    """

    job: Job
    phase: str
    summary: PlanSummary

    def work(self) -> Iterator[ShardWork]:
        """Yields the planned shards."""
        return planned_work(0, self.phase)

    def rejects(self) -> Iterator[Reject]:
        """Yields the rejects by header."""
        return planned_rejects(read_plan(self.phase), self.phase)

    def write_manifest(self) -> str:
        """Writes the manifest of the plan; returns its path."""
        path = files.join(self.job.work_folder, MANIFEST)
        fields = manifest_fields(self.job.recipe.audio, self.job.inputs[0].columns)
        parts = Pages(self.phase, read_plan(self.phase).manifest)
        write_manifest(path, parts, fields)
        return path

    def clip_difference(self, output: str) -> str | None:
        """Says how the clips differ from those of a data set; None if they do not.

        Raises
        ------
        OSError, ValueError
            If its manifest cannot be read.
        """
        recorded = files.join(output, MANIFEST)
        if not files.exists(recorded):
            return f"{MANIFEST} is missing"
        return manifest_difference(recorded, self.write_manifest())


@contextmanager
def planned_again(
    job: Job, fingerprint: bool, time_limit: float | None, work: str | None = None
) -> Iterator[PlanAgain]:
    """Makes the plan of a job again, in a folder that is deleted after the block.

    Parameters
    ----------
    fingerprint : bool
        Whether to take fingerprints, if the recipe asks for them. One decodes a whole
        clip, and only that finds some of the rejects.
    work : str, optional
        The folder; local. Default: a temporary one.
    """
    with tempfile.TemporaryDirectory(prefix="audio-tfrecords-again-") as temporary:
        folder = work or temporary
        again = replace(
            job,
            output=files.join(folder, "records", ""),
            work_folder=folder,
            recipe=job.recipe.replace(
                fingerprint=fingerprint and job.recipe.audio.fingerprint
            ),
        )
        phase = files.join(folder, PHASES)
        with Workers(time_limit) as processes:
            summary = plan_here(again, phase, processes)
        yield PlanAgain(again, phase, summary)


def plan_difference(plan: PlanAgain, metadata: Metadata, output: str) -> str | None:
    """Says how a plan differs from the recorded one; None if it does not.

    Raises
    ------
    OSError, ValueError
        If the manifest in the output cannot be read.
    """
    return (
        count_difference(plan.summary, metadata)
        or reject_difference(plan.rejects(), output)
        or plan.clip_difference(output)
    )


def count_difference(summary: PlanSummary, metadata: Metadata) -> str | None:
    """Says how the numbers of files, the splits or the names of the shards differ."""
    assert metadata.recipe is not None
    suffix = suffix_for(metadata.recipe.shards.compression)
    planned = {
        split: [layout.shard(k).name + suffix for k in range(layout.shards)]
        for split, layout in summary.layouts.items()
    }
    recorded = {
        split: [shard.file for shard in entry.shards]
        for split, entry in metadata.splits.items()
    }
    for what, old, new in (
        ("clips", metadata.clips, summary.listing.clips),
        ("files that are no audio", metadata.ignored, summary.listing.ignored),
    ):
        if old != new:
            return f"{old} {what} were listed; here are {new}"
    for split in sorted({*planned, *recorded}):
        old, new = (len(some.get(split, ())) for some in (recorded, planned))
        if planned.get(split) != recorded.get(split):
            return f"split {split} has {old} shards; here it has {new}"
    if (summary.moves or {}) != (metadata.recipe.splits.moves or {}):
        return "other groups leave the split of their hash (`split_moves`)"
    return None


def reject_difference(rejects: Iterable[Reject], output: str) -> str | None:
    """Names a reject by header that was not recorded; others come on top."""
    path = files.join(output, REJECTED)
    if not files.exists(path):
        return f"{REJECTED} is missing"
    with files.open_read(path) as recorded:
        # Both are in the order of rows: each search begins where the last one ended.
        for reject in sort_rejects(rejects):
            wanted = reject_line(reject)
            if not any(line == wanted for line in recorded):
                return f"{REJECTED} has no line {wanted.decode().strip()}"
    return None


def find_newer(work: ShardWork, job: Job, written_ns: int) -> Iterator[str]:
    """Yields the files that a shard was made from and that may be newer than a time."""
    used = dict.fromkeys(_sources_of(job.recipe), 0)
    for segment in work.task.segments:
        used.update(_files_of_clip(segment.clip, job))
    for path, known_ns in used.items():
        if not 0 < _changed_ns(path, known_ns) < written_ns:
            yield path


@functools.lru_cache(16)
def _sources_of(recipe: Recipe) -> tuple[str, ...]:
    return tuple(sources_of_code(recipe).values())


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
