"""Files wherever they are: on this machine, in an object store, or on Beam's systems.

Local paths import neither Beam nor a store's client.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, cast

from beam_pipeline.errors import InputError
from beam_pipeline.storage import beam_filesystem, object_store
from beam_pipeline.storage.object_store import FIRST_BYTES, StoreReader, is_in_store

MOST_BEGUN_BYTES = 1 << 20

PathLike = str | os.PathLike[str]


def is_local(path: str) -> bool:
    """Whether a path is on this machine's own file system."""
    return "://" not in path


def is_beams(path: str) -> bool:
    """Whether a path is on a file system of Beam's, if on any."""
    return not is_local(path) and not is_in_store(path)


def _remote(path: str) -> Any:
    """The module that knows a remote path's file system."""
    return object_store if is_in_store(path) else beam_filesystem


def join(folder: str, *names: str) -> str:
    """Joins path segments; an absolute name replaces what stands before it.

    As ``os.path.join``: an empty last one makes the path end in a separator.
    """
    if is_local(folder) and all(map(is_local, names)):
        return os.path.join(folder, *names)
    for name in names:
        if not is_local(name) or name.startswith("/"):
            folder = name
        else:
            folder = f"{folder.rstrip('/')}/{name}"
    return folder


def absolute(path: str) -> str:
    """The path with its working directory, so that every process means the same."""
    return os.path.abspath(os.path.expanduser(path)) if is_local(path) else path


def open_read(path: str) -> BinaryIO:
    """Opens a file for reading bytes; seekable on every file system."""
    if is_local(path):
        return open(path, "rb")
    if is_in_store(path):
        return cast(BinaryIO, StoreReader(path))
    return beam_filesystem.open_read(path)


@contextmanager
def open_parquet(path: str) -> Iterator[Any]:
    """Opens a Parquet file as ``pyarrow.parquet.ParquetFile``.

    Read it with ``use_threads=False``. Without that, or with ``pre_buffer``, threads of
    Arrow read the file and release its Python buffers, perhaps only when the
    interpreter is already ending, and that aborts the process.
    """
    import pyarrow.parquet as pq

    with open_read(path) as file:
        yield pq.ParquetFile(file, pre_buffer=False)


def begin_read(
    path: str, expected_bytes: int = 0, share: float = 1.0
) -> str | BinaryIO:
    """What a decoder takes: a local path as it is, a remote file opened.

    In an object store the first request is sent, and its answer not waited for.

    Parameters
    ----------
    expected_bytes : int
        About how much will be read without a gap, from the start.
    share : float
        How much of the file will be read, from its start.
    """
    if not is_in_store(path):
        return path if is_local(path) else beam_filesystem.open_read(path)
    first = min(max(FIRST_BYTES, expected_bytes), MOST_BEGUN_BYTES)
    reader = StoreReader(path, first, share)
    reader.begin()
    return cast(BinaryIO, reader)


@contextmanager
def closing(source: str | BinaryIO) -> Iterator[str | BinaryIO]:
    """What :func:`begin_read` returned; at the end of the block it is closed."""
    try:
        yield source
    finally:
        if not isinstance(source, str):
            source.close()


def modified_ns(source: str | BinaryIO) -> int:
    """When what :func:`begin_read` returned was last changed; 0 where nobody knows."""
    if isinstance(source, str):
        return os.stat(source).st_mtime_ns
    return int(getattr(source, "modified_ns", 0))


def modified_ns_of(path: str) -> int:
    """When the file at a path was last written; 0 where nobody knows.

    Raises
    ------
    FileNotFoundError
        If there is none.
    """
    return modified_ns(path) if is_local(path) else int(_remote(path).modified_ns(path))


def changed_ns(path: str) -> int:
    """When the file at a path was last written or put there; 0 where nobody knows.

    A file that is moved or copied to its place may keep the time when it was written,
    but not that of its change, which only local file systems tell.

    Raises
    ------
    FileNotFoundError
        If there is none.
    """
    if not is_local(path):
        return modified_ns_of(path)
    times = os.stat(path), os.lstat(path)  # of a link, and of what it leads to
    return max(max(found.st_mtime_ns, found.st_ctime_ns) for found in times)


def read_bytes(path: str) -> bytes:
    """A whole small file."""
    with open_read(path) as file:
        return file.read()


def write_bytes(path: str, content: bytes) -> None:
    """Writes a whole file: all or nothing."""
    if not is_local(path):
        _remote(path).write(path, content)
        return
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    temporary = f"{path}.tmp-{os.getpid()}"
    with open(temporary, "wb") as file:
        file.write(content)
    os.replace(temporary, path)


def draft_path(folder: str, name: str) -> str:
    """A local path to write a new file at, which :func:`move` then gives its name.

    In the folder itself where that is local, so that moving costs nothing; else it is
    this machine's temporary one, and moving uploads the file once, under its last name:
    most object stores cannot rename.
    """
    if is_local(folder):
        os.makedirs(folder, exist_ok=True)
        return os.path.join(folder, name)
    return os.path.join(tempfile.gettempdir(), f"audio-tfrecords-{name}")


def move(draft: str, target: str) -> None:
    """Gives a local file its name, over an existing one, wherever that is.

    Where it is uploaded, nothing of it stays on this machine, even if that fails:
    whoever tries again writes it again.
    """
    if not is_local(target):
        try:
            _remote(target).upload(draft, target)
        finally:
            os.remove(draft)
        return
    os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
    try:
        os.replace(draft, target)
    except OSError:  # another device: copy beside the target, then rename
        shutil.copyfile(draft, f"{target}.tmp")
        os.replace(f"{target}.tmp", target)
        os.remove(draft)


def concatenate(paths: Iterable[str], draft: str) -> tuple[int, str]:
    """Writes files one after the other; returns the bytes and their SHA-256."""
    sha256 = hashlib.sha256()
    size = 0
    with open(draft, "wb") as writer:
        for path in paths:
            with open_read(path) as reader:
                while block := reader.read(1 << 20):
                    writer.write(block)
                    sha256.update(block)
                    size += len(block)
    return size, sha256.hexdigest()


def exists(path: str) -> bool:
    """Whether a file is there; locally also a folder."""
    return os.path.exists(path) if is_local(path) else _remote(path).size(path) >= 0


def size(path: str) -> int:
    """A file's length in bytes, or -1 where there is none."""
    if is_local(path):
        return os.path.getsize(path) if os.path.isfile(path) else -1
    return int(_remote(path).size(path))


def is_folder(path: str) -> bool:
    """Whether a path is a folder; remotely, whether files lie below it."""
    if is_local(path):
        return os.path.isdir(path)
    return next(list_files(path), None) is not None


def delete(paths: Iterable[str]) -> None:
    """Deletes files; what is not there is no error."""
    remote = []
    for path in paths:
        if not is_local(path):
            remote.append(path)
        else:
            with suppress(FileNotFoundError):
                os.remove(path)
    if remote:
        _remote(remote[0]).delete(remote)


def delete_below(folder: str) -> None:
    """Deletes a folder and everything below it."""
    if not is_local(folder):
        delete(join(folder, name) for name in list_files(folder))
    elif os.path.isdir(folder):
        shutil.rmtree(folder)


def list_files(folder: str) -> Iterator[str]:
    """Every file below a folder, as ``/``-separated names relative to it, sorted.

    In the order of the names as text, which is the order of object stores, so that the
    same files come in the same order wherever they are; one folder in memory at a time.
    Links to folders are followed, but never back into a folder that the walk is
    already inside.
    """
    if is_local(folder):
        return _walk(folder, "", ())
    return cast(Iterator[str], _remote(folder).list_files(folder))


def _walk(folder: str, prefix: str, inside: tuple[str, ...]) -> Iterator[str]:
    real = os.path.realpath(folder)
    if real in inside:
        return
    try:
        with os.scandir(folder) as entries:
            found = [(f"{e.name}/" if e.is_dir() else e.name, e.path) for e in entries]
    except OSError as error:
        raise InputError(
            f"{error.filename} cannot be listed: {error.strerror}. Nothing below it "
            "can be read; change its permissions, or move it away."
        ) from error
    for name, path in sorted(found):
        if name.endswith("/"):
            yield from _walk(path, prefix + name, (*inside, real))
        else:
            yield prefix + name
