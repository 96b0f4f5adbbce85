"""The folder for temporary files of this user.

::

    audio-tfrecords-USER/run-X/        the temporary files of a process
    audio-tfrecords-USER/run-X.lock    locked until that process, and its forks, end

Whoever is killed leaves its folder. The next process that needs one deletes it.
"""

from __future__ import annotations

import glob
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

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
    try:
        yield folder
    finally:
        _delete(folder, lock)
        delete_abandoned()


def folder_of_process() -> str:
    """Returns a folder for temporary files of this process.

    It stays until another process looks for folders of processes that have ended.
    """
    own = _OwnFolder.process == os.getpid() and os.path.isdir(_OwnFolder.path)
    # TMPDIR may have changed.
    if not own or os.path.dirname(_OwnFolder.path) != private_folder():
        if _OwnFolder.lock is not None:
            _OwnFolder.lock.close()  # a fork's copy: the parent keeps its lock
        _OwnFolder.path, _OwnFolder.lock = _locked_folder()
        _OwnFolder.process = os.getpid()
    return _OwnFolder.path


class _OwnFolder:
    """What :func:`folder_of_process` has made."""

    process = 0
    path = ""
    lock: IO[str] | None = None  # open, because that holds the lock


def delete_abandoned() -> None:
    """Deletes the folders of processes that have ended."""
    if fcntl is None:
        return
    for path in glob.glob(os.path.join(glob.escape(private_folder()), "run-*.lock")):
        with suppress(FileNotFoundError), open(path, "r+") as lock:
            if _lock(lock):
                _delete(path.removesuffix(".lock"), lock)


def _locked_folder() -> tuple[str, IO[str]]:
    """Makes a folder beside a file that this process has locked."""
    while True:
        folder = os.path.join(private_folder(), f"run-{uuid.uuid4().hex}")
        lock = open(f"{folder}.lock", "w")  # noqa: SIM115
        # Another process may have looked before the file was locked, and deleted it.
        if _lock(lock) and os.path.exists(lock.name):
            os.mkdir(folder, 0o700)
            return folder, lock
        lock.close()


def _lock(file: IO[str]) -> bool:
    """Locks a file; False if another process has."""
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _delete(folder: str, lock: IO[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    with suppress(FileNotFoundError):
        os.remove(lock.name)
    lock.close()
