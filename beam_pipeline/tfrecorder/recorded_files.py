"""Finds what was recorded in a folder: the files of records, and ``examples.csv``."""

from __future__ import annotations

import os
import re

from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import SUFFIX

EXAMPLES_CSV = "examples.csv"

_SHARD = re.compile(
    r"(?P<name>.+)-(?P<k>\d{5,})-of-(?P<shards>\d{5,})" + re.escape(SUFFIX)
)
_NUMBERED = re.compile(r"(\d+)\.tfr")


def get_tfrecord_filepaths(dirpath: files.PathLike) -> list[str]:
    """Returns the files of records in a folder, in their order.

    They are ``NAME-00000-of-00002.tfrecord.gz``, or ``0.tfr``, ``1.tfr`` in the order
    of their numbers.

    Raises
    ------
    ValueError
        If there is no such folder.
    InputError
        If one of the numbered files is missing, or files of several runs are there.
    """
    folder = _folder(dirpath)
    names = [name for name in files.list_files(folder) if "/" not in name]
    shards = [found for name in names if (found := _SHARD.fullmatch(name))]
    numbered = [found for name in names if (found := _NUMBERED.fullmatch(name))]
    runs = {(found["name"], found["shards"]) for found in shards}
    if len(runs) + bool(numbered) > 1:
        raise InputError(
            f"{folder} holds files of several runs, of {shards[0][0]} and others. Keep "
            "one run's files in a folder."
        )
    for name, count in runs:
        missing = set(range(int(count))) - {int(found["k"]) for found in shards}
        if missing:
            raise InputError(
                f"{folder} lacks {len(missing)} of {int(count)} shards, the first is "
                f"{name}-{min(missing):05d}-of-{count}{SUFFIX}. Record them again."
            )
    shards.sort(key=lambda found: int(found["k"]))
    numbered.sort(key=lambda found: int(found[1]))
    return [files.join(folder, found[0]) for found in (*shards, *numbered)]


def get_examples_list_filepaths(dirpath: files.PathLike) -> str:
    """Returns the path of ``examples.csv`` in a folder.

    Raises
    ------
    ValueError
        If there is no such folder.
    """
    return files.join(_folder(dirpath), EXAMPLES_CSV)


def _folder(dirpath: files.PathLike) -> str:
    folder = files.absolute(os.fspath(dirpath))
    if not files.is_folder(folder):
        raise OptionError("dirpath", "must be a folder that exists", os.fspath(dirpath))
    return folder
