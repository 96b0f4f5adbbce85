"""What a data set is, in numbers: from its metadata and the files beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import MANIFEST, REJECTED
from beam_pipeline.dataset.side_by_side import DataSets
from beam_pipeline.dataset.windows import read_table
from beam_pipeline.recipe.recipe import recipe_options
from beam_pipeline.storage import files
from beam_pipeline.text import parse_json

LENGTH_BARS = 30
HISTOGRAM_BARS = 40
REASONS_SHOWN, FILES_SHOWN = 30, 200
SHARDS_SHOWN = 500

_OF_CLIPS = [
    "frames", "sample_rate_hz", "native_sample_rate_hz", "channels", "format",
    "subtype", "windows",
]  # fmt: skip


def describe_data_set(data: DataSets) -> dict[str, Any]:
    """Returns JSON values for the tables of the page.

    Raises
    ------
    InputError
        If its manifest is missing or damaged.
    """
    metadata = data.metadata
    shards = list(metadata.shards())
    made = {
        "splits": _splits(metadata),
        "classes": list(metadata.classes),
        "features": [_feature(name, metadata) for name in metadata.features],
        "shards": [
            {"file": each.file, "examples": each.examples, "bytes": each.bytes}
            for each in shards[:SHARDS_SHOWN]
        ],
        "totals": {
            "examples": sum(split.examples for split in metadata.splits.values()),
            "shards": len(shards),
            "bytes": sum(each.bytes for each in shards),
            "rejected": metadata.rejected,
            "clips": metadata.clips,
            "ignored": metadata.ignored,
        },
        "recipe": _recipe(metadata),
        "writer": dict(metadata.writer),
        "left_out": dict(metadata.left_out or {}),
        "audio": {},
        "rejects": [],
    }
    if metadata.recipe is not None:
        made["audio"] = _audio(data)
        made["rejects"] = _rejects(data)
    return made


def _splits(metadata: Metadata) -> list[dict[str, Any]]:
    shares: Mapping[str, float] = {}
    if metadata.recipe is not None:
        shares = metadata.recipe.splits.hashed_shares() or {}
    asked, total = sum(shares.values()), 0.0
    seconds = {name: split.seconds or 0.0 for name, split in metadata.splits.items()}
    total = sum(seconds.values())
    return [
        {
            "name": name,
            "examples": split.examples,
            "clips": split.clips,
            "hours": seconds[name] / 3600,
            "left_out": split.left_out,
            "asked": shares[name] / asked if name in shares else None,
            "share": seconds[name] / total if total else None,
            "per_class": dict(split.examples_per_class),
        }
        for name, split in metadata.splits.items()
    ]


def _feature(name: str, metadata: Metadata) -> dict[str, Any]:
    """Returns a feature with its statistics in the split that training reads."""
    spec = metadata.features[name]
    split = "train" if "train" in metadata.splits else next(iter(metadata.splits), "")
    entry = metadata.splits.get(split)
    found = entry.statistics.get("features", {}).get(name, {}) if entry else {}
    bins = found.get("bins", {})
    return {
        "name": name,
        "dtype": spec.dtype,
        "shape": None if spec.shape is None else list(spec.shape),
        "encoding": spec.encoding,
        "description": spec.description,
        "split": split if found else None,
        "numbers": {
            key: found[key]
            for key in ("count", "mean", "std", "min", "max", "nonfinite_share")
            if key in found
        },
        "quantiles": found.get("quantiles", {}),
        "bins": {key: bins[key] for key in ("mean", "std") if key in bins},
    }


def _recipe(metadata: Metadata) -> dict[str, Any]:
    """Returns the options whose values are not the defaults."""
    if metadata.recipe is None:
        return {} if metadata.elements is None else dict(metadata.elements.options)
    values = metadata.recipe.to_json()
    return {
        name: values[name]
        for name, (_, option) in recipe_options().items()
        if name in values and values[name] != option.default
    }


def _audio(data: DataSets) -> dict[str, Any]:
    """Returns hours, rates, formats and a histogram of lengths of the clips."""
    import pyarrow as pa

    clips = pa.concat_tables(
        read_table(folder, MANIFEST, _OF_CLIPS) for folder in data.folders
    )
    seconds = clips["frames"].to_numpy() / clips["sample_rate_hz"].to_numpy()
    edges = _edges(seconds)
    kinds = zip(
        clips["native_sample_rate_hz"].to_pylist(),
        clips["channels"].to_pylist(),
        clips["format"].to_pylist(),
        clips["subtype"].to_pylist(),
        strict=True,
    )
    counts: dict[str, Counter[str]] = {"rates": Counter(), "channels": Counter(),
                                       "formats": Counter()}  # fmt: skip
    for (rate, channels, form, subtype), n in Counter(kinds).items():
        counts["rates"][f"{rate} Hz"] += n
        counts["channels"][str(channels)] += n
        counts["formats"][f"{form} {subtype}"] += n
    return {
        "clips": len(seconds),
        "hours": float(seconds.sum()) / 3600,
        "without_windows": int(np.sum(clips["windows"].to_numpy() == 0)),
        "lengths": {
            "edges": edges.tolist(),
            "counts": np.histogram(seconds, edges)[0].tolist(),
        },
        **{name: dict(each.most_common()) for name, each in counts.items()},
    }


def _edges(seconds: Any) -> Any:
    """Returns the edges of bars over lengths, evenly spaced up to the longest."""
    if not len(seconds):
        return np.array([0.0, 1.0])
    low, high = float(seconds.min()), float(seconds.max())
    if high <= low:
        return np.array([low * 0.99, high * 1.01 + 1e-9])
    return np.linspace(low, high, LENGTH_BARS + 1)


def _rejects(data: DataSets) -> list[dict[str, Any]]:
    """Returns the rejected files by the kind of their error, most frequent first."""
    by_error: dict[str, list[dict[str, str]]] = {}
    for folder in data.folders:
        for line in files.read_bytes(files.join(folder, REJECTED)).splitlines():
            values = parse_json(line)
            file = {"path": str(values["path"]), "reason": str(values["reason"])}
            by_error.setdefault(str(values["error"]), []).append(file)
    kinds = sorted(by_error.items(), key=lambda item: -len(item[1]))[:REASONS_SHOWN]
    return [
        {"error": error, "count": len(each), "files": each[:FILES_SHOWN]}
        for error, each in kinds
    ]
