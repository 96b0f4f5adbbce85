"""``metadata.json`` and its companions: what anyone needs to read a data set.

The metadata hold no clock, host or absolute path: equal data sets have equal metadata.
"""

from __future__ import annotations

import importlib.metadata
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from beam_pipeline.dataset.manifest import _FINGERPRINT_FIELDS
from beam_pipeline.dataset.output_folder import METADATA
from beam_pipeline.errors import InputError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.hashing import json_sha256
from beam_pipeline.plan.segments import is_shard_name
from beam_pipeline.plan.shards import ShardInfo
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import SUFFIX

FORMAT_VERSION = 1

DISTRIBUTION = "audio-tfrecords"

# Libraries whose version may change the bytes of a shard.
_BYTE_DECIDING = ("numpy", "scipy", "soundfile", "soxr", "isal")


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One file of a data set."""

    file: str
    examples: int
    bytes: int
    sha256: str


@dataclass(frozen=True)
class SplitEntry:
    """One split: what is in it, and its shards in order.

    ``statistics`` are of what :mod:`statistics` gathers, as JSON values.
    """

    examples: int
    clips: int
    seconds: float
    left_out: int = 0
    examples_per_class: Mapping[str, int] = field(default_factory=dict)
    seconds_per_class: Mapping[str, float] = field(default_factory=dict)
    statistics: Mapping[str, Any] = field(default_factory=dict)
    shards: tuple[ShardEntry, ...] = ()


@dataclass(frozen=True)
class Metadata:
    """A data set's ``metadata.json``.

    Attributes
    ----------
    recipe : Recipe
        Repeats the data set from the same inputs.
    features : mapping
        Name to spec, for everything in an example.
    classes : tuple of str
        ``classes[target]`` is the class.
    splits : mapping
        Name to what is in it.
    clips, rejected, ignored : int
        Of the inputs: listed clips, those rejected, other files.
    """

    recipe: Recipe
    features: Mapping[str, FeatureSpec]
    classes: tuple[str, ...]
    splits: Mapping[str, SplitEntry]
    clips: int
    rejected: int
    ignored: int
    writer: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """The content of ``metadata.json``."""
        return {
            "format_version": FORMAT_VERSION,
            "writer": dict(self.writer),
            "recipe": self.recipe.to_json(),
            "recipe_sha256": self.recipe.sha256(),
            "features": {name: s.to_json() for name, s in self.features.items()},
            "classes": list(self.classes),
            "num_classes": len(self.classes),
            "inputs": {
                "clips": self.clips,
                "rejected": self.rejected,
                "ignored_files": self.ignored,
            },
            "splits": {
                name: {
                    "examples": split.examples,
                    "clips": split.clips,
                    "seconds": split.seconds,
                    "left_out": split.left_out,
                    "examples_per_class": dict(split.examples_per_class),
                    "seconds_per_class": dict(split.seconds_per_class),
                    "statistics": dict(split.statistics),
                    "shards": [
                        {
                            "file": shard.file,
                            "examples": shard.examples,
                            "bytes": shard.bytes,
                            "sha256": shard.sha256,
                        }
                        for shard in split.shards
                    ],
                }
                for name, split in self.splits.items()
            },
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Metadata:
        """The metadata that :meth:`to_json` wrote.

        Raises
        ------
        InputError
            If they are of a later format.
        """
        if values.get("format_version") != FORMAT_VERSION:
            raise InputError(
                f"{METADATA} has format version {values.get('format_version')!r}; this "
                f"version reads {FORMAT_VERSION}. Update {DISTRIBUTION}."
            )
        # As it stands there: a later version may give a recipe more fields.
        if json_sha256(values["recipe"]) != values["recipe_sha256"]:
            raise ValueError("recipe and recipe_sha256 do not belong together")
        return cls(
            Recipe.from_json(values["recipe"]),
            {n: FeatureSpec.from_json(n, v) for n, v in values["features"].items()},
            tuple(values["classes"]),
            {
                name: SplitEntry(
                    split["examples"],
                    split["clips"],
                    split["seconds"],
                    split["left_out"],
                    split["examples_per_class"],
                    split["seconds_per_class"],
                    split["statistics"],
                    tuple(ShardEntry(**shard) for shard in split["shards"]),
                )
                for name, split in values["splits"].items()
            },
            values["inputs"]["clips"],
            values["inputs"]["rejected"],
            values["inputs"]["ignored_files"],
            values["writer"],
        )

    @classmethod
    def parse(cls, text: str | bytes, where: str) -> Metadata:
        """The metadata in a file's text; ``where`` is for the error.

        Raises
        ------
        InputError
            If they are not metadata.
        """
        try:
            return cls.from_json(json.loads(text))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"{where} is not the metadata of a data set: {error!r}. Was it edited?"
            ) from error

    @classmethod
    def load(cls, folder: str) -> Metadata:
        """Reads a data set's metadata.

        Raises
        ------
        InputError
            If the folder holds no finished data set.
        """
        path = files.join(files.absolute(folder), METADATA)
        if not files.exists(path):
            raise InputError(
                f"{folder} holds no finished data set: there is no {METADATA} in it. "
                "If a run was interrupted, give its command again."
            )
        return cls.parse(files.read_bytes(path), path)


def is_shard_file(name: str) -> bool:
    """Whether a file below a data set's folder is called as its shards are."""
    return name.endswith(SUFFIX) and is_shard_name(name.removesuffix(SUFFIX))


def writer_versions() -> dict[str, str]:
    """This package and the libraries that decide bytes, with their versions."""
    versions = {"name": DISTRIBUTION}
    for name in (DISTRIBUTION, *_BYTE_DECIDING):
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            version = "unknown"
        versions["version" if name == DISTRIBUTION else name] = version
    return versions


def to_text(values: Any) -> bytes:
    """JSON as this package writes it for people: indented, ending in a newline."""
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


def equal_manifests(path: str, other: str) -> bool:
    """Whether two manifests list the same clips, whatever their fingerprints are."""
    table, against = map(_read_manifest, (path, other))
    if table.schema != against.schema:
        return False
    return all(map(_equal_columns, table.columns, against.columns))


def _read_manifest(path: str) -> Any:
    import pyarrow.parquet as pq

    with files.open_read(path) as file:
        table = pq.read_table(file)
    return table.drop_columns(
        [n for n in _FINGERPRINT_FIELDS if n in table.schema.names]
    )


def _equal_columns(column: Any, other: Any) -> bool:
    """Whether values are equal one by one, where NaN is equal to NaN."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(column.type):
        column, other = (
            pc.if_else(pc.is_nan(c), pa.scalar(None, c.type), c)
            for c in (column, other)
        )
    return bool(column.equals(other))


def shard_entry(info: ShardInfo) -> ShardEntry:
    """A written shard as the metadata list it."""
    return ShardEntry(info.file, info.examples, info.bytes, info.sha256)
