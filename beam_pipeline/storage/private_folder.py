"""The folder for temporary files of this user."""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress

from beam_pipeline.errors import OutputError


def private_folder() -> str:
    """Makes a folder below the temporary one, which this user alone can read.

    It stays, empty, because another process may be about to write there.

    Raises
    ------
    OutputError
        If another user has made it.
    """
    user = os.getuid() if hasattr(os, "getuid") else "user"
    path = os.path.join(tempfile.gettempdir(), f"audio-tfrecords-{user}")
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    if hasattr(os, "getuid") and not (private and found.st_uid == os.getuid()):
        raise OutputError(
            f"{path} must be a folder that only you can use, but others can use it, or "
            "it is a link. Delete it, or set TMPDIR to another folder."
        )
    return path
