"""Splits that depend on the whole corpus: some groups leave the split of their hash.

::

    clips -> counts of groups, on disk -> tally -> moves, which the recipe keeps
      |                                               |
      +-> clips, each with its split <----------------+

With the moves in its recipe, a group's split follows from its name alone. So nothing
moves when files are added to the data set, or recorded again with its recipe.

If the recipe stratifies, or has folds, a search makes all splits even::

    e[c, s] = examples of class c in split s / examples of class c - share of s
    cost    = sum of e[c, s]**2 + penalties for classes that a split lacks

Everything is also counted over all classes, as one more class. From the splits of the
hash, the search makes the moves that lower the cost most, and then exchanges pairs of
groups, until neither lowers it. All numbers are whole, in units of ``ONE``: so the
result is the same on every machine, and does not depend on the order of sums.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import chain, groupby
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from beam_pipeline.arrays import Integers
from beam_pipeline.inputs.columns import label_parts
from beam_pipeline.inputs.splits import Splitter, group_key, places_of
from beam_pipeline.planning.clips import Clip, copies_in, with_split
from beam_pipeline.recipe.recipe import Recipe, moved_key
from beam_pipeline.storage.pages import Batch, SortedValues

# The count over all classes. No class has an empty name.
EVERYTHING = ""
# Of each class, this many groups of each split may change to another one. A hash puts
# some sqrt(n / 4) of a class' n groups into wrong splits, so this is enough for most
# classes of up to 250 000 groups. Shares in larger classes are within 0.1 % anyway.
MOVABLE = 256

# Shares are in units of 2**-20.
ONE = 1 << 20
# A class that could be in every split, and is not in this one; a split without groups.
LACKING = ONE * ONE // 8
EMPTY = 16 * ONE * ONE
# Pairs are compared among all groups if they are not more than these, otherwise among
# the first ones of each class that is not as close to its shares as this.
ALL_PAIRS = 512
PAIRS_OF_CLASS = 256
CLOSE = ONE // 1000
ROUNDS = 8

# Group, as `moved_key` names it, to its split.
Moves = Mapping[int, str]


class GroupTally(NamedTuple):
    """What the splits hold if the hash alone decides, and groups that could be moved.

    Its size does not grow with the number of groups.

    Attributes
    ----------
    examples : mapping
        Name of a class, or ``EVERYTHING``, to the examples of each split, in order.
    movable : mapping
        Key of a group to its examples of each class: of all groups that are among the
        first ``MOVABLE`` of a class in a split, in the order of their keys.
    """

    examples: Mapping[str, Sequence[int]]
    movable: Mapping[int, Mapping[str, int]]


def tally_groups(blocks: Iterable[Iterable[Clip]], recipe: Recipe) -> GroupTally:
    """Counts the windows of each group: of each class if the recipe stratifies.

    A clip with several classes counts for each of them. Clips that are left out do not
    count.
    """
    splitter = hash_splitter(recipe)
    none = [0 for _ in splitter.names]
    examples: dict[str, list[int]] = {}
    groups: dict[str, list[int]] = {}
    movable: dict[int, Mapping[str, int]] = {}
    counts = _counts(blocks, recipe)
    # SQLite has whole numbers with a sign.
    with closing(SortedValues(lambda each: (each[0] - (1 << 63),), counts)) as kept:
        for key, clips in groupby(kept, key=itemgetter(0)):
            split = splitter.names.index(splitter.split_of(key))
            sums = Counter[str]()
            for _, labels, windows in clips:
                for name in (EVERYTHING, *labels):
                    sums[name] += windows
            is_movable = False
            for name, count in sums.items():
                examples.setdefault(name, none.copy())[split] += count
                before = groups.setdefault(name, none.copy())
                is_movable |= before[split] < MOVABLE
                before[split] += 1
            if is_movable:
                movable[key] = dict(sums)
    return GroupTally(examples, movable)


def _counts(
    blocks: Iterable[Iterable[Clip]], recipe: Recipe
) -> Iterator[tuple[int, Sequence[str], int]]:
    """Yields (group, classes that count, windows) of each clip that has windows."""
    by_class, separator = recipe.stratify, recipe.label_separator
    for clip in chain.from_iterable(blocks):
        if not clip.examples:
            continue
        labels: Sequence[str] = (clip.label,) if by_class and clip.label else ()
        if labels and separator is not None:
            labels = label_parts(labels[0], separator)
        windows = clip.examples // (1 + copies_in(recipe.copies, clip.split))
        yield group_key(recipe.seed, clip.group), labels, windows


def hash_splitter(recipe: Recipe) -> Splitter:
    """Returns the splitter of a recipe before any group is moved."""
    return Splitter(recipe.hashed_shares() or {})


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
    return recipe.stratify or recipe.folds is not None


def fill_empty(tally: GroupTally, splitter: Splitter) -> dict[int, str]:
    """Returns one group for each empty split, by its key, if there are enough.

    It is the group that the hash puts nearest to the split, among those of the split
    with the largest share. So where one split is empty, one more group in the corpus
    moves at most one of the groups that were there.
    """
    keys = np.array(list(tally.movable), np.uint64)
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


def assign_splits(clips: Iterable[Clip], moves: Moves | None, recipe: Recipe) -> Any:
    """Returns the clips, each in the split of its group."""
    seed, copies = recipe.seed, recipe.copies
    splitter = Splitter(recipe.hashed_shares() or {}, moves=moves)
    return Batch(
        with_split(clip, splitter.split_of(group_key(seed, clip.group)), copies)
        for clip in clips
    )


def balance(tally: GroupTally, splitter: Splitter) -> dict[int, str]:
    """Returns the groups to move, by their keys, and their new splits.

    Not more than the movable groups of the tally change their splits.
    """
    if not tally.movable:
        return {}
    search = Search(tally, splitter)
    search.improve()
    if search.compares_all():
        other = Search(tally, splitter)
        other.deal_groups()
        other.improve()
        # The first one has fewer moves.
        if 4 * other.cost() < 3 * search.cost():
            return other.moved()
    return search.moved()


class Search:
    """The movable groups, their splits, and what each split holds.

    The row of a class is its place among the names of all classes, in order.
    """

    def __init__(self, tally: GroupTally, splitter: Splitter):
        self._names = splitter.names
        self._splits = range(len(splitter.names))
        self._keys = list(tally.movable)
        rows = {name: row for row, name in enumerate(sorted(tally.examples))}
        totals = {name: max(1, sum(tally.examples[name])) for name in rows}
        shares = [round(share * ONE) for share in splitter.shares]
        self._held = [list(tally.examples[name]) for name in rows]
        self._e = [
            [
                _units(count, totals[name]) - share
                for count, share in zip(tally.examples[name], shares, strict=True)
            ]
            for name in rows
        ]
        # Of each group: (row, share of the row in units of ONE, examples).
        self._groups = [
            [
                (rows[name], _units(count, totals[name]), count)
                for name, count in sorted(tally.movable[key].items())
            ]
            for key in self._keys
        ]
        self._of_hash = splitter.numbers_of(np.array(self._keys, np.uint64)).tolist()
        self._split = list(self._of_hash)
        self._members: list[list[int]] = [[] for _ in rows]
        for group, entries in enumerate(self._groups):
            for row, _, _ in entries:
                self._members[row].append(group)
        self._penalty = [0] * len(rows)
        for name, row in rows.items():
            if len(self._members[row]) >= len(self._splits):
                self._penalty[row] = LACKING if name != EVERYTHING else EMPTY

    def moved(self) -> dict[int, str]:
        """Returns the groups whose split is not that of their hash."""
        splits = zip(self._keys, self._of_hash, self._split, strict=True)
        return {key: self._names[now] for key, before, now in splits if now != before}

    def cost(self) -> int:
        """Returns what the search lowers."""
        total = sum(e * e for row in self._e for e in row)
        return total + sum(
            penalty * row.count(0)
            for row, penalty in zip(self._held, self._penalty, strict=True)
        )

    def improve(self) -> None:
        """Moves and exchanges groups while that lowers the cost."""
        for _ in range(ROUNDS):
            if not self.move_groups() and not self.exchange_groups():
                return

    def deal_groups(self) -> None:
        """Gives all groups new splits, the largest first: each where it costs least."""
        for group, source in enumerate(self._split):
            self._add(group, source, -1)
        sizes = [sum(x * x for _, x, _ in group) for group in self._groups]
        for group in sorted(range(len(sizes)), key=lambda k: -sizes[k]):
            self._add(group, self._split[group], 1)
            self._move(group, self._best(group)[1])

    def _add(self, group: int, target: int, times: int) -> None:
        for row, x, examples in self._groups[group]:
            self._e[row][target] += times * x
            self._held[row][target] += times * examples

    def compares_all(self) -> bool:
        """Whether the groups are few enough to compare all pairs."""
        return len(self._groups) <= ALL_PAIRS

    def move_groups(self) -> bool:
        """Moves groups while that lowers the cost; returns whether one was moved."""
        any_moved = False
        while True:
            gains = [self._best(group)[0] for group in range(len(self._groups))]
            moved = False
            for group in sorted(range(len(gains)), key=lambda k: -gains[k]):
                if gains[group] <= 0:
                    break
                gain, target = self._best(group)
                if gain > 0:
                    self._move(group, target)
                    moved = True
            if not moved:
                return any_moved
            any_moved = True

    def _best(self, group: int) -> tuple[int, int]:
        """Returns the largest gain of a group, and the split to which it would move."""
        gains = [self._gain(group, target) for target in self._splits]
        best = max(self._splits, key=gains.__getitem__)
        return gains[best], best

    def _gain(self, group: int, target: int) -> int:
        """Returns by how much the cost falls if a group moves."""
        source = self._split[group]
        if source == target:
            return 0
        gain = 0
        for row, x, examples in self._groups[group]:
            e, held = self._e[row], self._held[row]
            gain += 2 * x * (e[source] - e[target] - x)
            gain += self._penalty[row] * (
                (held[target] == 0) - (held[source] == examples)
            )
        return gain

    def _move(self, group: int, target: int) -> None:
        self._add(group, self._split[group], -1)
        self._add(group, target, 1)
        self._split[group] = target

    def exchange_groups(self) -> bool:
        """Exchanges pairs of groups while that lowers the cost; as `move_groups`."""
        exchanged = [self._exchange_in(block) for block in self._blocks()]
        return any(exchanged)

    def _blocks(self) -> Iterator[list[int]]:
        """Yields groups whose pairs are compared: all, or those of a class."""
        if self.compares_all():
            yield list(range(len(self._groups)))
            return
        distances = [max(map(abs, row)) for row in self._e]
        for row in sorted(range(len(distances)), key=lambda k: -distances[k]):
            if distances[row] > CLOSE:
                yield self._members[row][:PAIRS_OF_CLASS]

    def _exchange_in(self, block: Sequence[int]) -> bool:
        rows = sorted({row for group in block for row, _, _ in self._groups[group]})
        units = self._units_of(block, rows)
        products = units @ units.T
        exchanged = False
        while True:
            split = np.array(self._split)[block]
            # The gains of single moves, without penalties.
            e = units @ np.array([self._e[row] for row in rows], np.int64)
            here = e[np.arange(len(block)), split] - products.diagonal()
            gains = 2 * (here[:, None] - e)
            gains[np.arange(len(block)), split] = 0
            # A pair's gain is that of both moves, but the two do not add up.
            pairs = gains[:, split] + gains[:, split].T + 4 * products
            pairs[split[:, None] == split] = 0
            first, second = divmod(int(pairs.argmax()), len(block))
            if pairs[first, second] <= 0:
                return exchanged
            if not self._exchange(block[first], block[second]):
                return exchanged
            exchanged = True

    def _units_of(self, block: Sequence[int], rows: Sequence[int]) -> Integers:
        """Returns the shares of some groups in each row, shape (groups, rows)."""
        place = {row: k for k, row in enumerate(rows)}
        units = np.zeros((len(block), len(rows)), np.int64)
        for k, group in enumerate(block):
            for row, x, _ in self._groups[group]:
                units[k, place[row]] = x
        return units

    def _exchange(self, first: int, second: int) -> bool:
        """Exchanges the splits of two groups, unless that makes the cost larger."""
        a, b = self._split[first], self._split[second]
        gain = self._gain(first, b)
        self._move(first, b)
        gain += self._gain(second, a)
        self._move(second, a)
        if gain > 0:
            return True
        self._move(first, a)
        self._move(second, b)
        return False


def _units(part: int, whole: int) -> int:
    """Returns part / whole in units of ``ONE``, rounded."""
    return (part * ONE + whole // 2) // whole
