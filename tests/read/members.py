"""Data sets whose shards consist of members of a few examples, with their index."""

import hashlib
import json
from pathlib import Path

import numpy as np

from beam_pipeline.dataset.metadata import (
    Metadata,
    ShardEntry,
    ShardIndex,
    SplitEntry,
    write_index,
)
from beam_pipeline.examples.serialisation import ExampleEncoder
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import (
    SUFFIX,
    compress_member,
    frame_record,
    is_compressed,
    placed_records,
)
from beam_pipeline.text import json_sha256


def index_data_set(folder):
    """Writes the index of a data set from its shards; returns how many members."""
    shards = []
    for entry in Metadata.load(folder).shards():
        with open(Path(folder, entry.file), "rb") as file:
            placed = placed_records(file, compressed=is_compressed(entry.file))
            starts = np.array([record.start for record in placed], np.int64)
        found = np.unique(starts, return_counts=True)
        shards.append(ShardIndex.make(entry, *found))
    write_index(str(folder), shards)
    return sum(len(shard.offsets) - 1 for shard in shards)


def make(folder, specs, columns, splits, per_member=1, classes=(), gzip=True):
    """Writes a data set by hand, with its index; returns its folder.

    Parameters
    ----------
    columns : mapping
        As the encoder takes them; every split starts at their first row.
    splits : mapping
        The number of examples in each shard, for each split.
    """
    entries = {}
    for split, sizes in splits.items():
        shards, first = [], 0
        for i, size in enumerate(sizes):
            rows = {name: v[first : first + size] for name, v in columns.items()}
            records = ExampleEncoder(specs).encode(size, rows) if size else []
            name = f"{split}/{split}-{i:05d}-of-{len(sizes):05d}"
            shards.append(write_shard(folder, name, records, per_member, gzip))
            first += size
        entries[split] = SplitEntry(first, 1, 1.0, shards=tuple(shards))
    features = {spec.name: spec for spec in specs}
    metadata = Metadata(Recipe(win_len=1), features, classes, entries, 1, 0, 0)
    Path(folder, "metadata.json").write_bytes(metadata.to_text())
    index_data_set(str(folder))
    return str(folder)


def write_shard(folder, name, records, per_member=1, gzip=True):
    """Writes serialised examples as a shard; returns its entry in the metadata."""
    framed = [frame_record(record) for record in records]
    members = [
        b"".join(framed[at : at + per_member])
        for at in range(0, len(framed), per_member)
    ] or [b""]
    content = b"".join([compress_member(m) if gzip else m for m in members])
    file = name + (SUFFIX if gzip else ".tfrecord")
    path = Path(folder, file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    return ShardEntry(file, len(records), len(content), sha256)


def seal(folder, edit=lambda values: None):
    """Edits the metadata, and makes the checksums beside the shards fit."""
    path = folder / "metadata.json"
    values = json.loads(path.read_text())
    values.pop("sha256", None)
    edit(values)
    if "recipe" in values:
        values["recipe_sha256"] = json_sha256(values["recipe"])
    for name in values["files"]:
        if (folder / name).is_file():
            size, sha256 = files.hash_of(str(folder / name))
            values["files"][name] = {"bytes": size, "sha256": sha256}
    path.write_text(json.dumps({**values, "sha256": json_sha256(values)}))
