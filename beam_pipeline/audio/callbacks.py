"""A file object as libsndfile reads it."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, BinaryIO, TypeVar

from beam_pipeline.audio import flac

_T = TypeVar("_T")
_ENDLESS_BYTES = 1 << 44


class Callbacks:
    """Wraps a file object for libsndfile: complete reads, and no exceptions.

    cffi prints an exception in a callback and continues as if it had returned 0. So the
    first exception is stored in ``failure``, and the caller raises it. All bytes that
    are read also go to ``search``.

    An ``endless`` file seems to be very long. libsndfile estimates the length of an MP3
    without a header from its size and the bitrate of its first frame, and decodes no
    further; of a file whose bitrate varies, it would lose up to half.
    """

    def __init__(
        self,
        file: BinaryIO,
        search: flac.BlockSearch | None = None,
        endless: bool = False,
    ) -> None:
        self.file = file
        self._endless = endless
        self._beyond: int | None = None  # the position, where the file has no bytes
        self.failure: BaseException | None = None
        self._search = search
        self._position = 0

    def read(self, count: int) -> bytes:
        # A raw file may return fewer bytes than it has; libsndfile would take that as
        # the end.
        if self._beyond is not None:  # libmpg123 looks for a tag before the end
            data = bytes(min(count, _ENDLESS_BYTES - self._beyond))
            self._beyond += len(data)
            return data
        data = self._guard(b"", self.file.read, count)
        while 0 < len(data) < count:
            more = self._guard(b"", self.file.read, count - len(data))
            if not more:
                break
            data += more
        if self._search is not None:
            self._guard(None, self._search.add, self._position, data)
            self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._beyond = None
        if self._endless and whence == os.SEEK_END:
            self._beyond = _ENDLESS_BYTES + offset
            return self._beyond
        position = self._guard(-1, self.file.seek, offset, whence)
        self._position = position
        return position

    def tell(self) -> int:
        if self._beyond is not None:
            return self._beyond
        return self._guard(-1, self.file.tell)

    def _guard(self, otherwise: _T, function: Callable[..., _T], *args: Any) -> _T:
        if self.failure is None:
            try:
                return function(*args)
            except BaseException as error:
                self.failure = error
        return otherwise
