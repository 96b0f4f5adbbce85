"""Collections that go to disk when memory should not hold them; SQLite keeps them.

Their files have no name, so nobody else reads them, and nothing is left of them when
the process ends. So nothing waits for the disk.
"""

from __future__ import annotations

import errno
import os
import pickle
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Generic, TypeVar

from beam_pipeline.storage import files

_T = TypeVar("_T")

Key = tuple[int | str, ...]

# The pages of a collection that stay in memory.
CACHE_KIB = 32 << 10
# The entries of FirstValues that stay in memory: some 80 MB. They go to disk in the
# order of their keys, so that several of them go to one page.
ENTRIES_HELD = 1 << 18

_MOST_KEYS = 3


def _connect() -> sqlite3.Connection:
    """Opens a database without a name, which nobody else can open.

    SQLite keeps it in the folder that SQLITE_TMPDIR or TMPDIR names, or in /var/tmp.
    """
    database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
    for setting in (
        "journal_mode = OFF",
        "synchronous = OFF",
        "locking_mode = EXCLUSIVE",
        f"cache_size = -{CACHE_KIB}",
    ):
        database.execute(f"PRAGMA {setting}")
    # One transaction for all: a transaction for each value takes 50 times as long.
    database.execute("BEGIN")
    return database


@contextmanager
def _storing() -> Iterator[None]:
    """Raises the error for a full disk in SQLite's place."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if "full" not in str(error):
            raise
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with files.writing("A temporary file (in SQLITE_TMPDIR, TMPDIR or /var/tmp)"):
            raise full from error


class SortedValues(Sequence[_T]):
    """Values in the order of their keys, on disk if they are many.

    Values with equal keys keep the order in which they came. Reading all of them holds
    one at a time.

    Parameters
    ----------
    key : callable
        Returns the key of a value: up to three whole numbers of 64 bits or texts. Keys
        are compared as Python compares tuples.
    values : iterable
        The first values; :meth:`extend` adds more.

    Examples
    --------
    >>> list(SortedValues(lambda word: (len(word), word), ["pear", "fig", "date"]))
    ['fig', 'date', 'pear']
    """

    def __init__(self, key: Callable[[_T], Key], values: Iterable[_T] = ()):
        self._key = key
        self._database = _connect()
        self._database.execute("CREATE TABLE kept (k0, k1, k2, value BLOB)")
        self._count = 0
        self.extend(values)

    def extend(self, values: Iterable[_T]) -> None:
        """Adds values, in any order."""
        with _storing():
            added = self._database.executemany(
                "INSERT INTO kept VALUES (?, ?, ?, ?)", map(self._row, values)
            )
        self._count += max(0, added.rowcount)

    def _row(self, value: _T) -> tuple[Any, ...]:
        key: list[Any] = [
            # The order of such bytes is that of the texts, lone surrogates included.
            part.encode(errors="surrogatepass") if isinstance(part, str) else part
            for part in self._key(value)
        ]
        key += [None] * (_MOST_KEYS - len(key))
        return *key, pickle.dumps(value, pickle.HIGHEST_PROTOCOL)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[_T]:
        # The index holds only keys, so it is sorted faster than the values would be.
        with _storing():
            self._database.execute(
                "CREATE INDEX IF NOT EXISTS in_order ON kept (k0, k1, k2)"
            )
        found = self._database.execute(
            "SELECT value FROM kept INDEXED BY in_order ORDER BY k0, k1, k2, rowid"
        )
        return (pickle.loads(value) for (value,) in found)

    def __getitem__(self, index: Any) -> Any:
        chosen = range(self._count)[index]
        if isinstance(chosen, int):
            return next(islice(self, chosen, None))
        return [self[k] for k in chosen]

    def __eq__(self, other: object) -> bool:
        """Whether another sequence has the same values in the same order."""
        return isinstance(other, Sequence) and list(self) == list(other)

    def close(self) -> None:
        """Frees the memory, and the disk."""
        self._database.close()


class FirstValues(Generic[_T]):
    """The first value of each key: as a dict, but on disk if the keys are many.

    Keys are whole numbers of 64 bits.
    """

    def __init__(self) -> None:
        self._recent: dict[int, _T] = {}
        self._database: sqlite3.Connection | None = None

    def setdefault(self, key: int, value: _T) -> _T:
        """Returns the first value that was given for a key, perhaps this one."""
        found = self._recent.get(key)
        if found is None and self._database is not None:
            query = "SELECT value FROM firsts WHERE key = ?"
            row = self._database.execute(query, (key,)).fetchone()
            found = None if row is None else pickle.loads(row[0])
        if found is None:
            found = self._recent[key] = value
            if len(self._recent) >= ENTRIES_HELD:
                self._spill()
        return found

    def _spill(self) -> None:
        if self._database is None:
            self._database = _connect()
            columns = "key INTEGER PRIMARY KEY, value BLOB"
            self._database.execute(f"CREATE TABLE firsts ({columns})")
        with _storing():
            self._database.executemany(
                "INSERT INTO firsts VALUES (?, ?)",
                ((key, pickle.dumps(v)) for key, v in sorted(self._recent.items())),
            )
        self._recent.clear()
