"""What tests look at in the folder of a data set."""

from __future__ import annotations

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np

from beam_pipeline import Metadata
from beam_pipeline.examples.serialisation import decode_columns
from beam_pipeline.read.verify import find_problems
from beam_pipeline.storage.tfrecord import read_any_records


def decode_examples(records: list[bytes], specs: Any) -> list[dict[str, Any]]:
    """Each example as a dict, without the features that it lacks."""
    columns = decode_columns(records, specs)
    rows = [{n: columns[n][i] for n in columns} for i in range(len(records))]
    for row in rows:
        for name, spec in specs.items():
            if row[name] is None:
                del row[name]
            elif spec.is_text:
                row[name] = _texts(row[name], spec.dtype)
    return rows


def _texts(values: Any, dtype: str) -> Any:
    """Texts or bytes of any shape; of none, one of them."""
    array = np.asarray(values, object)
    found = np.empty(array.shape, object)
    for place in np.ndindex(array.shape):
        value = array[place]
        is_text = dtype == "string" and isinstance(value, bytes)
        found[place] = value.decode(errors="backslashreplace") if is_text else value
    return found[()]


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


def shards_of(folder: str | Path) -> list[str]:
    """The paths of the shards of a data set, in order."""
    return [f"{folder}/{shard.file}" for shard in Metadata.load(folder).shards()]


def plain(folder: str | Path) -> Any:
    """The records of a data set, by TensorFlow alone."""
    from tensorflow.data import TFRecordDataset

    return TFRecordDataset(shards_of(folder), "GZIP")


def records_in(folder: Path) -> dict[str, list[bytes]]:
    """The serialised examples of each split, in order."""
    found: dict[str, list[bytes]] = {}
    for name, entry in Metadata.load(folder).splits.items():
        found[name] = []
        for shard in entry.shards:
            with (folder / shard.file).open("rb") as file:
                found[name] += read_any_records(file)
    return found


def check_metadata(folder: Path) -> None:
    """The metadata are as their schema says, and survive reading and writing."""
    schema = files("beam_pipeline") / "dataset/elements.schema.json"
    values = json.loads((folder / "metadata.json").read_text())
    jsonschema.validate(values, json.loads(schema.read_text()))
    assert json.loads(Metadata.from_json(values).to_text()) == values


def problems_in(folder: Path) -> list[str]:
    """What reading every file to its end finds."""
    return list(find_problems(str(folder), Metadata.load(folder)))
