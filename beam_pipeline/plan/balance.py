"""Which groups change their split, so that splits and classes have their shares.

::

    e[c, s] = examples of class c in split s / examples of class c - share of s
    cost    = sum of e[c, s]**2 + penalties for classes that a split lacks

Everything is also counted over all classes, as one more class. From the splits of the
hash, the search makes the moves that lower the cost most, and then exchanges pairs of
groups, until neither lowers it. All numbers are whole, in units of ``ONE``: so the
result is the same on every machine, and does not depend on the order of sums.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.inputs.splits import Splitter
from beam_pipeline.plan.group_counts import EVERYTHING, GroupTally, Integers

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


def balance(tally: GroupTally, splitter: Splitter) -> dict[int, str]:
    """Returns the groups to move, by their keys, and their new splits.

    Not more than the movable groups of the tally change their splits.
    """
    if not len(tally.movable.keys):
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
    """The movable groups, their splits, and what each split holds."""

    def __init__(self, tally: GroupTally, splitter: Splitter):
        counts = tally.movable
        self._names = splitter.names
        self._splits = range(len(splitter.names))
        sums = np.array([tally.examples[name] for name in counts.names], np.int64)
        totals = sums.sum(axis=1)
        shares = np.rint(np.array(splitter.shares) * ONE).astype(np.int64)
        self._held: list[list[int]] = sums.tolist()
        self._e: list[list[int]] = (_units(sums, totals[:, None]) - shares).tolist()
        units = _units(counts.examples, totals[counts.classes])
        keys, starts = np.unique(counts.keys, return_index=True)
        self._keys: list[int] = keys.tolist()
        self._of_hash = splitter.numbers_of(keys).tolist()
        self._split = list(self._of_hash)
        self._rows, self._units = counts.classes, units
        self._examples = counts.examples.tolist()
        self._bounds: list[int] = [*starts.tolist(), len(counts.keys)]
        groups = np.bincount(counts.classes, minlength=len(counts.names))
        everything = np.array([name == EVERYTHING for name in counts.names])
        can_be_everywhere = groups >= len(self._splits)
        self._penalty: list[int] = np.where(
            can_be_everywhere, np.where(everything, EMPTY, LACKING), 0
        ).tolist()
        # Of each group: (row, share of the row in units of ONE, examples).
        entries = list(
            zip(self._rows.tolist(), units.tolist(), self._examples, strict=True)
        )
        self._groups = [entries[a:b] for a, b in pairwise(self._bounds)]

    def moved(self) -> dict[int, str]:
        """Returns the groups whose split is not that of their hash."""
        return {
            key: self._names[now]
            for key, before, now in zip(
                self._keys, self._of_hash, self._split, strict=True
            )
            if now != before
        }

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
            costs = [self._cost_in(group, target) for target in self._splits]
            self._split[group] = min(self._splits, key=costs.__getitem__)
            self._add(group, self._split[group], 1)

    def _cost_in(self, group: int, target: int) -> int:
        """Returns by how much the cost rises if a group is added to a split."""
        return sum(
            x * (2 * self._e[row][target] + x)
            - self._penalty[row] * (self._held[row][target] == 0)
            for row, x, _ in self._groups[group]
        )

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
            candidates = self._gains().max(axis=1)
            order = np.argsort(-candidates, kind="stable")
            moved = False
            for group in order[: int((candidates > 0).sum())].tolist():
                gains = [self._gain(group, target) for target in self._splits]
                best = max(self._splits, key=gains.__getitem__)
                if gains[best] > 0:
                    self._move(group, best)
                    moved = True
            if not moved:
                return any_moved
            any_moved = True

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

    def _gains(self, penalties: bool = True) -> Integers:
        """Returns :meth:`_gain` of each group and split, shape (groups, splits)."""
        e, held = np.array(self._e, np.int64), np.array(self._held, np.int64)
        lengths = np.diff(self._bounds)
        source = np.repeat(np.array(self._split), lengths)
        entries = np.arange(len(source))
        rows, x = self._rows, self._units[:, None]
        gains = 2 * x * (e[rows, source][:, None] - e[rows] - x)
        if penalties:
            empties = held[rows, source] == self._examples
            changed = (held[rows] == 0).astype(np.int64) - empties[:, None]
            gains += np.array(self._penalty, np.int64)[rows][:, None] * changed
        gains[entries, source] = 0
        return np.add.reduceat(gains, self._bounds[:-1], axis=0)

    def exchange_groups(self) -> bool:
        """Exchanges pairs of groups while that lowers the cost; as `move_groups`."""
        exchanged = [self._exchange_in(block) for block in self._blocks()]
        return any(exchanged)

    def _blocks(self) -> Iterator[Integers]:
        """Yields groups whose pairs are compared: all, or those of a class."""
        if self.compares_all():
            yield np.arange(len(self._groups))
            return
        group = np.repeat(np.arange(len(self._groups)), np.diff(self._bounds))
        order = np.argsort(self._rows, kind="stable")
        bounds = np.searchsorted(self._rows[order], np.arange(len(self._e) + 1))
        distance = np.abs(np.array(self._e)).max(axis=1)
        for row in np.argsort(-distance, kind="stable").tolist():
            if distance[row] > CLOSE:
                yield group[order[bounds[row] : bounds[row + 1]]][:PAIRS_OF_CLASS]

    def _exchange_in(self, block: Integers) -> bool:
        products = self._products(block)
        exchanged = False
        while True:
            split = np.array(self._split)[block]
            gains = self._gains_of(block)
            # A pair's gain is that of both moves, but the two do not add up.
            pairs = gains[:, split] + gains[:, split].T + 4 * products
            pairs[split[:, None] == split] = 0
            first, second = divmod(int(pairs.argmax()), len(block))
            if pairs[first, second] <= 0:
                return exchanged
            if not self._exchange(int(block[first]), int(block[second])):
                return exchanged
            exchanged = True

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

    def _products(self, block: Integers) -> Integers:
        """Returns the inner products of the groups of a block."""
        groups = [self._groups[k] for k in block.tolist()]
        rows = sorted({row for group in groups for row, _, _ in group})
        place = {row: k for k, row in enumerate(rows)}
        dense = np.zeros((len(groups), len(rows)), np.int64)
        for k, group in enumerate(groups):
            for row, x, _ in group:
                dense[k, place[row]] = x
        return dense @ dense.T

    def _gains_of(self, block: Integers) -> Integers:
        """Returns the gains of a block's groups, without penalties."""
        found = []
        for group in block.tolist():
            source = self._split[group]
            gains = [0] * len(self._splits)
            for row, x, _ in self._groups[group]:
                e = self._e[row]
                base = e[source] - x
                for target in self._splits:
                    gains[target] += 2 * x * (base - e[target])
            gains[source] = 0
            found.append(gains)
        return np.array(found, np.int64)


def _units(part: npt.NDArray[Any], whole: npt.NDArray[Any]) -> Integers:
    """Returns part / whole in units of ``ONE``, rounded."""
    whole = np.maximum(whole, 1)
    quotient: Integers = (part * ONE + whole // 2) // whole
    return quotient
