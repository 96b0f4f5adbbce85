"""Measures of groups: those of their clips together, before shards are cut.

::

    clips, each with its own measure --by group--> measure of each group
      |                                                |
      +-> clips, each with the measure of its group <--+

A step of a feature that measures groups has ``measures_groups``, and
``measure_group``, whose result must not depend on the order of the clips.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

from beam_pipeline.inputs.splits import GROUP_SEPARATOR
from beam_pipeline.plan.clips import Clip
from beam_pipeline.plan.measures import FeatureMeasures
from beam_pipeline.plan.order import PlacedClips
from beam_pipeline.plan.shards import ShardLayout
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage.spilled import SortedValues

# The split and the name of a group, a feature, and the length of the measures of its
# clips. A column may put parts of a file into several splits, and nothing may leak from
# one to another. A clip whose feature has another shape is rejected when its shard is
# written, and must not end the plan.
GroupKey = tuple[str, str, int]


@functools.lru_cache(maxsize=16)
def group_steps(recipe: Recipe) -> Mapping[str, Any]:
    """Returns the steps of a recipe that measure groups, by the name of the feature.

    Raises
    ------
    RecipeError
        If a transform cannot be made, or has two steps that measure.
    """
    steps = FeatureMeasures.of(recipe).steps
    return {
        name: step
        for name, (_, step) in steps.items()
        if getattr(step, "measures_groups", False)
    }


def clip_measures(
    placed: PlacedClips, layouts: Mapping[str, ShardLayout], recipe: Recipe
) -> Iterator[tuple[GroupKey, bytes]]:
    """Yields what some clips contribute to the measures of their groups.

    Clips that are left out, also by ``num_elems``, contribute nothing.
    """
    steps, index = group_steps(recipe), placed.first_window
    for clip in placed.clips:
        if clip.examples and index < layouts[placed.split].total:
            yield from of_groups(clip, steps)
        index += clip.examples


def of_groups(clip: Clip, steps: Mapping[str, Any]) -> Iterator[tuple[GroupKey, bytes]]:
    """Yields those measures of a clip that are parts of its group's."""
    group = f"{clip.split}{GROUP_SEPARATOR}{clip.group}"
    for name, measured in clip.measured:
        if name in steps:
            yield (group, name, len(measured)), measured


def measure_groups(
    clips: Iterable[PlacedClips], layouts: Mapping[str, ShardLayout], recipe: Recipe
) -> dict[GroupKey, bytes]:
    """Returns the measures of all groups; those of clips go to disk before."""
    steps = group_steps(recipe)
    if not steps:
        return {}
    measures = (clip_measures(placed, layouts, recipe) for placed in clips)
    kept = SortedValues[tuple[GroupKey, bytes]](
        itemgetter(0), chain.from_iterable(measures)
    )
    with closing(kept):
        return {
            key: steps[key[1]].measure_group(measured for _, measured in of_clips)
            for key, of_clips in groupby(kept, key=itemgetter(0))
        }


def with_groups(
    placed: PlacedClips, measured: Mapping[GroupKey, bytes], recipe: Recipe
) -> PlacedClips:
    """Returns clips with the measures of their groups instead of their own."""
    steps = group_steps(recipe)
    if not steps:
        return placed
    clips = tuple(with_group(clip, measured, steps) for clip in placed.clips)
    return placed._replace(clips=clips)


def with_group(
    clip: Clip, measured: Mapping[GroupKey, bytes], steps: Mapping[str, Any]
) -> Clip:
    """Returns a clip with the measures of its group.

    A clip that is left out keeps its own, which nothing reads.
    """
    group = {key[1]: measured.get(key, own) for key, own in of_groups(clip, steps)}
    both = tuple((name, group.get(name, own)) for name, own in clip.measured)
    return clip._replace(measured=both)
