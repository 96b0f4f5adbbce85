"""What happens to windows before features are made: some are left out, others copied.

::

    window 0    window 1    window 2         of a clip, with --copies 2
    0  1  2     3  4  5     6  7  8          examples of the clip
    =  a  b     =  a  b     =  a  b          as it is, first copy, second copy

An example's number tells its window and its copy, and seeds what is random in it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import RecipeError, TransformError
from beam_pipeline.hashing import clip_key, hash64
from beam_pipeline.recipe.example_sections import Augmentation
from beam_pipeline.transforms.expressions import (
    STEP_FIELDS,
    naming_step,
    parse_augment,
    parse_selection,
)

FloatArray = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]

COPY_BITS = 16


@dataclass(frozen=True)
class WindowSteps:
    """The selections and augmentations of a recipe."""

    selections: tuple[Any, ...] = ()
    augmentations: tuple[Any, ...] = ()
    seed: int = 0
    copies: int = 0

    @classmethod
    def of(
        cls,
        keep: str,
        augmentation: Augmentation,
        seed: int,
        shape: tuple[int, ...],
        sample_rate_hz: int | None,
    ) -> WindowSteps:
        """Those of a recipe, tried on two silent windows.

        Raises
        ------
        RecipeError
            If one cannot be found, raises, or returns something of another shape.
        """
        made = cls(
            parse_selection(keep) if keep else (),
            parse_augment(augmentation.augment) if augmentation.augment else (),
            seed,
            augmentation.copies,
        )
        silence = np.zeros((2, *shape), np.float32)
        silence.flags.writeable = False
        keys = np.arange(2, dtype=np.uint64)
        for field, steps, text in (
            ("keep", made.selections, keep),
            ("augment", made.augmentations, augmentation.augment),
        ):
            if steps and sample_rate_hz is None:
                raise RecipeError(
                    field,
                    "needs one sample rate for all clips; give --sample-rate",
                    text,
                )
            for step in steps:
                try:
                    with naming_step(step, STEP_FIELDS[field]):
                        if field == "keep":
                            _checked_mask(step, silence, sample_rate_hz or 0)
                        else:
                            _checked_copy(step, silence, keys, sample_rate_hz or 0)
                except RecipeError:
                    raise
                except (Exception, SystemExit) as error:  # a person's code
                    raise RecipeError(
                        field,
                        f"fails on two silent windows of shape {silence.shape}: "
                        f"{type(error).__name__}: {error}",
                        text,
                    ) from error
        return made

    def chosen(
        self, windows: FloatArray, starts: Integers, sample_rate_hz: int, filepath: str
    ) -> npt.NDArray[np.bool_]:
        """Which windows stay, shape (n,); ``starts`` are for errors.

        Raises
        ------
        TransformError
            If a selection raises, or does not answer for each window.
        """
        kept = np.ones(len(windows), np.bool_)
        for step in self.selections:

            def select(some: slice, step: Any = step) -> npt.NDArray[np.bool_]:
                return _checked_mask(step, windows[some], sample_rate_hz)

            kept &= _tried(select, "keep", step, starts, filepath)
        return kept

    def augmented(
        self,
        windows: FloatArray,
        numbers: Integers,
        starts: Integers,
        sample_rate_hz: int,
        filepath: str,
        source: int,
    ) -> FloatArray:
        """Augmented windows; ``numbers`` are those of their examples in the clip.

        What is random in a copy depends on its window and on which copy it is, so that
        it stays the same where there are to be more of them.

        Raises
        ------
        TransformError
            If an augmentation raises, or returns something of another shape.
        """
        clip = np.uint64(clip_key(self.seed, filepath, source))
        window, copy = np.divmod(numbers, self.copies + 1)
        numbers = (window << COPY_BITS) + copy
        for at, step in enumerate(self.augmentations):
            # Another stream than that of random starts, and another for each step.
            keys = hash64(int(hash64(int(~clip), np.array([at]))[0]), numbers)

            def augment(
                some: slice,
                step: Any = step,
                windows: FloatArray = windows,
                keys: npt.NDArray[np.uint64] = keys,
            ) -> FloatArray:
                return _checked_copy(step, windows[some], keys[some], sample_rate_hz)

            windows = _tried(augment, "augment", step, starts, filepath)
        return windows


def _tried(
    apply: Callable[[slice], Any],
    field: str,
    step: Any,
    starts: Integers,
    filepath: str,
) -> Any:
    """What a step makes of all windows; if it fails, the error names one that does."""
    try:
        return apply(slice(None))
    except (Exception, SystemExit) as error:
        where = f"the windows from frame {starts[0]} to {starts[-1]} together"
        for at, start in enumerate(starts):
            try:
                apply(slice(at, at + 1))
            except (Exception, SystemExit):  # that it does is all that is asked
                where = f"the window at frame {start}"
                break
        name = type(step).__name__
        raise TransformError(
            filepath, f"{field}: {name}, {where}: {type(error).__name__}: {error}"
        ) from error


def _checked_mask(
    step: Any, windows: FloatArray, sample_rate_hz: int
) -> npt.NDArray[np.bool_]:
    mask = np.asarray(step.keep(windows, sample_rate_hz))
    if mask.dtype != np.bool_ or mask.shape != windows.shape[:1]:
        raise RecipeError(
            type(step).__name__,
            f"must return {len(windows)} booleans for windows {windows.shape}",
            f"{mask.dtype} {mask.shape}",
        )
    return mask


def _checked_copy(
    step: Any, windows: FloatArray, keys: npt.NDArray[np.uint64], sample_rate_hz: int
) -> FloatArray:
    made = np.asarray(step.augment(windows, keys, sample_rate_hz))
    if made.dtype != np.float32 or made.shape != windows.shape:
        raise RecipeError(
            type(step).__name__,
            f"must return float32 {windows.shape}, as it was given",
            f"{made.dtype} {made.shape}",
        )
    made = made.view()
    made.flags.writeable = False
    return made
