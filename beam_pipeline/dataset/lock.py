"""The lock of a run on its work folder, on this machine."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

from beam_pipeline.dataset.output_folder import WORK_FOLDER
from beam_pipeline.errors import OutputError
from beam_pipeline.storage.private_folder import private_folder

# The workers of a run that was killed hold its lock until they have ended, too.
PATIENCE_S = 2.0


@contextmanager
def locked(work: str) -> Iterator[None]:
    """Keeps a second run on this machine out of a work folder while the block runs.

    Raises
    ------
    OutputError
        If another run is using the folder; or it is a symbolic link in an output, which
        may be that of a stranger.
    """
    if os.path.basename(work) == WORK_FOLDER and os.path.islink(work):
        raise OutputError(
            f"{work} is a symbolic link, but a run empties its work folder. Delete the "
            "link, or give the folder that it leads to as `work_dir`."
        )
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    name = hashlib.blake2b(work.encode(errors="surrogateescape"), digest_size=8)
    path = os.path.join(private_folder(), f"{name.hexdigest()}.lock")
    deadline = time.monotonic() + PATIENCE_S
    while True:
        file = open(path, "w")  # noqa: SIM115
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            if time.monotonic() < deadline:
                time.sleep(0.05)
                continue
            raise OutputError(
                f"Another run on this machine uses {work}. Wait until that run ends, "
                "or give another output."
            ) from error
        # The run that held the lock may have deleted the file after this one opened it.
        # The lock of a deleted file keeps nobody out.
        if _is_open_at(path, file):
            break
        file.close()
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            os.remove(path)  # while this run still holds the lock
        file.close()


def _is_open_at(path: str, file: IO[str]) -> bool:
    try:
        return os.path.samestat(os.stat(path), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
