"""The output of elements: claim the folder, write shards and the files beside them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from beam_pipeline.dataset.claim import claimed_for_elements, make_room
from beam_pipeline.dataset.lock import locked
from beam_pipeline.dataset.member_index import ShardMembers, write_index
from beam_pipeline.dataset.metadata import (
    Elements,
    Metadata,
    SplitEntry,
    file_entries,
    shard_entry,
)
from beam_pipeline.dataset.output_folder import INDEX, METADATA, SCHEMA, delete_stale
from beam_pipeline.dataset.schema import schema_text
from beam_pipeline.dataset.work_folder import PARTS, WORK_FOLDER
from beam_pipeline.dataset.writer_versions import writer_versions
from beam_pipeline.errors import InputError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.plan.shards import ShardInfo
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import SUFFIX
from beam_pipeline.write.part_shards import empty_shard, join_pieces
from beam_pipeline.write.statistics import DataStatistics


@dataclass(frozen=True, slots=True)
class ElementOutput:
    """A claimed output folder, and where its unfinished files are."""

    output: str
    work: str

    @property
    def parts(self) -> str:
        """The folder of parts and other unfinished files."""
        return files.join(self.work, PARTS)

    def make_room(self) -> None:
        """Deletes the data set that is replaced, once the new one can be finished."""
        make_room(self.output, self.work)


@contextmanager
def element_output(
    output: str | os.PathLike[str], recorded_by: str, overwrite: bool
) -> Iterator[ElementOutput]:
    """Claims an output folder while the block runs; empties its work folder at the end.

    If the block fails, what it has written is deleted. With ``overwrite``, a data set
    in the folder stays whole until the block calls ``make_room``.

    Raises
    ------
    InputError, OutputError
        If the folder cannot be used; nothing in it is changed then.
    """
    if not (isinstance(output, str | os.PathLike) and os.fspath(output)):
        raise InputError(f"The output must be a folder; got {output!r}.")
    folder = files.absolute(os.fspath(output))
    work = files.join(folder, WORK_FOLDER)
    with locked(work), claimed_for_elements(folder, work, recorded_by, overwrite):
        yield ElementOutput(folder, work)


def finish_elements(
    target: ElementOutput,
    shards: Mapping[str, Sequence[ShardInfo]],
    statistics: Mapping[str, DataStatistics],
    features: Iterable[FeatureSpec],
    elements: Elements,
    classes: Sequence[str] = (),
    suffix: str = SUFFIX,
) -> Metadata:
    """Writes ``schema.pbtxt``, then ``metadata.json``, which completes the data set.

    Parameters
    ----------
    shards, statistics : mapping
        Of each split: its shards in order, and the statistics of its features.
    suffix : str
        The end of the name of a shard, for splits without examples.
    """
    specs = {spec.name: spec for spec in features}
    shards = {
        split: infos
        or [join_pieces(empty_shard(split, suffix), target.output, target.parts)]
        for split, infos in shards.items()
    }
    splits = {
        split: SplitEntry(
            sum(info.examples for info in infos),
            statistics=statistics[split].to_json(),
            shards=tuple(shard_entry(info) for info in infos),
        )
        for split, infos in shards.items()
    }
    written = [info for infos in shards.values() for info in infos]
    delete_stale(target.output, (info.file for info in written))
    write_index(target.output, [ShardMembers.of(info) for info in written])
    files.write_bytes(files.join(target.output, SCHEMA), schema_text(specs))
    metadata = Metadata(
        None,
        specs,
        tuple(classes),
        splits,
        writer=writer_versions(spec.encoding for spec in specs.values()),
        files=file_entries(target.output, (SCHEMA, INDEX)),
        elements=elements,
    )
    files.write_bytes(files.join(target.output, METADATA), metadata.to_text())
    return metadata
