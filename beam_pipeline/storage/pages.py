"""Pages: files of the work folder that hold the clips and the tasks of a plan.

::

    pages/3f1c...   values, one after another, each compressed
    pages/77aa...

A page has the hash of its bytes as its name, and nobody lists the folder: only the
names that a step of the job passes on count. So it does no harm if a runner repeats a
step: that writes the same page again, or one that nobody reads.
"""

from __future__ import annotations

import io
import pickle
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Any, BinaryIO, NamedTuple, TypeVar

from beam_pipeline.errors import IncompleteRun
from beam_pipeline.hashing import bytes_sha256
from beam_pipeline.storage import files

PAGES = "pages"
# A page ends with the value that makes it as long as this.
PAGE_BYTES = 4 << 20
_LEVEL = 1

_T = TypeVar("_T")


class Batch(tuple[_T, ...]):
    """Values that cross a shuffle together; Beam pickles a list's values one by one.

    Named tuples of one kind are pickled as columns, which halves the time.
    """

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        kinds = set(map(type, self))
        kind = kinds.pop() if len(kinds) == 1 else object
        if hasattr(kind, "_make"):
            return _of_columns, (kind, *map(Batch, zip(*self, strict=True)))
        return Batch, (tuple(self),)


def _of_columns(kind: Callable[..., _T], *columns: Iterable[Any]) -> Batch[_T]:
    return Batch(map(kind, *columns))


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
                yield _unpacked(content[offset : offset + length])


def read_place(place: Place, folder: str) -> Any:
    """Returns the value at a place of a page of this folder.

    Raises
    ------
    IncompleteRun
        If the page is gone.
    """
    with _opened(place.page, folder) as file:
        file.seek(place.offset)
        return _unpacked(file.read(place.length))


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
        # ISA-L is faster than zlib, but its bytes depend on an address.
        packed = zlib.compress(stable_bytes(value), _LEVEL)
        self._waiting.append(packed)
        self._bytes += len(packed)
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


def _unpacked(packed: bytes | memoryview) -> Any:
    return pickle.loads(zlib.decompress(packed))
