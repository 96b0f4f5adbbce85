"""Steps of features that depend on the clip or change copies alone, and their keys.

A key is 64 random bits for each step, window and copy. It depends on the seed, on the
clip's path and input, on the step, on the window's number in its clip and on the copy's
number. So a recipe with more copies gives the same first copies, and nothing depends on
shards, blocks or workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import RecipeError
from beam_pipeline.hashing import clip_key, hash64, text_key
from beam_pipeline.permutation import Integers
from beam_pipeline.recipe.sections import Augmentation
from beam_pipeline.transforms.base import Transform, chain_of, steps_of
from beam_pipeline.transforms.steps import TRANSFORM

Keys = npt.NDArray[np.uint64]

COPY_BITS = 16


class CopyKeys(NamedTuple):
    """Makes the keys of the copies of a clip's windows.

    ``bits`` are random bits of the clip, and not those of its random starts.
    """

    bits: int

    @classmethod
    def of(cls, seed: int, filepath: str, source: int) -> CopyKeys:
        """Returns the keys in a clip, under the seed of a recipe."""
        return cls(int(~np.uint64(clip_key(seed, filepath, source))))

    def of_augmentation(self, at: int, numbers: Integers) -> Keys:
        """Returns the keys for the step number ``at`` of the recipe's ``augment``.

        ``numbers`` are those of :func:`copy_numbers`.
        """
        return self._of(at, numbers)

    def of_feature(self, name: str, at: int, numbers: Integers) -> Keys:
        """Returns the keys for step ``at`` of those of a feature that change copies."""
        return self._of(text_key(name, str(at)) >> 1, numbers)

    def _of(self, step: int, numbers: Integers) -> Keys:
        return hash64(int(hash64(self.bits, np.array([step]))[0]), numbers)


def copy_numbers(windows: Integers, copies: Integers) -> Integers:
    """Returns a number for each pair of a window's number and a copy's."""
    return (windows << COPY_BITS) + copies


Array = npt.NDArray[Any]


def measuring_step(transform: Transform, name: str) -> int | None:
    """Returns the number of the step that measures clips; None if there is none.

    Raises
    ------
    RecipeError
        If there are two.
    """
    steps = enumerate(steps_of(transform))
    found = [at for at, step in steps if getattr(step, "measures_clips", False)]
    if len(found) > 1:
        raise RecipeError(
            f"{TRANSFORM.field} {name}",
            "must have at most one step that measures whole clips",
            len(found),
        )
    return found[0] if found else None


def changes_copies(step: Transform) -> bool:
    """Whether a step changes augmented copies, and nothing else."""
    return hasattr(step, "on_copies")


def check_copies(
    transforms: Mapping[str, Transform], augmentation: Augmentation
) -> None:
    """Checks that something changes copies, and that there are copies to change.

    Raises
    ------
    RecipeError
        If a step changes copies and there are none, or the other way round.
    """
    changing = [
        name
        for name, transform in transforms.items()
        if any(map(changes_copies, steps_of(transform)))
    ]
    if changing and not augmentation.copies:
        raise RecipeError(
            f"{TRANSFORM.field} {changing[0]}",
            "has a step that changes nothing but copies; give `copies`",
            0,
        )
    if augmentation.copies and not (augmentation.augment or changing):
        raise RecipeError(
            "copies and augment",
            "must be given together: the number of copies, and the steps that alter "
            "them; a feature may alter them instead, with spec_augment",
            (augmentation.copies, augmentation.augment),
        )


class Origins(NamedTuple):
    """Which windows and copies of a clip some examples are.

    Attributes
    ----------
    keys : CopyKeys
        The random keys of the clip.
    numbers : numpy.ndarray, shape (n,), int64
        See :func:`.feature_steps.copy_numbers`.
    copies : numpy.ndarray, shape (n,), int64
        The number of each example's copy; 0 for a window as it is.
    measured : tuple of (str, bytes)
        The measure of the clip for each feature that has a step which needs it.
    """

    keys: CopyKeys
    numbers: Integers
    copies: Integers
    measured: tuple[tuple[str, bytes], ...] = ()

    def place(self, transform: Transform, name: str, rows: Integers) -> Transform:
        """Returns the transform of a feature for some rows of the examples.

        ``name`` is the feature's.
        """
        copies = np.flatnonzero(self.copies[rows])
        placed: list[Transform] = []
        at = 0
        for step in steps_of(transform):
            if getattr(step, "measures_clips", False):
                measured = dict(self.measured)[name]
                placed.append(step.of_measured(measured))  # type: ignore[attr-defined]
            else:
                placed.append(step)
            if copies.size and changes_copies(step):
                numbers = self.numbers[rows[copies]]
                keys = self.keys.of_feature(name, at, numbers)
                placed.append(_OnCopies(step, copies, keys))
                at += 1
        return chain_of(placed)


@dataclass(frozen=True, eq=False)
class _OnCopies:
    """Changes the features of some rows, with the ``on_copies`` of a step."""

    step: Any
    rows: Integers
    keys: Keys

    def __call__(self, features: Array, sample_rate_hz: int) -> Array:
        features = np.array(features)
        chosen = features[self.rows]
        chosen.flags.writeable = False
        made = np.asarray(self.step.on_copies(chosen, self.keys, sample_rate_hz))
        if made.dtype != chosen.dtype or made.shape != chosen.shape:
            raise RecipeError(
                type(self.step).__name__,
                "must return copies of the type and shape of its features, "
                f"{chosen.dtype} {chosen.shape}",
                f"{made.dtype} {made.shape}",
            )
        features[self.rows] = made
        return features
