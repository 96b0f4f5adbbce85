"""What tests look at in the folder of a data set."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from beam_pipeline import Metadata
from beam_pipeline.examples.decoding import decode_examples
from beam_pipeline.read.verify import find_problems
from beam_pipeline.storage.tfrecord import read_any_records


def contents(folder: Path) -> dict[str, bytes]:
    """The bytes of every file below a folder, by name."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def shards_in(folder: Path) -> dict[str, bytes]:
    """The bytes of every shard below a folder, by name."""
    found = contents(folder).items()
    return {name: content for name, content in found if ".tfrecord" in name}


def rejects_in(folder: Path) -> list[dict[str, Any]]:
    """The lines of the list of rejects."""
    return [json.loads(s) for s in (folder / "rejected.jsonl").read_text().splitlines()]


def examples_in(folder: Path) -> list[dict[str, Any]]:
    """Every example, split after split and shard after shard."""
    metadata = Metadata.load(folder)
    examples = []
    for shard in metadata.shards():
        with (folder / shard.file).open("rb") as file:
            records = list(read_any_records(file))
        examples += decode_examples(records, metadata.features)
    return examples


def problems_in(folder: Path) -> list[str]:
    """What reading every file to its end finds."""
    return list(find_problems(str(folder), Metadata.load(folder)))
