"""Files on any Beam file system. Local paths never import Beam."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, cast

from beam_pipeline.errors import InputError


def is_local(path: str) -> bool:
    """Whether a path is on this machine's own file system."""
    return "://" not in path


def _beam() -> Any:
    from apache_beam.io.filesystems import FileSystems

    return FileSystems


def _uncompressed() -> str:
    from apache_beam.io.filesystem import CompressionTypes

    return cast(str, CompressionTypes.UNCOMPRESSED)


def join(folder: str, *names: str) -> str:
    """Joins path segments; an absolute name replaces what stands before it."""
    if is_local(folder):
        return os.path.join(folder, *names)
    for name in names:
        if not is_local(name) or name.startswith("/"):
            folder = name
        elif name:
            folder = f"{folder.rstrip('/')}/{name}"
    return folder


def absolute(path: str) -> str:
    """The path with its working directory, so that every process means the same."""
    return os.path.abspath(os.path.expanduser(path)) if is_local(path) else path


def open_read(path: str) -> BinaryIO:
    """Opens a file for reading bytes; seekable on every file system."""
    if is_local(path):
        return open(path, "rb")
    return cast(BinaryIO, _beam().open(path, compression_type=_uncompressed()))


def open_write(path: str) -> BinaryIO:
    """Opens a new file for writing bytes, making its folder first."""
    if is_local(path):
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        return open(path, "wb")
    return cast(BinaryIO, _beam().create(path, compression_type=_uncompressed()))


def read_bytes(path: str) -> bytes:
    """A whole small file."""
    with open_read(path) as file:
        return file.read()


def write_bytes(path: str, content: bytes) -> None:
    """Writes a whole file under a temporary name, then renames it: all or nothing."""
    temporary = f"{path}.tmp-{os.getpid()}"
    with open_write(temporary) as file:
        file.write(content)
    move(temporary, path)


def move(source: str, target: str) -> None:
    """Renames a file, over an existing one; copies where renaming is not possible."""
    if is_local(source) and is_local(target):
        os.makedirs(os.path.dirname(target) or ".", exist_ok=True)
        try:
            os.replace(source, target)
        except OSError:  # another device: copy beside the target, then rename
            shutil.copyfile(source, f"{target}.tmp")
            os.replace(f"{target}.tmp", target)
            os.remove(source)
        return
    if is_local(source) != is_local(target):
        with open_read(source) as reader, open_write(target) as writer:
            shutil.copyfileobj(reader, writer, 1 << 20)
        delete([source])
        return
    _beam().rename([source], [target])


def concatenate(paths: Iterable[str], target: str) -> tuple[int, str]:
    """Writes files one after the other; returns the bytes and their SHA-256."""
    sha256 = hashlib.sha256()
    size = 0
    with open_write(target) as writer:
        for path in paths:
            with open_read(path) as reader:
                while block := reader.read(1 << 20):
                    writer.write(block)
                    sha256.update(block)
                    size += len(block)
    return size, sha256.hexdigest()


def exists(path: str) -> bool:
    """Whether a file or a folder is there."""
    return os.path.exists(path) if is_local(path) else bool(_beam().exists(path))


def size(path: str) -> int:
    """A file's length in bytes, or -1 where there is none."""
    if is_local(path):
        return os.path.getsize(path) if os.path.isfile(path) else -1
    found = match(path)
    return int(found[0].size_in_bytes) if found else -1


def modified_ns(path: str) -> int:
    """When a file was last changed; 0 on object stores, where it costs a request."""
    return os.stat(path).st_mtime_ns if is_local(path) else 0


def is_folder(path: str) -> bool:
    """Whether a path is a folder. On object stores: whether files lie below it."""
    if is_local(path):
        return os.path.isdir(path)
    return next(list_files(path), None) is not None


def make_folder(path: str) -> None:
    """Makes a folder and those above it; object stores have none."""
    if is_local(path):
        os.makedirs(path, exist_ok=True)


def delete(paths: Iterable[str]) -> None:
    """Deletes files and whole folders; what is not there is no error."""
    remote = []
    for path in paths:
        if not is_local(path):
            remote.append(path)
        elif os.path.isdir(path):
            shutil.rmtree(path)
        elif os.path.lexists(path):
            os.remove(path)
    if remote:
        _beam().delete(remote)


def delete_below(folder: str) -> None:
    """Deletes a folder and everything below it."""
    if is_local(folder):
        delete([folder])
        return
    found = [m.path for m in match(folder.rstrip("/") + "/**")]
    if found:
        _beam().delete(found)


def list_files(folder: str) -> Iterator[str]:
    """Every file below a folder, as ``/``-separated names relative to it, sorted.

    Sorted by folder, then by name, one folder in memory at a time. Links to folders
    are followed, but never back into a folder that the walk is already inside.
    """
    if is_local(folder):
        yield from _walk(folder, "", ())
        return
    root = folder.rstrip("/") + "/"
    names = [m.path[len(root) :] for m in match(root + "**")]
    yield from sorted((n for n in names if n), key=lambda name: name.split("/"))


def _walk(folder: str, prefix: str, inside: tuple[str, ...]) -> Iterator[str]:
    real = os.path.realpath(folder)
    if real in inside:
        return
    try:
        with os.scandir(folder) as entries:
            found = sorted(entries, key=lambda entry: entry.name)
    except OSError as error:
        raise InputError(
            f"{folder} cannot be listed: {error.strerror}. Nothing below it can be "
            "read; change its permissions, or move it away."
        ) from error
    for entry in found:
        if entry.is_dir():
            yield from _walk(entry.path, f"{prefix}{entry.name}/", (*inside, real))
        else:
            yield prefix + entry.name


def glob_regex(pattern: str) -> re.Pattern[str]:
    """A glob as Beam understands it: ``*`` stops at ``/``, ``**`` does not."""
    local = _beam().get_filesystem("/")
    return re.compile(local.translate_pattern(pattern))


def match(pattern: str) -> list[Any]:
    """Metadata (``path``, ``size_in_bytes``) of the files that a glob matches."""
    return list(_beam().match([pattern])[0].metadata_list)
