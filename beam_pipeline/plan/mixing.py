"""The order ``mixed``: neighbours in a shard come from different clips.

::

    examples, clip by clip    | strip 0 | strip 1 | strip 2 | strip 3 | rest |
    in their mixed order      | strip 3 | strip 0 | strip 2 | strip 1 | rest |
    shards                    |     shard 0   |     shard 1   |   shard 2    |
    in each shard             its examples, in a random order

A strip is some consecutive examples of a split. A worker decodes the strips of its
shard, and no other audio: none moves between workers. The order of the strips, and that
of the examples in a shard, are permutations with a key. So an example's place follows
from its number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from beam_pipeline.audio.decoder import finds_frames
from beam_pipeline.permutation import Permutation
from beam_pipeline.plan.clip_audio import header_of
from beam_pipeline.plan.clips import Clip
from beam_pipeline.plan.copies import copies_in
from beam_pipeline.recipe.example_sections import Audio
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.recipe.window_section import Windows

# A strip is so many windows without overlap: seconds of audio for each seek. If a
# shard has less than so many of these strips, they are shorter.
WINDOWS_IN_STRIP = 8
STRIPS_IN_SHARD = 16
# A clip that is decoded from its start, wherever one begins to read, has at most one
# strip more than this.
STRIPS_OF_CLIP = 8


class Strips(NamedTuple):
    """How the examples of a split are cut into strips.

    Attributes
    ----------
    total : int
        The examples of the split.
    size : int
        The examples of a strip. Those after the last whole strip are the rest.
    seed : int
    name : str
        Another one gives the strips another order.
    """

    total: int
    size: int
    seed: int
    name: str

    def places(self, first: int, stop: int) -> StripPlaces:
        """Returns where the examples ``first .. stop - 1`` of the clips' order go."""
        count = self.total // self.size
        low = first // self.size
        order = Permutation(count, self.seed, name=f"strips of {self.name}")
        numbers = np.arange(low, max(low, min(-(-stop // self.size), count)))
        positions = order.position_of(numbers) * self.size
        return StripPlaces(self, low, positions.tolist())


class StripPlaces(NamedTuple):
    """The positions of some strips, from strip ``low`` on."""

    strips: Strips
    low: int
    positions: list[int]

    def of(self, index: int) -> tuple[int, int, int]:
        """Returns (position, begin, end) of an example.

        The examples ``begin .. end - 1`` follow each other in the mixed order.
        """
        size = self.strips.size
        begin = index - index % size
        if begin + size > self.strips.total:
            return index, begin, self.strips.total
        position = self.positions[begin // size - self.low] + index - begin
        return position, begin, begin + size


def strip_examples(
    recipe: Recipe, split: str, shard_examples: int, longest_walk: int
) -> int:
    """Returns how many examples of a split are in a strip.

    Windows that overlap by much share their audio, so a strip has more of them. If
    clips are decoded from their start, strips are as long as those clips need.

    Parameters
    ----------
    shard_examples : int
        About how many examples are in a shard.
    longest_walk : int
        See :func:`longest_walk`.
    """
    of_window = 1 + copies_in(recipe.augmentation.copies, split)
    windows = min(
        WINDOWS_IN_STRIP * _windows_on_each_other(recipe.windows),
        shard_examples // (STRIPS_IN_SHARD * of_window),
    )
    return of_window * max(1, windows, -(-longest_walk // STRIPS_OF_CLIP))


def _windows_on_each_other(windows: Windows) -> int:
    """Returns how many windows a frame is in, about."""
    # Lengths in frames and in seconds are compared at this rate.
    rate_hz = 48_000
    hop = windows.hop or (windows.hop_seconds or 0.0) * rate_hz
    if not hop or windows.are_clips:
        return 1
    length = windows.win_len or (windows.win_seconds or 0.0) * rate_hz
    return max(1, math.ceil(int(length) / hop))


def longest_walk(clips: Iterable[Clip], recipe: Recipe) -> int:
    """Returns the most windows of a clip that is decoded from its start.

    To read in the middle of such a clip, the decoder walks there: there is no other
    way to have the same samples. 0 if all clips are in files that can be sought.
    """
    copies = recipe.augmentation.copies
    return max(
        (
            clip.examples // (1 + copies_in(copies, clip.split))
            for clip in clips
            if walks(clip, recipe.audio)
        ),
        default=0,
    )


def walks(clip: Clip, audio: Audio) -> bool:
    """Whether reading in the middle of a clip takes what is before, too."""
    return (
        bool(audio.stream)
        or audio.is_loaded(clip.filepath)
        or not finds_frames(header_of(clip))
    )
