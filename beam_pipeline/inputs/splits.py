"""Splits: which clips are for training, and which for evaluation or test.

A clip's split depends only on the name of its group and on a salt::

    u = hash(salt, group) / 2**64         in [0, 1)
    train | eval | test                   0 <= u < 0.8 <= u < 0.9 <= u < 1

So all clips of a group are in one split, and files added later do not move earlier
ones. ``group_by`` names the columns that define a group, like a speaker or a ship;
without it, each file is a group. With ``stratify``, :func:`choose_salt` picks the first
of ``SALTS`` salts whose splits are close to the shares, over all and in each class.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.hashing import hash64, text_key

SALTS = 64
# How far splits may be from their shares; see :func:`choose_salt`. With a stricter
# bound, a few added files would change the salt, and so the splits of groups.
CLOSE = 0.1

_MASK = (1 << 64) - 1

Counts = npt.NDArray[np.int64]
Tally = Mapping[str, Counts]

DEFAULT_SPLIT = "records"

# Between the values that make a group.
GROUP_SEPARATOR = "\x1f"


def group_key(seed: int, group: str) -> int:
    """Returns 64 bits that identify a group under a seed, the same in every process."""
    return text_key(f"split {seed}", group)


class Splitter:
    """Assigns groups to splits of given shares.

    >>> Splitter({"train": 0.5, "test": 0.5}).split_of(group_key(0, "theo"))
    'test'
    """

    def __init__(self, shares: Mapping[str, float], salt: int = 0):
        self._names = list(shares)
        self._bounds = _bounds(shares).tolist()
        self._salt = salt

    def split_of(self, key: int) -> str:
        """Returns the split of the group with this key."""
        # SplitMix64 as in hashing.hash64, for one number: an array takes 30 times more.
        z = (self._salt + (key + 1) * 0x9E3779B97F4A7C15) & _MASK
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & _MASK
        u = ((z ^ z >> 31) >> 11) * 2.0**-53
        return self._names[bisect.bisect_right(self._bounds, u)]


def _bounds(shares: Mapping[str, float]) -> npt.NDArray[np.float64]:
    bounds: npt.NDArray[np.float64] = np.cumsum(list(shares.values()))[:-1]
    return bounds


def _split_numbers(
    shares: Mapping[str, float], keys: Sequence[int], salts: Sequence[int]
) -> npt.NDArray[np.intp]:
    """Returns the number of each key's split under each salt, shape (salts, keys)."""
    seeds = np.asarray(keys, np.uint64)
    hashed = np.stack([hash64(salt, seeds.view(np.int64)) for salt in salts])
    # The upper 53 bits, which a float64 holds exactly.
    return np.searchsorted(
        _bounds(shares), (hashed >> np.uint64(11)) * 2.0**-53, "right"
    )


def tally_salts(
    shares: Mapping[str, float],
    keys: Sequence[int],
    labels: Sequence[str | None],
    windows: Sequence[int],
) -> dict[str, Counts]:
    """Counts windows by class: for each, an array of shape (salts, splits), int64.

    The sum of the tallies of several parts of a corpus is the tally of the whole.
    """
    numbers: dict[str, int] = {}
    classes = [numbers.setdefault(label or "", len(numbers)) for label in labels]
    # One bin for each (salt, class, split); float64 sums are exact up to 2**53.
    shape = (SALTS, len(numbers), len(shares))
    bins = np.arange(SALTS)[:, None] * shape[1] + np.asarray(classes, np.int64)
    bins = bins * shape[2] + _split_numbers(shares, keys, range(SALTS))
    weights = np.broadcast_to(np.asarray(windows, np.float64), bins.shape)
    counts = np.bincount(bins.ravel(), weights.ravel(), math.prod(shape))
    counts = counts.astype(np.int64).reshape(shape)
    return {label: counts[:, number] for label, number in numbers.items()}


def add_tallies(tallies: Any) -> dict[str, Counts]:
    """Returns the sum of several tallies."""
    total: dict[str, Counts] = {}
    for tally in tallies:
        for label, counts in tally.items():
            total[label] = total[label] + counts if label in total else counts
    return total


def choose_salt(shares: Mapping[str, float], tally: Tally) -> int:
    """Returns the first salt whose distance is at most ``CLOSE``, or the closest one.

    ::

        d(counts) = max over splits of |counts / sum(counts) - share|
        distance  = d(all windows) + mean over classes of d(windows of the class)
                    + classes that some split lacks, beyond the least number of them
    """
    wanted = np.array(list(shares.values()))
    by_class = np.stack([tally[label] for label in sorted(tally)]).astype(np.float64)
    distance = _distance(by_class.sum(axis=0), wanted)
    distance += _distance(by_class, wanted).mean(axis=0)
    missing = (by_class == 0).any(axis=-1).sum(axis=0)
    distance += missing - missing.min()
    close = np.flatnonzero(distance <= CLOSE)
    return int(close[0] if close.size else distance.argmin())


def _distance(counts: npt.NDArray[Any], wanted: npt.NDArray[Any]) -> npt.NDArray[Any]:
    total = np.maximum(counts.sum(axis=-1, keepdims=True), 1)
    largest: npt.NDArray[Any] = np.abs(counts / total - wanted).max(axis=-1)
    return largest
