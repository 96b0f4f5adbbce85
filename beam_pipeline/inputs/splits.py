"""Splits: which clips are for training, and which for evaluation or test.

A clip's split depends only on the name of its group, and on what the recipe holds::

    u = hash(seed, group) / 2**64         in [0, 1)
    train | eval | test                   0 <= u < 0.8 <= u < 0.9 <= u < 1
    eval: 9k3XnQ2b, ...                   some groups are in another split all the same

So all clips of a group are in one split, and files added later do not move earlier
ones. ``group_by`` names the columns that define a group, like a speaker or a ship;
without it, each file is a group. :mod:`beam_pipeline.planning.balance` chooses the
groups that change their split, so that splits and classes have their shares.
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping

import numpy as np

from beam_pipeline.arrays import Array, DoubleArray, Keys
from beam_pipeline.permutation import hash64, unit_floats
from beam_pipeline.recipe.recipe import Splits, moved_key
from beam_pipeline.text import text_key

_MASK = (1 << 64) - 1

DEFAULT_SPLIT = "records"


def shard_name(split: str, k: int, shards: int) -> str:
    """Returns the name of shard ``k`` of ``shards``, without a suffix."""
    folder = "" if split == DEFAULT_SPLIT else f"{split}/"
    return f"{folder}{split}-{k:05d}-of-{shards:05d}"


# Between the values that make a group.
GROUP_SEPARATOR = "\x1f"


def shown_group(group: str) -> str:
    """Returns a group as text for a person."""
    return group.replace(GROUP_SEPARATOR, ", ")


def group_key(seed: int, group: str) -> int:
    """Returns 64 bits that identify a group under a seed, the same in every process."""
    return text_key(f"split {seed}", group)


def places_of(keys: Keys) -> DoubleArray:
    """Returns where in [0, 1) the hash puts some groups."""
    return unit_floats(hash64(0, keys.view(np.int64)))


class Splitter:
    """Assigns groups to splits of given shares.

    Parameters
    ----------
    shares : mapping
        Name of each split to its share; they add up to 1.
    moves : mapping, optional
        Groups whose split is not that of the hash; see
        :class:`beam_pipeline.recipe.recipe.MovedGroups`.

    Examples
    --------
    >>> Splitter({"train": 0.5, "test": 0.5}).split_of(group_key(0, "theo"))
    'test'
    """

    def __init__(
        self, shares: Mapping[str, float], moves: Mapping[int, str] | None = None
    ):
        self.names = tuple(shares)
        self.shares = tuple(shares.values())
        # Beyond the last bound is the last split, whatever the sum of the shares is.
        self._bounds = np.cumsum(self.shares)[:-1].tolist()
        self._moves = moves or {}

    @classmethod
    def of(cls, splits: Splits) -> Splitter | None:
        """Returns the splitter of a recipe; None unless a hash decides its splits."""
        shares = splits.hashed_shares()
        return None if shares is None else cls(shares, splits.split_moves)

    def split_of(self, key: int) -> str:
        """Returns the split of the group with this key."""
        if self._moves:
            moved = self._moves.get(moved_key(key))
            if moved is not None:
                return moved
        # As in hash64, for one number: an array takes 30 times more.
        z = (key + 1) * 0x9E3779B97F4A7C15 & _MASK
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & _MASK
        u = ((z ^ z >> 31) >> 11) * 2.0**-53
        return self.names[bisect.bisect_right(self._bounds, u)]

    def numbers_of(self, keys: Keys) -> Array:
        """Returns the numbers of the splits that the hash gives to some groups."""
        return np.searchsorted(self._bounds, places_of(keys), "right")

    def distances(self, places: DoubleArray, split: int) -> DoubleArray:
        """Returns how far hashes in [0, 1) are from the interval of a split.

        0 and 1 are the same place, as on a ring.
        """
        low, high = [0.0, *self._bounds, 1.0][split : split + 2]
        return np.asarray(np.minimum((low - places) % 1, (places - high) % 1))
