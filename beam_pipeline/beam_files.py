"""Beam's file systems, for what is neither local nor in an object store (HDFS)."""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, cast


def _file_systems() -> Any:
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions

    # Workers that were not started by Beam's own scripts are not told the options.
    if FileSystems._pipeline_options is None:
        FileSystems.set_options(PipelineOptions([]))
    return FileSystems


def _uncompressed() -> str:
    from apache_beam.io.filesystem import CompressionTypes

    return cast(str, CompressionTypes.UNCOMPRESSED)


def open_read(path: str) -> BinaryIO:
    """Opens a file for reading bytes."""
    if size(path) < 0:
        raise FileNotFoundError(errno.ENOENT, "there is no such file", path)
    return cast(BinaryIO, _file_systems().open(path, compression_type=_uncompressed()))


def write(path: str, content: bytes) -> None:
    """Writes a whole file."""
    with _file_systems().create(path, compression_type=_uncompressed()) as writer:
        writer.write(content)


def upload(local_path: str, path: str) -> None:
    """Writes a local file under a temporary name, then renames it."""
    temporary = f"{path}.tmp"
    with (
        open(local_path, "rb") as reader,
        _file_systems().create(temporary, compression_type=_uncompressed()) as writer,
    ):
        shutil.copyfileobj(reader, writer, 1 << 20)
    _file_systems().rename([temporary], [path])


def size(path: str) -> int:
    """A file's length in bytes, or -1 where there is none."""
    found = _match(path)
    return int(found[0].size_in_bytes) if found else -1


def list_files(folder: str) -> Iterator[str]:
    """The names of all files below a folder, relative to it, in order."""
    root = folder.rstrip("/") + "/"
    names = (found.path[len(root) :] for found in _match(root + "**"))
    yield from sorted(name for name in names if name)


def delete(paths: Sequence[str]) -> None:
    """Deletes files; what is not there is no error."""
    _file_systems().delete(list(paths))


def glob_regex(pattern: str) -> re.Pattern[str]:
    """A glob as Beam understands it: ``*`` stops at ``/``, ``**`` does not."""
    return re.compile(_file_systems().get_filesystem("/").translate_pattern(pattern))


def _match(pattern: str) -> list[Any]:
    return list(_file_systems().match([pattern])[0].metadata_list)
