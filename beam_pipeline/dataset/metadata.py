"""``metadata.json``, ``members.index`` and ``schema.pbtxt``: what readers need to know.

A data set of audio files has a recipe. One of elements of any structure has a structure
instead, and ``recorded_by`` says what recorded it.

The metadata hold no time, host or absolute path: equal data sets have equal metadata.
They have the SHA-256 of every other file that readers open, and one of their own
values, so that :func:`beam_pipeline.verify` finds whatever was changed.

The index says where the members of each shard begin. A GZIP file may consist of several
members, which every reader takes as one stream. The members of our shards hold whole
records, so that an example can be read without what is before it, if the start of its
member is known. Shards without GZIP have the same members, as they are. The file is::

    ATFRMEM1                  8 bytes
    length of the header      uint64
    header                    JSON, see members.schema.json; padded to 8 bytes
    arrays                    uint64
    CRC-32C of all before     uint32

All numbers are little-endian. Shard after shard, there are two arrays, each with an
entry for each member and one more: where each member begins in the file, and the number
of its first example in the shard; at last, the file's bytes, and its examples.

The schema describes the features of an example to the libraries of TensorFlow Extended.
"""

from __future__ import annotations

import json
import math
import os
import re
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import google_crc32c
import numpy as np

from beam_pipeline.arrays import TEXTS, Integers, numpy_dtype
from beam_pipeline.dataset.folders import INDEX, METADATA, SCHEMA
from beam_pipeline.encodings import ENCODINGS, LISTS
from beam_pipeline.errors import InputError
from beam_pipeline.examples.spec import (
    FeatureSpec,
    Shape,
    Structure,
    component_names,
    describe_features,
    structure_from_json,
)
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import LONGEST_RECORD, Members
from beam_pipeline.text import (
    html_table,
    json_sha256,
    parse_json,
    shortened,
    shown,
    typed,
)

if TYPE_CHECKING:
    from beam_pipeline.planning.shards import ShardInfo

FORMAT_VERSION = 1

DISTRIBUTION = "audio-tfrecords"

# The field of the metadata with the SHA-256 of all others.
OWN_SHA256 = "sha256"

# Linux allows no longer paths.
LONGEST_PATH = 4096

_STAT_THREADS = 32

_Entry = TypeVar("_Entry", bound="ShardEntry")

_MOMENTS = ("mean", "m2", "std", "min", "max")


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file beside the shards."""

    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ShardEntry:
    """One file of a data set."""

    file: str
    examples: int
    bytes: int
    sha256: str

    @classmethod
    def like(cls: type[_Entry], shard: ShardInfo | ShardEntry, *more: Any) -> _Entry:
        """Returns the entry of a shard, with what a further class holds."""
        return cls(shard.file, shard.examples, shard.bytes, shard.sha256, *more)


@dataclass(frozen=True)
class SplitEntry:
    """The counts of one split, and its shards in order.

    ``statistics`` are those of :mod:`beam_pipeline.write.statistics`, as JSON values.
    """

    examples: int
    clips: int = 0
    seconds: float = 0.0
    left_out: int = 0
    examples_per_class: Mapping[str, int] = field(default_factory=dict)
    seconds_per_class: Mapping[str, float] = field(default_factory=dict)
    statistics: Mapping[str, Any] = field(default_factory=dict)
    shards: tuple[ShardEntry, ...] = ()


@dataclass(frozen=True)
class Elements:
    """What the metadata of a data set of elements have instead of a recipe.

    Attributes
    ----------
    recorded_by : str
        The function or command that recorded the data set.
    options : mapping
        Its arguments, as JSON values.
    structure : Structure or None
        The structure of an element; None if it is a dict of all features.
    """

    recorded_by: str
    options: Mapping[str, Any] = field(default_factory=dict)
    structure: Structure | None = None

    def to_json(self, features: Iterable[FeatureSpec]) -> dict[str, Any]:
        """Returns what is in the metadata instead of a recipe."""
        sequences = any(spec.sequence for spec in features)
        return {
            "recorded_by": self.recorded_by,
            "options": dict(self.options),
            "record": f"tf.train.{'Sequence' if sequences else ''}Example",
            "structure": None if self.structure is None else self.structure.to_json(),
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Elements:
        """Returns what :meth:`to_json` gave, out of the content of metadata."""
        structure = values["structure"]
        return cls(
            values["recorded_by"],
            values["options"],
            None if structure is None else structure_from_json(structure),
        )


@dataclass(frozen=True)
class Inputs:
    """What the metadata of a data set of audio files say of its inputs."""

    clips: int
    rejected: int
    ignored_files: int
    listing_sha256: str
    left_out: Mapping[str, int] | None = None


@dataclass(frozen=True)
class _Stored:
    """What every ``metadata.json`` has."""

    writer: Mapping[str, str]
    features: Mapping[str, Mapping[str, Any]]
    classes: tuple[str, ...]
    files: Mapping[str, FileEntry]
    splits: Mapping[str, SplitEntry]


@dataclass(frozen=True, repr=False)
class Metadata:
    """A data set's ``metadata.json``.

    Attributes
    ----------
    recipe : Recipe or None
        With the same inputs, it gives the same data set. None if the data set was not
        recorded from audio files.
    features : mapping
        Name to spec, for each feature of an example.
    classes : tuple of str
        ``classes[target]`` is the class of an example.
    splits : mapping
        Name to entry.
    clips, rejected, ignored_files : int
        Number of listed clips, of rejected clips, and of files without an audio suffix.
    writer : mapping
        Versions of this package and of the libraries that decide bytes.
    files : mapping
        Name to entry, for each file beside the shards that readers open.
    elements : Elements or None
        None if the data set was recorded from audio files.
    listing_sha256 : str
        A hash of what the inputs say of each clip, see :class:`.ListingSummary`.
    left_out : mapping or None
        How many clips are left out, by
        :func:`beam_pipeline.planning.clips.why_left_out`. None if none is.
    """

    recipe: Recipe | None
    features: Mapping[str, FeatureSpec]
    classes: tuple[str, ...]
    splits: Mapping[str, SplitEntry]
    clips: int = 0
    rejected: int = 0
    ignored_files: int = 0
    writer: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, FileEntry] = field(default_factory=dict)
    elements: Elements | None = None
    listing_sha256: str = ""
    left_out: Mapping[str, int] | None = None

    def __repr__(self) -> str:
        splits = ", ".join(f"{n} {s.examples:,}" for n, s in self.splits.items())
        left = self.clips - self.rejected - sum((self.left_out or {}).values())
        clips = f" of {left:,} clips" if self.recipe else ""
        classes = f"{len(self.classes):,} classes; " if self.classes else ""
        features = ", ".join(
            f"{name} {spec.dtype}" + (f" {list(spec.shape)}" if spec.shape else "")
            for name, spec in self.features.items()
        )
        return f"<Metadata: examples{clips}: {splits}; {classes}features {features}>"

    @property
    def recorded_with(self) -> Recipe | None:
        """The recipe that made the windows, also if the data set was converted since.

        None if they are not of audio files.
        """
        if self.recipe is not None or self.elements is None:
            return self.recipe
        recipe = self.elements.options.get("recipe")
        return Recipe(**recipe) if isinstance(recipe, Mapping) else None

    @property
    def structure(self) -> Structure | None:
        """The structure of an element; None if it is a dict of all features."""
        return None if self.elements is None else self.elements.structure

    @property
    def components(self) -> list[str]:
        """The features, without those that only belong to others, like a shape."""
        return component_names(self.features, self.structure)

    @property
    def class_names(self) -> list[str]:
        """The classes as a list, under the name that Keras has for them."""
        return list(self.classes)

    def shards(self) -> Iterator[ShardEntry]:
        """Yields the shards of all splits."""
        for split in self.splits.values():
            yield from split.shards

    def feature_description(
        self,
    ) -> dict[str, Any] | tuple[dict[str, Any], dict[str, Any]]:
        """Returns what plain TensorFlow needs to parse the examples.

        ::

            description = Metadata.load("records/").feature_description()
            tf.io.parse_single_example(record, description)

        Returns
        -------
        dict, or (dict, dict)
            Name to ``tf.io.FixedLenFeature``; ``tf.io.VarLenFeature`` for a feature
            whose shape differs between examples, or that some of them lack. If the data
            set has sequences, two of them, the context and the steps of
            ``tf.io.parse_single_sequence_example``, with
            ``tf.io.FixedLenSequenceFeature`` for the steps. A feature whose encoding is
            ``raw``, ``tensor``, ``png`` or ``jpeg`` is described as a text: its bytes.
        """
        context, sequences = describe_features(self.features)
        return (context, sequences) if sequences else context

    def to_json(self) -> dict[str, Any]:
        """Returns the content of ``metadata.json``."""
        recipe, elements = self.recipe, self.elements
        made_by: dict[str, Any] = {}
        inputs: dict[str, Any] = {}
        of_split = {each.name for each in fields(SplitEntry)}
        if recipe is not None:
            made_by = {"recipe": recipe.to_json(), "recipe_sha256": recipe.sha256()}
            counts = {each.name: getattr(self, each.name) for each in fields(Inputs)}
            if self.left_out is None:
                del counts["left_out"]
            inputs = {"inputs": counts}
        elif elements is not None:
            made_by = elements.to_json(self.features.values())
            of_split = {"examples", "statistics", "shards"}
        return {
            "format_version": FORMAT_VERSION,
            "writer": dict(self.writer),
            **made_by,
            "features": {name: s.to_json() for name, s in self.features.items()},
            "classes": list(self.classes),
            "num_classes": len(self.classes),
            **inputs,
            "files": {name: asdict(entry) for name, entry in self.files.items()},
            "splits": {
                name: {
                    key: value
                    for key, value in asdict(split).items()
                    if key in of_split
                }
                for name, split in self.splits.items()
            },
        }

    def save(
        self, folder: str, beside: Iterable[str], written: Iterable[ShardInfo]
    ) -> str:
        """Writes index and schema, then ``metadata.json``; returns its path.

        A data set is complete if it has that file, so it is the last one. ``beside``
        are the files that readers open besides shards; the folder has the others.
        """
        write_index(folder, map(ShardIndex.of, written))
        files.write_bytes(files.join(folder, SCHEMA), schema_text(self.features))
        entries = {
            name: FileEntry(*files.hash_of(files.join(folder, name))) for name in beside
        }
        path = files.join(folder, METADATA)
        files.write_bytes(path, replace(self, files=entries).to_text())
        return path

    def to_text(self) -> bytes:
        """Returns the text of ``metadata.json``: its content and the SHA-256 of it."""
        values = self.to_json()
        return to_text({**values, OWN_SHA256: json_sha256(values)})

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Metadata:
        """Returns the metadata with this content, see :meth:`to_json`.

        They may come from a stranger: wrong types, paths out of the folder and shapes
        that no example can have are refused here, once, and not where they are used.
        Fields that this version does not know may be anything.

        Raises
        ------
        InputError
            If the format has another version.
        ValueError, KeyError, TypeError, AttributeError
            If the content is not that of metadata.
        """
        version = values.get("format_version")
        if version != FORMAT_VERSION:
            raise InputError(
                f"it has format version {shown(version)}, but the installed "
                f"{DISTRIBUTION} reads only format version {FORMAT_VERSION}. Install a "
                f"version of {DISTRIBUTION} that reads it."
            )
        stored = typed(_Stored, values, "")
        features = {
            name: _checked_feature(name, spec) for name, spec in stored.features.items()
        }
        for name in stored.files:
            _check_path("a name in files", name)
        for name, split in stored.splits.items():
            _check_split(name, split, features)
        made = cls(None, **{**vars(stored), "features": features})
        if "recorded_by" in values:
            return replace(made, elements=Elements.from_json(values))
        # The hash is of the JSON in the file: later versions may add recipe fields.
        if json_sha256(values["recipe"]) != values["recipe_sha256"]:
            raise ValueError("recipe_sha256 is not the SHA-256 of the recipe")
        inputs = typed(Inputs, values["inputs"], "inputs")
        return replace(made, recipe=Recipe(**values["recipe"]), **vars(inputs))

    @classmethod
    def parse(cls, text: str | bytes, where: str) -> Metadata:
        """Returns the metadata in the text of a file; errors name the file ``where``.

        Raises
        ------
        InputError
            If the text is not that of metadata.
        """
        try:
            return cls.from_json(parse_json(text))
        except InputError as error:  # it does not know the file
            raise InputError(f"{where}: {error}") from error
        except (
            ValueError, KeyError, TypeError, AttributeError, RecursionError,
        ) as error:  # fmt: skip
            raise InputError(
                f"{where} is not the metadata of a data set: "
                f"{shortened(repr(error), 300)}. Restore the file, or record the data "
                "set again."
            ) from error

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> Metadata:
        """Reads a data set's metadata.

        Raises
        ------
        InputError
            If the folder holds no finished data set.
        """
        folder = files.given_path("folder", folder)
        return cls.parse(open_metadata(folder), files.join(folder, METADATA))


def open_metadata(folder: str) -> bytes:
    """Returns the text of the metadata in a folder that a person has named.

    Raises
    ------
    InputError
        If there is none.
    """
    try:
        return files.read_bytes(files.join(folder, METADATA))
    except NotADirectoryError as error:
        raise InputError(
            f"{folder} is a file. Give the folder of a data set."
        ) from error
    except FileNotFoundError as error:
        if not files.is_folder(folder):
            raise InputError(
                f"There is no folder {folder}. Give the folder of a data set."
            ) from error
        raise InputError(
            f"{folder} holds no finished data set: it has no {METADATA}. If a run was "
            "interrupted, give its command again."
        ) from error


def data_sets_of(paths: Iterable[str]) -> dict[str, Metadata]:
    """Returns the data sets that files belong to, by folder: theirs, or the one above.

    Nothing stands for a file that belongs to none.
    """
    found: dict[str, Metadata] = {}
    for folder in dict.fromkeys(path.rpartition("/")[0] for path in paths):
        holders = (folder, folder.rpartition("/")[0])
        holds = [f for f in holders if files.exists(files.join(f, METADATA))]
        if holds and holds[0] not in found:
            found[holds[0]] = Metadata.load(holds[0])
    return found


def check_files(folder: str, shards: Sequence[ShardEntry]) -> None:
    """Raises :class:`.InputError` if a shard is missing or has a wrong size."""

    def check(shard: ShardEntry) -> None:
        path = files.join(folder, shard.file)
        size = files.size(path)
        if size != shard.bytes:
            found = f"has {size} bytes" if size >= 0 else "does not exist"
            raise InputError(
                f"{path} {found}, but {METADATA} says {shard.bytes} bytes. The shard "
                "was deleted, damaged or replaced. To check every shard, run "
                f"`audio-tfrecords verify {folder}`."
            )

    with ThreadPoolExecutor(_STAT_THREADS) as pool:
        list(pool.map(check, shards))


def to_text(values: Any) -> bytes:
    """Returns indented JSON that ends in a newline."""
    return (json.dumps(values, indent=2, ensure_ascii=False) + "\n").encode()


def _checked_feature(name: str, values: Mapping[str, Any]) -> FeatureSpec:
    """Returns the spec of a feature; raises ValueError if no example can have it."""
    where = f"features.{shortened(name)}"
    spec: FeatureSpec = typed(FeatureSpec, {**values, "name": name}, where)
    if not _is_dtype(spec.dtype):
        raise ValueError(f"{where}: dtype is {shortened(spec.dtype)}, which is unknown")
    if spec.encoding not in ENCODINGS:
        raise ValueError(f"{where}: encoding is {shortened(spec.encoding)}")
    if (
        math.prod(size for size in spec.shape or () if size is not None)
        > LONGEST_RECORD
    ):
        raise ValueError(f"{where}: shape is {shown(spec.shape)}, too large")
    return spec


def _is_dtype(name: str) -> bool:
    """Whether features can have a dtype: texts, numbers, bfloat16 and its kin."""
    if name in TEXTS:
        return True
    if not name.isidentifier():
        return False
    try:
        dtype = numpy_dtype(name)
    except (TypeError, ValueError, AttributeError):
        return False
    return dtype.kind in "biufc" or (dtype.kind == "V" and dtype.name == name)


def _check_split(
    name: str, split: SplitEntry, features: Mapping[str, FeatureSpec]
) -> None:
    where = f"splits.{shortened(name)}"
    if not re.fullmatch(r"\w+", name):  # it becomes a part of paths
        raise ValueError(f"{where}: {shown(name)} cannot be the name of a split")
    for number, shard in enumerate(split.shards):
        _check_path(f"{where}.shards[{number}].file", shard.file)
    within = f"{where}.statistics.features"
    measured = typed(Mapping[str, Any], split.statistics.get("features", {}), within)
    for feature, found in measured.items():
        shape = features[feature].shape if feature in features else None
        _check_statistics(f"{within}.{shortened(feature)}", found, shape)


def _check_statistics(
    where: str, found: Any, shape: tuple[int | None, ...] | None
) -> None:
    """Checks what readers use of the statistics of a feature of this shape."""
    count = typed(_Count, found, where).count
    for name in _MOMENTS:
        _check_moment(f"{where}.{name}", found.get(name), count)
    if "bins" not in found:
        return
    within = f"{where}.bins"
    bins = typed(Mapping[str, tuple[Any, ...]], found["bins"], within)
    counts = typed(tuple[int, ...], found["bins"].get("count"), f"{within}.count")
    size = shape[-1] if shape and shape[-1] is not None else len(counts)
    for name in ("count", *_MOMENTS):
        values = bins.get(name, ())
        if len(values) != size:
            raise ValueError(
                f"{where}: {name} of bins has the shape ({len(values)},), but the last "
                f"axis of the feature, of the shape {shown(list(shape or ()))}, has "
                f"{size} bins"
            )
        if name != "count":
            for k, (value, count) in enumerate(zip(values, counts, strict=True)):
                _check_moment(f"{within}.{name}[{k}]", value, count)


@dataclass(frozen=True)
class _Count:
    count: int


def _check_moment(where: str, value: Any, count: int) -> None:
    """Checks a number that follows from some values; without any, it is null."""
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    if (value is None) if not count else (is_real and math.isfinite(value)):
        return
    wanted = f"a number, of {count} values" if count else "null, without values"
    raise ValueError(f"{where} must be {wanted}; got {shown(value)}")


def _check_path(where: str, path: str) -> None:
    """Raises ValueError unless a path stays below the folder of the data set."""
    problem = None
    if path.startswith("/") or "\\" in path or "://" in path:
        problem = "is not relative to the data set"
    elif any(part in ("", ".", "..") for part in path.split("/")):
        problem = "leaves the data set"
    elif not path.isprintable() or len(path.encode(errors="replace")) > LONGEST_PATH:
        problem = "is no name of a file"
    if problem is not None:
        raise ValueError(f"{where} {problem}; got {shown(path)}")


def view_features(features: Mapping[str, FeatureSpec]) -> str:
    """Returns a table of the features of an example."""
    rows = [
        (name, spec.dtype, _shape(spec), spec.description)
        for name, spec in features.items()
    ]
    return html_table(("feature", "type", "shape", "from"), rows)


def _shape(spec: FeatureSpec) -> str:
    """The shape as text; ``?`` stands for what differs between examples."""
    if spec.shape is None:
        return "?"
    return " × ".join("?" if n is None else str(n) for n in spec.shape) or "scalar"


# The schema


def schema_text(features: Mapping[str, FeatureSpec]) -> bytes:
    """Returns the schema of the examples as a TensorFlow Metadata text proto.

    TFX, TF Transform, TFDV and tfx-bsl read it. They see raw arrays as byte strings.
    """
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    schema = schema_pb2.Schema()
    for name, spec in features.items():
        kind = LISTS[spec.stored_in].schema_type
        feature = schema.feature.add(name=name, type=schema_pb2.FeatureType.Value(kind))
        feature.annotation.comment.append(spec.description)
        if not spec.optional:
            feature.presence.min_fraction = 1.0
            feature.presence.min_count = 1
        if spec.encoding in LISTS and not spec.has_fixed_shape:
            feature.value_count.min = 0
            continue
        feature.shape.SetInParent()
        for size in spec.sizes if spec.encoding in LISTS else ():
            feature.shape.dim.add(size=size)
    return str(text_format.MessageToString(schema)).encode()


def parse_schema(text: bytes, where: str) -> dict[str, FeatureSpec]:
    """Returns the features that a TensorFlow Metadata schema describes, by name.

    A feature has a fixed shape if the schema has its ``shape``, or a ``value_count``
    with equal ends, of which 1 is a single value; otherwise a list of any length. It
    may be missing, unless its ``presence`` has a ``min_fraction`` of 1.

    Parameters
    ----------
    text : bytes
        A text proto.
    where : str
        The path of the text, for messages.

    Raises
    ------
    InputError
        If the text is not a schema, or a feature has no type that an example stores.
    """
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    try:
        schema = text_format.Parse(text.decode(), schema_pb2.Schema())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise InputError(
            f"{where} is not a schema of TensorFlow Metadata as text: {error}. Restore "
            "the file, or give another `schema`."
        ) from error
    encodings = {each.schema_type: name for name, each in LISTS.items()}
    specs: dict[str, FeatureSpec] = {}
    for feature in schema.feature:
        kind = schema_pb2.FeatureType.Name(feature.type)
        encoding = encodings.get(kind)
        if encoding is None or feature.name in specs:
            problem = "is there twice"
            if encoding is None:
                problem = f"has the type {kind}, not BYTES, INT or FLOAT"
            raise InputError(f"{where}: feature {feature.name!r} {problem}.")
        specs[feature.name] = FeatureSpec(
            feature.name,
            LISTS[encoding].dtype,
            _shape_of(feature),
            encoding,
            "".join(feature.annotation.comment[:1]),
            optional=feature.presence.min_fraction < 1,
        )
    return specs


def _shape_of(feature: Any) -> Shape:
    if feature.HasField("shape"):
        sizes = tuple(dim.size for dim in feature.shape.dim)
        return sizes if all(size > 0 for size in sizes) else (None,)
    count = feature.value_count
    if count.min != count.max or not count.min:
        return (None,)
    return () if count.min == 1 else (count.min,)


# The index

_MAGIC = b"ATFRMEM1"
_ALIGNMENT = 8
_CHECKSUM = 4


@dataclass(frozen=True, slots=True)
class _Shard(ShardEntry):
    """A shard in the header, and the number of its members."""

    members: int


@dataclass(frozen=True)
class _Header:
    shards: tuple[_Shard, ...]


class Span(NamedTuple):
    """The bytes of a member, and its examples ``first .. first + examples - 1``."""

    offset: int
    size: int
    first: int
    examples: int


@dataclass(frozen=True)
class ShardIndex(ShardEntry):
    """The members of one shard; those without examples are left out.

    Attributes
    ----------
    offsets : numpy.ndarray, shape (members + 1,), integer
        Where each member begins in the file, and the file's bytes.
    firsts : numpy.ndarray, shape (members + 1,), integer
        The first example of each member, and the shard's examples.
    """

    offsets: Integers
    firsts: Integers

    @classmethod
    def make(
        cls, shard: ShardInfo | ShardEntry, offsets: Integers, counts: Integers
    ) -> ShardIndex:
        """Returns the index of a shard, whose members hold ``counts`` examples each."""
        held = counts > 0
        return cls.like(
            shard,
            np.append(offsets[held], shard.bytes).astype(np.int64),
            np.append(0, np.cumsum(counts[held])).astype(np.int64),
        )

    @classmethod
    def of(cls, info: ShardInfo) -> ShardIndex:
        """Returns the members of a shard that a worker has written."""
        sizes, counts = Members.unpack(info.members)
        offsets = np.cumsum(sizes) - sizes
        return cls.make(info, offsets, counts)

    def member_of(self, positions: Any) -> Any:
        """Returns the number of the member that holds each position of the shard."""
        if len(self.firsts) == self.examples + 1:  # each holds one
            return positions
        # Of the same type, or numpy would convert the whole array.
        positions = self.firsts.dtype.type(positions)
        return np.searchsorted(self.firsts, positions, "right") - 1

    def span(self, member: int) -> Span:
        """Returns where a member is."""
        offset, end = self.offsets[member : member + 2].tolist()
        first, stop = self.firsts[member : member + 2].tolist()
        return Span(offset, end - offset, first, stop - first)

    def check(self) -> None:
        """Raises ValueError unless the members are in the shard, in their order."""
        for name, array, end, least in (
            ("offsets", self.offsets, self.bytes, int(self.offsets[0])),
            ("first examples", self.firsts, self.examples, 0),
        ):
            ascends = bool((array[1:] > array[:-1]).all())
            if not ascends or int(array[0]) != least or int(array[-1]) != end:
                raise ValueError(
                    f"the {name} of the members of the shard {self.file} do not "
                    f"increase up to its {self.bytes} bytes and {self.examples} "
                    "examples"
                )


def load_index(folder: str) -> dict[str, ShardIndex]:
    """Reads the index of a data set; returns its shards by file.

    Their arrays are mapped from the file, or in memory if the file is not local.

    Raises
    ------
    FileNotFoundError
        If it has none.
    InputError
        If the file is damaged.
    """
    path = files.join(folder, INDEX)
    content: Any
    if files.is_local(path):
        # An empty file cannot be mapped.
        content = np.memmap(path, np.uint8, "r") if os.path.getsize(path) else []
        content = np.asarray(content, np.uint8)  # slices of the subclass are slow
    else:
        content = np.frombuffer(files.read_bytes(path), np.uint8)
    try:
        return {shard.file: shard for shard in _parse(content)}
    except ValueError as error:
        raise damaged_index(folder, error) from error


def damaged_index(folder: str, problem: ValueError) -> InputError:
    """Returns the error for an index that is damaged, or of other shards."""
    return InputError(
        f"{files.join(folder, INDEX)} cannot be used: {problem}. "
        f"`audio-tfrecords convert {folder} NEW_FOLDER` makes a data set with a "
        "new index."
    )


def _parse(content: Any) -> Iterator[ShardIndex]:
    start, end = len(_MAGIC) + 8, len(content) - _CHECKSUM
    if bytes(content[: len(_MAGIC)]) != _MAGIC or end < start:
        raise ValueError("it does not begin with ATFRMEM1 and a header")
    if google_crc32c.value(content[:end]) != _number(content[end:]):
        raise ValueError("its checksum is wrong")
    stop = start + _number(content[len(_MAGIC) : start])
    values = parse_json(bytes(content[start:stop]))
    header: _Header = typed(_Header, values, "its header")
    body, expected = content[stop:end], sum(2 * (s.members + 1) for s in header.shards)
    if len(body) != expected * _ALIGNMENT:
        raise ValueError(
            f"its arrays have {len(body)} bytes instead of {expected * _ALIGNMENT}"
        )
    arrays = body.view("<u8")
    for shard in header.shards:
        here, arrays = np.split(arrays, [2 * (shard.members + 1)])
        yield ShardIndex.like(shard, *here.reshape(2, -1))


def _number(content: Any) -> int:
    return int.from_bytes(bytes(content), "little")


def write_index(folder: str, shards: Iterable[ShardIndex]) -> None:
    """Writes an index of some shards; the same shards give the same bytes."""
    listed, arrays = [], list[Integers]()
    for shard in shards:
        members = len(shard.offsets) - 1
        listed.append(_Shard.like(shard, members))
        arrays += shard.offsets, shard.firsts
    header = json.dumps(asdict(_Header(tuple(listed)))).encode()
    header += b" " * (-len(header) % _ALIGNMENT)
    path, checksum = files.join(folder, INDEX), 0
    with files.replacing(path) as file:
        for piece in chain(
            [_MAGIC, struct.pack("<Q", len(header)), header],
            (array.astype("<u8").tobytes() for array in arrays),
        ):
            checksum = google_crc32c.extend(checksum, piece)
            file.write(piece)
        file.write(struct.pack("<I", checksum))
