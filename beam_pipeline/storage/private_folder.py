"""The folder for temporary files of this user.

::

    audio-tfrecords-USER/process-X/    locked until its process, and its forks, end

Whoever is killed leaves its folder. The next process that needs one deletes it.
"""

from __future__ import annotations

import glob
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress

try:
    import fcntl
except ImportError:  # on Windows, where nothing is locked and nothing abandoned
    fcntl = None  # type: ignore[assignment]

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


@contextmanager
def temporary_folder() -> Iterator[str]:
    """Makes a folder for temporary files, and deletes it after the block.

    Those of processes that were killed are deleted, too.
    """
    delete_abandoned()
    folder, lock = _locked_folder()
    inside = os.path.join(folder, "files")  # it may be deleted and made again
    os.mkdir(inside, 0o700)
    try:
        yield inside
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)
        delete_abandoned()


# What folder_of_process() has made, by process and place: TMPDIR may change.
_made: dict[tuple[int, str], str] = {}


def folder_of_process() -> str:
    """Returns a folder for temporary files of this process.

    It stays until another process looks for folders of processes that have ended.
    """
    key = os.getpid(), private_folder()
    if not os.path.isdir(_made.get(key, "")):
        _made[key], _ = _locked_folder()  # the lock ends with the process
    return _made[key]


def delete_abandoned() -> None:
    """Deletes the folders of processes that have ended."""
    for folder in glob.glob(os.path.join(glob.escape(private_folder()), "process-*")):
        # Without locks, nothing shows who has ended.
        with suppress(OSError, AttributeError):
            lock = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _locked_folder() -> tuple[str, int]:
    """Makes a folder that this process has locked, as long as the lock is open."""
    while True:
        folder = tempfile.mkdtemp(prefix="process-", dir=private_folder())
        # Another process may look before the folder is locked, and delete it.
        with suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY)
            with suppress(OSError, AttributeError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.isdir(folder):
                return folder, lock
            os.close(lock)
