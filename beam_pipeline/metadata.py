"""``metadata.json`` and its companions: what anyone needs to read a data set.

The metadata hold no clock, host or absolute path: equal data sets have equal metadata.
"""

from __future__ import annotations

import importlib.metadata
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from isal import isal_zlib

from beam_pipeline import files
from beam_pipeline.errors import InputError
from beam_pipeline.features import BYTES_LIST, FLOAT_LIST, INT64_LIST, FeatureSpec
from beam_pipeline.fingerprints import CONTENT_BYTES, SKETCH_BYTES
from beam_pipeline.plan import PlacedClips, Reject, ShardInfo, ShardLayout
from beam_pipeline.recipe import Recipe, json_sha256

FORMAT_VERSION = 1
METADATA = "metadata.json"
SCHEMA = "schema.pbtxt"
MANIFEST = "manifest.parquet"
REJECTED = "rejected.jsonl"
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


def schema_text(features: Mapping[str, FeatureSpec]) -> bytes:
    """The examples' schema as a TensorFlow Metadata text proto.

    TFX, TF Transform, TFDV and tfx-bsl read it. Raw arrays are byte strings to them.
    """
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    kinds = {
        FLOAT_LIST: schema_pb2.FLOAT,
        INT64_LIST: schema_pb2.INT,
        BYTES_LIST: schema_pb2.BYTES,
    }
    schema = schema_pb2.Schema()
    for name, spec in features.items():
        feature = schema.feature.add(
            name=name, type=kinds.get(spec.encoding, schema_pb2.BYTES)
        )
        feature.annotation.comment.append(spec.description)
        feature.presence.min_fraction = 1.0
        feature.presence.min_count = 1
        is_list = spec.encoding in (FLOAT_LIST, INT64_LIST)
        feature.shape.SetInParent()
        for size in spec.shape if is_list else ():
            feature.shape.dim.add(size=size)
    return str(text_format.MessageToString(schema)).encode()


def rejects_text(rejects: Iterable[Reject]) -> bytes:
    """``rejected.jsonl``: one line a reject, by place in the listing."""
    lines = [
        json.dumps(
            {
                "path": reject.filepath,
                "stage": reject.stage,
                "error": reject.error,
                "reason": reject.reason,
            },
            ensure_ascii=False,
        )
        for reject in sorted(rejects, key=lambda r: (r.row, r.shard or "", r.reason))
    ]
    return "".join(line + "\n" for line in lines).encode()


_MANIFEST_FIELDS = {
    "path": "string",
    "input": "int32",
    "file": "int64",
    "index": "int64",
    "class": "string",
    "split": "string",
    "group": "string",
    "start": "int64",
    "frames": "int64",
    "sample_rate_hz": "int32",
    "channels": "int32",
    "channel": "int32",
    "native_frames": "int64",
    "native_sample_rate_hz": "int32",
    "format": "string",
    "subtype": "string",
    "first_index": "int64",
    "windows": "int64",
}
# Only where the recipe asks for fingerprints; in the packed parts hexadecimal.
_FINGERPRINT_FIELDS = {"content": CONTENT_BYTES, "sketch": SKETCH_BYTES}
_RESERVED_FIELDS = {*_MANIFEST_FIELDS, *_FINGERPRINT_FIELDS}
_ROW_GROUP = 1 << 16


def manifest_fields(
    recipe: Recipe, columns: Sequence[tuple[str, str]] = ()
) -> dict[str, str | int]:
    """Name and type of each column of the manifest; a number: so many bytes.

    ``columns`` are those that the clips bring. Where their names are taken, an
    underscore follows them. Numbers that examples have as float32 are whole here.
    """
    fields: dict[str, str | int] = dict(_MANIFEST_FIELDS)
    if recipe.fingerprint:
        fields.update(_FINGERPRINT_FIELDS)
    names = {name for name, _ in columns}
    for name, dtype in columns:
        free = name
        while free in _RESERVED_FIELDS or (free != name and free in names):
            free += "_"
        fields[free] = "float64" if dtype == "float32" else dtype
    return fields


def manifest_part(placed: PlacedClips, layout: ShardLayout, recipe: Recipe) -> bytes:
    """One bucket's rows of the manifest, packed to some 30 bytes a clip.

    ``file`` is the index of the first clip that was listed of the same file, ``start``
    and ``frames`` tell which part of it the clip is, at the output rate, and
    ``channel`` which channel, if not all. ``group`` is what ``group_by`` names, several
    values with U+001F between them. ``first_index`` is the index in the split of the
    clip's first example; ``windows`` how many are in the data set, which are fewer than
    the clip has where the recipe limits the number of examples.
    """
    rows, index = [], placed.first_window
    for clip in placed.clips:
        channel = recipe.channels if clip.channel is None else clip.channel
        prints = (clip.content.hex(), clip.sketch.hex()) if recipe.fingerprint else ()
        rows.append(
            (
                clip.filepath,
                clip.source,
                clip.file,
                clip.row,
                clip.label,
                clip.split,
                clip.group if recipe.group_by is not None else None,
                clip.start,
                clip.frames,
                clip.sample_rate_hz,
                clip.channels,
                channel if isinstance(channel, int) else None,
                clip.native_frames,
                clip.native_rate_hz,
                clip.format,
                clip.subtype,
                index,
                max(0, min(clip.windows, layout.total - index)),
                *prints,
                *clip.columns,
            )
        )
        index += clip.windows
    return isal_zlib.compress(json.dumps(rows).encode())


def write_manifest(
    path: str,
    parts: Iterable[tuple[str, int, bytes]],
    fields: Mapping[str, str | int],
) -> None:
    """Writes ``manifest.parquet``: one row a clip, in the order of the examples.

    Parameters
    ----------
    parts : iterable of (split, bucket, manifest_part)
        Held packed, and opened one after the other.
    fields
        Those of :func:`manifest_fields`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        [
            (name, pa.binary(kind) if isinstance(kind, int) else getattr(pa, kind)())
            for name, kind in fields.items()
        ]
    )
    folder, _, name = path.rpartition("/")
    draft = files.draft_path(folder or ".", f"{name}.tmp-{uuid.uuid4().hex}")
    with pq.ParquetWriter(draft, schema, compression="zstd") as writer:
        rows: list[Sequence[Any]] = []
        for _, _, part in sorted(parts):
            rows += json.loads(isal_zlib.decompress(part))
            if len(rows) >= _ROW_GROUP:
                writer.write_table(_table(rows, schema))
                rows = []
        if rows:
            writer.write_table(_table(rows, schema))
    files.move(draft, path)


def _table(rows: Sequence[Sequence[Any]], schema: Any) -> Any:
    import pyarrow as pa

    columns = []
    for i, kind in enumerate(schema.types):
        values = [row[i] for row in rows]
        if pa.types.is_fixed_size_binary(kind):
            values = [bytes.fromhex(value) or None for value in values]
        columns.append(pa.array(values, kind))
    return pa.Table.from_arrays(columns, schema=schema)


def shard_entry(info: ShardInfo) -> ShardEntry:
    """A written shard as the metadata list it."""
    return ShardEntry(info.file, info.examples, info.bytes, info.sha256)
