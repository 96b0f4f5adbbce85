"""Measures of whole clips that steps of features need, taken when a clip is probed.

::

    clip -> windows -> the steps before -> the step that measures -> some bytes
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.examples.feature_steps import measuring_step
from beam_pipeline.examples.features import resolve_transforms
from beam_pipeline.examples.trial import run_on_windows
from beam_pipeline.examples.windows import WindowPlan, slice_windows, window_blocks
from beam_pipeline.inputs.sources import Input
from beam_pipeline.plan.clip_audio import opened_clip, step_clip
from beam_pipeline.plan.clips import Clip
from beam_pipeline.plan.segments import Integers, Segment, locate_examples
from beam_pipeline.recipe.recipe import Recipe
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
