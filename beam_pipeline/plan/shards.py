"""Shards: how the examples of a split are cut into files.

In the order ``mixed``, neighbours in a shard come from different clips::

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
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from beam_pipeline.examples.encoding import example_bytes
from beam_pipeline.examples.format import ExampleFormat
from beam_pipeline.inputs.splits import shard_name
from beam_pipeline.permutation import Permutation
from beam_pipeline.plan.clips import check_split_of_copies, copies_in
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.recipe.sections import NO_COMPRESSION, Windows

# A strip is so many windows without overlap: seconds of audio for each seek. If a
# shard has less than so many of these strips, they are shorter.
WINDOWS_IN_STRIP = 8
STRIPS_IN_SHARD = 16
# A clip that is decoded from its start, wherever one begins to read, has at most one
# strip more than this.
STRIPS_OF_CLIP = 8


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
        See :func:`.longest_walk`.
    """
    of_window = 1 + copies_in(recipe.copies, split)
    windows = min(
        WINDOWS_IN_STRIP * _windows_on_each_other(recipe),
        shard_examples // (STRIPS_IN_SHARD * of_window),
    )
    return of_window * max(1, windows, -(-longest_walk // STRIPS_OF_CLIP))


def _windows_on_each_other(windows: Windows) -> int:
    """Returns how many windows a frame is in, about."""
    # Lengths in frames and in seconds are compared at this rate.
    rate_hz = 48_000
    hop = windows.hop or (windows.hop_seconds or 0.0) * rate_hz
    if not hop or windows.windows_are_clips:
        return 1
    length = windows.win_len or (windows.win_seconds or 0.0) * rate_hz
    return max(1, math.ceil(int(length) / hop))


DEFAULT_SHARD_BYTES = 128 << 20
# With it, shards are at most 1 % larger than shards of one GZIP member: in this format,
# an example of 16 KiB or more can be read on its own.
MEMBER_BYTES = 16 << 10


class Shard(NamedTuple):
    """One planned file of the data set, with its name without a suffix.

    Its member ``m`` holds the positions ``m * per_member .. (m + 1) * per_member - 1``.
    ``digest`` identifies its exact content, so that a run recognises finished shards.
    With ``mix_seed``, its examples are written in a random order; see
    :mod:`beam_pipeline.plan.shards`.
    """

    name: str
    split: str
    number: int
    examples: int
    digest: str = ""
    per_member: int = 1
    mix_seed: int | None = None


class ShardInfo(NamedTuple):
    """A written shard.

    ``examples`` is the planned number less the lost examples and the ``left_out`` ones.
    ``seen`` is the state of a :class:`beam_pipeline.write.shard.Observations`,
    ``members`` and ``windows`` are the texts of
    :class:`beam_pipeline.storage.gzip_members.Members` and
    :class:`beam_pipeline.write.window_rows.WindowRows`. ``clips`` is the
    row of the clip of each window, packed; it is empty where a clip's windows are
    together.
    """

    shard: Shard
    file: str
    examples: int
    bytes: int
    sha256: str
    left_out: int = 0
    seen: Mapping[str, Any] | None = None
    members: str = ""
    windows: str = ""
    clips: str = ""

    def is_whole(self) -> bool:
        """Returns whether every planned example was written or left out on purpose."""
        return self.examples + self.left_out == self.shard.examples


@dataclass(frozen=True, slots=True)
class ShardLayout:
    """How ``total`` examples of a split are cut into ``shards`` files.

    Shard ``k`` holds the examples ``bound(k) .. bound(k + 1) - 1``. A member of a shard
    holds ``per_member`` positions. ``strip`` is the number of examples in a strip if
    examples are mixed, and ``seed`` what their order depends on; see
    :mod:`beam_pipeline.plan.shards`.
    """

    split: str
    total: int
    shards: int
    per_shard: int | None  # None: as even as possible
    per_member: int = 1
    strip: int | None = None
    seed: int = 0

    @classmethod
    def of(
        cls,
        split: str,
        examples: int,
        example_bytes: int,
        recipe: Recipe,
        longest_walk: int = 0,
    ) -> ShardLayout:
        """Returns the layout of a split under a recipe.

        Parameters
        ----------
        examples : int
            The number of examples in the split.
        example_bytes : int
            The length of a typical serialised example. ``shard_bytes`` divided by it is
            the number of examples in a shard.
        longest_walk : int
            See :func:`beam_pipeline.plan.summary.longest_walk`.
        """
        total = min(examples, recipe.num_elems or examples)
        per_member = 1
        if recipe.compression != NO_COMPRESSION:
            per_member = max(1, (recipe.member_bytes or MEMBER_BYTES) // example_bytes)
        per_shard = None
        if recipe.num_shards is not None:
            shards = min(recipe.num_shards, total)
        else:
            per_shard = recipe.elements_per_file or max(
                1, (recipe.shard_bytes or DEFAULT_SHARD_BYTES) // example_bytes
            )
            shards = -(-total // per_shard)
        layout = cls(split, total, shards, per_shard, per_member)
        if not recipe.examples_are_mixed or not total:
            return layout
        size = strip_examples(recipe, split, layout.bound(1), longest_walk)
        return replace(layout, strip=size, seed=recipe.seed)

    def bound(self, k: int) -> int:
        """Returns the index of shard k's first example."""
        if self.per_shard is None:
            return k * self.total // self.shards
        return min(k * self.per_shard, self.total)

    def shard_at(self, index: int) -> int:
        """Returns the number of the shard that holds the example with this index."""
        if self.per_shard is not None:
            return index // self.per_shard
        # The largest k with k * total // shards <= index.
        return ((index + 1) * self.shards - 1) // self.total

    def shard(self, k: int) -> Shard:
        """Returns shard k, for example ``train/train-00000-of-00012``."""
        name = shard_name(self.split, k, self.shards)
        examples = self.bound(k + 1) - self.bound(k)
        mix_seed = self.seed if self.strip else None
        return Shard(
            name,
            self.split,
            k,
            examples,
            per_member=self.per_member,
            mix_seed=mix_seed,
        )

    def runs(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yields where the examples ``first .. stop - 1`` of the clips' order go.

        Yields
        ------
        end, shift : int
            The examples from the run before up to ``end - 1`` follow each other in the
            shards, too: their positions are their numbers plus the shift.
        """
        if self.strip:
            strips = self.total // self.strip
            low, high = first // self.strip, min(-(-stop // self.strip), strips)
            order = Permutation(strips, self.seed, name=f"strips of {self.split}")
            places = order.position_of(np.arange(low, max(low, high)))
            for strip, place in enumerate(places.tolist(), low):
                yield (strip + 1) * self.strip, (place - strip) * self.strip
        yield self.total, 0

    def begin_of_segment(self, index: int) -> int:
        """Returns the first of the examples that go together with one, to its shard."""
        _, shift = next(self.runs(index, index + 1))
        position = index + shift
        begin = index - index % self.strip if self.strip else 0
        return max(begin, self.bound(self.shard_at(position)) - shift)


def lay_out(
    totals: Mapping[str, int],
    example_format: ExampleFormat | None,
    recipe: Recipe,
) -> dict[str, ShardLayout]:
    """Returns how each split is cut into shards.

    A split of which all clips are left out has none.
    """
    size, walk = 1, 0  # without a clip that is not left out, all totals are 0
    if example_format is not None:
        size, walk = example_bytes(example_format.features), example_format.longest_walk
        check_split_of_copies(recipe.copies, totals)
    return {
        split: ShardLayout.of(split, total, size, recipe, walk)
        for split, total in sorted(totals.items())
    }
