"""Records out of the members of shards: where they are, read, inflated and checked.

The bytes of local shards come by ``pread``, those of a store by ranges.
"""

from __future__ import annotations

import bisect
import os
import stat
import struct
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, repeat
from typing import NamedTuple

import numpy as np

from beam_pipeline.dataset.member_index import ShardIndex, Span, damaged
from beam_pipeline.dataset.metadata import ShardEntry
from beam_pipeline.dataset.output_folder import INDEX, METADATA
from beam_pipeline.dataset.side_by_side import DataSets
from beam_pipeline.errors import DamagedRecord, InputError
from beam_pipeline.permutation import Integers
from beam_pipeline.storage import files, object_store
from beam_pipeline.storage.gzip_members import (
    inflate_member,
    inflate_members,
    too_long,
)
from beam_pipeline.storage.tfrecord import (
    FRAME_BYTES,
    is_compressed,
    record_bounds,
    record_data,
)

# Members so near to each other are read at once, up to so many bytes.
LOCAL_GAP = 32 << 10
REMOTE_GAP = 512 << 10
MOST_AT_ONCE = 4 << 20

# Members of one example are inflated together, up to so many bytes: threads then take
# turns less often, and the content still fits into a core's cache.
INFLATED_AT_ONCE = 256 << 10

# Members of several examples stay inflated, as many as fit.
KEPT_BYTES = 16 << 20
KEPT_MEMBERS = 8

# Members up to so many bytes are inflated, whatever examples may have.
LARGE_BYTES = 64 << 20

# No member inflates to more than so many times its size.
_MOST_RATIO = 1040
_FOOTER = 4
_DIFFERS = (
    "the index of members does not fit; run `audio-tfrecords index` on the folder"
)

# (place in the request, number in the split, buffer, start, stop, offset in the file)
Found = tuple[int, int, bytes, int, int, int]


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

    def find_one(self, number: int) -> tuple[ShardIndex, Span]:
        """Returns the shard of an example, and its member."""
        k = bisect.bisect_right(self._ends, number)
        shard = self.shards[k]
        first = self._ends[k] - shard.examples
        return shard, shard.span(int(shard.member_of(number - first)))

    def _in_shard(self, number: int, examples: Integers, places: Integers) -> Wanted:
        shard, first = self.shards[number], int(self.firsts[number])
        positions = examples - first
        member_of = shard.member_of(positions)
        cuts = np.flatnonzero(np.diff(member_of, prepend=-1))
        members = member_of[cuts]
        firsts, stops = shard.firsts[members], shard.firsts[members + 1]
        return Wanted(
            shard,
            first,
            members.tolist(),
            shard.offsets[members].tolist(),
            shard.offsets[members + 1].tolist(),
            firsts.tolist(),
            (stops - firsts).tolist(),
            [*cuts.tolist(), len(positions)],
            positions.tolist(),
            places.tolist(),
        )


def load_places(data: DataSets, entries: Sequence[ShardEntry]) -> ExamplePlaces:
    """Reads the index of data sets for the shards of a split.

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
        problem = "" if shard else f"it lacks the shard {entry.file}"
        for what in ("examples", "bytes", "sha256"):
            ours, theirs = getattr(shard, what, None), getattr(entry, what)
            if shard and ours != theirs:
                problem = (
                    f"for the shard {entry.file}, it has {what} {ours}, but {METADATA} "
                    f"has {theirs}"
                )
        if shard is None or problem:
            raise InputError(
                f"{INDEX} of {data.name} does not fit the data set: {problem}. Run "
                f"`audio-tfrecords index {data.name}`."
            )
        try:
            shard.check()
        except ValueError as error:
            raise damaged(data.name, error) from error
        found.append(shard)
    return ExamplePlaces(found)


class _Inflated(NamedTuple):
    content: bytes
    bounds: Sequence[int]


class MemberReader:
    """Reads examples of the shards of data sets.

    Parameters
    ----------
    folders : sequence of str
        Of the data sets, absolute; all local, or none.
    most_record_bytes : int, optional
        The length that no record exceeds. Default: unknown.
    """

    def __init__(self, folders: Sequence[str], most_record_bytes: int | None = None):
        self._most_bytes = most_record_bytes
        self._bytes = ShardBytes(folders)
        self.check_data_set = self._bytes.check_data_set
        self.gap = LOCAL_GAP if files.is_local(folders[0]) else REMOTE_GAP
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, int], _Inflated] = OrderedDict()
        self._kept_bytes = 0

    def read(self, wanted: Wanted) -> Iterator[Found]:
        """Yields the wanted examples of a shard, in its order.

        ``buffer[start:stop]`` is the record; at least 4 bytes follow it.

        Raises
        ------
        DamagedRecord
            If a member or a record is damaged, or is not where the index says.
        InputError, StoreError
            See :meth:`ShardBytes.read`.
        """
        shard, starts, stops = wanted.shard, wanted.starts, wanted.stops
        compressed = is_compressed(shard.file)
        unread = []
        for k, count in enumerate(wanted.counts):
            kept = self._find_kept(wanted, k) if count > 1 else None
            if kept is None:
                unread.append(k)
            else:
                yield from self._records(wanted, [(k, *kept)])
        runs = _runs(unread, starts, stops, self.gap)
        ranges = [(starts[run[0]], stops[run[-1]]) for run in runs]
        alone: list[tuple[int, memoryview]] = []  # members of one example
        length = 0
        for run, data in zip(runs, self._bytes.read(shard, ranges), strict=True):
            view, before = memoryview(data), starts[run[0]]
            for k in run:
                start, stop = starts[k] - before, stops[k] - before
                if not compressed and wanted.counts[k] == 1:
                    yield from self._records(wanted, [(k, data, (start, stop))])
                    continue
                piece = view[start:stop]
                if wanted.counts[k] == 1:
                    if alone and length + _length(piece) > INFLATED_AT_ONCE:
                        yield from self._alone(wanted, alone)
                        alone, length = [], 0
                    alone.append((k, piece))
                    length += _length(piece)
                    continue
                content = self._content(wanted, k, piece) if compressed else piece
                member = self._member(wanted, k, bytes(content))
                yield from self._records(wanted, [(k, *member)])
        yield from self._alone(wanted, alone)

    def _alone(
        self, wanted: Wanted, members: Sequence[tuple[int, memoryview]]
    ) -> Iterator[Found]:
        """Yields the records of members of one example, inflated together."""
        content, lengths = b"", [_length(piece) for _, piece in members]
        if len(members) > 1:
            with suppress(ValueError):  # one by one, the damaged one is found
                joined = b"".join(piece for _, piece in members)
                content = inflate_members(joined, sum(lengths))
        if content:
            ends = list(accumulate(lengths))
            pairs = zip([0, *ends], ends, strict=False)
            numbers = (k for k, _ in members)
            yield from self._records(
                wanted, zip(numbers, repeat(content), pairs, strict=False)
            )
            return
        for k, piece in members:
            alone = self._content(wanted, k, piece)
            yield from self._records(wanted, [(k, alone, (0, len(alone)))])

    def read_alone(
        self, shard: ShardIndex, span: Span, number: int
    ) -> tuple[bytes, int, int]:
        """Returns the only record of a member; see :meth:`read`.

        Parameters
        ----------
        number : int
            The number of the example in the split, for errors.

        Returns
        -------
        buffer, start, stop
        """
        (data,) = self._bytes.read(shard, [(span.offset, span.offset + span.size)])
        try:
            if is_compressed(shard.file):
                data = self._inflate(data, 1)
            start, stop = record_data(data, 0)
            if stop + _FOOTER != len(data):
                raise ValueError(_DIFFERS)
        except ValueError as error:
            self._bytes.check(shard)
            path = self._bytes.path(shard)
            raise DamagedRecord(path, span.offset, number, str(error)) from error
        return data, start, stop

    def _records(
        self, wanted: Wanted, members: Iterable[tuple[int, bytes, Sequence[int]]]
    ) -> Iterator[Found]:
        """Yields the wanted records of members: content, and where each begins."""
        positions, places, first = wanted.positions, wanted.places, wanted.first
        for k, content, bounds in members:
            for i in range(wanted.bounds[k], wanted.bounds[k + 1]):
                number = first + positions[i]
                nth = positions[i] - wanted.firsts[k]
                try:
                    start, stop = record_data(content, bounds[nth])
                    if stop + _FOOTER != bounds[nth + 1]:
                        raise ValueError(_DIFFERS)
                except (ValueError, IndexError) as error:
                    raise self._damaged(wanted, k, number, str(error)) from error
                yield places[i], number, content, start, stop, wanted.starts[k]

    def _find_kept(self, wanted: Wanted, k: int) -> _Inflated | None:
        """Returns the content of a member that was inflated lately."""
        if self._process != os.getpid():
            self._start()  # a lock may be held by a thread that is not here
        key = wanted.shard.file, wanted.members[k]
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
            return self._kept.get(key)

    def _member(self, wanted: Wanted, k: int, content: bytes) -> _Inflated:
        """Returns the records of a member of several, and keeps it."""
        number = wanted.first + wanted.positions[wanted.bounds[k]]
        try:
            bounds = record_bounds(content)
        except struct.error:
            bounds = []
        if len(bounds) != wanted.counts[k] + 1 or bounds[-1] != len(content):
            raise self._damaged(wanted, k, number, _DIFFERS)
        member = _Inflated(content, bounds)
        with self._lock:
            key = wanted.shard.file, wanted.members[k]
            if key not in self._kept:
                self._kept[key] = member
                self._kept_bytes += len(content)
            while self._kept and (
                self._kept_bytes > KEPT_BYTES or len(self._kept) > KEPT_MEMBERS
            ):
                _, dropped = self._kept.popitem(last=False)
                self._kept_bytes -= len(dropped.content)
        return member

    def _content(self, wanted: Wanted, k: int, piece: memoryview) -> bytes:
        try:
            return self._inflate(piece, wanted.counts[k])
        except ValueError as error:
            number = wanted.first + wanted.positions[wanted.bounds[k]]
            raise self._damaged(wanted, k, number, str(error)) from error

    def _inflate(self, piece: bytes | memoryview, examples: int) -> bytes:
        """Returns the content of a member of so many examples.

        A damaged or crafted member must not request gigabytes: its content has the
        length that it states, which GZIP and the features limit.
        """
        if not len(piece):
            raise ValueError("the file ends before it")
        length = _length(piece)
        if length > _MOST_RATIO * len(piece):
            raise ValueError(f"{len(piece)} bytes of GZIP cannot hold {length} bytes")
        problem = too_long(length, len(piece))
        if problem is not None:
            raise ValueError(problem)
        if self._most_bytes is not None and length > LARGE_BYTES:
            most = examples * (self._most_bytes + FRAME_BYTES)
            if length > most:
                raise ValueError(
                    f"{examples} examples have at most {most} bytes, not {length}"
                )
        return inflate_member(piece, length)

    def _damaged(
        self, wanted: Wanted, k: int, number: int, problem: str
    ) -> DamagedRecord:
        self._bytes.check(wanted.shard)
        path = self._bytes.path(wanted.shard)
        return DamagedRecord(path, wanted.starts[k], number, problem)


def _length(piece: bytes | memoryview) -> int:
    """Returns how long the content of a member is, from its last 4 bytes."""
    return int.from_bytes(piece[-4:], "little")


def _runs(
    members: Sequence[int], starts: Sequence[int], stops: Sequence[int], gap: int
) -> list[list[int]]:
    """Returns the members to read at once.

    >>> _runs([0, 1, 2], [0, 10, 900], [10, 20, 910], gap=100)
    [[0, 1], [2]]
    """
    runs: list[list[int]] = []
    end, most = -1, -1
    for k in members:
        if runs and starts[k] - end <= gap and stops[k] <= most:
            runs[-1].append(k)
        else:
            runs.append([k])
            most = starts[k] + MOST_AT_ONCE
        end = stops[k]
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
        found = os.fstat(self.fd)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is not a regular file")
        self.stamp = _stamp(found)

    def has_changed(self) -> bool:
        """Whether the file was written since it was opened."""
        return _stamp(os.fstat(self.fd)) != self.stamp

    # When the interpreter shuts down, ``os`` may be gone before the last shard.
    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if hasattr(self, "fd"):
            close(self.fd)


def _stamp(found: os.stat_result) -> _Stamp:
    return found.st_size, found.st_mtime_ns, found.st_ino


class ShardBytes:
    """The shards of data sets; safe in threads, and in processes after a fork.

    At most 128 files stay open.

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
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._open: OrderedDict[str, _OpenShard] = OrderedDict()

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
            for number, (start, stop) in enumerate(ranges, 1):
                with files.reading(path):
                    data = _pread(opened.fd, start, stop)
                if number == len(ranges):
                    self.check(shard)
                yield data
            return
        if files.is_beams(path):
            with files.open_read(path) as file:
                for start, stop in ranges:
                    file.seek(start)
                    yield file.read(stop - start)
            return
        try:
            for piece in object_store.read_ranges(path, ranges):
                self._check(shard, (piece.size, piece.e_tag, 0))
                yield piece.content
        except FileNotFoundError as error:
            raise self._missing(shard, error) from error

    def check_data_set(self, shard: ShardIndex, now: bool = False) -> None:
        """Raises InputError if another process has rewritten a local data set.

        The files that are open would still give the examples of before. Does nothing if
        the last test was less than ``CHECK_SECONDS`` ago, except ``now``.
        """
        if self._is_local and (now or time.monotonic() >= self._next_check):
            if self._metadata_stamp() != self._metadata:
                raise self._rewritten(shard, f"{METADATA} has changed")
            self._next_check = time.monotonic() + CHECK_SECONDS

    def check(self, shard: ShardIndex) -> None:
        """Raises InputError if a local shard has changed since it was opened."""
        opened = self._open.get(shard.file)
        if opened is not None and opened.has_changed():
            raise self._rewritten(shard, "it has changed since it was opened")

    def _opened(self, shard: ShardIndex) -> _OpenShard:
        if self._process != os.getpid():
            self._start()  # a lock may be held by a thread that is not here
        with self._lock:
            opened = self._open.get(shard.file)
            if opened is not None:
                self._open.move_to_end(shard.file)
                return opened
        try:
            with files.reading(self.path(shard)):
                opened = _OpenShard(self.path(shard))
        except OSError as error:
            raise self._missing(shard, error) from error
        self._check(shard, opened.stamp)
        self.check_data_set(shard, now=True)
        with self._lock:
            self._open[shard.file] = opened
            while len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)
        return opened

    def _check(self, shard: ShardIndex, stamp: _Stamp) -> None:
        """Raises InputError if a file is not the one of the index, or seen before."""
        if stamp[0] != shard.bytes:
            what = f"it has {stamp[0]} bytes instead of {shard.bytes}"
        elif self._seen.setdefault(shard.file, stamp) != stamp:
            what = "it has changed since it was first read"
        else:
            return
        raise self._rewritten(shard, what)

    def _metadata_stamp(self) -> list[_Stamp] | None:
        if not self._is_local:
            return None
        try:
            return [_stamp(os.stat(path)) for path in self._metadata_paths]
        except OSError:
            return None

    def _missing(self, shard: ShardIndex, error: Exception) -> InputError:
        return InputError(
            f"{self.path(shard)} cannot be read: {error}. The shard was deleted or "
            "replaced, or another process is rewriting the data set. When it is done, "
            "open the data set again."
        )

    def _rewritten(self, shard: ShardIndex, what: str) -> InputError:
        return InputError(
            f"{self.path(shard)} is not the shard that was opened: {what}. The shard "
            "was damaged, or another process has rewritten the data set: open it "
            "again. To check every shard, run `audio-tfrecords verify "
            f"{self._name}`."
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
