"""``verify --repair``: damaged or missing files of a data set, made again.

::

    metadata.json   recipe, SHA-256 of each shard
    inputs          --plan again--> equal to the recorded plan, or nothing is done
    damaged shards  --write again--> work folder --SHA-256 as recorded--> moved in place
    files beside    --from the plan and the shards--> moved in place

All shards that are needed are written and compared before any file is replaced, and
each is replaced by a renaming: whenever the process is killed, a file is the old one or
the new one. What is left in the work folder is deleted by the next repair, or run.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from typing import Any

from beam_pipeline.audio.av_library import LIBRARY
from beam_pipeline.dataset.damage import Damage, find_damage, is_damaged
from beam_pipeline.dataset.lock import locked
from beam_pipeline.dataset.member_index import ShardMembers, write_index
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import (
    INDEX,
    MANIFEST,
    METADATA,
    REJECTED,
    SCHEMA,
    WINDOWS,
    check_no_folders,
)
from beam_pipeline.dataset.rejects import (
    lists_other_rejects,
    sort_rejects,
    write_rejects,
)
from beam_pipeline.dataset.schema import schema_text
from beam_pipeline.dataset.window_table import write_windows
from beam_pipeline.dataset.work_folder import REPAIR, WORK_FOLDER, Totals
from beam_pipeline.dataset.writer_versions import writer_versions
from beam_pipeline.errors import InputError, VerificationError
from beam_pipeline.inputs.in_memory import Source, resolved
from beam_pipeline.inputs.sources import Input
from beam_pipeline.pipeline.job import Job
from beam_pipeline.pipeline.planner import PublishedPlan, publish
from beam_pipeline.plan.segments import ShardWork
from beam_pipeline.plan.shards import ShardInfo
from beam_pipeline.plan.summary import PlanSummary
from beam_pipeline.run.dry_run import check_transforms
from beam_pipeline.run.local import results_of, totals_of, write_planned, writers_for
from beam_pipeline.run.plan_again import (
    PlanAgain,
    count_difference,
    find_newer,
    planned_again,
)
from beam_pipeline.run.stored import stored
from beam_pipeline.run.watching import Watch
from beam_pipeline.run.workers import Workers
from beam_pipeline.storage import files
from beam_pipeline.storage.pages import PageWriter
from beam_pipeline.storage.tfrecord import suffix_for
from beam_pipeline.transforms.expressions import give_steps

_NAMED = 5
_AGAIN = "again"  # the folder of a phase, for what is written again


def repair(
    folder: str | os.PathLike[str],
    input: Source,
    *,
    workers: int | None = None,
    watch: Callable[[Totals], Watch] | None = None,
    functions: Iterable[Any] = (),
) -> list[str]:
    """Makes the damaged and missing files of a data set again, byte for byte.

    ::

        repair("records/", "sounds/")

    Parameters
    ----------
    folder : path
        A data set of :func:`beam_pipeline.record`.
    input : as in :func:`beam_pipeline.record`
        What it was recorded from. The modules that its recipe names are imported.
    workers : int, optional
        The number of processes that write, as in :func:`beam_pipeline.record`.
    watch : callable, optional
        See :func:`beam_pipeline.run.watching.reporter`.
    functions : iterable, optional
        Functions and classes of this script or notebook that the recipe names.

    Returns
    -------
    list of str
        The files that were replaced; empty if none was damaged.

    Raises
    ------
    InputError
        If there is no data set, its metadata are damaged, or no input gives its
        examples again.
    VerificationError
        If the inputs, as they are now, do not give the recorded bytes; it says what
        differs. Nothing was replaced.
    """
    root = files.absolute(os.fspath(folder))
    metadata = _load(root)
    assert metadata.recipe is not None
    give_steps(functions)
    with (
        locked(files.join(root, WORK_FOLDER)),
        resolved(input, metadata.recipe) as inputs,
    ):
        check_transforms(metadata.recipe, inputs, None)
        with _work_folder(root) as work:
            return _Repair(root, metadata, inputs, work).run(workers, watch)


def _load(root: str) -> Metadata:
    try:
        metadata = Metadata.load(root)
    except InputError as error:
        if not files.exists(files.join(root, METADATA)):
            raise
        raise InputError(
            f"{error} Without it, nothing can be repaired: it holds the recipe and the "
            "checksums. `record` with the options of before and `overwrite` records "
            "the same bytes again."
        ) from error
    check_no_folders(root, metadata.splits)
    if metadata.recipe is None:
        by = "another recorder"
        if metadata.elements is not None:
            by = f"`{metadata.elements.recorded_by}`"
        raise InputError(
            f"{root} was recorded by {by}. Only data sets of `record` can be repaired, "
            "because only their metadata say how the inputs become examples. Record it "
            "again."
        )
    return metadata


@contextmanager
def _work_folder(root: str) -> Iterator[str]:
    """An empty folder on this machine, from which a file is renamed into the data set.

    If the data set is remote, files are uploaded from there.
    """
    if not files.is_local(root):
        with tempfile.TemporaryDirectory(prefix="audio-tfrecords-repair-") as work:
            yield work
        return
    work = files.join(root, WORK_FOLDER, REPAIR)
    files.delete_below(work)
    try:
        yield work
    finally:
        files.delete_below(work)
        with suppress(OSError):  # it holds other files
            os.rmdir(files.join(root, WORK_FOLDER))


class _Repair:
    """One repair; each step is a method."""

    def __init__(
        self,
        root: str,
        metadata: Metadata,
        inputs: Sequence[Input],
        work: str,
    ):
        assert metadata.recipe is not None
        self._root, self._metadata, self._work = root, metadata, work
        self._results = list[str]()
        self._suffix = suffix_for(metadata.recipe.shards.compression)
        self._job = Job(
            tuple(inputs),
            files.join(root, ""),
            work,
            metadata.recipe,
            "100%",
        )

    def run(
        self, workers: int | None, watch: Callable[[Totals], Watch] | None
    ) -> list[str]:
        damage = find_damage(self._root, self._metadata)
        # Fingerprints are compared with nothing, so they are taken only for a manifest
        # that is written; or if a clip failed, perhaps in them.
        fingerprint = damage.manifest or self._metadata.rejected > 0
        with planned_again(self._job, fingerprint, None, self._work) as plan:
            self._check_plan(plan, damage)
            rejects = list(plan.rejects())
            has_late = self._metadata.rejected > len(rejects)
            lists_rejects = not is_damaged(
                self._root,
                REJECTED,
                lambda text: lists_other_rejects(text, rejects, has_late),
            )
            wanted = {entry.file for entry in damage.shards}
            if damage.windows or (has_late and not lists_rejects):
                # Only recording tells levels of windows, and what fails late.
                wanted = {entry.file for entry in self._metadata.shards()}
            infos: dict[str, ShardInfo] = {}
            if wanted:
                infos = self._write(plan, wanted, workers, watch)
                self._check_written(plan, infos, wanted)
            made = self._make_side_files(plan, damage, infos)
            if not lists_rejects:
                rejects += self._written("rejects")
                path = files.join(self._work, REJECTED)
                write_rejects(path, sort_rejects(rejects))
                made.append(REJECTED)
            return self._replace(plan, damage, made)

    def _check_plan(self, plan: PlanAgain, damage: Damage) -> None:
        """Raises VerificationError if the plan is not the recorded one."""
        difference = count_difference(plan.summary, self._metadata)
        if difference is None and not damage.manifest:
            difference = plan.clip_difference(self._root)
            if difference is not None:
                difference += (
                    f". If {MANIFEST} is what was changed, delete it, and repair again"
                )
        if difference is not None:
            raise self._refused([difference])

    def _written(self, name: str) -> Iterator[Any]:
        """Yields what the writers have stored under a name."""
        return chain.from_iterable(stored(each, name) for each in self._results)

    def _write(
        self,
        plan: PlanAgain,
        wanted: set[str],
        workers: int | None,
        watch: Callable[[Totals], Watch] | None,
    ) -> dict[str, ShardInfo]:
        """Writes shards into the work folder; returns them by file."""
        some = [w for w in plan.work() if w.task.shard.name + self._suffix in wanted]
        folder = files.join(plan.phase, _AGAIN)
        _store_work(plan.summary, some, folder)
        total = sum(work.task.shard.examples for work in some)
        planned = totals_of(plan.summary)
        totals = Totals(total, planned.seconds * total / planned.examples)
        writers = min(writers_for(plan.summary, workers), len(some))
        with Workers() as processes:
            write_planned(plan.job, folder, writers, processes, totals, watch)
        self._results = [results_of(writer, folder) for writer in range(writers)]
        return {info.file: info for info in self._written("infos")}

    def _check_written(
        self, plan: PlanAgain, infos: dict[str, ShardInfo], wanted: set[str]
    ) -> None:
        """Raises VerificationError if a shard has not the recorded bytes."""
        recorded = {entry.file: entry for entry in self._metadata.shards()}
        other = sorted(
            file
            for file in wanted
            if file not in infos or infos[file].sha256 != recorded[file].sha256
        )
        if not other:
            return
        lines = [f"{file} would have other bytes" for file in other[:_NAMED]]
        if len(other) > _NAMED:
            lines.append(f"... and {len(other) - _NAMED} more shards")
        raise self._refused([*lines, *self._reasons(plan, {*other})])

    def _reasons(self, plan: PlanAgain, other: set[str]) -> Iterator[str]:
        """Yields what may be why shards have other bytes."""
        features, before = self._job.recipe.features, self._metadata.writer
        now = writer_versions(
            features.encodings.values(),
            ffmpeg=LIBRARY in before,
            backend=features.backend,
        )
        for name in sorted({*now, *before}):
            if now.get(name) != before.get(name):
                yield (
                    f"it was recorded with {name} {before.get(name)}, but "
                    f"{now.get(name)} is in use here"
                )
        written_ns = files.modified_ns_of(files.join(self._root, METADATA))
        newer: dict[str, None] = {}
        for work in plan.work():
            if work.task.shard.name + self._suffix in other:
                newer.update(dict.fromkeys(find_newer(work, self._job, written_ns)))
        for path in list(newer)[:_NAMED]:
            yield f"{path} may have been changed since it was recorded"
        if len(newer) > _NAMED:
            yield f"... and {len(newer) - _NAMED} more files"

    def _refused(self, lines: Sequence[str]) -> VerificationError:
        first = f"{self._root}: these inputs do not give it again; nothing was replaced"
        return VerificationError([first, *lines])

    def _make_side_files(
        self,
        plan: PlanAgain,
        damage: Damage,
        infos: dict[str, ShardInfo],
    ) -> list[str]:
        """Writes the files beside the shards that must be replaced; returns them."""
        work, made = self._work, []
        entries = list(self._metadata.shards())
        if damage.schema:
            text = schema_text(self._metadata.features, self._metadata.classes)
            files.write_bytes(files.join(work, SCHEMA), text)
            made.append(SCHEMA)
        if damage.manifest:
            plan.write_manifest()
            made.append(MANIFEST)
        if damage.windows:
            write_windows(
                files.join(work, WINDOWS), [infos[entry.file] for entry in entries]
            )
            made.append(WINDOWS)
        members = {
            **{file: ShardMembers.of(info) for file, info in infos.items()},
            **damage.members,
        }
        write_index(work, [members[entry.file] for entry in entries])
        index = files.read_bytes(files.join(work, INDEX))
        if is_damaged(self._root, INDEX, lambda content: content != index):
            made.append(INDEX)
        return made

    def _replace(
        self, plan: PlanAgain, damage: Damage, made: Sequence[str]
    ) -> list[str]:
        """Moves what was made into the data set; returns the names."""
        replaced = []
        for entry in damage.shards:
            path = files.join(plan.job.output, entry.file)
            files.move(path, files.join(self._root, entry.file))
            replaced.append(entry.file)
        for name in made:
            files.move(files.join(self._work, name), files.join(self._root, name))
            replaced.append(name)
        return replaced


def _store_work(summary: PlanSummary, some: Iterable[ShardWork], folder: str) -> None:
    """Publishes a plan that has only some shards of another one."""
    files.make_folder(folder)
    tasks = PageWriter(folder)
    for work in some:
        tasks.add(work.task)
    publish(PublishedPlan(summary, tasks.finish(), (), ()), folder)
