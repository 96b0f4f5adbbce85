"""Examples of a split out of the members of its shards: found, read, inflated, checked.

The bytes of local shards come by ``pread``, those of a store by ranges.
"""

from __future__ import annotations

import bisect
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

import numpy as np

from beam_pipeline.arrays import Integers
from beam_pipeline.dataset.folders import METADATA
from beam_pipeline.dataset.metadata import ShardEntry, ShardIndex, damaged_index
from beam_pipeline.dataset.side_by_side import DataSets
from beam_pipeline.errors import DamagedRecord, InputError
from beam_pipeline.storage import files, object_store
from beam_pipeline.storage.tfrecord import (
    content_length,
    inflate_members,
    is_compressed,
    record_bounds,
    record_data,
    too_long,
)

# Members so near to each other are read at once, up to so many bytes. What is read of
# local files stays in a core's cache, in memory that the next read takes again; each
# request to a store takes a while.
LOCAL_GAP, LOCAL_AT_ONCE = 32 << 10, 512 << 10
REMOTE_GAP, REMOTE_AT_ONCE = 512 << 10, 4 << 20

# Members of one example are inflated together, up to so many bytes: threads then take
# turns less often, and the content still fits into a core's cache.
INFLATED_AT_ONCE = 256 << 10

_FOOTER = 4
_DIFFERS = "the index of members does not fit"

# From ``data[start:stop]``, which is a record, to what its reader wants. At least 4
# bytes follow the record. A ValueError says that it is damaged.
Parse = Callable[[bytes, int, int], Any]


class WantedMember(NamedTuple):
    """A member of a shard, and which of its examples are wanted.

    Attributes
    ----------
    start, stop : int
        Where it is in the file.
    first, examples : int
        The number in the split of its first example, and how many it has.
    wanted : list of (int, int)
        The place in the request, and the number in the split, of wanted examples.
    """

    start: int
    stop: int
    first: int
    examples: int
    wanted: list[tuple[int, int]]


def check_shards(data: DataSets, entries: Sequence[ShardEntry]) -> list[ShardIndex]:
    """Returns the indices of the shards of a split, in order.

    Raises
    ------
    InputError
        If there is no index, it is damaged, or it does not fit the shards in the
        metadata.
    """
    index = data.members()
    found = []
    for entry in entries:
        shard = index.get(entry.file)
        try:
            if shard is None:
                raise ValueError(f"it lacks the shard {entry.file}")
            for what in ("examples", "bytes", "sha256"):
                ours, theirs = getattr(shard, what), getattr(entry, what)
                if ours != theirs:
                    raise ValueError(
                        f"for the shard {entry.file}, it has {what} {ours}, but "
                        f"{METADATA} has {theirs}"
                    )
            shard.check()
        except ValueError as error:
            raise damaged_index(data.name, error) from error
        found.append(shard)
    return found


class _Inflated(NamedTuple):
    """The content of a member, and where each of its records begins in it."""

    member: WantedMember
    content: bytes
    bounds: Sequence[int]


class MemberReader:
    """Reads the examples of a split, numbered from 0; safe in threads.

    Parameters
    ----------
    folders : sequence of str
        Of the data sets, absolute; all local, or none.
    shards : sequence of ShardIndex
        Of the split, in order.
    """

    def __init__(self, folders: Sequence[str], shards: Sequence[ShardIndex]):
        self.shards = list(shards)
        counts = np.array([shard.examples for shard in shards], np.int64)
        self.ends: Integers = np.cumsum(counts)
        self._ends: list[int] = self.ends.tolist()
        self._bytes = ShardBytes(folders)
        self._gap, self._at_once = REMOTE_GAP, REMOTE_AT_ONCE
        if files.is_local(folders[0]):
            self._gap, self._at_once = LOCAL_GAP, LOCAL_AT_ONCE
        # The member of several examples that was inflated last, and where it is:
        # neighbours are often read one by one.
        self._last: tuple[tuple[str, int], _Inflated] | None = None

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def read(self, numbers: Integers, parse: Parse) -> Iterator[tuple[int, Any]]:
        """Yields (place in ``numbers``, what ``parse`` returns), shard by shard.

        Raises
        ------
        DamagedRecord
            If a member or a record is damaged, or is not where the index says.
        InputError, StoreError
            See :meth:`ShardBytes.read`.
        """
        if not len(numbers):
            return
        order = np.argsort(numbers, kind="stable")
        ascending = numbers[order]
        shard_of = np.searchsorted(self.ends, ascending, "right")
        cuts = np.flatnonzero(np.diff(shard_of)) + 1
        for start, stop in pairwise([0, *cuts.tolist(), len(numbers)]):
            k = int(shard_of[start])
            if start == 0:
                self._bytes.check_data_set(self.shards[k])
            shard = self.shards[k]
            members = self._find(k, ascending[start:stop], order[start:stop])
            for found in self._inflated(shard, members):
                for place, number in found.member.wanted:
                    yield place, self._parse_one(shard, found, number, parse)

    def read_one(self, number: int, parse: Parse) -> Any:
        """Returns what ``parse`` returns of one example; faster than :meth:`read`."""
        k = bisect.bisect_right(self._ends, number)
        shard = self.shards[k]
        first = self._ends[k] - shard.examples
        span = shard.span(int(shard.member_of(number - first)))
        end = span.offset + span.size
        member = WantedMember(
            span.offset, end, first + span.first, span.examples, [(0, number)]
        )
        self._bytes.check_data_set(shard)
        found = self._kept(shard, member)
        if found is None:
            (piece,) = self._bytes.read(shard, [(member.start, member.stop)])
            found = self._inflate_member(shard, member, piece)
        return self._parse_one(shard, found, number, parse)

    def _find(self, k: int, numbers: Integers, places: Integers) -> list[WantedMember]:
        """Returns the members of a shard that hold some examples, in its order."""
        shard, first = self.shards[k], self._ends[k] - self.shards[k].examples
        member_of = shard.member_of(numbers - first)
        cuts = np.flatnonzero(np.diff(member_of, prepend=-1))
        members = member_of[cuts]
        firsts, stops = shard.firsts[members], shard.firsts[members + 1]
        wanted = list(zip(places.tolist(), numbers.tolist(), strict=True))
        bounds = pairwise([*cuts.tolist(), len(wanted)])
        return [
            WantedMember(start, stop, first + begin, examples, wanted[a:b])
            for start, stop, begin, examples, (a, b) in zip(
                shard.offsets[members].tolist(),
                shard.offsets[members + 1].tolist(),
                firsts.tolist(),
                (stops - firsts).tolist(),
                bounds,
                strict=True,
            )
        ]

    def _parse_one(
        self, shard: ShardIndex, found: _Inflated, number: int, parse: Parse
    ) -> Any:
        """Returns what ``parse`` returns of an example of a member."""
        member, content, bounds = found
        nth = number - member.first
        try:
            start, stop = record_data(content, bounds[nth])
            if stop + _FOOTER != bounds[nth + 1]:
                raise ValueError(_DIFFERS)
            return parse(content, start, stop)
        except ValueError as error:
            raise self._damaged(shard, member, error, number) from error

    def _kept(self, shard: ShardIndex, member: WantedMember) -> _Inflated | None:
        """Returns a member if it is the one that was inflated last."""
        last = self._last
        if last is None or last[0] != (shard.file, member.start):
            return None
        return last[1]._replace(member=member)

    def _inflated(
        self, shard: ShardIndex, members: Sequence[WantedMember]
    ) -> Iterator[_Inflated]:
        """Yields members of a shard as they are read."""
        unread = []
        for member in members:
            found = self._kept(shard, member)
            if found is None:
                unread.append(member)
            else:
                yield found
        runs = _runs(unread, self._gap, self._at_once)
        ranges = [(run[0].start, run[-1].stop) for run in runs]
        alone: list[tuple[WantedMember, memoryview]] = []  # members of one example
        length, compressed = 0, is_compressed(shard.file)
        for run, data in zip(runs, self._bytes.read(shard, ranges), strict=True):
            view, before = memoryview(data), run[0].start
            for member in run:
                start, stop = member.start - before, member.stop - before
                piece = view[start:stop]
                if member.examples > 1:
                    yield self._inflate_member(shard, member, piece)
                    continue
                if not compressed:
                    yield _Inflated(member, data, (start, stop))
                    continue
                length += content_length(piece)
                if length > INFLATED_AT_ONCE:
                    yield from self._inflate_alone(shard, alone)
                    alone, length = [], content_length(piece)
                alone.append((member, piece))
        yield from self._inflate_alone(shard, alone)

    def _inflate_alone(
        self, shard: ShardIndex, members: Sequence[tuple[WantedMember, memoryview]]
    ) -> Iterator[_Inflated]:
        """Yields members that hold one example each, which are inflated together."""
        content = b""
        ends = [0, *accumulate(content_length(piece) for _, piece in members)]
        if len(members) > 1:
            with suppress(ValueError):  # one by one, the damaged one is found
                content = inflate_members(b"".join([p for _, p in members]), ends[-1])
        for (member, piece), bounds in zip(members, pairwise(ends), strict=True):
            if content:
                yield _Inflated(member, content, bounds)
                continue
            yield self._inflate_member(shard, member, piece)

    def _inflate_member(
        self, shard: ShardIndex, member: WantedMember, piece: bytes | memoryview
    ) -> _Inflated:
        """Returns a member; keeps one of several examples."""
        try:
            content = _content(piece) if is_compressed(shard.file) else bytes(piece)
            bounds = (
                record_bounds(content) if member.examples > 1 else [0, len(content)]
            )
            if len(bounds) != member.examples + 1 or bounds[-1] != len(content):
                raise ValueError(_DIFFERS)
        except ValueError as error:
            raise self._damaged(shard, member, error) from error
        found = _Inflated(member, content, bounds)
        if member.examples > 1:
            self._last = (shard.file, member.start), found
        return found

    def _damaged(
        self,
        shard: ShardIndex,
        member: WantedMember,
        error: Exception,
        number: int | None = None,
    ) -> DamagedRecord:
        """Returns the error for an example; by default the first wanted of a member."""
        number = member.wanted[0][1] if number is None else number
        return DamagedRecord(self._bytes.path(shard), member.start, number, str(error))


def _content(piece: bytes | memoryview) -> bytes:
    """Returns the content of a compressed member.

    A damaged or crafted member must not request gigabytes: its content has the length
    that it states, which is limited.
    """
    length = content_length(piece)
    if problem := too_long(length, len(piece)):
        raise ValueError(problem)
    return inflate_members(piece, length)


def _runs(
    members: Sequence[WantedMember], gap: int, at_once: int
) -> list[list[WantedMember]]:
    """Returns the members to read at once.

    >>> members = [WantedMember(k, k + 10, 0, 1, []) for k in (0, 10, 900)]
    >>> [len(run) for run in _runs(members, gap=100, at_once=1000)]
    [2, 1]
    """
    runs: list[list[WantedMember]] = []
    end, most = -1, -1
    for member in members:
        if runs and member.start - end <= gap and member.stop <= most:
            runs[-1].append(member)
        else:
            runs.append([member])
            most = member.start + at_once
        end = member.stop
    return runs


MOST_OPEN = 128

# A local data set is compared with the one that was opened at most so often.
CHECK_SECONDS = 0.01

# Opening a pipe would wait for its writer without O_NONBLOCK, which files ignore.
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)

# The size of a file, when it was modified and its number: that it is the one it was.
_Stamp = tuple[int, int | str, int]


class _OpenShard:
    """A descriptor that closes when the last thread that reads from it is done."""

    __slots__ = ("fd", "stamp")

    def __init__(self, path: str):
        self.fd = os.open(path, _OPEN_FLAGS)
        self.stamp = _stamp(os.fstat(self.fd))

    # When the interpreter shuts down, ``os`` may be gone before the last shard.
    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if hasattr(self, "fd"):
            close(self.fd)


def _stamp(found: os.stat_result) -> _Stamp:
    return found.st_size, found.st_mtime_ns, found.st_ino


class ShardBytes:
    """The shards of data sets; safe in threads, and in processes after a fork.

    At most 128 files stay open. Each change of what is open is a single operation of a
    dict, so no lock is needed, which another thread might hold in a fork.

    Parameters
    ----------
    folders : sequence of str
        Of the data sets, absolute; all local, or none. If there are several, shards
        have absolute paths.
    """

    def __init__(self, folders: Sequence[str]):
        self._folder = folders[0]
        self._name = " ".join(folders)
        self._is_local = files.is_local(folders[0])
        self._metadata_paths = [files.join(folder, METADATA) for folder in folders]
        self._metadata = self._metadata_stamp()
        self._next_check = 0.0
        self._seen: dict[str, _Stamp] = {}
        self._open: dict[str, _OpenShard] = {}

    def path(self, shard: ShardIndex) -> str:
        """Returns the path of a shard."""
        return files.join(self._folder, shard.file)

    def read(
        self, shard: ShardIndex, ranges: Sequence[tuple[int, int]]
    ) -> Iterator[bytes]:
        """Yields the bytes of a shard in some ranges (start, stop).

        Raises
        ------
        InputError
            If the shard is missing, or is not the one that the index describes, because
            another process has rewritten the data set.
        StoreError
            If a store does not answer.
        """
        path = self.path(shard)
        if self._is_local:
            opened = self._opened(shard)
            for start, stop in ranges:
                with files.reading(path):
                    data = _pread(opened.fd, start, stop)
                yield data
        elif files.is_beams(path):
            with files.open_read(path) as file:
                for start, stop in ranges:
                    file.seek(start)
                    yield file.read(stop - start)
        else:
            try:
                for piece in object_store.read_ranges(path, ranges):
                    self._check(shard, (piece.size, piece.e_tag, 0))
                    yield piece.content
            except FileNotFoundError as error:
                raise self._replaced(shard, f"cannot be read: {error}") from error

    def check_data_set(self, shard: ShardIndex, now: bool = False) -> None:
        """Raises InputError if another process has rewritten a local data set.

        The files that are open would still give the examples of before. Does nothing if
        the last test was less than ``CHECK_SECONDS`` ago, except ``now``.
        """
        if self._is_local and (now or time.monotonic() >= self._next_check):
            if self._metadata_stamp() != self._metadata:
                raise self._replaced(shard, f"is of before: {METADATA} has changed")
            self._next_check = time.monotonic() + CHECK_SECONDS

    def _opened(self, shard: ShardIndex) -> _OpenShard:
        opened = self._open.get(shard.file)
        if opened is not None:
            return opened
        try:
            with files.reading(self.path(shard)):
                opened = _OpenShard(self.path(shard))
        except OSError as error:
            raise self._replaced(shard, f"cannot be read: {error}") from error
        self._check(shard, opened.stamp)
        self.check_data_set(shard, now=True)
        self._open[shard.file] = opened
        for file in list(self._open)[:-MOST_OPEN]:
            self._open.pop(file, None)
        return opened

    def _check(self, shard: ShardIndex, stamp: _Stamp) -> None:
        """Raises InputError if a file is not the one of the index, or seen before."""
        if stamp[0] != shard.bytes:
            what = f"has {stamp[0]} bytes instead of {shard.bytes}"
        elif self._seen.setdefault(shard.file, stamp) != stamp:
            what = "has changed since it was first read"
        else:
            return
        raise self._replaced(shard, what)

    def _metadata_stamp(self) -> list[_Stamp] | None:
        if not self._is_local:
            return None
        try:
            return [_stamp(os.stat(path)) for path in self._metadata_paths]
        except OSError:
            return None

    def _replaced(self, shard: ShardIndex, what: str) -> InputError:
        return InputError(
            f"{self.path(shard)} {what}. The shard was deleted or damaged, or another "
            "process has rewritten the data set, or is doing so: open it again after "
            f"that. To check every shard, run `audio-tfrecords verify {self._name}`."
        )


def _pread(fd: int, start: int, stop: int) -> bytes:
    """Returns the bytes of a file in a range; fewer where the file ends."""
    data = os.pread(fd, stop - start, start)
    while 0 < len(data) < stop - start:
        more = os.pread(fd, stop - start - len(data), start + len(data))
        if not more:
            break
        data += more
    return data
