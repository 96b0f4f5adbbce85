"""Transforms that place clips: give them splits, and number their examples."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.pvalue import AsDict, AsSingleton

from beam_pipeline.inputs.splits import add_tallies
from beam_pipeline.pipeline.sink import at_the_end
from beam_pipeline.plan.clips import Clip
from beam_pipeline.plan.order import (
    BucketBatches,
    BucketKey,
    count_before,
    count_bucket,
    place_bucket,
)
from beam_pipeline.plan.stratify import (
    assign_splits,
    choose_split_salt,
    stratifies,
    tally_clips,
)
from beam_pipeline.recipe.example_sections import Shards
from beam_pipeline.recipe.recipe import Recipe


@dataclass(eq=False)
class AssignSplits(beam.PTransform):  # type: ignore[misc]
    """[Clip] -> [Clip], each with a split; and the salt that decided the splits.

    The recipe gives the salt, and clips have their splits already, unless the recipe
    stratifies. Then this chooses the salt by the sums of what each split would hold,
    which is all that a worker keeps in memory.
    """

    recipe: Recipe

    def expand(self, clips: beam.PCollection) -> tuple[beam.PCollection, ...]:
        if not stratifies(self.recipe.splits):
            given = beam.Create([self.recipe.splits.salt], reshuffle=False)
            return clips, clips.pipeline | "GivenSalt" >> given
        salt = (
            clips
            | "TallySalts"
            >> beam.Map(tally_clips, self.recipe.splits, self.recipe.shards.seed)
            | "AddTallies" >> beam.CombineGlobally(add_tallies)
            | "ChooseSalt" >> beam.Map(choose_split_salt, self.recipe.splits)
        )
        assigned = clips | "AssignSplits" >> beam.Map(
            assign_splits, AsSingleton(salt), self.recipe
        )
        return assigned, salt


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
