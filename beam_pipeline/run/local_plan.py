"""The plan of a job on this machine: the steps of :mod:`beam_pipeline.pipeline.graph`.

::

    inputs -> rows -> clips -> buckets, on disk --counts of all buckets--> layouts
                                  |                                           |
                                  +-> bucket 0 -> bucket 1 -> bucket 2 ... <--+
                                          |
                                       shard 0, shard 1, shard 2, ...

Engines spread these steps over machines. Beam's in-memory runner would keep every clip
in memory, and on this machine nothing needs that: clips go to disk, one bucket after
the other comes back, and a shard is complete when the next one begins. What each step
computes is in the functions of :mod:`beam_pipeline.plan`, which both have in common.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from tempfile import TemporaryDirectory
from typing import Any, Generic, NamedTuple, TypeVar

from beam_pipeline.dataset.manifest import make_manifest_part
from beam_pipeline.dataset.rejects import sort_rejects
from beam_pipeline.dataset.suspect_files import read_suspects
from beam_pipeline.dataset.work_folder import announce_plan, keeping_verdict
from beam_pipeline.examples.format import ExampleFormat
from beam_pipeline.inputs.event_files import EventTable
from beam_pipeline.inputs.listing import Listing, ListingSummary
from beam_pipeline.inputs.rows import SourceRow
from beam_pipeline.pipeline.job import Job
from beam_pipeline.plan.batch import Batch
from beam_pipeline.plan.clips import Clip
from beam_pipeline.plan.corpus import (
    describe_clips,
    describe_rejects,
    format_of,
    merge_corpora,
)
from beam_pipeline.plan.group_measures import with_groups
from beam_pipeline.plan.order import (
    BucketBatches,
    BucketKey,
    PlacedClips,
    count_bucket,
    place_bucket,
)
from beam_pipeline.plan.prober import BlockProber
from beam_pipeline.plan.segments import ShardWork, cut_shards, make_task
from beam_pipeline.plan.shards import ShardLayout, lay_out
from beam_pipeline.plan.stratify import (
    Moves,
    add_tallies,
    assign_splits,
    choose_moves,
    tally_clips,
)
from beam_pipeline.plan.summary import (
    BucketTally,
    PlanSummary,
    merge_tallies,
    summarise,
    tally_bucket,
)
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.run.forecast import forecast
from beam_pipeline.run.groups_on_disk import CountedGroups, measure_groups
from beam_pipeline.run.limits import Limits
from beam_pipeline.run.plan_result import Plan
from beam_pipeline.run.stored import (
    ElementFile,
    new_work,
    phase_folder,
    stored,
    stored_work,
)
from beam_pipeline.run.supervising import Workers
from beam_pipeline.storage import files
from beam_pipeline.storage.spilled import SortedValues

_T = TypeVar("_T")

# Number of sums that wait to be added up.
MERGED_AT_ONCE = 64
# A tally may hold some MB.
TALLIES_AT_ONCE = 8


class Merged(Generic[_T]):
    """The sum of many values, some of them at a time."""

    def __init__(self, merge: Callable[[list[_T]], _T], at_once: int | None = None):
        self._merge = merge
        self._at_once = at_once or MERGED_AT_ONCE
        self._waiting: list[_T] = []

    def add(self, value: _T) -> None:
        self._waiting.append(value)
        if len(self._waiting) == self._at_once:
            self._waiting = [self._merge(self._waiting)]

    def total(self) -> _T:
        return self._merge(self._waiting)


class Buckets:
    """Clips by bucket, on disk, and the number of examples of each bucket."""

    def __init__(self, job: Job, path: str):
        self.counts = Counter[BucketKey]()
        self._shards = job.recipe.shards
        self._batches = BucketBatches(self._shards)
        self._kept = SortedValues[tuple[BucketKey, Sequence[Clip]]](
            itemgetter(0), path=path
        )

    def add(self, clips: Sequence[Clip]) -> None:
        self._keep(self._batches.add(clips))

    def _keep(self, batches: Iterable[tuple[BucketKey, Sequence[Clip]]]) -> None:
        for key, clips in batches:
            self.counts.update(dict([count_bucket(key, clips)]))
            self._kept.extend([(key, clips)])

    def complete(self) -> None:
        """Keeps what still waits for more clips of its bucket."""
        self._keep(self._batches.flush())

    def batches(self) -> Iterator[Sequence[Clip]]:
        """Yields all clips, bucket by bucket."""
        return (clips for _, clips in self._kept)

    def placed(self) -> Iterator[PlacedClips]:
        """Yields the clips of each bucket in order, split by split."""
        before = Counter[str]()
        for key, batches in groupby(self._kept, key=itemgetter(0)):
            parts = (clips for _, clips in batches)
            yield place_bucket(key, parts, before[key[0]], self._shards)
            before[key[0]] += self.counts[key]

    def close(self) -> None:
        self._kept.close()


class Found(NamedTuple):
    """The clips; see :class:`beam_pipeline.pipeline.outputs.Found`."""

    listing: ListingSummary
    buckets: Buckets
    example_format: ExampleFormat | None
    moves: Moves | None


def find_clips(job: Job, scratch: str, rejects: ElementFile) -> Found:
    """Lists the inputs, reads the headers, and decides the split of each clip.

    It adds to the rejects, and keeps clips in files in the folder ``scratch``.
    """
    recipe = job.recipe
    listing = job.listing()
    buckets = Buckets(job, os.path.join(scratch, "clips.db"))
    stratifies = recipe.splits.stratify and not job.splits_are_decided()
    groups = CountedGroups(recipe, os.path.join(scratch, "groups.db"))
    corpus = Merged(merge_corpora)
    suspects = read_suspects(job.work_folder)
    with closing(BlockProber(job.inputs, recipe, suspects)) as prober:
        for rows in list_rows(listing, job, scratch):
            clips, bad = prober.probe(rows, listing.summary().alike)
            rejects.extend(bad)
            corpus.add(describe_clips(clips, recipe))
            corpus.add(describe_rejects(bad))
            if stratifies:
                groups.add(clips)
            buckets.add(clips)
    buckets.complete()
    with closing(groups):
        moves = decide_moves(buckets, groups, job)
    if moves is not None and not job.splits_are_decided():
        with closing(buckets) as as_listed:
            buckets = Buckets(job, os.path.join(scratch, "split-clips.db"))
            for batch in as_listed.batches():
                buckets.add(assign_splits(batch, moves, recipe))
        buckets.complete()
    with keeping_verdict(job.work_folder):
        summary, columns = listing.summary(), job.inputs[0].columns
        found = format_of(corpus.total(), recipe, summary, columns)
    return Found(summary, buckets, found, moves)


def decide_moves(buckets: Buckets, groups: CountedGroups, job: Job) -> Moves | None:
    """Returns the groups that are not in the split of their hash.

    Only if a split is empty, the clips are counted once more.
    """
    recipe, shares = job.recipe, job.recipe.splits.hashed_shares() or {}
    if job.splits_are_decided():
        return recipe.splits.moves
    tallies = groups.tallies()
    if not recipe.splits.stratify:
        if set(shares) <= {split for split, _ in buckets.counts}:
            return None
        tallies = (tally_clips(clips, recipe) for clips in buckets.batches())
    total = Merged(partial(add_tallies, recipe=recipe), TALLIES_AT_ONCE)
    for tally in tallies:
        total.add(tally)
    return choose_moves(total.total(), recipe)


def list_rows(
    listing: Listing, job: Job, scratch: str
) -> Iterable[Sequence[SourceRow]]:
    """Returns the blocks of a listing.

    With a table of events, only the whole listing shows which names are not unique. So
    the rows go to disk until it is complete.
    """
    if EventTable.of(job.recipe.events) is None:
        return listing.blocks()
    path = os.path.join(scratch, "rows.db")
    blocks = map(Batch[SourceRow], listing.blocks())
    return SortedValues(lambda rows: (rows[0].row,), blocks, path)


def lay_out_shards(found: Found, job: Job) -> Mapping[str, ShardLayout]:
    """Returns how each split is cut into shards."""
    return lay_out(None, found.buckets.counts, found.example_format, job.recipe)


def placed_clips(
    buckets: Buckets, layouts: Mapping[str, ShardLayout], recipe: Recipe, scratch: str
) -> Iterator[PlacedClips]:
    """Yields the clips of each bucket in order, with the measures of their groups."""
    measured = measure_groups(buckets.placed(), layouts, recipe, scratch)
    return (with_groups(placed, measured, recipe) for placed in buckets.placed())


def plan_shards(
    placed: Iterable[PlacedClips],
    layouts: Mapping[str, ShardLayout],
    example_format: ExampleFormat | None,
    job: Job,
    scratch: str,
) -> Iterator[ShardWork]:
    """Yields the work of each shard.

    The clips are in order, so the segments of a shard follow each other. If examples
    are mixed, the segments of all shards go to a file in the folder ``scratch``.
    """
    salt = job.recipe.sha256()
    cut: Iterable[tuple[str, Any]] = chain.from_iterable(
        cut_shards(p, layouts, job.recipe) for p in placed
    )
    with ExitStack() as stack:
        if job.recipe.shards.are_mixed:
            path = os.path.join(scratch, "segments.db")
            by_shard = SortedValues(lambda part: (part[0],), cut, path)
            cut = stack.enter_context(closing(by_shard))
        for name, parts in groupby(cut, key=itemgetter(0)):
            assert example_format is not None  # without clips there are no shards
            some = (part for _, part in parts)
            yield make_task((name, some), example_format, salt)


def sum_up(
    tally: BucketTally, found: Found, layouts: Mapping[str, ShardLayout], job: Job
) -> PlanSummary:
    """Sums the plan up: for the user, and for the end of the job."""
    summary = summarise(
        None,
        found.listing,
        found.example_format,
        layouts,
        [tally],
        found.moves,
        job.recipe.splits.hashed_shares(),
    )
    return announce_plan(summary, job.work_folder)


def plan_phase(job: Job, folder: str) -> PlanSummary:
    """Makes the plan, and stores it for the other phases."""
    with ExitStack() as stack:
        rejects = stack.enter_context(closing(ElementFile(folder, "rejects")))
        manifest = stack.enter_context(closing(ElementFile(folder, "manifest")))
        scratch = stack.enter_context(TemporaryDirectory(dir=folder))
        found = find_clips(job, scratch, rejects)
        stack.enter_context(closing(found.buckets))
        layouts = lay_out_shards(found, job)
        tallies = Merged(merge_tallies)

        def noted() -> Iterator[PlacedClips]:
            for placed in placed_clips(found.buckets, layouts, job.recipe, scratch):
                tally = tally_bucket(placed, layouts, found.example_format, job.recipe)
                tallies.add(tally)
                part = make_manifest_part(placed, layouts, job.recipe)
                manifest.extend([part])
                yield placed

        work = new_work(folder)
        work.extend(plan_shards(noted(), layouts, found.example_format, job, scratch))
        work.keep()
        return sum_up(tallies.total(), found, layouts, job)


def make_plan(job: Job, folder: str, processes: Workers) -> PlanSummary:
    """Calls :func:`plan_phase`, in a process that is watched if that is possible."""
    return processes.call(partial(_afresh, plan_phase, job, folder), job, "plan")


def _afresh(phase: Callable[[Job, str], _T], job: Job, folder: str, _: int) -> _T:
    """Calls a phase in an empty folder: a process before this one may have died."""
    files.delete_below(folder)
    files.make_folder(folder)
    return phase(job, folder)


def plan_local(job: Job, limits: Limits, sample: int = 0) -> Plan:
    """Returns a plan and the rejects by header; writes only into the work folder.

    With a sample of this many examples, it has a forecast of the run.
    """
    with phase_folder(job) as folder, Workers(limits) as processes:
        summary = make_plan(job, folder, processes)
        found = None
        if sample:
            works = stored_work(0, folder, 1)
            found = forecast(summary, works, sample, job, folder, processes)
        return Plan(summary, sort_rejects(stored(folder, "rejects")), found)
