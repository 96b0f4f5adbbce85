"""Selections and augmentations: which windows are left out, and which are copied.

::

    window 0    window 1    window 2         of a clip, with copies = 2
    0  1  2     3  4  5     6  7  8          examples of the clip
    =  a  b     =  a  b     =  a  b          unchanged, first copy, second copy

The number of an example gives its window and its copy, and seeds its random values.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import RecipeError
from beam_pipeline.examples.feature_steps import CopyKeys, Origins, copy_numbers
from beam_pipeline.examples.sound_folders import load_step
from beam_pipeline.examples.trial import (
    run_on_windows,
    silent_windows,
    the_sample_rate,
    trying,
)
from beam_pipeline.permutation import Integers
from beam_pipeline.recipe.sections import Augmentation
from beam_pipeline.transforms.own_code import ByValue
from beam_pipeline.transforms.steps import (
    AUGMENTATION,
    SELECTION,
    parse_steps,
)

FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True)
class WindowSteps:
    """The selections and augmentations of a recipe."""

    selections: tuple[Any, ...] = ()
    augmentations: tuple[Any, ...] = ()
    seed: int = 0
    copies: int = 0

    def __getstate__(self) -> dict[str, Any]:
        steps = ("selections", "augmentations")
        return vars(self) | {name: ByValue(getattr(self, name)) for name in steps}

    @classmethod
    def of(
        cls,
        keep: str,
        augmentation: Augmentation,
        seed: int,
        shape: tuple[int, ...],
        sample_rate_hz: int | None,
    ) -> WindowSteps:
        """Returns the steps of a recipe, after a trial on two silent windows.

        Parameters
        ----------
        keep : str
            The expression of the selections; empty if there are none.
        shape : tuple of int
            The shape of one window.
        sample_rate_hz : int or None
            None if clips have different rates.

        Raises
        ------
        RecipeError
            If a step does not exist, raises, returns an array of the wrong type or
            shape, or if there are steps and no single sample rate.
        """
        augment = augmentation.augment
        made = cls(
            parse_steps(keep, SELECTION) if keep else (),
            parse_steps(augment, AUGMENTATION) if augment else (),
            seed,
            augmentation.copies,
        )
        silence = silent_windows(shape)
        if made.selections:
            rate = the_sample_rate(sample_rate_hz, SELECTION, keep)
            for step in made.selections:
                with trying(step, SELECTION, silence, keep):
                    _checked_mask(step, rate, silence)
        if made.augmentations:
            rate = the_sample_rate(sample_rate_hz, AUGMENTATION, augment)
            keys = np.arange(len(silence), dtype=np.uint64)
            for step in made.augmentations:
                with trying(step, AUGMENTATION, silence, augment):
                    _checked_copy(load_step(step, rate), rate, silence, keys)
        return made

    def selected(
        self, windows: FloatArray, starts: Integers, sample_rate_hz: int, filepath: str
    ) -> npt.NDArray[np.bool_]:
        """Returns which windows pass every selection, shape (n,).

        Parameters
        ----------
        starts : numpy.ndarray, shape (n,), int64
            The first frame of each window; only errors use it.

        Raises
        ------
        TransformError
            If a selection raises, or does not return one boolean for each window.
        """
        selected = np.ones(len(windows), np.bool_)
        for step in self.selections:
            run = partial(_checked_mask, step, sample_rate_hz)
            name = f"{SELECTION.field}: {type(step).__name__}"
            selected &= run_on_windows(run, (windows,), name, starts, filepath)
        return selected

    def augmented(
        self,
        windows: FloatArray,
        numbers: Integers,
        starts: Integers,
        sample_rate_hz: int,
        filepath: str,
        source: int,
    ) -> FloatArray:
        """Returns windows after every augmentation, in the order of the recipe.

        :mod:`.feature_steps` says what the random values depend on.

        Parameters
        ----------
        numbers : numpy.ndarray, shape (n,), int64
            The number of each window's example in the clip.
        starts : numpy.ndarray, shape (n,), int64
            The first frame of each window; only errors use it.

        Raises
        ------
        TransformError
            If an augmentation raises, or returns another type or shape.
        """
        of_clip = CopyKeys.of(self.seed, filepath, source)
        numbers = copy_numbers(*np.divmod(numbers, self.copies + 1))
        for at, step in enumerate(self.augmentations):
            keys = of_clip.of_augmentation(at, numbers)
            loaded = load_step(step, sample_rate_hz)
            run = partial(_checked_copy, loaded, sample_rate_hz)
            name = f"{AUGMENTATION.field}: {type(step).__name__}"
            windows = run_on_windows(run, (windows, keys), name, starts, filepath)
        return windows

    def origins(
        self,
        numbers: Integers,
        copies: Integers,
        filepath: str,
        source: int,
        measured: tuple[tuple[str, bytes], ...],
    ) -> Origins:
        """Returns what the steps of features need of some examples of a clip.

        ``numbers`` are those of the examples in the clip, and ``copies`` those of their
        copies; ``measured`` is that of the clip.
        """
        keys = CopyKeys.of(self.seed, filepath, source)
        windows = (numbers - copies) // (self.copies + 1)
        return Origins(keys, copy_numbers(windows, copies), copies, measured)


def _checked_mask(
    step: Any, sample_rate_hz: int, windows: FloatArray
) -> npt.NDArray[np.bool_]:
    mask = np.asarray(step.keep(windows, sample_rate_hz))
    if mask.dtype != np.bool_ or mask.shape != windows.shape[:1]:
        raise RecipeError(
            type(step).__name__,
            f"must return {len(windows)} booleans for windows of shape {windows.shape}",
            f"{mask.dtype} {mask.shape}",
        )
    return mask


def _checked_copy(
    step: Any, sample_rate_hz: int, windows: FloatArray, keys: npt.NDArray[np.uint64]
) -> FloatArray:
    made = np.asarray(step.augment(windows, keys, sample_rate_hz))
    if made.dtype != np.float32 or made.shape != windows.shape:
        raise RecipeError(
            type(step).__name__,
            "must return float32 values of the same shape as its windows, "
            f"{windows.shape}",
            f"{made.dtype} {made.shape}",
        )
    made = made.view()
    made.flags.writeable = False
    return made
