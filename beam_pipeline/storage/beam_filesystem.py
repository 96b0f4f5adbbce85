"""Files on Beam's file systems: neither local nor in an object store (e.g. HDFS)."""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, cast

from beam_pipeline.errors import InputError


def _file_systems(path: str = "/") -> Any:
    """Returns Beam's ``FileSystems``, after a check that it can serve the path.

    Raises
    ------
    InputError
        No file system serves the path's scheme, or the file system lacks an option.
    """
    from apache_beam.io.filesystem import BeamIOError
    from apache_beam.io.filesystems import FileSystems
    from apache_beam.options.pipeline_options import PipelineOptions

    # Only Beam's own scripts set the options when they start a worker.
    if FileSystems._pipeline_options is None:
        FileSystems.set_options(PipelineOptions([]))
    try:
        FileSystems.get_filesystem(path)
    except (ValueError, BeamIOError) as error:
        details = getattr(error, "exception_details", None) or {"": error}
        raise InputError(
            f"{path} cannot be used: {'; '.join(map(str, details.values()))}. Use a "
            "path on this machine, or one that begins with gs:// or s3://. For others, "
            "install a Beam file system for it where this command runs, or give "
            "--runner and the options of the file system after a separate --."
        ) from error
    return FileSystems


def open_read(path: str) -> BinaryIO:
    """Opens a file for reading in binary mode."""
    if size(path) < 0:
        raise FileNotFoundError(errno.ENOENT, "there is no such file", path)
    return cast(BinaryIO, _opened(_file_systems(path).open, path))


def _opened(way: Callable[..., Any], path: str) -> Any:
    """Opens a file as it is, whatever its name says of compression."""
    from apache_beam.io.filesystem import CompressionTypes

    return way(path, compression_type=CompressionTypes.UNCOMPRESSED)


def write(path: str, content: bytes) -> None:
    """Writes a whole file."""
    with _opened(_file_systems(path).create, path) as writer:
        writer.write(content)


def create(path: str, content: bytes) -> bool:
    """Writes a whole file unless it exists; returns whether this call wrote it.

    Of two calls at once both may write it.
    """
    is_new = size(path) < 0
    if is_new:
        write(path, content)
    return is_new


def upload(local_path: str, path: str) -> None:
    """Writes a local file under a temporary name, then renames it."""
    temporary = f"{path}.tmp"
    systems = _file_systems(path)
    with open(local_path, "rb") as reader, _opened(systems.create, temporary) as writer:
        shutil.copyfileobj(reader, writer, 1 << 20)
    systems.rename([temporary], [path])


def size(path: str) -> int:
    """Returns a file's length in bytes, or -1 if it does not exist."""
    matches = _match(path)
    return int(matches[0].size_in_bytes) if matches else -1


def modified_ns(path: str) -> int:
    """Returns when a file was last modified; 0 if the file system does not say."""
    matches = _match(path)
    if not matches:
        raise FileNotFoundError(errno.ENOENT, "there is no such file", path)
    return int((matches[0].last_updated_in_seconds or 0) * 1e9)


def list_files(folder: str) -> Iterator[str]:
    """Yields the names of all files below a folder, relative to it, sorted."""
    _file_systems(folder)  # checked first, so that errors name the folder as given
    root = folder.rstrip("/") + "/"
    names = (match.path[len(root) :] for match in _match(root + "**"))
    yield from sorted(name for name in names if name)


def delete(paths: Sequence[str]) -> None:
    """Deletes files; ignores files that do not exist."""
    _file_systems(paths[0]).delete([path for path in paths if size(path) >= 0])


def glob_regex(pattern: str) -> re.Pattern[str]:
    """Returns Beam's regex for a glob: ``**`` matches ``/``, and ``*`` does not."""
    return re.compile(_file_systems().get_filesystem("/").translate_pattern(pattern))


def _match(pattern: str) -> list[Any]:
    return list(_file_systems(pattern).match([pattern])[0].metadata_list)
