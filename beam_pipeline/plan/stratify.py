"""Splits that depend on the whole corpus: some groups leave the split of their hash.

::

    clips -> counts of groups -> tally -> balance -> moves, which the recipe keeps
      |                                                |
      +-> clips, each with its split <-----------------+

With the moves in its recipe, a group's split follows from its name alone. So nothing
moves when files are added to the data set, or recorded again with its recipe.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np

from beam_pipeline.inputs.splits import Splitter, group_key, places_of
from beam_pipeline.plan.balance import balance
from beam_pipeline.plan.clips import Clip, with_split
from beam_pipeline.plan.group_counts import (
    EVERYTHING,
    CountedParts,
    GroupCounts,
    GroupTally,
    add_counts,
    count_groups,
    merge_group_tallies,
    tally_groups,
)
from beam_pipeline.recipe.moved_groups import moved_key
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage.pages import Batch
from beam_pipeline.storage.spilled import SortedValues

# A tally may hold some MB.
TALLIES_AT_ONCE = 8

# Group, as `moved_key` names it, to its split.
Moves = Mapping[int, str]


def tally_part(part: tuple[int, Iterable[GroupCounts]], recipe: Recipe) -> GroupTally:
    """Returns the tally of a part, which has all counts of its groups."""
    return tally_groups(add_counts(part[1]), hash_splitter(recipe))


def tally_clips(clips: Iterable[Clip], recipe: Recipe) -> GroupTally:
    """Returns the tally of some clips, for a recipe that does not stratify."""
    return tally_groups(count_groups(clips, recipe), hash_splitter(recipe))


def add_tallies(tallies: Iterable[GroupTally], recipe: Recipe) -> GroupTally:
    """Calls :func:`merge_group_tallies`."""
    return merge_group_tallies(tallies, hash_splitter(recipe))


def tally_corpus(blocks: Iterable[Sequence[Clip]], recipe: Recipe) -> GroupTally:
    """Returns the tally of all clips; the counts of groups go to disk."""
    if not recipe.splits.stratify:
        return _merged((tally_clips(clips, recipe) for clips in blocks), recipe)
    parts = CountedParts(recipe)
    kept = SortedValues[tuple[int, GroupCounts]](lambda part: (part[0],))
    with closing(kept):
        for clips in blocks:
            kept.extend(parts.add(clips))
        kept.extend(parts.flush())
        tallies = (
            tally_part((number, (counts for _, counts in some)), recipe)
            for number, some in groupby(kept, key=itemgetter(0))
        )
        return _merged(tallies, recipe)


def _merged(tallies: Iterable[GroupTally], recipe: Recipe) -> GroupTally:
    """Returns the sum of many tallies; some of them are in memory."""
    waiting: list[GroupTally] = []
    for tally in tallies:
        waiting.append(tally)
        if len(waiting) == TALLIES_AT_ONCE:
            waiting = [add_tallies(waiting, recipe)]
    return add_tallies(waiting, recipe)


def hash_splitter(recipe: Recipe) -> Splitter:
    """Returns the splitter of a recipe before any group is moved."""
    return Splitter(recipe.splits.hashed_shares() or {})


def choose_moves(tally: GroupTally, recipe: Recipe) -> Moves | None:
    """Returns the groups to move, and their splits.

    Without ``stratify``, groups move only to make folds even, or if a split would be
    empty and there are groups enough to fill all. None means that the hash left no
    split empty.
    """
    splitter = hash_splitter(recipe)
    if is_balanced(recipe):
        moved = balance(tally, splitter)
    elif all(tally.examples.get(EVERYTHING, ())):
        return None
    else:
        moved = fill_empty(tally, splitter)
    return {moved_key(key): split for key, split in moved.items()}


def is_balanced(recipe: Recipe) -> bool:
    """Whether groups move to make the splits even, although none is empty."""
    return recipe.splits.stratify or recipe.splits.folds is not None


def fill_empty(tally: GroupTally, splitter: Splitter) -> dict[int, str]:
    """Returns one group for each empty split, by its key, if there are enough.

    It is the group that the hash puts nearest to the split, among those of the split
    with the largest share. So where one split is empty, one more group in the corpus
    moves at most one of the groups that were there.
    """
    keys = np.unique(tally.movable.keys)
    if len(keys) < len(splitter.names):
        return {}
    numbers, places = splitter.numbers_of(keys), places_of(keys)
    groups = np.bincount(numbers, minlength=len(splitter.names))
    by_share = sorted(range(len(groups)), key=lambda k: -splitter.shares[k])
    moved: dict[int, str] = {}
    for empty in np.flatnonzero(groups == 0).tolist():
        source = next(k for k in by_share if groups[k] > 1)
        distances = splitter.distances(places, empty)
        distances[numbers != source] = np.inf
        group = int(distances.argmin())
        moved[int(keys[group])] = splitter.names[empty]
        numbers[group] = empty
        groups[source] -= 1
    return moved


def assign_splits(clips: Sequence[Clip], moves: Moves | None, recipe: Recipe) -> Any:
    """Returns the clips, each in the split of its group."""
    seed, copies = recipe.shards.seed, recipe.augmentation.copies
    splitter = Splitter(recipe.splits.hashed_shares() or {}, moves=moves)
    return Batch(
        with_split(clip, splitter.split_of(group_key(seed, clip.group)), copies)
        for clip in clips
    )
