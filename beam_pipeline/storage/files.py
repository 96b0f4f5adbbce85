"""Files on this machine, in object stores and on Beam's file systems.

Operations on local paths import neither Beam nor the client of a store.

This user's temporary files are in a folder that nobody else can read::

    audio-tfrecords-USER/process-X/    locked until its process, and its forks, end

Whoever is killed leaves its folder. The next process that needs one deletes it.
"""

from __future__ import annotations

import errno
import fcntl
import glob
import hashlib
import io
import os
import shutil
import stat
import tempfile
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO, cast

from beam_pipeline import errors
from beam_pipeline.process import Marks
from beam_pipeline.storage import beam_filesystem, object_store
from beam_pipeline.storage.object_store import FIRST_BYTES, StoreReader, is_in_store
from beam_pipeline.text import holds_credentials

MOST_BEGUN_BYTES = 1 << 20

PathLike = str | os.PathLike[str]


def is_local(path: str) -> bool:
    """Whether a path is on this machine's own file system."""
    return "://" not in path


def is_beams(path: str) -> bool:
    """Whether a path belongs to Beam's file systems: not local, not in a store."""
    return not is_local(path) and not is_in_store(path)


def _remote(path: str) -> Any:
    """Returns the module that serves a remote path."""
    return object_store if is_in_store(path) else beam_filesystem


def join(folder: str, *names: str) -> str:
    """Joins path segments like ``os.path.join``, also for remote paths.

    An absolute segment replaces all segments before it. An empty last segment makes the
    path end in a separator.
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
    """Makes a local path absolute, so that it is the same file in every process.

    Raises
    ------
    InputError
        If it is an address with credentials, which would go into messages and files.
    """
    if holds_credentials(path):
        raise errors.InputError(
            f"{path} holds credentials. Give the address without them; docs/engines.md "
            "says where credentials are looked for."
        )
    if not is_local(path):
        return path
    return os.path.abspath(os.path.expanduser(path))


def path_text(option: str, given: object, what: str = "a path") -> str:
    """Returns the text of a path that a user gave for an option.

    Raises
    ------
    OptionError
        If it is no path, or empty, which would stand for the current folder. The error
        says ``what`` it must be.
    """
    if not (isinstance(given, str | os.PathLike) and os.fspath(given)):
        raise errors.OptionError(option, f"must be {what}", given)
    return os.fspath(given)


def given_path(option: str, given: object, what: str = "a path") -> str:
    """Returns the absolute path that a user gave for an option.

    Raises
    ------
    OptionError, InputError
        See :func:`path_text` and :func:`absolute`.
    """
    return absolute(path_text(option, given, what))


def path_texts(option: str, given: Any) -> list[str]:
    """Returns the text of each path that a user gave for an option: one, or several.

    Raises
    ------
    OptionError
        See :func:`path_text`; also if there is none.
    """
    is_one = isinstance(given, str | bytes) or not isinstance(given, Iterable)
    paths = [given] if is_one else list(given)
    return [path_text(option, each) for each in paths or [given]]


def open_read(path: str) -> BinaryIO:
    """Opens a file for reading in binary mode; seekable on every file system.

    Raises
    ------
    InputError
        If a folder is in the place of the file; or a pipe or a device, which may never
        end.
    DiskError
        If the machine fails to open a local file; also while it is read.
    """
    if is_local(path):
        with reading(path):
            return io.BufferedReader(_LocalFile(path, opener=_open_regular))
    if is_in_store(path):
        return cast(BinaryIO, StoreReader(path))
    return beam_filesystem.open_read(path)


class _LocalFile(io.FileIO):
    """A local file that says its path if the machine fails to read it."""

    def readinto(self, buffer: Any) -> int:
        with reading(str(self.name)):
            count: int = errors.check_answered(super().readinto(buffer))
            return count

    def readall(self) -> bytes:
        with reading(str(self.name)):
            return errors.check_answered(super().readall())


@contextmanager
def reading(path: str) -> Iterator[None]:
    """Raises DiskError, with the path, if the machine fails to read a local file."""
    try:
        yield
    except OSError as error:
        if not errors.is_of_machine(error):
            raise
        raise errors.DiskError(
            path,
            f"cannot be read: {error.strerror}",
            "The machine failed, and the file may be good. Check the disk, the "
            "mount or the limits of the process. Then give the command again.",
        ) from error


def _open_regular(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK)
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        what = "a folder" if stat.S_ISDIR(kind) else "a pipe or a device"
        raise errors.InputError(f"{path} is {what}. Give the path of a file.")
    return descriptor


def begin_read(
    path: str, expected_bytes: int = 0, share: float = 1.0
) -> str | BinaryIO:
    """Returns a source for a decoder: a local path unchanged, a remote file opened.

    For an object store, this sends the first request and does not wait for its answer.

    Parameters
    ----------
    expected_bytes : int
        Estimate of the bytes that will be read without a gap, from the start.
    share : float
        Share of the file that will be read, from its start, between 0 and 1.
    """
    if not is_in_store(path):
        return path if is_local(path) else beam_filesystem.open_read(path)
    first = min(max(FIRST_BYTES, expected_bytes), MOST_BEGUN_BYTES)
    return cast(BinaryIO, StoreReader(path, first, share))


@contextmanager
def closing(source: str | BinaryIO) -> Iterator[str | BinaryIO]:
    """Closes a source from :func:`begin_read` at the end of the ``with`` block."""
    try:
        yield source
    finally:
        if not isinstance(source, str):
            source.close()


def modified_ns(source: str | BinaryIO) -> int:
    """Returns when a file was last modified; 0 if unknown.

    Parameters
    ----------
    source : str or binary file
        The path of the file, or what :func:`begin_read` returned.

    Raises
    ------
    FileNotFoundError
        There is no file at the path.
    """
    if not isinstance(source, str):
        return int(getattr(source, "modified_ns", 0))
    if is_local(source):
        return os.stat(source).st_mtime_ns
    return int(_remote(source).modified_ns(source))


def changed_ns(path: str) -> int:
    """Returns when the file at a path was last modified or replaced; 0 if unknown.

    A file that is moved or copied to a path may keep its modification time, but its
    change time is new. Only local file systems provide change times.

    Raises
    ------
    FileNotFoundError
        The file does not exist.
    """
    if not is_local(path):
        return modified_ns(path)
    stats = os.stat(path), os.lstat(path)  # a link's target, and the link itself
    return max(max(stat.st_mtime_ns, stat.st_ctime_ns) for stat in stats)


def read_bytes(path: str) -> bytes:
    """Reads a whole file into memory."""
    with open_read(path) as file:
        return file.read()


def write_bytes(path: str, content: bytes) -> None:
    """Writes a whole file atomically, replacing an existing one."""
    if not is_local(path):
        _remote(path).write(path, content)
        return
    with replacing(path) as file:
        file.write(content)


@contextmanager
def replacing(path: str) -> Iterator[BinaryIO]:
    """Gives a local file; it becomes the file at the path when the block ends.

    If the block fails, the file is deleted, and the one at the path stays.
    """
    draft = draft_of(path)
    try:
        with open(draft, "wb") as file:
            yield file
        move(draft, path)
    except BaseException as error:
        with suppress(OSError):
            os.remove(draft)
        is_draft = getattr(error, "filename", None) in (None, draft)
        explained = why_not_written(error, path) if is_draft else None
        if explained is None:  # it is an error of what the block reads
            raise
        raise explained from error


def create(path: str, content: bytes) -> bool:
    """Writes a whole file unless it exists; returns whether this call has written it.

    Of several calls at once one writes the file, also on machines that share a disk
    and in object stores. Other file systems of Beam cannot promise that.
    """
    if not is_local(path):
        return bool(_remote(path).create(path, content))
    draft = draft_of(path)
    with writing(path):
        try:
            with open(draft, "wb") as file:
                file.write(content)
            os.link(draft, path)
        except FileExistsError:
            return False
        finally:
            os.remove(draft)
    return True


_CANNOT = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "the quota of the disk is used up",
    errno.EROFS: "its file system is read-only",
    errno.EACCES: "access is denied",
    errno.EPERM: "access is denied",
    errno.EEXIST: "a file is in the place of a folder",
    errno.ENOTDIR: "a part of the path is a file",
    errno.EISDIR: "it is a folder",
    errno.ENAMETOOLONG: "a name in the path is too long",
}


def why_not_written(error: BaseException, path: str = "") -> errors.OutputError | None:
    """Returns the error that tells a user why a file cannot be written.

    None if the error says anything else. ``path`` is the file, if the error lacks it.
    """
    if not isinstance(error, OSError) or error.errno not in _CANNOT:
        return None
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        remedy = "Free some space, or use another disk"
    else:
        remedy = "Fix this, or give another path"
    where = path or error.filename or "A file of the run"
    return errors.OutputError(
        f"{where} cannot be written: {_CANNOT[error.errno]}. {remedy}. Then give the "
        "same command again."
    )


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Raises OutputError, with the path and a remedy, if a local file isn't written."""
    try:
        yield
    except OSError as error:
        explained = why_not_written(error, path)
        if explained is None:
            raise
        raise explained from error


@contextmanager
def _making() -> Iterator[None]:
    """Makes an error of access of the one that folders such as ``/proc`` raise."""
    try:
        yield
    except FileNotFoundError as error:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES)) from error


def check_writable(path: str) -> None:
    """Raises OutputError if a file cannot be written to a path; writes nothing.

    Only for a local path: who may write to a store shows when it is tried.
    """
    if not is_local(path):
        return
    with writing(path), _making():
        if os.path.isdir(path):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        with suppress(FileNotFoundError):
            os.lstat(path)
        folder = os.path.abspath(path)
        while not os.path.isdir(folder):
            folder = os.path.dirname(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass


def check_file(option: str, path: str, *suffixes: str) -> None:
    """Checks where an option lets a file be written, before the work for it.

    Raises
    ------
    OptionError
        If the path ends in none of the suffixes.
    OutputError
        If no file can be written there.
    """
    if not path.lower().endswith(suffixes):
        raise errors.OptionError(option, f"must end in {' or '.join(suffixes)}", path)
    check_writable(path)


def make_folder(path: str) -> None:
    """Makes a local folder, and those above it, unless it exists.

    Raises
    ------
    OutputError
        If it cannot be made.
    """
    with writing(path), _making():
        os.makedirs(path, exist_ok=True)


def draft_path(folder: str, name: str) -> str:
    """Returns a local path for a new file, which :func:`move` later renames.

    For a local folder, the path is in that folder, so that moving copies no bytes. For
    a remote one, it is in a temporary one of this process. Moving then uploads the file
    once, under its final name, because most object stores cannot rename.
    """
    if is_local(folder):
        make_folder(folder)
        return os.path.join(folder, name)
    return os.path.join(folder_of_process(), name)


def draft_of(path: str) -> str:
    """Returns a local path for the new content of a file: ``NAME.tmp-...``."""
    folder, name = os.path.split(path)
    return draft_path(folder or ".", f"{name}.tmp-{uuid.uuid4().hex}")


def delete_drafts(folder: str, names: str) -> None:
    """Deletes the drafts for files in a folder whose names match a glob pattern."""
    if is_local(folder):
        delete(glob.glob(os.path.join(glob.escape(folder), names)))
    else:
        delete_abandoned()


def move(draft: str, target: str) -> None:
    """Moves a local file to its final path, local or remote; replaces an existing file.

    After an upload, even a failed one, the local file is deleted.
    """
    if not is_local(target):
        try:
            _remote(target).upload(draft, target)
        finally:
            os.remove(draft)
        return
    make_folder(os.path.dirname(target) or ".")
    with writing(target):
        try:
            os.replace(draft, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy(draft, target)
            os.remove(draft)


def _copy(source: str, target: str) -> None:
    """Copies a file to another device: beside its place first, which a rename fills."""
    draft = draft_of(target)
    try:
        shutil.copyfile(source, draft)
        os.replace(draft, target)
    finally:
        with suppress(FileNotFoundError):
            os.remove(draft)


def hash_of(path: str) -> tuple[int, str]:
    """Returns a file's size in bytes and its SHA-256, in hexadecimal."""
    sha256, size = hashlib.sha256(), 0
    with open_read(path) as reader:
        while block := reader.read(1 << 20):
            sha256.update(block)
            size += len(block)
            Marks.progress()
    return size, sha256.hexdigest()


def exists(path: str) -> bool:
    """Whether a file exists; for local paths, also whether a folder exists."""
    return os.path.exists(path) if is_local(path) else _remote(path).size(path) >= 0


def size(path: str) -> int:
    """Returns a file's length in bytes, or -1 if it does not exist."""
    if is_local(path):
        return os.path.getsize(path) if os.path.isfile(path) else -1
    return int(_remote(path).size(path))


def is_inside(inner: str, outer: str) -> bool:
    """Whether a path is another one, or below it, wherever links lead."""
    inner, outer = (
        os.path.realpath(path) if is_local(path) else path for path in (inner, outer)
    )
    return f"{inner.rstrip('/')}/".startswith(f"{outer.rstrip('/')}/")


def is_folder(path: str) -> bool:
    """Whether a path is a folder; for remote paths, whether files are below it."""
    if is_local(path):
        return os.path.isdir(path)
    return next(list_files(path), None) is not None


def delete(paths: Iterable[str]) -> None:
    """Deletes files; ignores files that do not exist."""
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
        return
    while os.path.isdir(folder):
        with suppress(FileNotFoundError):  # another process deletes them, too
            shutil.rmtree(folder)


def list_files(folder: str) -> Iterator[str]:
    """Yields the files below a folder as ``/``-separated names relative to it, sorted.

    Names are sorted as text, as object stores do, so that the order is the same on
    every file system. Memory holds the entries of one folder per level. Links to
    folders are followed, except links to a folder that the walk is already inside.
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
            names = [(e.name + "/" * _is_folder(e), e.path) for e in entries]
    except OSError as error:
        raise errors.InputError(
            f"{error.filename} cannot be listed: {error.strerror}. Change its "
            "permissions, or move it to a folder outside the input."
        ) from error
    for name, path in sorted(names):
        if name.endswith("/"):
            yield from _walk(path, prefix + name, (*inside, real))
        else:
            yield prefix + name


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError as error:
        if error.errno == errno.ELOOP:  # links that lead to each other
            return False
        raise


# Temporary files


def private_folder() -> str:
    """Makes a folder below the temporary one, which this user alone can read.

    It stays, empty, because another process may be about to write there.

    Raises
    ------
    OutputError
        If another user has made it.
    """
    path = os.path.join(tempfile.gettempdir(), f"audio-tfrecords-{os.getuid()}")
    with suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    private = stat.S_ISDIR(found.st_mode) and not found.st_mode & 0o077
    if not (private and found.st_uid == os.getuid()):
        raise errors.OutputError(
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
    place = folder_of_process()
    with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as folder:
        yield folder


# What folder_of_process() has made, by process and place: TMPDIR may change.
_made: dict[tuple[int, str], str] = {}


def folder_of_process() -> str:
    """Returns a folder for temporary files of this process.

    It stays until another process looks for folders of processes that have ended.
    """
    key = os.getpid(), private_folder()
    if not os.path.isdir(_made.get(key, "")):
        _made[key] = _locked_folder()
    return _made[key]


def delete_abandoned() -> None:
    """Deletes the folders of processes that have ended."""
    for folder in glob.glob(os.path.join(glob.escape(private_folder()), "process-*")):
        # Without locks, nothing shows who has ended.
        with suppress(OSError):
            lock = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)


def _locked_folder() -> str:
    """Makes a folder that this process has locked until it ends."""
    while True:
        folder = tempfile.mkdtemp(prefix="process-", dir=private_folder())
        # Another process may look before the folder is locked, and delete it.
        with suppress(FileNotFoundError):
            lock = os.open(folder, os.O_RDONLY)
            with suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            if os.path.isdir(folder):
                return folder
            os.close(lock)
