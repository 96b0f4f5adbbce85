"""Values on disk: sorted collections, pages that workers pass on, tables in Parquet.

A collection goes to SQLite when memory should not hold it. Its files have no name, so
nobody else reads them, and nothing is left of them when the process ends. So nothing
waits for the disk.

Pages are files of the work folder, with the clips and the tasks of a plan::

    pages/3f1c...   values, one after another, each compressed
    pages/77aa...

A page has the hash of its bytes as its name, and nobody lists the folder: only the
names that a step of the job passes on count. So it does no harm if a runner repeats a
step: that writes the same page again, or one that nobody reads.
"""

from __future__ import annotations

import errno
import io
import os
import pickle
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from itertools import accumulate, islice
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar

from beam_pipeline.errors import IncompleteRun
from beam_pipeline.storage import files
from beam_pipeline.text import bytes_sha256

_T = TypeVar("_T")

Key = tuple[int | str, ...]

# The pages of a collection that stay in memory.
CACHE_KIB = 32 << 10

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
        return next(islice(self, range(self._count)[index], None))

    def close(self) -> None:
        """Frees the memory, and the disk."""
        self._database.close()


class FirstValues(Generic[_T]):
    """The first value of each key: as a dict, but on disk if the keys are many.

    Keys are whole numbers of 64 bits. Without any, there is no database.
    """

    @cached_property
    def _database(self) -> sqlite3.Connection:
        database = _connect()
        database.execute("CREATE TABLE firsts (key INTEGER PRIMARY KEY, value BLOB)")
        return database

    def setdefault(self, key: int, value: _T) -> _T:
        """Returns the first value that was given for a key, perhaps this one."""
        insert = "INSERT OR IGNORE INTO firsts VALUES (?, ?)"
        with _storing():
            added = self._database.execute(insert, (key, pickle.dumps(value)))
        if added.rowcount:
            return value
        query = "SELECT value FROM firsts WHERE key = ?"
        (first,) = self._database.execute(query, (key,)).fetchone()
        found: _T = pickle.loads(first)
        return found


PAGES = "pages"
# A page ends with the value that makes it as long as this.
PAGE_BYTES = 4 << 20
_LEVEL = 1


class Batch(tuple[_T, ...]):
    """Values that cross a shuffle together; Beam pickles a list's values one by one."""

    __slots__ = ()


class Place(NamedTuple):
    """Where a value is: some bytes of a page."""

    page: str
    offset: int
    length: int


class Page(NamedTuple):
    """A page that was written: its name, and the length of each of its values."""

    name: str
    lengths: tuple[int, ...]

    def places(self) -> Iterator[Place]:
        """Yields the places of its values, in order."""
        offsets = accumulate(self.lengths, initial=0)
        for offset, length in zip(offsets, self.lengths, strict=False):
            yield Place(self.name, offset, length)


class Pages:
    """The values of some pages, in order; each page is read when it is asked for.

    Parameters
    ----------
    folder : str
        The folder that has the pages in a folder of its own.
    """

    def __init__(self, folder: str, pages: Iterable[Page]):
        self._folder = folder
        self._pages = tuple(pages)

    def places(self) -> Iterator[Place]:
        """Yields the places of the values."""
        return (place for page in self._pages for place in page.places())

    def __iter__(self) -> Iterator[Any]:
        for page in self._pages:
            with _opened(page.name, self._folder) as file:
                content = memoryview(file.read())
            for _, offset, length in page.places():
                yield unpacked(content[offset : offset + length])


def read_place(place: Place, folder: str) -> Any:
    """Returns the value at a place of a page of this folder.

    Raises
    ------
    IncompleteRun
        If the page is gone.
    """
    with _opened(place.page, folder) as file:
        file.seek(place.offset)
        return unpacked(file.read(place.length))


@contextmanager
def _opened(name: str, folder: str) -> Iterator[BinaryIO]:
    """Opens a page; raises IncompleteRun if it is gone."""
    path = files.join(folder, PAGES, name)
    try:
        with files.open_read(path) as file:
            yield file
    except FileNotFoundError as error:
        raise IncompleteRun(
            f"{path} was deleted while the run used it, or a run on another machine "
            "uses this work folder, too. Give the same command again to continue."
        ) from error


class PageWriter:
    """Writes values to pages of a folder."""

    def __init__(self, folder: str):
        self._folder = folder
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._pages: list[Page] = []

    def add(self, value: Any) -> None:
        """Adds a value; writes a page if it is full."""
        content = packed(value)
        self._waiting.append(content)
        self._bytes += len(content)
        if self._bytes >= PAGE_BYTES:
            self._write()

    def _write(self) -> None:
        content = b"".join(self._waiting)
        page = Page(bytes_sha256(content), tuple(map(len, self._waiting)))
        files.write_bytes(files.join(self._folder, PAGES, page.name), content)
        self._pages.append(page)
        self._waiting, self._bytes = [], 0

    def finish(self) -> tuple[Page, ...]:
        """Writes what still waits; returns all pages, in order."""
        if self._waiting:
            self._write()
        return tuple(self._pages)


def write_page(value: Any, folder: str) -> Page:
    """Writes a page with one value."""
    writer = PageWriter(folder)
    writer.add(value)
    (page,) = writer.finish()
    return page


def stable_bytes(value: Any) -> bytes:
    """Returns a value as bytes that depend on it alone.

    A pickler's memo notes which equal values are one object, so there is none.
    """
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, pickle.HIGHEST_PROTOCOL)
    pickler.fast = True
    pickler.dump(value)
    return buffer.getvalue()


def packed(value: Any) -> bytes:
    """Returns a value as few bytes, which depend on it alone."""
    # ISA-L is faster than zlib, but its bytes depend on an address.
    return zlib.compress(stable_bytes(value), _LEVEL)


def unpacked(content: bytes | memoryview) -> Any:
    """Returns the value that :func:`packed` packed, here: it may run code."""
    return pickle.loads(zlib.decompress(content))


def write_parquet(
    path: str, schema: Any, tables: Iterable[Any], **options: Any
) -> None:
    """Writes tables into one Parquet file; it is there when it is whole.

    Each page has a checksum, which :func:`open_parquet` compares.

    Parameters
    ----------
    schema : pyarrow.Schema
    tables : iterable of pyarrow.Table
        Each becomes a group of rows.
    **options
        Of ``pyarrow.parquet.ParquetWriter``.
    """
    import pyarrow.parquet as pq

    with (
        files.replacing(path) as file,
        pq.ParquetWriter(
            file, schema, compression="zstd", write_page_checksum=True, **options
        ) as writer,
    ):
        for table in tables:
            writer.write_table(table)


def in_groups(
    parts: Iterable[_T], rows_of: Callable[[_T], int], least: int
) -> Iterator[list[_T]]:
    """Yields parts of a table that have at least so many rows together."""
    waiting: list[_T] = []
    rows = 0
    for part in parts:
        waiting.append(part)
        rows += rows_of(part)
        if rows >= least:
            yield waiting
            waiting, rows = [], 0
    if rows:
        yield waiting


@contextmanager
def open_parquet(path: str) -> Iterator[Any]:
    """Opens a Parquet file as ``pyarrow.parquet.ParquetFile``.

    Read it with ``use_threads=False``. Otherwise, or with ``pre_buffer``, Arrow's
    threads read the file and release its Python buffers. If that happens while the
    interpreter shuts down, the process aborts.

    Raises
    ------
    ValueError
        If it is not Parquet, or Arrow cannot read it; also while the block reads it.
    OSError
        If it cannot be opened, or is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with files.open_read(path) as file:
            yield pq.ParquetFile(
                file, pre_buffer=False, page_checksum_verification=True
            )
    except pa.ArrowException as error:
        raise ValueError(str(error)) from error


def read_parquet(path: str, columns: Sequence[str] | None = None) -> Any:
    """Returns the table in a Parquet file, or some of its columns.

    Raises
    ------
    ValueError, OSError
        See :func:`open_parquet`.
    """
    with open_parquet(path) as parquet:
        names = parquet.schema_arrow.names
        wanted = [name for name in names if columns is None or name in columns]
        return parquet.read(wanted, use_threads=False)
