"""What groups of clips hold: their examples of each class, counted in arrays.

::

    clips --block by block--> counts of groups --by the first bits of their hash-->
    parts with whole groups --> GroupTally of each part --> GroupTally of all

A tally keeps the sums of all groups, and of each class only some groups, so its size
does not grow with the number of groups.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.inputs.labels import label_parts
from beam_pipeline.inputs.splits import Splitter, group_key
from beam_pipeline.plan.clips import Clip, copies_in
from beam_pipeline.recipe.recipe import Recipe

# The row of a count that is over all classes. No class has an empty name.
EVERYTHING = ""
# Ten million groups in 256 parts give 40 000 in each.
PART_BITS = 8
# Number of clips whose counts wait for others: a few MB.
CLIPS_COUNTED = 1 << 16
# Of each class, this many groups of each split may change to another one. A hash puts
# some sqrt(n / 4) of a class' n groups into wrong splits, so this is enough for most
# classes of up to 250 000 groups. Shares in larger classes are within 0.1 % anyway.
MOVABLE = 256

Integers = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]


class GroupCounts(NamedTuple):
    """How many examples of each class some groups have, as a sparse matrix.

    Entry i says that the group with the key ``keys[i]`` has ``examples[i]`` examples of
    the class ``names[classes[i]]``. Entries are in the order of keys, then of classes,
    and no two are of the same group and class. Names are sorted.
    """

    names: tuple[str, ...]
    keys: Keys
    classes: Integers
    examples: Integers

    @classmethod
    def summed(
        cls, names: Sequence[str], keys: Keys, classes: Integers, examples: Integers
    ) -> GroupCounts:
        """Returns entries in order; those of the same group and class are added up.

        ``names`` may be in any order, and more than there are in the entries.
        """
        used = np.unique(classes)
        kept = sorted(names[k] for k in used)
        place = {name: k for k, name in enumerate(kept)}
        number = np.zeros(len(names), np.int64)
        number[used] = [place[names[k]] for k in used]
        classes = number[classes]
        order = np.lexsort((classes, keys))
        keys, classes, examples = keys[order], classes[order], examples[order]
        if len(keys):
            new = np.ones(len(keys), np.bool_)
            new[1:] = (keys[1:] != keys[:-1]) | (classes[1:] != classes[:-1])
            first = np.flatnonzero(new)
            examples = np.add.reduceat(examples, first)
            keys, classes = keys[first], classes[first]
        return cls(tuple(kept), keys, classes, examples)


def count_groups(clips: Iterable[Clip], recipe: Recipe) -> GroupCounts:
    """Counts the windows of each group: of each class if the recipe stratifies.

    A clip with several classes counts for each of them. Clips that are left out do not
    count.
    """
    by_class, separator = recipe.splits.stratify, recipe.labels.separator
    seed, copies = recipe.shards.seed, recipe.augmentation.copies
    numbers = {EVERYTHING: 0}
    keys: list[int] = []
    classes: list[int] = []
    windows: list[int] = []
    for clip in clips:
        if not clip.examples:
            continue
        key = group_key(seed, clip.group)
        count = clip.examples // (1 + copies_in(copies, clip.split))
        labels = [EVERYTHING]
        if by_class and clip.label:
            labels += label_parts(clip.label, separator) if separator else [clip.label]
        for label in labels:
            keys.append(key)
            classes.append(numbers.setdefault(label, len(numbers)))
            windows.append(count)
    return GroupCounts.summed(
        list(numbers),
        np.array(keys, np.uint64),
        np.array(classes, np.int64),
        np.array(windows, np.int64),
    )


def add_counts(parts: Iterable[GroupCounts]) -> GroupCounts:
    """Returns the sum of several counts."""
    numbers: dict[str, int] = {}
    keys, classes, examples = [np.empty(0, np.uint64)], [_NONE], [_NONE]
    for part in parts:
        number = [numbers.setdefault(name, len(numbers)) for name in part.names]
        keys.append(part.keys)
        classes.append(np.array(number, np.int64)[part.classes])
        examples.append(part.examples)
    return GroupCounts.summed(
        list(numbers),
        np.concatenate(keys),
        np.concatenate(classes),
        np.concatenate(examples),
    )


_NONE = np.empty(0, np.int64)


class CountedParts:
    """Gathers the counts of several blocks, and cuts them into parts of whole groups.

    All counts of a group are in parts of the same number.
    """

    def __init__(self, recipe: Recipe):
        self._recipe = recipe
        self._counts: list[GroupCounts] = []
        self._held = 0

    def add(self, clips: Sequence[Clip]) -> Iterator[tuple[int, GroupCounts]]:
        """Adds a block; yields everything that waits if it is enough."""
        self._counts.append(count_groups(clips, self._recipe))
        self._held += len(clips)
        if self._held >= CLIPS_COUNTED:
            yield from self.flush()

    def flush(self) -> Iterator[tuple[int, GroupCounts]]:
        """Yields everything that waits."""
        counts = add_counts(self._counts)
        self._counts, self._held = [], 0
        parts = (counts.keys >> np.uint64(64 - PART_BITS)).astype(np.int64)
        bounds = [*np.flatnonzero(np.diff(parts, prepend=-1)), len(parts)]
        for start, stop in pairwise(bounds):
            some = slice(start, stop)
            yield (
                int(parts[start]),
                GroupCounts.summed(
                    counts.names,
                    counts.keys[some],
                    counts.classes[some],
                    counts.examples[some],
                ),
            )


class GroupTally(NamedTuple):
    """What the splits hold if the hash alone decides, and groups that could be moved.

    Attributes
    ----------
    examples : mapping
        Name of a class, or ``EVERYTHING``, to the examples of each split, in order.
    movable : GroupCounts
        All entries of the groups that are among the first ``MOVABLE`` of a class in a
        split, in the order of their keys.
    """

    examples: Mapping[str, tuple[int, ...]]
    movable: GroupCounts


def tally_groups(counts: GroupCounts, splitter: Splitter) -> GroupTally:
    """Returns the tally of whole groups."""
    names, splits = counts.names, len(splitter.names)
    of_entry = splitter.numbers_of(counts.keys)
    sums = np.zeros((len(names), splits), np.int64)
    np.add.at(sums, (counts.classes, of_entry), counts.examples)
    examples = dict(zip(names, map(tuple, sums.tolist()), strict=True))
    return GroupTally(examples, first_of_each_class(counts, splitter))


def merge_group_tallies(
    tallies: Iterable[GroupTally], splitter: Splitter
) -> GroupTally:
    """Returns the tally of several parts, which have no group in common.

    Counts without classes may have groups in common, because a group that is among the
    first ones of the whole is so in each part.
    """
    tallies = list(tallies)
    sums: dict[str, tuple[int, ...]] = {}
    for tally in tallies:
        for name, counts in tally.examples.items():
            before = sums.get(name, (0,) * len(counts))
            sums[name] = tuple(a + b for a, b in zip(before, counts, strict=True))
    movable = add_counts(tally.movable for tally in tallies)
    return GroupTally(sums, first_of_each_class(movable, splitter))


def first_of_each_class(counts: GroupCounts, splitter: Splitter) -> GroupCounts:
    """Returns the entries of groups that are among the first of a class in a split."""
    bins = counts.classes * len(splitter.names) + splitter.numbers_of(counts.keys)
    order = np.argsort(bins, kind="stable")  # within a bin: in the order of keys
    starts = np.flatnonzero(np.diff(bins[order], prepend=-1))
    lengths = np.diff([*starts, len(order)])
    rank = np.arange(len(order)) - np.repeat(starts, lengths)
    kept = np.isin(counts.keys, counts.keys[order[rank < MOVABLE]])
    return GroupCounts.summed(
        counts.names, counts.keys[kept], counts.classes[kept], counts.examples[kept]
    )
