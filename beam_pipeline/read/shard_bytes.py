"""Bytes of shards at any place: local ones by ``pread``, those of a store by ranges."""

from __future__ import annotations

import os
import stat
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from beam_pipeline.dataset.member_index import ShardIndex
from beam_pipeline.dataset.output_folder import METADATA
from beam_pipeline.errors import InputError
from beam_pipeline.storage import files, object_store

MOST_OPEN = 128

# A local data set is compared with the one that was opened at most so often.
CHECK_SECONDS = 0.01

# Opening a pipe would wait for its writer without O_NONBLOCK, which files ignore.
_OPEN_FLAGS = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0)


class _Stamp(NamedTuple):
    """What shows that a file is the one that it was."""

    size: int
    modified: int | str
    number: int


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
        found, stamp = os.fstat(self.fd), self.stamp
        return (found.st_mtime_ns, found.st_size) != (stamp.modified, stamp.size)

    # When the interpreter shuts down, ``os`` may be gone before the last shard.
    def __del__(self, close: Callable[[int], None] = os.close) -> None:
        if hasattr(self, "fd"):
            close(self.fd)


def _stamp(found: os.stat_result) -> _Stamp:
    return _Stamp(found.st_size, found.st_mtime_ns, found.st_ino)


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
        if self._is_local:
            opened = self._opened(shard)
            for number, (start, stop) in enumerate(ranges, 1):
                data = _pread(opened.fd, start, stop)
                if number == len(ranges):
                    self.check(shard)
                yield data
            return
        path = self.path(shard)
        if files.is_beams(path):
            with files.open_read(path) as file:
                for start, stop in ranges:
                    file.seek(start)
                    yield file.read(stop - start)
            return
        try:
            for piece in object_store.read_ranges(path, ranges):
                self._check(shard, _Stamp(piece.size, piece.e_tag, 0))
                yield piece.content
        except FileNotFoundError as error:
            raise self._missing(shard, error) from error

    def check_data_set(self, shard: ShardIndex) -> None:
        """Raises InputError if another process has rewritten a local data set.

        The files that are open would still give the examples of before. Does nothing if
        the last test was less than ``CHECK_SECONDS`` ago.
        """
        now = time.monotonic()
        if self._is_local and now >= self._next_check:
            self._check_data_set(shard)
            self._next_check = now + CHECK_SECONDS

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
            opened = _OpenShard(self.path(shard))
        except OSError as error:
            raise self._missing(shard, error) from error
        self._check(shard, opened.stamp)
        self._check_data_set(shard)
        with self._lock:
            self._open[shard.file] = opened
            while len(self._open) > MOST_OPEN:
                self._open.popitem(last=False)
        return opened

    def _check_data_set(self, shard: ShardIndex) -> None:
        if self._metadata_stamp() != self._metadata:
            raise self._rewritten(shard, f"{METADATA} has changed")

    def _check(self, shard: ShardIndex, stamp: _Stamp) -> None:
        """Raises InputError if a file is not the one of the index, or seen before."""
        if stamp.size != shard.bytes:
            raise self._rewritten(
                shard, f"it has {stamp.size} bytes instead of {shard.bytes}"
            )
        if self._seen.setdefault(shard.file, stamp) != stamp:
            raise self._rewritten(shard, "it has changed since it was first read")

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
