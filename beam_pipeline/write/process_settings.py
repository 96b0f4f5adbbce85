"""What a process that computes sets and has: threads, memory that it keeps, cores."""

from __future__ import annotations

import contextlib
import ctypes
import os
import threading
from collections.abc import Iterator
from typing import Any

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
    with contextlib.suppress(OSError, AttributeError):
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
    @contextlib.contextmanager
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
