"""Where examples are: their shards and members, by arithmetic on arrays."""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.member_index import MemberIndex, ShardIndex, Span, damaged
from beam_pipeline.dataset.metadata import Metadata, ShardEntry
from beam_pipeline.dataset.output_folder import INDEX, METADATA
from beam_pipeline.errors import InputError
from beam_pipeline.storage import files

Integers = npt.NDArray[np.int64]


class Wanted(NamedTuple):
    """Members of one shard, in their order, and the wanted examples in them.

    Attributes
    ----------
    shard : ShardIndex
    first : int
        The number of the shard's first example in the split.
    members, starts, stops : list of int
        The members, and where they are in the file.
    firsts, counts : list of int
        The first example of each member in the shard, and its examples.
    bounds : list of int
        ``places[bounds[k]:bounds[k + 1]]`` are wanted of ``members[k]``.
    positions : list of int
        The positions in the shard of the wanted examples, ascending.
    places : list of int
        The place of each of them in the request.
    """

    shard: ShardIndex
    first: int
    members: list[int]
    starts: list[int]
    stops: list[int]
    firsts: list[int]
    counts: list[int]
    bounds: list[int]
    positions: list[int]
    places: list[int]


class ExamplePlaces:
    """The examples of a split, numbered from 0, and their shards.

    Parameters
    ----------
    shards : sequence of ShardIndex
        Of the split, in order.
    """

    def __init__(self, shards: Sequence[ShardIndex]):
        self.shards = list(shards)
        counts = np.array([shard.examples for shard in shards], np.int64)
        self.ends: Integers = np.cumsum(counts)
        self.firsts: Integers = self.ends - counts
        self._ends: list[int] = self.ends.tolist()

    def __len__(self) -> int:
        return int(self.ends[-1]) if len(self.ends) else 0

    def find(self, numbers: Integers) -> Iterator[Wanted]:
        """Yields what to read for some examples, shard by shard."""
        if not len(numbers):
            return
        order = np.argsort(numbers, kind="stable")
        ascending = numbers[order]
        shard_of = np.searchsorted(self.ends, ascending, "right")
        cuts = np.flatnonzero(np.diff(shard_of)) + 1
        starts = [0, *cuts.tolist()]
        for start, stop in zip(starts, [*starts[1:], len(numbers)], strict=True):
            shard = int(shard_of[start])
            yield self._in_shard(shard, ascending[start:stop], order[start:stop])

    def find_one(self, number: int) -> tuple[ShardIndex, int, Span]:
        """Returns the shard of an example, its position there, and its member."""
        k = bisect.bisect_right(self._ends, number)
        shard = self.shards[k]
        first = self._ends[k] - shard.examples
        position = number - first
        if shard.per_member is not None:
            member = position // shard.per_member
        else:
            member = int(shard.member_of(np.array([position]))[0])
        return shard, position, shard.span(member)

    def _in_shard(self, number: int, examples: Integers, places: Integers) -> Wanted:
        shard = self.shards[number]
        first = int(self.firsts[number])
        positions = examples - first
        member_of = np.asarray(shard.member_of(positions), np.int64)
        is_new = np.concatenate([[True], member_of[1:] != member_of[:-1]])
        cuts = np.flatnonzero(is_new)
        members = member_of[cuts]
        starts, stops = _edges(shard.offsets, members, shard.bytes)
        if shard.per_member is not None:
            firsts = members * shard.per_member
            ends = np.minimum(firsts + shard.per_member, shard.examples)
        else:
            assert shard.firsts is not None
            firsts, ends = _edges(shard.firsts, members, shard.examples)
        return Wanted(
            shard,
            first,
            members.tolist(),
            starts.tolist(),
            stops.tolist(),
            firsts.tolist(),
            (ends - firsts).tolist(),
            [*cuts.tolist(), len(positions)],
            positions.tolist(),
            places.tolist(),
        )


def _edges(array: Any, members: Integers, end: int) -> tuple[Integers, Integers]:
    """Returns where members begin in an array of beginnings, and where they end."""
    starts = array[members].astype(np.int64)
    after = np.minimum(members + 1, len(array) - 1)
    stops = np.where(members + 1 == len(array), end, array[after].astype(np.int64))
    return starts, stops


def load_places(
    folder: str, metadata: Metadata, entries: Sequence[ShardEntry]
) -> ExamplePlaces:
    """Reads the index of a data set for the shards of a split.

    Raises
    ------
    InputError
        If there is no index, it is damaged, or it does not fit the shards in the
        metadata.
    """
    remedy = f"Run `audio-tfrecords index {folder}`."
    try:
        index = MemberIndex.load(folder)
    except FileNotFoundError as error:
        raise InputError(
            f"{folder} has no {INDEX}, so its examples cannot be read at random. "
            f"{remedy} `replay` reads the data set without it."
        ) from error
    path = files.join(folder, INDEX)
    found = []
    for entry in entries:
        shard = index.shards.get(entry.file)
        if shard is None:
            raise InputError(
                f"{path} does not fit the data set: it lacks the shard {entry.file}. "
                f"{remedy}"
            )
        for what in ("examples", "bytes", "sha256"):
            ours, theirs = getattr(shard, what), getattr(entry, what)
            if ours != theirs:
                raise InputError(
                    f"{path} does not fit the data set: for the shard {entry.file}, it "
                    f"has {what} {ours}, but {METADATA} has {theirs}. {remedy}"
                )
        try:
            shard.check()
        except ValueError as error:
            raise damaged(folder, error) from error
        found.append(shard)
    return ExamplePlaces(found)
