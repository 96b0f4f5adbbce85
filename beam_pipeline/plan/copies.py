"""Augmented copies: which splits have them, and how examples are numbered.

::

    window 0    window 1    window 2         of a clip, with copies = 2
    0  1  2     3  4  5     6  7  8          examples of the clip
    =  a  b     =  a  b     =  a  b          unchanged, first copy, second copy
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from beam_pipeline.errors import RecipeError
from beam_pipeline.examples.random_keys import Integers
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.plan.clips import Clip

# Copies are for training; evaluation data stay unchanged.
SPLITS_WITH_COPIES = (DEFAULT_SPLIT, "train")


def examples_of(windows: int, split: str, copies: int) -> int:
    """Returns how many examples a number of windows gives in a split."""
    return windows * (1 + copies_in(copies, split))


def with_split(clip: Clip, split: str, copies: int) -> Clip:
    """Returns a clip in a split, with the copies that its windows have there."""
    windows = clip.examples // (1 + copies_in(copies, clip.split))
    examples = examples_of(windows, split, copies)
    return clip._replace(split=split, examples=examples)


def check_copies(copies: int, splits: Iterable[str]) -> None:
    """Raises RecipeError if the recipe asks for copies and no split has them."""
    names = list(splits)
    if copies and names and not any(copies_in(copies, n) for n in names):
        raise RecipeError(
            "copies",
            f"need a split named train, but the splits are {', '.join(names)}",
            copies,
        )


def copies_in(copies: int, split: str) -> int:
    """Returns how many augmented copies each window of a split has."""
    return copies if split in SPLITS_WITH_COPIES else 0


def example_numbers(first: int, count: int, copies: int) -> tuple[Integers, Integers]:
    """Returns (windows, copies) of a clip's examples ``first .. first + count - 1``.

    >>> [part.tolist() for part in example_numbers(1, 4, 2)]
    [[0, 0, 1, 1], [1, 2, 0, 1]]
    """
    window, copy = np.divmod(np.arange(first, first + count), copies + 1)
    return window, copy
