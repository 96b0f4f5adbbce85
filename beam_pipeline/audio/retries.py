"""Reads a source again if the machine fails, which says nothing of the file.

Each pause is longer than the one before. When several sources in a row stay unreadable,
the disk is gone, and nobody waits for the next ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from beam_pipeline.errors import (
    DiskError,
    StoreError,
    Unreadable,
    is_of_machine,
    read_error,
)
from beam_pipeline.process import Marks

_T = TypeVar("_T")

# Before each new try.
PAUSES_S = (0.1, 0.4, 1.5)
# If so many sources in a row stay unreadable, the next ones are not waited for.
MOST_IN_A_ROW = 3


class _Failed:
    """How many sources in a row have stayed unreadable in this process."""

    in_a_row = 0


def retried(
    begin: Callable[[], Iterator[_T]],
    name: str,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[_T]:
    """Yields what ``begin()`` yields, and begins again if the machine fails.

    Parameters
    ----------
    begin : callable
        Reads a source from its start, and yields the same values each time. Those that
        were yielded before are dropped.
    name : str
        Name of the source in errors.

    Raises
    ------
    Unreadable
        If the machine still fails at the last try.
    UnreadableAudio
        If the system says that the file cannot be read.
    StoreError
        If an object store fails. Its client has repeated the request for longer
        already, and other objects would fail, too.
    """
    done = tries = 0
    while True:
        try:
            for number, value in enumerate(begin()):
                if number == done:
                    done += 1
                    yield value
            _Failed.in_a_row = 0
            return
        except Exception as error:
            if isinstance(error, StoreError) and not isinstance(error, DiskError):
                raise
            if isinstance(error, OSError) and not is_of_machine(error):
                raise read_error(name, "cannot be read", error) from error
            if not is_of_machine(error):
                raise
            if _Failed.in_a_row >= MOST_IN_A_ROW or tries == len(PAUSES_S):
                _Failed.in_a_row += 1
                reason = str(error)
                if isinstance(error, Unreadable | DiskError):
                    reason = str(error.args[1])  # without the path
                often = f" (tried {tries + 1} times)" if tries else ""
                kind = type(error).__name__
                raise Unreadable(name, f"{reason or kind}{often}") from error
        with Marks.waiting():
            sleep(PAUSES_S[tries])
        tries += 1


def retry(read: Callable[[], _T], name: str) -> _T:
    """Returns ``read()``, which is called again if the machine fails.

    See :func:`retried`.
    """

    def once() -> Iterator[_T]:
        yield read()

    (value,) = retried(once, name)
    return value
