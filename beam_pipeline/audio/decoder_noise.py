"""Catches what libmpg123 prints, which libsndfile does not pass on as an error.

libmpg123 prints with C's ``stderr``. While it decodes, that variable points to a
temporary file. File descriptor 2 stays what it is, so that Python, processes that are
started meanwhile, and other threads are not affected. Where the variable does not exist
(Windows), nothing is caught.
"""

from __future__ import annotations

import ctypes
import os
import re
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from typing import TypeVar

from beam_pipeline.errors import is_of_machine

_T = TypeVar("_T")
_UNBUFFERED = 2
_NOISE = re.compile(rb"\s*$|Note: |Warning: |\[src/libmpg123/")
# Others are about tags, not about sound.
_ERROR = re.compile(rb"\[src/libmpg123/layer\d\.c:\S* error: (.*)")
_lock = threading.Lock()


class _Catcher:
    """The variable, and the file that it points to for a while."""

    def __init__(self, variable: ctypes.c_void_p, libc: ctypes.CDLL) -> None:
        self._variable = variable
        with tempfile.TemporaryFile() as file:
            self._file = os.dup(file.fileno())  # of C's stream: never closed
        libc.fdopen.restype = ctypes.c_void_p
        stream = libc.fdopen(self._file, b"w")
        libc.setvbuf(ctypes.c_void_p(stream), None, _UNBUFFERED, 0)
        self._stream = stream

    def call(self, function: Callable[..., _T], *args: object) -> tuple[_T, bytes]:
        with _lock:
            stderr = self._variable.value
            self._variable.value = self._stream
            try:
                result = function(*args)
            finally:
                self._variable.value = stderr
                text = self._take()
        return result, text

    def _take(self) -> bytes:
        size = os.fstat(self._file).st_size
        if not size:
            return b""
        text = os.pread(self._file, size, 0)
        os.ftruncate(self._file, 0)
        os.lseek(self._file, 0, os.SEEK_SET)
        return text


@cache
def _catcher() -> _Catcher | None:
    try:
        libc = ctypes.CDLL(None)
        name = "stderr" if hasattr(libc, "stderr") else "__stderrp"  # macOS
        return _Catcher(ctypes.c_void_p.in_dll(libc, name), libc)
    except (OSError, TypeError, ValueError, AttributeError) as error:
        if is_of_machine(error):  # there is one for the next try
            raise
        return None


def _start_anew() -> None:
    """Lets a forked process have a file of its own."""
    _catcher.cache_clear()
    _lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_lock.acquire,  # no process begins with the variable changed
        after_in_parent=_lock.release,
        after_in_child=_start_anew,
    )


def call_quietly(function: Callable[..., _T], *args: object) -> tuple[_T, str | None]:
    """Calls a function that may print with C's ``stderr``, one thread at a time.

    Returns
    -------
    tuple
        The function's result, and the first error in sound that libmpg123 printed, if
        any. Its other lines are dropped. Lines of other libraries are printed
        afterwards.
    """
    catcher = _catcher()
    if catcher is None:
        return function(*args), None
    result, text = catcher.call(function, *args)
    if not text:
        return result, None
    lines = text.splitlines(keepends=True)
    others = b"".join(line for line in lines if not _NOISE.match(line))
    if others:
        os.write(2, others)
    error = _ERROR.search(text)
    return result, error[1].decode("utf-8", "replace") if error else None
