"""Generations: the files that each run has added to a data set, as one.

Each generation has its own shards, and its own tables beside them::

    generation 0    manifest.parquet       train/train-00000-of-00012.tfrecord.gz ...
    generation 1    manifest-a001.parquet  train/train-a001-00000-of-00002.tfrecord.gz
    generation 2    manifest-a002.parquet  ...

``metadata.json`` lists the shards of all of them. Nothing reads a generation that it
does not list, and no file of a generation changes. So who has read ``metadata.json``
goes on reading the data set as it was then.

The manifest, the table of windows and the index of members continue those of the
generations before. The list of rejects and the statistics are those of all generations
so far.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.clip_windows import clips_of
from beam_pipeline.dataset.member_index import MemberIndex
from beam_pipeline.dataset.metadata import Metadata, ShardEntry
from beam_pipeline.dataset.output_folder import (
    INDEX,
    MANIFEST,
    METADATA,
    REJECTED,
    WINDOWS,
    earlier_metadata,
    generation_file,
    generation_of_file,
)
from beam_pipeline.errors import InputError
from beam_pipeline.hashing import bytes_sha256
from beam_pipeline.storage import files
from beam_pipeline.storage.json_text import parse_json
from beam_pipeline.storage.parquet import create_parquet, read_parquet

RECORD, APPEND, RETRY = "record", "append", "retry"


def last_generation(metadata: Metadata) -> int:
    """Returns the number of the newest generation; 0 if nothing was added."""
    return max(len(metadata.generations) - 1, 0)


def generation_files(metadata: Metadata, name: str) -> list[str]:
    """Returns a file's name in each generation, in order."""
    return [generation_file(name, g) for g in range(last_generation(metadata) + 1)]


def newest_file(metadata: Metadata, name: str) -> str:
    """Returns a file's name in the newest generation."""
    return generation_file(name, last_generation(metadata))


def read_generations(
    folder: str, metadata: Metadata, name: str, read: Callable[[str], Any]
) -> Any:
    """Returns a table of all generations; ``read`` reads that of one from its path."""
    import pyarrow as pa

    tables = [
        read(files.join(folder, file)) for file in generation_files(metadata, name)
    ]
    if len(tables) == 1:
        return tables[0]
    # The columns of an input may have another order in each generation.
    return pa.concat_tables(tables, promote_options="default").unify_dictionaries()


def read_columns(
    folder: str, metadata: Metadata, name: str, columns: Sequence[str]
) -> Any:
    """Returns some columns of a table of all generations."""

    def read(path: str) -> Any:
        try:
            return read_parquet(path, columns).select(list(columns))
        except (OSError, ValueError, KeyError) as error:
            raise InputError(
                f"{path} cannot be read: {error}. Restore it, or record the data set "
                "again."
            ) from error

    return read_generations(folder, metadata, name, read)


def current_rows(count: int, metadata: Metadata) -> npt.NDArray[np.bool_] | None:
    """Returns which of the manifest's ``count`` rows are valid; None: all of them.

    A clip that was rejected after its header was read has a row. If a retry recorded
    it, it has another row in a later generation.
    """
    replaced = [row for each in metadata.generations for row in each.replaced]
    if not replaced:
        return None
    if max(replaced) >= count:
        raise InputError(
            f"{METADATA} has replaced row {max(replaced)} of the manifest, which has "
            f"{count}. Restore both files."
        )
    current = np.ones(count, bool)
    current[replaced] = False
    return current


def join_tables(folder: str, output: str) -> None:
    """Writes the manifest and the table of windows of all generations as one file each.

    Rows that a retry replaced are left out.
    """
    metadata = Metadata.load(folder)
    manifest, windows = (
        read_generations(folder, metadata, name, read_parquet)
        for name in (MANIFEST, WINDOWS)
    )
    current = current_rows(len(manifest), metadata)
    if current is not None:
        windows = windows.filter(current[clips_of(windows, manifest)])
        manifest = manifest.filter(current)
    for name, table in ((MANIFEST, manifest), (WINDOWS, windows)):
        with create_parquet(files.join(output, name), table.schema) as writer:
            writer.write_table(table)


def load_index(folder: str, metadata: Metadata) -> MemberIndex:
    """Reads the index of members of all generations.

    Raises
    ------
    FileNotFoundError
        If one has none.
    InputError
        If a file is damaged.
    """
    shards = {}
    for file in generation_files(metadata, INDEX):
        shards.update(MemberIndex.load(folder, file).shards)
    return MemberIndex(shards)


def shards_by_generation(metadata: Metadata) -> Iterator[tuple[int, list[ShardEntry]]]:
    """Yields each generation with its shards."""
    for generation in range(last_generation(metadata) + 1):
        yield (
            generation,
            [
                entry
                for entry in metadata.shards()
                # Shards of other writers have names without a generation.
                if (generation_of_file(entry.file) or 0) == generation
            ],
        )


def read_rejects(folder: str, metadata: Metadata) -> list[dict[str, Any]]:
    """Returns the rejects of the data set, as the file lists them."""
    path = files.join(folder, newest_file(metadata, REJECTED))
    return [parse_json(line) for line in files.read_bytes(path).splitlines()]


def extends(metadata: Metadata, earlier: Metadata) -> bool:
    """Whether metadata are the earlier ones after files were added."""
    has_more = last_generation(metadata) > last_generation(earlier)
    return has_more and all(
        name in metadata.splits
        and metadata.splits[name].shards[: len(split.shards)] == split.shards
        for name, split in earlier.splits.items()
    )


def is_intact(folder: str, opened: Metadata) -> bool:
    """Whether a folder holds the data set that was opened, and more."""
    return extends(Metadata.load(folder), opened)


def metadata_text(folder: str, sha256: str | None = None) -> bytes:
    """Returns the text of the metadata, as it is or as it was when it had a SHA-256.

    Raises
    ------
    FileNotFoundError
        If there is none.
    """
    path = files.join(folder, METADATA)
    text = files.read_bytes(path)
    if sha256 is None or bytes_sha256(text) == sha256:
        return text
    for generation in range(last_generation(Metadata.parse(text, path))):
        earlier = files.read_bytes(files.join(folder, earlier_metadata(generation)))
        if bytes_sha256(earlier) == sha256:
            return earlier
    return text
