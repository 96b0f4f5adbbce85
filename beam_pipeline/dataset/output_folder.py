"""Names of the files in an output folder, and which files there are ours."""

from __future__ import annotations

import re

SHARD_NAME = re.compile(r"([^/]+/)?[^/]+-\d{5}-of-\d{5}\.tfrecord\.gz")

METADATA = "metadata.json"
SCHEMA = "schema.pbtxt"
MANIFEST = "manifest.parquet"
REJECTED = "rejected.jsonl"


def is_ours(name: str) -> bool:
    known = (METADATA, SCHEMA, MANIFEST, REJECTED)
    return name in known or SHARD_NAME.fullmatch(name) is not None
