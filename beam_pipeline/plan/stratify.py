"""Stratified splits, which depend on the whole corpus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from beam_pipeline.inputs.splits import (
    Splitter,
    choose_salt,
    group_key,
    tally_salts,
)
from beam_pipeline.plan.batch import Batch
from beam_pipeline.plan.clips import Clip
from beam_pipeline.plan.copies import with_split
from beam_pipeline.recipe.clip_sections import Splits
from beam_pipeline.recipe.recipe import Recipe


def stratifies(splits: Splits) -> bool:
    """Returns whether the splits depend on the whole corpus."""
    return splits.stratify and splits.salt is None


def tally_clips(clips: Sequence[Clip], splits: Splits, seed: int) -> Any:
    """Counts what each split would hold of some clips, for each salt."""
    clips = [clip for clip in clips if clip.examples]  # others are left out
    return tally_salts(
        splits.hashed_shares() or {},
        [group_key(seed, clip.group) for clip in clips],
        [clip.label for clip in clips],
        [clip.examples for clip in clips],
    )


def choose_split_salt(tally: Any, splits: Splits) -> int:
    """Returns the salt for a corpus."""
    return choose_salt(splits.hashed_shares() or {}, tally) if tally else 0


def assign_splits(clips: Sequence[Clip], salt: int, recipe: Recipe) -> Any:
    """Returns the clips, each in the split of its group."""
    seed, copies = recipe.shards.seed, recipe.augmentation.copies
    splitter = Splitter(recipe.splits.hashed_shares() or {}, salt)
    return Batch(
        with_split(clip, splitter.split_of(group_key(seed, clip.group)), copies)
        for clip in clips
    )
