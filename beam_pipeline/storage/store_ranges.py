"""Ranges of objects in stores, several at once; also in forked processes.

The threads of the store's client do not survive a fork: in the child, a request would
wait for ever. There, a helper process sends the requests::

    forked process                            helper process
    read_ranges -> _Helper -> pipe: number, path, range  -> serve -> store
                   futures <- pipe: number, bytes or error <-
"""

from __future__ import annotations

import functools
import os
import pickle
import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from typing import Any, BinaryIO, NamedTuple

from beam_pipeline.errors import StoreError
from beam_pipeline.storage import object_store

_AHEAD = object_store.REQUESTS_AT_ONCE
_SERVE = (
    "import sys; sys.path[:] = {path!r}; "
    "from beam_pipeline.storage.store_ranges import serve; serve()"
)


class Piece(NamedTuple):
    """Bytes of an object, its whole size, and the tag that identifies its content."""

    content: bytes
    size: int
    e_tag: str


def read_ranges(path: str, ranges: Sequence[tuple[int, int]]) -> Iterator[Piece]:
    """Yields the bytes of an object in some ranges (start, stop).

    Up to 32 requests are sent at once. Failed requests are repeated with growing
    pauses, for up to three minutes.

    Raises
    ------
    FileNotFoundError
        If there is no such object.
    InputError, StoreError
        See :mod:`.object_store`.
    """
    under_way: deque[Future[Piece]] = deque()
    try:
        for start, stop in ranges:
            under_way.append(_begin(path, start, stop))
            if len(under_way) >= _AHEAD:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        for future in under_way:
            future.cancel()


def read_whole(path: str) -> bytes:
    """Returns an object's content."""
    return _begin(path, 0, None).result().content


def _begin(path: str, start: int, stop: int | None) -> Future[Piece]:
    if object_store.was_forked():
        return _helper(os.getpid()).begin(path, start, stop)
    return object_store.pool_of(os.getpid()).submit(_fetch, path, start, stop)


def _fetch(path: str, start: int, stop: int | None) -> Piece:
    import obstore

    store, key = object_store._split(path)
    options: Any = {} if stop is None else {"range": (start, stop)}
    with object_store._explained(path):
        answer = obstore.get(store, key, options=options)
        meta = answer.meta
        content = bytes(answer.bytes())
    return Piece(content, meta["size"], meta["e_tag"] or str(meta["last_modified"]))


@functools.lru_cache(maxsize=1)
def _helper(_: int) -> _Helper:
    """Returns the helper of this process."""
    return _Helper()


class _Helper:
    """A process of its own that sends the requests of this one."""

    def __init__(self) -> None:
        code = _SERVE.format(path=sys.path)
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self._lock = threading.Lock()
        self._waiting: dict[int, Future[Piece]] = {}
        self._number = 0
        threading.Thread(target=self._receive, daemon=True).start()

    def begin(self, path: str, start: int, stop: int | None) -> Future[Piece]:
        """Sends a request without waiting for its answer."""
        future: Future[Piece] = Future()
        assert self._process.stdin is not None
        with self._lock:
            self._number += 1
            self._waiting[self._number] = future
            try:
                _send(self._process.stdin, (self._number, path, start, stop))
            except OSError:
                self._fail()
        return future

    def _receive(self) -> None:
        assert self._process.stdout is not None
        while (answer := _receive(self._process.stdout)) is not None:
            number, found = answer
            with self._lock:
                future = self._waiting.pop(number)
            if not future.set_running_or_notify_cancel():
                continue
            if isinstance(found, BaseException):
                future.set_exception(found)
            else:
                future.set_result(found)
        with self._lock:
            self._fail()

    def _fail(self) -> None:
        """Ends all requests, after the helper has ended."""
        for future in self._waiting.values():
            if not future.done():
                future.set_exception(
                    StoreError(
                        "the store's helper process",
                        "it has ended",
                        object_store._SPAWN,
                    )
                )
        self._waiting.clear()


def serve() -> None:
    """Answers requests from stdin on stdout, until stdin ends."""
    lock, answers = threading.Lock(), sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing else may be among the answers

    def answer(number: int, path: str, start: int, stop: int | None) -> None:
        try:
            found: Any = _fetch(path, start, stop)
        except Exception as error:
            # Some causes do not pickle.
            error.__cause__ = error.__context__ = None
            found = error
        with lock:
            _send(answers, (number, found))

    while (request := _receive(sys.stdin.buffer)) is not None:
        object_store.pool_of(os.getpid()).submit(answer, *request)


def _send(pipe: BinaryIO | Any, message: Any) -> None:
    content = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    pipe.write(struct.pack("<Q", len(content)) + content)
    pipe.flush()


def _receive(pipe: BinaryIO | Any) -> Any:
    """Returns the next message; None at the end."""
    header = pipe.read(8)
    if len(header) < 8:
        return None
    content = pipe.read(struct.unpack("<Q", header)[0])
    return pickle.loads(content)
