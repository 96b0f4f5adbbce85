"""Splits that the whole corpus decides."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from beam_pipeline.inputs.splits import (
    Splitter,
    choose_salt,
    group_key,
    shares_of,
    tally_salts,
)
from beam_pipeline.plan.batch import Batch
from beam_pipeline.plan.clips import Clip
from beam_pipeline.plan.copies import with_split
from beam_pipeline.recipe.recipe import Recipe


def stratifies(recipe: Recipe) -> bool:
    """Whether splits are to be decided by the whole corpus."""
    return recipe.stratify and recipe.split_salt is None


def tally_clips(clips: Sequence[Clip], recipe: Recipe) -> Any:
    """What the splits would hold of a block of clips under each salt."""
    return tally_salts(
        shares_of(recipe) or {},
        [group_key(recipe.seed, clip.group) for clip in clips],
        [clip.label for clip in clips],
        [clip.windows for clip in clips],
    )


def choose_split_salt(tally: Any, recipe: Recipe) -> int:
    """The salt for a corpus."""
    return choose_salt(shares_of(recipe) or {}, tally) if tally else 0


def assign_splits(clips: Sequence[Clip], salt: int, recipe: Recipe) -> Any:
    """A block of clips, each in the split of its group."""
    splitter = Splitter(shares_of(recipe) or {}, salt)
    return Batch(
        with_split(clip, splitter.split_of(group_key(recipe.seed, clip.group)), recipe)
        for clip in clips
    )
