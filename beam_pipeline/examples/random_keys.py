"""The random keys of augmented copies: 64 bits for each step, window and copy.

A key depends on the seed, on the clip's path and input, on the step, on the window's
number in its clip and on the copy's number. So a recipe with more copies gives the same
first copies, and nothing depends on shards, blocks or workers.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.hashing import clip_key, hash64, text_key
from beam_pipeline.permutation import Integers

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
