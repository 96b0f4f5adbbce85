"""A file object as libsndfile reads it."""

from __future__ import annotations

import os
from typing import Any, BinaryIO

from beam_pipeline.audio import flac

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
        self.failure: BaseException | None = None
        self._endless = endless
        self._is_beyond = False  # where the file has no bytes
        self._search = search
        self._position = file.tell()

    def readinto(self, buffer: Any) -> int:
        count = len(buffer)
        if self._is_beyond:  # libmpg123 looks for a tag before the end
            count = min(count, _ENDLESS_BYTES - self._position)
            buffer[:count] = bytes(count)
            self._position += count
            return count
        if self.failure is not None:
            return 0
        try:
            data = self.file.read(count)
            # A raw file may return fewer bytes than it has; libsndfile would take that
            # as the end.
            while 0 < len(data) < count and (more := self.file.read(count - len(data))):
                data += more
            buffer[: len(data)] = data
            if self._search is not None:
                self._search.add(self._position, data)
        except BaseException as error:
            self.failure = error
            return 0
        self._position += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._is_beyond = self._endless and whence == os.SEEK_END
        if self._is_beyond:
            self._position = _ENDLESS_BYTES + offset
        elif self.failure is None:
            try:
                self._position = self.file.seek(offset, whence)
            except BaseException as error:
                self.failure = error
        return self.tell()

    def tell(self) -> int:
        return self._position if self.failure is None else -1
