"""TFRecord files of any bytes: written whole, and read one record after the other."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import closing

from beam_pipeline.errors import InputError
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import MemberWriter, frame_record, read_any_records

GZIP_SUFFIX = ".gz"


def write_records(path: str | os.PathLike[str], records: Iterable[bytes]) -> int:
    """Writes records into one TFRecord file, without Beam and without TensorFlow.

    ::

        write_records("data.tfrecord", [b"123", b"xyz314"])

    The file appears once it is whole, and replaces one of the same name. Memory holds
    one record. Equal records give equal bytes.

    Parameters
    ----------
    path : path
        On any file system of this package. If it ends in ``.gz``, the file is
        compressed with GZIP; otherwise it is not compressed.
    records : iterable of bytes
        For example serialised examples of :func:`encode_example`.

    Returns
    -------
    int
        The number of records.

    Raises
    ------
    InputError
        If a record is not bytes; no file is written then.
    """
    target = files.given_path("path", path)
    count = 0
    with files.replacing(target) as file:
        is_gzip = target.lower().endswith(GZIP_SUFFIX)
        with closing(MemberWriter(file) if is_gzip else file) as writer:
            for record in records:
                if not isinstance(record, bytes):
                    raise InputError(
                        f"Record {count} is a {type(record).__name__}, but must be "
                        "bytes. `encode_example` makes bytes of a dict of values."
                    )
                writer.write(frame_record(record))
                count += 1
    return count


def read_records(path: str | os.PathLike[str]) -> Iterator[bytes]:
    """Yields the records of a TFRecord file, without Beam and without TensorFlow.

    The content of the file shows whether it is compressed with GZIP. Both checksums of
    each record are compared.

    Parameters
    ----------
    path : path
        On any file system of this package.

    Raises
    ------
    InputError
        If there is no such file, or when it comes to a damaged record. The error names
        both.
    """
    source = files.given_path("path", path)
    if files.size(source) < 0:
        raise InputError(f"{source} does not exist. Check the path.")
    return _read(source)


def _read(source: str) -> Iterator[bytes]:
    with files.open_read(source) as file:
        try:
            yield from read_any_records(file)
        except ValueError as error:
            raise InputError(
                f"{source} is not a whole TFRecord file: {error}. Restore the file."
            ) from error
