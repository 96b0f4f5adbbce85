"""Transforms that place clips: give them splits, and number their examples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsDict, AsSingleton
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_pipeline.pipeline.job import Job
from beam_pipeline.plan.clips import Clip
from beam_pipeline.plan.group_counts import CountedParts
from beam_pipeline.plan.group_measures import (
    clip_measures,
    group_steps,
    measure_group,
    with_groups,
)
from beam_pipeline.plan.order import (
    BucketBatches,
    BucketKey,
    count_before,
    count_bucket,
    place_bucket,
)
from beam_pipeline.plan.stratify import (
    add_tallies,
    assign_splits,
    choose_moves,
    tally_clips,
    tally_part,
)
from beam_pipeline.recipe.example_sections import Shards
from beam_pipeline.recipe.recipe import Recipe


def at_the_end(value: Any) -> WindowedValue:
    """Wraps an output of ``finish_bundle``, where Beam knows no window for it."""
    window = GlobalWindow()
    return WindowedValue(value, window.max_timestamp(), [window])


@dataclass(eq=False)
class AssignSplits(beam.PTransform):  # type: ignore[misc]
    """[Clip] -> [Clip], each with a split; and the groups that were moved, or None.

    Clips have their splits already, unless the recipe stratifies or a split is empty.
    Then the sums of what splits hold decide, and those groups that could be moved,
    which is all that a worker keeps in memory.
    """

    job: Job

    def expand(self, clips: beam.PCollection) -> tuple[beam.PCollection, ...]:
        recipe = self.job.recipe
        if self.job.splits_are_decided():
            given = beam.Create([recipe.splits.moves], reshuffle=False)
            return clips, clips.pipeline | "GivenMoves" >> given
        tally = TallyGroups(recipe) if recipe.splits.stratify else TallyClips(recipe)
        moves = (
            clips
            | tally  # GroupTally
            | "AddTallies" >> beam.CombineGlobally(add_tallies, recipe)
            | "ChooseMoves" >> beam.Map(choose_moves, recipe)
        )
        assigned = clips | "AssignSplits" >> beam.Map(
            assign_splits, AsSingleton(moves), recipe
        )
        return assigned, moves


@dataclass(eq=False)
class TallyClips(beam.PTransform):  # type: ignore[misc]
    """[Clip] -> GroupTally of its groups, without classes."""

    recipe: Recipe

    def expand(self, clips: beam.PCollection) -> beam.PCollection:
        return clips | "TallyClips" >> beam.Map(tally_clips, self.recipe)


@dataclass(eq=False)
class TallyGroups(beam.PTransform):  # type: ignore[misc]
    """[Clip] -> GroupTally of each part of the groups, by class."""

    recipe: Recipe

    def expand(self, clips: beam.PCollection) -> beam.PCollection:
        return (
            clips
            | "CountGroups" >> beam.ParDo(CountGroups(self.recipe))
            | "GroupParts" >> beam.GroupByKey()
            | "TallyParts" >> beam.Map(tally_part, self.recipe)
        )


@dataclass(eq=False)
class CountGroups(beam.DoFn):  # type: ignore[misc]
    """Calls :class:`CountedParts`: [Clip] -> (part, GroupCounts)."""

    recipe: Recipe

    def start_bundle(self) -> None:
        self._parts = CountedParts(self.recipe)

    def process(self, clips: Sequence[Clip]) -> Iterator[tuple[int, Any]]:
        yield from self._parts.add(clips)

    def finish_bundle(self) -> Iterator[Any]:
        return map(at_the_end, self._parts.flush())


@dataclass(eq=False)
class IndexClips(beam.PTransform):  # type: ignore[misc]
    """[Clip] -> PlacedClips, by a prefix sum over buckets; and (bucket, examples).

    No worker holds all buckets.
    """

    shards: Shards

    def expand(self, clips: beam.PCollection) -> tuple[beam.PCollection, ...]:
        keyed = clips | "KeyByBucket" >> beam.ParDo(KeyByBucket(self.shards))
        # Counted before the shuffle, so that its output is read only once.
        counts = (
            keyed
            | "CountWindows" >> beam.MapTuple(count_bucket)
            | "CountBuckets" >> beam.CombinePerKey(sum)
        )
        placed = (
            keyed
            | "GroupBuckets" >> beam.GroupByKey()
            | "PlaceBuckets" >> beam.Map(place_counted, AsDict(counts), self.shards)
        )
        return placed, counts


@dataclass(eq=False)
class KeyByBucket(beam.DoFn):  # type: ignore[misc]
    """Calls :class:`BucketBatches`: [Clip] -> (bucket, [Clip])."""

    shards: Shards

    def start_bundle(self) -> None:
        self._batches = BucketBatches(self.shards)

    def process(self, clips: Sequence[Clip]) -> Iterator[tuple[BucketKey, Any]]:
        yield from self._batches.add(clips)

    def finish_bundle(self) -> Iterator[Any]:
        return map(at_the_end, self._batches.flush())


def place_counted(
    keyed: tuple[BucketKey, Iterable[Sequence[Clip]]],
    counts: Mapping[BucketKey, int],
    shards: Shards,
) -> Any:
    """Calls :func:`place_bucket`: (bucket, [[Clip]]) -> PlacedClips."""
    key, parts = keyed
    return place_bucket(key, parts, count_before(key, counts), shards)


@dataclass(eq=False)
class MeasureGroups(beam.PTransform):  # type: ignore[misc]
    """PlacedClips -> PlacedClips, with the measures of their groups.

    A worker keeps the measures of all groups in memory, if the recipe has any.
    """

    layouts: beam.PCollection
    recipe: Recipe

    def expand(self, placed: beam.PCollection) -> beam.PCollection:
        if not group_steps(self.recipe):
            return placed
        layouts = AsSingleton(self.layouts)
        measured = (
            placed
            | "ClipMeasures" >> beam.FlatMap(clip_measures, layouts, self.recipe)
            | "GroupMeasures" >> beam.GroupByKey()
            | "MeasureGroup" >> beam.Map(measure_group, self.recipe)
        )
        return placed | "WithGroups" >> beam.Map(
            with_groups, AsDict(measured), self.recipe
        )
