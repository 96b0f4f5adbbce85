"""Names of the files in an output folder, and which files there are ours."""

from __future__ import annotations

from beam_pipeline.plan.shards import is_shard_name
from beam_pipeline.storage.tfrecord import SUFFIX

METADATA = "metadata.json"
SCHEMA = "schema.pbtxt"
MANIFEST = "manifest.parquet"
REJECTED = "rejected.jsonl"


def is_shard_file(name: str) -> bool:
    """Whether a file below a data set's folder is called as its shards are."""
    return name.endswith(SUFFIX) and is_shard_name(name.removesuffix(SUFFIX))


def is_ours(name: str) -> bool:
    """Whether a file below a data set's folder is called as one of its files is."""
    known = (METADATA, SCHEMA, MANIFEST, REJECTED)
    return name in known or is_shard_file(name)
