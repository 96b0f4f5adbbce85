"""Beam's file systems, for what is neither local nor in an object store (HDFS)."""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO, cast

from beam_pipeline.errors import InputError

_SERVED_ELSEWHERE = ("gs", "s3")


def _file_systems(path: str = "/") -> Any:
    """Beam's entrance to its file systems, if it has one for the path.

    Raises
    ------
    InputError
        If nobody serves its scheme, or the file system lacks an option.
    """
    from apache_beam.io.filesystem import BeamIOError
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions

    # Workers that were not started by Beam's own scripts are not told the options.
    if FileSystems._pipeline_options is None:
        FileSystems.set_options(PipelineOptions([]))
    scheme = FileSystems.get_scheme(path)
    if scheme is not None and scheme not in _schemes():
        known = sorted({*_SERVED_ELSEWHERE, *_schemes()})
        raise InputError(
            f"{path}: the scheme {scheme}:// is not supported, only paths on this "
            f"machine and {', '.join(f'{name}://' for name in known)}. Others need a "
            "file system for Beam that is installed where this runs."
        )
    try:
        FileSystems.get_filesystem(path)
    except (ValueError, BeamIOError) as error:
        details = getattr(error, "exception_details", None) or {"": error}
        reason = "; ".join(str(detail) for detail in details.values())
        raise InputError(
            f"{path}: Beam's file system for {scheme}:// cannot be used: {reason}. "
            "Install what it needs, or give its options after a lone --, with a "
            "--runner."
        ) from error
    return FileSystems


def _schemes() -> set[str]:
    """The schemes that the file systems known to Beam here serve."""
    from apache_beam.io.filesystem import FileSystem

    return {s.scheme() for s in FileSystem.get_all_subclasses() if s.scheme()}


def _uncompressed() -> str:
    from apache_beam.io.filesystem import CompressionTypes

    return cast(str, CompressionTypes.UNCOMPRESSED)


def open_read(path: str) -> BinaryIO:
    """Opens a file for reading bytes."""
    if size(path) < 0:
        raise FileNotFoundError(errno.ENOENT, "there is no such file", path)
    return cast(
        BinaryIO, _file_systems(path).open(path, compression_type=_uncompressed())
    )


def write(path: str, content: bytes) -> None:
    """Writes a whole file."""
    with _file_systems(path).create(path, compression_type=_uncompressed()) as writer:
        writer.write(content)


def upload(local_path: str, path: str) -> None:
    """Writes a local file under a temporary name, then renames it."""
    temporary = f"{path}.tmp"
    with (
        open(local_path, "rb") as reader,
        _file_systems(path).create(
            temporary, compression_type=_uncompressed()
        ) as writer,
    ):
        shutil.copyfileobj(reader, writer, 1 << 20)
    _file_systems(path).rename([temporary], [path])


def size(path: str) -> int:
    """A file's length in bytes, or -1 where there is none."""
    found = _match(path)
    return int(found[0].size_in_bytes) if found else -1


def modified_ns(path: str) -> int:
    """When a file was last changed; 0 where the file system does not tell."""
    found = _match(path)
    if not found:
        raise FileNotFoundError(errno.ENOENT, "there is no such file", path)
    return int((found[0].last_updated_in_seconds or 0) * 1e9)


def list_files(folder: str) -> Iterator[str]:
    """The names of all files below a folder, relative to it, in order."""
    _file_systems(folder)  # so that an error names the folder as it was given
    root = folder.rstrip("/") + "/"
    names = (found.path[len(root) :] for found in _match(root + "**"))
    yield from sorted(name for name in names if name)


def delete(paths: Sequence[str]) -> None:
    """Deletes files; what is not there is no error, though some systems say so."""
    from apache_beam.io.filesystem import BeamIOError

    try:
        _file_systems(paths[0]).delete(list(paths))
    except BeamIOError:
        if any(size(path) >= 0 for path in paths):
            raise


def glob_regex(pattern: str) -> re.Pattern[str]:
    """A glob as Beam understands it: ``*`` stops at ``/``, ``**`` does not."""
    return re.compile(_file_systems().get_filesystem("/").translate_pattern(pattern))


def _match(pattern: str) -> list[Any]:
    return list(_file_systems(pattern).match([pattern])[0].metadata_list)
