"""``verify --repair``: takes the damaged shards out of a data set, to be made again.

::

    verify --repair    damaged shards are deleted; metadata.json -> work folder
    record             keeps the shards with the recorded checksums, makes the others
                       all of them as recorded: metadata.json -> output

Until then the data set is not complete, and nothing of it can be opened.
"""

from __future__ import annotations

import os

from beam_pipeline.dataset.lock import locked
from beam_pipeline.dataset.output_folder import INDEX, METADATA
from beam_pipeline.dataset.work_folder import WORK_FOLDER, recorded_metadata
from beam_pipeline.errors import InputError
from beam_pipeline.read.verify import (
    load_metadata,
    problems_beside_shards,
    shard_problems,
)
from beam_pipeline.storage import files


def repair(folder: str | os.PathLike[str]) -> list[str]:
    """Deletes the damaged shards of a data set; :func:`.record` makes them again.

    ::

        if repair("records/"):
            record("sounds/", "records/", **options)  # as before

    That call keeps the whole shards, makes the others, and puts the metadata back, with
    their statistics, if every shard has its recorded SHA-256. Otherwise it ends with an
    error that names the shards that differ.

    Returns
    -------
    list of str
        The damaged and missing shards; empty if there are none. Then nothing changes.

    Raises
    ------
    InputError
        If there is no data set, if it was not recorded from audio files, or if another
        file than a shard is damaged. Nothing is deleted.
    VerificationError
        If the metadata are damaged.
    """
    root = files.absolute(os.fspath(folder))
    metadata = load_metadata(root)
    if metadata.recipe is None:
        raise InputError(
            f"{root} was not recorded from audio files, so no command makes some of "
            "its shards again. Record it again."
        )
    listed = {*metadata.files, METADATA} - {INDEX}
    for line in problems_beside_shards(root, metadata):
        if line.partition(":")[0] in listed:
            raise InputError(
                f"{root}: {line}. Only shards are made again alone. Restore this file, "
                "or give the command of `record` again with `overwrite`."
            )
    with locked(files.join(root, WORK_FOLDER)):
        damaged = [
            shard.file
            for shard in metadata.shards()
            if any(True for _ in shard_problems(root, metadata, shard))
        ]
        if damaged:
            path = files.join(root, METADATA)
            files.write_bytes(recorded_metadata(root), files.read_bytes(path))
            files.delete([path])
            files.delete(files.join(root, file) for file in damaged)
    return damaged
