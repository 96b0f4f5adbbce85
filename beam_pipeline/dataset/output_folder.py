"""Names of the files in an output folder, and which files there are ours."""

from __future__ import annotations

from beam_pipeline.dataset.metadata import is_shard_file

METADATA = "metadata.json"
SCHEMA = "schema.pbtxt"
MANIFEST = "manifest.parquet"
REJECTED = "rejected.jsonl"


def is_ours(name: str) -> bool:
    known = (METADATA, SCHEMA, MANIFEST, REJECTED)
    return name in known or is_shard_file(name)
