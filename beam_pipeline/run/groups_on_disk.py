"""What the clips of each group have together; what each clip has is on disk.

::

    clips -> counts or measures, on disk --by group--> those of one group after another
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from operator import itemgetter

from beam_pipeline.plan.clips import Clip
from beam_pipeline.plan.group_counts import CountedParts, GroupCounts, GroupTally
from beam_pipeline.plan.group_measures import (
    GroupKey,
    clip_measures,
    group_steps,
    measure_group,
)
from beam_pipeline.plan.order import PlacedClips
from beam_pipeline.plan.shards import ShardLayout
from beam_pipeline.plan.stratify import tally_part
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage.spilled import SortedValues


class CountedGroups:
    """The examples of each group and class, on disk."""

    def __init__(self, recipe: Recipe, path: str):
        self._recipe = recipe
        self._parts = CountedParts(recipe)
        self._kept = SortedValues[tuple[int, GroupCounts]](
            lambda part: (part[0],), path=path
        )

    def add(self, clips: Sequence[Clip]) -> None:
        self._kept.extend(self._parts.add(clips))

    def tallies(self) -> Iterator[GroupTally]:
        """Yields the tally of each part of the groups."""
        self._kept.extend(self._parts.flush())
        for number, parts in groupby(self._kept, key=itemgetter(0)):
            counts = (counts for _, counts in parts)
            yield tally_part((number, counts), self._recipe)

    def close(self) -> None:
        self._kept.close()


def measure_groups(
    clips: Iterable[PlacedClips],
    layouts: Mapping[str, ShardLayout],
    recipe: Recipe,
    scratch: str,
) -> dict[GroupKey, bytes]:
    """Returns the measures of all groups, if the recipe has any.

    Those of clips go to disk, so that each group's come together.
    """
    if not group_steps(recipe):
        return {}
    kept = SortedValues[tuple[GroupKey, bytes]](
        itemgetter(0), path=os.path.join(scratch, "measures.db")
    )
    with closing(kept):
        for placed in clips:
            kept.extend(clip_measures(placed, layouts, recipe))
        return dict(
            measure_group((key, (measured for _, measured in clips)), recipe)
            for key, clips in groupby(kept, key=itemgetter(0))
        )
