"""The end of every data set: what readers need beside the shards, metadata last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from beam_pipeline.dataset.member_index import ShardIndex, write_index
from beam_pipeline.dataset.metadata import Metadata, file_entries
from beam_pipeline.dataset.output_folder import INDEX, METADATA, SCHEMA
from beam_pipeline.dataset.schema import schema_text
from beam_pipeline.plan.shards import ShardInfo
from beam_pipeline.storage import files


def complete_data_set(
    output: str,
    metadata: Metadata,
    shards: Iterable[ShardInfo],
    beside: Sequence[str] = (SCHEMA, INDEX),
) -> str:
    """Writes the schema and the index of members, then ``metadata.json``.

    A data set is complete if it has that file, so it is the last one.

    Parameters
    ----------
    output : str
        The output folder, which has the shards and no others.
    metadata : Metadata
        Without the files beside the shards.
    shards : iterable of ShardInfo
        In the order of the metadata.
    beside : sequence of str
        The files beside the shards that readers open; the others are there.

    Returns
    -------
    str
        The path of ``metadata.json``.
    """
    schema = schema_text(metadata.features, metadata.classes)
    files.write_bytes(files.join(output, SCHEMA), schema)
    write_index(output, map(ShardIndex.of, shards))
    metadata = replace(metadata, files=file_entries(output, beside))
    path = files.join(output, METADATA)
    files.write_bytes(path, metadata.to_text())
    return path
