"""A process: its settings, and what it does, in memory that another one watches.

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
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, NamedTuple, Protocol

# The longest time between two looks that counts: the run may have been suspended.
MOST_BETWEEN_S = 1.0

# The stages of the work on a clip; marks, and the rejects of clips, name them.
PROBE, DECODE, SELECT, TRANSFORM, ENCODE = (
    "probe", "decode", "select_and_augment", "transform", "encode",
)  # fmt: skip


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
        return f"its {self.step}" if self.step else f"its stage {self.stage}"

    def __str__(self) -> str:
        return f"{self.filepath}: {self.describe()}"


class WorkerState(ctypes.Structure):
    """The shared memory of one worker.

    ``several`` says that threads of the worker work on several clips, so that the mark
    names at most one of them. ``one_thread`` is set by the watcher, to forbid that.
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
        ("stage", ctypes.c_char * 24),
        ("step", ctypes.c_char * 240),
        ("filepath", ctypes.c_char * 4112),
    )

    def mark(self) -> Mark | None:
        """Returns what the worker is doing; None if it is at no clip."""
        if not (self.stage or self.several):
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


class MarkClock:
    """How long the mark of a worker has stayed the same."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._mark: Mark | None = None
        self._age_s = 0.0
        self._looked = time.monotonic()

    def is_overdue(self, mark: Mark | None) -> bool:
        """Looks at the mark; returns whether it has stayed longer than the limit."""
        now = time.monotonic()
        passed = min(now - self._looked, MOST_BETWEEN_S)
        self._looked = now
        if mark is None or mark != self._mark:
            self._mark, self._age_s = mark, 0.0
            return False
        self._age_s += passed
        return self._age_s > self._limit_s


def new_state() -> WorkerState:
    """Returns the memory of a worker, which processes started later share."""
    from multiprocessing import RawValue

    return RawValue(WorkerState)


class Marks:
    """The mark and the counts of this process."""

    _state: Any = None
    _clip: Any = None
    _thread = 0  # that has set the mark
    _threads = 0  # that work on clips
    failed_at: Mark | None = None  # what raised an error, or stopped at one
    _counting = threading.Lock()
    _alone = threading.Lock()  # of the only thread that may work

    @classmethod
    @contextmanager
    def kept_in(cls, state: WorkerState) -> Iterator[None]:
        """Keeps the mark and the counts in this memory while the block runs."""
        cls.keep_in(state)
        try:
            yield
        finally:
            state.stage, state.several = b"", 0
            cls._state = cls._clip = None

    @classmethod
    def keep_in(cls, state: WorkerState) -> None:
        """Keeps the mark and the counts in this memory from now on."""
        cls._state, cls._clip = state, None
        cls._threads, cls._alone, cls.failed_at = 0, threading.Lock(), None

    @classmethod
    def are_watched(cls) -> bool:
        """Whether anybody sees the mark."""
        return cls._state is not None

    @classmethod
    def add(cls, examples: int, seconds: float) -> None:
        """Adds to the examples, and the seconds of audio, that have been written."""
        if cls._state is not None:
            cls._state.examples += examples
            cls._state.seconds += seconds

    @classmethod
    def mark(cls, clip: Marked, stage: str) -> None:
        """Says what this process begins, before it begins it."""
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
    def working(cls, threads: int = 1) -> Iterator[None]:
        """Says that this thread, or so many, work on clips while the block runs.

        A runner may have several such threads. If only one may work, the others wait.
        """
        if (state := cls._state) is None:
            yield
            return
        with cls._alone if state.one_thread else nullcontext():
            with cls._counting:
                cls._threads += threads
                # Until all have ended: a mark from before names no clip of now.
                state.several |= cls._threads > 1
            try:
                yield
            except BaseException:
                cls.failed_at = state.mark()
                raise
            finally:
                with cls._counting:
                    cls._threads -= threads
                    if not cls._threads:
                        state.several, state.stage = 0, b""

    @classmethod
    def one_thread(cls) -> bool:
        """Whether only one thread may work, so that the mark names its clip."""
        return cls._state is not None and bool(cls._state.one_thread)


# The settings of a process

# From glibc's malloc.h. The mmap threshold is 32 MiB at most.
_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT_BYTES = 32 << 20


def usable_cores() -> int:
    """Returns the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def keep_freed_memory() -> None:
    """Makes glibc keep memory that this process frees, up to 32 MiB an arena.

    By default glibc returns large arrays to the system at once. The next array then
    faults every page in again, which can cost more than what is computed with it: up to
    6 microseconds a page of 4 KiB on virtual machines. Without glibc, this function
    does nothing.
    """
    with suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        ctypes.CDLL("libc.so.6").mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)


class OneThread:
    """Holds the libraries of linear algebra to one thread.

    Each core has a worker, and bytes must not depend on the number of threads. The last
    step of the process that ends restores the limits that the first one found.
    """

    _lock = threading.Lock()
    _steps = 0
    _limits: Any = None

    @classmethod
    def begin(cls) -> None:
        """Sets the limit, for the ``setup`` of a step."""
        from threadpoolctl import threadpool_limits

        with cls._lock:
            if cls._steps == 0:
                cls._limits = threadpool_limits(1)
            cls._steps += 1

    @classmethod
    @contextmanager
    def held(cls) -> Iterator[None]:
        """Sets the limit while the block runs."""
        cls.begin()
        try:
            yield
        finally:
            cls.end()

    @classmethod
    def end(cls) -> None:
        """Ends what :meth:`begin` began, for the ``teardown`` of a step."""
        with cls._lock:
            cls._steps -= 1
            if cls._steps == 0:
                cls._limits.restore_original_limits()
