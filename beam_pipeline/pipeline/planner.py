"""The plan of a job: from pages of clips to pages of tasks.

::

    pages of clips --> splits --> buckets, on disk --> layouts of the shards
                                     |                    |
                                     +-> bucket 0 -> bucket 1 -> bucket 2 ...
                                             |
                                          tasks of shard 0, shard 1, shard 2, ...
                                          rows of the manifest, and what is counted

One process makes the plan, where all clips are known: this process, or one worker of an
engine. Clips, segments and counts of groups are in temporary files of SQLite on its own
disk, which nobody else reads. A plan is published by one file in its folder. If a
runner makes the plan twice, the first file counts.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import islice
from typing import NamedTuple

from beam_pipeline.dataset.folders import storing_error
from beam_pipeline.dataset.job import Job
from beam_pipeline.dataset.progress import write_totals
from beam_pipeline.dataset.tables import check_readable, make_manifest_part
from beam_pipeline.errors import IncompleteRun, Unreadable, UnusableEntry
from beam_pipeline.examples.windows import WindowPlans
from beam_pipeline.inputs.columns import SourceRow
from beam_pipeline.inputs.event_files import EventTable
from beam_pipeline.inputs.listing import ListingSummary
from beam_pipeline.planning import balance, shards
from beam_pipeline.planning.clips import Clip, Reject, read_poison_clips
from beam_pipeline.planning.prober import Prober
from beam_pipeline.process import PROBE, Marks
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files
from beam_pipeline.storage.pages import (
    Batch,
    Page,
    Pages,
    PageWriter,
    Place,
    read_place,
    write_page,
)

PLAN = "plan"
# A page of clips has so many of them, some 300 kB, or what a bundle of a runner has.
CLIPS_IN_PAGE = 1 << 14
REMOTE_PROBE_THREADS = 32

Probed = tuple[Sequence[Clip], Sequence[Reject]]
Blocks = Callable[[], Iterable[Probed]]


class PublishedPlan(NamedTuple):
    """A plan: its summary, and the pages of its shards, rejects and rows."""

    summary: shards.PlanSummary
    tasks: tuple[Page, ...]
    rejects: tuple[Page, ...]
    manifest: tuple[Page, ...]


class ClipPages:
    """Reads the headers of listed rows, and writes clips and rejects to pages."""

    def __init__(self, job: Job, folder: str):
        poison_clips = read_poison_clips(job.work_folder)
        self._prober = Prober(job.inputs, job.recipe, poison_clips)
        self._job, self._folder = job, folder
        # Reading headers from an object store is waiting, which threads can share.
        self._pool: ThreadPoolExecutor | None = None
        if not all(files.is_local(entry.location) for entry in job.inputs):
            self._pool = ThreadPoolExecutor(REMOTE_PROBE_THREADS)
        self.clear()

    def clear(self) -> None:
        """Forgets what waits: a runner repeats a bundle that has failed."""
        self._clips: list[Clip] = []
        self._rejects: list[Reject] = []

    def add(self, rows: Iterable[SourceRow]) -> Probed:
        """Adds a block of rows; returns its clips and its rejects."""
        with storing_error(self._job.work_folder, self._job.claim):
            found = self._probe(list(rows))
        clips = [each for each in found if isinstance(each, Clip)]
        rejects = [each for each in found if isinstance(each, Reject)]
        self._clips += clips
        self._rejects += rejects
        return clips, rejects

    def _probe(self, rows: Sequence[SourceRow]) -> list[Clip | Reject | None]:
        if self._pool is None or Marks.one_thread() or not rows:
            return list(map(self._probe_row, rows))
        Marks.mark(rows[0], PROBE)
        with Marks.working(threads=2):
            return list(self._pool.map(self._probe_row, rows))

    def _probe_row(self, row: SourceRow) -> Clip | Reject | None:
        if row.recorded is None:
            return self._prober.probe(row)
        self._prober.check_unchanged(row)
        return None

    def is_full(self) -> bool:
        """Whether what waits is enough for a page."""
        return len(self._clips) + len(self._rejects) >= CLIPS_IN_PAGE

    def flush(self) -> Iterator[Page]:
        """Writes a page of what waits, if anything does."""
        if self._clips or self._rejects:
            yield write_page((Batch(self._clips), Batch(self._rejects)), self._folder)
        self.clear()

    def close(self) -> None:
        """Ends the threads that read headers."""
        if self._pool is not None:
            self._pool.shutdown()


def make_plan(
    pages: Iterable[Page], listing: ListingSummary, job: Job, folder: str
) -> shards.PlanSummary:
    """Makes a plan of pages of clips in a folder, and publishes it there.

    The order of the pages does not matter. If the folder has a plan, nothing is made.
    """
    with storing_error(job.work_folder, job.claim):
        if not files.exists(files.join(folder, PLAN)):
            publish(_plan(sorted(pages), listing, job, folder), folder)
        summary = read_plan(folder).summary
    write_totals(summary, job.work_folder, job.claim)
    return summary


def _plan(
    pages: Sequence[Page], listing: ListingSummary, job: Job, folder: str
) -> PublishedPlan:
    recipe = job.recipe

    def blocks() -> Iterator[Probed]:
        for clips, bad in Pages(folder, pages):
            yield _without_alike(clips, bad, listing, recipe)

    rejects, corpus = PageWriter(folder), shards.CorpusCount(recipe)
    unreadable: list[Reject] = []
    for clips, bad in blocks():
        corpus.add(clips)
        if bad:
            rejects.add(Batch(bad))
            unreadable += (r for r in bad if r.error == Unreadable.__name__)
    if not job.allow_unreadable:
        # Without them, splits and shards would be others than with them.
        check_readable(listing, unreadable, "So there is no plan yet.")
    columns = job.inputs[0].columns
    all_rejects = (reject for _, bad in blocks() for reject in bad)
    example_format = shards.format_of(corpus.corpus(), recipe, all_rejects, columns)
    manifest, tasks = PageWriter(folder), PageWriter(folder)
    moves, buckets = _with_splits(blocks, job)
    with closing(buckets):
        layouts = shards.lay_out(buckets.examples, example_format, recipe)
        summary = shards.PlanSummary(
            listing,
            example_format,
            {name: layout for name, layout in layouts.items() if layout.total},
            moves,
        )
        plans = WindowPlans(recipe)

        def noted() -> Iterator[shards.PlacedClips]:
            for placed in buckets.placed():
                summary.add(placed, plans, recipe)
                manifest.add(make_manifest_part(placed, layouts, recipe))
                yield placed

        for task in shards.cut_tasks(noted(), layouts, recipe):
            tasks.add(task)
    return PublishedPlan(summary, tasks.finish(), rejects.finish(), manifest.finish())


def _without_alike(
    clips: Sequence[Clip],
    rejects: Sequence[Reject],
    listing: ListingSummary,
    recipe: Recipe,
) -> Probed:
    """Rejects clips whose name in the table of events other files have, too.

    Only the whole listing shows that.
    """
    events = EventTable.of(recipe)
    if not listing.alike or events is None:
        return clips, rejects
    kept, rejects = [], list(rejects)
    for clip in clips:
        name = events.name_of(clip.filepath) or ""
        if name not in listing.alike:
            kept.append(clip)
            continue
        problem = events.unclear(name, listing.alike[name])
        error = UnusableEntry.__name__
        rejects.append(Reject(clip.row, clip.filepath, PROBE, error, problem))
    return kept, rejects


def _with_splits(
    blocks: Blocks, job: Job
) -> tuple[balance.Moves | None, shards.Buckets]:
    """Returns the groups that leave the split of their hash, and clips in buckets.

    Clips have the split of their hash already. If the recipe stratifies or has folds,
    or if a split has no example, the sums of what splits hold decide.
    """
    recipe = job.recipe

    def clips() -> Iterator[Sequence[Clip]]:
        return (some for some, _ in blocks())

    if recipe.splits_are_decided():
        return recipe.split_moves, shards.Buckets(recipe, clips())
    if not balance.is_balanced(recipe):
        buckets = shards.Buckets(recipe, clips())
        if all(buckets.examples[s] for s in recipe.hashed_shares() or ()):
            return None, buckets
        buckets.close()
    moves = balance.choose_moves(balance.tally_groups(clips(), recipe), recipe)
    assigned = (balance.assign_splits(some, moves, recipe) for some in clips())
    return moves, shards.Buckets(recipe, assigned)


def publish(plan: PublishedPlan, folder: str) -> None:
    """Writes the file that makes a plan valid, unless another worker was faster."""
    content = pickle.dumps(plan, pickle.HIGHEST_PROTOCOL)
    files.create(files.join(folder, PLAN), content)


def read_plan(folder: str) -> PublishedPlan:
    """Returns the plan of a folder.

    Raises
    ------
    IncompleteRun
        If there is none, because somebody has deleted it.
    """
    try:
        content = files.read_bytes(files.join(folder, PLAN))
    except FileNotFoundError:
        raise IncompleteRun(
            f"The plan in {folder} was deleted while a run used it. Wait until no "
            "other run writes there. Then give the same command again to continue."
        ) from None
    plan: PublishedPlan = pickle.loads(content)
    return plan


def planned_work(first: int, folder: str, step: int = 1) -> Iterator[shards.ShardWork]:
    """Yields the work of every ``step``-th shard of the plan of a folder."""
    plan = read_plan(folder)
    for place in islice(Pages(folder, plan.tasks).places(), first, None, step):
        yield read_work(plan, place, folder)


def read_work(plan: PublishedPlan, place: Place, folder: str) -> shards.ShardWork:
    """Returns the work of the shard whose task is at a place."""
    example_format = plan.summary.example_format
    assert example_format is not None  # without clips there are no shards
    shard, segments = read_place(place, folder)
    return shards.ShardWork(shard, segments, example_format)


def planned_rejects(plan: PublishedPlan, folder: str) -> Iterator[Reject]:
    """Yields the rejects of a plan, in no order."""
    return (reject for some in Pages(folder, plan.rejects) for reject in some)
