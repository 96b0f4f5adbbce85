"""What a worker process has done, and what it is doing, in memory that others watch.

::

    worker    mark(clip, "decode")   mark(clip, "transform")   step("feature mel")   ...
    watcher   the worker died, or its mark stays for too long: whose clip is it?

A mark is a few stores into shared memory and takes about a microsecond. There is one
for each thread that works. Without a watcher, nothing is stored.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

_WORDS = {
    "probe": "probing it",
    "decode": "decoding it",
    "treat": "the selection and augmentation of its windows",
    "transform": "the transform of its windows",
    "encode": "encoding its examples",
}

# Threads that can have a mark at once. Others work without.
MOST_THREADS = 40


class Marked(Protocol):
    """A clip, or a row of the listing that becomes one."""

    @property
    def row(self) -> int: ...
    @property
    def source(self) -> int: ...
    @property
    def filepath(self) -> str: ...


class Mark(NamedTuple):
    """What one thread is doing.

    Attributes
    ----------
    row, source, filepath
        The clip.
    stage : str
        The stage that a reject of the clip would name.
    step : str
        The step of the recipe that runs, such as ``feature mel``; may be empty.
    thread : int
        The number of the thread.
    serial : int
        Grows with each mark and with all progress.
    """

    row: int
    source: int
    filepath: str
    stage: str
    step: str
    thread: int
    serial: int

    def describe(self) -> str:
        """What the thread is doing, for a message about the clip."""
        return f"its {self.step}" if self.step else _WORDS.get(self.stage, self.stage)

    def __str__(self) -> str:
        return f"{self.filepath}: {self.describe()}"


class _ThreadState(ctypes.Structure):
    # A local path has at most 4096 bytes, a key in an object store 1024.
    _fields_ = (
        ("serial", ctypes.c_int64),
        ("row", ctypes.c_int64),
        ("source", ctypes.c_int64),
        ("stage", ctypes.c_char * 16),
        ("step", ctypes.c_char * 240),
        ("filepath", ctypes.c_char * 4112),
    )


class WorkerState(ctypes.Structure):
    """The shared memory of one worker.

    ``one_thread`` is set by the watcher, see :meth:`Marks.one_thread`.
    """

    _fields_ = (
        ("examples", ctypes.c_double),
        ("seconds", ctypes.c_double),
        ("one_thread", ctypes.c_int64),
        ("threads", _ThreadState * MOST_THREADS),
    )

    def marks(self) -> list[Mark]:
        """Returns what the worker is doing: a mark for each thread that works."""
        return [
            Mark(
                state.row,
                state.source,
                os.fsdecode(state.filepath),
                state.stage.decode(),
                state.step.decode(errors="replace"),
                thread,
                state.serial,
            )
            for thread, state in enumerate(self.threads)
            if state.stage
        ]

    def clear(self) -> None:
        """Forgets everything, before another process takes the worker's place."""
        ctypes.memset(ctypes.byref(self), 0, ctypes.sizeof(self))


def new_states(workers: int) -> list[WorkerState]:
    """Returns the memory of some workers, which processes started later share."""
    from multiprocessing import RawValue

    # Each by itself: an element of an array would be copied to a new interpreter.
    return [RawValue(WorkerState) for _ in range(workers)]


class _Place:
    """The place of a thread's mark, which is free again when the thread ends."""

    def __init__(self, free: list[int], state: WorkerState) -> None:
        self._free = free
        self.clip: Any = None
        self.state: Any = None
        if free:
            self._number = free.pop()
            self.state = state.threads[self._number]

    def __del__(self) -> None:
        if self.state is not None:
            self.state.stage = b""
            self._free.append(self._number)


class _Thread(threading.local):
    """What each thread has for itself."""

    def __init__(self, free: list[int], state: WorkerState) -> None:
        self.place = _Place(free, state)


class Marks:
    """The marks and the counts of this process."""

    _state: Any = None
    _thread: Any = None
    _process = 0

    @classmethod
    @contextmanager
    def kept_in(cls, state: WorkerState) -> Iterator[None]:
        """Keeps marks and counts in this memory while the block runs."""
        cls._state, cls._process = state, os.getpid()
        cls._thread = _Thread(list(range(MOST_THREADS))[::-1], state)
        try:
            yield
        finally:
            cls._state = cls._thread = None

    @classmethod
    def add(cls, examples: int, seconds: float) -> None:
        """Adds to the examples, and the seconds of audio, that have been written."""
        if cls._state is not None:
            cls._state.examples += examples
            cls._state.seconds += seconds

    @classmethod
    def mark(cls, clip: Marked, stage: str) -> None:
        """Says what this thread begins, before it begins it."""
        cls.leave_fork()
        if cls._state is None or (state := (place := cls._thread.place).state) is None:
            return
        state.stage = state.step = b""
        if place.clip is not clip:
            place.clip = clip
            state.row, state.source = clip.row, clip.source
            state.filepath = os.fsencode(clip.filepath)[:4111]
        state.serial += 1
        state.stage = stage.encode()

    @classmethod
    def step(cls, name: str) -> None:
        """Says which step of the recipe this thread begins, for the same clip.

        No name: the step before has ended.
        """
        cls.leave_fork()
        if cls._state is not None and (state := cls._thread.place.state) is not None:
            state.step = name.encode()[:239]
            state.serial += 1

    @classmethod
    def progress(cls) -> None:
        """Says that what this thread does is not stuck."""
        if cls._state is not None and (state := cls._thread.place.state) is not None:
            state.serial += 1

    @classmethod
    @contextmanager
    def waiting(cls) -> Iterator[None]:
        """Lifts this thread's mark while the block waits for an object store."""
        if cls._state is None or (state := cls._thread.place.state) is None:
            yield
            return
        stage, state.stage = state.stage, b""
        try:
            yield
        finally:
            state.serial += 1
            state.stage = stage

    @classmethod
    def unmark(cls) -> None:
        """Says that this thread has ended its work on a clip."""
        if cls._state is not None and (state := cls._thread.place.state) is not None:
            state.stage = b""

    @classmethod
    def one_thread(cls) -> bool:
        """Whether only one thread may work, so that a death tells whose clip it was."""
        return cls._state is not None and bool(cls._state.one_thread)

    @classmethod
    def leave_fork(cls) -> None:
        """Ends this process if it is a fork of the worker that a step has made.

        A step that calls ``os.fork`` may return in both processes. The second one must
        not write the worker's shards.
        """
        if cls._state is not None and os.getpid() != cls._process:
            os._exit(1)
