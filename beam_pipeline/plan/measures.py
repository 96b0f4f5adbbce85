"""Measures of whole clips that steps of features need, taken when a clip is probed.

::

    clip -> windows -> the steps before -> the step that measures -> some bytes

    clips, each with its own measure --by group--> measure of each group
      |                                                |
      +-> clips, each with the measure of its group <--+

A step of a feature that measures groups has ``measures_groups``, and
``measure_group``, whose result must not depend on the order of the clips.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby
from operator import itemgetter
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.examples.feature_steps import measuring_step
from beam_pipeline.examples.features import resolve_transforms
from beam_pipeline.examples.trial import run_on_windows
from beam_pipeline.examples.windows import WindowPlan, slice_windows, window_blocks
from beam_pipeline.inputs.sources import Input
from beam_pipeline.inputs.splits import GROUP_SEPARATOR
from beam_pipeline.plan.clip_audio import opened_clip, step_clip
from beam_pipeline.plan.clips import Clip
from beam_pipeline.plan.segments import Integers, PlacedClips, Segment, locate_examples
from beam_pipeline.plan.shards import ShardLayout
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage.spilled import SortedValues
from beam_pipeline.transforms.base import (
    Transform,
    apply_transform,
    chain_of,
    steps_of,
)

# Frames of the stretch that is measured at once.
_BLOCK_FRAMES = 1 << 18


@dataclass(frozen=True)
class FeatureMeasures:
    """The steps of a recipe's features that measure whole clips.

    ``steps`` has, by feature name, the transform before such a step, and the step.
    """

    recipe: Recipe
    steps: Mapping[str, tuple[Transform, Any]]

    @classmethod
    def of(cls, recipe: Recipe) -> FeatureMeasures:
        """Returns those of a recipe.

        Raises
        ------
        RecipeError
            If a transform cannot be made, or has two such steps.
        """
        transforms = resolve_transforms(recipe.features, recipe.audio.dtype)
        found = {}
        for name, transform in transforms.items():
            at = measuring_step(transform, name)
            if at is not None:
                steps = steps_of(transform)
                found[name] = chain_of(steps[:at]), steps[at]
        return cls(recipe, found)

    def __bool__(self) -> bool:
        return bool(self.steps)

    def measure(self, clip: Clip, inputs: Sequence[Input]) -> Clip:
        """Returns the clip with the measure of each feature; decodes it for each.

        The examples of the clip are still its windows, without copies.

        Raises
        ------
        ClipError
            If decoding or a transform fails.
        """
        measured = tuple(
            (name, step.measure(self._features(name, before, clip, inputs)))
            for name, (before, step) in self.steps.items()
        )
        return clip._replace(measured=measured)

    def _features(
        self, name: str, before: Transform, clip: Clip, inputs: Sequence[Input]
    ) -> Iterator[npt.NDArray[Any]]:
        rate = clip.sample_rate_hz
        run = partial(apply_transform, before, sample_rate_hz=rate)
        for starts, windows in self._windows(clip, inputs):
            yield run_on_windows(
                run, (windows,), f"feature {name}", starts, clip.filepath
            )

    def _windows(
        self, clip: Clip, inputs: Sequence[Input]
    ) -> Iterator[tuple[Integers, npt.NDArray[np.float32]]]:
        """Yields some starts, and the windows from there, in blocks."""
        # A clip without a split has no copies yet: its examples are its windows.
        segment = Segment(clip._replace(split=""), 0, clip.examples, 0)
        starts, _ = locate_examples(segment, self.recipe)
        plan = WindowPlan.of(self.recipe.windows, clip.sample_rate_hz, clip.frames)
        length, audio = plan.length, self.recipe.audio
        with opened_clip(clip, inputs, audio) as decoder:
            reader = step_clip(decoder, clip, audio)
            for block in window_blocks(starts, length, _BLOCK_FRAMES):
                first, stop = int(block[0]), int(block[-1]) + length
                frames = reader.read(first, min(stop, clip.frames))
                yield block, slice_windows(frames, first, block, length)


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
