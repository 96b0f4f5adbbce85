"""What a process is doing, and what it has done, in memory that another one watches.

::

    worker    mark(clip, "decode")   mark(clip, "transform")   step("feature mel")   ...
    watcher   the worker ended, or its mark stays for too long: at which clip?

Each process has one mark: a few stores into shared memory, which take about a
microsecond. Without a watcher, nothing is stored.
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


class Marked(Protocol):
    """A clip, or a row of the listing that becomes one."""

    @property
    def row(self) -> int: ...
    @property
    def source(self) -> int: ...
    @property
    def filepath(self) -> str: ...


class Mark(NamedTuple):
    """What a process is doing.

    Attributes
    ----------
    row, source, filepath
        The clip.
    stage : str
        The stage that a reject of the clip would name.
    step : str
        The step of the recipe that runs, such as ``feature mel``; may be empty.
    serial : int
        Grows with each mark and with all progress.
    """

    row: int
    source: int
    filepath: str
    stage: str
    step: str
    serial: int

    def describe(self) -> str:
        """What the process is doing, for a message about the clip."""
        return f"its {self.step}" if self.step else _WORDS.get(self.stage, self.stage)

    def __str__(self) -> str:
        return f"{self.filepath}: {self.describe()}"


class WorkerState(ctypes.Structure):
    """The shared memory of one worker.

    ``several`` says that threads of the worker work on several clips, so that the mark
    names only one of them. ``one_thread`` is set by the watcher, to forbid that.
    """

    # A local path has at most 4096 bytes, a key in an object store 1024.
    _fields_ = (
        ("examples", ctypes.c_double),
        ("seconds", ctypes.c_double),
        ("one_thread", ctypes.c_int64),
        ("several", ctypes.c_int64),
        ("serial", ctypes.c_int64),
        ("row", ctypes.c_int64),
        ("source", ctypes.c_int64),
        ("stage", ctypes.c_char * 16),
        ("step", ctypes.c_char * 240),
        ("filepath", ctypes.c_char * 4112),
    )

    def mark(self) -> Mark | None:
        """Returns what the worker is doing; None if it is at no clip."""
        if not self.stage:
            return None
        return Mark(
            self.row,
            self.source,
            os.fsdecode(self.filepath),
            self.stage.decode(),
            self.step.decode(errors="replace"),
            self.serial,
        )

    def clear(self) -> None:
        """Forgets everything, before another process takes the worker's place."""
        ctypes.memset(ctypes.byref(self), 0, ctypes.sizeof(self))


def new_state() -> WorkerState:
    """Returns the memory of a worker, which processes started later share."""
    from multiprocessing import RawValue

    return RawValue(WorkerState)


class Marks:
    """The mark and the counts of this process."""

    _state: Any = None
    _clip: Any = None
    _process = 0
    _thread = 0  # that has set the mark

    @classmethod
    @contextmanager
    def kept_in(cls, state: WorkerState) -> Iterator[None]:
        """Keeps the mark and the counts in this memory while the block runs."""
        cls._state, cls._clip, cls._process = state, None, os.getpid()
        try:
            yield
        finally:
            state.stage = b""
            cls._state = cls._clip = None

    @classmethod
    def add(cls, examples: int, seconds: float) -> None:
        """Adds to the examples, and the seconds of audio, that have been written."""
        if cls._state is not None:
            cls._state.examples += examples
            cls._state.seconds += seconds

    @classmethod
    def mark(cls, clip: Marked, stage: str) -> None:
        """Says what this process begins, before it begins it."""
        cls.leave_fork()
        if (state := cls._state) is None:
            return
        if not state.several:
            state.stage = state.step = b""
            if cls._clip is not clip:
                cls._clip = clip
                state.row, state.source = clip.row, clip.source
                state.filepath = os.fsencode(clip.filepath)[:4111]
            state.stage = stage.encode()
            cls._thread = threading.get_ident()
        state.serial += 1

    @classmethod
    def step(cls, name: str) -> None:
        """Says which step of the recipe begins, for the same clip.

        No name: the step before has ended.
        """
        cls.leave_fork()
        if (state := cls._state) is not None:
            if not state.several:
                state.step = name.encode()[:239]
            state.serial += 1

    @classmethod
    def progress(cls) -> None:
        """Says that the work is not stuck."""
        if cls._state is not None:
            cls._state.serial += 1

    @classmethod
    @contextmanager
    def waiting(cls) -> Iterator[None]:
        """Lifts the mark while the block waits for an object store.

        Threads that read ahead wait, too, while the work goes on.
        """
        state, is_reader = cls._state, cls._thread != threading.get_ident()
        if state is None or state.several or is_reader:
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
        """Says that the work on a clip has ended."""
        if (state := cls._state) is not None and not state.several:
            state.stage = b""

    @classmethod
    @contextmanager
    def of_several(cls, first: Marked, stage: str) -> Iterator[None]:
        """Keeps one mark while threads work on several clips in the block."""
        if (state := cls._state) is None:
            yield
            return
        cls.mark(first, stage)
        state.several = 1
        try:
            yield
        finally:
            state.several = 0
            cls.unmark()

    @classmethod
    def one_thread(cls) -> bool:
        """Whether only one thread may work, so that the mark names its clip."""
        return cls._state is not None and bool(cls._state.one_thread)

    @classmethod
    def leave_fork(cls) -> None:
        """Ends this process if it is a fork of the worker that a step has made.

        A step that calls ``os.fork`` may return in both processes. The second one must
        not write the worker's shards.
        """
        if cls._state is not None and os.getpid() != cls._process:
            os._exit(1)
